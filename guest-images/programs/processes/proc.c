// /proc of the program's own processes: texts, links, folders, descriptors opened anew, and every way that leads there.
#include "processes.h"
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/statfs.h>

static char text[1 << 16];

static const char *outcome(int result) { return result < 0 ? error(errno) : "done"; }

// The whole of a file, as small reads give it.
static char *slurp(const char *path) {
    size_t length = 0;
    int fd = open(path, O_RDONLY);
    if (fd < 0) {
        printf("%s: %s\n", path, error(errno));
        return strcpy(text, "");
    }
    for (ssize_t got; (got = read(fd, text + length, 100)) > 0; length += (size_t)got) CHECK(length < sizeof text - 200);
    close(fd);
    text[length] = 0;
    return text;
}

// The number behind a name at the start of a line.
static long field(const char *path, const char *name) {
    char line[64];
    snprintf(line, sizeof line, "\n%s", name);
    const char *at = strstr(slurp(path), line);
    return at ? strtol(at + strlen(line), NULL, 10) : -1;
}

static void texts(char **arguments) {
    printf("comm %s", slurp("/proc/self/comm"));
    slurp("/proc/self/cmdline");
    printf("cmdline is the arguments: %d\n", !strcmp(text, arguments[0]) && !strcmp(text + strlen(text) + 1, ""));
    setenv("LATER", "1", 1);
    printf("environ has what it began with: %d\n", strstr(slurp("/proc/self/environ"), "LATER") == NULL);
    int fd = open("/proc/self/auxv", O_RDONLY);
    unsigned long pair[2], page = 0;
    while (read(fd, pair, sizeof pair) == sizeof pair)
        if (pair[0] == AT_PAGESZ) page = pair[1];
    close(fd);
    printf("auxv: pages of %lu\n", page);
    printf("status: it is %d, of %d, threads %ld\n", field("/proc/self/status", "Pid:") == getpid(),
           field("/proc/self/status", "PPid:") == getppid(), field("/proc/self/status", "Threads:"));
    printf("Uid %d, no tracer %ld\n", field("/proc/self/status", "Uid:") == (long)getuid(), field("/proc/self/status", "TracerPid:"));
    int pid = 0, parent = 0, group = 0, session = 0;
    char state = 0;
    slurp("/proc/self/stat");
    CHECK(sscanf(strrchr(text, ')') + 1, " %c %d %d %d", &state, &parent, &group, &session) == 4);
    CHECK(sscanf(text, "%d", &pid) == 1);
    int fields = 1;
    for (const char *at = text; *at; at++) fields += *at == ' ';
    printf("stat: it is %d, %c, of %d, group %d, session %d, fields %d\n", pid == getpid(), state, parent == getppid(),
           group == getpgrp(), session == getsid(0), fields);
    unsigned long size = 0, resident = 0;
    CHECK(sscanf(slurp("/proc/self/statm"), "%lu %lu", &size, &resident) == 2);
    printf("statm: %d\n", size >= resident && resident > 0);
    printf("limits: %d\n", strstr(slurp("/proc/self/limits"), "Max open files            ") != NULL);
    printf("personality %s", slurp("/proc/self/personality"));
    printf("oom_score_adj %s", slurp("/proc/self/oom_score_adj"));
}

