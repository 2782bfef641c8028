// Pipes between processes: a chain of filters, ends, SIGPIPE, more than fits, named pipes, socket pairs, descriptors sent.
#include "processes.h"
#include <poll.h>
#include <sys/socket.h>

static void filter(int from, int to, int add) {
    unsigned char bytes[777];
    for (ssize_t got; (got = read(from, bytes, sizeof bytes)) > 0;) {
        for (ssize_t n = 0; n < got; n++) bytes[n] = (unsigned char)(bytes[n] * 3 + add);
        for (ssize_t done = 0, some; done < got; done += some) {
            some = write(to, bytes + done, (size_t)(got - done));
            CHECK(some > 0);
        }
    }
}

// 400,000 bytes through five processes: each end is closed by those that do not use it, so that the next one sees the end.
static void chain(void) {
    enum { FILTERS = 4, BYTES = 400000 };
    int from = -1;
    pid_t pids[FILTERS + 1];
    for (int stage = 0; stage <= FILTERS; stage++) {
        int ends[2];
        CHECK(pipe(ends) == 0);
        pids[stage] = split();
        if (pids[stage] == 0) {
            close(ends[0]);
            if (stage == 0) {
                static unsigned char bytes[BYTES];
                for (int n = 0; n < BYTES; n++) bytes[n] = (unsigned char)(n * 7 % 251);
                for (int done = 0, some; done < BYTES; done += some) {
                    some = (int)write(ends[1], bytes + done, (size_t)(BYTES - done));
                    CHECK(some > 0);
                }
            } else {
                filter(from, ends[1], stage);
            }
            _exit(stage);
        }
        close(ends[1]);
        if (from >= 0) close(from);
        from = ends[0];
    }
    uint64_t hash = 14695981039346656037u;
    size_t total = 0;
    unsigned char bytes[5000];
    for (ssize_t got; (got = read(from, bytes, sizeof bytes)) > 0; total += (size_t)got)
        for (ssize_t n = 0; n < got; n++) hash = (hash ^ bytes[n]) * 1099511628211u;
    close(from);
    printf("%zu bytes, hash %016llx\n", total, (unsigned long long)hash);
    for (int stage = 0; stage <= FILTERS; stage++) printf("stage %d: %s\n", stage, ended(finish(pids[stage])));
}

static void nobody_reads(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    close(ends[0]);
    pid_t pid = split();
    if (pid == 0) {
        signal(SIGPIPE, SIG_DFL);
        _exit(write(ends[1], "x", 1) == 1 ? 1 : 2);
    }
    printf("a pipe that nobody reads: %s\n", ended(finish(pid)));
    signal(SIGPIPE, SIG_IGN);
    ssize_t wrote = write(ends[1], "x", 1);
    printf("ignored: %zd, %s\n", wrote, error(errno));
    signal(SIGPIPE, SIG_DFL);
    close(ends[1]);
}

// One that yes(1) is: writes until nobody reads any more.
static void endless(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t pid = split();
    if (pid == 0) {
        close(ends[0]);
        for (;;) CHECK(write(ends[1], "yes\n", 4) == 4);
    }
    close(ends[1]);
    char bytes[4];
    for (int n = 0; n < 100; n++) CHECK(read(ends[0], bytes, 4) == 4);
    close(ends[0]);
    printf("after a hundred lines: %s\n", ended(finish(pid)));
}

static void without_waiting(void) {
    int ends[2];
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    char bytes[4096] = {0};
    CHECK(read(ends[0], bytes, 1) == -1);
    printf("empty: %s\n", error(errno));
    size_t total = 0;
    ssize_t wrote;
    while ((wrote = write(ends[1], bytes, sizeof bytes)) > 0) total += (size_t)wrote;
    printf("full: %s after %d, as its size says\n", error(errno), total == (size_t)fcntl(ends[1], F_GETPIPE_SZ));
    struct pollfd polled = {.fd = ends[1], .events = POLLOUT};
    printf("room: %d\n", poll(&polled, 1, 0));
    close(ends[1]);
    polled = (struct pollfd){.fd = ends[0], .events = POLLIN};
    CHECK(poll(&polled, 1, 0) == 1);
    printf("closed: in %d, hung up %d\n", !!(polled.revents & POLLIN), !!(polled.revents & POLLHUP));
    close(ends[0]);
}

static void named(void) {
    const char *folder = enter_folder();
    CHECK(mkfifo("fifo", 0600) == 0);
    CHECK(open("fifo", O_WRONLY | O_NONBLOCK) == -1);
    printf("no reader: %s\n", error(errno));
    pid_t pid = split();
    if (pid == 0) {
        int to = open("fifo", O_WRONLY);
        CHECK(to >= 0 && write(to, "through a name", 14) == 14);
        _exit(0);
    }
    int from = open("fifo", O_RDONLY);
    char text[100] = {0};
    size_t total = 0;
    for (ssize_t got; (got = read(from, text + total, sizeof text - total)) > 0;) total += (size_t)got;
    printf("named: %s, %s\n", text, ended(finish(pid)));
    close(from);
    unlink("fifo");
    leave_folder(folder);
}

static void sockets(void) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    pid_t pid = split();
    if (pid == 0) {
        close(pair[0]);
        // Makes a pipe, sends the end to read from, writes into the other.
        int ends[2];
        CHECK(pipe(ends) == 0);
        char byte = 'd';
        union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control = {0};
        struct iovec part = {&byte, 1};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &ends[0], sizeof(int));
        CHECK(sendmsg(pair[1], &message, 0) == 1);
        CHECK(write(ends[1], "from the sender", 15) == 15);
        char text[10];
        ssize_t got = read(pair[1], text, sizeof text);
        _exit((int)got);
    }
    close(pair[1]);
    char byte, text[100] = {0};
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    CHECK(recvmsg(pair[0], &message, 0) == 1);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    CHECK(head != NULL && head->cmsg_type == SCM_RIGHTS);
    int received;
    memcpy(&received, CMSG_DATA(head), sizeof received);
    CHECK(read(received, text, sizeof text) == 15);
    struct ucred other;
    socklen_t length = sizeof other;
    CHECK(getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &other, &length) == 0);
    printf("byte %c, descriptor: %s, whose maker is this process: %d\n", byte, text, other.pid == getpid());
    CHECK(write(pair[0], "1234567", 7) == 7);
    printf("a packet of the length: %s\n", ended(finish(pid)));
    CHECK(read(pair[0], text, 1) == 0);
    printf("write to one that has ended: %zd, ", send(pair[0], "x", 1, MSG_NOSIGNAL));
    printf("%s\n", error(errno));
}

int main(void) {
    chain();
    nobody_reads();
    endless();
    without_waiting();
    named();
    sockets();
    return 0;
}
