// exec from a thread that is not the first: the process keeps its number, all other threads are gone.
#include "processes.h"
#include <pthread.h>

static const char *path;
static int ready[2];

static int started(char **arguments) {
    int threads = 0;
    char line[200];
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) sscanf(line, "Threads: %d", &threads);
    fclose(file);
    printf("started by %s: the same process %d, of the same parent %d, the first thread %d, threads %d\n", arguments[1],
           getpid() == atoi(arguments[2]), getppid() == atoi(arguments[3]), getpid() == (pid_t)syscall(SYS_gettid), threads);
    return 18;
}

static void again(const char *who) {
    char self[20], parent[20];
    snprintf(self, sizeof self, "%d", getpid());
    snprintf(parent, sizeof parent, "%d", getppid());
    execl(path, "exec-thread", who, self, parent, (char *)NULL);
    _exit(97);
}

static void *sleeps(void *unused) {
    (void)unused;
    tell(ready);
    while (pause() == -1) {}
    return NULL;
}

static void *spins(void *unused) {
    (void)unused;
    tell(ready);
    for (;;) sched_yield();
    return NULL;
}

static void *execs(void *unused) {
    (void)unused;
    for (int n = 0; n < 3; n++) await(ready);
    again("another thread");
    return NULL;
}

static int by_another(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, sleeps, NULL);
    pthread_create(&thread, NULL, spins, NULL);
    pthread_create(&thread, NULL, execs, NULL);
    tell(ready);
    while (pause() == -1) {}
    return 1;
}

static int by_first(void) {
    pthread_t thread;
    for (int n = 0; n < 3; n++) pthread_create(&thread, NULL, n == 1 ? spins : sleeps, NULL);
    for (int n = 0; n < 3; n++) await(ready);
    again("the first thread");
    return 1;
}

static void *execs_alone(void *first) {
    pthread_join(*(pthread_t *)first, NULL);
    again("the only thread");
    return NULL;
}

static pthread_t first;

static int by_last(void) {
    pthread_t thread;
    first = pthread_self();
    pthread_create(&thread, NULL, execs_alone, &first);
    pthread_exit(NULL);
}

static void *execs_nothing(void *unused) {
    (void)unused;
    // A program that is not there leaves all as it was.
    int result = execl("/there/is/no/such/program", "none", (char *)NULL);
    return (void *)(intptr_t)(result == -1 ? errno : 0);
}

static int failing(void) {
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, execs_nothing, NULL);
    pthread_join(thread, &result);
    return (int)(intptr_t)result;
}

// fork of a process with threads gives one with the thread that called.
static void *forks(void *unused) {
    (void)unused;
    pid_t pid = fork();
    if (pid == 0) again("a fork of a thread");
    return (void *)(intptr_t)WEXITSTATUS(finish(pid));
}

static int by_fork(void) {
    pthread_t thread, other;
    void *result;
    pthread_create(&other, NULL, sleeps, NULL);
    await(ready);
    pthread_create(&thread, NULL, forks, NULL);
    pthread_join(thread, &result);
    return (int)(intptr_t)result;
}

int main(int count, char **arguments) {
    if (count > 1) return started(arguments);
    path = itself(arguments);
    CHECK(pipe(ready) == 0);
    printf("%s\n", ended(finish(start(by_another))));
    printf("%s\n", ended(finish(start(by_first))));
    printf("%s\n", ended(finish(start(by_last))));
    printf("no program: %s\n", ended(finish(start(failing))));
    printf("%s\n", ended(finish(start(by_fork))));
    return 0;
}
