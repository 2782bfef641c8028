//! A step where no line is known and nobody called, as at the program's entry point: it runs on to the program's own source.
//!
//! Example: `next` at `_start`, of which there is no source, comes to the first line of `main`.

use super::debuggee::{Debuggee, Reason};
use super::run::Came;
use crate::sight::Known;
use std::path::Path;
use vmm::process::Process;
use vmm::replay::ReplayError;

impl Debuggee {
    /// `next` and `stepIn` of a thread in a function without lines that nobody called.
    pub(super) fn step_into_source(&mut self, thread: i32) -> Result<Result<Reason, ReplayError>, String> {
        let places = self.own_statements();
        match places.is_empty() {
            true => {
                Err("no line of the program is known, and nobody called this: step by instructions"
                    .to_owned())
            }
            false => Ok(self.run_into_source(thread, &places)),
        }
    }

    /// The statements of the program, without its libraries: of the source files that are on this machine, if there are any. A language's
    /// own library, which is compiled into the program, is elsewhere mostly.
    fn own_statements(&self) -> Vec<u64> {
        let Some(info) = self.known.program() else { return Vec::new() };
        let own = info.statements(&|file| Path::new(&self.sources.here(file)).is_file());
        if own.is_empty() { info.statements(&|_| true) } else { own }
    }

    fn run_into_source(&mut self, thread: i32, places: &[u64]) -> Result<Reason, ReplayError> {
        let is_it = |process: &Process, known: &Known, at: u64| {
            process.thread() == thread && known.lines(at).is_some()
        };
        if let Came::Elsewhere(reason) = self.forward_to(places, &is_it)? {
            return Ok(reason);
        }
        let rip = self.travel.process().cpu().regs().rip;
        match self.known.lines(rip) {
            Some(lines) if (lines.entry..lines.body).contains(&rip) => self.enter_body(thread, &lines),
            _ => Ok(Reason::Step),
        }
    }
}
