//! What time a program is told that computes for long without a system call.

use crate::harness::{Run, each_libc};
use crate::{each_engine, prints};
use vmm::process::Step;

/// Measures a computation by the vDSO, within a measurement by real calls, three times. On a busy host the kick may come late
/// once.
const MEASURED: &str = r#"
    #include <stdio.h>
    #include <sys/syscall.h>
    #include <time.h>
    #include <unistd.h>
    static double in_seconds(struct timespec at) { return at.tv_sec + at.tv_nsec * 1e-9; }
    static double real(void) { struct timespec at; syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &at); return in_seconds(at); }
    static double told(void) { struct timespec at; clock_gettime(CLOCK_MONOTONIC, &at); return in_seconds(at); }
    int main(void) {
        int wrong = 0;
        for (int n = 0; n < 3; n++) {
            double real_start = real(), start = told();
            volatile unsigned long sum = 0;
            for (long k = 0; k < 60000000; k++) sum += k;
            double end = told(), real_end = real();
            double share = (end - start) / (real_end - real_start);
            if (share < 0.5 || share > 1) wrong++;
        }
        puts(wrong > 1 ? "not measured" : "measured");
        return 0;
    }"#;

#[test]
fn a_computation_takes_as_long_as_it_takes() {
    each_libc("measured", MEASURED, &[], |program| {
        each_engine(&Run::new(program, &[]), |ran| {
            assert_eq!((prints(ran).as_str(), ran.end), ("measured\n", Step::Exited(0)));
            assert!(ran.early_calls() >= 2, "the second of each pair");
        });
    });
}

/// Two threads that compute and ask for the time in turns, so that they are preempted before and behind such a call.
const IN_TURNS: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    #include <time.h>
    static long told(void) {
        struct timespec at;
        clock_gettime(CLOCK_MONOTONIC, &at);
        return at.tv_sec * 1000000000L + at.tv_nsec;
    }
    static long backwards;
    static void *compute(void *count) {
        long before = told();
        for (long n = 0; n < 40; n++) {
            volatile unsigned long sum = 0;
            for (long k = 0; k < (long)count * (n % 7); k++) sum += k;
            long now = told();
            if (now <= before) backwards++;
            before = now;
        }
        return 0;
    }
    int main(void) {
        pthread_t threads[2];
        pthread_create(&threads[0], 0, compute, (void *)300000L);
        pthread_create(&threads[1], 0, compute, (void *)500000L);
        for (int n = 0; n < 2; n++) pthread_join(threads[n], 0);
        printf("%ld\n", backwards);
        return 0;
    }"#;

#[test]
fn threads_that_compute_and_ask_are_told_the_same_again() {
    each_libc("in-turns", IN_TURNS, &["-pthread"], |program| {
        each_engine(&Run::new(program, &[]), |ran| {
            assert_eq!((prints(ran).as_str(), ran.end), ("0\n", Step::Exited(0)));
        });
    });
}
