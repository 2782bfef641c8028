// Named pipes: who waits for whom at their opening, what fails, what a signal does, both ends in one, and one that has gone.
#include "processes.h"
#include <poll.h>

static int ready[2];
static volatile int interrupted;
static void note(int number) { (void)number, interrupted++; }

static const char *opened(int flags) {
    int fd = open("fifo", flags);
    if (fd < 0) return error(errno);
    int status = fcntl(fd, F_GETFL);
    close(fd);
    return status & O_NONBLOCK ? "opened, does not wait" : "opened";
}

static int reads(void) {
    tell(ready);
    int fd = open("fifo", O_RDONLY);
    CHECK(fd >= 0 && !(fcntl(fd, F_GETFL) & O_NONBLOCK));
    char text[10];
    int total = 0;
    for (ssize_t got; (got = read(fd, text, sizeof text)) > 0;) total += (int)got;
    return total;
}

static int writes(void) {
    tell(ready);
    int fd = open("fifo", O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0 && write(fd, "12345", 5) == 5);
    return 11;
}

static int waits_in_vain(void) {
    handle(SIGUSR1, note, 0);
    tell(ready);
    CHECK(open("fifo", O_RDONLY) == -1);
    return errno == EINTR && interrupted ? 12 : 13;
}

static int begins_again(void) {
    handle(SIGUSR1, note, SA_RESTART);
    tell(ready);
    int fd = open("fifo", O_WRONLY);
    return fd >= 0 && write(fd, "!", 1) == 1 ? 14 : 15;
}

static int only_opens(void) {
    tell(ready);
    close(open("fifo", O_WRONLY));
    return 16;
}

static void a_reader_and_a_writer(void) {
    pid_t reader = start(reads), writer;
    await(ready);
    writer = start(writes);
    await(ready);
    int status = finish(writer);
    printf("the writer: %s, the reader: %s\n", ended(status), ended(finish(reader)));
    // The other way round, and two who write.
    writer = start(writes);
    await(ready);
    pid_t second = start(writes);
    await(ready);
    usleep(3000);
    reader = start(reads);
    await(ready);
    status = finish(writer);
    printf("two writers: %s, %s", ended(status), ended(finish(second)));
    printf(", the reader: %s\n", ended(finish(reader)));
}

static void without_waiting(void) {
    printf("to write, without a reader: %s\n", opened(O_WRONLY | O_NONBLOCK));
    printf("to read: %s\n", opened(O_RDONLY | O_NONBLOCK));
    printf("both: %s, %s\n", opened(O_RDWR), opened(O_RDWR | O_NONBLOCK));
    printf("a new one: %s\n", opened(O_RDONLY | O_CREAT | O_EXCL));
    printf("a folder: %s\n", opened(O_RDONLY | O_DIRECTORY));
    int fd = open("fifo", O_RDONLY | O_NONBLOCK);
    char byte;
    printf("nobody has written: %zd, ", read(fd, &byte, 1));
    int to = open("fifo", O_WRONLY);
    CHECK(read(fd, &byte, 1) == -1);
    printf("%s, ", error(errno));
    close(to);
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    CHECK(poll(&polled, 1, 0) == 1);
    printf("hung up %d\n", !!(polled.revents & POLLHUP));
    close(fd);
    printf("truncated: %d, ", truncate("fifo", 0));
    printf("%s\n", error(errno));
}

int main(void) {
    const char *folder = enter_folder();
    CHECK(pipe(ready) == 0 && mkfifo("fifo", 0600) == 0);
    without_waiting();
    a_reader_and_a_writer();
    pid_t pid = start(waits_in_vain);
    await(ready);
    int status;
    while (waitpid(pid, &status, WNOHANG) == 0) kill(pid, SIGUSR1), usleep(1000);
    printf("a signal: %s\n", ended(status));
    pid = start(begins_again);
    await(ready);
    for (int n = 0; n < 3; n++) usleep(1000), kill(pid, SIGUSR1);
    int fd = open("fifo", O_RDONLY);
    char byte;
    CHECK(fd >= 0 && read(fd, &byte, 1) == 1);
    printf("begun again: %c %s\n", byte, ended(finish(pid)));
    close(fd);
    // One who has come and gone has opened it, too.
    pid = start(only_opens);
    await(ready);
    fd = open("fifo", O_RDONLY);
    CHECK(fd >= 0);
    printf("written nothing: %s, %zd\n", ended(finish(pid)), read(fd, &byte, 1));
    close(fd);
    // One that nobody will open any more.
    pid = start(waits_in_vain);
    await(ready);
    usleep(2000);
    kill(pid, SIGKILL);
    printf("killed: %s\n", ended(finish(pid)));
    printf("then, to write: %s\n", opened(O_WRONLY | O_NONBLOCK));
    unlink("fifo");
    leave_folder(folder);
    return 0;
}
