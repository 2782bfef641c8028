//! The last branches before a crash that has just happened, without running the program again from its start.
//!
//! From a checkpoint of the near past ([`Recent`]) the program runs to its crash again: at first on the processor that recorded,
//! which is fast, with checkpoints that lie closer the less is left; then from the last of these on the software CPU, with the
//! model of the branch records switched on. What it comes to must be the crash, bit for bit. Then the crash is restored.
//!
//! How much is left is known by when the newest events were served ([`ServedAt`]). Where the second run is slower than the first,
//! nothing is left long before the crash: from there on checkpoints are some milliseconds apart, or what they cost.
//!
//! Example: a program computes for 5 s under KVM and crashes 700 ms behind its last checkpoint. Those 700 ms run again under KVM, with
//! checkpoints 88, 22 and 10 ms before the crash, and the last 10 ms on the software CPU.

use super::recent::{Recent, Window, clock_after};
use super::served_at::ServedAt;
use crate::engine::{Counters, EngineKind};
use crate::journal::Record;
use crate::journal::schema::Digests;
use crate::process::{Checkpoint, CheckpointCost, Death, Process, ProcessError, Step};
use crate::tape::{Mark, ReplayGate, Tape};
use lbr::{Armed, Filter, Provenance, Trail};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The first checkpoint on the way to the crash comes when one part in so many of it is left, and each further one when one part in
/// so many is left of that.
const FIRST: u32 = 8;
const CLOSER: u32 = 4;
/// None is nearer to the crash by intent, nor to another one.
const NEAR: Duration = Duration::from_millis(10);
/// Where nothing is left, they cost at most one part in so many.
const NEAR_SHARE: u32 = 4;
/// So many of them are kept: the newest may be too near to the crash.
const KEPT: usize = 4;
/// Who walks looks at least so often whether it takes too long, and at most so often whether a checkpoint is due.
const LOOK: Duration = Duration::from_millis(100);
const SOON: Duration = Duration::from_millis(1);
/// No attempt on an older checkpoint begins when so much time has passed, if there is a trail that is too short.
const PATIENCE: Duration = Duration::from_millis(1500);
/// The way to the crash takes no longer than so many times as long as it took first, and so much.
const LONGER: (u32, Duration) = (10, Duration::from_secs(2));

/// The last branches before a crash.
#[derive(Clone, Debug)]
pub struct LastBranches {
    /// The branch records.
    pub trail: Trail,
    /// How often what was retired since the program's start, if the recording processor counts exactly.
    pub counters: Option<Counters>,
}

/// Why there are none.
#[derive(Debug, thiserror::Error)]
pub enum RetraceError {
    /// The program crashed before its first checkpoint, or has none because of what it reads or how much memory it uses.
    #[error("there is no checkpoint shortly before the crash")]
    NoCheckpoint,
    /// From the checkpoint the program comes elsewhere.
    #[error("from the checkpoint before the crash the program came to another state")]
    Differs,
    /// The way is too long.
    #[error("the way from the checkpoint to the crash took too long")]
    TooLong,
    /// The model of the branch records refuses.
    #[error("the model of the branch records: {0}")]
    Capture(String),
    /// The processor or the program fails.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// What the crash is known by.
struct Crash {
    death: Death,
    events: u64,
    digests: Digests,
}

/// A checkpoint on the way.
struct Base {
    checkpoint: Checkpoint,
    mark: Mark,
}

impl Recent {
    /// Runs the crash at which `process` stands again, and gives its newest `records` branches of those that `filter` lets
    /// through. The process stands at its crash again then. The near past is used up, whatever comes of it.
    ///
    /// # Errors
    /// Where there is no near past, or it does not lead to this crash.
    pub fn last_branches(
        &mut self,
        process: &mut Process,
        death: Death,
        records: u32,
        filter: Filter,
    ) -> Result<LastBranches, RetraceError> {
        let (windows, kept, first) = self.take();
        let (served, since) = (self.take_served(), Instant::now());
        let mut retrace = Retrace { windows, kept: kept.into(), first, served, records, filter, since };
        let result = retrace.at_crash(process, death);
        retrace.windows.into_iter().for_each(|window| process.release(window.checkpoint));
        result
    }
}

struct Retrace {
    /// The newest first.
    windows: Vec<Window>,
    kept: Rc<[Record]>,
    /// The number of the first record.
    first: usize,
    served: ServedAt,
    records: u32,
    filter: Filter,
    since: Instant,
}

impl Retrace {
    /// Leaves the crash, and comes back to it.
    fn at_crash(&mut self, process: &mut Process, death: Death) -> Result<LastBranches, RetraceError> {
        if self.windows.is_empty() {
            return Err(RetraceError::NoCheckpoint);
        }
        let crash = Crash { death, events: process.position().event, digests: process.digests()? };
        let mut now = process.checkpoint()?;
        let tape = Rc::new(Tape::kept(Rc::clone(&self.kept), 0));
        let outside = process.leave(Box::new(ReplayGate::new(Rc::clone(&tape), None)))?;
        let found = self.retrace_any(process, &crash, &tape);
        let back = process.come_back_to(outside, &mut now);
        process.release(now);
        back?;
        found
    }

