//! Timers, and descriptors of timers and signals: on each engine as the host does it, and the same at replay.

use crate::each_engine;
use crate::harness::{Run, each_libc};
use vmm::process::Step;

/// What every program here begins with.
const BEGIN: &str = r#"
    #define _GNU_SOURCE
    #include <errno.h>
    #include <fcntl.h>
    #include <poll.h>
    #include <pthread.h>
    #include <sched.h>
    #include <signal.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/epoll.h>
    #include <sys/mman.h>
    #include <sys/prctl.h>
    #include <sys/resource.h>
    #include <sys/select.h>
    #include <sys/signalfd.h>
    #include <sys/syscall.h>
    #include <sys/time.h>
    #include <sys/timerfd.h>
    #include <sys/times.h>
    #include <sys/wait.h>
    #include <time.h>
    #include <unistd.h>
    #define SAY(...) (printf(__VA_ARGS__), fflush(stdout))
    #define TRY(call) ({ errno = 0; long r_ = (long)(call); SAY("%d: %s = %ld%s%s\n", __LINE__, #call, r_, errno ? " " : "", errno ? strerror(errno) : ""); r_; })
    static inline int64_t now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000LL + t.tv_nsec; }
    static void on(int signal, void *handler, int flags) {
        struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
        sigemptyset(&action.sa_mask);
        sigaction(signal, &action, 0);
    }
    static inline sigset_t set_of(int signal) { sigset_t set; sigemptyset(&set); sigaddset(&set, signal); return set; }
    static inline void block(int signal) { sigset_t set = set_of(signal); sigprocmask(SIG_BLOCK, &set, 0); }
    #define MS 1000000L
"#;

/// Runs a program of which the host and each engine must make the same, and which exits with zero.
pub(crate) fn as_natively(name: &str, source: &str) {
    each_libc(name, &format!("{BEGIN}{source}"), &["-pthread"], |program| {
        let run = Run::new(program, &[]);
        let (output, status) = run.natively();
        assert_eq!(status, Some(0), "{name} natively: {}", String::from_utf8_lossy(&output));
        each_engine(&run, |ran| {
            assert_eq!(String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&output), "{name}");
            assert_eq!(ran.end, Step::Exited(0), "{name}");
        });
    });
}

/// KVM does not tell of the exception of an INT3 that it is about to deliver when a kick makes it come back.
#[test]
fn no_breakpoint_of_a_program_is_lost_to_a_timer() {
    as_natively(
        "breakpoints",
        r#"
        static volatile long traps, spent;
        static void trap(int signal) { traps++; }
        static void alarmed(int signal) { }
        int main(void) {
            on(SIGTRAP, trap, 0);
            on(SIGALRM, alarmed, SA_RESTART);
            struct itimerval often = { { 0, 1000 }, { 0, 1000 } };
            setitimer(ITIMER_REAL, &often, 0);
            for (long n = 1; n <= 1500; n++) {
                for (int turn = 0; turn < 50; turn++) spent++;
                __asm__ volatile("int3");
                if (traps != n) { SAY("lost\n"); return 1; }
            }
            SAY("%ld\n", traps);
            return 0;
        }"#,
    );
}

#[test]
fn an_alarm_ends_a_loop() {
    let source = "#include <unistd.h>\nint main(void) { alarm(1); while (1); }";
    each_libc("loop", source, &[], |program| {
        each_engine(&Run::new(program, &[]), |ran| {
            let Step::Killed(death) = ran.end else { panic!("{:?}", ran.end) };
            assert_eq!(death.signal, libc::SIGALRM);
        });
    });
}

