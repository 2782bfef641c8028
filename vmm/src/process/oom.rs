//! Memory that is used up: a process is killed for it, the one that Linux would choose.
//!
//! How many frames are in use is not the same in each run: checkpoints, and other engines, have pages copied at other times. So the
//! recorder alone looks, and its decision is an event with the process that it killed. It stands right behind another event: the
//! system call in which memory was used up, or a preemption in front of the instruction whose page there is no frame for. A replay has
//! more memory, and kills where the journal says.
//!
//! Example: a child fills a mapping, and its store faults when all of `--memory` is in use. It is preempted there, which is an
//! event, and behind that stands the next: the child is killed. When its turn comes, it ends, and its parent goes on.

use super::happening::What;
use super::{Process, ProcessError, Step};
use crate::gate::Event;
use crate::memory::space::{Access, SpaceError};
use crate::position::Offset;
use crate::ram::Virt;
use x86::state::Regs;

impl Process {
    /// While recording: whether a page fault needs memory that there is not, so that others have to go on before it is served. If a process
    /// is ending already and nobody else can run, the reserve serves it.
    pub(super) fn lacks_memory_for(&mut self, address: Virt, access: Access) -> bool {
        if self.machine.memory.frames().is_exhausted() {
            self.machine.memory.drop_unused_files();
        }
        !self.gate.replaying()
            && self.machine.memory.frames().is_exhausted()
            && self.space().takes_memory(&self.machine.memory, address, access)
            && (!self.kernel.gets_memory_back() || self.kernel.tasks.any_ready())
    }

    /// The task is preempted in front of the instruction that faulted; `served` are the registers at a page fault that was served right
    /// before. A count does not say whether the instruction's other page is there, nor how far it has come if it repeats.
    pub(super) fn give_way(&mut self, served: Option<Regs>) -> Result<Step, ProcessError> {
        let begins = served != Some(*self.machine.cpu.regs()) && !self.is_inside_rep();
        let offset = if begins && self.machine.cpu.counters().is_some() {
            Offset::Retired(self.retired() - self.retired_at_event)
        } else {
            Offset::State(Box::new(self.target()?))
        };
        self.preempted(offset)
    }

    /// Behind an event: kills a process if memory is used up, and nobody ends who gives some back.
    pub(super) fn kill_if_exhausted(&mut self) -> Result<(), ProcessError> {
        if self.machine.memory.frames().is_exhausted() {
            self.machine.memory.drop_unused_files();
        }
        let frames = self.machine.memory.frames();
        let lacks = !self.gate.replaying() && frames.is_exhausted() && !self.kernel.gets_memory_back();
        let worst = if lacks {
            let found = self.kernel.worst(&self.spaces, &self.machine.memory);
            Some(found.ok_or_else(|| SpaceError::from(frames.exhausted()))?)
        } else {
            None
        };
        let Some(victim) = self.gate.victim(worst)? else { return Ok(()) };
        self.begin(Event::OutOfMemory(victim))?;
        let (kernel, guest) = self.guest();
        kernel.kill_for_memory(&guest, victim);
        self.happened(|_| What::OutOfMemory(victim));
        Ok(())
    }
}