static void memory(void) {
    int local = 5;
    char name[64], rights[8] = "", path[300] = "";
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned long start, end;
    int stack = 0, code = 0, anonymous = 0, ordered = 1, lines = 0;
    unsigned long last = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    char line[600], own[4096];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    CHECK(length > 0);
    own[length] = 0;
    while (fgets(line, sizeof line, maps)) {
        path[0] = 0;
        CHECK(sscanf(line, "%lx-%lx %7s %*s %*s %*s %299s", &start, &end, rights, path) >= 3);
        ordered &= start >= last && end > start;
        last = end;
        lines++;
        stack |= (unsigned long)&local >= start && (unsigned long)&local < end && !strcmp(path, "[stack]") && rights[1] == 'w';
        code |= (unsigned long)&memory >= start && (unsigned long)&memory < end && !strcmp(path, own) && rights[2] == 'x';
        anonymous |= (unsigned long)page >= start && (unsigned long)page < end && rights[3] == 'p';
    }
    fclose(maps);
    printf("maps: stack %d, code %d, a page %d, ordered %d, more than five %d\n", stack, code, anonymous, ordered, lines > 5);
    snprintf(name, sizeof name, "%lx-", (unsigned long)page);
    printf("smaps: sizes %d, rollup %d\n", field("/proc/self/smaps", "Size:") > 0, field("/proc/self/smaps_rollup", "Rss:") > 0);

    // Reading from the start again makes the text again.
    int fd = open("/proc/self/maps", O_RDONLY);
    size_t before = 0, after = 0;
    for (ssize_t got; (got = read(fd, text, sizeof text)) > 0;) before += (size_t)got;
    void *more = mmap((void *)0x10000000, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(more == (void *)0x10000000 && lseek(fd, 0, SEEK_SET) == 0);
    for (ssize_t got; (got = read(fd, text, sizeof text)) > 0;) after += (size_t)got;
    printf("read again, there is more: %d\n", after > before);
    printf("pread inside: %zd, behind the end: %zd\n", pread(fd, text, 4, 2), pread(fd, text, 4, 1 << 20));
    struct stat stat;
    CHECK(fstat(fd, &stat) == 0);
    printf("a regular file %d of size %lld, mode %o\n", S_ISREG(stat.st_mode), (long long)stat.st_size, stat.st_mode & 07777);
    void *mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    printf("mmap is refused: %d\n", mapped == MAP_FAILED);
    printf("write %s\n", outcome((int)write(fd, "x", 1)));
    close(fd);

    // Its own memory.
    fd = open("/proc/self/mem", O_RDWR);
    int copy = 0, other = 6;
    CHECK(fd >= 0);
    printf("mem: read %zd", pread(fd, &copy, sizeof copy, (off_t)(uintptr_t)&local));
    printf(" %d, write %zd", copy, pwrite(fd, &other, sizeof other, (off_t)(uintptr_t)&local));
    printf(" %d, nothing there: %s\n", local, outcome((int)pread(fd, &copy, sizeof copy, 4096)));
    close(fd);
}

static void *named(void *unused) {
    (void)unused;
    prctl(PR_SET_NAME, "a thread");
    printf("thread-self: %s", slurp("/proc/thread-self/comm"));
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", getpid());
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0 && write(fd, "renamed by another", 18) == 18);
    close(fd);
    printf("tasks:");
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *entry; (entry = readdir(tasks));) count += entry->d_name[0] != '.';
    closedir(tasks);
    printf(" %d\n", count);
    return NULL;
}

