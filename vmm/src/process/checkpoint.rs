//! Checkpoints: all that a program is, kept in the memory in which it goes on.
//!
//! A checkpoint is a fork of every address space: it counts one more owner of each frame and takes the right to write away, so
//! that it costs what the page tables are large, and later one copy for each page that is written. Pages of shared objects
//! are copied at once. The kernel, the registers and the counts are values.
//!
//! Example: a replay stands at event 1,000 and takes a checkpoint, goes on to event 5,000, and is restored: it stands at event
//! 1,000 again, and the checkpoint can be restored once more.

use super::{Death, Process, ProcessError, Step};
use crate::engine::Counters;
use crate::linux::{Kernel, Spaces};
use crate::memory::AddressSpace;
use crate::position::Position;
use crate::ram::{Memory, SavedObjects};
use x86::state::State;

/// A program at a position. It owns frames of the memory that it was taken in, which [`Checkpoint::release`] gives back; one
/// that is dropped instead keeps them from others for as long as that memory lives.
#[must_use = "its frames are in use until it is released"]
pub struct Checkpoint {
    pub(super) spaces: Spaces,
    pub(super) space: u32,
    pub(super) objects: SavedObjects,
    pub(super) kernel: Kernel,
    pub(super) state: State,
    pub(super) position: Position,
    pub(super) counters: Option<Counters>,
    pub(super) counts_late: bool,
    /// How much of its slice the task has left, in instructions.
    pub(super) slice_left: u64,
    pub(super) dying: Option<Death>,
    pub(super) first_death: Option<Death>,
    pub(super) end: Option<Step>,
}

impl Checkpoint {
    /// Where the program stood. On a processor that does not count, `retired` is zero wherever in the segment it is.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// What had retired since the program's start, if the processor counts; or since later ([`Process::counts_late`]).
    #[must_use]
    pub fn counters(&self) -> Option<Counters> {
        self.counters
    }

    /// As [`Process::counts_late`].
    #[must_use]
    pub fn counts_late(&self) -> bool {
        self.counts_late
    }

    /// The registers of the loaded task.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The address space of a process that has not ended.
    pub(crate) fn space_of(&self, pid: i32) -> Option<&AddressSpace> {
        let is_loaded = pid == self.kernel.pid();
        let space = if is_loaded { Some(self.space) } else { self.kernel.tasks.space_of(pid) };
        space.map(|space| self.spaces.get(space))
    }

    /// Gives its frames back to the memory that it was taken in.
    pub fn release(self, memory: &mut Memory) {
        self.spaces.into_things().for_each(|space| space.release(memory));
        self.objects.release(memory);
    }
}

/// What a processor that counts is to begin with at a position inside a segment of which the recorder knew no more: so many
/// instructions have retired since the event before.
pub(super) fn counts_since_event(position: Position) -> Option<Counters> {
    (position.retired > 0).then(|| Counters { instructions: position.retired, ..Counters::default() })
}

/// Forks all address spaces, their ids and owners kept.
fn fork_all(spaces: &mut Spaces, memory: &mut Memory) -> Result<Spaces, ProcessError> {
    spaces.try_copy(|space| space.twin(memory)).map_err(|(copies, error)| {
        copies.into_things().for_each(|space| space.release(memory));
        error.into()
    })
}

impl Process {
    /// Keeps all that the program is. What it has open of the host is not part of that: the copy is one that replays.
    ///
    /// # Errors
    /// When the frames of guest memory are used up, which leaves the program as it was, and when the processor does not give
    /// its state.
    pub fn checkpoint(&mut self) -> Result<Checkpoint, ProcessError> {
        let state = self.state()?;
        let objects =
            SavedObjects::save(&mut self.machine.memory).map_err(crate::memory::space::SpaceError::from)?;
        let spaces = match fork_all(&mut self.spaces, &mut self.machine.memory) {
            Ok(spaces) => spaces,
            Err(error) => {
                objects.release(&mut self.machine.memory);
                return Err(error);
            }
        };
        let retired = self.retired();
        Ok(Checkpoint {
            spaces,
            space: self.space,
            objects,
            kernel: self.kernel.detached(),
            state,
            position: self.position(),
            counters: self.machine.cpu.counters(),
            counts_late: self.counts_late,
            slice_left: self.pace.slice_left(retired),
            dying: self.dying,
            first_death: self.first_death,
            end: self.end,
        })
    }

    /// Makes the program what it was at a checkpoint of its own, on whichever processor it runs now. The gate is the caller's
    /// to set, and so is what the program had open of the host, which it no longer has.
    ///
    /// # Errors
    /// When the frames of guest memory are used up, which leaves the program as it was, and when the processor does not
    /// take the state.
    pub fn restore(&mut self, checkpoint: &mut Checkpoint) -> Result<(), ProcessError> {
        // An offset behind an event is known to a processor that counts alone.
        if checkpoint.position.retired > 0 && self.machine.cpu.counters().is_none() {
            self.exchange()?;
        }
        let spaces = fork_all(&mut checkpoint.spaces, &mut self.machine.memory)?;
        let gone = std::mem::replace(&mut self.spaces, spaces);
        self.space = checkpoint.space;
        let cpu = &mut *self.machine.cpu;
        cpu.set_page_table(self.spaces.get(self.space).root());
        cpu.set_regs(&checkpoint.state.regs)?;
        cpu.set_fpu(&checkpoint.state.fpu)?;
        let counters = checkpoint.counters.or_else(|| counts_since_event(checkpoint.position));
        if let Some(counters) = counters {
            cpu.set_counters(counters);
        }
        self.counts_late = checkpoint.counts_late || checkpoint.counters.is_none();
        checkpoint.objects.restore(&mut self.machine.memory);
        gone.into_things().for_each(|space| space.release(&mut self.machine.memory));
        self.kernel = checkpoint.kernel.detached();
        self.faults = None;
        self.events = checkpoint.position.event;
        let retired = self.retired();
        self.retired_at_event = retired.saturating_sub(checkpoint.position.retired);
        self.pace.set_slice_left(retired, checkpoint.slice_left);
        self.note_counts(checkpoint.position.retired == 0);
        (self.dying, self.first_death, self.end) = (checkpoint.dying, checkpoint.first_death, checkpoint.end);
        Ok(())
    }

    /// Gives the frames of a checkpoint of this program back.
    pub fn release(&mut self, checkpoint: Checkpoint) {
        checkpoint.release(&mut self.machine.memory);
    }
}
