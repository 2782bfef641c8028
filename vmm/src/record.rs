//! Recording: runs a program, and journals what enters through its gate.

mod gate;
mod room;
mod times;

use crate::checkpoints::Flight;
use crate::checkpoints::Rate;
use crate::checkpoints::keeper::{Journal, Keeper};
use crate::contents::Store;
use crate::crumbs::{Keep, Leaver};
use crate::engine::Machine;
use crate::host::raise_limit_of_files;
use crate::interrupt;
use crate::journal::schema::{BEHAVIOUR, digest_executable};
use crate::journal::{End, Header, Record, Writer};
use crate::linux::Guarded;
use crate::process::{Death, Launch, Process, ProcessError, Step, Streams, Tell};
use crate::recording::{Recording, RecordingError};
use crate::signal::Arrived;
use crate::timeline::{LastBranches, Recent, RetraceError};
use gate::{RecordingGate, Shared};
use lbr::{Armed, Filter};
use room::{CHECKPOINTS, Room};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};
pub use times::Times;

/// Memory is digested no more often than costs this part of the run time.
const DIGEST_COST: u32 = 100;
/// And no more often than this, since each also grows the journal.
const DIGEST_EVERY: Duration = Duration::from_millis(250);

/// Why a program could not be recorded, or its recording does not have an end in order.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The program cannot be started, or the engine or the gate failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The folder.
    #[error(transparent)]
    Recording(#[from] RecordingError),
}

/// A recording that came to its end.
pub struct Recorded {
    /// How the program ended.
    pub end: End,
    /// The recording ended before the program did, at its room on disk.
    pub is_full: bool,
    /// The number of events.
    pub events: u64,
    /// The size of the journal.
    pub journal_bytes: u64,
    /// The name of what ran it ([`Process::ran_on`]).
    pub engine: &'static str,
    /// The program as it ended, with its memory.
    pub process: Process,
    /// Why the recorder could not go on, where the journal ends in order all the same ([`End::Stopped`]).
    pub failure: Option<ProcessError>,
    /// Where the time went besides the program ([`Process::profile`]), if that was asked.
    pub times: Option<Times>,
    /// Its near past.
    recent: Recent,
}

impl Recorded {
    /// How long the program ran until its crash, if that is asked before [`Recorded::last_branches`].
    #[must_use]
    pub fn ran(&self) -> Duration {
        self.recent.ran()
    }

    /// The newest `records` branches before the crash that the program ended in, of those that `filter` lets through, from a
    /// checkpoint shortly before it. They can be had once.
    ///
    /// # Errors
    /// As [`Recent::last_branches`], and when it did not end in a crash.
    pub fn last_branches(&mut self, records: u32, filter: Filter) -> Result<LastBranches, RetraceError> {
        let End::Killed(death) = self.end else { return Err(RetraceError::NoCheckpoint) };
        self.recent.last_branches(&mut self.process, death, records, filter)
    }
}

/// Is told of each process that a signal ends while others go on, and of the first one whenever it is not the last: the
/// registers and the memory are those of that moment.
/// The near past gives its last branches.
pub type OnDeath<'a> = &'a mut dyn FnMut(&mut Process, Death, &mut Recent);

/// What is kept of a recording besides its journal.
#[derive(Default)]
pub struct Options {
    /// Crumbs, if they are to be kept.
    pub crumbs: Option<Keep>,
    /// The processor's branch records are kept to one task, if they are armed.
    pub records: Option<Armed>,
    /// The newest checkpoints are kept in memory, from which a crash can be run again.
    pub near_past: bool,
    /// Is told of everything that happens to the program.
    pub trace: Option<Tell>,
    /// Checkpoints are written beside the journal, if they are wanted; a flight recorder always has them.
    pub checkpoints: Option<Rate>,
    /// Only so many bytes of journal and checkpoints are kept, the newest (docs/formats.md says how exactly).
    pub flight: Option<u64>,
    /// The recording ends when it has so many bytes on disk, and the program goes on; not of a flight recorder.
    pub disk: Option<u64>,
    /// The store with which the recording shares the files that do not change; without one it has them for itself.
    pub store: Option<Store>,
    /// Signals that this process gets are for the program ([`interrupt::pass_on_signals`]).
    pub signals: bool,
    /// The recording ends at the first thing that is not served.
    pub strict: bool,
    /// It is measured where time goes.
    pub profile: bool,
    /// What is open of [`Launch::inherited`], in the same order.
    pub inherited: Vec<OwnedFd>,
}

