// Signals with values: queued in order, the lower number first, sigwaitinfo and sigtimedwait, codes and senders.
#include "processes.h"

static int ready[2];
static volatile int order[64], values[64], arrived;

static void note(int number, siginfo_t *info, void *context) {
    (void)context;
    if (arrived < 64) order[arrived] = number - SIGRTMIN, values[arrived] = info->si_value.sival_int, arrived++;
}

static void send(pid_t pid, int number, int value) {
    CHECK(sigqueue(pid, number, (union sigval){.sival_int = value}) == 0);
}

// The handlers run in the order in which they were sent, the lower number first: each blocks the others.
static void handled(void) {
    sigset_t set;
    sigemptyset(&set);
    for (int n = 0; n < 4; n++) sigaddset(&set, SIGRTMIN + n);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int n = 0; n < 4; n++) {
        struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO, .sa_mask = set};
        CHECK(sigaction(SIGRTMIN + n, &action, NULL) == 0);
    }
    pid_t self = getpid(), pid = split();
    if (pid == 0) {
        for (int n = 0; n < 16; n++) send(self, SIGRTMIN + 3 - n % 4, 100 + n);
        _exit(0);
    }
    finish(pid);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    for (int n = 0; n < arrived; n++) printf("%d:%d ", order[n], values[n]);
    printf("\n%d arrived\n", arrived);
}

static void waited(void) {
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 5), sigaddset(&set, SIGRTMIN + 6), sigaddset(&set, SIGUSR1), sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    pid_t self = getpid(), pid = split();
    if (pid == 0) {
        send(self, SIGRTMIN + 6, 1);
        send(self, SIGRTMIN + 5, 2);
        // Of the old signals one is enough.
        for (int n = 0; n < 5; n++) send(self, SIGUSR1, 3 + n);
        kill(self, SIGUSR1);
        send(self, SIGRTMIN + 6, 8);
        kill(self, SIGRTMIN + 5);
        _exit(9);
    }
    finish(pid);
    for (int n = 0; n < 6; n++) {
        int number = sigwaitinfo(&set, &info);
        printf("%s, code %d, value %d, of the child %d, of this user %d\n",
               number == SIGUSR1 ? "SIGUSR1" : number == SIGCHLD ? "SIGCHLD" : number == SIGRTMIN + 5 ? "SIGRTMIN+5" : "SIGRTMIN+6",
               info.si_code, info.si_code == SI_QUEUE ? info.si_value.sival_int : -1, info.si_pid == pid,
               info.si_uid == getuid());
    }
    struct timespec none = {0, 0}, some = {0, 20000000};
    CHECK(sigtimedwait(&set, &info, &none) == -1);
    printf("nothing: %s\n", error(errno));
    CHECK(sigtimedwait(&set, &info, &some) == -1);
    printf("nothing for a while: %s\n", error(errno));
    struct timespec wrong = {0, 2000000000};
    CHECK(sigtimedwait(&set, &info, &wrong) == -1);
    printf("no time: %s\n", error(errno));
}

// One waits for what another sends.
static int takes(void) {
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMAX), sigaddset(&set, SIGRTMAX - 1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    tell(ready);
    uint64_t sum = 0;
    for (;;) {
        struct timespec minute = {60, 0};
        int number = sigtimedwait(&set, &info, &minute);
        if (number == SIGRTMAX - 1) sum = sum * 31 + (uint64_t)info.si_value.sival_int;
        else if (number == SIGRTMAX) break;
        else return 1;
    }
    printf("sum %016llx\n", (unsigned long long)sum);
    return 0;
}

static void other(int number) { (void)number; }

static int is_interrupted(void) {
    handle(SIGUSR2, other, SA_RESTART);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    tell(ready);
    int number = sigwaitinfo(&set, NULL);
    return number == -1 && errno == EINTR ? 21 : 22;
}

int main(void) {
    CHECK(pipe(ready) == 0);
    handled();
    waited();
    pid_t pid = start(takes);
    await(ready);
    for (int n = 0; n < 200; n++) send(pid, SIGRTMAX - 1, n * n);
    send(pid, SIGRTMAX, 0);
    printf("%s\n", ended(finish(pid)));

    pid = start(is_interrupted);
    await(ready);
    // One that comes before it waits does not end the wait.
    int status;
    while (waitpid(pid, &status, WNOHANG) == 0) kill(pid, SIGUSR2), usleep(1000);
    printf("another signal: %s\n", ended(status));

    // Only the kernel may say that a signal came from the kernel.
    siginfo_t forged = {.si_signo = SIGUSR1, .si_code = SI_USER};
    pid = split();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    CHECK(syscall(SYS_rt_sigqueueinfo, pid, SIGUSR1, &forged) == -1);
    printf("forged: %s\n", error(errno));
    forged.si_code = SI_QUEUE;
    signal(SIGUSR1, SIG_DFL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(syscall(SYS_rt_sigqueueinfo, pid, SIGTERM, &forged) == 0);
    printf("%s\n", ended(finish(pid)));
    return 0;
}
