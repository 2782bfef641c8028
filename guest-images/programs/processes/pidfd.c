// pidfd: opened by number, given by clone, polled, signalled, waited for, and what it says after the end.
#include "processes.h"
#include <poll.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_send_signal 424
#define SYS_pidfd_open 434
#define SYS_clone3 435
#endif
#define BY_PIDFD ((idtype_t)3)

static int hold[2];

static int held(void) {
    await(hold);
    return 31;
}

static int ready(int fd, int milliseconds) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    return poll(&polled, 1, milliseconds);
}

int main(void) {
    CHECK(pipe(hold) == 0);
    pid_t pid = start(held);
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    CHECK(fd >= 0);
    printf("closed at exec: %d\n", fcntl(fd, F_GETFD));
    printf("ready: %d\n", ready(fd, 0));
    CHECK(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0);
    tell(hold);
    printf("ready: %d\n", ready(fd, 60000));
    siginfo_t info;
    CHECK(waitid(BY_PIDFD, (id_t)fd, &info, WEXITED) == 0);
    printf("waited for: code %d, status %d, the child %d\n", info.si_code, info.si_status, info.si_pid == pid);
    printf("still ready: %d\n", ready(fd, 0));
    CHECK(syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0) == -1);
    printf("a signal after the end: %s\n", error(errno));
    CHECK(waitid(BY_PIDFD, (id_t)fd, &info, WEXITED) == -1);
    printf("waited for again: %s\n", error(errno));
    close(fd);
    CHECK(syscall(SYS_pidfd_open, pid, 0) == -1);
    printf("one that is gone: %s\n", error(errno));
    CHECK(syscall(SYS_pidfd_open, -1, 0) == -1);
    printf("no process: %s\n", error(errno));
    CHECK(syscall(SYS_pidfd_open, getpid(), 0x100000) == -1);
    printf("no such flag: %s\n", error(errno));
    CHECK(syscall(SYS_pidfd_send_signal, hold[0], SIGTERM, NULL, 0) == -1);
    printf("a pipe: %s\n", error(errno));

    // From clone3, with the descriptor at once.
    int given = -1;
    uint64_t arguments[8] = {0x1000, (uint64_t)(uintptr_t)&given, 0, 0, SIGCHLD, 0, 0, 0};
    fflush(NULL);
    pid = (pid_t)syscall(SYS_clone3, arguments, sizeof arguments);
    if (pid == 0) {
        pause();
        _exit(1);
    }
    CHECK(pid > 0 && given >= 0);
    CHECK(syscall(SYS_pidfd_send_signal, given, SIGUSR1, NULL, 0) == 0);
    printf("by clone3: %s", ended(finish(pid)));
    printf(", ready %d\n", ready(given, 0));
    close(given);
    // Of itself: ready never.
    fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    CHECK(fd >= 0);
    signal(SIGUSR1, SIG_IGN);
    CHECK(syscall(SYS_pidfd_send_signal, fd, SIGUSR1, NULL, 0) == 0);
    printf("itself: ready %d\n", ready(fd, 0));
    // A child waits for a brother whom it knows by descriptor alone.
    pid = start(held);
    int brother = (int)syscall(SYS_pidfd_open, pid, 0);
    pid_t other = split();
    if (other == 0) {
        CHECK(syscall(SYS_pidfd_send_signal, brother, SIGTERM, NULL, 0) == 0);
        _exit(ready(brother, 60000) == 1 ? 5 : 6);
    }
    printf("the brother: %s", ended(finish(other)));
    printf(", %s\n", ended(finish(pid)));
    return 0;
}
