// waitid: by process, group and anything; WNOWAIT, stops, fields of the answer, errors.
#include "processes.h"

static int hold[2];

static int held(void) {
    await(hold);
    return 21;
}

static int stuck(void) {
    while (pause() == -1) {}
    return 0;
}

static void show(const char *what, const siginfo_t *info, pid_t pid) {
    printf("%s: signal %d, code %d, status %d, of the child %d, of this user %d\n", what, info->si_signo, info->si_code,
           info->si_status, info->si_pid == pid, info->si_uid == getuid());
}

int main(void) {
    siginfo_t info;
    CHECK(pipe(hold) == 0);
    pid_t pid = start(held);
    memset(&info, 0x55, sizeof info);
    CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG) == 0);
    printf("not yet: signal %d, process %d\n", info.si_signo, info.si_pid);
    tell(hold);
    CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
    show("seen", &info, pid);
    CHECK(waitid(P_ALL, 0, &info, WEXITED) == 0);
    show("taken", &info, pid);
    CHECK(waitid(P_ALL, 0, &info, WEXITED) == -1);
    printf("nobody: %s\n", error(errno));

    pid = start(stuck);
    CHECK(setpgid(pid, pid) == 0 && kill(pid, SIGSTOP) == 0);
    CHECK(waitid(P_PGID, (id_t)pid, &info, WSTOPPED | WNOWAIT) == 0);
    show("stopped", &info, pid);
    CHECK(waitid(P_PGID, (id_t)pid, &info, WSTOPPED) == 0);
    show("once more", &info, pid);
    info.si_pid = 1;
    CHECK(waitid(P_PGID, (id_t)pid, &info, WSTOPPED | WNOHANG) == 0);
    printf("then: process %d\n", info.si_pid);
    kill(pid, SIGCONT);
    CHECK(waitid(P_PID, (id_t)pid, &info, WCONTINUED | WSTOPPED | WEXITED) == 0);
    show("continued", &info, pid);
    CHECK(waitid(P_PGID, (id_t)getpgrp(), &info, WEXITED | WNOHANG) == -1);
    printf("nobody of this group: %s\n", error(errno));
    kill(pid, SIGUSR1);
    CHECK(waitid(P_PGID, (id_t)pid, &info, WEXITED) == 0);
    show("killed", &info, pid);

    // Of one's own group.
    pid = start(held);
    tell(hold);
    int status;
    CHECK(waitpid(0, &status, 0) == pid);
    printf("waitpid(0): %s\n", ended(status));
    pid = start(held);
    CHECK(setpgid(pid, 0) == 0);
    CHECK(waitpid(0, &status, WNOHANG) == -1);
    printf("in another group: %s\n", error(errno));
    tell(hold);
    CHECK(waitpid(-pid, &status, 0) == pid);
    printf("waitpid(-group): %s\n", ended(status));
    CHECK(waitid(P_ALL, 0, &info, 0) == -1);
    printf("no events: %s\n", error(errno));
    CHECK(waitid((idtype_t)77, 0, &info, WEXITED) == -1);
    printf("no such kind: %s\n", error(errno));
    pid = start(held);
    tell(hold);
    // Without a place for the answer.
    CHECK(syscall(SYS_waitid, P_PID, pid, NULL, WEXITED, NULL) == 0);
    printf("without an answer: done\n");
    return 0;
}