    /// Tries one window after the other.
    fn retrace_any(
        &mut self,
        process: &mut Process,
        crash: &Crash,
        tape: &Tape,
    ) -> Result<LastBranches, RetraceError> {
        let mut best: Option<LastBranches> = None;
        let mut windows = std::mem::take(&mut self.windows);
        let mut failed = None;
        for window in &mut windows {
            if best.is_some() && self.since.elapsed() > PATIENCE {
                break;
            }
            match self.retrace_one(process, window, crash, tape) {
                Ok((found, is_whole)) => {
                    best = Some(found);
                    if is_whole {
                        break;
                    }
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        self.windows = windows;
        best.ok_or_else(|| failed.unwrap_or(RetraceError::NoCheckpoint))
    }

    /// The branches behind a window, and whether there are no fewer than were asked for.
    fn retrace_one(
        &self,
        process: &mut Process,
        window: &mut Window,
        crash: &Crash,
        tape: &Tape,
    ) -> Result<(LastBranches, bool), RetraceError> {
        let start = Mark::of_record(window.record - self.first, window.events);
        let mut bases = Vec::new();
        let preempted = self.kept[window.record - self.first..].iter().any(is_preemption);
        if process.engine_kind() == EngineKind::Kvm && !preempted {
            tape.wind(&start).map_err(ProcessError::from)?;
            process.count_exactly(false)?;
            process.restore(&mut window.checkpoint)?;
            let walk = Walk { tape, served: &self.served, took: self.served.before_crash(window.at) };
            let walked = walk.to(crash, process, &mut bases);
            process.come_back_at(None);
            if let Err(error) = walked {
                bases.into_iter().for_each(|base: Base| process.release(base.checkpoint));
                return Err(error);
            }
        }
        let result = self.on_software_cpu(process, &mut bases, (&mut window.checkpoint, &start), crash, tape);
        bases.into_iter().for_each(|base| process.release(base.checkpoint));
        result
    }

    /// Records branches from the newest base on, and from older ones where that gave too few.
    fn on_software_cpu(
        &self,
        process: &mut Process,
        bases: &mut [Base],
        window: (&mut Checkpoint, &Mark),
        crash: &Crash,
        tape: &Tape,
    ) -> Result<(LastBranches, bool), RetraceError> {
        let mut best: Option<LastBranches> = None;
        let bases = bases.iter_mut().rev().map(|base| (&mut base.checkpoint, &base.mark));
        for (checkpoint, mark) in bases.chain([window]) {
            if best.is_some() && self.since.elapsed() > PATIENCE {
                break;
            }
            process.use_software_cpu()?;
            tape.wind(mark).map_err(ProcessError::from)?;
            process.restore(checkpoint)?;
            let (found, is_whole) = self.record(process, crash, tape)?;
            if is_whole {
                return Ok((found, true));
            }
            best = Some(found);
        }
        best.map(|found| (found, false)).ok_or(RetraceError::NoCheckpoint)
    }

    /// Runs to the crash with the model switched on.
    fn record(
        &self,
        process: &mut Process,
        crash: &Crash,
        tape: &Tape,
    ) -> Result<(LastBranches, bool), RetraceError> {
        let refused = |error: &dyn std::error::Error| RetraceError::Capture(error.to_string());
        let armed = Armed::arm(process.cpu_mut(), self.filter).map_err(|e| refused(&e))?;
        process.empty_at_switches(armed);
        let emptied = process.emptied();
        while !crash.is_here(process.step()?, tape)? {}
        let trail = armed.capture(process.cpu_mut(), Provenance::Derived).map_err(|e| refused(&e))?;
        if process.digests()? != crash.digests {
            return Err(RetraceError::Differs);
        }
        let is_whole = process.emptied() > emptied
            || trail.records.len() >= usize::try_from(self.records).unwrap_or(usize::MAX);
        let counters = process.counted_since_start();
        Ok((LastBranches { trail: trail.newest(self.records), counters }, is_whole))
    }
}

impl Crash {
    /// Whether a step has come to the crash.
    fn is_here(&self, step: Step, tape: &Tape) -> Result<bool, RetraceError> {
        match step {
            Step::Killed(death) | Step::Died(death) if tape.events() == self.events => {
                if death == self.death { Ok(true) } else { Err(RetraceError::Differs) }
            }
            Step::Running | Step::Died(_) if tape.events() <= self.events => Ok(false),
            _ => Err(RetraceError::Differs),
        }
    }
}

/// The way to a crash on the processor that recorded.
struct Walk<'a> {
    tape: &'a Tape,
    served: &'a ServedAt,
    /// How long the way took first.
    took: Duration,
}

impl Walk<'_> {
    /// Goes to the crash, and keeps checkpoints on the way.
    fn to(&self, crash: &Crash, process: &mut Process, bases: &mut Vec<Base>) -> Result<(), RetraceError> {
        let start = Instant::now();
        let mut event = (self.tape.events(), start);
        let mut cost = CheckpointCost::default();
        let (mut kept_at, mut goal) = (None, self.took / FIRST);
        loop {
            // When the next checkpoint is due, as far as is known.
            let until_near = self.left(event).map_or(LOOK, |left| left.saturating_sub(goal));
            let apart = NEAR.max(cost.so_far(process).saturating_mul(NEAR_SHARE));
            let until_far = kept_at.map_or(Duration::ZERO, |at: Instant| apart.saturating_sub(at.elapsed()));
            let wait = until_near.max(until_far);
            process.come_back_at(Some(clock_after(wait.clamp(SOON, LOOK))));
            if crash.is_here(process.step()?, self.tape)? {
                return Ok(());
            }
            let now = Instant::now();
            if now.duration_since(start) > self.took.saturating_mul(LONGER.0) + LONGER.1 {
                return Err(RetraceError::TooLong);
            }
            if self.tape.events() != event.0 {
                event = (self.tape.events(), now);
            }
            let is_near = self.left(event).is_some_and(|left| left <= goal);
            if is_near && kept_at.is_none_or(|at| now.duration_since(at) >= apart) {
                bases.push(Base { checkpoint: process.checkpoint()?, mark: self.tape.mark() });
                if bases.len() > KEPT {
                    process.release(bases.remove(0).checkpoint);
                }
                cost = CheckpointCost::of_taken(process, now.elapsed());
                (kept_at, goal) = (Some(Instant::now()), (goal / CLOSER).max(NEAR));
            }
        }
    }

    /// How much is left of the way by the times of the first run, if so many events were served, the last of them then.
    fn left(&self, (events, since): (u64, Instant)) -> Option<Duration> {
        Some(self.served.left(events)?.saturating_sub(since.elapsed()))
    }
}

fn is_preemption(record: &Record) -> bool {
    matches!(record, Record::Begin { event: crate::gate::Event::Preempt(_), .. })
}
