//! A recording that is still being made (`--follow`): it is opened again where one is at its end, and shown as far as it goes then.
//!
//! A replay ends at the last whole event of the journal, and does not wait for more. So each look opens the recording anew, and goes
//! to where one was, from the newest checkpoint that the recorder has written to disk, if there is one.

use super::Recorded;
use super::calls::Calls;
use super::forks::Forks;
use crate::engine::{self, Choice};
use crate::exit::{Code, Failure};
use crate::log::say;
use crate::replay::failure;
use std::path::PathBuf;
use vmm::ram::for_replay;
use vmm::recording::Recording;
use vmm::travel::Travel;

/// What is opened again.
pub(in crate::gdb) struct Source {
    pub(in crate::gdb) dir: PathBuf,
    pub(in crate::gdb) engine: Choice,
}

impl Recorded {
    /// Shows more of the recording from now on when there is more.
    pub(in crate::gdb) fn follow(mut self, source: Source) -> Recorded {
        say!("gretel: shown is what is recorded so far, up to its last whole event");
        say!("gretel: going on at its end, and `monitor refresh`, see what came since");
        self.source = Some(source);
        self
    }

    /// Opens the recording again, and stands where one stood; whether there is more behind it now.
    pub(in crate::gdb) fn refresh(&mut self) -> Result<bool, Failure> {
        let Some(Source { dir, engine }) = &self.source else { return Ok(false) };
        let recording = Recording::open(dir).map_err(|error| Failure::new(Code::Damaged, error))?;
        let machine = engine::open(*engine, for_replay())?;
        let mut travel = Travel::open(&recording, machine).map_err(failure)?;
        travel.seek(self.travel.position()).map_err(failure)?;
        self.travel = travel;
        self.forks = Forks::default();
        self.calls = Calls::default();
        self.moved();
        self.told_crash = self.travel.ended();
        Ok(!self.travel.ended())
    }
}
