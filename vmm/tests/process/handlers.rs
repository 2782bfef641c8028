//! Handlers, masks of calls that wait, queued signals, stopped processes, frames: as the host does it, and the same at replay.

use crate::alarms::as_natively;

#[test]
fn masks_of_waiting_calls_and_the_time_left() {
    as_natively(
        "masks",
        r#"
        static volatile sig_atomic_t count;
        static void tick(int signal) { count++; }
        static int left(struct timespec *time) { return time->tv_sec == 0 && time->tv_nsec > 600 * MS && time->tv_nsec <= 1000 * MS; }
        int main(void) {
            sigset_t none, usr1 = set_of(SIGUSR1), now_; sigemptyset(&none);
            on(SIGUSR1, tick, SA_RESTART); on(SIGALRM, tick, 0);
            block(SIGUSR1);
            raise(SIGUSR1);
            int ends[2]; pipe(ends);
            struct pollfd polled = { ends[0], POLLIN };
            struct timespec second = { 0, 999 * MS };
            #define PENDING (sigpending(&now_), sigismember(&now_, SIGUSR1))
            SAY("%d\n", PENDING);
            TRY(syscall(SYS_ppoll, &polled, 1, &second, &none, 8)); SAY("%d %d %d\n", count, left(&second), PENDING);
            // What is ready wins, and the mask is back before the signal could come.
            raise(SIGUSR1); write(ends[1], "x", 1);
            TRY(ppoll(&polled, 1, 0, &none)); SAY("%d %d\n", count, PENDING);
            char byte; read(ends[0], &byte, 1);
            fd_set files; FD_ZERO(&files); FD_SET(ends[0], &files);
            second = (struct timespec){ 0, 999 * MS };
            struct { const sigset_t *set; long size; } mask = { &none, 8 };
            TRY(syscall(SYS_pselect6, ends[0] + 1, &files, 0, 0, &second, &mask)); SAY("%d %d\n", count, left(&second));
            raise(SIGUSR1);
            int epoll = epoll_create1(0); struct epoll_event event = { EPOLLIN };
            epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event);
            TRY(epoll_pwait(epoll, &event, 1, 1000, &none)); SAY("%d\n", count);
            raise(SIGUSR1);
            TRY(syscall(SYS_epoll_pwait2, epoll, &event, 1, &second, &none, 8)); SAY("%d\n", count);
            TRY(syscall(SYS_ppoll, &polled, 1, &second, &none, 4));
            raise(SIGUSR1);
            TRY(sigsuspend(&none)); SAY("%d\n", count);
            sigprocmask(SIG_BLOCK, 0, &now_); SAY("%d\n", sigismember(&now_, SIGUSR1));
            // The time that is left, also where nothing interrupted.
            struct timeval limit = { 1, 0 };
            write(ends[1], "x", 1);
            FD_ZERO(&files); FD_SET(ends[0], &files);
            TRY(syscall(SYS_select, ends[0] + 1, &files, 0, 0, &limit)); SAY("%d\n", limit.tv_sec * 1000000 + limit.tv_usec > 500000);
            read(ends[0], &byte, 1);
            limit = (struct timeval){ 0, 10000 }; FD_SET(ends[0], &files);
            TRY(syscall(SYS_select, ends[0] + 1, &files, 0, 0, &limit)); SAY("%ld %ld\n", limit.tv_sec, limit.tv_usec);
            limit = (struct timeval){ 0, -1 }; TRY(syscall(SYS_select, 0, 0, 0, 0, &limit));
            // Absolute sleeps, and those with another clock.
            struct timespec at; clock_gettime(CLOCK_MONOTONIC, &at); at.tv_sec++;
            struct itimerval soon = { { 0, 0 }, { 0, 10000 } };
            setitimer(ITIMER_REAL, &soon, 0);
            TRY(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, &second));
            clock_gettime(CLOCK_REALTIME, &at); at.tv_nsec += 5 * MS; if (at.tv_nsec >= 1000 * MS) { at.tv_sec++; at.tv_nsec -= 1000 * MS; }
            TRY(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, 0));
            TRY(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &at, 0)); TRY(clock_nanosleep(77, 0, &at, 0));
            TRY(syscall(SYS_restart_syscall));
            return 0;
        }"#,
    );
}

