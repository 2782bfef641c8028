//! The last branches before a crash, where no hardware recorded them: the recording is run again on the software CPU
//! with the model of the branch records switched on, and read back as hardware is read. The trail says so
//! (provenance `derived`).

use crate::crumbs;
use crate::dump::{self, About, DumpError};
use crate::engine::{self, Counters, EngineKind, Until};
use crate::journal::End;
use crate::process::{Death, Process};
use crate::recording::Recording;
use crate::replay::{Progress, Replay, ReplayError};
use lbr::{Armed, Filter, Provenance, Trail};

/// Memory of the software CPU's guest: as large as any guest that records.
const GUEST_MEMORY: u64 = 4 << 30;

/// Why there is no trail.
#[derive(Debug, thiserror::Error)]
pub enum TrailError {
    /// The replay fails or differs.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The model of the branch records refuses.
    #[error("the model of the branch records: {0}")]
    Capture(String),
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
/// through.
///
/// # Errors
/// When the recording does not replay on the software CPU, or does not end in a crash.
pub fn derive(recording: &Recording, records: u32, filter: Filter) -> Result<Derived, TrailError> {
    let mut replay = on_software_cpu(recording)?;
    let refused = |error: &dyn std::error::Error| TrailError::Capture(error.to_string());
    let armed = Armed::arm(replay.process_mut().engine_mut(), filter).map_err(|e| refused(&e))?;
    replay.process_mut().empty_at_switches(armed);
    let Some(End::Killed(death)) = replay.run_to_end()?.end else { return Err(TrailError::NoCrash) };
    let engine = replay.process_mut().engine_mut();
    let trail = armed.capture(engine, Provenance::Derived).map_err(|e| refused(&e))?.newest(records);
    let counters = engine.counters().unwrap_or_default();
    Ok(Derived { trail, counters, death, replay })
}

impl Derived {
    /// Writes the core of the crash with the trail, the counters and the crumbs' counts, in place of the one in the
    /// recording's folder.
    ///
    /// # Errors
    /// When it cannot be written; the one that is there stays.
    pub fn write_core(&mut self, recording: &Recording, origin: &str) -> Result<(), DumpError> {
        let launch = self.replay.launch().clone();
        let mut crumbs = crumbs::of_core(recording);
        crumbs.iter_mut().for_each(|crumbs| self.replay.add_counts(crumbs));
        let about = About {
            death: self.death,
            launch: &launch,
            auxv: self.replay.auxv().to_vec(),
            origin: origin.to_owned(),
            trail: Some(self.trail.to_bytes()),
            counters: Some(self.counters),
            crumbs,
            contexts: crumbs::contexts_of_core(recording),
        };
        dump::write_core(&recording.core(), self.replay.process_mut(), &about)
    }
}

/// A recorded program near its end, run again on the software CPU one instruction at a time: the truth that a
/// synthesized suffix is measured against.
pub struct Tail {
    replay: Replay,
    /// Instructions that have retired at the end.
    total: u64,
    ended: bool,
}

impl Tail {
    /// Stands before the last `count` instructions that retire, or at the program's first. Runs the whole recording
    /// twice.
    ///
    /// # Errors
    /// As [`derive()`].
    pub fn open(recording: &Recording, count: u64) -> Result<Tail, TrailError> {
        let mut replay = on_software_cpu(recording)?;
        replay.run_to_end()?;
        let total = retired(&replay);
        let mut replay = on_software_cpu(recording)?;
        let from = Until::Retired(total.saturating_sub(count));
        while replay.step_until(from)? == Progress::Running {}
        Ok(Tail { replay, total, ended: false })
    }

    /// How many instructions are to retire from here on.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.total.saturating_sub(retired(&self.replay))
    }

    /// Whether the program has ended.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// The program, before the instruction at rip.
    pub fn process_mut(&mut self) -> &mut Process {
        self.replay.process_mut()
    }

    /// Runs the instruction at rip, and says whether it retired: the one that crashes does not. One that reads the machine
    /// does, though the engine does not count it.
    ///
    /// # Errors
    /// As [`derive()`].
    pub fn step(&mut self) -> Result<bool, TrailError> {
        while self.replay.process().waits() && !self.ended {
            self.ended = self.replay.step()? == Progress::Done;
        }
        let (rip, before) = (self.replay.process().engine().regs().rip, retired(&self.replay));
        loop {
            let progress = self.replay.step_until(Until::Retired(before + 1))?;
            self.ended = progress == Progress::Done;
            let rip_moved = self.replay.process().engine().regs().rip != rip;
            let done = retired(&self.replay) > before || (progress == Progress::Running && rip_moved);
            // A page that is brought in restarts its instruction.
            if done || self.ended {
                return Ok(done);
            }
        }
    }
}

/// The addresses of the last `count` instructions that a recorded program executed, oldest first. The instruction that
/// crashed is not among them, since it did not retire.
///
/// # Errors
/// As [`derive()`].
pub fn tail_log(recording: &Recording, count: u64) -> Result<Vec<u64>, TrailError> {
    let mut tail = Tail::open(recording, count)?;
    let mut log = Vec::new();
    while !tail.ended() {
        let rip = tail.process_mut().engine().regs().rip;
        if tail.step()? {
            log.push(rip);
        }
    }
    let surplus = log.len().saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
    Ok(log.split_off(surplus))
}

fn on_software_cpu(recording: &Recording) -> Result<Replay, TrailError> {
    let engine = engine::open(EngineKind::Soft, GUEST_MEMORY).map_err(crate::process::ProcessError::from);
    Ok(Replay::start(recording, engine.map_err(ReplayError::from)?, None)?)
}

fn retired(replay: &Replay) -> u64 {
    replay.process().engine().counters().unwrap_or_default().instructions
}
