//! The system calls of signals.

use super::super::wait::{Interrupted, On, Wait, Why, wait};
use super::super::{Guest, Kernel, Served, errno, int};
pub(in super::super) use super::deliver::sigreturn;
use super::{
    Action, FIRST_REAL_TIME, LAST, SS_AUTODISARM, SS_DISABLE, SS_ONSTACK, Stack, UNSTOPPABLE, bit,
    default_of, frame, handler,
};
use crate::ram::Virt;
use crate::signal::{Cause, Death, Raised};

/// The smallest alternate stack.
const MINSIGSTKSZ: u64 = 2048;

pub(in super::super) fn sigaction(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [signal, new, old, size, ..] = *a;
    let signal = int(signal);
    if size != 8 || !(1..=LAST).contains(&signal) || new != 0 && bit(signal) & UNSTOPPABLE != 0 {
        return errno(libc::EINVAL);
    }
    let new = if new == 0 { None } else { Some(guest.read_words(new)?) };
    let handlers = kernel.tasks.current().handlers;
    let before = handler(kernel.handlers.get(handlers), signal);
    if let Some([handler, flags, restorer, mask]) = new {
        let mask = mask & !UNSTOPPABLE;
        kernel.handlers.get_mut(handlers).insert(signal, Action { handler, flags, restorer, mask });
        let ignored = handler == super::SIG_IGN
            || handler == super::SIG_DFL && default_of(signal) == super::Fate::Nothing;
        if ignored {
            let group = kernel.tasks.current().group;
            kernel.group_mut().pending.drop_set(bit(signal));
            for id in kernel.tasks.ids_of_group(group) {
                if let Some(task) = kernel.tasks.get_mut(id) {
                    task.signals.pending.drop_set(bit(signal));
                }
            }
            kernel.refresh_signalfds();
        }
    }
    if old != 0 {
        guest.write_words(old, &[before.handler, before.flags, before.restorer, before.mask])?;
    }
    Ok(0)
}

pub(in super::super) fn sigprocmask(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [how, new, old, size, ..] = *a;
    if size != 8 {
        return errno(libc::EINVAL);
    }
    let before = kernel.tasks.current().signals.blocked;
    if new != 0 {
        let [set] = guest.read_words(new)?;
        let after = match int(how) {
            libc::SIG_BLOCK => before | set,
            libc::SIG_UNBLOCK => before & !set,
            libc::SIG_SETMASK => set,
            _ => return errno(libc::EINVAL),
        };
        kernel.tasks.current_mut().signals.blocked = after & !UNSTOPPABLE;
    }
    if old != 0 {
        guest.write_words(old, &[before])?;
    }
    Ok(0)
}

pub(in super::super) fn sigpending(
    kernel: &Kernel,
    guest: &mut Guest<'_>,
    address: Virt,
    size: u64,
) -> Served {
    if size > 8 {
        return errno(libc::EINVAL);
    }
    let set = kernel.pending_for(kernel.tasks.id()) & kernel.tasks.current().signals.blocked;
    let length = usize::try_from(size).expect("at most 8");
    guest.write(address, &set.to_le_bytes()[..length])?;
    Ok(0)
}

pub(in super::super) fn sigaltstack(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    new: Virt,
    old: Virt,
) -> Served {
    let new = if new == 0 { None } else { Some(guest.read_words(new)?) };
    let before = kernel.tasks.current().signals.stack;
    let used = before.is_used(guest.cpu.regs().gpr[4]);
    if let Some([start, flags, size]) = new {
        set_stack(kernel, guest, Stack { start, flags: flags & 0xffff_ffff, size })?;
    }
    if old != 0 {
        let flags = before.flags | if used { SS_ONSTACK } else { 0 };
        guest.write_words(old, &[before.start, flags, before.size])?;
    }
    Ok(0)
}

