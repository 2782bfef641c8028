/* Datagrams: UDP over IPv4 and IPv6, unix ones with and without names, many at once; time limits. */
#include "sockets.h"

static void udp(int family) {
    struct sockaddr_storage names[2];
    socklen_t length = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    int files[2];
    for (int n = 0; n < 2; n++) {
        memset(&names[n], 0, sizeof names[n]);
        if (family == AF_INET) *(struct sockaddr_in *)&names[n] = loopback(0);
        else *(struct sockaddr_in6 *)&names[n] = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
        files[n] = socket(family, SOCK_DGRAM, 0);
        if (files[n] < 0 || bind(files[n], (struct sockaddr *)&names[n], length) != 0) {
            printf("family %d: not on this machine\n", family);
            return;
        }
        socklen_t given = sizeof names[n];
        CHECK(getsockname(files[n], (struct sockaddr *)&names[n], &given) == 0 && given == length);
    }
    char bytes[16];
    struct sockaddr_storage from;
    socklen_t room = sizeof from;
    CHECK(sendto(files[0], "a datagram", 10, 0, (struct sockaddr *)&names[1], length) == 10);
    SHOW(recvfrom(files[1], bytes, 4, MSG_PEEK | MSG_TRUNC, NULL, NULL));
    SHOW(recvfrom(files[1], bytes, sizeof bytes, 0, (struct sockaddr *)&from, &room));
    printf("from the other: %d\n", room == length && memcmp(&from, &names[0], length) == 0);
    SHOW(recv(files[1], bytes, sizeof bytes, MSG_DONTWAIT));
    CHECK(connect(files[1], (struct sockaddr *)&names[0], length) == 0);
    CHECK(send(files[1], "", 0, 0) == 0 && write(files[1], "long enough", 11) == 11);
    SHOW(recv(files[0], bytes, sizeof bytes, 0));
    struct extra extra;
    SHOW(receive_files(files[0], bytes, 4, 256, 0, &extra));
    printf("flags %#x\n", (unsigned)extra.flags);
    CHECK(close(files[0]) == 0);
    /* Nobody is there any more. */
    CHECK(send(files[1], "x", 1, 0) == 1);
    SHOW(recv(files[1], bytes, sizeof bytes, 0));
    CHECK(close(files[1]) == 0);
}

static void many(void) {
    enum { COUNT = 5 };
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    struct mmsghdr messages[COUNT] = {0};
    struct iovec vectors[COUNT];
    char bytes[COUNT][8];
    for (int n = 0; n < COUNT; n++) {
        vectors[n] = (struct iovec){"abcdefg", (size_t)n + 1};
        messages[n].msg_hdr = (struct msghdr){.msg_iov = &vectors[n], .msg_iovlen = 1};
    }
    SHOW(sendmmsg(pair[0], messages, COUNT, 0));
    for (int n = 0; n < COUNT; n++) {
        CHECK(messages[n].msg_len == (unsigned)n + 1);
        vectors[n] = (struct iovec){bytes[n], 3};
    }
    SHOW(recvmmsg(pair[1], messages, 2, 0, NULL));
    SHOW(recvmmsg(pair[1], messages + 2, 3, MSG_WAITFORONE, NULL));
    for (int n = 0; n < COUNT; n++)
        printf("%u%s ", messages[n].msg_len, messages[n].msg_hdr.msg_flags & MSG_TRUNC ? " cut" : "");
    printf("\n");
    SHOW(recvmmsg(pair[1], messages, 2, MSG_DONTWAIT, NULL));
    CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
}

static struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "inbox"};

static int writer(void) {
    int file = socket(AF_UNIX, SOCK_DGRAM, 0);
    char number[8];
    for (int n = 0; n < 300; n++) {
        int length = snprintf(number, sizeof number, "%d", n);
        CHECK(sendto(file, number, (size_t)length, 0, (struct sockaddr *)&name, sizeof name) == length);
    }
    return 0;
}

/* More than the queue of a name has room for. */
static void named(void) {
    const char *folder = enter_folder();
    int file = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(bind(file, (struct sockaddr *)&name, sizeof name) == 0);
    pid_t child = start(writer);
    long sum = 0;
    char number[8];
    for (int n = 0; n < 300; n++) {
        ssize_t got = recv(file, number, sizeof number - 1, 0);
        CHECK(got > 0);
        number[got] = 0;
        sum += atol(number);
    }
    printf("sum %ld, writer %s\n", sum, ended(finish(child)));
    SHOW(bind(socket(AF_UNIX, SOCK_DGRAM, 0), (struct sockaddr *)&name, sizeof name));
    CHECK(close(file) == 0);
    SHOW(sendto(socket(AF_UNIX, SOCK_DGRAM, 0), "x", 1, 0, (struct sockaddr *)&name, sizeof name));
    CHECK(unlink("inbox") == 0);
    leave_folder(folder);
}

static void limits(void) {
    int pair[2];
    char byte;
    struct timeval limit = {0, 30000}, got;
    socklen_t length = sizeof got;
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    CHECK(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(getsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &got, &length) == 0 && length == sizeof got);
    printf("a limit is kept: %d\n", got.tv_sec == 0 && got.tv_usec >= 30000 && got.tv_usec < 50000);
    SHOW(recv(pair[0], &byte, 1, 0));
    SHOW(read(pair[0], &byte, 1));
    CHECK(setsockopt(pair[1], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    static char block[4096];
    int sent = 0;
    while (send(pair[1], block, sizeof block, 0) > 0) sent++;
    printf("full with EAGAIN: %d\n", errno == EAGAIN && sent > 0);
    CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
}

int main(void) {
    udp(AF_INET);
    udp(AF_INET6);
    many();
    named();
    limits();
    return 0;
}
