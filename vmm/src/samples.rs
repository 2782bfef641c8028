//! Branch records now and then: a recording is run again on the software CPU, and every so many instructions the model of the branch
//! records is switched on until they are full. It is what `perf record -b` would have taken of the recorded run.
//!
//! A sample is handed out when the program has run as far again, so that none lies near its end: a crash is not to be told by what a
//! sampler would have caught of it only by luck.

use crate::engine::{self, EngineKind, Until};
use crate::journal::Damage;
use crate::process::{MappingInfo, Process, ProcessError};
use crate::recording::Recording;
use crate::replay::{Progress, Replay, ReplayError};
use crate::trail::TrailError;
use lbr::{Armed, Filter, Provenance, Trail};

/// So many instructions lie between two samples, if nothing else is said: `perf record` takes 4,000 a second.
pub const PERIOD: u64 = 1_000_000;

/// The records are looked at after so many instructions, up to so many times.
const LOOK: u64 = 256;
const LOOKS: u32 = 16;

/// A sample.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The last branches.
    pub trail: Trail,
    /// The process that they are of.
    pub pid: i32,
    /// What it had mapped.
    pub mappings: Vec<MappingInfo>,
}

/// A recorded program whose branches are sampled.
pub struct Sampler {
    replay: Replay,
    period: u64,
    /// The newest sample, and how many instructions the program must run for it to be handed out.
    held: Option<(Taken, u64)>,
    ended: bool,
}

impl Sampler {
    /// Stands before the program's first instruction, or where the recording's window begins. `period` is in instructions.
    ///
    /// # Errors
    /// When the recording cannot be used.
    pub fn open(recording: &Recording, period: u64) -> Result<Sampler, TrailError> {
        let machine = engine::open(EngineKind::Soft, crate::ram::for_replay()).map_err(ProcessError::from);
        let replay = Replay::start(recording, machine.map_err(ReplayError::from)?, None)?;
        Ok(Sampler { replay, period: period.max(1), held: None, ended: false })
    }

    /// The next sample; `None` behind the last.
    ///
    /// # Errors
    /// When the replay fails or differs, or the model of the branch records refuses.
    pub fn next_sample(&mut self) -> Result<Option<Taken>, TrailError> {
        while !self.ended {
            let goal = (self.retired() / self.period + 1).saturating_mul(self.period);
            self.run_to(goal)?;
            let retired = self.retired();
            let due = self.held.take_if(|(_, until)| retired >= *until);
            if !self.ended {
                let taken = self.sample()?;
                self.held = Some((taken, goal.saturating_add(self.period)));
            }
            if let Some((taken, _)) = due.filter(|(taken, _)| !taken.trail.records.is_empty()) {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    /// Samples half as often from here on.
    pub fn slow_down(&mut self) {
        self.period = self.period.saturating_mul(2);
    }

    /// Why the journal has no end, as far as it was read, when it has none.
    #[must_use]
    pub fn damage(&self) -> Option<Damage> {
        self.replay.damage()
    }

    fn process(&self) -> &Process {
        self.replay.process()
    }

    fn retired(&self) -> u64 {
        self.process().cpu().counters().unwrap_or_default().instructions
    }

    fn run_to(&mut self, goal: u64) -> Result<(), TrailError> {
        while !self.ended && self.retired() < goal {
            self.step(goal)?;
        }
        Ok(())
    }

    fn step(&mut self, goal: u64) -> Result<(), TrailError> {
        // A program that waits runs no instruction before its next event.
        let until = if self.process().waits() { Until::Exit } else { Until::Retired(goal) };
        self.ended = self.replay.step_until(until)? == Progress::Done;
        Ok(())
    }

    /// The branches from here on, as many as there are records.
    fn sample(&mut self) -> Result<Taken, TrailError> {
        let refused = |error: &dyn std::error::Error| TrailError::Capture(error.to_string());
        let process = self.replay.process_mut();
        let armed = Armed::arm(process.cpu_mut(), Filter::ANY).map_err(|e| refused(&e))?;
        process.empty_at_switches(armed);
        let (pid, mappings) = (process.pid(), process.mappings());
        let mut trail = None;
        for _ in 0..LOOKS {
            self.step(self.retired() + LOOK)?;
            let taken = armed.capture(self.replay.process_mut().cpu_mut(), Provenance::Derived);
            let full = trail.insert(taken.map_err(|e| refused(&e))?).records.len() >= armed.depth() as usize;
            if full || self.ended {
                break;
            }
        }
        let process = self.replay.process_mut();
        process.leave_records();
        armed.disarm(process.cpu_mut()).map_err(|e| refused(&e))?;
        Ok(Taken { trail: trail.expect("it was looked at"), pid, mappings })
    }
}