/// Sets the alternate stack, unless the program runs on it.
pub(super) fn set_stack(kernel: &mut Kernel, guest: &Guest<'_>, stack: Stack) -> Served<()> {
    let own = &mut kernel.tasks.current_mut().signals;
    if own.stack == stack {
        return Ok(());
    }
    if own.stack.is_used(guest.cpu.regs().gpr[4]) {
        return errno(libc::EPERM);
    }
    let disarms = stack.flags & SS_AUTODISARM;
    own.stack = match stack.flags & !SS_AUTODISARM {
        SS_DISABLE => Stack { flags: SS_DISABLE | disarms, ..Stack::NONE },
        0 | SS_ONSTACK if stack.size < MINSIGSTKSZ => return errno(libc::ENOMEM),
        0 | SS_ONSTACK => Stack { flags: disarms, ..stack },
        _ => return errno(libc::EINVAL),
    };
    Ok(())
}

/// Reads a set of signals of eight bytes, as the calls take it that wait under another mask; null is none.
pub(in super::super) fn mask_argument(guest: &mut Guest<'_>, mask: Virt, size: u64) -> Served<Option<u64>> {
    if mask == 0 {
        return Ok(None);
    }
    if size != 8 {
        return errno(libc::EINVAL);
    }
    let [mask] = guest.read_words(mask)?;
    Ok(Some(mask))
}

/// Puts a mask in the place of the task's until its call is done; null is none.
pub(in super::super) fn with_mask(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    mask: Virt,
    size: u64,
) -> Served<()> {
    if let Some(mask) = mask_argument(guest, mask, size)? {
        kernel.tasks.current_mut().signals.replace_mask(mask);
    }
    Ok(())
}

/// rt_sigsuspend: waits under another mask until a handler has run.
pub(in super::super) fn suspend(kernel: &mut Kernel, guest: &mut Guest<'_>, mask: Virt, size: u64) -> Served {
    if size != 8 {
        return errno(libc::EINVAL);
    }
    let [mask] = guest.read_words(mask)?;
    kernel.tasks.current_mut().signals.replace_mask(mask);
    pause()
}

/// Waits until a handler has run.
pub(in super::super) fn pause() -> Served {
    // A signal that is there already ends the wait at once, see `Kernel::syscall`.
    wait(Wait::new(On::Nothing, None, Interrupted::Fails))
}

/// rt_sigtimedwait: takes one of a set of signals, which the caller blocks.
pub(in super::super) fn timed_wait(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [set, info, timeout, size, ..] = *a;
    if size != 8 {
        return errno(libc::EINVAL);
    }
    let [set] = guest.read_words(set)?;
    let set = set & !UNSTOPPABLE;
    let deadline = kernel.deadline(guest, timeout)?;
    if let Some(raised) = kernel.take_of(set) {
        if info != 0 {
            guest.write(info, &frame::siginfo(&raised))?;
        }
        return Ok(u64::from(raised.signal().unsigned_abs()));
    }
    if kernel.again.why == Some(Why::TimedOut) || deadline.is_some_and(|at| kernel.has_passed(at)) {
        return errno(libc::EAGAIN);
    }
    wait(Wait::new(On::Signals(set), deadline, Interrupted::FailsEvenStopped))
}

pub(in super::super) fn kill(kernel: &mut Kernel, pid: i32, signal: i32) -> Served {
    let raised = Raised::new(check(signal)?, libc::SI_USER, kernel.sender());
    let own = kernel.tasks.current().group;
    let targets: Vec<i32> = match pid {
        -1 => kernel.groups.iter().map(|(id, _)| id).filter(|id| *id != own).collect(),
        0 => kernel.groups.in_process_group(kernel.group().process_group),
        ..-1 => pid.checked_neg().map_or_else(Vec::new, |group| kernel.groups.in_process_group(group)),
        _ => process_of(kernel, pid).into_iter().collect(),
    };
    if targets.is_empty() {
        return errno(libc::ESRCH);
    }
    let allowed: Vec<i32> = targets.into_iter().filter(|id| kernel.may_signal(*id, signal)).collect();
    if allowed.is_empty() {
        return errno(libc::EPERM);
    }
    if signal != 0 {
        allowed.into_iter().for_each(|id| kernel.signal_group(id, raised));
    }
    Ok(0)
}

