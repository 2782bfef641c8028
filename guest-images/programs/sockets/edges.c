/* The edges of calls on sockets: refused connections, broken ones, signals, errors, and how they mix with calls on files. */
#include "sockets.h"
#include <sys/sendfile.h>

static volatile sig_atomic_t caught;
static void note(int number) { caught = number; }

static void refused(void) {
    int file = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    /* A port that is bound and not listened at. */
    CHECK(bind(file, (struct sockaddr *)&address, length) == 0);
    CHECK(getsockname(file, (struct sockaddr *)&address, &length) == 0);
    int waits = socket(AF_INET, SOCK_STREAM, 0), does_not = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SHOW(connect(waits, (struct sockaddr *)&address, length));
    int result = connect(does_not, (struct sockaddr *)&address, length), wrong = errno;
    if (result < 0 && errno == EINPROGRESS) {
        struct pollfd polled = {.fd = does_not, .events = POLLOUT};
        CHECK(poll(&polled, 1, -1) == 1 && polled.revents & (POLLERR | POLLHUP));
        length = sizeof wrong;
        CHECK(getsockopt(does_not, SOL_SOCKET, SO_ERROR, &wrong, &length) == 0);
    }
    errno = wrong;
    printf("without waiting: %s\n", failure());
    CHECK(listen(file, 1) == 0 && close(does_not) == 0);
    CHECK((does_not = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) >= 0);
    SHOW(connect(does_not, (struct sockaddr *)&address, sizeof address) == 0 || errno == EINPROGRESS);
    int accepted = accept(file, NULL, NULL);
    SHOW(accepted >= 0);
    struct pollfd polled = {.fd = does_not, .events = POLLOUT};
    CHECK(poll(&polled, 1, -1) == 1 && polled.revents == POLLOUT);
    SHOW(connect(does_not, (struct sockaddr *)&address, sizeof address) == 0 || errno == EISCONN);
    int on = 1, told = 0;
    length = sizeof told;
    CHECK(setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    CHECK(getsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &told, &length) == 0 && told == 1);
    CHECK(close(waits) == 0 && close(does_not) == 0 && close(accepted) == 0 && close(file) == 0);
}

static struct sockaddr_un crowd = {.sun_family = AF_UNIX, .sun_path = "crowd"};

static int visitor(void) {
    int file = socket(AF_UNIX, SOCK_STREAM, 0);
    return connect(file, (struct sockaddr *)&crowd, sizeof crowd) == 0 && write(file, "v", 1) == 1 ? 0 : 1;
}

/* More who connect than a listener keeps waiting. */
static void crowded(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), file;
    struct sockaddr_in address = loopback(0);
    struct timeval limit = {0, 50000};
    socklen_t length = sizeof address;
    CHECK(bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 0) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
    for (int result = 0; result == 0;) {
        file = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
        result = connect(file, (struct sockaddr *)&address, length);
    }
    printf("too many: %s\n", failure());
    CHECK(accept(listener, NULL, NULL) >= 0);
    /* It goes on by itself; waiting for it again is allowed. */
    limit.tv_sec = 10;
    CHECK(setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    SHOW(connect(file, (struct sockaddr *)&address, length));
    CHECK(close(file) == 0 && close(listener) == 0);

    const char *folder = enter_folder();
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr *)&crowd, sizeof crowd) == 0 && listen(listener, 0) == 0);
    pid_t visitors[4];
    for (int n = 0; n < 4; n++) visitors[n] = start(visitor);
    usleep(30000);
    for (int n = 0; n < 4; n++) {
        char byte;
        CHECK((file = accept(listener, NULL, NULL)) >= 0 && read(file, &byte, 1) == 1 && close(file) == 0);
    }
    for (int n = 0; n < 4; n++) CHECK(finish(visitors[n]) == 0);
    printf("all came\n");
    CHECK(close(listener) == 0 && unlink("crowd") == 0);
    leave_folder(folder);
}

static void broken(void) {
    int pair[2];
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(write(pair[0], "last", 4) == 4 && shutdown(pair[0], SHUT_WR) == 0);
    handle(SIGPIPE, note, 0);
    SHOW(write(pair[0], "x", 1));
    printf("signal %d\n", caught);
    caught = 0;
    SHOW(send(pair[0], "x", 1, MSG_NOSIGNAL));
    printf("signal %d\n", caught);
    struct pollfd polled = {.fd = pair[1], .events = POLLIN | POLLRDHUP};
    CHECK(poll(&polled, 1, -1) == 1);
    printf("events %#x\n", (unsigned)polled.revents);
    int waiting;
    CHECK(ioctl(pair[1], FIONREAD, &waiting) == 0);
    printf("waiting %d\n", waiting);
    char rest[8];
    SHOW(recv(pair[1], rest, sizeof rest, MSG_WAITALL));
    SHOW(read(pair[1], &byte, 1));
    CHECK(close(pair[0]) == 0);
    SHOW(send(pair[1], "x", 1, 0));
    CHECK(close(pair[1]) == 0);
    handle(SIGPIPE, SIG_DFL, 0);
}

static int into[2];

static int piped(void) {
    CHECK(shutdown(into[1], SHUT_RDWR) == 0);
    send(into[1], "x", 1, 0);
    return 0;
}

static int late(void) {
    usleep(20000);
    CHECK(kill(getppid(), SIGUSR1) == 0);
    usleep(20000);
    CHECK(write(into[1], "late", 4) == 4);
    return 0;
}

