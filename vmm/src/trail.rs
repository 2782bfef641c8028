//! The last branches before a crash, where no hardware recorded them: the recording is run again on the software CPU
//! with the model of the branch records switched on, and read back as hardware is read. The trail says so
//! (provenance `derived`).

use crate::crumbs;
use crate::dump::{self, About, DumpError};
use crate::engine::{self, Counters, EngineKind, Until};
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
    /// How often what was retired since the program's start.
    pub counters: Counters,
    /// How it died.
    pub death: Death,
    /// The program at its crash.
    pub replay: Replay,
}

/// Runs a recorded crash again and records its branches: the newest `records` (at most 32) of those that `filter` lets
/// through. The recording is run once; from a checkpoint near its end it is run again with the model switched on.
///
/// # Errors
/// When the recording does not replay on the software CPU, or does not end in a crash.
pub fn derive(recording: &Recording, records: u32, filter: Filter) -> Result<Derived, TrailError> {
    let mut timeline = on_software_cpu(recording)?;
    let Some(End::Killed(death)) = timeline.run_to_end()?.end else { return Err(TrailError::NoCrash) };
    crashed_at_end(&timeline)?;
    let counters = timeline.replay().process().cpu().counters().unwrap_or_default();
    // A call stack begins with the program.
    let mut back = if filter.is_call_stack() { u64::MAX } else { FIRST_LOOK_BACK };
    loop {
        timeline.seek_retired(counters.instructions.saturating_sub(back))?;
        let from_start = timeline.position() == Position::default();
        let (trail, emptied) = record_to_end(&mut timeline, filter)?;
        // Records that another task's were emptied for are all that there would be.
        if from_start || emptied || trail.records.len() >= index(records) {
            let trail = trail.newest(records);
            return Ok(Derived { trail, counters, death, replay: timeline.into_replay() });
        }
        back = back.saturating_mul(LOOK_BACK_FURTHER);
    }
}

/// So many instructions before the crash is where branches are recorded from at first.
const FIRST_LOOK_BACK: u64 = 1 << 16;
/// And so many times as many each time when those had too few branches.
const LOOK_BACK_FURTHER: u64 = 64;

/// Records branches from here to the end of the recording; says with them whether the records were emptied on the way.
fn record_to_end(timeline: &mut Timeline, filter: Filter) -> Result<(Trail, bool), TrailError> {
    let refused = |error: &dyn std::error::Error| TrailError::Capture(error.to_string());
    let process = timeline.replay_mut().process_mut();
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
            counters: (!self.replay.window_counts_late()).then_some(self.counters),
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
    /// Stands before the last `count` instructions that retire, or at the program's first. Runs the recording once.
    ///
    /// # Errors
    /// As [`derive()`].
    pub fn open(recording: &Recording, count: u64) -> Result<Tail, TrailError> {
        let mut timeline = on_software_cpu(recording)?;
        timeline.run_to_end()?;
        crashed_at_end(&timeline)?;
        let total = retired(&timeline);
        timeline.seek_retired(total.saturating_sub(count))?;
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
pub fn tail_log(recording: &Recording, count: u64) -> Result<Vec<u64>, TrailError> {
    Ok(tail_of_tasks(recording, count)?.into_iter().map(|(_, address)| address).collect())
}

/// The same with the task that executed each.
///
/// # Errors
/// As [`derive()`].
pub fn tail_of_tasks(recording: &Recording, count: u64) -> Result<Vec<(u32, u64)>, TrailError> {
    let mut tail = Tail::open(recording, count)?;
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

fn on_software_cpu(recording: &Recording) -> Result<Timeline, TrailError> {
    let machine =
        engine::open(EngineKind::Soft, crate::ram::for_replay()).map_err(crate::process::ProcessError::from);
    Ok(Timeline::open(recording, machine.map_err(ReplayError::from)?)?)
}

fn retired(timeline: &Timeline) -> u64 {
    timeline.replay().process().cpu().counters().unwrap_or_default().instructions
}
