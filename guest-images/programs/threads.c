/* Threads of every kind that pthread gives: mutexes, condition variables, barriers, read-write locks, semaphores,
   thread-local storage, once, keys with destructors, cancellation, signals to a thread, and ends by pthread_exit. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 4, ROUNDS = 200, ITEMS = 500 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long counter;
static _Thread_local long mine = 7;

static void *count(void *argument) {
    long number = (long)(intptr_t)argument;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&lock);
        counter += number;
        if (round % 50 == 0) usleep(100);
        pthread_mutex_unlock(&lock);
        mine += number * round;
    }
    return (void *)(intptr_t)mine;
}

static void mutexes(void) {
    pthread_t threads[WORKERS];
    for (long n = 0; n < WORKERS; n++) pthread_create(&threads[n], NULL, count, (void *)(intptr_t)(n + 1));
    for (int n = 0; n < WORKERS; n++) {
        void *result;
        pthread_join(threads[n], &result);
        printf("thread %d: %ld\n", n, (long)(intptr_t)result);
    }
    printf("counter %ld, mine %ld\n", counter, mine);
}

/* A queue with room for few, between producers and consumers. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t filled, emptied;
    int items[8], count, closed;
} queue = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, {0}, 0, 0};

static void *produce(void *argument) {
    int from = (int)(intptr_t)argument;
    for (int item = from; item < ITEMS; item += 2) {
        pthread_mutex_lock(&queue.lock);
        while (queue.count == 8) pthread_cond_wait(&queue.emptied, &queue.lock);
        queue.items[queue.count++] = item;
        pthread_cond_signal(&queue.filled);
        pthread_mutex_unlock(&queue.lock);
    }
    return NULL;
}

static void *consume(void *argument) {
    long *sum = argument;
    for (;;) {
        pthread_mutex_lock(&queue.lock);
        while (queue.count == 0 && !queue.closed) pthread_cond_wait(&queue.filled, &queue.lock);
        if (queue.count == 0) break;
        *sum += queue.items[--queue.count];
        pthread_cond_broadcast(&queue.emptied);
        pthread_mutex_unlock(&queue.lock);
    }
    pthread_mutex_unlock(&queue.lock);
    pthread_exit(NULL);
}

static void conditions(void) {
    pthread_t producers[2], consumers[3];
    long sums[3] = {0};
    for (int n = 0; n < 3; n++) pthread_create(&consumers[n], NULL, consume, &sums[n]);
    for (long n = 0; n < 2; n++) pthread_create(&producers[n], NULL, produce, (void *)(intptr_t)n);
    for (int n = 0; n < 2; n++) pthread_join(producers[n], NULL);
    pthread_mutex_lock(&queue.lock);
    queue.closed = 1;
    pthread_cond_broadcast(&queue.filled);
    pthread_mutex_unlock(&queue.lock);
    for (int n = 0; n < 3; n++) pthread_join(consumers[n], NULL);
    printf("consumed %ld\n", sums[0] + sums[1] + sums[2]);
}

static void timeouts(void) {
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += 20000000;
    if (soon.tv_nsec >= 1000000000) soon.tv_sec++, soon.tv_nsec -= 1000000000;
    pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&lock);
    printf("waited in vain: %d\n", pthread_cond_timedwait(&never, &lock, &soon) == ETIMEDOUT);
    pthread_mutex_unlock(&lock);
}

static pthread_barrier_t barrier;
static double values[WORKERS], sums[WORKERS];

static void *step(void *argument) {
    int n = (int)(intptr_t)argument;
    values[n] = 1.0 / (n + 3);
    for (int round = 0; round < 20; round++) {
        pthread_barrier_wait(&barrier);
        double sum = values[n];
        for (int m = 0; m < WORKERS; m++) sum += values[m] / (m + n + 1);
        sums[n] = sum;
        pthread_barrier_wait(&barrier);
        values[n] = sums[n] / 3;
    }
    return NULL;
}

static void barriers(void) {
    pthread_t threads[WORKERS];
    pthread_barrier_init(&barrier, NULL, WORKERS);
    for (long n = 0; n < WORKERS; n++) pthread_create(&threads[n], NULL, step, (void *)(intptr_t)n);
    for (int n = 0; n < WORKERS; n++) pthread_join(threads[n], NULL);
    for (int n = 0; n < WORKERS; n++) printf("value %a\n", values[n]);
}

static sem_t ping, pong;

static void *player(void *unused) {
    (void)unused;
    for (int n = 0; n < 100; n++) {
        sem_wait(&ping);
        counter = counter * 3 % 1000003 + n;
        sem_post(&pong);
    }
    return NULL;
}

static void semaphores(void) {
    pthread_t thread;
    sem_init(&ping, 0, 0);
    sem_init(&pong, 0, 0);
    pthread_create(&thread, NULL, player, NULL);
    for (int n = 0; n < 100; n++) {
        sem_post(&ping);
        sem_wait(&pong);
        counter ^= n;
    }
    pthread_join(thread, NULL);
    printf("ping-pong %ld\n", counter);
}

static volatile sig_atomic_t handled;
static volatile pthread_t handler_ran_in;
static volatile int woken;

static void on_signal(int signal) {
    handled = signal;
    handler_ran_in = pthread_self();
}

static void *sleeper(void *unused) {
    (void)unused;
    struct timespec day = {86400, 0};
    int result = nanosleep(&day, &day);
    woken = 1;
    printf("woken: %d, EINTR %d, most of the day is left: %d\n", result, errno == EINTR, day.tv_sec > 80000);
    return NULL;
}

static void *waiter(void *unused) {
    (void)unused;
    sigset_t set;
    int signal;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigwait(&set, &signal);
    return (void *)(intptr_t)signal;
}

static void signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, sleeper, NULL);
    // A signal that comes before the sleep does not end it.
    while (!woken) {
        usleep(1000);
        pthread_kill(thread, SIGUSR1);
    }
    pthread_join(thread, NULL);
    printf("handled %d by that thread: %d\n", (int)handled, pthread_equal(handler_ran_in, thread));

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    void *got;
    pthread_create(&thread, NULL, waiter, NULL);
    kill(getpid(), SIGUSR2);
    pthread_join(thread, &got);
    printf("waited for %ld\n", (long)(intptr_t)got);
}

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int made, destroyed;

static void destroy(void *value) { destroyed += *(int *)value; free(value); }
static void make_key(void) { pthread_key_create(&key, destroy); made++; }

static void *keyed(void *argument) {
    pthread_once(&once, make_key);
    int *value = malloc(sizeof *value);
    *value = (int)(intptr_t)argument;
    pthread_setspecific(key, value);
    return NULL;
}

static void *take(void *mutex) { pthread_mutex_lock(mutex); return NULL; }

static void cleanup(void *text) { printf("cleaned up %s\n", (char *)text); }

static void *endless(void *pipe) {
    char byte;
    pthread_cleanup_push(cleanup, "after a read that was cancelled");
    if (read(*(int *)pipe, &byte, 1) == 1) puts("a byte");
    pthread_cleanup_pop(0);
    return NULL;
}

static void ends(void) {
    pthread_t threads[3];
    for (long n = 0; n < 3; n++) pthread_create(&threads[n], NULL, keyed, (void *)(intptr_t)(n + 1));
    for (int n = 0; n < 3; n++) pthread_join(threads[n], NULL);
    printf("made %d, destroyed %d\n", made, destroyed);

    int ends[2];
    if (pipe(ends) != 0) abort();
    void *result;
    pthread_create(&threads[0], NULL, endless, &ends[0]);
    usleep(1000);
    pthread_cancel(threads[0]);
    pthread_join(threads[0], &result);
    printf("cancelled: %d\n", result == PTHREAD_CANCELED);

    pthread_mutexattr_t attributes;
    pthread_mutex_t robust;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &attributes);
    pthread_create(&threads[0], NULL, take, &robust);
    pthread_join(threads[0], NULL);
    printf("the owner died: %d\n", pthread_mutex_lock(&robust) == EOWNERDEAD);
}

/* Bytes through a pipe that has no room for all of them. */
static int ends_of_pipe[2];