static void links(void) {
    char target[4096], cwd[4096], path[64];
    struct stat one, other;
    ssize_t length = readlink("/proc/self/cwd", target, sizeof target - 1);
    CHECK(length > 0 && getcwd(cwd, sizeof cwd));
    target[length] = 0;
    printf("cwd: %d\n", !strcmp(target, cwd));
    length = readlink("/proc/self", target, sizeof target - 1);
    target[length] = 0;
    printf("self: %d\n", atoi(target) == getpid());
    printf("root: %zd\n", readlink("/proc/self/root", target, sizeof target));
    printf("cut: %zd\n", readlink("/proc/self/cwd", target, 3));
    printf("no link: %s\n", outcome((int)readlink("/proc/self/maps", target, 9)));
    CHECK(stat("/proc/self/exe", &one) == 0 && lstat("/proc/self/exe", &other) == 0);
    printf("exe: a file %d, a link %d\n", S_ISREG(one.st_mode), S_ISLNK(other.st_mode));
    int fd = open("/proc/self/exe", O_RDONLY);
    CHECK(fd >= 0 && read(fd, target, 4) == 4);
    printf("it begins with %.3s\n", target + 1);
    close(fd);

    // A file opened anew has a position of its own; a removed one is still there.
    CHECK((fd = open("file", O_RDWR | O_CREAT | O_EXCL, 0600)) >= 0 && write(fd, "hello", 5) == 5);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    length = readlink(path, target, sizeof target - 1);
    target[length] = 0;
    printf("fd: %s\n", strrchr(target, '/') + 1);
    CHECK(unlink("file") == 0);
    int again = open(path, O_RDONLY);
    CHECK(again >= 0);
    length = read(again, target, sizeof target);
    printf("opened anew: %.*s, the other is at %lld\n", (int)length, target, (long long)lseek(fd, 0, SEEK_CUR));
    CHECK(fstat(fd, &one) == 0 && stat(path, &other) == 0);
    printf("the same file: %d, chmod %s", one.st_ino == other.st_ino, outcome(chmod(path, 0640)));
    CHECK(fstat(fd, &one) == 0);
    printf(" %o, truncate %s", one.st_mode & 07777, outcome(truncate(path, 2)));
    CHECK(fstat(fd, &one) == 0);
    printf(" %lld, access %s\n", (long long)one.st_size, outcome(access(path, R_OK)));
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    slurp(path);
    printf("fdinfo: pos %ld, flags %d\n", strtol(text + 5, NULL, 10), strstr(text, "\nflags:\t0100002\n") != NULL);
    close(again);
    close(fd);

    // Pipes, by both names.
    int ends[2];
    CHECK(pipe(ends) == 0);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    length = readlink(path, target, sizeof target - 1);
    target[length] = 0;
    CHECK(fstat(ends[0], &one) == 0);
    snprintf(cwd, sizeof cwd, "pipe:[%lu]", one.st_ino);
    printf("a pipe: %d\n", !strcmp(target, cwd));
    CHECK((fd = open(path, O_RDONLY)) >= 0 && write(ends[1], "through", 7) == 7);
    length = read(fd, target, sizeof target);
    printf("%.*s\n", (int)length, target);
    close(fd), close(ends[0]), close(ends[1]);
    printf("closed: %s\n", outcome(open(path, O_RDONLY)));
    CHECK((fd = open("/proc/self/status", O_RDONLY)) >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    again = open(path, O_RDONLY);
    printf("of a text: %d\n", again >= 0 && read(again, target, 5) == 5 && !memcmp(target, "Name:", 5));
    close(fd), close(again);
}

// Every way to a file of /proc is one.
static void ways(void) {
    CHECK(symlink("/proc/self/status", "link") == 0 && symlink("/proc", "proc") == 0 && mkdir("folder", 0700) == 0);
    char name[9] = {0};
    const char *paths[] = {"link", "proc/self/status", "folder/../proc/self/status", "/proc/../proc/self/status",
                           "//proc/./self//status", "/proc/self/cwd/link", "/proc/self/root" "/proc/self/status",
                           "/proc/self/task/../fd/../status"};
    for (size_t n = 0; n < sizeof paths / sizeof *paths; n++) {
        int fd = open(paths[n], O_RDONLY);
        printf("%s: %s\n", paths[n], fd >= 0 && read(fd, name, 5) == 5 ? name : error(errno));
        if (fd >= 0) close(fd);
    }
    int folder = open("/proc/self", O_RDONLY | O_DIRECTORY), fd = openat(folder, "status", O_RDONLY);
    printf("from a folder: %d, up: %d\n", fd >= 0, faccessat(folder, "../cpuinfo", R_OK, 0) == 0);
    close(fd);
    char cwd[4096];
    CHECK(fchdir(folder) == 0 && getcwd(cwd, sizeof cwd));
    printf("as working directory: %d, %s, out: %s\n", atoi(cwd + 6) == getpid(), outcome(access("status", R_OK)),
           outcome(access("../../etc/passwd", R_OK)));
    CHECK(chdir("fd") == 0);
    printf("in there: %s\n", outcome(access("0", F_OK)));
    struct statfs where;
    CHECK(fstatfs(folder, &where) == 0);
    printf("a /proc: %d\n", where.f_type == 0x9fa0);
    close(folder);
}

static void refusals(void) {
    const char *missing[] = {"/proc/self/none", "/proc/self/fd/77", "/proc/self/fd/x", "/proc/self/status/x", "/proc/0", "/proc/01",
                             "/proc/none", "/proc/4194304"};
    struct stat stat_;
    for (size_t n = 0; n < sizeof missing / sizeof *missing; n++)
        printf("%s: %s %s %s\n", missing[n], outcome(open(missing[n], O_RDONLY)), outcome(stat(missing[n], &stat_)),
               outcome(access(missing[n], F_OK)));
    printf("mkdir %s, ", outcome(mkdir("/proc/self/new", 0700)));
    printf("unlink %s, ", outcome(unlink("/proc/self/status")));
    printf("chmod %s, ", outcome(chmod("/proc/self/status", 0777)));
    printf("a new file %s, ", outcome(open("/proc/self/new", O_CREAT | O_WRONLY, 0600)));
    printf("a folder to write %s, ", outcome(open("/proc/self", O_WRONLY)));
    printf("no folder %s\n", outcome(open("/proc/self/status", O_RDONLY | O_DIRECTORY)));
    printf("a link itself %s\n", outcome(open("/proc/self/exe", O_RDONLY | O_NOFOLLOW)));
}

static void others(void) {
    int ready[2];
    char path[64];
    CHECK(pipe(ready) == 0);
    pid_t pid = split();
    if (pid == 0) {
        prctl(PR_SET_NAME, "a (child) x");
        tell(ready);
        for (;;) pause();
    }
    await(ready);
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    printf("a child: %d, of %d, ", field(path, "Pid:") == pid, field(path, "PPid:") == getpid());
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    printf("%s", slurp(path));
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    printf("children: %d\n", atoi(slurp(path)) == pid);
    int seen = 0, self = 0, cpuinfo = 0;
    DIR *all = opendir("/proc");
    for (struct dirent *entry; (entry = readdir(all));) {
        seen |= atoi(entry->d_name) == pid;
        self |= atoi(entry->d_name) == getpid();
        cpuinfo |= !strcmp(entry->d_name, "cpuinfo") && entry->d_type == DT_REG;
    }
    closedir(all);
    printf("listed: %d %d %d\n", seen, self, cpuinfo);
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY);
    CHECK(kill(pid, SIGKILL) == 0);
    siginfo_t info;
    CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
    slurp(path);
    printf("a zombie: %c\n", strrchr(text, ')')[2]);
    CHECK(finish(pid) == 9);
    printf("gone: %s, %s\n", outcome((int)read(fd, text, 10)), outcome(access(path, F_OK)));
    close(fd);
}

