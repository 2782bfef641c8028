// Corners of calls that are easily served wrong: ranges with holes, mappings of files that change, frames that cannot be
// written, buffers that end too early, transfers without the cache.
#include "processes.h"
#include <pthread.h>
#include <limits.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <setjmp.h>

enum { PAGE = 4096 };

static sigjmp_buf back;
static volatile int number, code;
static void jump(int signal, siginfo_t *info, void *context) {
    (void)context, number = signal, code = info->si_code;
    siglongjmp(back, 1);
}

// What a read of a byte comes to.
static const char *touched(volatile char *at) {
    static char text[40];
    if (sigsetjmp(back, 1)) snprintf(text, sizeof text, "signal %d, code %d", number, code);
    else snprintf(text, sizeof text, "%d", *at);
    return text;
}

static char *pages(int count) {
    char *start = mmap(NULL, (size_t)count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED);
    memset(start, 7, (size_t)count * PAGE);
    return start;
}

static void holes(void) {
    char *start = pages(5);
    munmap(start + 2 * PAGE, PAGE);
    CHECK(madvise(start, 5 * PAGE, MADV_DONTNEED) == -1);
    printf("advice over a hole: %s, %d %d\n", error(errno), start[0], start[4 * PAGE]);
    CHECK(mprotect(start, 5 * PAGE, PROT_NONE) == -1);
    printf("rights over a hole: %s, before it %s", error(errno), touched(start));
    printf(", behind it %s\n", touched(start + 4 * PAGE));
    char *locked = pages(1);
    CHECK(mlock(locked, PAGE) == 0 && madvise(locked, PAGE, MADV_DONTNEED) == -1);
    printf("what is locked: %s, %d\n", error(errno), locked[0]);
    CHECK(mprotect(locked, PAGE, PROT_READ | PROT_GROWSDOWN) == -1);
    printf("growing down: %s\n", error(errno));
}

static void forks(void) {
    char *start = pages(2);
    CHECK(madvise(start, PAGE, MADV_DONTFORK) == 0);
    pid_t pid = split();
    if (pid == 0) {
        printf("the child has not: %s, has: %s\n", touched(start), start[PAGE] == 7 ? "yes" : "no");
        exit(17);
    }
    printf("%s\n", ended(finish(pid)));
}

static void files(void) {
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, "first", 5) == 5);
    char *map = mmap(NULL, 3 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    printf("%s, behind its end: %s\n", map, touched(map + PAGE));
    CHECK(pwrite(fd, "later", 5, 0) == 5 && pwrite(fd, "grown", 5, PAGE + 100) == 5);
    printf("%s, %s, still behind: %s\n", map, map + PAGE + 100, touched(map + 2 * PAGE));
    char *private = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(private != MAP_FAILED);
    private[0] = 'L';
    printf("%s, %s\n", private, map);
    CHECK(ftruncate(fd, 10) == 0);
    printf("cut: %s\n", touched(map + PAGE));
    munmap(map, 3 * PAGE), munmap(private, 2 * PAGE);
    close(fd);
}

static void buffers(void) {
    char *two = pages(2);
    munmap(two + PAGE, PAGE);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0x1234567890};
    int set = epoll_create1(0), fd = eventfd(1, 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    struct epoll_event *room = (struct epoll_event *)(two + PAGE) - 1;
    printf("room for one of many: %d, ", epoll_wait(set, room, 100, 0));
    printf("%d\n", room->data.u64 == 0x1234567890);
    CHECK(epoll_wait(set, (struct epoll_event *)(two + PAGE), 1, 0) == -1);
    printf("for none: %s\n", error(errno));
    close(set), close(fd);
}

static void directly(void) {
    int fd = open("direct", O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (fd < 0) {
        printf("not through the cache: %s\n", error(errno));
        return;
    }
    char *from = pages(1), *to = pages(1);
    memset(from, 9, PAGE);
    printf("not through the cache: %d, ", (int)pwrite(fd, from, PAGE, 0));
    printf("%d", (int)pread(fd, to, PAGE, 0));
    printf(", %d\n", to[100]);
    close(fd), unlink("direct");
}

static void stand_again(int signal, siginfo_t *info, void *context) {
    ucontext_t *at = context;
    (void)info, number = signal;
    at->uc_mcontext.gregs[REG_RSP] = at->uc_mcontext.gregs[REG_R12];
}
static void note(int signal) { number = signal; }

// A handler whose frame cannot be written: SIGSEGV instead, on the stack that its handler has.
static void frames(void) {
    static char room[65536];
    stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    struct sigaction before;
    CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGSEGV, NULL, &before) == 0);
    handle_with_info(SIGSEGV, stand_again, SA_ONSTACK);
    handle(SIGUSR1, note, 0);
    long result, pid = getpid();
    __asm__ volatile("mov %%rsp, %%r12\n\tmov $64, %%rsp\n\tsyscall\n\tmov %%r12, %%rsp"
                     : "=a"(result)
                     : "a"(SYS_kill), "D"(pid), "S"(SIGUSR1)
                     : "rcx", "r11", "r12", "memory");
    printf("a frame that cannot be written: signal %d\n", number);
    sigaction(SIGSEGV, &before, NULL);
}

static volatile unsigned control;
static void reads_control(int signal) {
    (void)signal;
    unsigned now;
    __asm__ volatile("stmxcsr %0" : "=m"(now));
    control = now;
}

