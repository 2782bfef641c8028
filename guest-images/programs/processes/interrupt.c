// Signals into code that never calls: alarms that set a flag, jump out, or end the program; kills from another process.
#include "processes.h"
#include <setjmp.h>
#include <sys/time.h>

static volatile sig_atomic_t flag, ticks;
static sigjmp_buf back;

static void set(int number) { (void)number, flag = 1; }
static void tick(int number) { (void)number, ticks++; }
static void jump(int number) { (void)number, siglongjmp(back, 1); }

static void after(int microseconds, int again) {
    struct itimerval timer = {.it_value = {0, microseconds}, .it_interval = {0, again}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static int *started;

static int spins(void) {
    *started = 1;
    for (;;) __asm__ volatile("");
    return 0;
}

static int spins_to_an_alarm(void) {
    signal(SIGALRM, SIG_DFL);
    after(10000, 0);
    return spins();
}

static int spins_and_counts(void) {
    // All registers and the vector ones have to come back.
    handle(SIGALRM, tick, 0);
    after(2000, 2000);
    double sum = 0;
    uint64_t hash = 1;
    for (long n = 0; ticks < 5; n++) sum += (double)n, hash = hash * 31 + (uint64_t)n;
    after(0, 0);
    // The same again, undisturbed, as far as a fixed number of steps goes.
    double one = 0, two = 0;
    uint64_t first = 1, second = 1;
    after(1000, 1000);
    for (long n = 0; n < 3000000; n++) one += (double)n / 3, first = first * 31 + (uint64_t)n;
    after(0, 0);
    for (long n = 0; n < 3000000; n++) two += (double)n / 3, second = second * 31 + (uint64_t)n;
    return sum >= 0 && hash != 0 && one == two && first == second ? 7 : 8;
}

static void kills(const char *what, int number) {
    *started = 0;
    pid_t pid = start(spins);
    while (*(volatile int *)started == 0) sched_yield();
    kill(pid, number);
    int status;
    CHECK(waitpid(pid, &status, WUNTRACED) == pid);
    printf("%s: %s\n", what, ended(status));
    if (!WIFSTOPPED(status)) return;
    kill(pid, SIGCONT);
    CHECK(waitpid(pid, &status, WCONTINUED) == pid);
    printf("%s: %s", what, ended(status));
    kill(pid, SIGTERM);
    printf(", then %s\n", ended(finish(pid)));
}

int main(void) {
    started = shared(4096);
    handle(SIGALRM, set, 0);
    after(10000, 0);
    while (!flag) {}
    printf("a flag\n");
    handle(SIGALRM, jump, 0);
    // Not before: an alarm that comes within sigsetjmp jumps to where no mask is kept yet.
    if (sigsetjmp(back, 1) == 0) {
        after(10000, 0);
        for (;;) __asm__ volatile("");
    }
    printf("a jump\n");
    printf("no handler: %s\n", ended(finish(start(spins_to_an_alarm))));
    printf("sums: %s\n", ended(finish(start(spins_and_counts))));
    kills("killed", SIGKILL);
    kills("terminated", SIGTERM);
    kills("stopped", SIGSTOP);
    return 0;
}
