//! The last branches before a crash, where no hardware recorded them: the end of the recording is run again on the software CPU
//! with the model of the branch records switched on, and read back as hardware is read. The trail says so
//! (provenance `derived`).

use crate::crumbs;
use crate::dump::{self, About, DumpError};
use crate::engine::{Counters, Machine, Until};
use crate::journal::End;
use crate::position::Position;
use crate::process::{Death, Process};
use crate::recording::Recording;
use crate::replay::{Progress, Replay, ReplayError};
use crate::timeline::Timeline;
use lbr::{Armed, Filter, Provenance, Trail};

/// Why there is no trail.
#[derive(Debug, thiserror::Error)]
pub enum TrailError {
    /// The replay fails or differs.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The model of the branch records refuses.
    #[error("the model of the branch records: {0}")]
    Capture(String),
    /// The first process died while others went on.
    #[error(
        "the crash is not at the end of the recording, since other processes went on: \
         its branch records, if there are any, are in its core"
    )]
    DiedBefore,
    /// The recorded program did not crash.
    #[error("the recording does not end in a crash, so there are no last branches before one")]
    NoCrash,
}

/// A crash that was run again on the software CPU, and stands at its end.
pub struct Derived {
    /// The branch records.
    pub trail: Trail,
    /// How often what was retired since the program's start, if a processor that counts ran all of it.
    pub counters: Option<Counters>,
    /// How it died.
    pub death: Death,
    /// The program at its crash.
    pub replay: Replay,
}

/// Runs a recorded crash again and records its branches: the newest `records` (at most 32) of those that `filter` lets
/// through. The recording is run to its end on `machine`, as fast as that is, from the newest checkpoint on disk; then the
/// software CPU goes through the end of it twice, to count, and with the model switched on.
///
/// # Errors
/// When the recording does not replay, or does not end in a crash.
pub fn derive(
    recording: &Recording,
    machine: Machine,
    records: u32,
    filter: Filter,
) -> Result<Derived, TrailError> {
    let mut timeline = Timeline::open(recording, machine)?;
    timeline.seek_end()?;
    let Some(End::Killed(death)) = timeline.replay_mut().report()?.end else {
        return Err(TrailError::NoCrash);
    };
    crashed_at_end(&timeline)?;
    let counters = counted_since_start(&timeline);
    let begin = timeline.replay().window_begins().unwrap_or_default();
    let mut way = Way::behind(timeline.position().event, &mut timeline)?;
    // A call stack begins with the program.
    let mut back = if filter.is_call_stack() { u64::MAX } else { FIRST_LOOK_BACK };
    loop {
        let start = if back == u64::MAX { begin } else { way.before_end(back, begin, &mut timeline)? };
        timeline.seek(start)?;
        let from_start = timeline.position() <= begin;
        let (trail, emptied) = record_to_end(&mut timeline, filter)?;
        // Records that another task's were emptied for are all that there would be.
        if from_start || emptied || trail.records.len() >= index(records) {
            let trail = trail.newest(records);
            return Ok(Derived { trail, counters, death, replay: timeline.into_replay() });
        }
        back = back.saturating_mul(LOOK_BACK_FURTHER);
    }
}

/// What had retired since the program's start, if the processor has counted since then.
fn counted_since_start(timeline: &Timeline) -> Option<Counters> {
    let replay = timeline.replay();
    let is_late = replay.process().counts_late() || replay.window_counts_late();
    replay.process().cpu().counters().filter(|_| !is_late)
}

/// So many instructions before the crash is where branches are recorded from at first.
const FIRST_LOOK_BACK: u64 = 1 << 16;
/// And so many times as many each time when those had too few branches.
const LOOK_BACK_FURTHER: u64 = 64;
/// A way that is too short begins so many times as far from the end in the next attempt, in events.
const LONGER: u64 = 4;
/// So many instructions run at once on the way.
const STRETCH: u64 = 1 << 23;

/// The last part of a recording, counted.
struct Way {
    /// Where it was stood on the way, and how many instructions had retired there since some place before.
    stands: Vec<(Position, u64)>,
    /// The same at the end.
    total: u64,
}

