//! What poll, select and epoll tell of each kind of file, and what of files cannot be read: as the host does it, and the same at replay.

use crate::sharing::passes;

const READY: &str = r#"
    #include <arpa/inet.h>
    #include <poll.h>
    #include <sys/epoll.h>
    #include <sys/select.h>
    #include <sys/signalfd.h>
    #include <sys/socket.h>
    #include <sys/syscall.h>
    #include <sys/timerfd.h>
    static int control(int set, int what, int file, unsigned events, long name) {
        struct epoll_event event = { .events = events, .data.u64 = name };
        return epoll_ctl(set, what, file, &event);
    }
    /* The names of what is ready, a decimal digit for each. */
    static long ready(int set) {
        struct epoll_event all[9];
        long names = 0;
        int count = epoll_wait(set, all, 9, 0);
        for (int n = 0; n < count; n++) names = names * 10 + all[n].data.u64;
        return names;
    }
    static int asked(int file, int events) {
        struct pollfd polled = { file, events, 0 };
        poll(&polled, 1, 0);
        return polled.revents;
    }
    /* Both ends of a connection over the loopback. */
    static void connected(int ends[2]) {
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t length = sizeof at;
        bind(listener, (void *)&at, length);
        listen(listener, 1);
        getsockname(listener, (void *)&at, &length);
        ends[0] = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(ends[0], (void *)&at, length) == 0);
        ends[1] = accept(listener, 0, 0);
        close(listener);
    }
    static volatile int urgent;
    static void told(int signal) { urgent++; }
    static void wait_until(volatile int *what, int wanted) { for (int n = 0; n < 400 && *what != wanted; n++) usleep(5000); }"#;

#[test]
fn a_set_knows_a_file_by_each_of_its_numbers() {
    passes(
        "numbers",
        READY,
        r#"
        int pipes[2], set = epoll_create1(0);
        CHECK(pipe(pipes) == 0 && write(pipes[1], "a", 1) == 1);
        CHECK(control(set, EPOLL_CTL_ADD, pipes[0], EPOLLIN, 1) == 0);
        FAILS(control(set, EPOLL_CTL_ADD, pipes[0], EPOLLIN, 1), EEXIST);
        int other = dup(pipes[0]);
        FAILS(control(set, EPOLL_CTL_MOD, other, EPOLLIN, 2), ENOENT);
        FAILS(control(set, EPOLL_CTL_DEL, other, 0, 0), ENOENT);
        CHECK(control(set, EPOLL_CTL_ADD, other, EPOLLIN, 2) == 0);
        FAILS(control(set, EPOLL_CTL_ADD, other, EPOLLIN, 2), EEXIST);
        CHECK(ready(set) == 12 && control(set, EPOLL_CTL_MOD, other, EPOLLIN, 3) == 0);
        long both = ready(set);
        CHECK(both == 13 || both == 31);
        CHECK(control(set, EPOLL_CTL_DEL, pipes[0], 0, 0) == 0 && ready(set) == 3);
        /* What stays in a set goes when the last number of the file does. */
        CHECK(close(other) == 0 && ready(set) == 3);
        CHECK(close(pipes[0]) == 0 && ready(set) == 0);
        pid_t child = fork();
        if (child == 0) { _exit(ready(set) != 0); }
        CHECK(ended(child) == 0);
    "#,
        |_| {},
    );
}

#[test]
fn of_files_that_only_tell_nothing_is_written_and_sets_are_not_read() {
    passes(
        "tell",
        READY,
        r#"
        sigset_t mask; sigemptyset(&mask); sigaddset(&mask, SIGUSR1); sigprocmask(SIG_BLOCK, &mask, 0);
        int set = epoll_create1(0), all[3] = { timerfd_create(CLOCK_MONOTONIC, 0), signalfd(-1, &mask, 0), syscall(SYS_pidfd_open, getpid(), 0) };
        for (int n = 0; n < 3; n++) {
            CHECK(all[n] >= 0 && asked(all[n], POLLIN | POLLOUT) == 0);
            CHECK(control(set, EPOLL_CTL_ADD, all[n], EPOLLIN | EPOLLOUT, n + 1) == 0 && ready(set) == 0);
            fd_set in, out; FD_ZERO(&in); FD_SET(all[n], &in); out = in;
            struct timeval now = { 0, 0 };
            CHECK(select(all[n] + 1, &in, &out, 0, &now) == 0);
        }
        struct itimerspec soon = { { 0, 0 }, { 0, 1 } };
        CHECK(timerfd_settime(all[0], 0, &soon, 0) == 0 && kill(getpid(), SIGUSR1) == 0);
        struct pollfd waited = { all[0], POLLIN | POLLOUT, 0 };
        CHECK(poll(&waited, 1, 10000) == 1 && waited.revents == POLLIN);
        CHECK(asked(all[1], POLLIN | POLLOUT) == POLLIN);
        char buffer[200];
        struct iovec vector = { buffer, 8 };
        int none[2] = { set, all[2] };
        for (int n = 0; n < 2; n++) {
            FAILS(read(none[n], buffer, 8), EINVAL);
            FAILS(write(none[n], buffer, 8), EINVAL);
            FAILS(readv(none[n], &vector, 1), EINVAL);
        }
        CHECK(read(all[0], buffer, 8) == 8 && read(all[1], buffer, 200) == 128);
    "#,
        |_| {},
    );
}

#[test]
fn urgent_data_is_told_and_dropped_bytes_go_nowhere() {
    passes(
        "urgent",
        READY,
        r#"
        int ends[2]; char bytes[16] = "untouched";
        signal(SIGURG, told);
        connected(ends);
        CHECK(fcntl(ends[1], F_SETOWN, getpid()) == 0 && send(ends[0], "u", 1, MSG_OOB) == 1);
        wait_until(&urgent, 1);
        CHECK(urgent == 1 && recv(ends[1], bytes + 12, 1, MSG_OOB) == 1 && bytes[12] == 'u');
        /* Nobody is told any more. */
        CHECK(fcntl(ends[1], F_SETOWN, 0) == 0 && send(ends[0], "v", 1, MSG_OOB) == 1);
        CHECK(asked(ends[1], POLLIN | POLLPRI) >= 0 && usleep(20000) == 0 && urgent == 1);
        connected(ends);
        CHECK(send(ends[0], "0123456789", 10, 0) == 10);
        struct pollfd waited = { ends[1], POLLIN, 0 };
        CHECK(poll(&waited, 1, 10000) == 1);
        CHECK(recv(ends[1], 0, 4, MSG_TRUNC) == 4);
        CHECK(recv(ends[1], bytes, 4, MSG_TRUNC) == 4 && !strcmp(bytes, "untouched"));
        CHECK(recv(ends[1], bytes, 9, 0) == 2 && !memcmp(bytes, "89touched", 9));
    "#,
        |_| {},
    );
}
