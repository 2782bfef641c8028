/* Descriptors and credentials in messages of unix sockets, between processes. */
#include "sockets.h"

static int pair[2], files[2];

/* Sends its pipe and a file to the parent, and then writes into the pipe. */
static int sender(void) {
    int ends[2];
    CHECK(pipe(ends) == 0 && close(pair[0]) == 0);
    char name[] = "/tmp/sockets-XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0 && unlink(name) == 0 && write(file, "0123456789", 10) == 10 && lseek(file, 4, SEEK_SET) == 4);
    int sent[2] = {ends[0], file};
    CHECK(send_files(pair[1], "two", 3, sent, 2) == 3);
    CHECK(close(ends[0]) == 0 && close(file) == 0);
    CHECK(write(ends[1], "by the pipe", 11) == 11 && close(ends[1]) == 0);
    return 0;
}

static void between_processes(void) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = start(sender);
    CHECK(close(pair[1]) == 0);
    char bytes[64];
    struct extra extra;
    ssize_t got = receive_files(pair[0], bytes, sizeof bytes, 256, MSG_CMSG_CLOEXEC, &extra);
    printf("got %.*s with %d files, flags %#x\n", (int)got, bytes, extra.count, (unsigned)extra.flags);
    CHECK(extra.count == 2 && (fcntl(extra.files[0], F_GETFD) & FD_CLOEXEC));
    got = read(extra.files[1], bytes, 3);
    printf("the file goes on with %.*s\n", (int)got, bytes);
    for (got = 0;;) {
        ssize_t more = read(extra.files[0], bytes + got, sizeof bytes - (size_t)got);
        CHECK(more >= 0);
        if (more == 0) break;
        got += more;
    }
    printf("the pipe has: %.*s\n", (int)got, bytes);
    printf("sender: %s\n", ended(finish(child)));
    CHECK(recv(pair[0], bytes, 1, 0) == 0);
    CHECK(close(extra.files[0]) == 0 && close(extra.files[1]) == 0 && close(pair[0]) == 0);
}

/* A message whose descriptors nobody takes closes them. */
static void thrown_away(void) {
    int ends[2];
    char byte;
    struct extra extra;
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0 && pipe(ends) == 0);
    CHECK(send_files(pair[0], "x", 1, &ends[1], 1) == 1 && close(ends[1]) == 0);
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    SHOW(read(ends[0], &byte, 1));
    CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
    SHOW(read(ends[0], &byte, 1));
    CHECK(close(ends[0]) == 0);

    /* read and too small a buffer do the same. */
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && pipe(ends) == 0);
    files[0] = files[1] = ends[1];
    CHECK(send_files(pair[0], "abc", 3, files, 1) == 3 && read(pair[1], &byte, 1) == 1 && byte == 'a');
    CHECK(send_files(pair[0], "abc", 3, files, 2) == 3);
    SHOW(receive_files(pair[1], &byte, 1, CMSG_LEN(sizeof(int)), 0, &extra));
    printf("%d file, flags %#x\n", extra.count, (unsigned)extra.flags);
    CHECK(close(extra.files[0]) == 0 && close(ends[1]) == 0 && close(pair[0]) == 0 && close(pair[1]) == 0);
    SHOW(read(ends[0], &byte, 1));
    CHECK(close(ends[0]) == 0);
}

/* Looking at a message gives its descriptors as well. */
static void looked_at(void) {
    struct extra extra;
    char bytes[8];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    int self = pair[1];
    CHECK(send_files(pair[0], "peek", 4, &self, 1) == 4);
    for (int round = 0; round < 2; round++) {
        SHOW(receive_files(pair[1], bytes, sizeof bytes, 256, round == 0 ? MSG_PEEK : 0, &extra));
        CHECK(extra.count == 1);
        CHECK(send(pair[0], "!", 1, 0) == 1 && close(extra.files[0]) == 0);
    }
    SHOW(recv(pair[1], bytes, sizeof bytes, 0));
    CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
}

