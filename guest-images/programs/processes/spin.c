// Waiting without a pause: a flag that another thread or process sets, and a lock of bare exchanges. Needs preemption.
#include "processes.h"
#include <pthread.h>

static volatile int flag, answer;

static void *sets(void *unused) {
    (void)unused;
    while (!answer) {}
    flag = 1;
    return NULL;
}

static void threads(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, sets, NULL);
    answer = 1;
    while (!flag) {}
    pthread_join(thread, NULL);
    printf("a flag of a thread: %d\n", flag);
}

static int lock;
static long counter;

static void *counts(void *unused) {
    (void)unused;
    for (int n = 0; n < 2000; n++) {
        while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) {}
        counter++;
        __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void locks(void) {
    pthread_t threads[2];
    for (int n = 0; n < 2; n++) pthread_create(&threads[n], NULL, counts, NULL);
    for (int n = 0; n < 2; n++) pthread_join(threads[n], NULL);
    printf("a lock without a pause: %ld\n", counter);
}

static volatile int *board;

static int other(void) {
    for (int n = 0; n < 20; n++) {
        while (board[0] != 2 * n + 1) {}
        board[1] = board[1] * 3 + n;
        board[0] = 2 * n + 2;
    }
    return 5;
}

static void processes(void) {
    board = shared(4096);
    pid_t pid = start(other);
    for (int n = 0; n < 20; n++) {
        board[1] = board[1] * 7 % 1000003 + n;
        board[0] = 2 * n + 1;
        while (board[0] != 2 * n + 2) {}
    }
    printf("a flag of a process: %d, %s\n", board[1], ended(finish(pid)));
}

int main(void) {
    threads();
    locks();
    processes();
    return 0;
}
