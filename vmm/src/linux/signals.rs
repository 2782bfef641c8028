//! Signals: handlers, the mask, what is pending, and delivery. There is one thread, and no one else sends any:
//! a signal comes from the program's own fault or its own call.

use super::{Guest, Linux, Outcome, PID, Served, Stop, errno, int, sigframe};
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
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;
/// State of the alternate stack.
const SS_ONSTACK: u64 = 1;
const SS_DISABLE: u64 = 2;
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
    fn holds(&self, address: Virt) -> bool {
        self.flags & SS_DISABLE == 0 && address > self.start && address - self.start <= self.size
    }
}

/// The state of a process's signals.
#[derive(Debug)]
pub struct Signals {
    actions: BTreeMap<i32, Action>,
    pub(super) blocked: u64,
    pending: BTreeMap<i32, Death>,
    pub(super) stack: Stack,
}

impl Default for Signals {
    fn default() -> Self {
        let stack = Stack { start: 0, flags: SS_DISABLE, size: 0 };
        Signals { actions: BTreeMap::new(), blocked: 0, pending: BTreeMap::new(), stack }
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
    /// Makes a signal pending, unless it is ignored or was pending before.
    pub(crate) fn raise(&mut self, signal: i32, code: i32) {
        if self.is_ignored(signal) && self.blocked & bit(signal) == 0 {
            return;
        }
        self.pending.entry(signal).or_insert(Death { signal, code, address: 0, exception: None });
    }

    /// Takes the next pending signal that is to be delivered.
    pub fn take(&mut self) -> Option<Death> {
        loop {
            let signal = *self.pending.keys().find(|signal| self.blocked & bit(**signal) == 0)?;
            let death = self.pending.remove(&signal)?;
            if !self.is_ignored(signal) {
                return Some(death);
            }
        }
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

    /// Whether an exception's signal ends the program: it has no handler, or the program blocked it.
    fn is_fatal(&self, signal: i32) -> bool {
        self.action(signal).handler <= SIG_IGN || self.blocked & bit(signal) != 0
    }
}

/// Delivers a signal: `synchronous` for an exception, which cannot be ignored or blocked.
pub(crate) fn deliver(
    linux: &mut Linux,
    guest: &mut Guest<'_>,
    death: Death,
    synchronous: bool,
) -> Result<Delivery, ProcessError> {
    let signals = &mut linux.signals;
    let action = signals.action(death.signal);
    if action.handler <= SIG_IGN || synchronous && signals.is_fatal(death.signal) {
        return Ok(Delivery::Fatal(death));
    }
    let regs = *guest.engine.regs();
    let stack = signals.stack;
    let other = action.flags & SA_ONSTACK != 0 && stack.flags & SS_DISABLE == 0 && !stack.holds(regs.gpr[4]);
    let top = if other { stack.start.saturating_add(stack.size) } else { regs.gpr[4].saturating_sub(128) };
    let saved = sigframe::Saved { mask: signals.blocked, stack };
    let entered = if action.flags & SA_RESTORER == 0 {
        errno(libc::EFAULT)
    } else {
        sigframe::push(guest, top, &action, &death, &saved)
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
        Err(Stop::Fatal(error)) => return Err(error),
    }
    let signals = &mut linux.signals;
    signals.blocked |= action.mask & !UNSTOPPABLE;
    if action.flags & SA_NODEFER == 0 {
        signals.blocked |= bit(death.signal);
    }
    if action.flags & SA_RESETHAND != 0 {
        signals.actions.remove(&death.signal);
    }
    Ok(Delivery::Handled)
}

/// Returns from a handler to where the signal came.
pub(super) fn sigreturn(linux: &mut Linux, guest: &mut Guest<'_>) -> Served<Outcome> {
    match sigframe::pop(guest) {
        Ok(saved) => {
            linux.signals.blocked = saved.mask & !UNSTOPPABLE;
            if set_stack(linux, guest, saved.stack).is_err() {
                linux.signals.stack.flags = SS_DISABLE;
            }
        }
        Err(Stop::Errno(_)) => linux.signals.raise(libc::SIGSEGV, SI_KERNEL),
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
        }
    }
    Ok(0)
}

pub(super) fn sigprocmask(linux: &mut Linux, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [how, new, old, size, ..] = *a;
    if size != 8 {
        return errno(libc::EINVAL);
    }
    let before = linux.signals.blocked;
    if new != 0 {
        let [set] = guest.read_words(new)?;
        let after = match int(how) {
            libc::SIG_BLOCK => before | set,
            libc::SIG_UNBLOCK => before & !set,
            libc::SIG_SETMASK => set,
            _ => return errno(libc::EINVAL),
        };
        linux.signals.blocked = after & !UNSTOPPABLE;
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
    let set = linux.signals.pending.keys().fold(0, |set, signal| set | bit(*signal));
    guest.write_words(address, &[set & linux.signals.blocked])?;
    Ok(0)
}

pub(super) fn sigaltstack(linux: &mut Linux, guest: &mut Guest<'_>, new: Virt, old: Virt) -> Served {
    let new = if new == 0 { None } else { Some(guest.read_words(new)?) };
    let before = linux.signals.stack;
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
    if linux.signals.stack == stack {
        return Ok(());
    }
    if linux.signals.stack.holds(guest.engine.regs().gpr[4]) {
        return errno(libc::EPERM);
    }
    linux.signals.stack = match stack.flags {
        SS_DISABLE => Stack { start: 0, flags: SS_DISABLE, size: 0 },
        0 | SS_ONSTACK if stack.size < MINSIGSTKSZ => return errno(libc::ENOMEM),
        0 | SS_ONSTACK => Stack { flags: 0, ..stack },
        _ => return errno(libc::EINVAL),
    };
    Ok(())
}

pub(super) fn kill(linux: &mut Linux, pid: i32, signal: i32) -> Served {
    // Zero and minus one are its group and all processes: itself.
    send(linux, [0, -1, PID, -PID].contains(&pid), signal, libc::SI_USER)
}

pub(super) fn tkill(linux: &mut Linux, thread: i32, signal: i32) -> Served {
    send(linux, thread == PID, signal, libc::SI_TKILL)
}

pub(super) fn tgkill(linux: &mut Linux, group: i32, thread: i32, signal: i32) -> Served {
    send(linux, group == PID && thread == PID, signal, libc::SI_TKILL)
}

/// Sends a signal to the process itself; no other process can be seen.
fn send(linux: &mut Linux, itself: bool, signal: i32, code: i32) -> Served {
    match signal {
        _ if !itself => errno(libc::ESRCH),
        0 => Ok(0),
        1..=LAST => {
            linux.signals.raise(signal, code);
            Ok(0)
        }
        _ => errno(libc::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_signal_waits_and_an_ignored_one_is_gone() {
        let mut signals = Signals { blocked: bit(libc::SIGUSR1), ..Signals::default() };
        signals.raise(libc::SIGUSR1, libc::SI_USER);
        signals.raise(libc::SIGCHLD, libc::SI_USER);
        assert_eq!(signals.take(), None);
        signals.blocked = 0;
        assert_eq!(signals.take().map(|death| death.signal), Some(libc::SIGUSR1));
        assert_eq!(signals.take(), None);
    }

    #[test]
    fn an_exception_with_its_signal_blocked_is_fatal() {
        let mut signals = Signals::default();
        let action = Action { handler: 0x1000, ..Action::default() };
        signals.actions.insert(libc::SIGSEGV, action);
        assert!(!signals.is_fatal(libc::SIGSEGV));
        signals.blocked = bit(libc::SIGSEGV);
        assert!(signals.is_fatal(libc::SIGSEGV));
    }
}
