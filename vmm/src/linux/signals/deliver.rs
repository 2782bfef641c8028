//! Delivery: entering handlers, and what becomes of a call that a signal interrupts.

use super::super::polling::write_left;
use super::super::tasks::Doing;
use super::super::time::NANOSECONDS;
use super::super::wait::{Interrupted, Wait, Why};
use super::super::{Guest, Kernel, Outcome, Served, Stop, errno, word};
use super::{
    SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SA_RESTORER, SIG_DFL, SIG_IGN, SS_AUTODISARM,
    SS_DISABLE, Stack, UNSTOPPABLE, bit, frame,
};
use crate::engine::Exception;
use crate::failure::ProcessError;
use crate::memory::layout::USER_END;
use crate::signal::{Cause, Death, Raised, SI_KERNEL};
use x86::state::Fpu;

/// `si_code`: nothing is mapped there.
const SEGV_MAPERR: i32 = 1;
/// The length of SYSCALL.
const SYSCALL_LEN: u64 = 2;
/// #GP and #PF, and the latter's error code for a fetch by a program from a page that is not its own (Intel SDM vol. 3, 4.7).
const GENERAL: u8 = 13;
const PAGE_FAULT: u8 = 14;
const FETCH_BY_USER: u32 = 0x15;

/// What becomes of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// A handler runs: the registers are set.
    Handled,
    /// The program ends.
    Fatal(Death),
}

/// What becomes of a call whose wait a signal has ended, before the signal is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// There is nothing to deliver after all: the call is served again.
    Again,
    /// The registers are those behind the call; the signal can be delivered.
    Told,
    /// The process is stopped, and the call goes on when it does.
    Stopped,
}

/// Delivers a signal: `synchronous` for an exception, which cannot be ignored or blocked.
pub(crate) fn deliver(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    raised: Raised,
    synchronous: bool,
) -> Result<Delivery, ProcessError> {
    let signal = raised.signal();
    let action = kernel.action(signal);
    let own = &kernel.tasks.current().signals;
    if action.handler <= SIG_IGN || synchronous && own.blocks(signal) {
        return Ok(Delivery::Fatal(raised.death));
    }
    match enter(kernel, guest, &raised) {
        Ok(()) => Ok(Delivery::Handled),
        Err(Stop::Fatal(error)) => Err(error),
        // The kernel's answer to a stack that cannot take the frame: SIGSEGV, whose handler may have a stack of its own.
        Err(_) => {
            let death = Death {
                signal: libc::SIGSEGV,
                code: SI_KERNEL,
                address: 0,
                exception: raised.death.exception,
            };
            if signal == libc::SIGSEGV {
                return Ok(Delivery::Fatal(death));
            }
            deliver(kernel, guest, Raised { death, cause: Cause::Kernel }, true)
        }
    }
}

/// Whether an address is canonical, and of the half that is not a program's.
fn is_upper_half(address: u64) -> bool {
    address >= 0xffff_8000_0000_0000
}

/// Enters the handler.
fn enter(kernel: &mut Kernel, guest: &mut Guest<'_>, raised: &Raised) -> Served<()> {
    let signal = raised.signal();
    let action = kernel.action(signal);
    let own = &mut kernel.tasks.current_mut().signals;
    let regs = *guest.cpu.regs();
    let stack = own.stack;
    let nested = stack.is_used(regs.gpr[4]);
    let enters = action.flags & SA_ONSTACK != 0 && stack.flags & SS_DISABLE == 0 && !nested;
    let top = if enters { stack.start.saturating_add(stack.size) } else { regs.gpr[4].saturating_sub(128) };
    own.exception = raised.death.exception.or(own.exception);
    let saved = frame::Saved { mask: own.replaced.unwrap_or(own.blocked), stack, exception: own.exception };
    if action.flags & SA_RESTORER == 0 || action.handler >= USER_END {
        return errno(libc::EFAULT);
    }
    frame::push(guest, (top, nested || enters), &action, raised, &saved)?;
    // A handler begins with the initial x87 and vector state (`fpu__clear_user_states`).
    guest.cpu.set_fpu(&Fpu::default())?;
    let task = kernel.tasks.current_mut();
    let handlers = task.handlers;
    let own = &mut task.signals;
    own.replaced = None;
    if own.stack.flags & SS_AUTODISARM != 0 {
        own.stack = Stack::NONE;
    }
    own.blocked |= action.mask & !UNSTOPPABLE;
    if action.flags & SA_NODEFER == 0 {
        own.blocked |= bit(signal) & !UNSTOPPABLE;
    }
    if action.flags & SA_RESETHAND != 0 {
        // Flags and mask stay, as sigaction tells.
        if let Some(action) = kernel.handlers.get_mut(handlers).get_mut(&signal) {
            action.handler = SIG_DFL;
        }
    }
    Ok(())
}

