//! Programs that a process runs one after the other (exec), and which of them the debugger has the symbols of.
//!
//! Forward, exec is an event that the kernel notes. Backwards it is told as the same event, right before the call: the debugger takes the
//! symbols of the program before, sets its breakpoints there, and goes on backwards by itself. Example: a shell's child is followed into
//! `ls`, and the debugger goes back: it stops before the exec, although the parent is loaded where the way back ended.

use super::Recorded;
use crate::gdb::ids::Id;
use crate::gdb::target::{Stopped, Why, Wishes};
use std::collections::{BTreeMap, BTreeSet};
use vmm::position::Position;
use vmm::process::{Noted, Process};
use vmm::replay::ReplayError;
use vmm::travel::Stop;

/// The program of each process that the debugger has seen, as it knows it.
#[derive(Default)]
pub(super) struct Images {
    known: BTreeMap<i32, Vec<u8>>,
    /// Processes whose program was told as an exec, going forward.
    executed: BTreeSet<i32>,
}

impl Recorded {
    /// Takes note of what the debugger sees here for the first time.
    pub(super) fn note_images(&mut self, wishes: &Wishes) {
        for pid in wishes.seen.keys().filter(|pid| wishes.includes(**pid)) {
            if let Some((path, _)) = self.travel.process().command_of(*pid) {
                self.images.known.entry(*pid).or_insert_with(|| path.to_bytes().to_vec());
            }
        }
    }

    /// The debugger goes forward over an exec.
    pub(super) fn tell_exec(&mut self, pid: i32) -> Stopped {
        self.images.executed.insert(pid);
        self.tell_image(pid)
    }

    /// The debugger takes a process for this program from here on.
    pub(super) fn tell_image(&mut self, pid: i32) -> Stopped {
        let path = self.travel.process().command_of(pid).map(|(path, _)| path.to_bytes().to_vec());
        let path = path.unwrap_or_default();
        self.images.known.insert(pid, path.clone());
        Stopped { id: Id { pid, tid: pid }, why: Why::Executed(path) }
    }

    /// Whether the loaded process runs another program than the debugger knows it to.
    pub(super) fn is_another_image(&self, wishes: &Wishes) -> bool {
        let process = self.travel.process();
        let (pid, runs) = (process.pid(), process.command_of(process.pid()));
        let known = self.images.known.get(&pid).zip(runs);
        wishes.execs && known.is_some_and(|(known, (path, _))| known != path.to_bytes())
    }

    /// Where a journey back from `start` has passed an exec of a process that is looked at: goes to before the last such exec, and
    /// gives its process. The debugger has no breakpoints of the program that ran before, so there may be some that were passed.
    pub(super) fn go_to_passed_exec(
        &mut self,
        wishes: &Wishes,
        start: Position,
    ) -> Result<Option<i32>, ReplayError> {
        let here = self.travel.position();
        let loaded = self.travel.process().pid();
        let process = self.travel.process();
        let is_another = |(pid, known): (&i32, &Vec<u8>)| match process.command_of(*pid) {
            Some((path, _)) => path.to_bytes() != known,
            // It has been told as this program by an exec, which may be behind or ahead.
            None => self.images.executed.contains(pid),
        };
        let passed = self.images.known.iter().filter(|it| wishes.includes(*it.0) && is_another(*it));
        let passed: BTreeSet<i32> = passed.map(|(pid, _)| *pid).collect();
        if !wishes.execs || passed.is_empty() {
            return Ok(None);
        }
        let last = self.last_exec(&passed, start)?;
        let Some((pid, at)) = last else {
            self.travel.seek(here)?;
            // What is loaded is known to be another, wherever it became that.
            return Ok(passed.contains(&loaded).then_some(loaded));
        };
        self.travel.seek(at)?;
        self.travel.step_back_of(pid)?;
        self.images.executed.remove(&pid);
        Ok(Some(pid))
    }

    /// The last exec of these processes between here and `end`, and where it was done.
    fn last_exec(
        &mut self,
        pids: &BTreeSet<i32>,
        end: Position,
    ) -> Result<Option<(i32, Position)>, ReplayError> {
        let executed = |process: &Process| {
            let mut all = process.noted().iter().rev();
            all.find_map(|it| if let Noted::Executed(pid) = it { Some(*pid) } else { None })
        };
        let lookout = self.travel.follow_each(BTreeMap::new());
        self.travel.heed_kernel(true);
        let mut last = None;
        let mut own = |process: &Process, _| executed(process).is_some_and(|pid| pids.contains(&pid));
        while self.travel.forward_where(&lookout, Some(end), &mut own)? == Stop::Noted {
            let pid = executed(self.travel.process());
            last = pid.map(|pid| (pid, self.travel.position())).or(last);
        }
        self.travel.process_mut().note_kernel(false);
        Ok(last)
    }
}
