//! Calls that make, end, wait for and arrange processes and threads.

use super::commands::{
    ARCH_PRCTL, ARCH_PRCTL_ARGUMENT, CLONE_CHILD, CLONE_PARENT, CLONE_TLS, FUTEX_LAST, FUTEX_SECOND,
    FUTEX_TIME, FUTEX_VALUE, FUTEX_WORD, PRCTL, PRCTL_FIRST, PRCTL_REST,
};
use super::constants::{
    AT, CLONE, MEMBARRIER, PIDFD, POLICY, PRIORITY_OF, PTRACE, SECCOMP, WAIT, WAIT_FOR, WAIT4,
};
use super::rows;
use super::shape::Beyond::{Exec, Exit, Memory, Registers, Task};
use super::shape::Extent::{ArgTimes, ResultTimes, Sized, Strings, Struct};
use super::shape::Kind::{
    Address, By, Clock, CloneFlags, DirFd, Enum, Environment, Fd, Flags, Futex, Hex, In, InOut, Int, Out,
    Path, Pid, Signal, Size, Unsigned,
};
use super::shape::Served::{Fixed, Missing, Mixed, Ours};
use super::structs::{
    CLONE_ARGS, CPUS, CPUS_BYTES, FUTEX_WAITV, INT, RSEQ, RUSAGE, SCHED_ATTR, SIGINFO, STATUS, TIMESPEC,
    UNSIGNED, WORD,
};

const WITHOUT: &str = "libc does without";

