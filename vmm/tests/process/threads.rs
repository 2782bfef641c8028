//! Threads: what they do on each engine is what the host makes of them, and every recording replays on every engine.

use crate::each_engine;
use crate::harness::{Engine, PID, Run, each_libc, engines};
use vmm::process::Step;

#[test]
fn all_that_pthread_gives_is_as_natively() {
    let source = include_str!("../../../guest-images/programs/threads.c");
    each_libc("threads", source, &["-pthread"], |program| {
        let run = Run::new(program, &[]);
        let (output, status) = run.natively();
        each_engine(&run, |ran| {
            assert_eq!(String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&output));
            assert_eq!((ran.end, status), (Step::Exited(0), Some(0)));
        });
    });
}

/// The second thread crashes while the first joins it and the third sleeps.
const CRASH: &str = r"
    #include <pthread.h>
    #include <unistd.h>
    static int *volatile nowhere;
    static void *crash(void *unused) { usleep(1000); return (void *)(long)*nowhere; }
    static void *asleep(void *unused) { sleep(1000); return unused; }
    int main(void) {
        pthread_t one, other;
        pthread_create(&one, 0, crash, 0);
        pthread_create(&other, 0, asleep, 0);
        return pthread_join(one, 0);
    }";

#[test]
fn a_crash_leaves_the_registers_of_every_thread() {
    each_libc("crash", CRASH, &["-pthread"], |program| {
        each_engine(&Run::new(program, &[]), |ran| {
            let Step::Killed(death) = ran.end else { panic!("{:?}", ran.end) };
            assert_eq!((death.signal, death.address), (libc::SIGSEGV, 0));
            let process = &ran.process;
            assert_eq!((process.thread(), process.threads_started()), (PID + 1, 3));
            let others: Vec<i32> = process.other_threads().map(|(id, _)| id).collect();
            assert_eq!(others, [PID, PID + 2]);
            let crashed = process.cpu().regs().fs_base;
            assert!(process.other_threads().all(|(_, state)| state.regs.fs_base != crashed));
        });
    });
}

/// Two threads that spin for each other, with nothing but PAUSE.
const SPIN: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    static volatile int turn;
    static void *spin(void *unused) {
        for (int n = 1; n < 200; n += 2) {
            while (turn != n) __builtin_ia32_pause();
            turn = n + 1;
        }
        return unused;
    }
    int main(void) {
        pthread_t thread;
        pthread_create(&thread, 0, spin, 0);
        for (int n = 0; n < 200; n += 2) {
            while (turn != n) __builtin_ia32_pause();
            turn = n + 1;
        }
        pthread_join(thread, 0);
        printf("%d\n", turn);
    }"#;

#[test]
fn who_pauses_gives_way() {
    each_libc("spin", SPIN, &["-pthread"], |program| {
        each_engine(&Run::new(program, &[]), |ran| {
            assert_eq!((ran.end, &*ran.stdout), (Step::Exited(0), &b"200\n"[..]));
        });
    });
}

#[test]
fn who_waits_by_looking_gives_way_while_others_can_run() {
    let source = SPIN.replace("__builtin_ia32_pause()", "");
    each_libc("look", &source, &["-pthread"], |program| {
        each_engine(&Run::new(program, &[]), |ran| {
            assert_eq!((ran.end, &*ran.stdout), (Step::Exited(0), &b"200\n"[..]));
        });
        let ran = Run::new(program, &[]).on(Engine::Soft);
        let retired = ran.process.cpu().counters().expect("it counts").instructions;
        // A slice is of some million instructions.
        assert!(retired < 200 * 10_000, "{retired} instructions for 200 turns");
    });
}

