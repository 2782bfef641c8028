// Memory that processes share: anonymous, over fork, seen at once, with atomic counters and hand-overs by spinning.
#include "processes.h"

enum { WORKERS = 4, ROUNDS = 5000, CELLS = 4096 };

struct board {
    _Atomic int counter, ready, turn, lock;
    long plain;
    int cells[WORKERS * CELLS];
    _Atomic int *volatile pointer;
};

static struct board *board;
static int private_ = 1;
static int number;

static int works(void) {
    private_ = number + 10;
    board->ready++;
    while (board->ready < WORKERS) sched_yield();
    for (int n = 0; n < ROUNDS; n++) {
        board->counter++;
        while (__atomic_exchange_n(&board->lock, 1, __ATOMIC_ACQUIRE)) sched_yield();
        board->plain += n;
        __atomic_store_n(&board->lock, 0, __ATOMIC_RELEASE);
    }
    for (int n = 0; n < CELLS; n++) board->cells[number * CELLS + n] = number * 1000003 + n * n;
    return private_;
}

// Each waits for its turn, so that the order is fixed.
static int turns(void) {
    for (int n = 0; n < 50; n++) {
        while (board->turn % WORKERS != number) sched_yield();
        board->plain = board->plain * 31 + number;
        board->turn++;
    }
    return 0;
}

int main(void) {
    board = shared(sizeof *board);
    pid_t pids[WORKERS];
    for (number = 0; number < WORKERS; number++) pids[number] = start(works);
    for (int n = 0; n < WORKERS; n++) printf("worker %d: %s\n", n, ended(finish(pids[n])));
    printf("counter %d, sum %ld, own %d\n", board->counter, board->plain, private_);
    uint64_t hash = 14695981039346656037u;
    for (int n = 0; n < WORKERS * CELLS; n++) hash = (hash ^ (uint32_t)board->cells[n]) * 1099511628211u;
    printf("hash %016llx\n", (unsigned long long)hash);

    board->plain = 1;
    for (number = 0; number < WORKERS; number++) pids[number] = start(turns);
    for (int n = 0; n < WORKERS; n++) finish(pids[n]);
    printf("in turns: %ld\n", board->plain);

    // Pages that nobody touched before the fork are shared all the same; so is what a grandchild writes.
    char *late = shared(1 << 20);
    pid_t pid = split();
    if (pid == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) {
            for (int n = 0; n < 1 << 20; n += 4096) late[n] = (char)(n >> 12);
            _exit(0);
        }
        _exit(finish(grandchild));
    }
    finish(pid);
    long sum = 0;
    for (int n = 0; n < 1 << 20; n++) sum += (unsigned char)late[n];
    printf("late pages: %ld\n", sum);
    // A part that the child unmaps or protects stays as it is for the parent.
    pid = split();
    if (pid == 0) {
        CHECK(munmap(late, 8192) == 0 && mprotect(late + 8192, 4096, PROT_NONE) == 0);
        late[12288 + 1] = 77;
        _exit(0);
    }
    finish(pid);
    late[0] = late[8192] = 5;
    printf("still mapped: %d, written %d\n", late[0] + late[8192], late[12288 + 1]);
    // Moved and grown mappings are the same memory.
    char *moved = mremap(late, 1 << 20, 1 << 19, 0);
    CHECK(moved == late);
    pid = split();
    if (pid == 0) {
        char *elsewhere = mremap(late, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, late + (1 << 19) + (1 << 16));
        CHECK(elsewhere != MAP_FAILED);
        elsewhere[7] = 99;
        _exit(0);
    }
    printf("%s\n", ended(finish(pid)));
    printf("moved in the child: %d\n", late[7]);
    return 0;
}
