//! The frame that a signal's handler runs on, pushed and popped ([`crate::signal_frame`] says how it is laid out).

use super::super::{Guest, Served, errno};
use super::{Action, Stack};
use crate::engine::Exception;
use crate::ram::Virt;
use crate::signal::{Cause, Raised};
use crate::signal_frame::{Context, Place, SIGINFO, WORDS, entered, image, read_image};
use x86::state::Fpu;

/// What comes back at the handler's end besides the registers.
pub(super) struct Saved {
    pub(super) mask: u64,
    pub(super) stack: Stack,
    /// The last exception; a frame that comes back does not say it.
    pub(super) exception: Option<Exception>,
}

/// Pushes a frame below `top` and enters the handler; `other` says that `top` is on the alternate stack, which must hold
/// the frame then (`get_sigframe` of arch/x86/kernel/signal.c).
pub(super) fn push(
    guest: &mut Guest<'_>,
    (top, other): (Virt, bool),
    action: &Action,
    raised: &Raised,
    saved: &Saved,
) -> Served<()> {
    let regs = *guest.cpu.regs();
    let fpu = guest.cpu.fpu()?;
    let bytes = image(&fpu, guest.model.components() | fpu.wide_components());
    let place = Place::below(top, bytes.len() as u64);
    if other && !saved.stack.holds(place.frame) {
        return errno(libc::EFAULT);
    }
    let stack = [saved.stack.start, saved.stack.flags, saved.stack.size];
    let context = Context::new(&regs, (place.image, bytes.len()), saved.mask, stack, saved.exception);
    guest.write(place.image, &bytes)?;
    guest.write_words(place.frame, &[action.restorer])?;
    guest.write_words(place.context(), &context.0)?;
    guest.write(place.info(), &siginfo(raised))?;
    Ok(guest.cpu.set_regs(&entered(&regs, place, raised.signal(), action.handler))?)
}

/// Takes the registers back from the frame that the handler's return left the stack pointer above.
pub(super) fn pop(guest: &mut Guest<'_>) -> Served<Saved> {
    let regs = *guest.cpu.regs();
    // The return address is already popped, so the stack pointer is at the ucontext.
    let words: [u64; WORDS] = guest.read_words(regs.gpr[4])?;
    let context = Context(words);
    if !context.is_of_program() {
        return errno(libc::EFAULT);
    }
    let fpu = match context.image() {
        0 => Fpu::default(),
        at => read_image(at, |at, bytes| guest.read(at, bytes))?,
    };
    guest.cpu.set_fpu(&fpu)?;
    guest.cpu.set_regs(&context.restored(&regs))?;
    let [start, flags, size] = context.stack();
    let stack = Stack { start, flags: flags & 0xffff_ffff, size };
    Ok(Saved { mask: context.mask(), stack, exception: None })
}

/// The `siginfo_t` of a signal (asm-generic/siginfo.h).
pub(super) fn siginfo(raised: &Raised) -> [u8; SIGINFO] {
    let Raised { death, cause } = raised;
    let mut info = [0; SIGINFO];
    let mut put = |at: usize, bytes: &[u8]| info[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &death.signal.to_le_bytes());
    put(8, &death.code.to_le_bytes());
    match *cause {
        Cause::Kernel => put(16, &death.address.to_le_bytes()),
        Cause::Sender { pid, uid } => {
            put(16, &pid.to_le_bytes());
            put(20, &uid.to_le_bytes());
        }
        Cause::Queued { pid, uid, value } => {
            put(16, &pid.to_le_bytes());
            put(20, &uid.to_le_bytes());
            put(24, &value.to_le_bytes());
        }
        Cause::Child { pid, uid, status } => {
            put(16, &pid.to_le_bytes());
            put(20, &uid.to_le_bytes());
            put(24, &status.to_le_bytes());
        }
        Cause::Timer { id, overrun, value } => {
            put(16, &id.to_le_bytes());
            put(20, &overrun.to_le_bytes());
            put(24, &value.to_le_bytes());
        }
        Cause::File { number, band } => {
            put(16, &band.to_le_bytes());
            put(24, &number.to_le_bytes());
        }
        Cause::Syscall { address, number, data } => {
            put(4, &data.to_le_bytes());
            put(16, &address.to_le_bytes());
            put(24, &number.to_le_bytes());
            // AUDIT_ARCH_X86_64
            put(28, &0xc000_003e_u32.to_le_bytes());
        }
    }
    info
}
