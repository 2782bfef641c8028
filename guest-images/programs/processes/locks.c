// Locks on files: of processes (fcntl), of open files (flock and OFD), what waits, what is refused, what is let go.
#include "processes.h"
#include <sys/file.h>

static int fd, ready[2], go[2];

static int lock(int command, short type, off_t from, off_t length) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = from, .l_len = length};
    return fcntl(fd, command, &lock);
}

static const char *is_free(off_t from, off_t length, pid_t holder) {
    static char text[80];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from, .l_len = length};
    CHECK(fcntl(fd, F_GETLK, &lock) == 0);
    if (lock.l_type == F_UNLCK) return "free";
    snprintf(text, sizeof text, "%s %d to %d, by the holder %d", lock.l_type == F_RDLCK ? "read" : "written", (int)lock.l_start,
             (int)lock.l_len, lock.l_pid == holder);
    return text;
}

static int holds(void) {
    CHECK(lock(F_SETLK, F_WRLCK, 10, 20) == 0 && lock(F_SETLK, F_RDLCK, 50, 10) == 0);
    tell(ready);
    await(go);
    return 1;
}

static int inherits_none(void) {
    return strcmp(is_free(0, 0, getppid()), "free") ? 2 : 3;
}

static int waits(void) {
    tell(ready);
    CHECK(lock(F_SETLKW, F_WRLCK, 0, 10) == 0);
    char byte = 0;
    CHECK(pread(fd, &byte, 1, 0) == 1);
    return byte;
}

static volatile int interrupted;
static void note(int number) { (void)number, interrupted++; }

static int waits_in_vain(void) {
    handle(SIGUSR1, note, 0);
    tell(ready);
    return lock(F_SETLKW, F_WRLCK, 0, 10) == -1 && errno == EINTR ? 4 : 5;
}

// Has the second half, wants the first.
static int crosses(void) {
    CHECK(lock(F_SETLK, F_WRLCK, 100, 10) == 0);
    tell(ready);
    int result = lock(F_SETLKW, F_WRLCK, 0, 10);
    return result == 0 ? 6 : errno == EDEADLK ? 7 : 8;
}

int main(void) {
    const char *folder = enter_folder();
    fd = open("file", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && write(fd, "aaaa", 4) == 4 && pipe(ready) == 0 && pipe(go) == 0);
    pid_t pid = start(holds);
    await(ready);
    printf("all: %s\n", is_free(0, 0, pid));
    printf("before: %s\n", is_free(0, 10, pid));
    printf("to read: %s\n", is_free(55, 1, pid));
    CHECK(lock(F_SETLK, F_WRLCK, 15, 1) == -1);
    printf("taken: %s\n", error(errno));
    CHECK(lock(F_SETLK, F_RDLCK, 50, 10) == 0 && lock(F_SETLK, F_WRLCK, 55, 1) == -1);
    printf("both read, none writes: %s\n", error(errno));
    tell(go);
    printf("%s, ", ended(finish(pid)));
    printf("then: %s\n", is_free(0, 0, pid));
    CHECK(lock(F_SETLK, F_UNLCK, 0, 0) == 0);

    CHECK(lock(F_SETLK, F_WRLCK, 0, 10) == 0);
    printf("a child has none: %s\n", ended(finish(start(inherits_none))));
    pid = start(waits);
    await(ready);
    usleep(2000);
    CHECK(pwrite(fd, "B", 1, 0) == 1);
    CHECK(lock(F_SETLK, F_UNLCK, 0, 10) == 0);
    printf("what came before it was let go: %s\n", ended(finish(pid)));
    CHECK(lock(F_SETLK, F_WRLCK, 0, 10) == 0);
    pid = start(waits_in_vain);
    await(ready);
    int status;
    while (waitpid(pid, &status, WNOHANG) == 0) kill(pid, SIGUSR1), usleep(1000);
    printf("a signal: %s\n", ended(status));
    // Of two that wait for each other, the second is refused.
    pid = start(crosses);
    await(ready);
    int result = lock(F_SETLKW, F_WRLCK, 100, 10), why = errno;
    CHECK(result == 0 || why == EDEADLK);
    CHECK(lock(F_SETLK, F_UNLCK, 0, 0) == 0);
    status = finish(pid);
    printf("one of the two was refused: %d\n", (result == -1) + (WEXITSTATUS(status) == 7));
    // Closing any descriptor of the file lets go of all.
    CHECK(lock(F_SETLK, F_WRLCK, 0, 10) == 0);
    close(open("file", O_RDONLY));
    printf("closed another: %s\n", ended(finish(start(inherits_none))));

    // flock goes with the open file, so a child has it, too.
    CHECK(flock(fd, LOCK_EX) == 0);
    pid = split();
    if (pid == 0) {
        int again = open("file", O_RDWR);
        int first = flock(again, LOCK_EX | LOCK_NB) == -1 && errno == EAGAIN;
        int second = flock(fd, LOCK_UN) == 0 && flock(again, LOCK_SH | LOCK_NB) == 0;
        _exit(first * 10 + second);
    }
    printf("flock: %s\n", ended(finish(pid)));
    // As do the locks of open files.
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(fcntl(fd, F_OFD_SETLK, &whole) == 0);
    pid = split();
    if (pid == 0) {
        int again = open("file", O_RDWR);
        struct flock mine = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int first = fcntl(again, F_OFD_SETLK, &mine) == -1;
        close(fd);
        int second = fcntl(again, F_OFD_SETLK, &mine) == -1;
        _exit(first * 10 + second);
    }
    printf("of open files: %s\n", ended(finish(pid)));
    unlink("file");
    leave_folder(folder);
    return 0;
}