/// Runs `launch` on `machine` to its end and records it.
///
/// # Errors
/// When it cannot be started, the engine fails, or the journal cannot be written. What was recorded before is
/// in the folder and replays.
pub fn record(
    recording: &Recording,
    machine: Machine,
    launch: &Launch,
    options: Options,
    died: OnDeath<'_>,
) -> Result<Recorded, RecordError> {
    let start = Instant::now();
    let Options {
        crumbs,
        records,
        near_past,
        trace,
        checkpoints,
        flight,
        disk,
        store,
        signals,
        strict,
        profile,
        inherited,
    } = options;
    let engine = if machine.kvm.is_some() { "both" } else { machine.cpu.kind().name() };
    raise_limit_of_files();
    let guarded = guarded(recording, &inherited)?;
    recording.store_programs(launch, store.as_ref())?;
    let path = if flight.is_some() { recording.segment(0).journal() } else { recording.journal() };
    let header = Header {
        gretel: env!("CARGO_PKG_VERSION").to_owned(),
        behaviour: BEHAVIOUR,
        model: launch.cpu.name().to_owned(),
        engine: engine.to_owned(),
        launch: launch.without_files(),
        executable_digest: digest_executable(&launch.executable),
        interpreter_digest: launch
            .interpreter
            .as_ref()
            .map(|interpreter| digest_executable(&interpreter.executable)),
    };
    // Before the journal: without one there is no recording, and with one it has its crumbs.
    let crumbs = crumbs.map(|keep| Leaver::create(recording, &launch.executable, keep)).transpose()?;
    let unwritable = |error| RecordingError::Write { path: path.clone(), error };
    if flight.is_some() {
        recording.segment(0).create().map_err(unwritable)?;
    }
    let writer = Writer::create(&path, &header, store.clone()).map_err(unwritable)?;
    let rate = checkpoints.or_else(|| flight.map(|_| Rate::default()));
    let keeper = rate.map(|rate| match flight {
        Some(room) => {
            let flight = Flight { recording: recording.clone(), room, store };
            Keeper::of_flight(flight, &header, rate, !near_past)
        }
        None => {
            let rate = disk.map_or(rate, |room| rate.within(room / CHECKPOINTS));
            Keeper::new(recording.checkpoints(), &header, rate, !near_past)
        }
    });
    let mut keeper = keeper.transpose().map_err(unwritable)?;
    let room = disk.map(|bytes| Room::new(bytes, recording, &writer, keeper.is_some()));
    let shared = Rc::new(Shared::new(writer, room, near_past, profile));
    let gate = RecordingGate {
        shared: Rc::clone(&shared),
        crumbs,
        takes_signals: signals,
        arrived: Arrived::default(),
    };
    // The rights of new files are those that the kernel of the guest has masked.
    // SAFETY: umask takes no pointer and cannot fail.
    unsafe { libc::umask(0) };
    let streams = Streams::AndOthers(inherited);
    let mut process = Process::start_with(machine, Box::new(gate), launch, streams)?;
    process.guard(guarded);
    trace.into_iter().for_each(|tell| process.trace(tell));
    records.into_iter().for_each(|records| process.empty_at_switches(records));
    if profile {
        process.measure();
    }
    shared.times.add(|times| &mut times.start, start.elapsed());
    let watch = Watch { window_of: flight.map(|_| recording), strict, died };
    let driven = shared.times.of(|times| &mut times.run, || drive(&mut process, &shared, &mut keeper, watch));
    if driven.is_err() {
        shared.writer.drop_unfinished();
    }
    let end = *driven.as_ref().unwrap_or(&End::Stopped);
    let ended =
        shared.put(&Record::End(end)).and_then(|()| shared.writer.finish().map_err(|e| shared.failed(e)));
    keeper.into_iter().for_each(|keeper| {
        keeper.finish(&mut process);
    });
    // A journal that could not be written says why by itself.
    let failure = match driven {
        Err(error @ ProcessError::Gate(_)) => return Err(error.into()),
        driven => driven.err(),
    };
    let journal_bytes = ended.map_err(ProcessError::from)?;
    let is_full = shared.is_full();
    // Whoever removes one that has ended means that.
    if !is_full && !shared.writer.is_in_place() {
        return Err(RecordingError::Lost { path }.into());
    }
    let recent = shared.recent.replace(Recent::new(false));
    let events = shared.full_at.get().unwrap_or_else(|| shared.events.get());
    let engine = process.ran_on();
    let times = shared.times.times();
    Ok(Recorded { end, is_full, events, journal_bytes, engine, process, failure, times, recent })
}

/// The recording's files, from which the program is kept; it may not begin with one of them.
fn guarded(recording: &Recording, inherited: &[OwnedFd]) -> Result<Guarded, RecordingError> {
    let dir = recording.dir();
    let guarded =
        Guarded::folder(dir).map_err(|error| RecordingError::Write { path: dir.to_owned(), error })?;
    match guarded.inherited(inherited) {
        Some(what) => Err(RecordingError::Inherited { dir: dir.to_owned(), what }),
        None => Ok(guarded),
    }
}

