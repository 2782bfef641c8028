// shm_open: shared memory with a name, between processes that have only the name in common.
#include "processes.h"

static char name[64];

static int *map(int flags, size_t size) {
    int fd = shm_open(name, flags, 0600);
    CHECK(fd >= 0);
    if (flags & O_CREAT) CHECK(ftruncate(fd, (off_t)size) == 0);
    int *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED && close(fd) == 0);
    return memory;
}

static int other(void) {
    int *memory = map(O_RDWR, 40000), sum = 0;
    for (int n = 0; n < 10000; n++) sum += memory[n];
    memory[5000] = sum;
    return 4;
}

int main(int count, char **arguments) {
    if (count > 1) {
        snprintf(name, sizeof name, "%s", arguments[1]);
        return other() + 1;
    }
    const char *path = itself(arguments), *folder = enter_folder();
    snprintf(name, sizeof name, "/gretel-%s", strrchr(folder, '-') + 1);
    CHECK(shm_open(name, O_RDWR, 0600) == -1);
    printf("not there: %s\n", error(errno));
    int *memory = map(O_RDWR | O_CREAT | O_EXCL, 40000);
    CHECK(shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600) == -1);
    printf("there: %s\n", error(errno));
    for (int n = 0; n < 10000; n++) memory[n] = n;
    printf("a child: %s", ended(finish(start(other))));
    printf(", sum %d\n", memory[5000]);
    memory[5000] = 0;
    pid_t pid = split();
    if (pid == 0) {
        execl(path, "shm", name, (char *)NULL);
        _exit(1);
    }
    printf("another program: %s", ended(finish(pid)));
    printf(", sum %d\n", memory[5000]);
    CHECK(shm_unlink(name) == 0 && shm_unlink(name) == -1);
    printf("gone: %s\n", error(errno));
    memory[1] = 17;
    printf("but still memory: %d\n", memory[1]);
    leave_folder(folder);
    return 0;
}
