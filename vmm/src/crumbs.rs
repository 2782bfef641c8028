//! Crumbs of a recorded program: left at each exit while recording, compared where that is cheap while replaying.

use crate::gate::{AtExit, clock};
use crate::recording::{Recording, RecordingError, shared_file};
use crate::stack::{Place, Walker};
use lbr::context::{Policy, Site, Table, TableError, TableWriter, Tracker};
use lbr::crumb::{Counts, Crumb, Entry, Exit, Origin, Reader, RingError, Writer};
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
    /// Whether crumbs have calling contexts, and what is kept to decode them.
    pub contexts: Option<Policy>,
}

/// Leaves the crumbs of the one virtual CPU.
pub struct Leaver {
    ring: Writer,
    contexts: Option<Contexts>,
    /// It was said that a file is cut.
    cut: bool,
}

/// Computes calling contexts.
struct Contexts {
    walker: Walker,
    tracker: Tracker,
    table: TableWriter,
    stack: Vec<Site>,
}

impl Contexts {
    fn create(
        recording: &Recording,
        executable: &[u8],
        policy: Policy,
    ) -> Result<Option<Contexts>, RecordingError> {
        // A program that cannot be read cannot be started either, and that says why.
        let Ok(walker) = Walker::new(executable) else { return Ok(None) };
        let path = recording.contexts();
        let table = shared_file(&path).and_then(|file| TableWriter::create(file, policy));
        let table = table.map_err(|error| RecordingError::Write { path, error })?;
        Ok(Some(Contexts { walker, tracker: Tracker::new(policy), table, stack: Vec::new() }))
    }

    /// The word of the stack, if the whole stack is known.
    fn word(&mut self, at: &AtExit<'_>) -> Option<u64> {
        let behind = matches!(at.exit, Exit::Syscall { .. });
        let place = Place { behind, ..Place::before(at.regs) };
        let whole = self.walker.walk(place, at.space, &mut self.stack);
        whole.then(|| self.tracker.word(at.regs.rip, &self.stack, &mut |news| self.table.append(news)))
    }
}

impl Leaver {
    /// Makes the recording's ring, for the program in `executable`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn create(recording: &Recording, executable: &[u8], keep: Keep) -> Result<Leaver, RecordingError> {
        let contexts = match keep.contexts {
            Some(policy) => Contexts::create(recording, executable, policy)?,
            None => None,
        };
        let path = recording.crumbs();
        let origin =
            Origin { vcpu: 0, real: clock(libc::CLOCK_REALTIME), monotonic: clock(libc::CLOCK_MONOTONIC) };
        let ring = shared_file(&path).and_then(|file| Writer::create(file, keep.slots, origin));
        ring.map(|ring| Leaver { ring, contexts, cut: false })
            .map_err(|error| RecordingError::Write { path, error })
    }

    /// Leaves a crumb; `events` of the journal had begun before.
    pub fn leave(&mut self, at: &AtExit<'_>, events: u64) {
        let context = self.contexts.as_mut().and_then(|contexts| contexts.word(at));
        self.ring.put(&Crumb {
            exit: at.exit,
            event: events,
            thread: at.thread,
            rip: at.regs.rip,
            rsp: at.regs.gpr[4],
            time: Some(clock(libc::CLOCK_MONOTONIC)),
            counts: at.counts,
            context,
        });
        if !self.cut && (self.ring.is_cut() || self.contexts.as_ref().is_some_and(|c| c.table.is_cut())) {
            self.cut = true;
            tracing::warn!(
                "the recording's crumbs or contexts were truncated while they are written: some are lost"
            );
        }
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

/// The words of call sites of a recording, by which its contexts are decoded; `None` if it was recorded without.
///
/// # Errors
/// When their file cannot be read.
pub fn contexts(recording: &Recording) -> Result<Option<Table>, TableError> {
    match Table::open(&recording.contexts()) {
        Err(TableError::Read { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        table => table.map(Some),
    }
}

/// The words of call sites that go into a recording's core.
#[must_use]
pub fn contexts_of_core(recording: &Recording) -> Option<Table> {
    contexts(recording).unwrap_or_else(|error| {
        tracing::warn!("the core has no contexts: {error}");
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
    /// What the engine had counted at the exits that were compared, by number.
    counts: FxHashMap<u64, Counts>,
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
        Check { expected: entries.map(|e| (e.crumb.event, e)).collect(), ..Check::default() }
    }

    /// Compares an exit before which `events` had begun.
    pub(crate) fn compare(&mut self, at: &AtExit<'_>, events: u64) {
        let Some(Entry { number, crumb }) = self.expected.get(&events) else { return };
        if !begins_event(at.exit) || self.agreement.difference.is_some() {
            return;
        }
        if (crumb.exit, crumb.rip) == (at.exit, at.regs.rip) {
            self.agreement.compared += 1;
            if at.counts != Counts::default() {
                self.counts.insert(*number, Counts { derived: true, ..at.counts });
            }
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

    /// Gives crumbs that have no counts those of this replay, which was on an engine that counts.
    pub(crate) fn add_counts(&self, crumbs: &mut Crumbs) {
        for Entry { number, crumb } in &mut crumbs.entries {
            if let (Some(counts), true) = (self.counts.get(number), crumb.counts == Counts::default()) {
                crumb.counts = *counts;
            }
        }
    }

    /// Goes on from what comparing had come to earlier.
    pub(crate) fn set_agreement(&mut self, agreement: Agreement) {
        self.agreement = agreement;
    }

    pub(crate) fn agreement(&self) -> Agreement {
        self.agreement.clone()
    }
}

fn begins_event(exit: crumb::Exit) -> bool {
    matches!(exit, Exit::Syscall { .. } | Exit::MachineRead | Exit::Exception { .. } | Exit::Preempted)
}