rows! {
    24 sched_yield() -> Int, Ours;
    39 getpid() -> Int, Ours;
    56 clone(flags: CloneFlags(&CLONE), child_stack: Address, parent_tid: By(&CLONE_PARENT),
        child_tidptr: By(&CLONE_CHILD), tls: By(&CLONE_TLS)) -> Int, Ours, Task;
    57 fork() -> Int, Ours, Task;
    58 vfork() -> Int, Ours, Task;
    59 execve(pathname: Path, argv: In(Strings), envp: Environment) -> Int, Mixed, Exec;
    60 exit(status: Int) -> Never, Ours, Exit;
    61 wait4(pid: Pid, wstatus: Out(Struct(&STATUS)), options: Flags(&WAIT4),
        rusage: Out(Struct(&RUSAGE))) -> Int, Ours;
    101 ptrace(request: Enum(PTRACE), pid: Pid, addr: Hex, data: Hex) -> Int, Missing, Memory;
    109 setpgid(pid: Pid, pgid: Pid) -> Int, Ours;
    110 getppid() -> Int, Ours;
    111 getpgrp() -> Int, Ours;
    112 setsid() -> Int, Ours;
    121 getpgid(pid: Pid) -> Int, Ours;
    124 getsid(pid: Pid) -> Int, Ours;
    140 getpriority(which: Enum(PRIORITY_OF), who: Int) -> Int, Ours;
    141 setpriority(which: Enum(PRIORITY_OF), who: Int, prio: Int) -> Int, Ours;
    142 sched_setparam(pid: Pid, param: In(Struct(&INT))) -> Int, Ours;
    143 sched_getparam(pid: Pid, param: Out(Struct(&INT))) -> Int, Ours;
    144 sched_setscheduler(pid: Pid, policy: Flags(&POLICY), param: In(Struct(&INT))) -> Int, Ours;
    145 sched_getscheduler(pid: Pid) -> Int, Ours;
    146 sched_get_priority_max(policy: Flags(&POLICY)) -> Int, Ours;
    147 sched_get_priority_min(policy: Flags(&POLICY)) -> Int, Ours;
    148 sched_rr_get_interval(pid: Pid, tp: Out(Struct(&TIMESPEC))) -> Int, Ours;
    157 prctl(option: Enum(PRCTL), arg2: By(&PRCTL_FIRST), arg3: By(&PRCTL_REST), arg4: By(&PRCTL_REST),
        arg5: By(&PRCTL_REST)) -> Int, Ours;
    158 arch_prctl(op: Enum(ARCH_PRCTL), addr: By(&ARCH_PRCTL_ARGUMENT)) -> Int, Ours, Registers;
    186 gettid() -> Int, Ours;
    202 futex(uaddr: By(&FUTEX_WORD), op: Futex, val: By(&FUTEX_VALUE), timeout: By(&FUTEX_TIME),
        uaddr2: By(&FUTEX_SECOND), val3: By(&FUTEX_LAST)) -> Int, Mixed;
    203 sched_setaffinity(pid: Pid, cpusetsize: Size, mask: In(Sized(&CPUS, 1))) -> Int, Ours;
    204 sched_getaffinity(pid: Pid, cpusetsize: Size, mask: Out(ResultTimes(1, &CPUS_BYTES))) -> Int, Ours;
    218 set_tid_address(tidptr: Address) -> Int, Ours;
    231 exit_group(status: Int) -> Never, Ours, Exit;
    247 waitid(idtype: Enum(WAIT_FOR), id: Pid, infop: Out(Struct(&SIGINFO)), options: Flags(&WAIT),
        rusage: Out(Struct(&RUSAGE))) -> Int, Ours;
    251 ioprio_set(which: Int, who: Int, ioprio: Hex) -> Int, Ours;
    252 ioprio_get(which: Int, who: Int) -> Int, Ours;
    272 unshare(flags: Flags(&CLONE)) -> Int, Ours;
    273 set_robust_list(head: Address, len: Size) -> Int, Ours;
    274 get_robust_list(pid: Pid, head_ptr: Out(Struct(&WORD)), len_ptr: Out(Struct(&WORD))) -> Int, Ours;
    308 setns(fd: Fd, nstype: Flags(&CLONE)) -> Int, Ours;
    309 getcpu(cpu: Out(Struct(&UNSIGNED)), node: Out(Struct(&UNSIGNED)), tcache: Address) -> Int, Ours;
    312 kcmp(pid1: Pid, pid2: Pid, kind: Int, idx1: Hex, idx2: Hex) -> Int, Ours;
    314 sched_setattr(pid: Pid, attr: In(Struct(&SCHED_ATTR)), flags: Hex) -> Int, Ours;
    315 sched_getattr(pid: Pid, attr: Out(Sized(&SCHED_ATTR, 2)), size: Size, flags: Hex) -> Int, Ours;
    317 seccomp(operation: Enum(SECCOMP), flags: Hex, args: Address) -> Int, Ours, Memory;
    322 execveat(dirfd: DirFd, pathname: Path, argv: In(Strings), envp: Environment,
        flags: Flags(&AT)) -> Int, Mixed, Exec;
    324 membarrier(cmd: Enum(MEMBARRIER), flags: Hex) -> Int, Ours;
    334 rseq(rseq: InOut(Struct(&RSEQ)), rseq_len: Hex, flags: Hex,
        sig: Hex) -> Int, Fixed(libc::ENOSYS, WITHOUT);
    424 pidfd_send_signal(pidfd: Fd, sig: Signal, info: In(Struct(&SIGINFO)), flags: Hex) -> Int, Ours;
    434 pidfd_open(pid: Pid, flags: Flags(&PIDFD)) -> Fd, Mixed;
    435 clone3(cl_args: InOut(Sized(&CLONE_ARGS, 1)), size: Size) -> Int, Ours, Task;
    438 pidfd_getfd(pidfd: Fd, targetfd: Fd, flags: Hex) -> Fd, Ours;
    448 process_mrelease(pidfd: Fd, flags: Hex) -> Int, Missing;
    449 futex_waitv(waiters: In(ArgTimes(1, &FUTEX_WAITV)), nr_futexes: Unsigned, flags: Hex,
        timeout: In(Struct(&TIMESPEC)), clockid: Clock) -> Int, Ours;
    454 futex_wake(uaddr: Address, mask: Hex, nr: Int, flags: Hex) -> Int, Missing;
    455 futex_wait(uaddr: Address, val: Size, mask: Hex, flags: Hex, timeout: In(Struct(&TIMESPEC)),
        clockid: Clock) -> Int, Missing;
    456 futex_requeue(waiters: In(Struct(&FUTEX_WAITV)), flags: Hex, nr_wake: Int, nr_requeue: Int) -> Int,
        Missing;
}