#[test]
fn who_counts_its_looks_gives_way_while_others_can_run() {
    let source = SPIN.replace(
        "while (turn != n) __builtin_ia32_pause();",
        "while (turn != n) for (int i = 0; i < 1000000 && turn != n; i++) ;",
    );
    each_libc("count", &source, &["-pthread", "-O1"], |program| {
        each_engine(&Run::new(program, &[]), |ran| {
            assert_eq!((ran.end, &*ran.stdout), (Step::Exited(0), &b"200\n"[..]));
            // Under KVM a task that was kicked goes on where it can be counted.
            let [counted, kicked] = ran.preemptions();
            assert!(counted >= 5 * kicked, "{counted} preemptions at a count, {kicked} by a kick");
        });
        let ran = Run::new(program, &[]).on(Engine::Soft);
        let retired = ran.process.cpu().counters().expect("it counts").instructions;
        // A slice is of some million instructions.
        assert!(retired < 200 * 20_000, "{retired} instructions for 200 turns");
    });
}

#[test]
fn a_loop_that_stores_or_counts_keeps_its_slice() {
    let source = r#"
        #include <pthread.h>
        #include <stdio.h>
        static volatile int done, stored;
        static void *count(void *unused) {
            unsigned long turns = 0;
            for (; turns < 2000000; turns++) __asm__ volatile("");
            for (int n = 0; n < 2000000; n++) (void)stored;
            for (int n = 0; n < 2000000; n++) stored = 7;
            done = 1;
            return (void *)turns;
        }
        int main(void) {
            pthread_t thread;
            void *turns;
            pthread_create(&thread, 0, count, 0);
            while (!done) ;
            pthread_join(thread, &turns);
            printf("%ld\n", (long)turns);
        }"#;
    each_libc("counts", source, &["-pthread", "-O1"], |program| {
        let ran = Run::new(program, &[]).on(Engine::Soft);
        assert_eq!((ran.end, &*ran.stdout), (Step::Exited(0), &b"2000000\n"[..]));
        // The thread that works is stopped as seldom as slices end, and each time the other one gives way at once.
        let retired = ran.process.cpu().counters().expect("it counts").instructions;
        let events = ran.process.position().event;
        assert!(events < 300 && retired < 30_000_000, "{events} events, {retired} instructions");
        ran.replay_on(Engine::Soft);
    });
}

