// The first thread ends before the others: the process goes on, is told of, and ends with its last thread.
#include "processes.h"
#include <pthread.h>

static int report[2];

static void *goes_on(void *argument) {
    pthread_join(*(pthread_t *)argument, NULL);
    // The first thread is over; its number is still the process's.
    printf("goes on: the process is the child %d, this is another thread %d\n", getpid() == (pid_t)syscall(SYS_getpid),
           syscall(SYS_gettid) != getpid());
    pid_t pid = split();
    if (pid == 0) _exit(13);
    printf("its child: %s\n", ended(finish(pid)));
    fflush(NULL);
    tell(report);
    exit(14);
}

static pthread_t first;

static int leader_leaves(void) {
    pthread_t thread;
    first = pthread_self();
    pthread_create(&thread, NULL, goes_on, &first);
    pthread_exit(NULL);
}

static void *ends_quietly(void *unused) {
    (void)unused;
    usleep(1000);
    return NULL;
}

static int all_leave(void) {
    pthread_t thread;
    for (int n = 0; n < 3; n++) pthread_create(&thread, NULL, ends_quietly, NULL);
    pthread_exit(NULL);
}

static void *ends_all(void *unused) {
    (void)unused;
    syscall(SYS_exit_group, 15);
    return NULL;
}

static int other_ends(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, ends_all, NULL);
    while (pause() == -1) {}
    return 1;
}

static void *sleeps(void *unused) {
    (void)unused;
    tell(report);
    while (pause() == -1) {}
    return NULL;
}

// The signal ends all, whoever waits.
static int is_killed(void) {
    pthread_t thread;
    for (int n = 0; n < 3; n++) pthread_create(&thread, NULL, sleeps, NULL);
    syscall(SYS_exit, 0);
    return 1;
}

static void *crashes(void *unused) {
    (void)unused;
    abort();
}

static int other_crashes(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, crashes, NULL);
    while (pause() == -1) {}
    return 1;
}

static volatile pid_t taker;
static void takes(int number) { (void)number, taker = (pid_t)syscall(SYS_gettid); }

static void *is_told(void *argument) {
    pthread_join(*(pthread_t *)argument, NULL);
    tell(report);
    while (!taker) usleep(500);
    _exit(taker == (pid_t)syscall(SYS_gettid) ? 16 : 17);
}

static int told_without_leader(void) {
    handle(SIGUSR1, takes, 0);
    pthread_t thread;
    first = pthread_self();
    pthread_create(&thread, NULL, is_told, &first);
    pthread_exit(NULL);
}

int main(void) {
    CHECK(pipe(report) == 0);
    pid_t pid = start(leader_leaves);
    await(report);
    printf("the child that went on: %s\n", ended(finish(pid)));
    printf("all leave: %s\n", ended(finish(start(all_leave))));
    printf("another ends all: %s\n", ended(finish(start(other_ends))));
    pid = start(is_killed);
    for (int n = 0; n < 3; n++) await(report);
    // No thread is left that could be waited for, but the process is alive.
    printf("not over: %d\n", (int)waitpid(pid, NULL, WNOHANG));
    kill(pid, SIGTERM);
    printf("killed: %s\n", ended(finish(pid)));
    printf("another crashes: %s\n", ended(finish(start(other_crashes))));
    pid = start(told_without_leader);
    await(report);
    kill(pid, SIGUSR1);
    printf("a signal without the leader: %s\n", ended(finish(pid)));
    return 0;
}
