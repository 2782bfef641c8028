// Limits of a process: prlimit of itself and of others, inherited, kept over exec, and what happens at them.
#include "processes.h"
#include <poll.h>
#include <sys/resource.h>

static int ready[2], go[2];

static void show(const char *what, int resource) {
    struct rlimit limit;
    CHECK(getrlimit(resource, &limit) == 0);
    printf("%s: %lld, %lld\n", what, (long long)limit.rlim_cur, (long long)limit.rlim_max);
}

static int waits_for_change(void) {
    tell(ready);
    await(go);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    return (int)limit.rlim_cur;
}

static int opens(void) {
    CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){20, 30}) == 0);
    int count = 0, last = -1;
    for (int fd; (fd = open("/dev/null", O_RDONLY)) >= 0; count++) last = fd;
    printf("files: %s, the last %d\n", error(errno), last);
    CHECK(dup2(0, 20) == -1);
    printf("dup2: %s\n", error(errno));
    CHECK(fcntl(0, F_DUPFD, 20) == -1);
    printf("F_DUPFD: %s\n", error(errno));
    CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){40, 30}) == -1);
    printf("above the most: %s\n", error(errno));
    CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){30, 30}) == 0);
    int fd = open("/dev/null", O_RDONLY);
    printf("raised: %d\n", fd == last + 1);
    return 0;
}

static volatile int exceeded;
static void note(int number) { (void)number, exceeded++; }

static int writes(void) {
    handle(SIGXFSZ, note, 0);
    CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){1000, 1000}) == 0);
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    char bytes[600] = {0};
    ssize_t first = write(fd, bytes, 600), second = write(fd, bytes, 600), third = write(fd, bytes, 600);
    int why = errno;
    printf("size: %zd %zd %zd, %s, signals %d\n", first, second, third, error(why), exceeded);
    CHECK(ftruncate(fd, 2000) == -1);
    printf("ftruncate: %s, signals %d\n", error(errno), exceeded);
    handle(SIGXFSZ, SIG_DFL, 0);
    fflush(NULL);
    return write(fd, bytes, 1) == 1 ? 1 : 2;
}

static int maps(void) {
    struct rlimit limit = {512 << 20, 512 << 20};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    void *small = mmap(NULL, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *large = mmap(NULL, 600 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("memory: small %d, large %d %s\n", small != MAP_FAILED, large != MAP_FAILED, error(errno));
    return 0;
}

// What private memory that can be written there may be: the heap, mappings, and what mprotect makes of others.
static int stores(void) {
    size_t large = 10 << 20;
    char *reserved = mmap(NULL, large, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(reserved != MAP_FAILED);
    CHECK(setrlimit(RLIMIT_DATA, &(struct rlimit){4 << 20, 4 << 20}) == 0);
    printf("data: heap %s,", sbrk(large) == (void *)-1 ? error(errno) : "grows");
    static const struct { const char *what; int rights, flags; } asked[] = {
        {"private", PROT_READ | PROT_WRITE, MAP_PRIVATE}, {"shared", PROT_READ | PROT_WRITE, MAP_SHARED},
        {"to read", PROT_READ, MAP_PRIVATE}, {"a stack", PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_GROWSDOWN},
    };
    for (size_t n = 0; n < sizeof asked / sizeof *asked; n++) {
        void *at = mmap(NULL, large, asked[n].rights, asked[n].flags | MAP_ANONYMOUS, -1, 0);
        printf(" %s %s,", asked[n].what, at == MAP_FAILED ? error(errno) : "mapped");
    }
    printf(" mprotect %s,", mprotect(reserved, large, PROT_READ | PROT_WRITE) == 0 ? "changes" : error(errno));
    char *small = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(small != MAP_FAILED && mprotect(reserved, 1 << 20, PROT_READ | PROT_WRITE) == 0);
    printf(" mremap %s,", mremap(small, 1 << 20, large, MREMAP_MAYMOVE) == MAP_FAILED ? error(errno) : "grows");
    void *again = mmap(small, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    printf(" in its place %d\n", again == small);
    return 0;
}

static int polls(void) {
    struct pollfd files[20] = {{0}};
    CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){10, 10}) == 0);
    for (int n = 0; n < 20; n++) files[n].fd = -1;
    printf("poll of as many as may be open: %d,", poll(files, 10, 0));
    printf(" of more: %s\n", poll(files, 11, 0) == -1 ? error(errno) : "polled");
    return 0;
}

__attribute__((noinline)) static int deep(int depth) {
    volatile char room[8192];
    room[0] = (char)depth;
    return depth == 0 ? 0 : deep(depth - 1) + room[0] % 2;
}

static int recurses(void) {
    CHECK(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}) == 0);
    CHECK(setrlimit(RLIMIT_STACK, &(struct rlimit){256 << 10, 8 << 20}) == 0);
    int result = deep(10);
    printf("ten deep: %d\n", result >= 0);
    fflush(NULL);
    return deep(100000) & 1;
}

int main(int count, char **arguments) {
    if (count > 1) {
        show("after exec: files", RLIMIT_NOFILE);
        show("after exec: stack", RLIMIT_STACK);
        return 0;
    }
    const char *path = itself(arguments), *folder = enter_folder();
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    pid_t pid = start(waits_for_change);
    await(ready);
    struct rlimit old, limit = {77, 99};
    CHECK(prlimit(pid, RLIMIT_NOFILE, &limit, &old) == 0);
    CHECK(prlimit(pid, RLIMIT_NOFILE, NULL, &limit) == 0);
    printf("the child's: %d, %d\n", (int)limit.rlim_cur, (int)limit.rlim_max);
    tell(go);
    printf("what it sees: %s\n", ended(finish(pid)));
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    printf("this process keeps its own: %d\n", limit.rlim_cur == old.rlim_cur && limit.rlim_max == old.rlim_max);
    CHECK(prlimit(0x3fffffff, RLIMIT_NOFILE, NULL, &old) == -1);
    printf("nobody's: %s\n", error(errno));
    CHECK(prlimit(0, 999, NULL, &old) == -1);
    printf("no such limit: %s\n", error(errno));
    CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){9, 8}) == -1);
    printf("more than the most: %s\n", error(errno));

    printf("%s\n", ended(finish(start(opens))));
    printf("%s\n", ended(finish(start(writes))));
    printf("%s\n", ended(finish(start(maps))));
    printf("%s\n", ended(finish(start(stores))));
    printf("%s\n", ended(finish(start(polls))));
    printf("%s\n", ended(finish(start(recurses))));
    pid = split();
    if (pid == 0) {
        CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){50, 60}) == 0);
        CHECK(setrlimit(RLIMIT_STACK, &(struct rlimit){1 << 20, 4 << 20}) == 0);
        execl(path, "limits", "show", (char *)NULL);
        _exit(1);
    }
    printf("%s\n", ended(finish(pid)));
    unlink("file");
    leave_folder(folder);
    return 0;
}
