// A large memory over many forks: each process writes some pages of its own, all others stay as they were.
#include "processes.h"

enum { MEGABYTES = 32, PAGES = MEGABYTES * 256, CHILDREN = 6 };

static char *memory;

static uint64_t sum(void) {
    uint64_t sum = 0;
    for (int n = 0; n < PAGES; n++) {
        const uint32_t *page = (const uint32_t *)(memory + (size_t)n * 4096);
        sum = sum * 31 + page[0] + page[100] * 7 + page[1023] * 5;
    }
    return sum;
}

static void fill(int seed, int from, int step) {
    for (int n = from; n < PAGES; n += step) {
        uint32_t *page = (uint32_t *)(memory + (size_t)n * 4096);
        page[0] = (uint32_t)(seed * n), page[100] = (uint32_t)(seed ^ n), page[1023] = (uint32_t)(seed + n);
    }
}

int main(void) {
    memory = mmap(NULL, (size_t)PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    uint64_t *sums = shared(4096);
    fill(1, 0, 1);
    uint64_t before = sum();
    int ready[2], go[2];
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    pid_t pids[CHILDREN];
    for (int n = 0; n < CHILDREN; n++) {
        pids[n] = split();
        if (pids[n] == 0) {
            fill(n + 2, n, 3);
            tell(ready);
            await(go);
            sums[n] = sum();
            // A grandchild's copy is of the child's copy.
            pid_t grandchild = fork();
            if (grandchild == 0) {
                fill(50, 1, 100);
                sums[CHILDREN + n] = sum();
                _exit(0);
            }
            finish(grandchild);
            _exit(sum() == sums[n] ? 0 : 1);
        }
    }
    for (int n = 0; n < CHILDREN; n++) await(ready);
    printf("the parent's is as before: %d\n", sum() == before);
    fill(99, 5, 2);
    for (int n = 0; n < CHILDREN; n++) tell(go);
    for (int n = 0; n < CHILDREN; n++) {
        int status = finish(pids[n]);
        printf("child %d: %s, %016llx, %016llx\n", n, ended(status), (unsigned long long)sums[n],
               (unsigned long long)sums[CHILDREN + n]);
    }
    printf("the parent: %016llx\n", (unsigned long long)sum());
    // Freed in the child, and given back in part.
    pid_t pid = split();
    if (pid == 0) {
        CHECK(madvise(memory, (size_t)PAGES * 2048, MADV_DONTNEED) == 0);
        int empty = 1;
        for (int n = 0; n < PAGES / 2; n++) empty &= memory[(size_t)n * 4096] == 0;
        _exit(empty ? 4 : 5);
    }
    printf("given back: %s", ended(finish(pid)));
    printf(", the parent: %016llx\n", (unsigned long long)sum());
    return 0;
}
