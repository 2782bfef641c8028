// What calls refuse, and how: wrong ways of a pipe, structures of other sizes, descriptors and directories that are not for that,
// other users' tasks.
#include "processes.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <netinet/in.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#define SYS_clone3 435
#define SYS_close_range 436
#define SYS_openat2 437
#define SYS_pidfd_getfd 438
#endif
enum { PAGE = 4096, UNSHARE = 2, NEW_MOUNTS = 0x20000, PIDFD = 0x1000 };

static const char *said(long result) { return result == -1 ? error(errno) : "done"; }

// With a child there, so that a call may wait only where something can come.
static void pipes(void) {
    int end[2], hold[2];
    char byte = 0;
    CHECK(pipe(end) == 0 && pipe(hold) == 0);
    pid_t pid = split();
    if (pid == 0) {
        await(hold);
        _exit(0);
    }
    printf("to the end for reading: %s\n", said(write(end[0], &byte, 1)));
    printf("from the end for writing: %s\n", said(read(end[1], &byte, 1)));
    tell(hold);
    finish(pid);
}

static const char *cloned(uint64_t flags, int *pidfd, size_t size) {
    static uint64_t arguments[16];
    arguments[0] = flags, arguments[1] = (uintptr_t)pidfd, arguments[4] = SIGCHLD;
    long pid = syscall(SYS_clone3, arguments, size);
    if (pid == 0) _exit(0);
    if (pid > 0) finish((pid_t)pid);
    arguments[11] = 1;
    return said(pid);
}

static void clones(void) {
    printf("clone3: larger, and zero %s", cloned(0, NULL, 96));
    printf(", and not %s", cloned(0, NULL, 96));
    printf(", smaller %s, huge %s\n", cloned(0, NULL, 63), cloned(0, NULL, PAGE + 8));
    printf("a pidfd nowhere %s, mounts with one root %s\n", cloned(PIDFD, (int *)1, 88), cloned(CLONE_FS | NEW_MOUNTS, NULL, 88));
}

static void opens(void) {
    uint64_t how[4] = {O_RDONLY, 0, 0, 0};
    printf("openat2: larger %s", said(syscall(SYS_openat2, AT_FDCWD, "/", how, sizeof how)));
    how[3] = 1;
    printf(", with more in it %s", said(syscall(SYS_openat2, AT_FDCWD, "/", how, sizeof how)));
    how[1] = 0600;
    printf(", rights of nothing new %s\n", said(syscall(SYS_openat2, AT_FDCWD, "/", how, 24)));
}

static void descriptors(void) {
    int end[2];
    CHECK(pipe(end) == 0);
    pid_t pid = split();
    if (pid == 0) {
        for (;;) pause();
    }
    int fd = (int)syscall(SYS_pidfd_open, pid, O_NONBLOCK);
    CHECK(fd >= 0);
    siginfo_t info;
    printf("a pidfd that does not wait: %s\n", said(waitid((idtype_t)3, (id_t)fd, &info, WEXITED)));
    int theirs = (int)syscall(SYS_pidfd_getfd, fd, end[1], 0);
    char byte = 'x';
    CHECK(theirs >= 0 && write(theirs, &byte, 1) == 1 && read(end[0], &byte, 1) == 1);
    printf("theirs: %c, closed at exec %d", byte, fcntl(theirs, F_GETFD));
    printf(", none %s", said(syscall(SYS_pidfd_getfd, fd, 1000, 0)));
    printf(", flags %s", said(syscall(SYS_pidfd_getfd, fd, end[1], 1)));
    printf(", no pidfd %s\n", said(syscall(SYS_pidfd_getfd, end[0], end[1], 0)));
    kill(pid, SIGKILL);
    finish(pid);
}

static int closes(void *end) {
    return syscall(SYS_close_range, *(int *)end, *(int *)end, UNSHARE) == 0 ? 0 : errno;
}

static void tables(void) {
    static char stack[1 << 16];
    int end[2], status;
    CHECK(pipe(end) == 0);
    pid_t pid = clone(closes, stack + sizeof stack, CLONE_FILES | SIGCHLD, end);
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    printf("closed in a table of its own: %s, here %d\n", ended(status), fcntl(end[0], F_GETFD));
}

