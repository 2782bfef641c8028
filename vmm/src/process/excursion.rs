//! A recorded program leaves the present: it runs from one of its checkpoints again, in the same memory, and comes back.
//!
//! What it has of the host stays behind meanwhile: its gate, the kernel with its open files, the processor's counts.

use super::choice::Choice;
use super::preempt::Pace;
use super::trace::Trace;
use super::{Checkpoint, Process, ProcessError};
use crate::engine::{Counters, EngineKind};
use crate::gate::Gate;
use crate::linux::Kernel;
use lbr::Armed;

/// What a program has of the host.
pub(crate) struct Outside {
    gate: Box<dyn Gate>,
    kernel: Kernel,
    pace: Pace,
    choice: Option<Choice>,
    records: Option<Armed>,
    trace: Option<Trace>,
    kind: EngineKind,
}

impl Process {
    /// Leaves the host behind, and takes inputs from `gate`. A checkpoint is to be restored before the next step.
    ///
    /// # Errors
    /// When a processor does not give or take the state.
    pub(crate) fn leave(&mut self, gate: Box<dyn Gate>) -> Result<Outside, ProcessError> {
        // Of two that take turns, the one that goes back over a long way sooner.
        if self.machine.cpu.kind() != self.engine_kind() {
            self.exchange()?;
        }
        let kernel = self.kernel.detached();
        Ok(Outside {
            gate: std::mem::replace(&mut self.gate, gate),
            kernel: std::mem::replace(&mut self.kernel, kernel),
            pace: std::mem::take(&mut self.pace),
            choice: self.choice.take(),
            records: self.records.take(),
            // What happens again was told the first time.
            trace: self.trace.take(),
            kind: self.machine.cpu.kind(),
        })
    }

    /// Comes back to the present, which `now` was taken of.
    ///
    /// # Errors
    /// As [`Process::restore`]; then the program is lost.
    pub(crate) fn come_back_to(
        &mut self,
        outside: Outside,
        now: &mut Checkpoint,
    ) -> Result<(), ProcessError> {
        if let Some(spare) = self.pace.spare.take()
            && (self.machine.cpu.kind() != outside.kind || outside.kind == EngineKind::Soft)
        {
            self.machine.cpu = spare;
        }
        // Where another processor ran, this one has not been told of what changed.
        self.machine.memory.invalidate_all();
        (self.pace, self.choice, self.records) = (outside.pace, outside.choice, outside.records);
        self.restore(now)?;
        (self.gate, self.kernel, self.trace) = (outside.gate, outside.kernel, outside.trace);
        Ok(())
    }

    /// Has a software CPU run from here on, of which nothing is known but that it is new; the one that was there comes back
    /// with [`Process::come_back_to`]. A checkpoint is to be restored before the next step.
    pub(crate) fn use_software_cpu(&mut self) -> Result<(), ProcessError> {
        self.pace.exactly = true;
        if self.pace.spare.is_none() {
            let cpu = self.software_cpu()?;
            self.pace.spare = Some(std::mem::replace(&mut self.machine.cpu, cpu));
            self.machine.memory.exchange_processor();
        } else if self.machine.cpu.kind() == EngineKind::Kvm {
            self.exchange()?;
        }
        Ok(())
    }

    /// What has retired since the program's start, if the processor that recorded counts exactly.
    pub(crate) fn counted_since_start(&self) -> Option<Counters> {
        let recorder = self.pace.spare.as_ref().map_or_else(|| self.machine.cpu.kind(), |spare| spare.kind());
        self.machine.cpu.counters().filter(|_| recorder == EngineKind::Soft && !self.counts_late)
    }

    /// How often a store found its page shared with a checkpoint or another process.
    pub(crate) fn copy_faults(&self) -> u64 {
        self.copy_faults
    }
}
