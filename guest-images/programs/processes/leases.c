// Leases on files: who may have one, who is told when another opens the file, and how long that one waits.
#include "processes.h"

static int fd, ready[2];
static volatile int told_, code_, number_;

static void note(int number) { told_ = number; }

static void note_more(int number, siginfo_t *info, void *context) {
    (void)context;
    told_ = number, code_ = info->si_code, number_ = info->si_fd;
}

static const char *lease(int of) {
    int kind = fcntl(of, F_GETLEASE);
    return kind == F_RDLCK ? "to read" : kind == F_WRLCK ? "to write" : kind == F_UNLCK ? "none" : error(errno);
}

static const char *take(int of, int kind) { return fcntl(of, F_SETLEASE, kind) == 0 ? lease(of) : error(errno); }

// Until the handler has run.
static void until_told(void) {
    for (int turns = 0; !told_ && turns < 5000; turns++) usleep(1000);
    printf("signal %d", told_);
    if (told_ != SIGIO) printf(", code %d, its descriptor %d", code_, number_ == fd);
    told_ = 0;
}

static int opens_to_read(void) {
    int own = open("file", O_RDONLY);
    char byte = 0;
    CHECK(own >= 0 && pread(own, &byte, 1, 0) == 1);
    return byte;
}

static int opens_to_write(void) {
    int own = open("file", O_WRONLY);
    CHECK(own >= 0 && pwrite(own, "w", 1, 1) == 1);
    return 3;
}

static int opens_at_once(void) {
    return open("file", O_RDONLY | O_NONBLOCK) == -1 && errno == EWOULDBLOCK ? 4 : 5;
}

static int cuts(void) { return truncate("file", 1) == 0 ? 6 : 7; }

static void stop(int number) { (void)number; }

static int gives_up(void) {
    handle(SIGALRM, stop, 0);
    alarm(1);
    return open("file", O_WRONLY) == -1 && errno == EINTR ? 8 : 9;
}

static int opens_a_new_one(void) {
    return open("file", O_RDONLY | O_CREAT | O_EXCL, 0600) == -1 && errno == EEXIST && open("file", O_PATH) >= 0 ? 10 : 11;
}

static int is_another(void) {
    if (setuid(1) != 0) return 12;
    return fcntl(fd, F_SETLEASE, F_RDLCK) == -1 && errno == EACCES ? 12 : 13;
}

int main(void) {
    const char *folder = enter_folder();
    handle(SIGIO, note, 0);
    handle_with_info(SIGRTMIN + 1, note_more, 0);
    fd = open("file", O_RDWR | O_CREAT, 0666);
    CHECK(fd >= 0 && write(fd, "before", 6) == 6 && pipe(ready) == 0);
    printf("without one: %s", lease(fd));
    printf(", given up: %s\n", take(fd, F_UNLCK));
    printf("open to write: %s", take(fd, F_RDLCK));
    printf(", unknown: %s\n", take(fd, 7));
    printf("of a pipe: %s\n", take(ready[0], F_RDLCK));
    printf("to write: %s\n", take(fd, F_WRLCK));
    int other = open("file", O_RDONLY | O_NONBLOCK);
    printf("one's own open: %d, %s, ", other, error(errno));
    until_told();
    printf(", the lease: %s\n", lease(fd));
    printf("given up: %s\n", take(fd, F_UNLCK));

    CHECK(take(fd, F_WRLCK) != NULL);
    pid_t pid = start(opens_to_read);
    printf("opened to read: ");
    until_told();
    printf(", the lease: %s", lease(fd));
    CHECK(pwrite(fd, "A", 1, 0) == 1 && fcntl(fd, F_SETLEASE, F_UNLCK) == 0);
    printf(", reads what was written meanwhile: %s\n", ended(finish(pid)));

    int reader = open("file", O_RDONLY), second = open("file", O_RDONLY);
    printf("open twice: %s\n", take(reader, F_WRLCK));
    close(fd);
    printf("two to read: %s", take(reader, F_RDLCK));
    printf(", %s", take(second, F_RDLCK));
    printf(", and one of them to write: %s\n", take(second, F_WRLCK));
    printf("another reads: %s\n", ended(finish(start(opens_to_read))));
    fd = reader;
    handle(SIGIO, SIG_IGN, 0);
    CHECK(fcntl(reader, F_SETSIG, SIGRTMIN + 1) == 0);
    pid = start(opens_to_write);
    printf("opened to write: ");
    until_told();
    printf(", the lease: %s", lease(reader));
    CHECK(fcntl(reader, F_SETLEASE, F_UNLCK) == 0);
    usleep(2000);
    printf(", one of two is not enough: %d", waitpid(pid, NULL, WNOHANG));
    close(second);
    printf(", closed: %s\n", ended(finish(pid)));

    told_ = 0;
    handle(SIGIO, note, 0);
    printf("again: %s\n", take(reader, F_WRLCK));
    printf("would wait: %s, ", ended(finish(start(opens_at_once))));
    until_told();
    CHECK(fcntl(reader, F_SETLEASE, F_UNLCK) == 0);
    printf("\nnone: %s\n", take(reader, F_WRLCK));
    printf("is not opened: %s\n", ended(finish(start(opens_a_new_one))));
    pid = start(gives_up);
    printf("interrupted: %s", ended(finish(pid)));
    printf(", the lease: %s\n", lease(reader));
    CHECK(fcntl(reader, F_SETLEASE, F_UNLCK) == 0);
    told_ = 0;
    printf("to be cut: %s, ", take(reader, F_RDLCK));
    pid = start(cuts);
    until_told();
    CHECK(fcntl(reader, F_SETLEASE, F_UNLCK) == 0);
    struct stat now;
    printf(", %s", ended(finish(pid)));
    CHECK(fstat(reader, &now) == 0);
    printf(", %d byte\n", (int)now.st_size);
    printf("of another user: %s\n", ended(finish(start(is_another))));
    unlink("file");
    leave_folder(folder);
    return 0;
}