static void system_(void) {
    printf("one more: %d", strstr(slurp("/proc/cpuinfo"), "processor\t: 0") != NULL);
    printf(" %d", field("/proc/meminfo", "MemFree:") > 0);
    printf(" %d", strtod(slurp("/proc/uptime"), NULL) > 0);
    printf(" %d", strstr(slurp("/proc/loadavg"), "/") != NULL);
    printf(" %d", !strncmp(slurp("/proc/version"), "Linux version ", 14));
    printf(" %d", !strncmp(slurp("/proc/stat"), "cpu  ", 5));
    printf(" %d", strstr(slurp("/proc/filesystems"), "proc") != NULL);
    printf(" %d", strstr(slurp("/proc/mounts"), " / ") != NULL);
    printf(" %d", strstr(slurp("/proc/self/mountinfo"), " / ") != NULL);
    printf(" %d", !strcmp(slurp("/proc/sys/kernel/ostype"), "Linux\n"));
    printf(" %zu\n", strlen(slurp("/proc/sys/kernel/random/uuid")));
}

/* Which files have a poll operation, so that a set of epoll takes them, and what poll says of each. */
static void polled(void) {
    static const char *const files[] = {
        "/proc/self/mounts", "/proc/self/mountinfo", "/proc/swaps", "/proc/sys/kernel/hostname", "/proc/sys/kernel/pid_max",
        "/proc/version", "/proc/meminfo", "/proc/sys", "/proc/self/status", "/proc/self/maps", "/proc/self",
    };
    int set = epoll_create1(0);
    for (size_t n = 0; n < sizeof files / sizeof *files; n++) {
        int fd = open(files[n], O_RDONLY | O_NONBLOCK);
        struct epoll_event event = {.events = EPOLLPRI | EPOLLERR}, told;
        int added = epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
        printf("%s: %s, flags %o,", files[n], error(added == 0 ? 0 : errno), (unsigned)fcntl(fd, F_GETFL));
        struct pollfd asked = {fd, -1, 0};
        CHECK(poll(&asked, 1, 0) == 1 && epoll_wait(set, &told, 1, 0) == 0);
        char byte;
        ssize_t read_at_all = read(fd, &byte, 1);
        printf(" poll %x, read %zd\n", (unsigned)asked.revents, read_at_all);
        close(fd);
    }
    close(set);
}

/* How a process is set up, and the network that it sees. */
static void settings(void) {
    static const char *const files[] = {
        "coredump_filter", "cpuset", "gid_map", "loginuid", "oom_adj", "sessionid", "setgroups", "timerslack_ns", "uid_map",
    };
    for (size_t n = 0; n < sizeof files / sizeof *files; n++) {
        char path[64], task[64];
        struct stat status;
        snprintf(path, sizeof path, "/proc/self/%s", files[n]);
        snprintf(task, sizeof task, "/proc/thread-self/%s", files[n]);
        CHECK(stat(path, &status) == 0);
        printf("%s: mode %o, %s", files[n], status.st_mode, slurp(path));
        printf("; of the task %d\n", access(task, R_OK));
    }
    CHECK(prctl(PR_SET_TIMERSLACK, 77, 0, 0, 0) == 0);
    printf("another slack: %s", slurp("/proc/self/timerslack_ns"));
    char to[64];
    ssize_t length = readlink("/proc/net", to, sizeof to);
    printf("net: %.*s", (int)(length > 0 ? length : 0), to);
    struct stat first, second;
    printf(" %d", stat("/proc/net/dev", &first) == 0 && stat("/proc/self/net/dev", &second) == 0);
    DIR *root = opendir("/proc");
    int times = 0;
    for (struct dirent *entry; (entry = readdir(root));)
        if (!strcmp(entry->d_name, "net")) times += entry->d_type == DT_LNK ? 1 : 10;
    closedir(root);
    printf(" listed %d\n", times);
}

int main(int count, char **arguments) {
    (void)count;
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    const char *folder = enter_folder();
    texts(arguments);
    memory();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, named, NULL) == 0 && pthread_join(thread, NULL) == 0);
    printf("now: %s", slurp("/proc/self/comm"));
    links();
    ways();
    refusals();
    others();
    system_();
    polled();
    settings();
    CHECK(chdir(folder) == 0 && unlink("link") == 0 && unlink("proc") == 0 && rmdir("folder") == 0);
    leave_folder(folder);
    return 0;
}
