/* What the programs of this folder share. */
#ifndef SOCKETS_H
#define SOCKETS_H

#include "../processes/processes.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <stddef.h>

/* 127.0.0.1 with a port, in the order of this machine. */
static inline struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/* What a call on sockets failed with. */
static inline const char *failure(void) {
    static const struct { int number; const char *name; } names[] = {
        {ENOTSOCK, "ENOTSOCK"}, {ECONNREFUSED, "ECONNREFUSED"}, {EADDRINUSE, "EADDRINUSE"}, {ENOTCONN, "ENOTCONN"},
        {EINPROGRESS, "EINPROGRESS"}, {EALREADY, "EALREADY"}, {EISCONN, "EISCONN"}, {EAFNOSUPPORT, "EAFNOSUPPORT"},
        {EOPNOTSUPP, "EOPNOTSUPP"}, {EDESTADDRREQ, "EDESTADDRREQ"}, {ENOPROTOOPT, "ENOPROTOOPT"},
        {EPROTONOSUPPORT, "EPROTONOSUPPORT"}, {ESPIPE, "ESPIPE"}, {EPROTOTYPE, "EPROTOTYPE"},
        {ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"},
    };
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        if (names[n].number == errno) return names[n].name;
    return error(errno);
}

/* Prints a result, or the error. */
#define SHOW(call)                                                                  \
    do {                                                                            \
        long result_ = (long)(call);                                                \
        if (result_ < 0) printf("%s: %s\n", #call, failure());                      \
        else printf("%s: %ld\n", #call, result_);                                   \
    } while (0)

/* Sends bytes with descriptors. */
static inline ssize_t send_files(int to, const void *bytes, size_t length, const int *files, int count) {
    union { char bytes[CMSG_SPACE(16 * sizeof(int))]; struct cmsghdr header; } control;
    memset(&control, 0, sizeof control);
    struct iovec vector = {(void *)bytes, length};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(header), files, (size_t)count * sizeof(int));
    }
    return sendmsg(to, &message, 0);
}

/* What was received beside the bytes. */
struct extra {
    int flags, files[16], count;
    int has_sender;
    struct ucred sender;
};

static inline ssize_t receive_files(int from, void *bytes, size_t length, size_t room, int flags, struct extra *extra) {
    union { char bytes[256]; struct cmsghdr header; } control;
    struct iovec vector = {bytes, length};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = room};
    ssize_t got = recvmsg(from, &message, flags);
    memset(extra, 0, sizeof *extra);
    if (got < 0) return got;
    extra->flags = message.msg_flags;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        CHECK(header->cmsg_level == SOL_SOCKET);
        if (header->cmsg_type == SCM_RIGHTS) {
            extra->count = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(extra->files, CMSG_DATA(header), (size_t)extra->count * sizeof(int));
        } else if (header->cmsg_type == SCM_CREDENTIALS) {
            extra->has_sender = 1;
            memcpy(&extra->sender, CMSG_DATA(header), sizeof extra->sender);
        }
    }
    return got;
}

#endif
