//! The one gate through which everything enters that the guest could not have computed.
//!
//! The personality asks a [`Gate`] at every exit that it serves. While recording, the gate lets the host
//! produce the input and journals it; while replaying, it takes the input from the journal, never calls the
//! host, and stops at the first difference.

use crate::plain::plain;
use crate::position::Offset;
use crate::signal::Arrived;
use crate::stack::Space;
use lbr::crumb::Counts;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use x86::state::Regs;

/// What kind of exit is being served; part of what replay checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A system call, with its number.
    Syscall(u64),
    /// The vDSO's call for the time that has become old while the program computed: a system call, at the tick (the ordinal of
    /// the vDSO's calls since the last exit) that a replay has to make it at, too.
    Clock(u64),
    /// An instruction that reads the machine.
    MachineRead,
    /// A signal is about to be delivered, or ends the program.
    Signal(i32),
    /// The program ended by itself, with its exit status.
    Exited(i32),
    /// All tasks wait, and the host is asked when one can go on.
    Wait,
    /// The task was interrupted between two instructions, at this offset behind the event before.
    Preempt(Offset),
    /// The guest's memory is used up, and this process is killed for it, right behind the event before.
    OutOfMemory(i32),
}

/// Bytes that the host put into guest memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryWrite {
    /// Guest-virtual address.
    pub address: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// What an event takes from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A number: what goes into rax, or another single value.
    Result(i64),
    /// The result of a system call that the host served, with its effects on guest memory.
    Bytes {
        /// What goes into rax.
        result: i64,
        /// What goes into memory, in order.
        writes: Vec<MemoryWrite>,
    },
    /// The content of a file that is mapped or executed; or the kernel's error, negative.
    File(Result<Arc<FileContent>, i64>),
    /// The tasks whose files are ready, and what the host's poll returned.
    Ready {
        /// Of poll.
        result: i64,
        /// Their ids.
        tasks: Vec<i32>,
    },
}

impl Input {
    /// A name of its kind, for messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Input::Result(_) => "a result",
            Input::Bytes { .. } => "bytes",
            Input::File(_) => "a file's content",
            Input::Ready { .. } => "what is ready",
        }
    }
}

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileContent {
    /// Its path.
    pub name: Vec<u8>,
    /// Its bytes. Files with the same bytes share them, in memory and in the journal.
    pub bytes: Arc<Vec<u8>>,
}

/// A preemption that a replay comes to.
#[derive(Clone, Debug)]
pub struct Preemption {
    /// Where it comes.
    pub offset: Offset,
    /// The same as a count, if an earlier replay has found it.
    pub count: Option<u64>,
    /// The time that the program was shown then.
    pub time: Option<Time>,
}

/// A program at an exit, before it is served.
#[derive(Clone, Copy)]
pub struct AtExit<'a> {
    /// Why the engine came back.
    pub exit: lbr::crumb::Exit,
    /// The thread that was running.
    pub thread: u32,
    /// Its registers.
    pub regs: &'a Regs,
    /// What has been counted until then.
    pub counts: Counts,
    /// Its memory.
    pub space: &'a dyn Space,
}

