//! What is debugged, as the session needs it: a recording ([`super::recorded`]), or a suffix ([`super::suffix`]).

use super::ids::Id;
use super::points::{Kind, Points};
use super::registers::Shown;
use crate::exit::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use vmm::memory::MappingInfo;
use vmm::signal::Death;

/// A program at a position that it can leave forwards and backwards, and that nothing changes.
pub(super) trait Target {
    /// The threads of all processes that live here, those of the loaded process first.
    fn tasks(&self) -> Vec<Task>;
    /// The thread that runs here.
    fn loaded(&self) -> Id;
    /// The registers of a thread; `None` where it does not live here.
    fn registers(&mut self, id: Id) -> Result<Option<Shown>, Failure>;
    /// Fills the bytes from memory as far as there is any; how many these are.
    fn read(&self, pid: i32, address: u64, bytes: &mut [u8]) -> usize;
    /// The path of a process's program.
    fn program(&self, pid: i32) -> Option<Vec<u8>>;
    fn auxiliary(&self, pid: i32) -> Vec<(u64, u64)>;
    fn mappings(&self, pid: i32) -> Vec<MappingInfo>;
    /// How many bytes of a mapping are the process's own, and not a file's; all, where that is not known.
    fn anonymous(&self, _: i32, mapping: &MappingInfo) -> u64 {
        mapping.end - mapping.start
    }
    /// The signal that ended a process, where it stands at that.
    fn death(&self, pid: i32) -> Option<Death>;
    /// The `siginfo_t` of a signal that a thread stopped for and has a handler of, as that is given it.
    fn handled(&self, _: Id) -> Option<Vec<u8>> {
        None
    }
    /// Whether it stops for system calls.
    fn has_calls(&self) -> bool {
        false
    }
    /// Goes on.
    fn run(&mut self, way: Way, wishes: &Wishes) -> Result<Stopped, Failure>;
    /// Goes to the beginning.
    fn restart(&mut self) -> Result<Stopped, Failure>;
    /// Answers a command of its own with lines of text; `pid` is looked at.
    fn monitor(&mut self, command: &str, pid: i32) -> Result<String, Failure>;
    /// Gets ready for what may be asked next, while nothing is; it stands where it stood then.
    fn prepare(&mut self) -> Result<(), Failure> {
        Ok(())
    }
    /// What ends a run early when it is set.
    fn asks(&self) -> Arc<AtomicBool>;
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) id: Id,
    pub(super) name: String,
    /// What else there is to say of it.
    pub(super) about: String,
}

/// How to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Forward,
    Back,
    /// One instruction of this thread, or as many as it takes to leave a range.
    Step(Id, Option<(u64, u64)>),
    StepBack(Id),
}

/// What a debugger wants to stop for.
#[derive(Clone, Debug, Default)]
pub(super) struct Wishes {
    pub(super) points: Points,
    /// Signals that are none, by gdb's numbers.
    pub(super) passed: BTreeSet<i32>,
    pub(super) forks: bool,
    pub(super) vforks: bool,
    pub(super) execs: bool,
    /// System calls that are caught, by number; all of them where no number is given.
    pub(super) calls: Option<Vec<i64>>,
    /// Processes that are not looked at.
    pub(super) hidden: BTreeSet<i32>,
    /// Those that the debugger has seen, each with a thread of it.
    pub(super) seen: BTreeMap<i32, Id>,
    /// The thread whose vfork the debugger was told of, and not yet that its wait is over: until then it has no breakpoints in that
    /// thread's process.
    pub(super) held: Option<Id>,
    /// The one that is looked at, where the debugger knows only one.
    pub(super) alone: Option<i32>,
}

impl Wishes {
    /// Whether a process is looked at.
    pub(super) fn includes(&self, pid: i32) -> bool {
        !self.hidden.contains(&pid) && self.alone.is_none_or(|alone| alone == pid)
    }
}

/// Where a run has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stopped {
    pub(super) id: Id,
    pub(super) why: Why,
}

/// Why it ended there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Where it was to go.
    There,
    /// Another thread stopped, and this one with it.
    Along,
    /// A breakpoint, or an access to watched data that begins at this address.
    Point(Kind, u64),
    /// A signal, by Linux's number.
    Signal(i32),
    /// Ctrl-C.
    Asked,
    /// The beginning, or the end, of what there is.
    Begin,
    End,
    /// The thread has started another process.
    Forked {
        pid: i32,
        /// It waits until that has called exec or ended (vfork).
        waits: bool,
    },
    /// That wait is over.
    Released,
    /// It is before a system call, or behind it.
    Called {
        number: u64,
        returned: bool,
    },
    /// It runs this program from here on.
    Executed(Vec<u8>),
}