#[test]
fn signals_are_queued_in_order_and_waited_for() {
    as_natively(
        "queues",
        r#"
        static volatile int got[32], values[32], n, onstack;
        static char stack[1 << 16];
        static void handler(int signal, siginfo_t *info, void *context) { got[n] = signal; values[n++] = info->si_value.sival_int; }
        static void plain(int signal) { char here; onstack = &here >= stack && &here < stack + sizeof stack; got[n++] = signal; if (n < 3 && signal == SIGUSR2) raise(SIGUSR2); }
        static void disarmed(int signal) { stack_t now_; sigaltstack(0, &now_); SAY("%d %x\n", now_.ss_flags & SS_DISABLE, 0); plain(signal); }
        int main(void) {
            struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
            sigfillset(&action.sa_mask);
            sigset_t set; sigemptyset(&set);
            for (int s = 0; s < 3; s++) { sigaction(SIGRTMIN + s, &action, 0); sigaddset(&set, SIGRTMIN + s); }
            sigaction(SIGUSR1, &action, 0); sigaddset(&set, SIGUSR1);
            sigprocmask(SIG_BLOCK, &set, 0);
            for (int v = 0; v < 3; v++) for (int s = 2; s >= 0; s--) sigqueue(getpid(), SIGRTMIN + s, (union sigval){ .sival_int = 10 * s + v });
            raise(SIGUSR1); raise(SIGUSR1);
            sigprocmask(SIG_UNBLOCK, &set, 0);
            SAY("%d:", n); for (int i = 0; i < n; i++) SAY(" %d=%d", got[i] >= SIGRTMIN ? got[i] - SIGRTMIN : -got[i], got[i] >= SIGRTMIN ? values[i] : 0); SAY("\n");
            // Waiting for them takes the lowest; nothing in time is EAGAIN.
            sigprocmask(SIG_BLOCK, &set, 0);
            sigqueue(getpid(), SIGRTMIN + 1, (union sigval){ .sival_int = 1 }); sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = 2 });
            siginfo_t info; struct timespec soon = { 0, 5 * MS }, bad = { 0, -1 };
            TRY(sigtimedwait(&set, &info, &soon) - SIGRTMIN); SAY("%d %d\n", info.si_value.sival_int, info.si_code == SI_QUEUE);
            TRY(sigwaitinfo(&set, &info) - SIGRTMIN); TRY(sigtimedwait(&set, &info, &soon)); TRY(sigtimedwait(&set, &info, &bad));
            on(SIGALRM, plain, 0); struct itimerval alarm_ = { { 0, 0 }, { 0, 5000 } }; setitimer(ITIMER_REAL, &alarm_, 0);
            TRY(syscall(SYS_rt_sigtimedwait, &set, &info, 0, 8));
            struct rlimit few = { 4, 4 }; TRY(setrlimit(RLIMIT_SIGPENDING, &few));
            int queued = 0; while (queued < 100 && sigqueue(getpid(), SIGRTMIN, (union sigval){ 0 }) == 0) queued++;
            SAY("%d %d\n", queued <= 4, errno == EAGAIN);
            // Flags.
            n = 0; on(SIGUSR2, plain, SA_NODEFER); raise(SIGUSR2); SAY("%d\n", n);
            n = 0; on(SIGUSR2, plain, 0); raise(SIGUSR2); SAY("%d\n", n);
            on(SIGUSR2, plain, SA_RESETHAND | SA_NODEFER); n = 5; raise(SIGUSR2);
            struct sigaction now_; sigaction(SIGUSR2, 0, &now_); SAY("%d %d\n", now_.sa_handler == SIG_DFL, !!(now_.sa_flags & SA_RESETHAND));
            stack_t alternate = { .ss_sp = stack, .ss_size = sizeof stack }, old;
            TRY(sigaltstack(&alternate, 0)); on(SIGUSR2, plain, SA_ONSTACK); n = 5; raise(SIGUSR2); SAY("%d\n", onstack);
            alternate.ss_flags = 1 << 31; TRY(sigaltstack(&alternate, 0)); on(SIGUSR2, disarmed, SA_ONSTACK); raise(SIGUSR2); SAY("%d\n", onstack);
            TRY(sigaltstack(0, &old)); SAY("%x %d\n", old.ss_flags, old.ss_size == sizeof stack);
            alternate.ss_flags = 8; TRY(sigaltstack(&alternate, 0)); alternate.ss_flags = 0; alternate.ss_size = 10; TRY(sigaltstack(&alternate, 0));
            // Children: no zombies, and no word of stops.
            on(SIGCHLD, plain, SA_NOCLDWAIT | SA_NOCLDSTOP); n = 10;
            pid_t child = fork(); if (child == 0) { raise(SIGSTOP); _exit(0); }
            usleep(20000); SAY("%d\n", n); kill(child, SIGCONT);
            do errno = 0; while (wait(0) > 0 || errno == EINTR); SAY("%d %d\n", errno == ECHILD, n);
            return 0;
        }"#,
    );
}

