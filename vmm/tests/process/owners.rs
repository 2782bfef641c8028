//! Futexes that have owners, and the mutexes that are made of them: as the host does it, and the same at replay.

use crate::alarms::as_natively;

/// Futexes, by calls of their own.
const FUTEXES: &str = r#"
    static uint32_t *lock, *from;
    static long futex(uint32_t *at, int what, uint32_t value, void *time, uint32_t *second, uint32_t last) {
        long result = syscall(SYS_futex, at, what, value, time, second, last);
        return result < 0 ? -errno : result;
    }
    static volatile int tids[4], results[4], stage;
    static int tid(void) { return syscall(SYS_gettid); }
    static void *takes(void *which) {
        long n = (long)which;
        tids[n] = tid();
        results[n] = futex(lock, 6, 0, 0, 0, 0);
        results[n] |= ((*lock & 0x3fffffff) != tid()) << 16;
        usleep(3000);
        futex(lock, 7, 0, 0, 0, 0);
        return 0;
    }
    static void *dies(void *which) { *lock = tid(); stage = 1; usleep(30000); return 0; }
    static void *conditional(void *which) {
        long n = (long)which;
        tids[n] = tid();
        results[n] = futex(from, 11, 0, 0, lock, 0);
        results[n] |= ((*lock & 0x3fffffff) != tid()) << 16;
        usleep(1000);
        futex(lock, 7, 0, 0, 0, 0);
        return 0;
    }
    struct waits { uint64_t value, at; uint32_t flags, unused; } many[3];
    static uint32_t words[4];
    static void *vector(void *unused) { results[0] = syscall(449, many, 3, 0, 0, 0); return 0; }
    static void *waiter(void *which) { long n = (long)which; results[n] = futex(&words[n], 0, 0, 0, 0, 0); return 0; }
    static void handler(int signal) { stage++; }
    int main(void) {
        lock = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); from = lock + 1;
        struct timespec past = { 1, 0 }, soon;
        // With nobody else.
        SAY("%ld ", futex(lock, 6, 0, 0, 0, 0)); SAY("%d ", *lock == tid()); SAY("%ld ", futex(lock, 6, 0, 0, 0, 0)); SAY("%ld ", futex(lock, 8, 0, 0, 0, 0));
        SAY("%ld ", futex(lock, 7, 0, 0, 0, 0)); SAY("%u %ld ", *lock, futex(lock, 7, 0, 0, 0, 0)); SAY("%ld ", futex(lock, 8, 0, 0, 0, 0));
        // Others in the order in which they came.
        pthread_t threads[4];
        for (long n = 1; n < 4; n++) { tids[n] = 0; pthread_create(&threads[n], 0, takes, (void *)n); while (!tids[n]) usleep(100); usleep(10000); }
        SAY("%x ", *lock >> 31);
        SAY("%ld ", futex(lock, 7, 0, 0, 0, 0)); SAY("%d\n", (*lock & 0x3fffffff) == tids[1]);
        clock_gettime(CLOCK_REALTIME, &soon); soon.tv_nsec += 1 * MS; if (soon.tv_nsec >= 1000 * MS) { soon.tv_sec++; soon.tv_nsec -= 1000 * MS; }
        SAY("%ld ", futex(lock, 6, 0, &soon, 0, 0)); SAY("%ld ", futex(lock, 8, 0, 0, 0, 0)); SAY("%ld\n", futex(lock, 6, 0, &past, 0, 0));
        for (int n = 1; n < 4; n++) { pthread_join(threads[n], 0); SAY("%x ", results[n]); }
        SAY("%x\n", *lock);
        *lock = 0x3ffffff0; SAY("%ld ", futex(lock, 6, 0, 0, 0, 0)); *lock = 0;
        // The owner dies while another one waits; a signal does not end a wait for a lock.
        on(SIGALRM, handler, 0);
        pthread_create(&threads[0], 0, dies, 0); while (!stage) usleep(100);
        struct itimerval alarm_ = { { 0, 0 }, { 0, 5000 } }; setitimer(ITIMER_REAL, &alarm_, 0);
        SAY("%ld ", futex(lock, 6, 0, 0, 0, 0)); SAY("%x %d ", *lock >> 30, (*lock & 0x3fffffff) == tid()); SAY("%d\n", stage);
        *lock = tid(); futex(lock, 7, 0, 0, 0, 0); pthread_join(threads[0], 0);
        // Moved from one to another.
        futex(lock, 6, 0, 0, 0, 0);
        for (long n = 0; n < 3; n++) { tids[n] = 0; pthread_create(&threads[n], 0, conditional, (void *)n); while (!tids[n]) usleep(100); usleep(10000); }
        SAY("%ld ", futex(from, 12, 1, (void *)9, lock, 7)); SAY("%ld ", futex(from, 12, 2, (void *)9, lock, 0)); SAY("%ld ", futex(from, 12, 1, (void *)1, lock, 0)); SAY("%ld ", futex(from, 12, 1, (void *)9, lock, 0));
        futex(lock, 7, 0, 0, 0, 0);
        for (int n = 0; n < 3; n++) { pthread_join(threads[n], 0); SAY("%x ", results[n]); }
        *lock = 0;
        for (long n = 0; n < 1; n++) { tids[n] = 0; pthread_create(&threads[n], 0, conditional, (void *)n); while (!tids[n]) usleep(100); usleep(10000); }
        SAY("%ld ", futex(from, 12, 1, (void *)9, lock, 0)); pthread_join(threads[0], 0); SAY("%x\n", results[0]);
        SAY("%ld ", futex(from, 11, 1, 0, lock, 0)); SAY("%ld ", futex(from, 11, 0, 0, from, 0)); clock_gettime(CLOCK_MONOTONIC, &soon); SAY("%ld\n", futex(from, 11, 0, &soon, lock, 0));
        // Any of many.
        for (int n = 0; n < 3; n++) many[n] = (struct waits){ 0, (uint64_t)&words[n], 2 };
        pthread_create(&threads[0], 0, vector, 0); usleep(10000);
        SAY("%ld ", futex(&words[2], 1, 1, 0, 0, 0)); pthread_join(threads[0], 0); SAY("%d ", results[0]);
        words[1] = 1; SAY("%d ", (int)syscall(449, many, 3, 0, 0, 0)); SAY("%s ", strerror(errno)); words[1] = 0;
        SAY("%d %s ", (int)syscall(449, many, 3, 0, &soon, CLOCK_MONOTONIC), strerror(errno)); SAY("%d ", (int)syscall(449, many, 0, 0, 0, 0)); many[0].flags = 1; SAY("%d ", (int)syscall(449, many, 3, 0, 0, 0)); SAY("%d\n", (int)syscall(449, many, 3, 1, 0, 0));
        // A change, and wakes by what was there.
        for (long n = 0; n < 2; n++) pthread_create(&threads[n], 0, waiter, (void *)n);
        usleep(10000);
        words[2] = 5;
        #define OP(op, arg, cmp, with) ((op) << 28 | (cmp) << 24 | ((arg) & 0xfff) << 12 | ((with) & 0xfff))
        words[3] = 7;
        SAY("%ld %u ", futex(&words[0], 5, 1, (void *)1, &words[3], OP(1u, 3, 0, 6)), words[3]);
        SAY("%ld %u ", futex(&words[0], 5, 1, (void *)1, &words[3], OP(4u, 3, 4, -1)), words[3]);
        SAY("%ld %u ", futex(&words[0], 5, 1, (void *)1, &words[3], OP(8u | 2, 5, 2, 3)), words[3]);
        SAY("%ld ", futex(&words[0], 5, 1, (void *)1, &words[3], OP(7u, 5, 2, 3)));
        pthread_join(threads[0], 0);
        SAY("%ld ", futex(&words[3], 5, 1, (void *)1, &words[1], OP(0u, 1, 0, 0))); pthread_join(threads[1], 0); SAY("%u %d %d\n", words[1], results[0], results[1]);
        SAY("%ld %ld\n", futex(&words[0], 1 | 256, 1, 0, 0, 0), futex(&words[0], 99, 1, 0, 0, 0));
        return 0;
    }"#;

