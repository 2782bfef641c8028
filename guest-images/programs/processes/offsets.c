// Open files over fork: one offset, one set of flags, but each its own descriptors.
#include "processes.h"

static char text[64];
static const char *content(void) {
    int fd = open("file", O_RDONLY);
    memset(text, 0, sizeof text);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) >= 0 && close(fd) == 0);
    return text;
}

int main(void) {
    const char *folder = enter_folder();
    int fd = open("file", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && write(fd, "0123456789", 10) == 10);
    pid_t pid = split();
    if (pid == 0) {
        CHECK(write(fd, "abc", 3) == 3);
        _exit(0);
    }
    finish(pid);
    printf("offset %d\n", (int)lseek(fd, 0, SEEK_CUR));
    CHECK(write(fd, "XYZ", 3) == 3);
    printf("%s\n", content());
    pid = split();
    if (pid == 0) {
        CHECK(lseek(fd, 2, SEEK_SET) == 2);
        // Closed here, open there.
        close(fd);
        _exit(0);
    }
    finish(pid);
    CHECK(write(fd, "--", 2) == 2);
    printf("%s\n", content());
    // A file that is opened again has its own offset.
    pid = split();
    if (pid == 0) {
        int again = open("file", O_RDWR);
        CHECK(again >= 0 && lseek(again, 8, SEEK_SET) == 8 && write(again, "!!", 2) == 2);
        _exit(0);
    }
    finish(pid);
    printf("offset %d, %s\n", (int)lseek(fd, 0, SEEK_CUR), content());
    // Flags of the file are of both, those of the descriptor are not.
    pid = split();
    if (pid == 0) {
        CHECK(fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK) == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0);
        _exit(0);
    }
    finish(pid);
    int flags = fcntl(fd, F_GETFL);
    printf("append %d, not blocking %d, close on exec %d\n", !!(flags & O_APPEND), !!(flags & O_NONBLOCK), fcntl(fd, F_GETFD));
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && write(fd, "end", 3) == 3);
    printf("%s\n", content());
    // Several that append at once lose nothing.
    for (int n = 0; n < 4; n++)
        if (split() == 0) {
            int append = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
            CHECK(append >= 0);
            for (int line = 0; line < 100; line++) CHECK(write(append, "a line\n", 7) == 7);
            _exit(0);
        }
    for (int n = 0; n < 4; n++) CHECK(wait(NULL) > 0);
    struct stat state;
    CHECK(stat("log", &state) == 0);
    printf("%d bytes of log\n", (int)state.st_size);
    // Two read the lines of one file: each byte is read once.
    int from = open("log", O_RDONLY);
    long *sums = shared(4096);
    for (int n = 0; n < 2; n++)
        if (split() == 0) {
            char line[7];
            while (read(from, line, 7) == 7) sums[n]++;
            _exit(0);
        }
    for (int n = 0; n < 2; n++) CHECK(wait(NULL) > 0);
    printf("%ld lines\n", sums[0] + sums[1]);
    // Numbers are given from the lowest, in each for itself.
    int lowest = dup(0);
    pid = split();
    if (pid == 0) {
        close(lowest);
        _exit(dup(0) == lowest ? 7 : 8);
    }
    printf("%s", ended(finish(pid)));
    printf(", the next %d\n", dup(0) - lowest);
    // A folder's position is shared as well.
    unlink("file"), unlink("log");
    leave_folder(folder);
    return 0;
}