static void *pour(void *unused) {
    (void)unused;
    static char bytes[300000];
    for (size_t n = 0; n < sizeof bytes; n++) bytes[n] = (char)(n * 7 % 251);
    printf("poured %zd\n", write(ends_of_pipe[1], bytes, sizeof bytes));
    close(ends_of_pipe[1]);
    return NULL;
}

static void pipes(void) {
    pthread_t thread;
    if (pipe(ends_of_pipe) != 0) abort();
    pthread_create(&thread, NULL, pour, NULL);
    uint64_t hash = 14695981039346656037u;
    size_t total = 0;
    char bytes[10000];
    for (ssize_t got; (got = read(ends_of_pipe[0], bytes, sizeof bytes)) > 0; total += (size_t)got)
        for (ssize_t n = 0; n < got; n++) hash = (hash ^ (unsigned char)bytes[n]) * 1099511628211u;
    pthread_join(thread, NULL);
    printf("%zu bytes, hash %016llx\n", total, (unsigned long long)hash);
}

static void *last(void *unused) {
    (void)unused;
    usleep(2000);
    puts("the last thread");
    return NULL;
}

int main(void) {
    mutexes();
    conditions();
    timeouts();
    barriers();
    semaphores();
    signals();
    ends();
    pipes();
    pthread_t thread;
    pthread_create(&thread, NULL, last, NULL);
    pthread_detach(thread);
    pthread_exit(NULL);
}
