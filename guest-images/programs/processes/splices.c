// Copies that the kernel makes: splice, tee, vmsplice and copy_file_range between pipes, files and the terminal's place, with a
// process that waits at each end; extended attributes; inotify.
#include "processes.h"
#include <sys/inotify.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/xattr.h>

// At a page's beginning, as the kernel counts the pages that vmsplice gives away.
static char bytes[200000] __attribute__((aligned(4096)));

static unsigned sum(int file, size_t *length) {
    unsigned value = 0;
    unsigned char part[4096];
    ssize_t got;
    *length = 0;
    while ((got = read(file, part, sizeof part)) > 0) {
        for (ssize_t n = 0; n < got; n++) value = value * 31 + part[n];
        *length += (size_t)got;
    }
    return value;
}

static void show(const char *what, int file) {
    size_t length;
    unsigned value = sum(file, &length);
    printf("%s: %zu bytes, sum %u\n", what, length, value);
}

static int file_with(const char *name, size_t length) {
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0 && write(file, bytes, length) == (ssize_t)length);
    return file;
}

static void pipes(void) {
    int in = file_with("in", 150000), out = file_with("out", 10), pipe1[2], pipe2[2];
    CHECK(pipe(pipe1) == 0 && pipe(pipe2) == 0);
    loff_t at = 1000;
    pid_t reader = split();
    if (reader == 0) {
        // What comes slowly through the first pipe goes to a file.
        close(pipe1[1]);
        loff_t to = 5;
        ssize_t got, all = 0;
        while ((got = splice(pipe1[0], NULL, out, &to, 70000, SPLICE_F_MOVE)) > 0) all += got;
        printf("reader: %zd bytes, offset %lld, errno %s\n", all, (long long)to, error(got < 0 ? errno : 0));
        exit(0);
    }
    close(pipe1[0]);
    ssize_t got, all = 0;
    while ((got = splice(in, &at, pipe1[1], NULL, 100000, 0)) > 0) all += got;
    close(pipe1[1]);
    CHECK(finish(reader) == 0);
    printf("writer: %zd bytes, offset %lld\n", all, (long long)at);
    CHECK(lseek(out, 0, SEEK_SET) == 0);
    show("out", out);
    printf("position of the source %lld\n", (long long)lseek(in, 0, SEEK_CUR));
    errno = 0;
    CHECK(splice(in, NULL, out, NULL, 10, 0) == -1);
    printf("without a pipe: %s\n", error(errno));
    CHECK(splice(pipe2[0], NULL, out, NULL, 10, SPLICE_F_NONBLOCK) == -1);
    printf("empty: %s\n", error(errno));
    CHECK(splice(pipe2[0], NULL, out, NULL, 10, 0x100) == -1);
    printf("unknown flag: %s\n", error(errno));
    int pipe3[2];
    CHECK(pipe(pipe3) == 0 && write(pipe2[1], "twice", 5) == 5);
    printf("tee %zd", tee(pipe2[0], pipe3[1], 100, 0));
    char text[10] = "";
    CHECK(read(pipe3[0], text, 9) == 5);
    printf(", %s", text);
    memset(text, 0, sizeof text);
    CHECK(read(pipe2[0], text, 9) == 5);
    printf(" and %s\n", text);
    struct iovec parts[2] = {{"scat", 4}, {"tered", 5}};
    printf("vmsplice %zd", vmsplice(pipe2[1], parts, 2, 0));
    memset(text, 0, sizeof text);
    CHECK(read(pipe2[0], text, 9) == 9);
    printf(", %.9s\n", text);
    // What it has room for, so that the same process can take it out again.
    struct iovec large = {bytes, sizeof bytes};
    printf("vmsplice of more than there is room for %zd", vmsplice(pipe2[1], &large, 1, 0));
    CHECK(vmsplice(pipe2[1], &large, 1, SPLICE_F_NONBLOCK) == -1);
    printf(", full %s", error(errno));
    static char room[sizeof bytes] __attribute__((aligned(4096)));
    large.iov_base = room;
    printf(", taken out %zd", vmsplice(pipe2[0], &large, 1, 0));
    CHECK(vmsplice(pipe2[0], &large, 1, SPLICE_F_NONBLOCK) == -1);
    printf(", empty %s, %s\n", error(errno), memcmp(room, bytes, 65536) == 0 ? "equal" : "other bytes");
    CHECK(vmsplice(in, parts, 2, 0) == -1);
    printf("vmsplice to a file: %s\n", error(errno));
    fflush(stdout);
    CHECK(write(pipe2[1], "to the output\n", 14) == 14);
    CHECK(splice(pipe2[0], NULL, STDOUT_FILENO, NULL, 100, 0) == 14 || errno == EINVAL);
    signal(SIGPIPE, SIG_IGN);
    close(pipe3[0]);
    CHECK(splice(in, &at, pipe3[1], NULL, 10, 0) <= 0);
    at = 0;
    CHECK(splice(in, &at, pipe3[1], NULL, 10, 0) == -1);
    printf("nobody reads: %s\n", error(errno));
}