#[test]
fn a_handler_runs_between_two_instructions_of_a_computation() {
    as_natively(
        "between",
        r#"
        static volatile sig_atomic_t count;
        static volatile double sum;
        static void tick(int signal) { count++; double a = 3; for (int n = 0; n < 50; n++) a = a * 1.5 - 2; sum = a; }
        int main(void) {
            on(SIGALRM, tick, 0);
            struct itimerval every = { { 0, 10000 }, { 0, 10000 } }, got;
            setitimer(ITIMER_REAL, &every, 0);
            uint64_t hash = 1;
            double x = 0;
            long turns = 0;
            while (count < 4) {
                for (int n = 0; n < 1000; n++) { hash = hash * 6364136223846793005u + 1; hash ^= hash >> 29; x = x * 0.5 + 1; }
                turns++;
            }
            TRY(getitimer(ITIMER_REAL, &got));
            SAY("%d %d %d\n", got.it_interval.tv_usec == 10000, got.it_value.tv_usec <= 10000, x > 1.99);
            memset(&every, 0, sizeof every);
            TRY(setitimer(ITIMER_REAL, &every, &got));
            SAY("%ld %d\n", got.it_interval.tv_usec, got.it_value.tv_usec > 0);
            int before = count;
            usleep(30000);
            SAY("%d %d\n", count == before, turns > 0);
            // Alarms replace each other, and say what was left.
            TRY(alarm(100)); TRY(alarm(7)); TRY(alarm(0)); TRY(alarm(0));
            TRY(setitimer(9, &every, 0));
            every.it_value.tv_usec = 1000000;
            TRY(setitimer(ITIMER_REAL, &every, 0));
            return 0;
        }"#,
    );
}

/// One instruction with a REP prefix takes as long as a hundred thousand others, and a kick hardly ever falls between two. It took a
/// minute for fewer ticks than these.
#[test]
fn timers_are_in_time_among_long_string_instructions() {
    as_natively(
        "strings",
        r#"
        static volatile sig_atomic_t ticks;
        static char filled[1 << 20];
        static void tick(int signal) { ticks++; }
        int main(void) {
            on(SIGALRM, tick, 0);
            struct itimerval every = { { 0, 10000 }, { 0, 10000 } };
            int64_t begun = now();
            setitimer(ITIMER_REAL, &every, 0);
            for (long round = 0; ticks < 100; round++) {
                void *to = filled;
                long left = sizeof filled / 8;
                __asm__ volatile("rep stosq" : "+D"(to), "+c"(left) : "a"(round) : "memory");
                for (unsigned long at = 8; at < sizeof filled; at += 4096) if (*(long *)(filled + at) != round) return 1;
            }
            SAY("%d\n", now() - begun < 20000 * MS);
            return 0;
        }"#,
    );
}

#[test]
fn processor_time_is_counted_while_the_program_runs() {
    as_natively(
        "virtual",
        r#"
        static volatile sig_atomic_t virtual, profile, asleep;
        static void tick(int signal) { if (signal == SIGVTALRM) virtual++; else profile++; asleep = asleep ? -1 : 0; }
        int main(void) {
            on(SIGVTALRM, tick, 0); on(SIGPROF, tick, 0);
            struct itimerval every = { { 0, 20000 }, { 0, 20000 } };
            TRY(setitimer(ITIMER_VIRTUAL, &every, 0)); TRY(setitimer(ITIMER_PROF, &every, 0));
            while (virtual < 3 || profile < 3);
            asleep = 1;
            usleep(100000);
            SAY("asleep %d\n", asleep);
            memset(&every, 0, sizeof every);
            setitimer(ITIMER_VIRTUAL, &every, 0); setitimer(ITIMER_PROF, &every, 0);
            struct timespec process, thread;
            TRY(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &process)); TRY(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &thread));
            SAY("%d %d\n", process.tv_sec > 0 || process.tv_nsec > 20 * MS, thread.tv_sec > 0 || thread.tv_nsec > 20 * MS);
            clockid_t clock;
            TRY(pthread_getcpuclockid(pthread_self(), &clock)); TRY(clock_gettime(clock, &thread)); TRY(clock_getres(clock, &thread));
            TRY(clock_getcpuclockid(0, &clock)); TRY(clock_gettime(clock, &thread));
            struct rusage usage; struct tms tms;
            TRY(getrusage(RUSAGE_SELF, &usage));
            SAY("%d %d\n", usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec > 20000, times(&tms) > 0 && tms.tms_utime + tms.tms_stime > 1);
            TRY(getrusage(5, &usage));
            volatile char *large = malloc(40 << 20); for (int i = 0; i < 40 << 20; i += 4096) large[i] = 1;
            TRY(getrusage(RUSAGE_SELF, &usage));
            SAY("%d\n", usage.ru_maxrss >= 40 << 10 && usage.ru_maxrss < 800 << 10);
            // The limit of processor time: SIGXCPU, and a child that has had too much.
            if (fork() == 0) { struct rlimit one = { 1, 60 }; setrlimit(RLIMIT_CPU, &one); for (;;); }
            int status; wait(&status);
            SAY("%d %d\n", WIFSIGNALED(status), WTERMSIG(status) == SIGXCPU);
            getrusage(RUSAGE_CHILDREN, &usage);
            SAY("%d\n", usage.ru_utime.tv_sec + usage.ru_stime.tv_sec >= 0 && usage.ru_utime.tv_sec < 20);
            return 0;
        }"#,
    );
}

