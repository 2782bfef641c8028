// Process groups and sessions: who may move whom where, signals to a group, orphaned groups that are stopped.
#include "processes.h"
#include <sys/prctl.h>

static int ready[2], go[2];

static void group_of(const char *what, pid_t pid, pid_t group) {
    printf("%s: in its group %d\n", what, getpgid(pid) == group);
}

static int sleeps(void) {
    tell(ready);
    while (pause() == -1) {}
    return 0;
}

static int starts_again(void) {
    await(go);
    execl("/bin/sh", "sh", "-c", "read line <&9", (char *)NULL);
    return 1;
}

static void moves(void) {
    pid_t first = start(sleeps), second = start(sleeps);
    await(ready), await(ready);
    group_of("a child", first, getpgrp());
    CHECK(setpgid(first, 0) == 0);
    CHECK(setpgid(second, first) == 0);
    group_of("moved", first, first);
    group_of("moved to it", second, first);
    CHECK(setpgid(first, second) == -1);
    printf("into a group that is not there: %s\n", error(errno));
    CHECK(setpgid(second, -5) == -1);
    printf("a negative group: %s\n", error(errno));
    CHECK(setpgid(1, 0) == -1);
    printf("one that is no child: %s\n", error(errno));
    CHECK(killpg(first, 0) == 0 && kill(-first, 0) == 0);
    CHECK(kill(-first, SIGUSR1) == 0);
    printf("both are told: %s, ", ended(finish(first)));
    printf("%s\n", ended(finish(second)));
    CHECK(killpg(first, 0) == -1);
    printf("an empty group: %s\n", error(errno));
}

static pid_t outer;

static int new_session(void) {
    pid_t self = getpid();
    if (setsid() != self) return 1;
    if (getsid(0) != self || getpgrp() != self) return 2;
    if (setsid() != -1 || errno != EPERM) return 3;
    if (setpgid(0, 0) != -1 || errno != EPERM) return 4;
    pid_t child = fork();
    if (child == 0) _exit(getsid(0) == self && getpgrp() == self && setsid() == getpid() ? 0 : 1);
    if (finish(child) != 0) return 5;
    // A group of another session cannot be entered.
    child = fork();
    if (child == 0) {
        _exit(setpgid(0, outer) == -1 && errno == EPERM ? 0 : 1);
    }
    return finish(child) == 0 ? 0 : 6;
}

static volatile int hups, continues;
static void count_hup(int number) { (void)number, hups++; }
static void count_continue(int number) { (void)number, continues++; }

static int stops(void) {
    handle(SIGHUP, count_hup, 0);
    handle(SIGCONT, count_continue, 0);
    raise(SIGSTOP);
    // Both were sent together.
    return hups * 10 + continues;
}

static int own_group_with_stopped(void) {
    setpgid(0, 0);
    pid_t pid = start(stops);
    int status;
    CHECK(write(ready[1], &pid, sizeof pid) == sizeof pid);
    CHECK(waitpid(pid, &status, WUNTRACED) == pid);
    return WIFSTOPPED(status) ? 7 : 8;
}

static int session_with_group(void) {
    setsid();
    return WEXITSTATUS(finish(start(own_group_with_stopped)));
}

// When the last leaves that tied a group to its session, those in it who are stopped are told.
static void orphans(void) {
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    pid_t leader = start(session_with_group), stopped;
    CHECK(read(ready[0], &stopped, sizeof stopped) == sizeof stopped);
    printf("the session: %s\n", ended(finish(leader)));
    printf("the orphan: %s\n", ended(finish(stopped)));
}

static int ignores(void) {
    setpgid(0, 0);
    signal(SIGTERM, SIG_IGN);
    pid_t one = start(sleeps), two = start(sleeps);
    signal(SIGTERM, SIG_DFL);
    pid_t three = start(sleeps);
    for (int n = 0; n < 3; n++) await(ready);
    signal(SIGTERM, SIG_IGN);
    // All of its own group, itself among them.
    CHECK(kill(0, SIGTERM) == 0);
    printf("the one that does not ignore it: %s\n", ended(finish(three)));
    CHECK(kill(one, SIGKILL) == 0 && kill(two, SIGKILL) == 0);
    printf("the others: %s, ", ended(finish(one)));
    printf("%s\n", ended(finish(two)));
    return 0;
}

int main(void) {
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    moves();
    // One that runs another program is its own master.
    int hold[2];
    CHECK(pipe(hold) == 0 && dup2(hold[0], 9) == 9);
    CHECK(fcntl(hold[1], F_SETFD, FD_CLOEXEC) == 0);
    pid_t pid = start(starts_again);
    tell(go);
    int result;
    for (int n = 0; (result = setpgid(pid, pid)) == 0 && n < 20000; n++) usleep(1000);
    printf("after exec: %s\n", error(errno));
    CHECK(write(hold[1], "\n", 1) == 1);
    printf("%s\n", ended(finish(pid)));

    outer = getpgrp();
    printf("a session: %s\n", ended(finish(start(new_session))));
    printf("%s\n", ended(finish(start(ignores))));
    orphans();
    CHECK(getpgid(-1) == -1);
    printf("getpgid(-1): %s\n", error(errno));
    return 0;
}
