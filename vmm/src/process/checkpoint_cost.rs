//! What a checkpoint costs: the pause in which it is taken, and then the first store to each page, which faults and copies it.

use super::Process;
use crate::engine::EngineKind;
use std::time::Duration;

/// What the last checkpoint has cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CheckpointCost {
    /// The work that does not wait for stores.
    known: Duration,
    /// How many pages had been copied when it was taken, and how many faults had asked for that.
    copies: u64,
    faults: u64,
}

impl CheckpointCost {
    /// Of a checkpoint that was just taken, in a pause of this length.
    pub(crate) fn of_taken(process: &Process, pause: Duration) -> CheckpointCost {
        CheckpointCost { known: pause, copies: process.memory().copied(), faults: process.copy_faults() }
    }

    /// Of a checkpoint that is to be taken, at most: if the program goes on to store to all of its memory.
    pub(crate) fn foreseen(process: &Process) -> Duration {
        let (copy, fault) = costs(process);
        let pages = u32::try_from(process.memory().frames().used()).unwrap_or(u32::MAX);
        copy.saturating_add(fault / PAGES_OF_A_FAULT).saturating_mul(pages)
    }

    /// Adds work that was done for it elsewhere.
    pub(crate) fn add(&mut self, work: Duration) {
        self.known += work;
    }

    /// What it has cost up to now.
    pub(crate) fn so_far(&self, process: &Process) -> Duration {
        let since = |now: u64, then: u64| u32::try_from(now.saturating_sub(then)).unwrap_or(u32::MAX);
        let (copy, fault) = costs(process);
        let copies = copy.saturating_mul(since(process.memory().copied(), self.copies));
        let faults = fault.saturating_mul(since(process.copy_faults(), self.faults));
        self.known.saturating_add(copies).saturating_add(faults)
    }
}

/// What a copy costs, and the fault that asks for copies. Where two processors take turns, nearly all of it is KVM's, whichever
/// runs now.
fn costs(process: &Process) -> (Duration, Duration) {
    match process.engine_kind() {
        EngineKind::Kvm => (COPY_KVM, process.exit_cost()),
        EngineKind::Soft => (COPY, FAULT),
    }
}

/// So many pages are copied at one fault, where a program stores here and there.
const PAGES_OF_A_FAULT: u32 = 8;
/// The copy of a page, on the software CPU and where a page that changes is taken from a virtual machine's tables.
const COPY: Duration = Duration::from_nanos(800);
const COPY_KVM: Duration = Duration::from_micros(4);
/// The fault that asks for copies, on the software CPU; in a virtual machine it is an exit.
const FAULT: Duration = Duration::from_nanos(500);
