//! Tasks that wait by looking: one that comes round to the same state without having stored anything will do so until another
//! task stores something, and so it gives its processor away.
//!
//! While recording on a processor that counts, now and then a task that others wait behind is followed for one turn of its loop, if it is in one.
//! Nothing of this is decided again at replay: the journal has the preemption, with its count.
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
    /// At this retired count.
    next: u64,
    /// So many tasks gave the processor away one after the other, and none of them had stored anything.
    idle: u32,
}

impl Process {
    /// The retired count at which to look whether the task spins, if that is before its slice ends.
    pub(super) fn spin_bound(&mut self, until: Until, slice_ends: u64) -> Option<u64> {
        let tasks = &self.kernel.tasks;
        if until != Until::Exit || !tasks.any_ready() || tasks.slices_are_random() {
            return None;
        }
        let first = self.retired_at_event + (FIRST << self.pace.spin.idle.min(MOST_DOUBLINGS));
        let next = if self.pace.spin.next > self.retired_at_event { self.pace.spin.next } else { first };
        (next < slice_ends).then_some(next)
    }

    /// Follows the task for a turn, and preempts it if that led nowhere.
    pub(super) fn look_for_spin(&mut self) -> Result<Step, ProcessError> {
        let (retired, before) = (self.retired(), *self.machine.cpu.regs());
        self.pace.spin.next = retired + (retired - self.retired_at_event);
        let had_stored = self.has_stored();
        let until = Until::StateOrRetired(before.rip, before.gpr, retired + TURN);
        loop {
            match self.execute(until)? {
                Exit::Budget if *self.machine.cpu.regs() == before => break,
                Exit::Budget if self.retired() < retired + TURN => {}
                Exit::Budget => return Ok(Step::Running),
                Exit::Kicked => return self.kicked(u64::MAX),
                exit => return self.serve_exit(exit),
            }
        }
        if self.has_stored() {
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