#[test]
fn futexes_with_owners_and_many_at_once() {
    as_natively("futexes", FUTEXES);
}

#[test]
fn mutexes_of_all_kinds_outlive_their_owners() {
    as_natively(
        "mutexes",
        r#"
        static pthread_mutex_t *mutex;
        static void *dies(void *unused) { pthread_mutex_lock(mutex); return 0; }
        static void *adds(void *sum) { for (int n = 0; n < 200; n++) { pthread_mutex_lock(mutex); long v = *(volatile long *)sum; if (n % 50 == 0) usleep(100); *(volatile long *)sum = v + 1; pthread_mutex_unlock(mutex); } return 0; }
        int main(void) {
            mutex = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            long *sum = (long *)(mutex + 1); volatile long *locked = sum + 1;
            for (int kind = 0; kind < 4; kind++) {
                pthread_mutexattr_t attributes; pthread_mutexattr_init(&attributes);
                pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
                if (kind & 1) pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
                if (kind & 2) pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
                TRY(pthread_mutex_init(mutex, &attributes));
                *sum = *locked = 0;
                pthread_t threads[3];
                for (int n = 0; n < 3; n++) pthread_create(&threads[n], 0, adds, sum);
                for (int n = 0; n < 3; n++) pthread_join(threads[n], 0);
                pid_t child = fork(); if (child == 0) { adds(sum); _exit(0); }
                adds(sum); wait(0); SAY("%ld\n", *sum);
                struct timespec soon; clock_gettime(CLOCK_REALTIME, &soon); soon.tv_nsec += 1 * MS; if (soon.tv_nsec >= 1000 * MS) { soon.tv_sec++; soon.tv_nsec -= 1000 * MS; }
                if (kind & 2) {
                    pthread_create(&threads[0], 0, dies, 0); pthread_join(threads[0], 0);
                    TRY(pthread_mutex_lock(mutex)); TRY(pthread_mutex_consistent(mutex)); TRY(pthread_mutex_unlock(mutex));
                    // A process that is killed while another one waits.
                    child = fork(); if (child == 0) { pthread_mutex_lock(mutex); *locked = 1; for (;;) pause(); }
                    while (!*locked) usleep(100);
                    pid_t killer = fork(); if (killer == 0) { usleep(20000); kill(child, SIGKILL); _exit(0); }
                    TRY(pthread_mutex_lock(mutex)); TRY(pthread_mutex_consistent(mutex)); TRY(pthread_mutex_unlock(mutex)); TRY(pthread_mutex_lock(mutex)); TRY(pthread_mutex_unlock(mutex));
                    wait(0); wait(0);
                    // And one that calls exec.
                    child = fork(); if (child == 0) { pthread_mutex_lock(mutex); execl("/bin/true", "true", (char *)0); _exit(1); }
                    waitpid(child, 0, 0); TRY(pthread_mutex_lock(mutex)); TRY(pthread_mutex_consistent(mutex)); TRY(pthread_mutex_unlock(mutex));
                } else {
                    child = fork(); if (child == 0) { pthread_mutex_lock(mutex); *locked = 1; while (*locked == 1) usleep(100); usleep(20000); pthread_mutex_unlock(mutex); _exit(0); }
                    while (!*locked) usleep(100);
                    // The owner keeps it until both have failed: who got it here would wait for itself.
                    TRY(pthread_mutex_timedlock(mutex, &soon)); TRY(pthread_mutex_trylock(mutex)); *locked = 2; TRY(pthread_mutex_lock(mutex)); TRY(pthread_mutex_unlock(mutex)); wait(0);
                }
            }
            return 0;
        }"#,
    );
}
