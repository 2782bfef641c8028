// A program that runs cannot be written, and one that is open to write cannot be run.
#include "processes.h"

static int go[2], ready[2];

static void copy(const char *from, const char *to) {
    char bytes[65536];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0700);
    CHECK(in >= 0 && out >= 0);
    for (ssize_t got; (got = read(in, bytes, sizeof bytes)) > 0;) CHECK(write(out, bytes, got) == got);
    close(in), close(out);
}

static const char *opened(const char *path, int flags) {
    int fd = open(path, flags, 0700);
    if (fd < 0) return error(errno);
    close(fd);
    return "opened";
}

static int run(const char *path) {
    pid_t pid = split();
    if (pid == 0) {
        execl(path, "copy", "quick", NULL);
        _exit(errno == ETXTBSY ? 20 : 21);
    }
    return finish(pid);
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "quick")) return 5;
    if (count > 1) {
        // The copy: it runs until its parent is done.
        CHECK(write(3, "!", 1) == 1);
        char byte;
        return read(4, &byte, 1) == 1 ? 6 : 7;
    }
    const char *program = itself(arguments), *folder = enter_folder();
    copy(program, "copy");
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    printf("before: %s\n", opened("copy", O_RDWR));
    pid_t pid = split();
    if (pid == 0) {
        int to = fcntl(ready[1], F_DUPFD, 10), from = fcntl(go[0], F_DUPFD, 10);
        CHECK(dup2(to, 3) == 3 && dup2(from, 4) == 4);
        execl("copy", "copy", "slow", NULL);
        _exit(22);
    }
    await(ready);
    printf("running: to read %s", opened("copy", O_RDONLY));
    printf(", to write %s", opened("copy", O_WRONLY));
    printf(", to be cut %s", opened("copy", O_RDONLY | O_TRUNC));
    printf(", to be made %s", opened("copy", O_RDWR | O_CREAT));
    printf(", anew %s", opened("copy", O_RDWR | O_CREAT | O_EXCL));
    CHECK(truncate("copy", 0) == -1);
    printf(", truncated %s\n", error(errno));
    // Another file of that name may be written.
    CHECK(unlink("copy") == 0);
    copy(program, "copy");
    printf("replaced: %s\n", opened("copy", O_RDWR));
    tell(go);
    printf("the first: %s\n", ended(finish(pid)));

    int fd = open("copy", O_WRONLY);
    CHECK(fd >= 0);
    printf("open to write: %s\n", ended(run("copy")));
    close(fd);
    fd = open("copy", O_RDONLY);
    printf("open to read: %s, and then: %s\n", ended(run("copy")), opened("copy", O_RDWR));
    int memory = memfd_create("copy", 0), from = open("copy", O_RDONLY);
    char bytes[65536], path[64];
    for (ssize_t got; (got = read(from, bytes, sizeof bytes)) > 0;) CHECK(write(memory, bytes, got) == got);
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    printf("in memory: %s\n", ended(run(path)));
    CHECK(chmod("copy", 0600) == 0);
    unlink("copy");
    leave_folder(folder);
    return 0;
}