#[test]
fn a_stopped_process_goes_on_where_it_was() {
    as_natively(
        "stops",
        r#"
        static int calls(int which) {
            int ends[2]; pipe(ends); struct timespec time = { 0, 120 * MS }; sigset_t set = set_of(SIGUSR1); struct epoll_event event;
            sigprocmask(SIG_BLOCK, &set, 0);
            struct pollfd polled = { ends[0], POLLIN };
            int64_t begin = now();
            long result;
            errno = 0;
            switch (which) {
            case 0: result = nanosleep(&time, 0); break;
            case 1: result = poll(&polled, 1, 120); break;
            case 2: result = epoll_wait(epoll_create1(0), &event, 1, 2000); break;
            case 3: time.tv_sec = 2; result = sigtimedwait(&set, 0, &time); break;
            case 4: result = syscall(SYS_futex, &ends, 0, ends[0], &time, 0, 0); break;
            case 5: { fd_set files; FD_ZERO(&files); struct timeval limit = { 0, 120000 }; result = select(0, 0, 0, 0, &limit); break; }
            default: result = clock_nanosleep(CLOCK_MONOTONIC, 0, &time, 0); break;
            }
            int64_t took = now() - begin;
            SAY("%d: %ld %s %d\n", which, result, errno ? strerror(errno) : "", took > 40 * MS && took < 1500 * MS);
            _exit(0);
        }
        int main(void) {
            for (int which = 0; which < 7; which++) for (int twice = 0; twice < 2; twice++) {
                pid_t child = fork();
                if (child == 0) calls(which);
                setpgid(child, child);
                usleep(30000);
                kill(child, twice ? SIGTSTP : SIGSTOP);
                int status;
                waitpid(child, &status, WUNTRACED); if (!WIFSTOPPED(status)) SAY("not stopped %d\n", which);
                usleep(20000);
                kill(child, SIGCONT);
                waitpid(child, &status, 0);
            }
            return 0;
        }"#,
    );
}

/// Frames that lead nowhere: SIGSEGV, also when it is blocked, and told to its handler when it is not.
const FRAMES: &str = r#"
    #include <ucontext.h>
    static volatile unsigned long target;
    static void leads(int signal, siginfo_t *info, void *context) { ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] = target; if (target == 1) sigaddset(&((ucontext_t *)context)->uc_sigmask, SIGSEGV); }
    static void caught(int signal, siginfo_t *info, void *context) { SAY("%d %d %lx\n", signal, info->si_code, (long)info->si_addr); _exit(0); }
    int main(void) {
        unsigned long targets[] = { 0x800000000000, 0xffff800000000000, 0xffffffff80004000, 0x123456789abcdef0, 1 };
        for (int n = 0; n < 10; n++) {
            fflush(stdout);
            if (fork() == 0) {
                struct sigaction action = { .sa_sigaction = leads, .sa_flags = SA_SIGINFO };
                sigaction(SIGUSR1, &action, 0);
                if (n < 5) { action.sa_sigaction = caught; sigaction(SIGSEGV, &action, 0); }
                target = targets[n % 5];
                raise(SIGUSR1);
                _exit(9);
            }
            int status; wait(&status); SAY("%d: %x\n", n, status & 0x7f7f);
        }
        fflush(stdout);
        if (fork() == 0) { __asm__ volatile("mov $8, %%rsp; mov $15, %%eax; syscall" ::: "memory"); _exit(9); }
        int status; wait(&status); SAY("%x\n", status & 0x7f7f);
        return 0;
    }"#;

#[test]
fn frames_that_lead_nowhere_end_the_program() {
    as_natively("frames", FRAMES);
}

/// As the processor loads it from an image, whatever the handler has left there.
#[test]
fn what_a_handler_writes_to_the_x87_image_is_loaded() {
    as_natively(
        "loaded",
        r#"
        #include <ucontext.h>
        static const unsigned short words[][2] = { { 0xffff, 0xffff }, { 0, 0xffff }, { 0xf0c0, 0x8080 }, { 0x1f3f, 0x7f7f }, { 0x37f, 0x3f }, { 0x340, 1 }, { 0x37e, 1 } };
        static int turn;
        static void alter(int signal, siginfo_t *info, void *context) {
            fpregset_t image = ((ucontext_t *)context)->uc_mcontext.fpregs;
            image->cwd = words[turn][0], image->swd = words[turn][1], image->ftw = 0;
            image->fop = 0x7ff, image->rip = 0x123456, image->rdp = 0x654321;
        }
        int main(void) {
            struct sigaction action = { .sa_sigaction = alter, .sa_flags = SA_SIGINFO };
            sigaction(SIGUSR1, &action, 0);
            for (turn = 0; turn < 7; turn++) {
                unsigned short control, status;
                raise(SIGUSR1);
                __asm__ volatile("fnstcw %0; fnstsw %1; fninit" : "=m"(control), "=m"(status));
                SAY("%x %x\n", control, status);
            }
        }
        "#,
    );
}