/// Calls themselves, without a C library in between.
const RAW: &str = r#"
    #define _GNU_SOURCE
    #include <errno.h>
    #define FUTEX_WAIT 0
    #define FUTEX_WAKE 1
    #define FUTEX_REQUEUE 3
    #define FUTEX_CMP_REQUEUE 4
    #define FUTEX_WAIT_BITSET 9
    #define FUTEX_WAKE_BITSET 10
    #include <pthread.h>
    #include <sched.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/epoll.h>
    #include <sys/eventfd.h>
    #include <sys/syscall.h>
    #include <time.h>
    #include <unistd.h>
    static uint32_t here, there, woken;
    static long futex(uint32_t *at, int what, uint32_t value, void *time, uint32_t *second, uint32_t last) {
        long result = syscall(SYS_futex, at, what, value, time, second, last);
        return result < 0 ? -errno : result;
    }
    static void *waiter(void *unused) {
        if (futex(&here, FUTEX_WAIT, 0, 0, 0, 0) == 0) __atomic_add_fetch(&woken, 1, __ATOMIC_SEQ_CST);
        return unused;
    }
    static int set, event;
    static void *poster(void *unused) {
        uint64_t one = 1;
        usleep(2000);
        write(event, &one, 8);
        return unused;
    }
    int main(void) {
        struct timespec soon = {0, 1000000}, past = {1, 0};
        printf("%ld ", futex(&here, FUTEX_WAIT, 1, 0, 0, 0));
        printf("%ld ", futex(&here, FUTEX_WAIT, 0, &soon, 0, 0));
        printf("%ld ", futex(&here, FUTEX_WAIT_BITSET, 0, &past, 0, 1));
        printf("%ld ", futex(&here, FUTEX_WAIT_BITSET, 0, 0, 0, 0));
        printf("%ld ", futex((uint32_t *)((char *)&here + 1), FUTEX_WAKE, 1, 0, 0, 0));
        printf("%ld\n", futex(&here, FUTEX_WAKE, 1, 0, 0, 0));
        pthread_t threads[4];
        for (int n = 0; n < 4; n++) pthread_create(&threads[n], 0, waiter, 0);
        // Moved to where they are, they are counted: one that came later would wait for ever.
        while (futex(&here, FUTEX_REQUEUE, 0, (void *)4, &here, 0) < 4) usleep(1000);
        printf("%ld ", futex(&here, FUTEX_CMP_REQUEUE, 1, (void *)2, &there, 7));
        printf("%ld ", futex(&here, FUTEX_CMP_REQUEUE, 1, (void *)2, &there, 0));
        printf("%ld ", futex(&here, FUTEX_WAKE, 9, 0, 0, 0));
        printf("%ld ", futex(&there, FUTEX_WAKE_BITSET, 1, 0, 0, 4));
        printf("%ld\n", futex(&there, FUTEX_WAKE, 9, 0, 0, 0));
        for (int n = 0; n < 4; n++) pthread_join(threads[n], 0);
        printf("woken %u\n", woken);
        cpu_set_t processors;
        printf("affinity %d\n", sched_getaffinity(0, sizeof processors, &processors) >= 0);
        set = epoll_create1(0);
        event = eventfd(0, EFD_NONBLOCK);
        struct epoll_event wanted = {EPOLLIN, {.u64 = 0x123456789abcdef}}, got;
        printf("%d ", epoll_ctl(set, EPOLL_CTL_ADD, event, &wanted));
        printf("%d ", epoll_wait(set, &got, 1, 0));
        printf("%d ", epoll_wait(set, &got, 1, 3));
        pthread_create(&threads[0], 0, poster, 0);
        printf("%d ", epoll_wait(set, &got, 1, -1));
        pthread_join(threads[0], 0);
        printf("%llx\n", (unsigned long long)got.data.u64);
        return woken == 4 ? 5 : 6;
    }"#;

#[test]
fn futexes_and_epoll_are_as_natively() {
    each_libc("raw", RAW, &["-pthread"], |program| {
        let run = Run::new(program, &[]);
        let (output, status) = run.natively();
        assert_eq!(status, Some(5), "{}", String::from_utf8_lossy(&output));
        each_engine(&run, |ran| {
            assert_eq!(String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&output));
            assert_eq!(ran.end, Step::Exited(5));
        });
    });
}

/// The process's status is that of its last thread, if all end one by one.
const ENDS: &str = r"
    #define _GNU_SOURCE
    #include <pthread.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    static void *last(void *unused) { usleep(2000); syscall(SYS_exit, 9); return unused; }
    int main(void) {
        pthread_t thread;
        pthread_create(&thread, 0, last, 0);
        syscall(SYS_exit, 7);
    }";

#[test]
fn the_last_thread_to_end_ends_the_process() {
    each_libc("ends", ENDS, &["-pthread"], |program| {
        let run = Run::new(program, &[]);
        each_engine(&run, |ran| assert_eq!(ran.end, Step::Exited(9)));
    });
}

/// A thread waits for one that never comes.
const STUCK: &str = r"
    #include <pthread.h>
    #include <unistd.h>
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static void *take(void *unused) { pthread_mutex_lock(&lock); return unused; }
    int main(void) {
        pthread_t thread;
        pthread_mutex_lock(&lock);
        pthread_create(&thread, 0, take, 0);
        return pthread_join(thread, 0);
    }";

#[test]
fn threads_that_wait_for_each_other_wait_until_interrupted() {
    each_libc("stuck", STUCK, &["-pthread"], |program| {
        for kind in engines() {
            let mut process = Run::new(program, &[]).start(kind);
            while !process.waits() {
                assert_eq!(process.step().expect("it runs"), Step::Running);
            }
            process.cpu().interrupter().interrupt();
            assert_eq!(process.step().expect("it waits"), Step::Interrupted, "{}", kind.name());
        }
    });
}
