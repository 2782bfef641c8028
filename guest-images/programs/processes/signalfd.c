// signalfd: signals read as records, with poll, without waiting, over fork, and children that end.
#include "processes.h"
#include <poll.h>
#include <sys/signalfd.h>

static void show(const char *what, const struct signalfd_siginfo *info, pid_t pid) {
    printf("%s: signal %u, code %d, value %d, of the child %d, status %d\n", what, info->ssi_signo, info->ssi_code,
           info->ssi_int, info->ssi_pid == (uint32_t)pid, info->ssi_status);
}

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1), sigaddset(&set, SIGUSR2), sigaddset(&set, SIGCHLD), sigaddset(&set, SIGRTMIN + 2);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    CHECK(fd >= 0);
    struct signalfd_siginfo info[8];
    CHECK(read(fd, info, sizeof info) == -1);
    printf("nothing: %s\n", error(errno));
    CHECK(read(fd, info, 10) == -1);
    printf("too small: %s\n", error(errno));
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    printf("poll: %d\n", poll(&polled, 1, 0));

    pid_t self = getpid(), pid = split();
    if (pid == 0) {
        kill(self, SIGUSR2);
        kill(self, SIGUSR1);
        for (int n = 0; n < 3; n++) sigqueue(self, SIGRTMIN + 2, (union sigval){.sival_int = 70 + n});
        _exit(44);
    }
    siginfo_t ignored;
    CHECK(waitid(P_PID, (id_t)pid, &ignored, WEXITED | WNOWAIT) == 0);
    printf("poll: %d, in %d\n", poll(&polled, 1, 10000), !!(polled.revents & POLLIN));
    ssize_t got = read(fd, info, 2 * sizeof *info);
    CHECK(got == 2 * (ssize_t)sizeof *info);
    show("first", &info[0], pid), show("second", &info[1], pid);
    got = read(fd, info, sizeof info);
    printf("the rest: %d\n", (int)(got / (ssize_t)sizeof *info));
    for (int n = 0; n < got / (ssize_t)sizeof *info; n++) show("then", &info[n], pid);
    printf("%s\n", ended(finish(pid)));

    // A child that has it by inheritance reads its own signals, not its parent's.
    kill(self, SIGUSR1);
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid = split();
    if (pid == 0) {
        ssize_t before = read(fd, info, sizeof info);
        printf("the child, of its parent's: %zd\n", before);
        raise(SIGUSR2);
        printf("of its own: %d\n", read(fd, info, sizeof info) == sizeof *info && info->ssi_signo == SIGUSR2);
        exit(0);
    }
    finish(pid);
    CHECK(read(fd, info, sizeof *info) == sizeof *info);
    printf("the parent: signal %u\n", info->ssi_signo);
    CHECK(read(fd, info, sizeof *info) == sizeof *info);
    show("its child", info, pid);

    // Changed to other signals, and one that waits.
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 2);
    CHECK(signalfd(fd, &set, 0) == fd);
    CHECK(fcntl(fd, F_SETFL, 0) == 0);
    kill(self, SIGUSR1);
    pid = split();
    if (pid == 0) {
        sigqueue(self, SIGRTMIN + 2, (union sigval){.sival_int = -9});
        _exit(0);
    }
    CHECK(read(fd, info, sizeof *info) == sizeof *info);
    show("waited for", info, pid);
    finish(pid);
    sigset_t pending;
    sigpending(&pending);
    printf("still pending: %d %d\n", sigismember(&pending, SIGUSR1), sigismember(&pending, SIGRTMIN + 2));
    return 0;
}
