// The flags of sigaction: RESETHAND, NODEFER, ONSTACK, RESTART, masks, and the fields that SIGINFO gives.
#include "processes.h"
#include <setjmp.h>
#include <ucontext.h>

static volatile int depth, deepest, count, last_code;
static char other[1 << 17];
static volatile int on_other;

static void plain(int number) { (void)number, count++; }

static void nested(int number) {
    depth++;
    if (depth > deepest) deepest = depth;
    if (++count < 4) raise(number);
    depth--;
}

static void where(int number) {
    (void)number;
    char here;
    uintptr_t at = (uintptr_t)&here, from = (uintptr_t)other;
    on_other = at >= from && at < from + sizeof other;
}

static sigjmp_buf back;
static volatile uintptr_t address;

static void info(int number, siginfo_t *info, void *context) {
    const ucontext_t *state = context;
    last_code = info->si_code, address = (uintptr_t)info->si_addr, count++;
    if (number == SIGSEGV || number == SIGFPE || number == SIGBUS || number == SIGILL || number == SIGTRAP) {
        if (number == SIGTRAP) return;
        siglongjmp(back, state->uc_link == NULL ? 1 : 2);
    }
}

static int one_time(void) {
    handle(SIGUSR1, plain, SA_RESETHAND);
    raise(SIGUSR1);
    struct sigaction now;
    sigaction(SIGUSR1, NULL, &now);
    if (now.sa_handler != SIG_DFL || count != 1) return 1;
    raise(SIGUSR1);
    return 2;
}

static int ready[2], data[2];

// Reads while its parent sends signals: with SA_RESTART the read goes on, else it fails with EINTR.
static int reads(int flags) {
    handle(SIGUSR1, plain, flags);
    tell(ready);
    char byte = 0;
    ssize_t got = read(data[0], &byte, 1);
    if (got == -1) return errno == EINTR ? 10 : 11;
    return got == 1 && byte == 'd' && count > 0 ? 12 : 13;
}

static int reads_on(void) { return reads(SA_RESTART); }
static int reads_once(void) { return reads(0); }

static int sleeps_on(void) {
    // A sleep is not started again, whatever the flags.
    handle(SIGUSR1, plain, SA_RESTART);
    tell(ready);
    struct timespec hour = {3600, 0};
    return nanosleep(&hour, NULL) == -1 && errno == EINTR ? 14 : 15;
}

static int waits_on(void) {
    handle(SIGUSR1, plain, SA_RESTART);
    int hold[2];
    CHECK(pipe(hold) == 0);
    pid_t pid = split();
    if (pid == 0) {
        close(hold[1]);
        char byte;
        _exit(read(hold[0], &byte, 1) == 0 ? 16 : 17);
    }
    close(hold[0]);
    // The child ends when this process has the signal: its handler shuts the pipe.
    tell(ready);
    while (count == 0) usleep(500);
    close(hold[1]);
    int status;
    return waitpid(pid, &status, 0) == pid ? WEXITSTATUS(status) : 18;
}

static void interrupted(const char *what, int (*body)(void)) {
    pid_t pid = start(body);
    await(ready);
    int status = 0;
    for (int n = 0; waitpid(pid, &status, WNOHANG) == 0; n++) {
        kill(pid, SIGUSR1);
        usleep(1000);
        if (n == 20 && body == reads_on) CHECK(write(data[1], "d", 1) == 1);
    }
    printf("%s: %s\n", what, ended(status));
}

static void masks(void) {
    struct sigaction action = {.sa_handler = plain}, old;
    sigfillset(&action.sa_mask);
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0 && sigaction(SIGUSR2, NULL, &old) == 0);
    printf("the mask without KILL %d and STOP %d, with TERM %d\n", sigismember(&old.sa_mask, SIGKILL),
           sigismember(&old.sa_mask, SIGSTOP), sigismember(&old.sa_mask, SIGTERM));
    CHECK(sigaction(SIGKILL, &action, NULL) == -1);
    printf("SIGKILL: %s\n", error(errno));
    CHECK(sigaction(SIGSTOP, &action, NULL) == -1);
    printf("SIGSTOP: %s\n", error(errno));
    printf("flags %x\n", (unsigned)old.sa_flags & ~0x04000000u);
}

static void faults(void) {
    static const int numbers[] = {SIGSEGV, SIGFPE, SIGBUS, SIGILL, SIGTRAP};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) handle_with_info(numbers[n], info, SA_ONSTACK);
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!sigsetjmp(back, 1)) *(volatile char *)(page + 5) = 1;
    printf("to a page that is only read: code %d, at it %d\n", last_code, address == (uintptr_t)page + 5);
    munmap(page, 4096);
    if (!sigsetjmp(back, 1)) (void)*(volatile char *)(page + 6);
    printf("no page: code %d, at it %d\n", last_code, address == (uintptr_t)page + 6);
    if (!sigsetjmp(back, 1)) (void)*(volatile char *)0x8000000000000000;
    printf("no address: code %d, at %lx\n", last_code, (unsigned long)address);
    volatile int zero = 0;
    if (!sigsetjmp(back, 1)) zero = 7 / zero;
    printf("by zero: code %d\n", last_code);
    if (!sigsetjmp(back, 1)) __asm__ volatile("ud2");
    printf("ud2: code %d\n", last_code);
    if (!sigsetjmp(back, 1)) __asm__ volatile("hlt");
    printf("hlt: code %d\n", last_code);
    __asm__ volatile("int3");
    printf("int3: code %d\n", last_code);
}

int main(void) {
    CHECK(pipe(ready) == 0 && pipe(data) == 0);
    printf("RESETHAND: %s\n", ended(finish(start(one_time))));
    count = 0;
    handle(SIGUSR1, nested, SA_NODEFER);
    raise(SIGUSR1);
    printf("NODEFER: %d deep\n", deepest);
    count = deepest = 0;
    handle(SIGUSR1, nested, 0);
    raise(SIGUSR1);
    printf("without: %d deep, %d times\n", deepest, count);

    CHECK(sigaltstack(&(stack_t){.ss_sp = other, .ss_size = sizeof other}, NULL) == 0);
    handle(SIGUSR1, where, SA_ONSTACK);
    raise(SIGUSR1);
    printf("ONSTACK: %d", on_other);
    handle(SIGUSR1, where, 0);
    raise(SIGUSR1);
    printf(", without: %d\n", on_other);
    CHECK(sigaltstack(&(stack_t){.ss_sp = other, .ss_size = 100}, NULL) == -1);
    printf("too small a stack: %s\n", error(errno));

    count = 0;
    interrupted("a read with RESTART", reads_on);
    interrupted("a read without", reads_once);
    interrupted("a sleep", sleeps_on);
    interrupted("a wait", waits_on);
    masks();
    faults();
    return 0;
}