static int speaker(void) {
    CHECK(write(pair[1], "plain", 5) == 5);
    struct ucred own = {getpid(), getuid(), getgid()};
    union { char bytes[CMSG_SPACE(sizeof own)]; struct cmsghdr header; } control;
    memset(&control, 0, sizeof control);
    struct iovec vector = {"claimed", 7};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    *CMSG_FIRSTHDR(&message) = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS, .cmsg_len = CMSG_LEN(sizeof own)};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &own, sizeof own);
    CHECK(sendmsg(pair[1], &message, 0) == 7);
    return 0;
}

static void credentials(void) {
    int on = 1;
    char bytes[16];
    struct extra extra;
    struct ucred peer;
    socklen_t length = sizeof peer;
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    CHECK(getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0);
    printf("the pair's maker is this process: %d\n", peer.pid == getpid() && peer.uid == geteuid());
    CHECK(send(pair[1], "before", 6, 0) == 6);
    CHECK(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
    pid_t child = start(speaker);
    for (int n = 0; n < 3; n++) {
        ssize_t got = receive_files(pair[0], bytes, sizeof bytes, 256, 0, &extra);
        printf("%.*s: sender %d, the child %d\n", (int)got, bytes, extra.has_sender, extra.sender.pid == child);
    }
    printf("speaker: %s\n", ended(finish(child)));
    CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
}

static struct sockaddr_un name = {.sun_family = AF_UNIX};
static socklen_t name_length;

static int caller(void) {
    struct ucred peer;
    socklen_t length = sizeof peer;
    int file = socket(AF_UNIX, SOCK_STREAM, 0), ends[2];
    CHECK(connect(file, (struct sockaddr *)&name, name_length) == 0 && pipe(ends) == 0);
    CHECK(getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid == getppid());
    CHECK(send_files(file, "pipe", 4, &ends[1], 1) == 4 && close(ends[1]) == 0);
    char bytes[16];
    ssize_t got = read(ends[0], bytes, sizeof bytes);
    CHECK(got == 6 && memcmp(bytes, "answer", 6) == 0);
    return 7;
}

/* A listener with a name, and who calls. */
static void listen_at(const char *what, const char *path, size_t length) {
    memcpy(name.sun_path, path, length);
    name_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr *)&name, name_length) == 0 && listen(listener, 4) == 0);
    struct sockaddr_un own;
    socklen_t own_length = sizeof own;
    CHECK(getsockname(listener, (struct sockaddr *)&own, &own_length) == 0);
    printf("%s: name of %u bytes, the same %d\n", what, own_length,
           memcmp(&own, &name, offsetof(struct sockaddr_un, sun_path) + length) == 0);
    pid_t child = start(caller);
    int file = accept(listener, (struct sockaddr *)&own, &own_length);
    CHECK(file >= 0 && own_length == 2);
    struct ucred peer;
    socklen_t peer_length = sizeof peer;
    CHECK(getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &peer_length) == 0);
    printf("the caller is the child: %d\n", peer.pid == child);
    char bytes[16];
    struct extra extra;
    CHECK(receive_files(file, bytes, sizeof bytes, 256, 0, &extra) == 4 && extra.count == 1);
    CHECK(write(extra.files[0], "answer", 6) == 6);
    printf("caller: %s\n", ended(finish(child)));
    CHECK(close(extra.files[0]) == 0 && close(file) == 0 && close(listener) == 0);
}

int main(void) {
    between_processes();
    thrown_away();
    looked_at();
    credentials();
    const char *folder = enter_folder();
    listen_at("relative", "here.socket", 12);
    struct stat status;
    CHECK(stat("here.socket", &status) == 0 && S_ISSOCK(status.st_mode));
    printf("mode %o\n", status.st_mode & 0777);
    CHECK(unlink("here.socket") == 0);
    char abstract[32] = {0};
    int length = snprintf(abstract + 1, 31, "gretel-pass-%d", getpid());
    name_length = 0;
    printf("abstract has a length: %d\n", length > 12);
    listen_at("abstract", abstract, 24);
    leave_folder(folder);
    return 0;
}