/// The process that is sent a signal by this number, which may also be that of one of its threads.
fn process_of(kernel: &Kernel, id: i32) -> Option<i32> {
    kernel.groups.get(id).map(|_| id).or_else(|| kernel.tasks.get(id).map(|task| task.group))
}

pub(in super::super) fn tkill(kernel: &mut Kernel, task: i32, signal: i32) -> Served {
    let raised = Raised::new(check(signal)?, libc::SI_TKILL, kernel.sender());
    if task <= 0 {
        return errno(libc::EINVAL);
    }
    let Some(group) = kernel.tasks.get(task).map(|task| task.group) else {
        // The first task of a process that has others is a zombie.
        return if kernel.groups.get(task).is_some() { Ok(0) } else { errno(libc::ESRCH) };
    };
    if !kernel.may_signal(group, signal) {
        return errno(libc::EPERM);
    }
    if signal != 0 {
        kernel.signal_task(task, raised);
    }
    Ok(0)
}

pub(in super::super) fn tgkill(kernel: &mut Kernel, group: i32, task: i32, signal: i32) -> Served {
    if group <= 0 || task <= 0 {
        return errno(libc::EINVAL);
    }
    match kernel.tasks.get(task) {
        Some(found) if found.group != group => errno(libc::ESRCH),
        _ => tkill(kernel, task, signal),
    }
}

/// rt_sigqueueinfo: a signal with what the sender says of it.
pub(in super::super) fn queue(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    pid: i32,
    task: Option<i32>,
    signal: i32,
    info: Virt,
) -> Served {
    check(signal)?;
    let bytes: [u8; 32] = guest.read_array(info)?;
    let word = |at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let code = word(8);
    let value = u64::from_le_bytes(bytes[24..32].try_into().expect("eight bytes"));
    let own = kernel.tasks.current().group;
    if (code >= 0 || code == libc::SI_TKILL) && pid != own {
        return errno(libc::EPERM);
    }
    let found = if task.is_some() { kernel.groups.get(pid).map(|_| pid) } else { process_of(kernel, pid) };
    let Some(pid) = found else { return errno(libc::ESRCH) };
    if task.is_some_and(|id| kernel.tasks.get(id).is_none_or(|task| task.group != pid)) {
        return errno(libc::ESRCH);
    }
    if !kernel.may_signal(pid, signal) {
        return errno(libc::EPERM);
    }
    let uid = u32::from_le_bytes(word(20).to_le_bytes());
    if signal >= FIRST_REAL_TIME && kernel.queue_is_full(pid) {
        return errno(libc::EAGAIN);
    }
    let cause = Cause::Queued { pid: word(16), uid, value };
    let raised = Raised { death: Death { signal, code, address: 0, exception: None }, cause };
    match task {
        _ if signal == 0 => {}
        Some(id) => kernel.signal_task(id, raised),
        None => kernel.signal_group(pid, raised),
    }
    Ok(0)
}

/// That there is a signal of this number; zero only asks whether there is who could be sent one.
pub(in super::super) fn check(signal: i32) -> Served<i32> {
    if (0..=LAST).contains(&signal) { Ok(signal) } else { errno(libc::EINVAL) }
}

impl Kernel {
    /// Whether the process that runs may send a signal to another one (kill(2)).
    fn may_signal(&self, pid: i32, signal: i32) -> bool {
        let Some(target) = self.groups.get(pid) else { return false };
        let (own, theirs) = (self.group(), &target.credentials);
        let [real, effective, _, _] = own.credentials.uid;
        own.credentials.has(super::super::capabilities::KILL)
            || pid == self.pid()
            || [real, effective].iter().any(|id| *id == theirs.uid[0] || *id == theirs.uid[2])
            || signal == libc::SIGCONT && own.session == target.session
    }
}
