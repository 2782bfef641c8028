//! Calls on signals.

use super::constants::SIGMASK;
use super::rows;
use super::shape::Beyond::{Handler, Memory, Sigreturn};
use super::shape::Extent::Struct;
use super::shape::Kind::{Enum, In, Out, Pid, Signal, Size};
use super::shape::Served::{Fixed, Mixed, Ours};
use super::structs::{SIGACTION, SIGINFO, SIGSET, STACK, TIMESPEC};

/// Why restart_syscall always fails: a program calls it for a call that nothing interrupted.
const RESTARTS: &str = "only the kernel calls it";

rows! {
    13 rt_sigaction(signum: Signal, act: In(Struct(&SIGACTION)), oldact: Out(Struct(&SIGACTION)),
        sigsetsize: Size) -> Int, Ours;
    14 rt_sigprocmask(how: Enum(SIGMASK), set: In(Struct(&SIGSET)), oldset: Out(Struct(&SIGSET)),
        sigsetsize: Size) -> Int, Ours;
    15 rt_sigreturn() -> Never, Ours, Sigreturn;
    34 pause() -> Int, Ours, Handler;
    62 kill(pid: Pid, sig: Signal) -> Int, Ours;
    127 rt_sigpending(set: Out(Struct(&SIGSET)), sigsetsize: Size) -> Int, Ours;
    128 rt_sigtimedwait(set: In(Struct(&SIGSET)), info: Out(Struct(&SIGINFO)),
        timeout: In(Struct(&TIMESPEC)), sigsetsize: Size) -> Int, Mixed;
    129 rt_sigqueueinfo(tgid: Pid, sig: Signal, info: In(Struct(&SIGINFO))) -> Int, Ours;
    130 rt_sigsuspend(mask: In(Struct(&SIGSET)), sigsetsize: Size) -> Int, Ours, Handler;
    131 sigaltstack(ss: In(Struct(&STACK)), old_ss: Out(Struct(&STACK))) -> Int, Ours;
    200 tkill(tid: Pid, sig: Signal) -> Int, Ours;
    219 restart_syscall() -> Int, Fixed(libc::EINTR, RESTARTS), Memory;
    234 tgkill(tgid: Pid, tid: Pid, sig: Signal) -> Int, Ours;
    297 rt_tgsigqueueinfo(tgid: Pid, tid: Pid, sig: Signal, info: In(Struct(&SIGINFO))) -> Int, Ours;
}
