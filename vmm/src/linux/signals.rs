//! Signals: handlers, masks, what is pending, and delivery. No one else sends any: a signal comes from the program's
//! own fault or its own call. One for the process goes to a thread as soon as one does not block it, the first thread
//! before others, as in `complete_signal` of kernel/signal.c.

use super::threads::Threads;
use super::time::NANOSECONDS;
use super::wait::{Interrupted, On, Wait, Why, wait};
use super::{Guest, Linux, Outcome, PID, Served, Stop, errno, int, sigframe, word};
use crate::engine::Virt;
use crate::process::exit::SI_KERNEL;
use crate::process::{Death, ProcessError};
use std::collections::BTreeMap;

/// Signals are numbered from 1 to this.
const LAST: i32 = 64;
const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;
/// Signals that can be neither blocked nor handled.
const UNSTOPPABLE: u64 = bit(libc::SIGKILL) | bit(libc::SIGSTOP);
/// Flags of sigaction (asm/signal.h).
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_RESTART: u64 = 0x1000_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;
/// State of the alternate stack.
const SS_ONSTACK: u64 = 1;
const SS_DISABLE: u64 = 2;
/// The length of SYSCALL.
const SYSCALL_LEN: u64 = 2;
/// The smallest alternate stack.
const MINSIGSTKSZ: u64 = 2048;

/// A signal's place in a set.
const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// What a program does about a signal: the kernel's `struct sigaction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) handler: Virt,
    pub(super) flags: u64,
    pub(super) restorer: Virt,
    pub(super) mask: u64,
}

/// The alternate stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stack {
    pub(super) start: Virt,
    pub(super) flags: u64,
    pub(super) size: u64,
}

impl Stack {
    pub(super) fn holds(&self, address: Virt) -> bool {
        self.flags & SS_DISABLE == 0 && address > self.start && address - self.start <= self.size
    }
}

/// What a process's threads share of signals.
#[derive(Debug, Default)]
pub struct Signals {
    actions: BTreeMap<i32, Action>,
    /// Those that all threads block.
    pending: BTreeMap<i32, Death>,
}

/// The state of one thread's signals.
#[derive(Debug)]
pub(super) struct ThreadSignals {
    pub(super) blocked: u64,
    pending: BTreeMap<i32, Death>,
    pub(super) stack: Stack,
    /// The mask to come back to, while a call has put another in its place.
    replaced: Option<u64>,
}

impl Default for ThreadSignals {
    fn default() -> Self {
        let stack = Stack { start: 0, flags: SS_DISABLE, size: 0 };
        ThreadSignals { blocked: 0, pending: BTreeMap::new(), stack, replaced: None }
    }
}

impl ThreadSignals {
    fn blocks(&self, signal: i32) -> bool {
        self.blocked & bit(signal) != 0
    }
}

/// What becomes of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A handler runs: the registers are set.
    Handled,
    /// The program ends.
    Fatal(Death),
}

impl Signals {
    /// Makes a signal pending for a thread, unless it is ignored or was pending before, and ends the thread's wait.
    pub(super) fn raise_to(&self, threads: &mut Threads, id: i32, signal: i32, code: i32) {
        let Some(thread) = threads.get_mut(id) else { return };
        let own = &mut thread.signals;
        if self.is_ignored(signal) && !own.blocks(signal) {
            return;
        }
        own.pending.entry(signal).or_insert(Death { signal, code, address: 0, exception: None });
        let blocked = own.blocks(signal);
        let awaited =
            matches!(thread.wait(), Some(Wait { on: On::Signals(set), .. }) if set & bit(signal) != 0);
        if awaited {
            threads.wake(id, Why::Ready);
        } else if !blocked {
            threads.wake(id, Why::Signal);
        }
    }

    /// Makes a signal pending for the process: for the first thread that takes it.
    pub(super) fn raise(&mut self, threads: &mut Threads, signal: i32, code: i32) {
        let awaits =
            |wait: &Wait| matches!(wait, Wait { on: On::Signals(set), .. } if set & bit(signal) != 0);
        let taker = threads
            .living()
            .find(|(_, thread)| !thread.signals.blocks(signal) || thread.wait().is_some_and(awaits));
        match taker.map(|(id, _)| id) {
            Some(id) => self.raise_to(threads, id, signal, code),
            None => {
                let death = Death { signal, code, address: 0, exception: None };
                self.pending.entry(signal).or_insert(death);
            }
        }
    }

    /// The next pending signal that is to be delivered to the thread that runs; those that are ignored are dropped.
    fn next(&mut self, threads: &mut Threads) -> Option<i32> {
        loop {
            let own = &threads.current().signals;
            let first = |set: &BTreeMap<i32, Death>| set.keys().copied().find(|signal| !own.blocks(*signal));
            let signal = first(&own.pending).or_else(|| first(&self.pending))?;
            if !self.is_ignored(signal) {
                return Some(signal);
            }
            self.remove(threads, signal);
        }
    }