/// What is looked at besides the program.
struct Watch<'a> {
    /// A flight recorder's recording, whose window may be asked for.
    window_of: Option<&'a Recording>,
    /// The recording ends at the first thing that is not served.
    strict: bool,
    died: OnDeath<'a>,
}

/// Keeps the window that a signal has asked for.
fn keep_window(recording: &Recording, writer: &Writer) {
    // Where the journal is by then; nothing comes if it cannot be written any more.
    let Ok(cut) = writer.cut(None).recv() else {
        tracing::warn!("the window is not kept: the journal cannot be written");
        return;
    };
    match recording.keep_window(&writer.place().0, cut) {
        Ok(kept) => tracing::warn!("the window is kept: gretel replay {}", kept.dir().display()),
        Err(error) => tracing::warn!("the window is not kept: {error}"),
    }
}

/// Steps the program to its end, with digests of all that the program is now and then and at the end.
fn drive(
    process: &mut Process,
    shared: &Shared,
    keeper: &mut Option<Keeper>,
    watch: Watch<'_>,
) -> Result<End, ProcessError> {
    let Watch { window_of, strict, died } = watch;
    let mut pace = Pace { next: Instant::now() + DIGEST_EVERY };
    let (mut told, mut told_full) = (false, false);
    loop {
        let events_before = shared.events.get();
        let step = shared.times.of(|times| &mut times.steps, || process.step())?;
        let now = Instant::now();
        shared.mark_whole();
        if let Some(recording) = window_of.filter(|_| interrupt::take_window_request()) {
            keep_window(recording, &shared.writer);
        }
        if let (true, Some(unserved)) = (strict, process.unserved().first()) {
            let (what, first) = (unserved.what.clone(), unserved.first.clone());
            return Err(ProcessError::NotServed { what, first });
        }
        if !told && process.first_has_ended() {
            told = true;
            tracing::warn!("the first process has ended; others go on, and the recording until they end");
        }
        if step == Step::Running {
            shared.recent.borrow_mut().keep_if_due(process, shared.events.get(), now)?;
        }
        if let Step::Died(_) | Step::Killed(_) = step {
            shared.recent.borrow_mut().note_crash(now);
        }
        let end = match step {
            Step::Running => {
                // A page fault leaves no record: replay would look for the digests behind the event before it.
                let behind_event = shared.events.get() > events_before;
                if behind_event {
                    pace.digest_if_due(process, shared, now)?;
                    end_if_full(process, shared, &mut told_full, keeper)?;
                }
                if let Some(keeper) = keeper {
                    let journal = Journal::Written(&shared.writer);
                    keeper.keep_if_due(process, journal, behind_event, shared.digests.get(), now)?;
                }
                continue;
            }
            Step::Died(death) => {
                died(process, death, &mut shared.recent.borrow_mut());
                continue;
            }
            Step::Exited(status) => End::Exited(status),
            Step::Killed(death) => End::Killed(death),
            // Where exactly the program was interrupted is not known, so there is no state to compare.
            Step::Interrupted | Step::Budget => {
                process.abandon();
                return Ok(End::Interrupted);
            }
        };
        shared.put_digests(process)?;
        return Ok(end);
    }
}

/// Behind an event: ends the recording if its room on disk is used up. The program goes on, and so does its near past, so that the
/// core of a crash has its branch records.
fn end_if_full(
    process: &mut Process,
    shared: &Shared,
    told: &mut bool,
    keeper: &mut Option<Keeper>,
) -> Result<(), ProcessError> {
    if *told || !shared.ends_at_room(process, keeper.as_mut())? {
        return Ok(());
    }
    *told = true;
    keeper.take().into_iter().for_each(|keeper| {
        keeper.finish(process);
    });
    let event = shared.full_at.get().unwrap_or_default();
    tracing::warn!("the recording has all its room on disk and ends at event {event}; the program goes on");
    Ok(())
}

/// When the next digests are due.
struct Pace {
    next: Instant,
}

impl Pace {
    fn digest_if_due(
        &mut self,
        process: &mut Process,
        shared: &Shared,
        now: Instant,
    ) -> Result<(), ProcessError> {
        if now < self.next {
            return Ok(());
        }
        let before = Instant::now();
        shared.put_digests(process)?;
        shared.writer.mark_whole();
        let after = Instant::now();
        self.next = after + DIGEST_EVERY.max((after - before) * DIGEST_COST);
        Ok(())
    }
}