#[test]
fn posix_timers_signal_processes_and_threads() {
    as_natively(
        "posix",
        r#"
        static volatile sig_atomic_t count, other;
        static volatile int value, code, told;
        static void handler(int signal, siginfo_t *info, void *context) { count++; value = info->si_value.sival_int; code = info->si_code; }
        static void *waits(void *unused) {
            sigset_t set = set_of(SIGRTMIN + 2); siginfo_t info;
            other = syscall(SYS_gettid);
            int signal = sigwaitinfo(&set, &info);
            SAY("%d %d %d\n", signal == SIGRTMIN + 2, info.si_code == SI_TIMER, info.si_value.sival_int);
            return 0;
        }
        static void notified(union sigval value) { SAY("thread %d\n", value.sival_int); told = 1; }
        int main(void) {
            struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
            sigaction(SIGRTMIN + 1, &action, 0); sigaction(SIGALRM, &action, 0);
            timer_t timer, second, none, default_;
            struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1, .sigev_value.sival_int = 77 };
            TRY(timer_create(CLOCK_MONOTONIC, &event, &timer));
            struct itimerspec once = { { 0, 0 }, { 0, 5 * MS } }, every = { { 0, 2 * MS }, { 0, 2 * MS } }, off = { 0 }, got;
            TRY(timer_settime(timer, 0, &once, 0));
            while (!count);
            SAY("%d %d %d\n", count, value, code == SI_TIMER);
            TRY(timer_gettime(timer, &got)); SAY("%ld %ld\n", got.it_value.tv_sec, got.it_value.tv_nsec);
            // Blocked for a while: one signal, and the rest counted.
            block(SIGRTMIN + 1);
            TRY(timer_settime(timer, 0, &every, 0));
            usleep(50000);
            sigset_t set = set_of(SIGRTMIN + 1); siginfo_t info;
            TRY(sigwaitinfo(&set, &info) == SIGRTMIN + 1);
            SAY("%d %d\n", info.si_overrun > 5, timer_getoverrun(timer) == info.si_overrun);
            TRY(timer_settime(timer, 0, &off, &got)); SAY("%ld %d\n", got.it_interval.tv_nsec, got.it_value.tv_nsec > 0);
            // An absolute time, and one in the past.
            struct itimerspec past = { { 0, 0 }, { 1, 0 } };
            TRY(timer_settime(timer, TIMER_ABSTIME, &past, 0));
            TRY(sigwaitinfo(&set, &info) == SIGRTMIN + 1);
            // A thread's.
            pthread_t thread; sigset_t two = set_of(SIGRTMIN + 2); sigprocmask(SIG_BLOCK, &two, 0);
            pthread_create(&thread, 0, waits, 0);
            while (!other) sched_yield();
            struct sigevent of_thread = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 2, .sigev_value.sival_int = 5 };
            ((int *)&of_thread)[4] = other;
            TRY(syscall(SYS_timer_create, CLOCK_REALTIME, &of_thread, &second) < 0);
            int id;
            TRY(syscall(SYS_timer_create, CLOCK_REALTIME, &of_thread, &id));
            TRY(syscall(SYS_timer_settime, id, 0, &once, 0));
            pthread_join(thread, 0);
            // None, and the default.
            struct sigevent silent = { .sigev_notify = SIGEV_NONE };
            TRY(timer_create(CLOCK_BOOTTIME, &silent, &none)); TRY(timer_settime(none, 0, &every, 0)); usleep(5000);
            TRY(timer_gettime(none, &got)); SAY("%d\n", got.it_value.tv_nsec > 0 && got.it_value.tv_nsec <= 2 * MS);
            count = 0;
            TRY(timer_create(CLOCK_REALTIME, 0, &default_)); TRY(timer_settime(default_, 0, &once, 0));
            while (!count) pause();
            SAY("%d\n", code == SI_TIMER);
            struct sigevent by_thread = { .sigev_notify = SIGEV_THREAD, .sigev_notify_function = notified, .sigev_value.sival_int = 9 };
            timer_t third;
            TRY(timer_create(CLOCK_MONOTONIC, &by_thread, &third)); TRY(timer_settime(third, 0, &once, 0));
            while (!told) usleep(1000);
            TRY(timer_delete(third));
            // Of processor time.
            count = 0; event.sigev_signo = SIGALRM;
            TRY(timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &third)); TRY(timer_settime(third, 0, &once, 0));
            while (!count);
            TRY(timer_delete(none)); TRY(syscall(SYS_timer_delete, 1234)); TRY(syscall(SYS_timer_settime, 1234, 0, &once, 0));
            TRY(timer_create(99, &event, &none)); event.sigev_signo = 99; TRY(timer_create(CLOCK_MONOTONIC, &event, &none));
            once.it_value.tv_nsec = 1000 * MS; TRY(timer_settime(timer, 0, &once, 0));
            return 0;
        }"#,
    );
}

