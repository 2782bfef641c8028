// Descriptors over exec: those that are marked are closed, however they were marked, the others stay with their offsets.
#include "processes.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

static int find(int count, char **arguments) {
    for (int n = 1; n < count; n++) {
        int fd = atoi(arguments[n]);
        printf("%s", n == 1 ? "" : " ");
        if (fcntl(fd, F_GETFD) == -1) printf("closed");
        else printf("open:%d", fcntl(fd, F_GETFD));
    }
    char text[6] = {0};
    CHECK(read(10, text, 5) == 5);
    printf(", reads %s\n", text);
    return 0;
}

int main(int count, char **arguments) {
    if (count > 1) return find(count, arguments);
    const char *path = itself(arguments), *folder = enter_folder();
    int fd = open("file", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && write(fd, "0123456789abcdef", 16) == 16 && lseek(fd, 4, SEEK_SET) == 4);
    CHECK(dup2(fd, 10) == 10 && close(fd) == 0);
    int plain[2], marked[2], pair[2];
    // Numbers that the program passes on, in this order.
    CHECK(open("file", O_RDONLY) >= 0 && open("file", O_RDONLY | O_CLOEXEC) >= 0);
    CHECK(pipe(plain) == 0 && pipe2(marked, O_CLOEXEC) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    CHECK(dup3(10, 20, O_CLOEXEC) == 20 && dup2(20, 21) == 21);
    CHECK(fcntl(10, F_DUPFD, 22) == 22 && fcntl(10, F_DUPFD_CLOEXEC, 23) == 23);
    CHECK(dup2(10, 24) == 24 && fcntl(24, F_SETFD, FD_CLOEXEC) == 0);
    CHECK(dup3(10, 25, O_CLOEXEC) == 25 && fcntl(25, F_SETFD, 0) == 0);
    int epoll = epoll_create1(EPOLL_CLOEXEC), event = eventfd(0, EFD_CLOEXEC), event_open = eventfd(0, 0);
    CHECK(dup2(epoll, 26) == 26 && dup3(event, 27, O_CLOEXEC) == 27 && dup2(event_open, 28) == 28);
    char numbers[20][12], *list[24] = {"cloexec"};
    int all[] = {plain[0], plain[1], marked[0], marked[1], pair[0], pair[1], 20, 21, 22, 23, 24, 25, 26, 27, 28};
    int n;
    for (n = 0; n < (int)(sizeof all / sizeof *all); n++) {
        snprintf(numbers[n], sizeof numbers[n], "%d", all[n]);
        list[n + 1] = numbers[n];
    }
    list[n + 1] = NULL;
    pid_t pid = split();
    if (pid == 0) {
        execv(path, list);
        _exit(1);
    }
    printf("%s\n", ended(finish(pid)));
    printf("the offset, too, is of both: %d\n", (int)lseek(10, 0, SEEK_CUR));
    pid = split();
    if (pid == 0) {
        CHECK(fcntl(22, F_SETFD, FD_CLOEXEC) == 0 && fcntl(23, F_SETFD, 0) == 0);
        execv(path, list);
        _exit(1);
    }
    printf("%s\n", ended(finish(pid)));
    printf("the parent's marks: %d %d\n", fcntl(22, F_GETFD), fcntl(23, F_GETFD));
    // exec that fails closes nothing.
    CHECK(execl("/there/is/no/such/program", "none", (char *)NULL) == -1);
    printf("after a failure: %d %d\n", fcntl(20, F_GETFD), fcntl(marked[0], F_GETFD));
    // close_range marks or closes many at once.
    CHECK(lseek(10, 1, SEEK_SET) == 1);
    pid = split();
    if (pid == 0) {
        CHECK(syscall(SYS_close_range, 20, 24, 4) == 0 && syscall(SYS_close_range, 26, ~0u, 0) == 0);
        execv(path, list);
        _exit(1);
    }
    printf("%s\n", ended(finish(pid)));
    // A pipe's reader sees the end when exec closes the last end to write.
    int held[2];
    CHECK(pipe2(held, O_CLOEXEC) == 0 && pipe2(marked, 0) == 0);
    pid = split();
    if (pid == 0) {
        close(marked[1]);
        CHECK(dup2(marked[0], 0) == 0);
        execl("/bin/sh", "sh", "-c", "read line", (char *)NULL);
        _exit(1);
    }
    close(held[1]);
    char byte;
    printf("after exec: the end %d\n", read(held[0], &byte, 1) == 0);
    CHECK(write(marked[1], "\n", 1) == 1);
    finish(pid);
    unlink("file");
    leave_folder(folder);
    return 0;
}