static void maps(void) {
    int zero = open("/dev/zero", O_RDONLY), fd = open("file", O_WRONLY | O_CREAT, 0600);
    char *map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, zero, 0);
    CHECK(map != MAP_FAILED && fd >= 0 && write(fd, "text", 4) == 4);
    printf("stores to what is open for reading: %s\n", said(mprotect(map, PAGE, PROT_READ | PROT_WRITE)));
    printf("a file for writing: %s\n", said((long)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0)));
    munmap(map, PAGE), close(zero), close(fd), unlink("file");
    // The first place is a hole now.
    int *hole = (int *)map, word = 0;
    printf("futexes in a hole: %s", said(syscall(SYS_futex, hole, FUTEX_WAKE, 1, NULL, NULL, 0)));
    printf(", of its own %s", said(syscall(SYS_futex, hole, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0)));
    printf(", to there %s", said(syscall(SYS_futex, &word, FUTEX_CMP_REQUEUE, 1, 1L, hole, 0)));
    printf(", less than none %s\n", said(syscall(SYS_futex, &word, FUTEX_CMP_REQUEUE, 1, -1L, &word, 0)));
}

static void users(void) {
    CHECK(mkdir("closed", 0700) == 0 && chmod("closed", 0444) == 0);
    pid_t pid = split();
    if (pid == 0) {
        struct sched_param none = {0};
        int own = geteuid() != 0, parent = getppid();
        CHECK(own || (setgid(65534) == 0 && setuid(65534) == 0));
        printf("a closed folder: %s, as a root %s\n", said(chdir("closed")), said(chroot("closed")));
        // Only root can have become another user; for others it is as if it had been refused.
        printf("another user's: %s", own ? "EPERM" : said(sched_setparam(parent, &none)));
        printf(", %s\n", own ? "EPERM" : said(setpriority(PRIO_PROCESS, (id_t)parent, 5)));
        exit(0);
    }
    printf("%s\n", ended(finish(pid)));
    rmdir("closed");
}

static volatile int got;
static void note(int number) { got = number; }

static void *answers(void *id) {
    *(volatile pid_t *)id = (pid_t)syscall(SYS_gettid);
    while (!got) sched_yield();
    return NULL;
}

static void threads(void) {
    pthread_t thread;
    volatile pid_t id = 0;
    handle(SIGUSR1, note, 0);
    CHECK(pthread_create(&thread, NULL, answers, (void *)&id) == 0);
    while (!id) sched_yield();
    printf("a process by its thread: %s", said(kill(id, SIGUSR1)));
    pthread_join(thread, NULL);
    printf(", signal %d\n", got);
}

static void others(void) {
    char bytes[8];
    struct timespec moment = {0, 1};
    printf("random, flags: %s, %s\n", said(syscall(SYS_getrandom, bytes, 8, 8)), said(syscall(SYS_getrandom, bytes, 8, 6)));
    long slept = syscall(SYS_clock_nanosleep, CLOCK_THREAD_CPUTIME_ID, 0, &moment, NULL);
    printf("sleep by the own processor time: %d\n", slept == -1 && errno == EOPNOTSUPP);
    int fd = socket(AF_INET, SOCK_STREAM, 0), value = 0;
    socklen_t size = sizeof value;
    CHECK(fd >= 0);
    printf("no such level: %d\n", getsockopt(fd, 500, 1, &value, &size) == -1 && errno == EOPNOTSUPP);
    printf("%d\n", setsockopt(fd, 500, 1, &value, size) == -1 && errno == ENOPROTOOPT);
    close(fd);
}

// What calls for protection keys do where there is no key: on any processor before one was allocated.
static void keys(void) {
    char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    printf("a key with flags: %s\n", said(syscall(SYS_pkey_alloc, 1, 0)));
    printf("a key with other rights: %s\n", said(syscall(SYS_pkey_alloc, 0, 4)));
    printf("freeing none: %s\n", said(syscall(SYS_pkey_free, 7)));
    printf("protecting with one that is not there: %s\n", said(syscall(SYS_pkey_mprotect, page, PAGE, PROT_READ, 7)));
    printf("protecting without: %s\n", said(syscall(SYS_pkey_mprotect, page, PAGE, PROT_READ, -1)));
    printf("writing there: %s\n", said(read(open("/dev/zero", O_RDONLY), page, 1)));
}

int main(void) {
    const char *folder = enter_folder();
    CHECK(chmod(folder, 0755) == 0);
    pipes();
    clones();
    opens();
    descriptors();
    tables();
    maps();
    users();
    threads();
    others();
    keys();
    leave_folder(folder);
    return 0;
}