static void interrupted(void) {
    char bytes[8];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, into) == 0);
    handle(SIGUSR1, note, 0);
    pid_t child = start(late);
    SHOW(recv(into[0], bytes, sizeof bytes, 0));
    SHOW(recv(into[0], bytes, sizeof bytes, 0));
    CHECK(finish(child) == 0);
    handle(SIGUSR1, note, SA_RESTART);
    child = start(late);
    SHOW(recv(into[0], bytes, sizeof bytes, 0));
    CHECK(finish(child) == 0);
    struct timeval limit = {5, 0};
    CHECK(setsockopt(into[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    child = start(late);
    SHOW(recv(into[0], bytes, sizeof bytes, 0));
    SHOW(recv(into[0], bytes, sizeof bytes, 0));
    CHECK(finish(child) == 0);
    printf("killed: %s\n", ended(finish(start(piped))));
    CHECK(close(into[0]) == 0 && close(into[1]) == 0);
}

static int reader(void) {
    char *all = malloc(1 << 20);
    ssize_t total = 0, got;
    CHECK(close(into[1]) == 0);
    while ((got = recv(into[0], all, 1 << 20, 0)) > 0) total += got;
    return total == 3000000 ? 0 : 1;
}

/* More than there is room for, to a child that reads it. */
static void large(void) {
    static char bytes[1000000];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, into) == 0);
    pid_t child = start(reader);
    CHECK(close(into[0]) == 0);
    SHOW(write(into[1], bytes, sizeof bytes));
    struct iovec parts[2] = {{bytes, 400000}, {bytes, 600000}};
    SHOW(writev(into[1], parts, 2));
    char name[] = "/tmp/sockets-XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0 && unlink(name) == 0 && ftruncate(file, 1500000) == 0);
    off_t offset = 500000;
    while (offset < 1500000) CHECK(sendfile(into[1], file, &offset, (size_t)(1500000 - offset)) > 0);
    printf("sent to %ld, position %ld\n", (long)offset, (long)lseek(file, 0, SEEK_CUR));
    CHECK(close(file) == 0 && close(into[1]) == 0);
    printf("reader: %s\n", ended(finish(child)));
}

static void errors(void) {
    int file = socket(AF_INET, SOCK_STREAM, 0), pipes[2], pair[2];
    struct sockaddr_in address = loopback(1);
    struct sockaddr *any = (struct sockaddr *)&address;
    socklen_t length = sizeof address;
    char byte;
    int number = 1;
    CHECK(file >= 0 && pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    struct sockaddr *nowhere = (struct sockaddr *)16;
    SHOW(bind(pipes[0], any, length));
    SHOW(bind(-1, any, length));
    SHOW(bind(file, any, 2000));
    SHOW(bind(file, any, 3));
    SHOW(bind(file, nowhere, length));
    SHOW(connect(file, nowhere, length));
    SHOW(listen(pair[0], 1));
    SHOW(accept(file, NULL, NULL));
    SHOW(accept4(file, NULL, NULL, 1));
    SHOW(accept(pair[0], NULL, NULL));
    SHOW(getpeername(file, any, &length));
    SHOW(getsockname(file, any, (socklen_t *)16));
    SHOW(recv(file, &byte, 1, 0));
    SHOW(send(pair[0], (void *)16, 1, 0));
    SHOW(recv(pair[0], &byte, 1, MSG_DONTWAIT));
    SHOW(recv(pipes[0], &byte, 1, MSG_DONTWAIT));
    SHOW(pread(pair[0], &byte, 1, 0));
    SHOW(lseek(pair[0], 0, SEEK_CUR));
    SHOW(shutdown(pair[0], 7));
    SHOW(shutdown(file, SHUT_RD));
    SHOW(socketpair(AF_INET, SOCK_STREAM, 0, pipes));
    SHOW(syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, 16));
    SHOW(socket(AF_UNIX, 77, 0));
    SHOW(socket(AF_INET, SOCK_STREAM, 200));
    SHOW(setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &number, 1));
    SHOW(setsockopt(file, SOL_SOCKET, SO_REUSEADDR, (void *)16, 4));
    SHOW(setsockopt(file, SOL_SOCKET, 999, &number, 4));
    length = sizeof number;
    SHOW(getsockopt(file, SOL_SOCKET, SO_TYPE, &number, &length));
    printf("type %d, length %u\n", number, length);
    struct msghdr message = {.msg_iovlen = 5000};
    SHOW(sendmsg(pair[0], &message, 0));
    message = (struct msghdr){.msg_control = &number, .msg_controllen = 4};
    SHOW(sendmsg(pair[0], &message, 0));
    int bad = 999;
    SHOW(send_files(pair[0], "x", 1, &bad, 1));
    SHOW(sendmsg(pair[0], (struct msghdr *)16, 0));
    SHOW(recvmsg(pair[0], (struct msghdr *)16, 0));
    CHECK(fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0);
    SHOW(read(pair[0], &byte, 1));
    int off = 0;
    CHECK(ioctl(pair[0], FIONBIO, &off) == 0 && (fcntl(pair[0], F_GETFL) & O_NONBLOCK) == 0);
    SHOW(send(pair[1], "ab", 2, 0));
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pair[0], &set);
    SHOW(select(pair[0] + 1, &set, NULL, NULL, NULL));
    SHOW(recv(pair[0], (void *)16, 1, 0));
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 1 << 16);
    refused();
    crowded();
    broken();
    interrupted();
    large();
    errors();
    return 0;
}
