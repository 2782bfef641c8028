//! Crumbs of a recorded program: left at each exit while recording, compared where that is cheap while replaying.

use crate::gate::AtExit;
use crate::recording::{Recording, RecordingError, shared_file};
use lbr::crumb::{Crumb, Entry, Exit, Origin, Reader, RingError, Writer};
use lbr::{Crumbs, crumb};
use rustc_hash::FxHashMap;
use std::io;

/// How many of the newest crumbs go into a core at most.
const IN_CORE: usize = 4096;
/// How many crumbs a ring holds unless another number is asked for.
pub const DEFAULT_SLOTS: u32 = 4096;

/// What to keep of a recording's exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// How many crumbs the ring holds.
    pub slots: u32,
}

/// A clock of the host in nanoseconds.
pub(crate) fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable for the length of the call. The two clocks used here always exist.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec).wrapping_mul(1_000_000_000).wrapping_add(part(time.tv_nsec))
}

/// Leaves the crumbs of the one virtual CPU.
pub struct Leaver {
    ring: Writer,
}

impl Leaver {
    /// Makes the recording's ring.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn create(recording: &Recording, keep: Keep) -> Result<Leaver, RecordingError> {
        let path = recording.crumbs();
        let origin =
            Origin { vcpu: 0, real: clock(libc::CLOCK_REALTIME), monotonic: clock(libc::CLOCK_MONOTONIC) };
        let ring = shared_file(&path).and_then(|file| Writer::create(file, keep.slots, origin));
        ring.map(|ring| Leaver { ring }).map_err(|error| RecordingError::Write { path, error })
    }

    /// Leaves a crumb; `events` of the journal had begun before.
    pub fn leave(&mut self, at: &AtExit<'_>, events: u64) {
        self.ring.put(&Crumb {
            exit: at.exit,
            event: events,
            thread: at.thread,
            rip: at.regs.rip,
            rsp: at.regs.gpr[4],
            time: Some(clock(libc::CLOCK_MONOTONIC)),
            counts: at.counts,
            context: None,
        });
    }
}

/// The newest crumbs of a recording's ring, at most `count`; `None` if it was recorded without.
///
/// # Errors
/// When the ring cannot be read.
pub fn newest(recording: &Recording, count: usize) -> Result<Option<Crumbs>, RingError> {
    match Reader::open(&recording.crumbs()) {
        Ok(ring) => Ok(Some(Crumbs::newest(ring.origin(), ring.snapshot()?, count))),
        Err(RingError::Read { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The crumbs that go into a recording's core. A ring that cannot be read costs the core its crumbs, not more.
#[must_use]
pub fn of_core(recording: &Recording) -> Option<Crumbs> {
    newest(recording, IN_CORE).unwrap_or_else(|error| {
        tracing::warn!("the core has no crumbs: {error}");
        None
    })
}

/// What comparing a replay with the crumbs came to.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Agreement {
    /// How many exits were compared.
    pub compared: u64,
    /// The first that differs.
    pub difference: Option<String>,
}

/// The crumbs that a replay is compared with: those of exits that begin an event, by the number of events before. (Page
/// faults begin none, and engines have them in different places.)
#[derive(Default)]
pub(crate) struct Check {
    expected: FxHashMap<u64, Entry>,
    agreement: Agreement,
}

impl Check {
    /// Loads a recording's crumbs. A ring that is not there or cannot be read leaves nothing to compare, since replay
    /// does not need it.
    pub(crate) fn load(recording: &Recording) -> Check {
        let crumbs = newest(recording, usize::MAX).unwrap_or_else(|error| {
            tracing::warn!("not compared: {error}");
            None
        });
        let entries = crumbs.unwrap_or_default().entries.into_iter().filter(|e| begins_event(e.crumb.exit));
        Check { expected: entries.map(|e| (e.crumb.event, e)).collect(), agreement: Agreement::default() }
    }

    /// Compares an exit before which `events` had begun.
    pub(crate) fn compare(&mut self, at: &AtExit<'_>, events: u64) {
        let Some(Entry { number, crumb }) = self.expected.get(&events) else { return };
        if !begins_event(at.exit) || self.agreement.difference.is_some() {
            return;
        }
        if (crumb.exit, crumb.rip) == (at.exit, at.regs.rip) {
            self.agreement.compared += 1;
            return;
        }
        self.agreement.difference = Some(format!(
            "crumb {number} has {} at {:#x}, the replay {} at {:#x}",
            crumb.exit.name(),
            crumb.rip,
            at.exit.name(),
            at.regs.rip
        ));
    }

    /// Where the program stood at the exit that began the event behind `events` others.
    pub(crate) fn rip(&self, events: u64) -> Option<u64> {
        self.expected.get(&events).map(|entry| entry.crumb.rip)
    }

    pub(crate) fn agreement(&self) -> Agreement {
        self.agreement.clone()
    }
}

fn begins_event(exit: crumb::Exit) -> bool {
    matches!(exit, Exit::Syscall { .. } | Exit::MachineRead | Exit::Exception { .. })
}
