// kill between processes: what arrives, what waits, what is refused, what a signal does by default.
#include "processes.h"

static int ready[2], back[2];
static volatile int counts[65], sender, sender_user, code;

static void note(int number, siginfo_t *info, void *context) {
    (void)context;
    counts[number]++, sender = info->si_pid, sender_user = (int)info->si_uid, code = info->si_code;
}

// Answers each SIGUSR1, ends at SIGUSR2.
static int answers(void) {
    handle_with_info(SIGUSR1, note, 0);
    handle_with_info(SIGUSR2, note, 0);
    sigset_t old, open;
    block(SIGUSR1), block(SIGUSR2);
    sigprocmask(SIG_SETMASK, NULL, &old);
    open = old;
    sigdelset(&open, SIGUSR1), sigdelset(&open, SIGUSR2);
    tell(ready);
    while (counts[SIGUSR2] == 0) {
        int before = counts[SIGUSR1];
        sigsuspend(&open);
        if (counts[SIGUSR1] != before) tell(back);
    }
    printf("%d signals, the last of the parent %d, of this user %d, by kill %d\n", counts[SIGUSR1],
           sender == getppid(), sender_user == (int)getuid(), code == SI_USER);
    return counts[SIGUSR1];
}

static int pauses(void) {
    tell(ready);
    while (pause() == -1) {}
    return 0;
}

static int ignores(void) {
    for (int number = 1; number < 65; number++) signal(number, SIG_IGN);
    return pauses();
}

static int blocks(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (int number = 1; number < 65; number++) signal(number, SIG_DFL);
    return pauses();
}

static pid_t begin(int (*body)(void)) {
    pid_t pid = start(body);
    await(ready);
    return pid;
}

// Two processes play ping-pong.
static volatile int turns;
static void turn(int number) { (void)number, turns++; }

static int plays(void) {
    sigset_t open;
    sigfillset(&open);
    sigdelset(&open, SIGUSR1), sigdelset(&open, SIGTERM), sigdelset(&open, SIGINT);
    tell(ready);
    while (turns < 50) {
        int before = turns;
        while (turns == before) sigsuspend(&open);
        kill(getppid(), SIGUSR1);
    }
    return turns;
}

int main(void) {
    CHECK(pipe(ready) == 0 && pipe(back) == 0);
    pid_t pid = begin(answers);
    for (int n = 0; n < 20; n++) {
        CHECK(kill(pid, SIGUSR1) == 0);
        await(back);
    }
    CHECK(kill(pid, SIGUSR2) == 0);
    printf("it answered: %s\n", ended(finish(pid)));

    // What each does by default to one that waits.
    static const int numbers[] = {SIGHUP, SIGINT, SIGUSR1, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM, SIGVTALRM, SIGPROF, SIGIO,
                                  SIGPWR, SIGSTKFLT, SIGKILL};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        signal(numbers[n], SIG_DFL);
        pid = begin(pauses);
        CHECK(kill(pid, numbers[n]) == 0);
        int status = finish(pid);
        printf("%s%s", ended(status), n + 1 < sizeof numbers / sizeof *numbers ? ", " : "\n");
    }
    static const int harmless[] = {SIGCHLD, SIGURG, SIGWINCH, SIGCONT};
    pid = begin(pauses);
    for (size_t n = 0; n < sizeof harmless / sizeof *harmless; n++) CHECK(kill(pid, harmless[n]) == 0);
    CHECK(kill(pid, 0) == 0 && waitpid(pid, NULL, WNOHANG) == 0);
    kill(pid, SIGTERM);
    printf("harmless ones, then SIGTERM: %s\n", ended(finish(pid)));
    CHECK(kill(pid, 0) == -1);
    printf("one that is gone: %s\n", error(errno));

    pid = begin(ignores);
    for (int number = 1; number < 32; number++)
        if (number != SIGKILL && number != SIGSTOP) CHECK(kill(pid, number) == 0);
    CHECK(kill(pid, SIGKILL) == 0);
    printf("all ignored but one: %s\n", ended(finish(pid)));
    pid = begin(blocks);
    for (int number = 1; number < 65; number++)
        if (number != SIGKILL && number != SIGSTOP && number != 32 && number != 33 && number != 34) CHECK(kill(pid, number) == 0);
    CHECK(kill(pid, SIGKILL) == 0);
    printf("all blocked but one: %s\n", ended(finish(pid)));

    // A zombie takes signals without a word.
    pid = split();
    if (pid == 0) _exit(12);
    siginfo_t info;
    CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
    CHECK(kill(pid, SIGKILL) == 0 && kill(pid, 0) == 0);
    printf("a zombie: %s\n", ended(finish(pid)));
    CHECK(kill(getpid(), 65) == -1);
    printf("signal 65: %s\n", error(errno));
    CHECK(kill(getpid(), -1) == -1);
    printf("signal -1: %s\n", error(errno));
    CHECK(kill(0x3fffffff, 0) == -1);
    printf("no such process: %s\n", error(errno));

    handle(SIGUSR1, turn, 0);
    sigset_t open;
    sigprocmask(SIG_BLOCK, NULL, &open);
    block(SIGUSR1);
    pid = begin(plays);
    sigset_t waiting = open;
    sigdelset(&waiting, SIGUSR1);
    while (turns < 50) {
        int before = turns;
        kill(pid, SIGUSR1);
        while (turns == before) sigsuspend(&waiting);
    }
    printf("ping-pong: %d, %s\n", turns, ended(finish(pid)));
    return 0;
}
