// What exec hands on: arguments and environment of all sizes, and what of the old program stays.
#include "processes.h"
#include <sys/prctl.h>
#include <sys/resource.h>

extern char **environ;

static uint64_t hash(char **strings) {
    uint64_t hash = 14695981039346656037u;
    for (; *strings; strings++)
        for (const char *at = *strings;; at++) {
            hash = (hash ^ (unsigned char)*at) * 1099511628211u;
            if (*at == 0) break;
        }
    return hash;
}

static int show(int count, char **arguments) {
    int variables = 0;
    for (char **at = environ; *at; at++) variables++;
    printf("%d arguments, %016llx", count, (unsigned long long)hash(arguments + 1));
    printf(", %d variables, %016llx\n", variables, (unsigned long long)hash(environ));
    return 0;
}

static void caught(int number) { (void)number; }

// What stays over exec, and what goes.
static int stays(void) {
    struct sigaction one, two;
    sigset_t blocked, pending;
    sigaction(SIGUSR1, NULL, &one), sigaction(SIGUSR2, NULL, &two);
    sigprocmask(SIG_BLOCK, NULL, &blocked), sigpending(&pending);
    stack_t stack;
    sigaltstack(NULL, &stack);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    char folder[100], name[17] = {0};
    prctl(PR_GET_NAME, name);
    printf("handler gone %d, ignored %d, blocked %d, pending %d\n", one.sa_handler == SIG_DFL, two.sa_handler == SIG_IGN,
           sigismember(&blocked, SIGTERM), sigismember(&pending, SIGTERM));
    printf("no other stack %d, files %d, in %s, umask %03o, alarm %d, comm %s\n", stack.ss_flags == SS_DISABLE,
           (int)limit.rlim_cur, getcwd(folder, sizeof folder), (unsigned)umask(0), alarm(0) > 9000, name);
    printf("the same process %d, of the same parent %d, in the same group %d\n", getpid() == atoi(getenv("PID")),
           getppid() == atoi(getenv("PARENT")), getpgid(0) == atoi(getenv("GROUP")));
    return 0;
}

static void run(const char *path, char **arguments, char **environment) {
    pid_t pid = split();
    if (pid == 0) {
        execve(path, arguments, environment);
        int why = errno;
        printf("execve: %s\n", error(why));
        exit(1);
    }
    printf("%s\n", ended(finish(pid)));
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "show")) return show(count, arguments);
    if (count > 1 && !strcmp(arguments[1], "stays")) return stays();
    char *path = strdup(itself(arguments));

    char *few[] = {"e", "show", "", "two words", "\xc3\xa4\xff", NULL};
    run(path, few, (char *[]){"A=1", "EMPTY=", "NO-EQUALS", "A=2", NULL});
    run(path, few, (char *[]){NULL});

    // A lot: 3000 arguments, 2000 variables, one of 100,000 bytes.
    static char *many[3003], *variables[2002], longest[100001];
    many[0] = "e", many[1] = "show";
    for (int n = 2; n < 3002; n++) CHECK(asprintf(&many[n], "argument %d %.*s", n, n % 40, "........................................") > 0);
    for (int n = 0; n < 2000; n++) CHECK(asprintf(&variables[n], "VARIABLE_%d=%x", n, n * n) > 0);
    memset(longest, 'l', 100000);
    variables[2000] = longest;
    run(path, many, variables);
    // One string that is longer than any may be.
    static char too_long[200001];
    memset(too_long, 't', 200000);
    run(path, (char *[]){"e", "show", too_long, NULL}, environ);
    run(path, (char *[]){"e", "show", (char *)1, NULL}, environ);

    pid_t parent = getpid(), pid = split();
    if (pid == 0) {
        handle(SIGUSR1, caught, 0);
        handle(SIGUSR2, SIG_IGN, 0);
        block(SIGTERM);
        raise(SIGTERM);
        static char other[65536];
        CHECK(sigaltstack(&(stack_t){.ss_sp = other, .ss_size = sizeof other}, NULL) == 0);
        CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){123, 200}) == 0);
        CHECK(chdir("/usr") == 0);
        umask(037);
        alarm(10000);
        prctl(PR_SET_NAME, "renamed");
        char self[20], old[20], group[20];
        snprintf(self, sizeof self, "%d", getpid());
        snprintf(old, sizeof old, "%d", parent);
        snprintf(group, sizeof group, "%d", getpgid(0));
        setenv("PID", self, 1), setenv("PARENT", old, 1), setenv("GROUP", group, 1);
        execl(path, "e", "stays", (char *)NULL);
        _exit(1);
    }
    printf("%s\n", ended(finish(pid)));
    return 0;
}