    /// Takes a pending signal of the thread that runs, its own before the process's.
    fn remove(&mut self, threads: &mut Threads, signal: i32) -> Option<Death> {
        threads.current_mut().signals.pending.remove(&signal).or_else(|| self.pending.remove(&signal))
    }

    /// Takes the next pending signal that is to be delivered to the thread that runs.
    pub(crate) fn take(&mut self, threads: &mut Threads) -> Option<Death> {
        let signal = self.next(threads)?;
        self.remove(threads, signal)
    }

    fn action(&self, signal: i32) -> Action {
        self.actions.get(&signal).copied().unwrap_or_default()
    }

    /// Whether nothing happens. Stopping is nothing here: no one could let the program go on.
    fn is_ignored(&self, signal: i32) -> bool {
        let harmless = [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH, libc::SIGCONT];
        let stopping = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        match self.action(signal).handler {
            SIG_IGN => true,
            SIG_DFL => harmless.contains(&signal) || stopping.contains(&signal),
            _ => false,
        }
    }

    /// Whether an exception's signal ends the program: it has no handler, or the thread blocked it.
    fn is_fatal(&self, of: &ThreadSignals, signal: i32) -> bool {
        self.action(signal).handler <= SIG_IGN || of.blocks(signal)
    }
}

/// Delivers a signal: `synchronous` for an exception, which cannot be ignored or blocked.
pub(crate) fn deliver(
    linux: &mut Linux,
    guest: &mut Guest<'_>,
    death: Death,
    synchronous: bool,
) -> Result<Delivery, ProcessError> {
    let own = &mut linux.threads.current_mut().signals;
    let action = linux.signals.action(death.signal);
    if action.handler <= SIG_IGN || synchronous && linux.signals.is_fatal(own, death.signal) {
        return Ok(Delivery::Fatal(death));
    }
    let regs = *guest.engine.regs();
    let stack = own.stack;
    let nested = stack.holds(regs.gpr[4]);
    let enters = action.flags & SA_ONSTACK != 0 && stack.flags & SS_DISABLE == 0 && !nested;
    let top = if enters { stack.start.saturating_add(stack.size) } else { regs.gpr[4].saturating_sub(128) };
    let saved = sigframe::Saved { mask: own.replaced.take().unwrap_or(own.blocked), stack };
    let entered = if action.flags & SA_RESTORER == 0 {
        errno(libc::EFAULT)
    } else {
        sigframe::push(guest, (top, nested || enters), &action, &death, &saved)
    };
    match entered {
        Ok(()) => {}
        // The kernel's answer to a stack that cannot take the frame.
        Err(Stop::Errno(_)) => {
            let code = SI_KERNEL;
            return Ok(Delivery::Fatal(Death {
                signal: libc::SIGSEGV,
                code,
                address: 0,
                exception: death.exception,
            }));
        }
        Err(Stop::Wait(_)) => {}
        Err(Stop::Fatal(error)) => return Err(error),
    }
    let own = &mut linux.threads.current_mut().signals;
    own.blocked |= action.mask & !UNSTOPPABLE;
    if action.flags & SA_NODEFER == 0 {
        own.blocked |= bit(death.signal);
    }
    if action.flags & SA_RESETHAND != 0 {
        linux.signals.actions.remove(&death.signal);
    }
    Ok(Delivery::Handled)
}

/// What becomes of a call whose wait a signal has ended, before the signal is delivered: true if it is to be served
/// again, since there is nothing to deliver after all.
pub(crate) fn interrupt(linux: &mut Linux, guest: &mut Guest<'_>, wait: &Wait) -> Result<bool, ProcessError> {
    let Some(signal) = linux.signals.next(&mut linux.threads) else { return Ok(true) };
    let restarts = linux.signals.action(signal).flags & SA_RESTART != 0;
    let mut regs = *guest.engine.regs();
    match wait.interrupted {
        // What was transferred is told.
        _ if wait.done > 0 => regs.gpr[0] = wait.done as u64,
        Interrupted::MayRestart if restarts => regs.rip = regs.rip.wrapping_sub(SYSCALL_LEN),
        Interrupted::MayRestart | Interrupted::Fails => regs.gpr[0] = word(-i64::from(libc::EINTR)),
        Interrupted::TellsTimeLeft(at) => {
            regs.gpr[0] = word(-i64::from(libc::EINTR));
            let left = wait.deadline.map_or(0, |deadline| deadline.left(linux.clock.shown()));
            match guest.write_words(at, &[left / NANOSECONDS, left % NANOSECONDS]) {
                Err(Stop::Fatal(error)) => return Err(error),
                Err(Stop::Errno(error)) => regs.gpr[0] = word(-i64::from(error)),
                _ => {}
            }
        }
    }
    guest.engine.set_regs(&regs)?;
    Ok(false)
}