impl Way {
    /// From behind an event to the end, on the software CPU.
    fn behind(event: u64, timeline: &mut Timeline) -> Result<Way, TrailError> {
        timeline.seek(Position { event, retired: 0 })?;
        timeline.replay_mut().process_mut().count_exactly(true).map_err(ReplayError::from)?;
        let mut stands = vec![(timeline.position(), retired(timeline))];
        while !timeline.ended() {
            timeline.walk(Until::Retired(retired(timeline).saturating_add(STRETCH)))?;
            stands.push((timeline.position(), retired(timeline)));
        }
        Ok(Way { stands, total: retired(timeline) })
    }

    /// How many instructions retire from a position on that it has gone through.
    fn left(&self, at: Position) -> u64 {
        let stand = self.stands.iter().rfind(|(stand, _)| *stand <= at);
        // Between two events, positions count instructions, too.
        let behind = stand.map_or(0, |(stand, count)| match stand.event == at.event {
            true => count + (at.retired - stand.retired),
            false => *count,
        });
        self.total.saturating_sub(behind)
    }

    /// So many instructions before the end, or where the recording begins; the way is made longer for it, if it must be.
    fn before_end(
        &mut self,
        back: u64,
        begin: Position,
        timeline: &mut Timeline,
    ) -> Result<Position, TrailError> {
        let end = timeline.position().event;
        let mut events = 1;
        loop {
            let goal = self.total.checked_sub(back);
            let stand =
                goal.and_then(|goal| self.stands.iter().rfind(|(_, count)| *count <= goal).zip(Some(goal)));
            if let Some((&(at, count), goal)) = stand {
                return Ok(Position { retired: at.retired + (goal - count), ..at });
            }
            let first = self.stands.first().map_or(begin, |(first, _)| *first);
            if first <= begin {
                return Ok(begin);
            }
            *self = Way::behind(end.saturating_sub(events).max(begin.event), timeline)?;
            events = events.saturating_mul(LONGER);
        }
    }
}

/// Records branches from here to the end of the recording; says with them whether the records were emptied on the way.
fn record_to_end(timeline: &mut Timeline, filter: Filter) -> Result<(Trail, bool), TrailError> {
    let refused = |error: &dyn std::error::Error| TrailError::Capture(error.to_string());
    let process = timeline.replay_mut().process_mut();
    process.count_exactly(true).map_err(ReplayError::from)?;
    let armed = Armed::arm(process.cpu_mut(), filter).map_err(|e| refused(&e))?;
    process.empty_at_switches(armed);
    let emptied = process.emptied();
    while !timeline.ended() {
        timeline.step_until(Until::Exit)?;
    }
    let process = timeline.replay_mut().process_mut();
    let trail = armed.capture(process.cpu_mut(), Provenance::Derived).map_err(|e| refused(&e))?;
    Ok((trail, process.emptied() > emptied))
}

fn index(records: u32) -> usize {
    usize::try_from(records).unwrap_or(usize::MAX)
}

impl Derived {
    /// Writes the core of the crash with the trail, the counters and the crumbs' counts, in place of the one in the
    /// recording's folder.
    ///
    /// # Errors
    /// When it cannot be written; the one that is there stays.
    pub fn write_core(&mut self, recording: &Recording, origin: &str) -> Result<(), DumpError> {
        let mut crumbs = crumbs::of_core(recording);
        crumbs.iter_mut().for_each(|crumbs| self.replay.add_counts(crumbs));
        let about = About {
            death: self.death,
            origin: origin.to_owned(),
            trail: Some(self.trail.to_bytes()),
            counters: self.counters,
            crumbs,
            contexts: crumbs::contexts_of_core(recording),
        };
        dump::write_core(&recording.core(), self.replay.process_mut(), &about)
    }
}

/// A recorded program near its end, run again on the software CPU one instruction at a time: the truth that a
/// synthesized suffix is measured against.
pub struct Tail {
    timeline: Timeline,
    /// Instructions that have retired at the end.
    total: u64,
}

