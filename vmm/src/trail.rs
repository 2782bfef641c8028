//! The last branches before a crash, where no hardware recorded them: the recording is run again on the software CPU
//! with the model of the branch records switched on, and read back as hardware is read. The trail says so
//! (provenance `derived`).

use crate::dump::{self, About, DumpError};
use crate::engine::{self, Counters, EngineKind, Until};
use crate::journal::End;
use crate::process::Death;
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
    let Some(End::Killed(death)) = replay.run_to_end()?.end else { return Err(TrailError::NoCrash) };
    let engine = replay.process_mut().engine_mut();
    let trail = armed.capture(engine, Provenance::Derived).map_err(|e| refused(&e))?.newest(records);
    let counters = engine.counters().unwrap_or_default();
    Ok(Derived { trail, counters, death, replay })
}

impl Derived {
    /// Writes the core of the crash with the trail and the counters, in place of the one in the recording's folder.
    ///
    /// # Errors
    /// When it cannot be written; the one that is there stays.
    pub fn write_core(&mut self, recording: &Recording, origin: &str) -> Result<(), DumpError> {
        let launch = self.replay.launch().clone();
        let about = About {
            death: self.death,
            launch: &launch,
            auxv: self.replay.auxv().to_vec(),
            origin: origin.to_owned(),
            trail: Some(self.trail.to_bytes()),
            counters: Some(self.counters),
        };
        dump::write_core(&recording.core(), self.replay.process_mut(), &about)
    }
}

/// The addresses of the last `count` instructions that a recorded program executed, oldest first: the truth that a
/// synthesized suffix is measured against. The instruction that crashed is not among them, since it did not
/// retire.
///
/// # Errors
/// As [`derive()`].
pub fn tail_log(recording: &Recording, count: u64) -> Result<Vec<u64>, TrailError> {
    let mut replay = on_software_cpu(recording)?;
    replay.run_to_end()?;
    let total = retired(&replay);
    let mut replay = on_software_cpu(recording)?;
    let from = Until::Retired(total.saturating_sub(count));
    while replay.step_until(from)? == Progress::Running {}
    let mut log = Vec::new();
    loop {
        let (rip, before) = (replay.process().engine().regs().rip, retired(&replay));
        let progress = replay.step_until(Until::Retired(before + 1))?;
        // A page that is brought in restarts its instruction; one that reads the machine is done by the
        // personality and not counted.
        let rip_moved = replay.process().engine().regs().rip != rip;
        if retired(&replay) > before || (progress == Progress::Running && rip_moved) {
            log.push(rip);
        }
        if progress == Progress::Done {
            let surplus = log.len().saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
            return Ok(log.split_off(surplus));
        }
    }
}

fn on_software_cpu(recording: &Recording) -> Result<Replay, TrailError> {
    let engine = engine::open(EngineKind::Soft, GUEST_MEMORY).map_err(crate::process::ProcessError::from);
    Ok(Replay::start(recording, engine.map_err(ReplayError::from)?, None)?)
}

fn retired(replay: &Replay) -> u64 {
    replay.process().engine().counters().unwrap_or_default().instructions
}
