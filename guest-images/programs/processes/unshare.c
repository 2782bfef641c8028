// unshare: a thread gets a descriptor table, a directory and a umask of its own; and preadv2 and pwritev2 beside it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int shared;

static void *own(void *unused) {
    (void)unused;
    printf("unshare %d\n", unshare(CLONE_FILES | CLONE_FS));
    close(shared);
    umask(077);
    printf("chdir %d\n", chdir("/"));
    int result = (int)lseek(shared, 0, SEEK_CUR);
    printf("closed here %d %d\n", result, errno == EBADF);
    return NULL;
}

int main(void) {
    char name[] = "unshare-XXXXXX", bytes[9] = {0};
    shared = mkstemp(name);
    umask(022);
    struct iovec parts[] = {{"abcd", 4}, {"efgh", 4}};
    printf("write %zd %zd\n", pwritev2(shared, parts, 2, 0, 0), pwritev2(shared, parts, 1, -1, 0));
    printf("at %ld\n", (long)lseek(shared, 0, SEEK_CUR));
    struct iovec into[] = {{bytes, 3}, {bytes + 3, 5}};
    printf("read %zd", preadv2(shared, into, 2, 2, RWF_HIPRI));
    printf(" %s\n", bytes);
    pthread_t thread;
    pthread_create(&thread, NULL, own, NULL);
    pthread_join(thread, NULL);
    printf("open here %d, umask %o, file %d\n", (int)lseek(shared, 1, SEEK_SET), umask(0), access(name, F_OK));
    int nothing = unshare(0), unknown = unshare(0x40);
    printf("nothing %d, unknown %d %d\n", nothing, unknown, errno == EINVAL);
    unlink(name);
    return 0;
}
