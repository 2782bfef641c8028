// Locks between processes: mutexes, conditions, barriers, semaphores, read-write locks; robust ones, PI, requeue, bit sets.
#include "processes.h"
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>

enum { WORKERS = 3, ROUNDS = 300 };

static struct board {
    pthread_mutex_t lock, robust, pi;
    pthread_cond_t changed;
    pthread_barrier_t barrier;
    pthread_rwlock_t reading;
    sem_t semaphore, other;
    int futex, second, woken, ready;
    long sum, items, readers;
} *board;

static int number;

static long call(int *word, int operation, int value, unsigned long four, int *second, int three) {
    return syscall(SYS_futex, word, operation, value, four, second, three);
}

static void all(const char *what, int (*body)(void)) {
    pid_t pids[WORKERS];
    printf("%s:", what);
    for (number = 0; number < WORKERS; number++) pids[number] = start(body);
    for (int n = 0; n < WORKERS; n++) {
        int status = finish(pids[n]);
        printf(" %s", ended(status));
    }
    printf(", sum %ld\n", board->sum);
}

static int adds(pthread_mutex_t *lock) {
    for (int n = 0; n < ROUNDS; n++) {
        CHECK(pthread_mutex_lock(lock) == 0);
        board->sum += n + number;
        if (n % 100 == 0) usleep(100);
        CHECK(pthread_mutex_unlock(lock) == 0);
    }
    return 0;
}

static int with_mutex(void) { return adds(&board->lock); }
static int with_pi(void) { return adds(&board->pi); }

static int with_barrier(void) {
    int serial = 0;
    for (int n = 0; n < 20; n++) {
        board->sum += pthread_barrier_wait(&board->barrier) == PTHREAD_BARRIER_SERIAL_THREAD;
        int result = pthread_barrier_wait(&board->barrier);
        CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
    }
    return serial;
}

// Takes items that the parent puts.
static int with_condition(void) {
    for (;;) {
        pthread_mutex_lock(&board->lock);
        while (board->items == 0) pthread_cond_wait(&board->changed, &board->lock);
        if (board->items < 0) break;
        board->items--, board->sum++;
        pthread_mutex_unlock(&board->lock);
    }
    pthread_mutex_unlock(&board->lock);
    return 1;
}

static int with_semaphore(void) {
    for (int n = 0; n < ROUNDS; n++) {
        sem_wait(&board->semaphore);
        board->sum += 2;
        sem_post(&board->semaphore);
    }
    return 2;
}

static int with_rwlock(void) {
    for (int n = 0; n < ROUNDS; n++) {
        if (n % 10 == number) {
            pthread_rwlock_wrlock(&board->reading);
            board->sum++, board->readers += 7;
        } else {
            pthread_rwlock_rdlock(&board->reading);
            CHECK(board->readers % 7 == 0);
        }
        pthread_rwlock_unlock(&board->reading);
    }
    return 3;
}

static int dies_with_lock(void) {
    CHECK(pthread_mutex_lock(&board->robust) == 0);
    return 4;
}

static int is_killed_with_lock(void) {
    CHECK(pthread_mutex_lock(&board->robust) == 0);
    kill(getpid(), SIGKILL);
    return 5;
}

static void robust(void) {
    printf("%s", ended(finish(start(dies_with_lock))));
    int result = pthread_mutex_lock(&board->robust);
    printf(", its lock: %s", error(result));
    printf(", repaired: %s", error(pthread_mutex_consistent(&board->robust)));
    printf(", unlocked: %s", error(pthread_mutex_unlock(&board->robust)));
    printf(", locked: %s\n", error(pthread_mutex_lock(&board->robust)));
    pthread_mutex_unlock(&board->robust);
    printf("%s", ended(finish(start(is_killed_with_lock))));
    printf(", its lock: %s", error(pthread_mutex_lock(&board->robust)));
    pthread_mutex_unlock(&board->robust);
    printf(", not repaired: %s\n", error(pthread_mutex_lock(&board->robust)));
}

static int waits(void) {
    do call(&board->futex, FUTEX_WAIT, 0, 0, NULL, 0);
    while (__atomic_load_n(&board->second, __ATOMIC_SEQ_CST) == 0);
    __atomic_fetch_add(&board->woken, 1, __ATOMIC_SEQ_CST);
    return 6;
}

static int waits_for_bit(void) {
    while (call(&board->futex, FUTEX_WAIT_BITSET, 0, 0, NULL, 1 << number) != 0) {}
    return 7 + number;
}

