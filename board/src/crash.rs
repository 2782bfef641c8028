//! Where a kernel crashed: not where its machine ended, which is in the reset at the end of its panic, but the instruction before that.
//!
//! The stack at the end says it. Linux tells by its tables which frames are those of exceptions ([`crate::linux::stack`]); without these
//! an exception is the one if what the processor has stored for its handler is still there, and the stack has not come back from it.
//! Example: `panic` was called by `oops_end`, that by `asm_exc_page_fault`, and the page fault came at `count_write+0x5` with this stack
//! pointer. The newest exception that was raised there is the crash.
//!
//! A panic that no exception led to (a watchdog's, one that was asked for) begins where `panic` is entered.

use crate::linux::Linux;
use crate::linux::stack::By;
use crate::machine::{Exception, Machine, Position};
use crate::travel::{Stop, Travel, TravelError};
use vmm::engine::lookout::Lookout;
use x86_system::Raised;

/// What the machine stands at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The instruction that raises this.
    Raised(Raised),
    /// The first instruction of `panic`.
    Panic,
    /// The end of the recording: nothing tells what led there.
    End,
}

impl Crash {
    /// What the instruction there raises.
    ///
    /// # Errors
    /// What the end is, in words, where nothing is raised.
    pub fn end(self) -> Result<Raised, &'static str> {
        match self {
            Crash::Raised(raised) => Ok(raised),
            Crash::Panic => Err("panic without an exception"),
            Crash::End => Err("the end of the recording"),
        }
    }
}

/// Goes from the end of a recording to where its kernel crashed.
///
/// # Errors
/// When the run differs.
pub fn seek(travel: &mut Travel) -> Result<Crash, TravelError> {
    let end = travel.position();
    let (found, panic) = look(travel.machine());
    if let Some(exception) = found {
        travel.seek(exception.at)?;
        return Ok(Crash::Raised(exception.raised));
    }
    if let Some(panic) = panic {
        let lookout = Lookout { at: vec![panic], ..Lookout::default() };
        if matches!(travel.backward(&lookout, &mut |_, _| true)?, Stop::Seen(_)) {
            return Ok(Crash::Panic);
        }
        travel.seek(end)?;
    }
    Ok(Crash::End)
}

/// The exception that led to a machine's end, if one did.
#[must_use]
pub fn exception(machine: &Machine) -> Option<Exception> {
    look(machine).0
}

/// The exception that led to the end, and where `panic` is.
fn look(machine: &Machine) -> (Option<Exception>, Option<u64>) {
    let description = machine.description();
    let linux = description.as_deref().and_then(|description| Linux::new(machine, description).ok());
    let Some(linux) = linux else {
        return (machine.exceptions().find(|it| is_pending(machine, it)).copied(), None);
    };
    let frames = linux.stack(&machine.regs()).frames;
    let saved = frames.iter().filter(|frame| frame.by == By::Saved);
    let raised = |frame: &crate::linux::stack::Frame| {
        let is_it = |it: &&Exception| (it.raised.rip, it.raised.rsp) == (frame.rip, frame.rsp);
        machine.exceptions().find(is_it).copied()
    };
    let found = saved.into_iter().find_map(raised);
    let found = found.or_else(|| machine.exceptions().find(|it| is_triple(machine, it)).copied());
    (found, linux.symbols().ok().and_then(|symbols| symbols.address("panic")))
}

/// Whether the processor has not come back from an exception: its frame is there, above the stack pointer, or it ended the machine.
fn is_pending(machine: &Machine, exception: &Exception) -> bool {
    /// rip, CS, RFLAGS, rsp and SS.
    const FRAME: usize = 40;
    let Raised { rip, rsp, privilege, .. } = exception.raised;
    if is_triple(machine, exception) {
        return true;
    }
    let at = (rsp & !15).wrapping_sub(FRAME as u64);
    let mut frame = [0; FRAME];
    let is_there = machine.read(at, &mut frame) == frame.len();
    let word = |n: usize| frame[n * 8..n * 8 + 8].try_into().map_or(0, u64::from_le_bytes);
    let is_stored = is_there && (word(0), word(3)) == (rip, rsp);
    privilege == 0 && is_stored && machine.regs().gpr[4] <= at
}

/// Whether nothing was done behind an exception: there was no way to its handler.
fn is_triple(machine: &Machine, exception: &Exception) -> bool {
    let Position { retired, delivered } = machine.position();
    exception.at == Position { retired, delivered: delivered.saturating_sub(1) }
        && machine.regs().rip == exception.raised.rip
}
