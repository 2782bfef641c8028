// vfork: the child borrows the parent's memory, and the parent waits until it ends or starts a program.
#include "processes.h"

static volatile int seen;

int main(int count, char **arguments) {
    if (count > 1) {
        printf("started as %s with %s\n", arguments[1], arguments[2]);
        return 17;
    }
    const char *path = itself(arguments);
    fflush(NULL);
    pid_t pid = vfork();
    if (pid == 0) {
        seen = 5;
        _exit(9);
    }
    printf("the parent sees %d, %s\n", seen, ended(finish(pid)));

    fflush(NULL);
    pid = vfork();
    if (pid == 0) {
        seen = 6;
        execl(path, "vfork", "a program", "one word", (char *)NULL);
        _exit(98);
    }
    printf("the parent goes on, sees %d\n", seen);
    printf("the program: %s\n", ended(finish(pid)));

    pid = vfork();
    if (pid == 0) {
        execl("/there/is/no/such/program", "none", (char *)NULL);
        seen = errno;
        _exit(127);
    }
    printf("no program: %s, %s\n", error(seen), ended(finish(pid)));

    // What the child did to descriptors is its own affair.
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid = vfork();
    if (pid == 0) {
        close(ends[0]);
        close(ends[1]);
        _exit(0);
    }
    finish(pid);
    printf("the pipe is still open: %d\n", write(ends[1], "x", 1) == 1);

    // A child that is killed lets the parent go on as well.
    pid = vfork();
    if (pid == 0) {
        kill(getpid(), SIGKILL);
        _exit(1);
    }
    printf("killed: %s\n", ended(finish(pid)));

    static int sum, n;
    for (n = 0; n < 30; n++) {
        pid = vfork();
        if (pid == 0) _exit(n);
        sum += WEXITSTATUS(finish(pid));
    }
    printf("thirty times: %d\n", sum);
    return 0;
}