/// Records or replays.
pub trait Gate {
    /// Tells of an exit before anything else is asked about it: for those who keep or compare crumbs.
    fn exit(&mut self, _at: &AtExit<'_>) {}
    /// Begins an event of a task: `regs` are the registers at the exit, before it is served. Journals their digest, or
    /// compares it with the journal's.
    fn begin(&mut self, event: Event, task: i32, regs: &Regs) -> Result<(), GateError>;
    /// An input of the event that was begun last. `produce` asks the host for it; a replaying gate does not call it.
    fn input(&mut self, produce: &mut dyn FnMut() -> Input) -> Result<Input, GateError>;
    /// The time to show in the vDSO's time page from this exit on, nanoseconds of CLOCK_REALTIME and of
    /// CLOCK_MONOTONIC. An input like any other.
    fn time(&mut self) -> Result<Time, GateError>;
    /// The signals that came from outside with the last time, once.
    fn arrived(&mut self) -> Arrived {
        Arrived::default()
    }
    /// Whether signals came from outside that no time has brought yet.
    fn is_signalled(&self) -> bool {
        false
    }
    /// Tells of output that the program made to a descriptor that is a terminal, pipe or file of the host (while replaying,
    /// the host does not see it otherwise).
    fn output(&mut self, descriptor: i32, bytes: &[u8]);
    /// Whether inputs come from a journal: then nothing of the host may be opened, read or changed.
    fn replaying(&self) -> bool;
    /// The preemption that ends the segment in which the program is, while replaying; `None` where it ends by itself.
    fn preemption(&mut self) -> Result<Option<Preemption>, GateError> {
        Ok(None)
    }
    /// The tick at which the vDSO asks for the time at the end of this segment, while replaying; `None` where it ends otherwise.
    fn clock(&mut self) -> Result<Option<u64>, GateError> {
        Ok(None)
    }
    /// The process that is killed at this moment since memory is used up: `worst`, if one is to be, or while replaying the one that the
    /// recording killed here.
    fn victim(&mut self, worst: Option<i32>) -> Result<Option<i32>, GateError> {
        Ok(worst)
    }
    /// The preemption, which was searched for, comes so many instructions behind the event before.
    fn found(&mut self, _count: u64) {}
}

/// Lets everything through and keeps nothing: a program in a virtual machine, and no recording. The function is
/// told of each exit.
pub struct Unrecorded<F>(pub F);

impl<F: FnMut(&AtExit<'_>)> Gate for Unrecorded<F> {
    fn exit(&mut self, at: &AtExit<'_>) {
        (self.0)(at);
    }

    fn begin(&mut self, _event: Event, _task: i32, _regs: &Regs) -> Result<(), GateError> {
        Ok(())
    }

    fn input(&mut self, produce: &mut dyn FnMut() -> Input) -> Result<Input, GateError> {
        Ok(produce())
    }

    fn time(&mut self) -> Result<Time, GateError> {
        Ok(Time::now())
    }

    fn output(&mut self, _descriptor: i32, _bytes: &[u8]) {}

    fn replaying(&self) -> bool {
        false
    }
}

/// A clock of the host in nanoseconds.
pub(crate) fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable for the length of the call. The clocks used here always exist.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec).wrapping_mul(1_000_000_000).wrapping_add(part(time.tv_nsec))
}

/// A moment, for the time page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Time {
    /// CLOCK_REALTIME, nanoseconds since the epoch.
    pub real: u64,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub monotonic: u64,
}
plain!(struct Time { real, monotonic });

impl Time {
    /// The host's clocks.
    #[must_use]
    pub fn now() -> Time {
        Time { real: clock(libc::CLOCK_REALTIME), monotonic: clock(libc::CLOCK_MONOTONIC) }
    }
}

/// Why the gate does not let the guest go on.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The guest is not doing what the journal says.
    #[error("replay diverged at event {event}: {what}: the recording has {expected}, this run has {found}")]
    Diverged {
        /// The ordinal of the event.
        event: u64,
        /// What differs.
        what: &'static str,
        /// The journal's.
        expected: String,
        /// This run's.
        found: String,
    },
    /// The journal ends here (the recorder was killed, or its tail is torn).
    #[error("the journal ends after event {event}; everything before it was replayed")]
    EndOfJournal {
        /// The number of events replayed.
        event: u64,
    },
    /// The journal cannot be written.
    #[error("cannot write the journal {} from offset {offset:#x} on: {error}; what was recorded before stays usable{}",
        path.display(), if has_no_room(error) {
            "; free some space there, or bound the recording with --flight SIZE or --disk SIZE"
        } else {
            ""
        })]
    Write {
        /// The file.
        path: PathBuf,
        /// How many bytes it has.
        offset: u64,
        /// Why not.
        error: std::io::Error,
    },
    /// The personality asked for another kind of input than the journal has.
    #[error("the journal has {0} where the program needs another kind of input")]
    OtherInput(&'static str),
    /// The journal cannot be read.
    #[error("{0}")]
    Read(String),
}

fn has_no_room(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}
