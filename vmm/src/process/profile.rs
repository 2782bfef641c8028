//! Where a program's time goes: what `gretel record --profile` shows.
//!
//! The guest's time is that inside the processor, the exit to it and back included; all else of a step serves the exit. What the
//! gate needs for the journal is part of that, and told apart.

use crate::engine::{EngineKind, Exit};
use std::time::Duration;

/// What a processor came back for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A system call.
    Syscall,
    /// A page fault.
    PageFault,
    /// Another exception.
    Exception,
    /// An instruction that reads the machine.
    MachineRead,
    /// Nothing that the program did: a bound, a kick, a signal from outside, an exchange.
    Other,
}

impl Kind {
    /// All, in the order of [`Profile::exits`].
    pub const ALL: [Kind; 5] =
        [Kind::Syscall, Kind::PageFault, Kind::Exception, Kind::MachineRead, Kind::Other];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Syscall => "system calls",
            Kind::PageFault => "page faults",
            Kind::Exception => "other exceptions",
            Kind::MachineRead => "machine reads",
            Kind::Other => "bounds and kicks",
        }
    }

    fn of(exit: &Exit) -> Kind {
        const PAGE_FAULT: u8 = 14;
        match exit {
            Exit::Syscall => Kind::Syscall,
            Exit::Exception(exception) if exception.vector == PAGE_FAULT => Kind::PageFault,
            Exit::Exception(_) | Exit::NoSemantics { .. } => Kind::Exception,
            Exit::MachineRead(_) => Kind::MachineRead,
            Exit::Budget | Exit::Seen | Exit::Interrupted | Exit::Kicked | Exit::Differing => Kind::Other,
        }
    }
}

/// Exits of one kind on one processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exits {
    /// How many.
    pub count: u64,
    /// How long the guest ran up to them, and the way out and in again.
    pub guest: Duration,
    /// How long they were served.
    pub served: Duration,
}

/// What was measured of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// By processor (KVM, the software CPU) and [`Kind`].
    pub exits: [[Exits; 5]; 2],
    /// How often another processor went on, and how long that took.
    pub exchanges: u64,
    /// The time that they took.
    pub exchanging: Duration,
    /// The exit that is being served.
    last: Option<(usize, usize)>,
}

impl Profile {
    /// A processor came back.
    pub(super) fn ran(&mut self, on: EngineKind, took: Duration, exit: &Exit) {
        let at = (usize::from(on == EngineKind::Soft), Kind::of(exit) as usize);
        let exits = &mut self.exits[at.0][at.1];
        exits.count += 1;
        exits.guest += took;
        self.last = Some(at);
    }

    /// A step is over that took so long in all: what of it was not the guest's served its exit.
    pub(super) fn stepped(&mut self, took: Duration, in_guest: Duration) {
        if let Some((on, kind)) = self.last.take() {
            self.exits[on][kind].served += took.saturating_sub(in_guest);
        }
    }

    /// How long the guest ran.
    #[must_use]
    pub fn guest(&self) -> Duration {
        self.exits.iter().flatten().map(|exits| exits.guest).sum()
    }

    pub(super) fn exchanged(&mut self, took: Duration) {
        self.exchanges += 1;
        self.exchanging += took;
    }
}
