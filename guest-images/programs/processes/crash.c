// Children that crash, each in its way, while the parent goes on.
#include "processes.h"
#include <sys/prctl.h>
#include <sys/resource.h>

static int *volatile nowhere = (int *)8;
static int null_pointer(void) { return *nowhere; }
static int to_a_constant(void) { return (int)(*(volatile char *)"constant" = 'C'); }
static int no_code(void) { return ((int (*)(void))(uintptr_t)0x123456)(); }

static int not_executable(void) {
    static char bytes[16] = {(char)0xc3};
    int (*volatile function)(void) = (int (*)(void))(uintptr_t)bytes;
    return function();
}

static int by_zero(void) {
    volatile int zero = 0;
    return 5 % zero;
}

static int illegal(void) {
    __asm__ volatile("ud2");
    return 0;
}

static int privileged(void) {
    __asm__ volatile("cli");
    return 0;
}

static int breakpoint(void) {
    __asm__ volatile("int3");
    return 0;
}

static int aborts(void) { abort(); }

static int past_the_end(void) {
    char name[] = "/tmp/processes-XXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
    volatile char *map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
    return map[4096];
}

static volatile int deepest = 1 << 30;

__attribute__((noinline)) static int deep(int depth) {
    volatile char room[4096];
    room[0] = (char)depth;
    return depth == deepest ? 0 : deep(depth + 1) + room[0];
}

static int no_stack(void) { return deep(0); }

static int in_the_handler(void) {
    struct sigaction action = {.sa_handler = (void (*)(int))(uintptr_t)0x10};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    return 0;
}

static int blocked(void) {
    block(SIGSEGV);
    return null_pointer();
}

static int ignored(void) {
    signal(SIGSEGV, SIG_IGN);
    return null_pointer();
}

static int quits(void) {
    raise(SIGQUIT);
    return 0;
}

int main(void) {
    // Without core files, which nobody would remove.
    CHECK(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}) == 0);
    struct rlimit stack;
    CHECK(getrlimit(RLIMIT_STACK, &stack) == 0);
    stack.rlim_cur = 1 << 20;
    CHECK(setrlimit(RLIMIT_STACK, &stack) == 0);
    static const struct { const char *name; int (*body)(void); } ways[] = {
        {"a null pointer", null_pointer}, {"a constant", to_a_constant}, {"no code there", no_code},
        {"data as code", not_executable}, {"a division", by_zero}, {"an illegal instruction", illegal},
        {"a privileged one", privileged}, {"a breakpoint", breakpoint}, {"abort", aborts}, {"past the end of a file", past_the_end},
        {"no more stack", no_stack}, {"a handler that is not there", in_the_handler}, {"blocked", blocked}, {"ignored", ignored},
        {"quit", quits},
    };
    for (size_t n = 0; n < sizeof ways / sizeof *ways; n++)
        printf("%s: %s\n", ways[n].name, ended(finish(start(ways[n].body))));
    // One crashes while its brothers and its own child go on.
    int hold[2];
    CHECK(pipe(hold) == 0 && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    pid_t brother = split();
    if (brother == 0) {
        await(hold);
        _exit(40);
    }
    pid_t pid = split();
    if (pid == 0) {
        if (fork() == 0) {
            await(hold);
            _exit(41);
        }
        exit(null_pointer());
    }
    printf("it: %s\n", ended(finish(pid)));
    tell(hold), tell(hold);
    printf("its brother: %s\n", ended(finish(brother)));
    int status;
    CHECK(wait(&status) > 0);
    printf("its child: %s\n", ended(status));
    return 0;
}