/// Returns from a handler to where the signal came.
pub(super) fn sigreturn(linux: &mut Linux, guest: &mut Guest<'_>) -> Served<Outcome> {
    match sigframe::pop(guest) {
        Ok(saved) => {
            linux.threads.current_mut().signals.blocked = saved.mask & !UNSTOPPABLE;
            if set_stack(linux, guest, saved.stack).is_err() {
                linux.threads.current_mut().signals.stack.flags = SS_DISABLE;
            }
        }
        Err(Stop::Errno(_)) => linux.raise_here(libc::SIGSEGV, SI_KERNEL),
        Err(fatal) => return Err(fatal),
    }
    Ok(Outcome::Resumed)
}

pub(super) fn sigaction(linux: &mut Linux, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [signal, new, old, size, ..] = *a;
    let signal = int(signal);
    if size != 8 || !(1..=LAST).contains(&signal) || new != 0 && bit(signal) & UNSTOPPABLE != 0 {
        return errno(libc::EINVAL);
    }
    let new = if new == 0 { None } else { Some(guest.read_words(new)?) };
    if old != 0 {
        let action = linux.signals.action(signal);
        guest.write_words(old, &[action.handler, action.flags, action.restorer, action.mask])?;
    }
    if let Some([handler, flags, restorer, mask]) = new {
        linux.signals.actions.insert(signal, Action { handler, flags, restorer, mask });
        if linux.signals.is_ignored(signal) {
            linux.signals.pending.remove(&signal);
            linux.threads.each(|thread| {
                thread.signals.pending.remove(&signal);
            });
        }
    }
    Ok(0)
}

pub(super) fn sigprocmask(linux: &mut Linux, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [how, new, old, size, ..] = *a;
    if size != 8 {
        return errno(libc::EINVAL);
    }
    let before = linux.threads.current().signals.blocked;
    if new != 0 {
        let [set] = guest.read_words(new)?;
        let after = match int(how) {
            libc::SIG_BLOCK => before | set,
            libc::SIG_UNBLOCK => before & !set,
            libc::SIG_SETMASK => set,
            _ => return errno(libc::EINVAL),
        };
        linux.threads.current_mut().signals.blocked = after & !UNSTOPPABLE;
    }
    if old != 0 {
        guest.write_words(old, &[before])?;
    }
    Ok(0)
}

pub(super) fn sigpending(linux: &Linux, guest: &mut Guest<'_>, address: Virt, size: u64) -> Served {
    if size > 8 {
        return errno(libc::EINVAL);
    }
    let own = &linux.threads.current().signals;
    let pending = linux.signals.pending.keys().chain(own.pending.keys());
    let set = pending.fold(0, |set, signal| set | bit(*signal)) & own.blocked;
    guest.write_words(address, &[set])?;
    Ok(0)
}

pub(super) fn sigaltstack(linux: &mut Linux, guest: &mut Guest<'_>, new: Virt, old: Virt) -> Served {
    let new = if new == 0 { None } else { Some(guest.read_words(new)?) };
    let before = linux.threads.current().signals.stack;
    let used = before.holds(guest.engine.regs().gpr[4]);
    if old != 0 {
        let flags = before.flags | if used { SS_ONSTACK } else { 0 };
        guest.write_words(old, &[before.start, flags, before.size])?;
    }
    if let Some([start, flags, size]) = new {
        set_stack(linux, guest, Stack { start, flags: flags & 0xffff_ffff, size })?;
    }
    Ok(0)
}

/// Sets the alternate stack, unless the program runs on it.
fn set_stack(linux: &mut Linux, guest: &Guest<'_>, stack: Stack) -> Served<()> {
    let own = &mut linux.threads.current_mut().signals;
    if own.stack == stack {
        return Ok(());
    }
    if own.stack.holds(guest.engine.regs().gpr[4]) {
        return errno(libc::EPERM);
    }
    own.stack = match stack.flags {
        SS_DISABLE => Stack { start: 0, flags: SS_DISABLE, size: 0 },
        0 | SS_ONSTACK if stack.size < MINSIGSTKSZ => return errno(libc::ENOMEM),
        0 | SS_ONSTACK => Stack { flags: 0, ..stack },
        _ => return errno(libc::EINVAL),
    };
    Ok(())
}

/// rt_sigsuspend: waits under another mask until a handler has run.
pub(super) fn suspend(linux: &mut Linux, guest: &mut Guest<'_>, mask: Virt, size: u64) -> Served {
    if size != 8 {
        return errno(libc::EINVAL);
    }
    let [mask] = guest.read_words(mask)?;
    let own = &mut linux.threads.current_mut().signals;
    own.replaced.get_or_insert(own.blocked);
    own.blocked = mask & !UNSTOPPABLE;
    pause(linux)
}