#[test]
fn timer_descriptors_are_read_and_polled() {
    as_natively(
        "timerfd",
        r#"
        int main(void) {
            int timer = TRY(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
            uint64_t times = 0;
            TRY(read(timer, &times, 8)); TRY(read(timer, &times, 4)); TRY(write(timer, &times, 8));
            struct itimerspec once = { { 0, 0 }, { 0, 20 * MS } }, every = { { 0, 5 * MS }, { 0, 5 * MS } }, off = { 0 }, got;
            int64_t begin = now();
            TRY(timerfd_settime(timer, 0, &once, 0));
            TRY(timerfd_gettime(timer, &got)); SAY("%d\n", got.it_value.tv_nsec > 0);
            struct pollfd polled = { timer, POLLIN };
            TRY(poll(&polled, 1, 0));
            TRY(poll(&polled, 1, 2000)); SAY("%d %d\n", polled.revents, now() - begin >= 20 * MS);
            TRY(read(timer, &times, 8)); SAY("%d\n", (int)times); TRY(read(timer, &times, 8)); TRY(poll(&polled, 1, 0));
            TRY(timerfd_settime(timer, 0, &every, &got));
            usleep(40000);
            TRY(read(timer, &times, 8)); SAY("%d\n", times >= 7);
            int set = epoll_create1(0); struct epoll_event event = { EPOLLIN, { .u64 = 42 } }, came;
            TRY(epoll_ctl(set, EPOLL_CTL_ADD, timer, &event));
            TRY(epoll_wait(set, &came, 1, -1)); SAY("%d\n", (int)came.data.u64);
            TRY(fcntl(timer, F_SETFL, 0));
            TRY(read(timer, &times, 8)); TRY(read(timer, &times, 8)); SAY("%d\n", (int)times > 0);
            TRY(timerfd_settime(timer, 0, &off, 0)); TRY(timerfd_gettime(timer, &got)); SAY("%ld %ld\n", got.it_value.tv_nsec, got.it_interval.tv_nsec);
            struct timespec real; clock_gettime(CLOCK_REALTIME, &real);
            int second = TRY(timerfd_create(CLOCK_REALTIME, 0));
            struct itimerspec at = { { 0, 0 }, { real.tv_sec, real.tv_nsec } };
            TRY(timerfd_settime(second, TFD_TIMER_ABSTIME, &at, 0)); TRY(read(second, &times, 8)); SAY("%d\n", (int)times);
            fd_set files; FD_ZERO(&files); FD_SET(second, &files); struct timeval limit = { 0, 10000 };
            TRY(select(second + 1, &files, 0, 0, &limit));
            TRY(timerfd_create(99, 0)); TRY(timerfd_settime(0, 0, &at, 0)); TRY(timerfd_settime(99, 0, &at, 0)); TRY(timerfd_create(CLOCK_MONOTONIC, 1));
            // A child reads the same one.
            TRY(timerfd_settime(second, 0, &once, 0));
            if (fork() == 0) { read(second, &times, 8); SAY("child %d\n", (int)times); exit(0); }
            wait(0);
            return 0;
        }"#,
    );
}

#[test]
fn signal_descriptors_give_what_is_pending() {
    as_natively(
        "signalfd",
        r#"
        static volatile sig_atomic_t handled;
        static void handler(int signal) { handled++; }
        static void *sends(void *file) { usleep(10000); kill(getpid(), SIGUSR1); return 0; }
        int main(void) {
            sigset_t set; sigemptyset(&set); sigaddset(&set, SIGUSR1); sigaddset(&set, SIGCHLD); sigaddset(&set, SIGRTMIN + 3); sigaddset(&set, SIGALRM);
            sigprocmask(SIG_BLOCK, &set, 0);
            int file = TRY(signalfd(-1, &set, SFD_NONBLOCK));
            struct signalfd_siginfo info[4];
            TRY(read(file, info, sizeof info)); TRY(read(file, info, 64));
            struct pollfd polled = { file, POLLIN };
            TRY(poll(&polled, 1, 0));
            kill(getpid(), SIGUSR1);
            TRY(poll(&polled, 1, 0));
            union sigval value = { .sival_int = 31 };
            sigqueue(getpid(), SIGRTMIN + 3, value); value.sival_int = 32; sigqueue(getpid(), SIGRTMIN + 3, value);
            TRY(read(file, info, sizeof info) / 128);
            SAY("%d %d %d\n", info[0].ssi_signo, info[0].ssi_code, info[0].ssi_pid == getpid());
            SAY("%d %d %d %d\n", info[1].ssi_signo == SIGRTMIN + 3, info[1].ssi_code == SI_QUEUE, info[1].ssi_int, info[2].ssi_int);
            TRY(poll(&polled, 1, 0));
            fcntl(file, F_SETFL, 0);
            pthread_t thread; pthread_create(&thread, 0, sends, 0);
            TRY(read(file, info, sizeof info) / 128); SAY("%d\n", info[0].ssi_signo); pthread_join(thread, 0);
            pthread_create(&thread, 0, sends, 0);
            TRY(poll(&polled, 1, -1)); TRY(read(file, info, sizeof info) / 128); pthread_join(thread, 0);
            int set2 = epoll_create1(0); struct epoll_event event = { EPOLLIN, { .u64 = 7 } };
            epoll_ctl(set2, EPOLL_CTL_ADD, file, &event);
            if (fork() == 0) exit(5);
            TRY(epoll_wait(set2, &event, 1, -1)); TRY(read(file, info, sizeof info) / 128);
            SAY("%d %d %d\n", info[0].ssi_signo, info[0].ssi_status, info[0].ssi_code == CLD_EXITED);
            TRY(wait(0) > 0); TRY(poll(&polled, 1, 0));
            alarm(1); TRY(read(file, info, sizeof info) / 128); SAY("%d\n", info[0].ssi_signo);
            // Another mask; a signal that is not in it interrupts the read.
            on(SIGUSR2, handler, 0);
            set = set_of(SIGUSR1); TRY(signalfd(file, &set, 0) == file);
            struct itimerval soon = { { 0, 0 }, { 0, 10000 } }; sigset_t alarm_ = set_of(SIGALRM); on(SIGALRM, handler, 0);
            sigprocmask(SIG_UNBLOCK, &alarm_, 0); setitimer(ITIMER_REAL, &soon, 0);
            TRY(read(file, info, sizeof info)); SAY("%d\n", handled);
            TRY(signalfd(0, &set, 0)); TRY(signalfd(-1, &set, 1)); TRY(write(file, info, 128));
            return 0;
        }"#,
    );
}

#[test]
fn a_blocking_call_is_interrupted_by_a_timer() {
    as_natively(
        "interrupted",
        r#"
        static volatile sig_atomic_t count;
        static void tick(int signal) { count++; }
        int main(void) {
            int ends[2]; pipe(ends); char byte;
            struct itimerval soon = { { 0, 0 }, { 0, 10000 } };
            on(SIGALRM, tick, 0);
            setitimer(ITIMER_REAL, &soon, 0); TRY(read(ends[0], &byte, 1));
            setitimer(ITIMER_REAL, &soon, 0); TRY(poll(0, 0, -1));
            setitimer(ITIMER_REAL, &soon, 0); TRY(pause());
            struct timespec second = { 1, 0 }, left = { 0 };
            setitimer(ITIMER_REAL, &soon, 0); TRY(nanosleep(&second, &left)); SAY("%d\n", left.tv_sec == 0 && left.tv_nsec > 500 * MS);
            int epoll = epoll_create1(0); struct epoll_event event;
            setitimer(ITIMER_REAL, &soon, 0); TRY(epoll_wait(epoll, &event, 1, 5000));
            // With SA_RESTART a read goes on: the second timer's handler writes.
            on(SIGALRM, tick, SA_RESTART);
            if (fork() == 0) { usleep(60000); write(ends[1], "x", 1); exit(0); }
            setitimer(ITIMER_REAL, &soon, 0); TRY(read(ends[0], &byte, 1)); SAY("%c %d\n", byte, count);
            wait(0);
            setitimer(ITIMER_REAL, &soon, 0); TRY(poll(0, 0, 2000)); SAY("%d\n", count);
            return 0;
        }"#,
    );
}

/// What tells one turn from the next is in a vector register alone.
#[test]
fn a_loop_that_counts_in_a_vector_register_is_interrupted_where_it_was() {
    let source = r#"
        #define _GNU_SOURCE
        #include <signal.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/time.h>
        #include <ucontext.h>
        #include <unistd.h>
        static void tick(int signal, siginfo_t *info, void *context) {
            double count;
            memcpy(&count, &((ucontext_t *)context)->uc_mcontext.fpregs->_xmm[0], sizeof count);
            // On a loaded machine the first signal may come before the loop.
            if (!(count > 0)) return;
            char text[40];
            write(1, text, snprintf(text, sizeof text, "%.0f\n", count));
            _exit(0);
        }
        int main(void) {
            struct sigaction action = { .sa_sigaction = tick, .sa_flags = SA_SIGINFO };
            sigaction(SIGALRM, &action, 0);
            struct itimerval every = { { 0, 2000 }, { 0, 2000 } };
            setitimer(ITIMER_REAL, &every, 0);
            // The roots of one take time, so that there are not too many turns to search.
            __asm__ volatile(
                "xorpd %%xmm0, %%xmm0\nmovsd %0, %%xmm1\n"
                "1: .rept 16\nsqrtsd %%xmm1, %%xmm1\n.endr\naddsd %%xmm1, %%xmm0\njmp 1b"
                : : "m"((double){1}) : "xmm0", "xmm1");
        }"#;
    each_libc("counts", source, &[], |program| {
        each_engine(&Run::new(program, &[]), |ran| assert_eq!(ran.end, Step::Exited(0)));
    });
}
