//! What a program may set and ask about itself: as the host does it, and the same at replay.

use crate::alarms::as_natively;

#[test]
fn a_program_sets_and_asks_about_itself() {
    as_natively(
        "itself",
        r#"
        #include <sys/file.h>
        struct attr { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t run, deadline, period; uint32_t low, high; };
        static void *thread(void *unused) { SAY("%d\n", getpriority(PRIO_PROCESS, syscall(SYS_gettid))); return 0; }
        static volatile int overs;
        static void over(int signal) { overs++; }
        int main(void) {
            int got = 9; char name[16]; long long address;
            TRY(prctl(PR_SET_NAME, "sixteen letters and more")); prctl(PR_GET_NAME, name); SAY("%s\n", name);
            TRY(prctl(PR_SET_PDEATHSIG, SIGUSR1)); TRY(prctl(PR_GET_PDEATHSIG, &got)); SAY("%d\n", got); TRY(prctl(PR_SET_PDEATHSIG, 77)); prctl(PR_SET_PDEATHSIG, 0);
            TRY(prctl(PR_GET_DUMPABLE)); TRY(prctl(PR_SET_DUMPABLE, 0)); TRY(prctl(PR_GET_DUMPABLE)); TRY(prctl(PR_SET_DUMPABLE, 2)); prctl(PR_SET_DUMPABLE, 1);
            TRY(prctl(PR_GET_KEEPCAPS)); TRY(prctl(PR_SET_KEEPCAPS, 1)); TRY(prctl(PR_GET_KEEPCAPS)); TRY(prctl(PR_SET_KEEPCAPS, 2)); TRY(prctl(PR_SET_KEEPCAPS, 0));
            TRY(prctl(PR_GET_CHILD_SUBREAPER, &got)); SAY("%d\n", got); TRY(prctl(PR_SET_CHILD_SUBREAPER, 1)); prctl(PR_GET_CHILD_SUBREAPER, &got); SAY("%d\n", got);
            TRY(prctl(PR_GET_TIMERSLACK)); TRY(prctl(PR_SET_TIMERSLACK, 1000)); TRY(prctl(PR_GET_TIMERSLACK)); TRY(prctl(PR_SET_TIMERSLACK, 0)); TRY(prctl(PR_GET_TIMERSLACK));
            TRY(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0)); TRY(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)); TRY(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0)); TRY(prctl(PR_GET_THP_DISABLE, 1, 0, 0, 0));
            TRY(prctl(PR_GET_SECUREBITS)); TRY(prctl(PR_CAPBSET_READ, 99)); TRY(prctl(PR_GET_TSC, &got)); SAY("%d\n", got); TRY(prctl(PR_GET_TIMING)); TRY(prctl(12345)); TRY(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0));
            TRY(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)); TRY(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)); TRY(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)); TRY(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)); TRY(prctl(PR_GET_NO_NEW_PRIVS, 1, 0, 0, 0));
            // Scheduling.
            struct sched_param param = { 0 }; struct attr attr = { 0 }; struct timespec interval;
            TRY(sched_getscheduler(0)); TRY(syscall(SYS_sched_getscheduler, 0)); TRY(syscall(SYS_sched_getscheduler, -1)); TRY(syscall(SYS_sched_getscheduler, 99999));
            TRY(syscall(SYS_sched_getparam, 0, &param)); SAY("%d\n", param.sched_priority);
            param.sched_priority = 1; TRY(syscall(SYS_sched_setparam, 0, &param)); TRY(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &param)); param.sched_priority = 100; TRY(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &param)); TRY(syscall(SYS_sched_setscheduler, 0, 44, &param));
            param.sched_priority = 0; TRY(syscall(SYS_sched_setscheduler, 0, SCHED_BATCH, &param)); TRY(syscall(SYS_sched_getscheduler, 0));
            TRY(syscall(SYS_sched_rr_get_interval, 0, &interval)); TRY(syscall(SYS_sched_rr_get_interval, -3, &interval));
            TRY(syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0)); SAY("%u %u %d %u\n", attr.size, attr.policy, attr.nice, attr.priority);
            attr.policy = 0; attr.nice = 3; TRY(syscall(SYS_sched_setattr, 0, &attr, 0)); TRY(getpriority(PRIO_PROCESS, 0)); TRY(syscall(SYS_sched_getattr, 0, &attr, 20, 0)); attr.size = 20; TRY(syscall(SYS_sched_setattr, 0, &attr, 0));
            TRY(sched_get_priority_max(SCHED_RR)); TRY(sched_get_priority_min(SCHED_OTHER)); TRY(sched_get_priority_max(77));
            cpu_set_t none; CPU_ZERO(&none); TRY(sched_setaffinity(0, sizeof none, &none)); CPU_SET(0, &none); TRY(sched_setaffinity(0, sizeof none, &none)); TRY(sched_setaffinity(99999, sizeof none, &none)); TRY(sched_getaffinity(99999, sizeof none, &none)); TRY(sched_getaffinity(0, 4, &none));
            TRY(sched_getaffinity(0, sizeof none, &none) >= 0); SAY("%d\n", CPU_COUNT(&none));
            TRY(setpriority(PRIO_PROCESS, 0, 7)); TRY(getpriority(PRIO_PROCESS, 0)); TRY(getpriority(PRIO_PGRP, 0) <= 7); TRY(nice(2)); TRY(getpriority(PRIO_PROCESS, 99999)); TRY(getpriority(9, 0)); TRY(setpriority(PRIO_PROCESS, 0, 99)); TRY(getpriority(PRIO_PROCESS, 0));
            pthread_t other; pthread_create(&other, 0, thread, 0); pthread_join(other, 0);
            TRY(syscall(SYS_ioprio_get, 1, 0)); TRY(syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 5)); TRY(syscall(SYS_ioprio_get, 1, 0)); TRY(syscall(SYS_ioprio_set, 1, 0, 7 << 13)); TRY(syscall(SYS_ioprio_get, 9, 0)); TRY(syscall(SYS_ioprio_set, 1, 0, 5));
            // Barriers.
            TRY((syscall(SYS_membarrier, 0, 0) & 0x7f) == 0x7f); TRY(syscall(SYS_membarrier, 1, 0)); TRY(syscall(SYS_membarrier, 8, 0)); TRY(syscall(SYS_membarrier, 16, 0)); TRY(syscall(SYS_membarrier, 8, 0)); TRY(syscall(SYS_membarrier, 0, 9)); TRY(syscall(SYS_membarrier, 1 << 20, 0));
            TRY(syscall(SYS_set_thread_area, &got));
            // Limits.
            struct rlimit limit, few = { 20, 30 };
            TRY(prlimit(0, RLIMIT_NOFILE, &few, &limit)); TRY(fcntl(0, F_DUPFD, 19)); TRY(fcntl(0, F_DUPFD, 20)); TRY(dup2(0, 20)); for (int n = 0; n < 20; n++) dup(0); TRY(dup(0)); getrlimit(RLIMIT_NOFILE, &limit); SAY("%ld %ld\n", limit.rlim_cur, limit.rlim_max);
            for (int n = 3; n < 20; n++) close(n);
            few.rlim_cur = 40; TRY(setrlimit(RLIMIT_NOFILE, &few)); TRY(prlimit(99999, RLIMIT_NOFILE, 0, &limit)); TRY(prlimit(0, 99, 0, &limit));
            pid_t child = fork(); if (child == 0) { pause(); _exit(0); }
            few = (struct rlimit){ 5, 7 }; TRY(prlimit(child, RLIMIT_CORE, &few, 0)); TRY(prlimit(child, RLIMIT_CORE, 0, &limit)); SAY("%ld\n", limit.rlim_cur); kill(child, SIGKILL); wait(0);
            on(SIGXFSZ, over, 0); few = (struct rlimit){ 10, RLIM_INFINITY }; setrlimit(RLIMIT_FSIZE, &few);
            char path[] = "/tmp/gretel-limit-XXXXXX"; int file = mkstemp(path), at = 0; long results[16]; unlink(path);
            // Nothing is said meanwhile, for the output may be a file.
            #define NOTE(call) (errno = 0, results[at++] = (call), results[at++] = errno)
            NOTE(write(file, "12345678", 8)); NOTE(write(file, "12345678", 8)); NOTE(write(file, "12345678", 8)); NOTE(pwrite(file, "x", 1, 9)); NOTE(pwrite(file, "x", 1, 10)); NOTE(ftruncate(file, 11)); NOTE(ftruncate(file, 10));
            few.rlim_cur = RLIM_INFINITY; setrlimit(RLIMIT_FSIZE, &few);
            for (int n = 0; n < at; n++) SAY("%ld ", results[n]); SAY("over %d\n", overs);
            // What tasks share.
            child = fork(); if (child == 0) { pause(); _exit(0); }
            pid_t own = getpid();
            for (int kind = 0; kind < 6; kind++) SAY("%ld %ld ", syscall(SYS_kcmp, own, own, kind, 0, 0), syscall(SYS_kcmp, own, child, kind, 1, 1) > 0);
            TRY(syscall(SYS_kcmp, own, 99999, 1, 0, 0)); TRY(syscall(SYS_kcmp, own, own, 77, 0, 0)); TRY(syscall(SYS_kcmp, own, own, 0, 0, 77)); kill(child, SIGKILL); wait(0);
            // Who it is.
            struct { uint32_t version; int pid; } head = { 0x20080522, 0 }; struct { uint32_t effective, permitted, inheritable; } sets[2];
            TRY(syscall(SYS_capget, &head, sets)); SAY("%d %d\n", !sets[0].effective == !!geteuid(), sets[0].inheritable);
            head.version = 1; TRY(syscall(SYS_capget, &head, sets)); SAY("%x\n", head.version); head.pid = 99999; TRY(syscall(SYS_capget, &head, sets)); head.pid = 0;
            if (geteuid() == 0) {
                gid_t groups[] = { 7, 5 }; TRY(setgroups(2, groups)); TRY(getgroups(2, groups)); SAY("%d %d\n", groups[0], groups[1]);
                TRY(prctl(PR_SET_KEEPCAPS, 1)); TRY(setresuid(1000, 1000, 1000)); TRY(syscall(SYS_capget, &head, sets)); SAY("%d %d\n", sets[0].effective, sets[0].permitted != 0);
                sets[0].effective = 1 << 7; TRY(syscall(SYS_capset, &head, sets)); TRY(setresuid(1001, 1001, 1001)); sets[0].permitted = sets[0].effective = sets[1].permitted = sets[1].effective = 0; TRY(syscall(SYS_capset, &head, sets)); sets[0].permitted = 1; TRY(syscall(SYS_capset, &head, sets));
                TRY(setgroups(0, 0)); TRY(setuid(0)); TRY(setpriority(PRIO_PROCESS, 0, -5)); struct sched_param one = { 1 }; TRY(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &one)); few = (struct rlimit){ 99, 99 }; TRY(setrlimit(RLIMIT_NOFILE, &few));
                few = (struct rlimit){ 1, 1 }; TRY(setrlimit(RLIMIT_NPROC, &few)); TRY(fork()); TRY(prctl(PR_CAPBSET_DROP, 3)); TRY(prctl(PR_SET_SECUREBITS, 1));
            }
            return 0;
        }"#,
    );
}
