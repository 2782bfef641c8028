//! Programs that a process runs one after the other (exec), and which of them the debugger has the symbols of.
//!
//! Forward, exec is an event that the kernel notes. Backwards it is told as the same event, right before the call: the debugger takes the
//! symbols of the program before, sets its breakpoints there, and goes on backwards by itself.

use super::Recorded;
use crate::gdb::ids::Id;
use crate::gdb::target::{Stopped, Why, Wishes};
use std::collections::BTreeMap;
use vmm::position::Position;
use vmm::process::{Noted, Process};
use vmm::replay::ReplayError;
use vmm::travel::Stop;

/// The program of each process that the debugger has seen, as it knows it.
#[derive(Default)]
pub(super) struct Images(BTreeMap<i32, Vec<u8>>);

impl Recorded {
    /// Takes note of what the debugger sees here for the first time.
    pub(super) fn note_images(&mut self, wishes: &Wishes) {
        for pid in wishes.seen.keys().filter(|pid| wishes.includes(**pid)) {
            if let Some((path, _)) = self.travel.process().command_of(*pid) {
                self.images.0.entry(*pid).or_insert_with(|| path.to_bytes().to_vec());
            }
        }
    }

    /// The debugger takes a process for this program from here on.
    pub(super) fn tell_image(&mut self, pid: i32) -> Stopped {
        let path = self.travel.process().command_of(pid).map(|(path, _)| path.to_bytes().to_vec());
        let path = path.unwrap_or_default();
        self.images.0.insert(pid, path.clone());
        Stopped { id: Id { pid, tid: pid }, why: Why::Executed(path) }
    }

    /// Whether the loaded process runs another program than the debugger knows it to.
    pub(super) fn is_another_image(&self, wishes: &Wishes) -> bool {
        let process = self.travel.process();
        let (path, _) = process.command();
        wishes.execs && self.images.0.get(&process.pid()).is_some_and(|known| known != path.to_bytes())
    }

    /// Goes from here, where another program runs, to before the last exec that the loaded process has called before `end`.
    pub(super) fn go_to_exec(&mut self, end: Position) -> Result<(), ReplayError> {
        let (pid, here) = (self.travel.process().pid(), self.travel.position());
        let lookout = self.travel.follow_each(BTreeMap::new());
        self.travel.heed_kernel(true);
        let mut last = None;
        let mut own = |process: &Process, _| process.noted().contains(&Noted::Executed(pid));
        while self.travel.forward_where(&lookout, Some(end), &mut own)? == Stop::Noted {
            last = Some(self.travel.position());
        }
        self.travel.seek(last.unwrap_or(here))?;
        if last.is_some() {
            self.travel.step_back_of(pid)?;
        }
        Ok(())
    }
}
