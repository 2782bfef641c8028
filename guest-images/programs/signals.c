// Signals: handlers on another stack, faults that jump back out, blocked and pending ones, exit handlers, and an end by SIGTERM.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static sigjmp_buf back;
static volatile sig_atomic_t last, code, count;
static void *volatile address;

static void note(int number, siginfo_t *info, void *context) {
    (void)context;
    last = number, code = info->si_code, address = info->si_addr, count++;
}

static void jump(int number, siginfo_t *info, void *context) {
    note(number, info, context);
    siglongjmp(back, 1);
}

static void handle(int number, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    sigemptyset(&action.sa_mask);
    if (sigaction(number, &action, NULL)) exit(2);
}

static void bye(void) {
    printf("exit handler, %d signals\n", (int)count);
    fflush(stdout);
}

int main(void) {
    static char other[65536];
    stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
    sigaltstack(&stack, NULL);
    atexit(bye);

    handle(SIGUSR1, note, SA_ONSTACK);
    raise(SIGUSR1);
    printf("raised: %s, code %d\n", strsignal(last), (int)code);

    handle(SIGSEGV, jump, SA_ONSTACK);
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!sigsetjmp(back, 1)) page[10] = 1;
    printf("write: %s, code %d, at the page: %d\n", strsignal(last), (int)code, address == page + 10);
    if (!sigsetjmp(back, 1)) munmap(page, 4096), page[20] = page[30];
    printf("unmapped: code %d, at the page: %d\n", (int)code, address == page + 30);

    handle(SIGFPE, jump, 0);
    volatile int zero = 0;
    if (!sigsetjmp(back, 1)) zero = 7 / zero;
    printf("division: %s, code %d\n", strsignal(last), (int)code);
    handle(SIGILL, jump, 0);
    if (!sigsetjmp(back, 1)) __builtin_trap();
    printf("ud2: %s, code %d\n", strsignal(last), (int)code);

    sigset_t set, old;
    sigemptyset(&set), sigaddset(&set, SIGUSR2);
    handle(SIGUSR2, note, SA_RESTART);
    sigprocmask(SIG_BLOCK, &set, &old);
    kill(getpid(), SIGUSR2);
    sigset_t pending;
    sigpending(&pending);
    printf("pending: %d, handled: %d\n", sigismember(&pending, SIGUSR2), last == SIGUSR2);
    sigprocmask(SIG_SETMASK, &old, NULL);
    printf("handled: %d, %d signals\n", last == SIGUSR2, (int)count);

    bye();
    signal(SIGTERM, SIG_DFL);
    kill(getpid(), SIGTERM);
    return 0;
}