impl Tail {
    /// Stands before the last `count` instructions that retire, or at the recording's first. Runs the recording to its end on
    /// `machine`, as [`derive()`] does.
    ///
    /// # Errors
    /// As [`derive()`].
    pub fn open(recording: &Recording, machine: Machine, count: u64) -> Result<Tail, TrailError> {
        let mut timeline = Timeline::open(recording, machine)?;
        timeline.seek_end()?;
        crashed_at_end(&timeline)?;
        let begin = timeline.replay().window_begins().unwrap_or_default();
        let mut way = Way::behind(timeline.position().event, &mut timeline)?;
        let start = way.before_end(count, begin, &mut timeline)?;
        timeline.seek(start)?;
        timeline.replay_mut().process_mut().count_exactly(true).map_err(ReplayError::from)?;
        let total = retired(&timeline).saturating_add(way.left(timeline.position()));
        let mut tail = Tail { timeline, total };
        tail.settle()?;
        Ok(tail)
    }

    /// Lets happen what comes before the next instruction: a preemption that is found by the state, not by a count, happens only when
    /// the program is to run on.
    fn settle(&mut self) -> Result<(), TrailError> {
        if !self.ended() && !self.process().waits() {
            let now = retired(&self.timeline);
            self.timeline.step_until(Until::Retired(now))?;
        }
        Ok(())
    }

    /// How many instructions are to retire from here on.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.total.saturating_sub(retired(&self.timeline))
    }

    /// Whether the program has ended.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.timeline.ended()
    }

    /// The program, before the instruction at rip.
    #[must_use]
    pub fn process(&self) -> &Process {
        self.timeline.replay().process()
    }

    /// The same, to run.
    pub fn process_mut(&mut self) -> &mut Process {
        self.timeline.replay_mut().process_mut()
    }

    /// Runs the instruction at rip, and says whether it retired: the one that crashes does not. One that reads the machine
    /// does, though the engine does not count it.
    ///
    /// # Errors
    /// As [`derive()`].
    pub fn step(&mut self) -> Result<bool, TrailError> {
        while self.timeline.replay().process().waits() && !self.ended() {
            self.timeline.step_until(Until::Exit)?;
        }
        let (thread, before) = (self.thread(), retired(&self.timeline));
        let rip = self.rip_of(thread);
        loop {
            let progress = self.timeline.step_until(Until::Retired(before + 1))?;
            // Of that thread: behind a preemption another one is loaded, and nothing has run.
            let rip_moved = self.rip_of(thread) != rip;
            let done = retired(&self.timeline) > before || (progress == Progress::Running && rip_moved);
            // A page that is brought in restarts its instruction.
            if done || self.ended() {
                self.settle()?;
                return Ok(done);
            }
        }
    }

    /// The task that is about to run.
    #[must_use]
    pub fn thread(&self) -> i32 {
        self.timeline.replay().process().thread()
    }

    /// Where a task stands; `None` if it has ended.
    fn rip_of(&self, thread: i32) -> Option<u64> {
        let process = self.timeline.replay().process();
        if process.thread() == thread {
            return Some(process.cpu().regs().rip);
        }
        let mut others = process.other_tasks();
        others.find(|(other, _)| *other == thread).map(|(_, state)| state.regs.rip)
    }
}

/// The addresses of the last `count` instructions that a recorded program executed, oldest first. The instruction that
/// crashed is not among them, since it did not retire.
///
/// # Errors
/// As [`derive()`].
pub fn tail_log(recording: &Recording, machine: Machine, count: u64) -> Result<Vec<u64>, TrailError> {
    Ok(tail_of_tasks(recording, machine, count)?.into_iter().map(|(_, address)| address).collect())
}

/// The same with the task that executed each.
///
/// # Errors
/// As [`derive()`].
pub fn tail_of_tasks(
    recording: &Recording,
    machine: Machine,
    count: u64,
) -> Result<Vec<(u32, u64)>, TrailError> {
    let mut tail = Tail::open(recording, machine, count)?;
    let mut log = Vec::new();
    while !tail.ended() {
        let (task, rip) = (tail.thread().unsigned_abs(), tail.process_mut().cpu().regs().rip);
        if tail.step()? {
            log.push((task, rip));
        }
    }
    let surplus = log.len().saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
    Ok(log.split_off(surplus))
}

/// Whether the end of a recording is where its first process ended.
fn crashed_at_end(timeline: &Timeline) -> Result<(), TrailError> {
    if timeline.replay().process().first_died_before() { Err(TrailError::DiedBefore) } else { Ok(()) }
}

fn retired(timeline: &Timeline) -> u64 {
    timeline.replay().process().cpu().counters().unwrap_or_default().instructions
}
