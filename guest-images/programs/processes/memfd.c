// memfd_create: files without a name, seals, shared with children, run as a program.
#include "processes.h"
#include <sys/sendfile.h>

extern char **environ;

#ifndef MFD_ALLOW_SEALING
#define MFD_CLOEXEC 1
#define MFD_ALLOW_SEALING 2
#endif

int main(int count, char **arguments) {
    if (count > 1) {
        printf("started from memory with %s\n", arguments[1]);
        return 28;
    }
    const char *path = itself(arguments);
    int fd = (int)syscall(SYS_memfd_create, "named", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, 8192) == 0);
    char link[64], name[100] = {0};
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    CHECK(readlink(link, name, sizeof name - 1) > 0);
    printf("%s\n", name);
    char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    pid_t pid = split();
    if (pid == 0) {
        strcpy(map + 5000, "by the child's memory");
        CHECK(pwrite(fd, "by its write", 12, 100) == 12);
        _exit(0);
    }
    finish(pid);
    printf("%s, %s\n", map + 5000, map + 100);
    struct stat data;
    CHECK(fstat(fd, &data) == 0);
    printf("size %d, links %d\n", (int)data.st_size, (int)data.st_nlink);

    printf("seals %x\n", (unsigned)fcntl(fd, F_GET_SEALS));
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    CHECK(ftruncate(fd, 4096) == -1);
    printf("sealed: %s\n", error(errno));
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == -1);
    printf("while it is mapped: %s\n", error(errno));
    CHECK(munmap(map, 8192) == 0);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SEAL) == 0);
    CHECK(write(fd, "x", 1) == -1);
    printf("a write: %s\n", error(errno));
    CHECK(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    printf("a mapping to write: %s\n", error(errno));
    map = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(map != MAP_FAILED);
    printf("to read: %s\n", map + 5000);
    close(fd);
    fd = (int)syscall(SYS_memfd_create, "plain", 0);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == -1);
    printf("without leave: %s\n", error(errno));
    close(fd);

    // This program once more, from memory.
    int from = open(path, O_RDONLY | O_CLOEXEC);
    fd = (int)syscall(SYS_memfd_create, "program", MFD_CLOEXEC);
    CHECK(from >= 0 && fd >= 0 && fstat(from, &data) == 0);
    for (off_t done = 0; done < data.st_size;) {
        ssize_t some = sendfile(fd, from, NULL, (size_t)(data.st_size - done));
        CHECK(some > 0);
        done += some;
    }
    close(from);
    pid = split();
    if (pid == 0) {
        fexecve(fd, (char *[]){"program", "an argument", NULL}, environ);
        _exit(1);
    }
    printf("%s\n", ended(finish(pid)));
    return 0;
}
