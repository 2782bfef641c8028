//! Forks on the way back: a journey ends at the last one, before the call, so that `catch fork` catches it in both directions.
//!
//! Which calls may be forks is in the journal, which is read once for that; where nobody forks, nothing is run. gdb does not say whether
//! it catches forks, and goes on backwards by itself where it does not: so the way back is looked through only down to the fork.
//!
//! Example: `catch fork` and `reverse-continue` from behind `fork()`: "Catchpoint 1 (forked process 9817)", before the call.

use super::{Recorded, id_of};
use crate::gdb::ids::Id;
use crate::gdb::target::{Stopped, Why, Wishes};
use std::collections::BTreeMap;
use vmm::position::Position;
use vmm::process::Noted;
use vmm::replay::ReplayError;

/// The calls that may start a process.
const CALLS: [i64; 4] = [libc::SYS_fork, libc::SYS_vfork, libc::SYS_clone, libc::SYS_clone3];

/// A fork, and the first position behind it.
#[derive(Clone, Copy)]
pub(super) struct Fork {
    by: Id,
    pid: i32,
    waits: bool,
    pub(super) behind: Position,
}

/// What is known of the recording's forks.
#[derive(Default)]
pub(super) struct Forks {
    /// Calls that may be forks: the event, and the task.
    calls: Option<Vec<(u64, i32)>>,
    /// What was found at those that were looked at.
    looked_at: BTreeMap<u64, Option<Fork>>,
}

impl Recorded {
    /// The last fork up to here of which the debugger wants to be told: of a process that it looks at, and whose child it does not
    /// know. Comes back to here.
    pub(super) fn fork_before(&mut self, wishes: &Wishes) -> Result<Option<Fork>, ReplayError> {
        let here = self.travel.position();
        if !wishes.forks {
            return Ok(None);
        }
        if self.forks.calls.is_none() {
            self.forks.calls = Some(self.travel.calls(&CALLS)?);
        }
        let calls: Vec<_> = self.forks.calls.iter().flatten().rev().copied().collect();
        for (event, task) in calls {
            if (Position { event, retired: 0 }) > here || wishes.hidden.contains(&task) {
                continue;
            }
            let fork = match self.forks.looked_at.get(&event) {
                Some(fork) => *fork,
                None => self.look_at_call(event, task)?,
            };
            self.forks.looked_at.insert(event, fork);
            let is_wanted = |it: &Fork| {
                wishes.includes(it.by.pid) && !wishes.seen.contains_key(&it.pid) && it.behind <= here
            };
            if let Some(fork) = fork.filter(is_wanted) {
                self.travel.seek(here)?;
                return Ok(Some(fork));
            }
        }
        self.travel.seek(here)?;
        Ok(None)
    }

    /// Runs over a task's call, and sees whether it has started a process.
    fn look_at_call(&mut self, event: u64, task: i32) -> Result<Option<Fork>, ReplayError> {
        let (mut before, begin) = (event, self.travel.begin());
        // An event may be served together with those before it.
        loop {
            if before <= begin.event {
                return Ok(None);
            }
            before -= 1;
            if self.travel.seek(Position { event: before, retired: 0 })?.event < event {
                break;
            }
        }
        self.travel.process_mut().note_kernel(true);
        while self.travel.position().event < event && self.travel.next_event()? {}
        let noted = self.travel.process_mut().take_noted();
        self.travel.process_mut().note_kernel(false);
        let process = self.travel.process();
        Ok(noted.iter().rev().find_map(|noted| match noted {
            Noted::Forked { by, pid, waits } if *by == task => Some(Fork {
                by: id_of(process, *by),
                pid: *pid,
                waits: *waits,
                behind: self.travel.position(),
            }),
            _ => None,
        }))
    }

    /// Goes to before the call, and tells of it.
    pub(super) fn tell_fork_behind(&mut self, fork: Fork, wishes: &Wishes) -> Result<Stopped, ReplayError> {
        self.travel.seek(fork.behind)?;
        self.travel.step_back_of(fork.by.tid)?;
        let waits = fork.waits && wishes.vforks;
        Ok(Stopped { id: fork.by, why: Why::Forked { pid: fork.pid, waits } })
    }
}
