// fork and wait: statuses of every kind, who waits for whom, what a child inherits, many children at once.
#include "processes.h"
#include <sys/resource.h>

static void statuses(void) {
    static const int codes[] = {0, 1, 7, 127, 128, 255, 256, -1};
    for (size_t n = 0; n < sizeof codes / sizeof *codes; n++) {
        pid_t pid = split();
        if (pid == 0) _exit(codes[n]);
        printf("_exit(%d): %s\n", codes[n], ended(finish(pid)));
    }
    static const int signals[] = {SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGALRM, SIGTERM, SIGUSR1, SIGUSR2};
    for (size_t n = 0; n < sizeof signals / sizeof *signals; n++) {
        pid_t pid = split();
        if (pid == 0) {
            handle(SIGUSR1, SIG_DFL, 0);
            if (signals[n] != SIGKILL) handle(signals[n], SIG_DFL, 0);
            raise(signals[n]);
            _exit(50);
        }
        printf("raise(%d): %s\n", signals[n], ended(finish(pid)));
    }
}

static void bye(void) { printf("exit handler\n"); }

static int with_handler(void) {
    atexit(bye);
    printf("buffered by the child\n");
    return 3;
}

static int parent_is(pid_t pid) { return getppid() == pid ? 10 : 11; }

static void relations(void) {
    pid_t self = getpid(), pid = split();
    if (pid == 0) exit(parent_is(self));
    printf("the child's parent: %s\n", ended(finish(pid)));
    // A grandchild is not the grandparent's.
    int pipe_[2];
    CHECK(pipe(pipe_) == 0);
    pid = split();
    if (pid == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) _exit(4);
        CHECK(write(pipe_[1], &grandchild, sizeof grandchild) == sizeof grandchild);
        _exit(20 + WEXITSTATUS(finish(grandchild)));
    }
    pid_t grandchild;
    CHECK(read(pipe_[0], &grandchild, sizeof grandchild) == sizeof grandchild);
    CHECK(waitpid(grandchild, NULL, 0) == -1);
    printf("waiting for a grandchild: %s\n", error(errno));
    printf("its parent: %s\n", ended(finish(pid)));
    CHECK(waitpid(getpid(), NULL, 0) == -1);
    printf("waiting for itself: %s\n", error(errno));
    CHECK(wait(NULL) == -1);
    printf("waiting for nobody: %s\n", error(errno));
    CHECK(waitpid(-1, NULL, 0x40000) == -1);
    printf("with wrong options: %s\n", error(errno));
    close(pipe_[0]), close(pipe_[1]);
}

static int held[2];

static int wait_to_end(void) {
    await(held);
    return 5;
}

static void not_hanging(void) {
    CHECK(pipe(held) == 0);
    pid_t pid = start(wait_to_end);
    int status = 77;
    printf("not yet: %d, status untouched: %d\n", (int)waitpid(pid, &status, WNOHANG), status);
    tell(held);
    pid_t got;
    while ((got = waitpid(-1, &status, WNOHANG)) == 0) sched_yield();
    printf("then: %d, %s\n", got == pid, ended(status));
    close(held[0]), close(held[1]);
}

// A tree: each process sums what its children found out.
static int tree(int depth) {
    int sum = 1;
    if (depth == 0) return sum;
    pid_t children[2];
    for (int n = 0; n < 2; n++) {
        children[n] = split();
        if (children[n] == 0) _exit(tree(depth - 1));
    }
    for (int n = 0; n < 2; n++) sum += WEXITSTATUS(finish(children[n]));
    return sum;
}

static void many(void) {
    int sum = 0, seen = 0, status;
    for (int n = 0; n < 60; n++) {
        pid_t pid = split();
        if (pid == 0) _exit(n);
        sum += WEXITSTATUS(finish(pid));
    }
    printf("one after another: %d\n", sum);
    for (int n = 0; n < 40; n++)
        if (split() == 0) _exit(n);
    for (sum = 0; wait(&status) > 0; seen++) sum += WEXITSTATUS(status);
    printf("at once: %d, %d\n", seen, sum);
    printf("a tree of %d processes\n", tree(4));
}

static void inherited(void) {
    // The working folder, the mask of new files, blocked signals and ignored ones; not what is pending.
    CHECK(chdir("/usr") == 0);
    umask(027);
    block(SIGUSR2);
    raise(SIGUSR2);
    handle(SIGHUP, SIG_IGN, 0);
    pid_t pid = split();
    if (pid == 0) {
        char folder[100];
        sigset_t blocked, pending;
        struct sigaction action;
        sigprocmask(SIG_BLOCK, NULL, &blocked), sigpending(&pending), sigaction(SIGHUP, NULL, &action);
        printf("in %s, umask %03o, blocked %d, pending %d, ignored %d\n", getcwd(folder, sizeof folder),
               (unsigned)umask(0), sigismember(&blocked, SIGUSR2), sigismember(&pending, SIGUSR2),
               action.sa_handler == SIG_IGN);
        CHECK(chdir("/") == 0);
        exit(0);
    }
    finish(pid);
    char folder[100];
    sigset_t pending;
    sigpending(&pending);
    printf("the parent is in %s, umask %03o, pending %d\n", getcwd(folder, sizeof folder), (unsigned)umask(0),
           sigismember(&pending, SIGUSR2));
}

int main(void) {
    statuses();
    printf("with an exit handler: %s\n", ended(finish(start(with_handler))));
    relations();
    not_hanging();
    many();
    inherited();
    struct rusage usage;
    pid_t pid = split();
    if (pid == 0) _exit(6);
    int status;
    CHECK(wait4(pid, &status, 0, &usage) == pid);
    printf("wait4: %s, a time %d\n", ended(status), usage.ru_utime.tv_sec >= 0 && usage.ru_utime.tv_usec < 1000000);
    return 0;
}