static void raw(void) {
    pid_t pids[WORKERS];
    board->futex = 1;
    CHECK(call(&board->futex, FUTEX_WAIT, 0, 0, NULL, 0) == -1);
    printf("another value: %s\n", error(errno));
    struct timespec some = {0, 3000000};
    CHECK(call(&board->futex, FUTEX_WAIT, 1, (unsigned long)&some, NULL, 0) == -1);
    printf("for a while: %s\n", error(errno));
    printf("nobody: %ld\n", call(&board->futex, FUTEX_WAKE, 10, 0, NULL, 0));
    board->futex = 0;
    for (number = 0; number < WORKERS; number++) pids[number] = start(waits);
    // All are moved from one word to the other, none is woken.
    long moved = 0;
    while (moved < WORKERS) {
        long some_ = call(&board->futex, FUTEX_CMP_REQUEUE, 0, 100, &board->second, 0);
        CHECK(some_ >= 0);
        moved += some_;
        usleep(500);
    }
    printf("moved %ld, at the first %ld\n", moved, call(&board->futex, FUTEX_WAKE, 10, 0, NULL, 0));
    CHECK(call(&board->futex, FUTEX_CMP_REQUEUE, 0, 100, &board->second, 9) == -1);
    printf("another value: %s\n", error(errno));
    board->second = 1;
    printf("woken: %ld", call(&board->second, FUTEX_WAKE, 1, 0, NULL, 0));
    printf(", the others: %ld\n", call(&board->second, FUTEX_WAKE, 10, 0, NULL, 0));
    for (int n = 0; n < WORKERS; n++) finish(pids[n]);
    printf("all %d\n", board->woken);
    // One bit each.
    for (number = 0; number < WORKERS; number++) pids[number] = start(waits_for_bit);
    for (int n = WORKERS - 1; n >= 0; n--) {
        while (call(&board->futex, FUTEX_WAKE_BITSET, 10, 0, NULL, 1 << n) == 0) usleep(500);
        printf("bit %d: %s\n", n, ended(finish(pids[n])));
    }
    CHECK(call(&board->futex, FUTEX_WAIT_BITSET, 0, 0, NULL, 0) == -1);
    printf("no bits: %s\n", error(errno));
    // Private words of two processes at one address are two words.
    static int own;
    pid_t pid = split();
    if (pid == 0) {
        call(&own, FUTEX_WAKE_PRIVATE, 10, 0, NULL, 0);
        _exit(0);
    }
    struct timespec short_ = {0, 20000000};
    CHECK(call(&own, FUTEX_WAIT_PRIVATE, 0, (unsigned long)&short_, NULL, 0) == -1);
    printf("a private word: %s\n", error(errno));
    finish(pid);
}

int main(void) {
    board = shared(sizeof *board);
    pthread_mutexattr_t mutex;
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&board->lock, &mutex);
    pthread_mutexattr_setrobust(&mutex, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&board->robust, &mutex);
    pthread_mutexattr_setrobust(&mutex, PTHREAD_MUTEX_STALLED);
    CHECK(pthread_mutexattr_setprotocol(&mutex, PTHREAD_PRIO_INHERIT) == 0);
    CHECK(pthread_mutex_init(&board->pi, &mutex) == 0);
    pthread_condattr_t condition;
    pthread_condattr_init(&condition);
    pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&board->changed, &condition);
    pthread_barrierattr_t barrier;
    pthread_barrierattr_init(&barrier);
    pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&board->barrier, &barrier, WORKERS);
    pthread_rwlockattr_t reading;
    pthread_rwlockattr_init(&reading);
    pthread_rwlockattr_setpshared(&reading, PTHREAD_PROCESS_SHARED);
    pthread_rwlock_init(&board->reading, &reading);
    sem_init(&board->semaphore, 1, 1);

    all("mutex", with_mutex);
    all("barrier", with_barrier);
    all("semaphore", with_semaphore);
    all("read and write", with_rwlock);
    pid_t pids[WORKERS];
    for (number = 0; number < WORKERS; number++) pids[number] = start(with_condition);
    for (int n = 0; n < ROUNDS; n++) {
        pthread_mutex_lock(&board->lock);
        board->items++;
        pthread_mutex_unlock(&board->lock);
        pthread_cond_signal(&board->changed);
    }
    for (;;) {
        pthread_mutex_lock(&board->lock);
        int done = board->items == 0;
        if (done) board->items = -1;
        pthread_mutex_unlock(&board->lock);
        if (done) break;
        usleep(500);
    }
    pthread_cond_broadcast(&board->changed);
    for (int n = 0; n < WORKERS; n++) finish(pids[n]);
    printf("conditions: sum %ld\n", board->sum);
    all("priority inheritance", with_pi);
    robust();
    raw();
    return 0;
}