/// What becomes of a call whose wait a signal has ended, before the signal is delivered.
pub(crate) fn interrupt(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    wait: &Wait,
) -> Result<Interruption, ProcessError> {
    let Some(signal) = kernel.next() else { return Ok(Interruption::Again) };
    if kernel.stops(signal) && wait.interrupted != Interrupted::FailsEvenStopped {
        // The call is interrupted again when the process goes on, and then nothing is pending.
        kernel.tasks.current_mut().doing = Doing::Woken(wait.clone(), Why::Signal);
        kernel.take_signal();
        return Ok(Interruption::Stopped);
    }
    let restarts = kernel.action(signal).flags & SA_RESTART != 0;
    let interrupted = word(-i64::from(libc::EINTR));
    let mut regs = *guest.cpu.regs();
    match wait.interrupted {
        // What was transferred is told.
        _ if wait.done > 0 => regs.gpr[0] = wait.done as u64,
        Interrupted::MayRestart if !restarts => regs.gpr[0] = interrupted,
        Interrupted::MayRestart | Interrupted::Restarts => regs.rip = regs.rip.wrapping_sub(SYSCALL_LEN),
        Interrupted::Fails | Interrupted::FailsEvenStopped | Interrupted::Never => regs.gpr[0] = interrupted,
        Interrupted::LeavesTimeLeft(at, unit) => {
            regs.gpr[0] = interrupted;
            write_left(kernel, guest, wait.deadline, at, unit).or_else(fatal_only)?;
        }
        Interrupted::TellsTimeLeft(at) => {
            regs.gpr[0] = interrupted;
            let left = wait.deadline.map_or(0, |deadline| deadline.left(kernel.clock.shown()));
            match guest.write_words(at, &[left / NANOSECONDS, left % NANOSECONDS]) {
                Err(Stop::Fatal(error)) => return Err(error),
                Err(Stop::Errno(error)) => regs.gpr[0] = word(-i64::from(error)),
                _ => {}
            }
        }
    }
    guest.cpu.set_regs(&regs)?;
    Ok(Interruption::Told)
}

/// An error that ends gretel; one for the program is not told.
fn fatal_only(stop: Stop) -> Result<(), ProcessError> {
    if let Stop::Fatal(error) = stop { Err(error) } else { Ok(()) }
}

/// Returns from a handler to where the signal came. A frame that cannot be read, or that leads where no program is, is
/// SIGSEGV, whether the program blocks it or not.
pub(in super::super) fn sigreturn(kernel: &mut Kernel, guest: &mut Guest<'_>) -> Served<Outcome> {
    match frame::pop(guest) {
        Ok(saved) => {
            kernel.tasks.current_mut().signals.blocked = saved.mask & !UNSTOPPABLE;
            // As in the kernel, an alternate stack that cannot be is not told.
            let _ = super::calls::set_stack(kernel, guest, saved.stack);
            let rip = guest.cpu.regs().rip;
            // The processor comes back there, and cannot fetch; or it does not take the address at all.
            if is_upper_half(rip) || rip == USER_END {
                let exception = Exception { vector: PAGE_FAULT, error_code: FETCH_BY_USER, address: rip };
                let exception = Some(exception);
                kernel.force(Death { signal: libc::SIGSEGV, code: SEGV_MAPERR, address: rip, exception });
            } else if rip > USER_END {
                let exception = Some(Exception { vector: GENERAL, error_code: 0, address: 0 });
                kernel.force(Death { signal: libc::SIGSEGV, code: SI_KERNEL, address: 0, exception });
            }
        }
        Err(Stop::Errno(_)) => {
            kernel.force(Death { signal: libc::SIGSEGV, code: SI_KERNEL, address: 0, exception: None });
        }
        Err(fatal) => return Err(fatal),
    }
    Ok(Outcome::Resumed)
}
