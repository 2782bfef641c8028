// Calls that wait with another mask of signals: sigsuspend, ppoll, pselect, epoll_pwait; the mask is theirs alone.
#include "processes.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

static volatile int count;
static void note(int number) { (void)number, count++; }

static int ends[2], watch;
static sigset_t open_;

static int by_sigsuspend(void) { return sigsuspend(&open_); }

static int by_ppoll(void) {
    struct pollfd polled = {.fd = ends[0], .events = POLLIN};
    struct timespec minute = {60, 0};
    return ppoll(&polled, 1, &minute, &open_);
}

static int by_pselect(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    struct timespec minute = {60, 0};
    return pselect(ends[0] + 1, &set, NULL, NULL, &minute, &open_);
}

static int by_epoll_pwait(void) {
    struct epoll_event event;
    return epoll_pwait(watch, &event, 1, 60000, &open_);
}

int main(void) {
    CHECK(pipe(ends) == 0 && (watch = epoll_create1(0)) >= 0);
    CHECK(epoll_ctl(watch, EPOLL_CTL_ADD, ends[0], &(struct epoll_event){.events = EPOLLIN}) == 0);
    handle(SIGUSR1, note, SA_RESTART);
    sigprocmask(SIG_BLOCK, NULL, &open_);
    sigdelset(&open_, SIGUSR1);
    block(SIGUSR1);
    static const struct { const char *name; int (*call)(void); } calls[] = {
        {"sigsuspend", by_sigsuspend}, {"ppoll", by_ppoll}, {"pselect", by_pselect}, {"epoll_pwait", by_epoll_pwait}};
    pid_t self = getpid();
    for (size_t n = 0; n < sizeof calls / sizeof *calls; n++) {
        // One that is pending, and one that another process sends, now or while it waits.
        count = 0;
        raise(SIGUSR1);
        int result = calls[n].call();
        printf("%s, pending: %d %s, handled %d", calls[n].name, result, error(errno), count);
        pid_t pid = split();
        if (pid == 0) {
            kill(self, SIGUSR1);
            _exit(0);
        }
        result = calls[n].call();
        printf(", sent: %d %s, handled %d", result, error(errno), count);
        sigset_t mask;
        sigprocmask(SIG_BLOCK, NULL, &mask);
        printf(", blocked again %d\n", sigismember(&mask, SIGUSR1));
        finish(pid);
    }
    // With a byte there, a pending signal that stays blocked does not matter; what comes first wins otherwise.
    CHECK(write(ends[1], "x", 1) == 1);
    raise(SIGUSR1);
    sigset_t all;
    sigfillset(&all);
    struct pollfd polled = {.fd = ends[0], .events = POLLIN};
    count = 0;
    printf("blocked in ppoll: %d, handled %d\n", ppoll(&polled, 1, NULL, &all), count);
    struct timespec none = {0, 0};
    CHECK(read(ends[0], &(char){0}, 1) == 1);
    int result = ppoll(&polled, 1, &none, &all);
    printf("nothing: %d, handled %d\n", result, count);
    unblock(SIGUSR1);
    printf("unblocked: handled %d\n", count);
    // Without a mask the call's own is used.
    result = ppoll(&polled, 1, &none, NULL);
    printf("no mask: %d\n", result);
    CHECK(syscall(SYS_ppoll, &polled, 1, &none, &all, 3) == -1);
    printf("a mask of three bytes: %s\n", error(errno));
    return 0;
}
