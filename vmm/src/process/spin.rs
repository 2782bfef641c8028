//! Tasks that wait by looking: one that comes round to the same state without having stored anything will do so until another
//! task stores something, and so it gives its processor away.
//!
//! While recording on a processor that counts, now and then a task that others wait behind is followed for one turn of its
//! loop, if it is in one. Nothing of this is decided again at replay: the journal has the preemption, with its count.
//!
//! Example: `while (!flag);` is `mov eax, [flag]; test eax, eax; jz`. Its slice would be millions of instructions; after 4,096 of
//! them it is seen to stand where it stood three instructions before, with the same registers, and the task that sets the flag
//! runs. A loop that counts its turns, or locks by XCHG, keeps its slice.

use super::{Process, ProcessError, Step};
use crate::engine::{Exit, Until};
use crate::position::Offset;

/// Instructions behind an event before the first look.
const FIRST: u64 = 1 << 12;
/// Instructions of a turn at most.
const TURN: u64 = 1 << 9;
/// The first look comes at most so many doublings later, while nobody gets on.
const MOST_DOUBLINGS: u32 = 10;

/// When to look.
#[derive(Default)]
pub(super) struct Spin {
    /// The last look was so many instructions behind the event that the segment begins with; zero before the first.
    looked: u64,
    /// So many tasks gave the processor away one after the other, and none of them had stored anything.
    idle: u32,
}

impl Spin {
    /// A segment begins: it has not been looked at.
    pub(super) fn segment_begins(&mut self) {
        self.looked = 0;
    }

    /// How far behind the event the next look is.
    fn next(&self) -> u64 {
        let first = FIRST << self.idle.min(MOST_DOUBLINGS);
        if self.looked == 0 { first } else { self.looked.saturating_mul(2) }
    }
}

impl Process {
    /// The retired count at which to look whether the task spins, if that is before its slice ends.
    pub(super) fn spin_bound(&self, until: Until, slice_ends: u64) -> Option<u64> {
        let tasks = &self.kernel.tasks;
        if until != Until::Exit || !tasks.any_ready() || tasks.slices_are_random() {
            return None;
        }
        let next = self.retired_at_event.saturating_add(self.pace.spin.next());
        (next < slice_ends).then_some(next)
    }

    /// Follows the task for a turn, and preempts it if that led nowhere.
    pub(super) fn look_for_spin(&mut self) -> Result<Step, ProcessError> {
        let (retired, regs, fpu) = (self.retired(), *self.machine.cpu.regs(), self.machine.cpu.fpu()?);
        self.pace.spin.looked = retired - self.retired_at_event;
        let had_stored = self.has_stored();
        // Not by registers: code would be compiled for a few hundred instructions.
        let until = Until::AtOrRetired(regs.rip, retired + TURN);
        loop {
            match self.execute(until)? {
                Exit::Budget if *self.machine.cpu.regs() == regs => break,
                Exit::Budget if self.retired() < retired + TURN => {}
                Exit::Budget => return Ok(Step::Running),
                Exit::Kicked => return self.kicked(u64::MAX),
                exit => return self.serve_exit(exit),
            }
        }
        if self.has_stored() || self.machine.cpu.fpu()? != fpu {
            return Ok(Step::Running);
        }
        self.pace.spin.idle = if had_stored { 0 } else { self.pace.spin.idle + 1 };
        self.preempted(Offset::Retired(self.retired() - self.retired_at_event))
    }

    /// Whether the processor has stored anything since this was asked before.
    fn has_stored(&mut self) -> bool {
        self.machine.cpu.take_written().is_none_or(|frames| !frames.is_empty())
    }
}