static void ranges(void) {
    int in = file_with("in", 150000), out = file_with("copy", 0);
    loff_t from = 100, to = 50;
    printf("copied %zd", copy_file_range(in, &from, out, &to, 1000, 0));
    printf(" to %lld\n", (long long)to);
    CHECK(lseek(in, 0, SEEK_SET) == 0);
    ssize_t all = 0, got;
    while ((got = copy_file_range(in, NULL, out, NULL, 100000, 0)) > 0) all += got;
    printf("copied %zd, position %lld\n", all, (long long)lseek(out, 0, SEEK_CUR));
    char *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, out, 0);
    CHECK(mapped != MAP_FAILED);
    memcpy(mapped, "changed", 7);
    from = 1, to = 10;
    CHECK(copy_file_range(in, &from, out, &to, 3, 0) == 3);
    printf("in the mapping: %.13s, %s\n", mapped, memcmp(mapped + 10, bytes + 1, 3) ? "other bytes" : "the same bytes");
    CHECK(copy_file_range(in, &from, out, &to, 3, 1) == -1);
    printf("flags: %s\n", error(errno));
    int pipe1[2];
    CHECK(pipe(pipe1) == 0 && copy_file_range(pipe1[0], NULL, out, NULL, 3, 0) == -1);
    printf("of a pipe: %s\n", error(errno));
    CHECK(lseek(out, 0, SEEK_SET) == 0);
    show("copy", out);
    CHECK(munmap(mapped, 4096) == 0 && unlink("copy") == 0);
}

static void attributes(void) {
    int file = file_with("in", 10);
    char value[64], list[256];
    if (setxattr("in", "user.one", "first", 5, 0) == -1 && errno == EOPNOTSUPP) {
        printf("this file system has no attributes\n");
        return;
    }
    CHECK(fsetxattr(file, "user.two", "second", 6, XATTR_CREATE) == 0);
    CHECK(fsetxattr(file, "user.two", "second", 6, XATTR_CREATE) == -1);
    printf("again: %s\n", error(errno));
    ssize_t length = getxattr("in", "user.one", value, sizeof value);
    printf("one: %.*s, two: %zd long\n", (int)length, value, fgetxattr(file, "user.two", NULL, 0));
    CHECK(getxattr("in", "user.two", value, 3) == -1);
    printf("too small: %s\n", errno == ERANGE ? "ERANGE" : error(errno));
    CHECK(getxattr("in", "user.none", value, sizeof value) == -1 && errno == ENODATA);
    length = listxattr("in", list, sizeof list);
    int users = 0;
    for (char *name = list; name < list + length; name += strlen(name) + 1) users += strncmp(name, "user.", 5) == 0;
    printf("%d names\n", users);
    CHECK(symlink("in", "link") == 0);
    printf("through a link: %zd\n", getxattr("link", "user.one", value, sizeof value));
    CHECK(lsetxattr("link", "user.one", "x", 1, 0) == -1);
    printf("of the link: %s\n", error(errno));
    CHECK(removexattr("in", "user.one") == 0 && lgetxattr("in", "user.one", value, sizeof value) == -1);
    CHECK(getxattr("nowhere", "user.one", value, sizeof value) == -1);
    printf("nowhere: %s\n", error(errno));
    CHECK(unlink("link") == 0);
}

static void watch(void) {
    int inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    CHECK(inotify >= 0);
    char events[4096] __attribute__((aligned(8)));
    CHECK(read(inotify, events, sizeof events) == -1);
    printf("nothing yet: %s\n", error(errno));
    int folder = inotify_add_watch(inotify, ".", IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_ONLYDIR);
    int file = inotify_add_watch(inotify, "in", IN_MODIFY | IN_CLOSE_WRITE);
    CHECK(folder >= 0 && file >= 0 && folder != file);
    CHECK(inotify_add_watch(inotify, "in", IN_MODIFY | IN_ONLYDIR) == -1);
    printf("no folder: %s\n", error(errno));
    pid_t child = split();
    if (child == 0) {
        int made = open("made", O_CREAT | O_WRONLY, 0600), in = open("in", O_WRONLY);
        CHECK(made >= 0 && in >= 0 && write(in, "x", 1) == 1);
        close(in), close(made);
        CHECK(rename("made", "moved") == 0 && unlink("moved") == 0);
        exit(0);
    }
    CHECK(finish(child) == 0);
    ssize_t length = read(inotify, events, sizeof events);
    for (char *at = events; at < events + length;) {
        struct inotify_event *event = (void *)at;
        printf("%s: %#x %s\n", event->wd == folder ? "folder" : "file", event->mask, event->len ? event->name : "");
        at += sizeof *event + event->len;
    }
    CHECK(inotify_rm_watch(inotify, file) == 0 && inotify_rm_watch(inotify, 77) == -1);
    printf("no such watch: %s\n", error(errno));
    CHECK(inotify_add_watch(inotify, "nowhere", IN_MODIFY) == -1);
    printf("nowhere: %s\n", error(errno));
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *folder = enter_folder();
    for (size_t n = 0; n < sizeof bytes; n++) bytes[n] = (char)(n * n >> 3);
    pipes();
    ranges();
    attributes();
    watch();
    CHECK(unlink("in") == 0 && unlink("out") == 0);
    leave_folder(folder);
    return 0;
}