static void vectors(void) {
    handle(SIGUSR2, reads_control, 0);
    unsigned rounds = 0x7f80, before;
    __asm__ volatile("ldmxcsr %0" : : "m"(rounds));
    raise(SIGUSR2);
    __asm__ volatile("stmxcsr %0" : "=m"(before));
    unsigned usual = 0x1f80;
    __asm__ volatile("ldmxcsr %0" : : "m"(usual));
    printf("in the handler %x, then %x\n", control, before);
}

static pthread_mutex_t mutex;
static int shared_number;
static void *adds(void *argument) {
    for (int n = 0; n < 1000; n++) {
        pthread_mutex_lock(&mutex);
        shared_number++;
        pthread_mutex_unlock(&mutex);
    }
    return argument;
}

static void processes(void) {
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    printf("no new privileges: %d, ", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    CHECK(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0);
    printf("kept capabilities: %d, ", prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0));
    int stamps = 0;
    CHECK(prctl(PR_GET_TSC, &stamps, 0, 0, 0) == 0 && prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0) == 0);
    printf("time stamps: %d, personality %x\n", stamps, (unsigned)personality(0xffffffff));
    pthread_mutexattr_t attributes;
    CHECK(pthread_mutexattr_init(&attributes) == 0);
    CHECK(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT) == 0 && pthread_mutex_init(&mutex, &attributes) == 0);
    pthread_t threads[3];
    for (int n = 0; n < 3; n++) CHECK(pthread_create(&threads[n], NULL, adds, NULL) == 0);
    for (int n = 0; n < 3; n++) pthread_join(threads[n], NULL);
    printf("a mutex with inheritance: %d\n", shared_number);
    gid_t groups[64];
    printf("groups: %d\n", getgroups(64, groups) == getgroups(0, NULL));
}

// Of a working directory that was removed, only the name is missing.
static void removed(void) {
    char path[4096];
    int here = open(".", O_RDONLY);
    CHECK(mkdir("gone", 0700) == 0 && chdir("gone") == 0 && rmdir("../gone") == 0);
    printf("removed: getcwd %s,", syscall(SYS_getcwd, path, sizeof path) < 0 ? error(errno) : path);
    printf(" open %s,", open("file", O_CREAT | O_RDWR, 0600) < 0 ? error(errno) : "opens");
    printf(" its parent %d,", access("..", F_OK));
    CHECK(fchdir(here) == 0 && mkdir("here (deleted)", 0700) == 0 && chdir("here (deleted)") == 0);
    printf(" one called so %d\n", syscall(SYS_getcwd, path, sizeof path) > 0 && strstr(path, "/here (deleted)"));
    CHECK(fchdir(here) == 0 && rmdir("here (deleted)") == 0 && close(here) == 0);
}

static const char *gives(long result) {
    static char text[40];
    if (result < 0) return error(errno);
    snprintf(text, sizeof text, "%ld", result);
    return text;
}

// What is looked at before what.
static void first_things(void) {
    char byte = 0, *volatile nowhere = (char *)8;
    volatile size_t most = SSIZE_MAX;
    int null = open("/dev/null", O_RDWR), read_only = open("/dev/null", O_RDONLY), set = epoll_create1(0), ends[2];
    int appends = open("file", O_CREAT | O_RDWR | O_APPEND, 0600);
    CHECK(pipe(ends) == 0);
    printf("/dev/null: read %s,", gives(read(null, nowhere, 10)));
    printf(" write %s,", gives(write(null, nowhere, 10)));
    printf(" write to one that is read %s\n", gives(write(read_only, nowhere, 10)));
    printf("readlink of no bytes: %s,", gives(syscall(SYS_readlink, nowhere, &byte, 0)));
    printf(" %s\n", gives(syscall(SYS_readlinkat, AT_FDCWD, nowhere, &byte, -1)));
    printf("epoll_wait for too many: %s\n", gives(syscall(SYS_epoll_wait, set, nowhere, INT_MAX / 12 + 1, 0)));
    printf("sendfile to what is appended to: %s\n", gives(sendfile(appends, null, NULL, 10)));
    printf("no bytes: splice %s,", gives(splice(-1, NULL, -1, NULL, 0, 0)));
    printf(" tee %s,", gives(tee(-1, -1, 0, 0)));
    printf(" vmsplice %s\n", gives(vmsplice(ends[1], &(struct iovec){&byte, 0}, 1, 0)));
    struct iovec beyond[] = {{&byte, 1}, {&byte, SSIZE_MAX}};
    printf("beyond all memory: writev %s,", gives(writev(appends, beyond, 2)));
    printf(" read %s\n", gives(read(appends, &byte, most)));
    printf("ftruncate to less than nothing: %s\n", gives(ftruncate(-1, -1)));
    fd_set files;
    FD_ZERO(&files);
    FD_SET(500, &files);
    printf("select beyond all files: %s,", gives(select(501, &files, NULL, NULL, &(struct timeval){0, 0})));
    printf(" of less than none: %s\n", gives(select(-1, &files, NULL, NULL, NULL)));
    printf("rmdir: . %s,", gives(rmdir(".")));
    printf(" / %s,", gives(rmdir("/")));
    printf(" /proc %s\n", gives(rmdir("/proc")));
    CHECK(close(null) + close(read_only) + close(set) + close(appends) + close(ends[0]) + close(ends[1]) == 0);
}

int main(void) {
    const char *folder = enter_folder();
    handle_with_info(SIGSEGV, jump, 0);
    handle_with_info(SIGBUS, jump, 0);
    holes();
    forks();
    files();
    buffers();
    directly();
    frames();
    vectors();
    processes();
    removed();
    first_things();
    unlink("file");
    leave_folder(folder);
    return 0;
}