/// Waits until a handler has run.
pub(super) fn pause(linux: &mut Linux) -> Served {
    let why = match linux.signals.next(&mut linux.threads) {
        None => On::Nothing,
        // It is there: the wait is over before it begins.
        Some(_) => return errno(libc::EINTR),
    };
    wait(Wait::new(why, None, Interrupted::Fails))
}

/// rt_sigtimedwait: takes one of a set of signals, which the caller blocks.
pub(super) fn timed_wait(linux: &mut Linux, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [set, info, timeout, size, ..] = *a;
    if size != 8 {
        return errno(libc::EINVAL);
    }
    let [set] = guest.read_words(set)?;
    let set = set & !UNSTOPPABLE;
    let deadline = linux.deadline(guest, timeout)?;
    let own = &linux.threads.current().signals;
    let mut pending = own.pending.keys().chain(linux.signals.pending.keys());
    if let Some(&signal) = pending.find(|signal| set & bit(**signal) != 0) {
        let death = linux.signals.remove(&mut linux.threads, signal);
        if let (Some(death), true) = (death, info != 0) {
            guest.write(info, &sigframe::siginfo(&death))?;
        }
        return Ok(u64::from(signal.unsigned_abs()));
    }
    if linux.again.why == Some(Why::TimedOut) || deadline.is_some_and(|at| linux.has_passed(at)) {
        return errno(libc::EAGAIN);
    }
    wait(Wait::new(On::Signals(set), deadline, Interrupted::Fails))
}

pub(super) fn kill(linux: &mut Linux, pid: i32, signal: i32) -> Served {
    // Zero and minus one are its group and all processes: itself.
    if ![0, -1, PID, -PID].contains(&pid) {
        return errno(libc::ESRCH);
    }
    send(signal, || linux.signals.raise(&mut linux.threads, signal, libc::SI_USER))
}

pub(super) fn tkill(linux: &mut Linux, thread: i32, signal: i32) -> Served {
    if linux.threads.get_mut(thread).is_none() {
        return errno(libc::ESRCH);
    }
    send(signal, || linux.signals.raise_to(&mut linux.threads, thread, signal, libc::SI_TKILL))
}

pub(super) fn tgkill(linux: &mut Linux, group: i32, thread: i32, signal: i32) -> Served {
    if group == PID { tkill(linux, thread, signal) } else { errno(libc::ESRCH) }
}

/// Sends a signal, if there is one of this number; zero only asks whether there is who could be sent one.
fn send(signal: i32, raise: impl FnOnce()) -> Served {
    match signal {
        0 => {}
        1..=LAST => raise(),
        _ => return errno(libc::EINVAL),
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Time;

    fn threads() -> Threads {
        Threads::new([0; 16])
    }

    #[test]
    fn a_blocked_signal_waits_and_an_ignored_one_is_gone() {
        let (mut signals, mut threads) = (Signals::default(), threads());
        threads.current_mut().signals.blocked = bit(libc::SIGUSR1);
        signals.raise(&mut threads, libc::SIGUSR1, libc::SI_USER);
        signals.raise(&mut threads, libc::SIGCHLD, libc::SI_USER);
        assert_eq!(signals.take(&mut threads), None);
        threads.current_mut().signals.blocked = 0;
        assert_eq!(signals.take(&mut threads).map(|death| death.signal), Some(libc::SIGUSR1));
        assert_eq!(signals.take(&mut threads), None);
    }

    #[test]
    fn a_signal_for_the_process_goes_to_a_thread_that_does_not_block_it() {
        let (mut signals, mut threads) = (Signals::default(), threads());
        let second = threads.start(x86::state::State::default(), Time::default()).expect("room");
        threads.current_mut().signals.blocked = bit(libc::SIGUSR1);
        signals.raise(&mut threads, libc::SIGUSR1, libc::SI_USER);
        assert_eq!(signals.take(&mut threads), None);
        let thread = threads.get_mut(second).expect("it lives");
        assert!(thread.signals.pending.contains_key(&libc::SIGUSR1));
    }

    #[test]
    fn an_exception_with_its_signal_blocked_is_fatal() {
        let mut signals = Signals::default();
        let action = Action { handler: 0x1000, ..Action::default() };
        signals.actions.insert(libc::SIGSEGV, action);
        let mut own = ThreadSignals::default();
        assert!(!signals.is_fatal(&own, libc::SIGSEGV));
        own.blocked = bit(libc::SIGSEGV);
        assert!(signals.is_fatal(&own, libc::SIGSEGV));
    }
}
