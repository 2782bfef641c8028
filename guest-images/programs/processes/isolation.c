// Memory after fork: each process's own, of every kind; what one maps, grows or protects, the other does not see.
#include "processes.h"
#include <setjmp.h>

static int initialized = 5, zero;
static __thread int local = 6;
static sigjmp_buf back;

static void jump(int number) { (void)number, siglongjmp(back, 1); }

static const char *touch(const volatile char *at) {
    static char text[32];
    if (sigsetjmp(back, 1)) return "a fault";
    snprintf(text, sizeof text, "%d", *at);
    return text;
}

int main(void) {
    handle(SIGSEGV, jump, 0);
    int automatic = 7, *heap = malloc(sizeof *heap);
    *heap = 8;
    char *map = mmap(NULL, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(map != MAP_FAILED);
    map[0] = 9, map[4096] = 10, map[8192] = 11, map[3 * 4096] = 12, map[4 * 4096] = 13;
    char *end = sbrk(8192);
    CHECK(end != (void *)-1);
    end[0] = 14;
    char *child_map = shared(4096);
    int go[2], done[2];
    CHECK(pipe(go) == 0 && pipe(done) == 0);
    CHECK(madvise(map + 3 * 4096, 4096, MADV_DONTFORK) == 0);
#ifdef MADV_WIPEONFORK
    CHECK(madvise(map + 4 * 4096, 4096, MADV_WIPEONFORK) == 0);
#else
    CHECK(madvise(map + 4 * 4096, 4096, 18) == 0);
#endif
    pid_t pid = split();
    if (pid == 0) {
        printf("the child: %d %d %d %d %d %d %d %d %d\n", initialized, zero, local, automatic, *heap, map[0], map[4096],
               map[8192], end[0]);
        printf("not given: %s, wiped: %s\n", touch(map + 3 * 4096), touch(map + 4 * 4096));
        initialized = zero = local = automatic = *heap = 100;
        map[0] = 101, end[0] = 102;
        CHECK(mprotect(map + 4096, 4096, PROT_NONE) == 0 && munmap(map + 8192, 4096) == 0);
        char *more = sbrk(1 << 20);
        CHECK(more != (void *)-1);
        more[(1 << 20) - 1] = 1;
        // Too large for the holes that only the child has.
        char *own = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(own != MAP_FAILED);
        memcpy(child_map, &own, sizeof own);
        memcpy(child_map + 8, &more, sizeof more);
        own[0] = 55;
        fflush(NULL);
        tell(done);
        await(go);
        printf("the child, of the parent's later writes: %d %d %d %s\n", initialized, map[0], end[0], touch(map + 4096));
        exit(0);
    }
    await(done);
    printf("the parent: %d %d %d %d %d %d %d %d %d\n", initialized, zero, local, automatic, *heap, map[0], map[4096],
           map[8192], end[0]);
    printf("kept: %d %d\n", map[3 * 4096], map[4 * 4096]);
    char *own, *more;
    memcpy(&own, child_map, sizeof own);
    memcpy(&more, child_map + 8, sizeof more);
    printf("what only the child has: %s, %s\n", touch(own), touch(more + (1 << 20) - 1));
    initialized = map[0] = end[0] = 111;
    fflush(NULL);
    tell(go);
    printf("%s\n", ended(finish(pid)));
    printf("at the end: %d %d %d\n", initialized, map[0], end[0]);

    // A stack that grows in the child.
    pid = split();
    if (pid == 0) {
        volatile char large[1 << 20];
        for (size_t n = 0; n < sizeof large; n += 4096) large[n] = (char)n;
        _exit(large[4096] == 0 ? 3 : 4);
    }
    printf("a deep stack: %s\n", ended(finish(pid)));
    return 0;
}
