// What parents learn of their children: SIGCHLD and its fields, stops and continuations, who inherits orphans.
#include "processes.h"
#include <sys/prctl.h>

static volatile int count, code, status_told, pid_told;

static void on_child(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    code = info->si_code, status_told = info->si_status, pid_told = info->si_pid, count++;
}

static const char *code_name(int code) {
    switch (code) {
    case CLD_EXITED: return "exited";
    case CLD_KILLED: return "killed";
    case CLD_STOPPED: return "stopped";
    case CLD_CONTINUED: return "continued";
    default: return "another";
    }
}

static int hold[2];

static int held(void) {
    await(hold);
    return 33;
}

static int stuck(void) {
    while (pause() == -1) {}
    return 0;
}

// Waits for the next SIGCHLD, which is blocked meanwhile.
static void show(const char *what, pid_t pid) {
    sigset_t open;
    sigemptyset(&open);
    int before = count;
    while (count == before) sigsuspend(&open);
    printf("%s: %s, status %d, of the child %d\n", what, code_name(code), status_told, pid_told == pid);
}

static void signals(void) {
    handle_with_info(SIGCHLD, on_child, 0);
    block(SIGCHLD);
    pid_t pid = start(held);
    tell(hold);
    show("it ends", pid);
    printf("%s\n", ended(finish(pid)));

    pid = start(stuck);
    int status;
    kill(pid, SIGSTOP);
    show("it is stopped", pid);
    CHECK(waitpid(pid, &status, WNOHANG) == 0);
    CHECK(waitpid(pid, &status, WUNTRACED) == pid);
    printf("%s\n", ended(status));
    CHECK(waitpid(pid, &status, WUNTRACED | WNOHANG) == 0);
    printf("told only once\n");
    kill(pid, SIGCONT);
    show("it goes on", pid);
    CHECK(waitpid(pid, &status, WCONTINUED) == pid);
    printf("%s\n", ended(status));
    kill(pid, SIGTSTP);
    CHECK(waitpid(pid, &status, WUNTRACED) == pid);
    printf("%s\n", ended(status));
    // What it is sent while it is stopped waits, but for SIGKILL.
    kill(pid, SIGTERM);
    CHECK(waitpid(pid, &status, WNOHANG) == 0);
    kill(pid, SIGCONT);
    printf("%s\n", ended(finish(pid)));
    pid = start(stuck);
    kill(pid, SIGSTOP);
    CHECK(waitpid(pid, &status, WUNTRACED) == pid);
    kill(pid, SIGKILL);
    printf("killed while it is stopped: %s\n", ended(finish(pid)));
    unblock(SIGCHLD);
}

static void flags(void) {
    // Without word of stops.
    handle_with_info(SIGCHLD, on_child, SA_NOCLDSTOP);
    int status;
    count = 0;
    pid_t pid = start(stuck);
    kill(pid, SIGSTOP);
    CHECK(waitpid(pid, &status, WUNTRACED) == pid);
    kill(pid, SIGCONT);
    CHECK(waitpid(pid, &status, WCONTINUED) == pid);
    printf("SA_NOCLDSTOP: told %d times\n", (int)count);
    kill(pid, SIGKILL);
    finish(pid);
    printf("at the end: %d\n", (int)count);

    // Children that leave nothing behind.
    handle_with_info(SIGCHLD, on_child, SA_NOCLDWAIT);
    count = 0;
    pid = start(held);
    tell(hold);
    CHECK(waitpid(pid, &status, 0) == -1);
    printf("SA_NOCLDWAIT: %s, told %d times\n", error(errno), (int)count);
    handle(SIGCHLD, SIG_IGN, 0);
    pid_t one = start(held);
    pid_t two = start(held);
    tell(hold), tell(hold);
    CHECK(wait(&status) == -1);
    printf("ignored: %s", error(errno));
    printf(", gone %d\n", kill(one, 0) == -1 && kill(two, 0) == -1);
    handle(SIGCHLD, SIG_DFL, 0);
}

static int report[2];

static int orphan(void) {
    pid_t parent = getppid();
    tell(report);
    while (getppid() == parent) usleep(500);
    int adopted = getppid();
    CHECK(write(report[1], &adopted, sizeof adopted) == sizeof adopted);
    return 61;
}

static int leaves_orphan(void) {
    start(orphan);
    await(report);
    return 62;
}

static void orphans(void) {
    pid_t middle = start(leaves_orphan), adopted;
    printf("the parent: %s\n", ended(finish(middle)));
    CHECK(read(report[0], &adopted, sizeof adopted) == sizeof adopted);
    printf("adopted by this process: %d\n", adopted == getpid());

    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    int on = 0;
    CHECK(prctl(PR_GET_CHILD_SUBREAPER, &on) == 0);
    printf("it adopts now: %d\n", on);
    middle = start(leaves_orphan);
    printf("the parent: %s\n", ended(finish(middle)));
    CHECK(read(report[0], &adopted, sizeof adopted) == sizeof adopted);
    printf("adopted by this process: %d\n", adopted == getpid());
    int status;
    CHECK(wait(&status) > 0);
    printf("the orphan: %s\n", ended(status));
}

// A child that dies when its parent does.
static int dies_with_parent(void) {
    signal(SIGUSR1, SIG_DFL);
    CHECK(prctl(PR_SET_PDEATHSIG, SIGUSR1) == 0);
    tell(hold);
    while (pause() == -1) {}
    return 0;
}

static int parent_that_dies(void) {
    pid_t pid = start(dies_with_parent);
    await(hold);
    CHECK(write(report[1], &pid, sizeof pid) == sizeof pid);
    return 63;
}

int main(void) {
    CHECK(pipe(hold) == 0 && pipe(report) == 0);
    signals();
    flags();
    orphans();
    pid_t middle = start(parent_that_dies), pid;
    CHECK(read(report[0], &pid, sizeof pid) == sizeof pid);
    printf("the parent: %s\n", ended(finish(middle)));
    printf("its child: %s\n", ended(finish(pid)));
    return 0;
}
