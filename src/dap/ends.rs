//! Where the process of a session begins and ends, which need not be where the recording does.
//!
//! A session is of one process ([`vmm::travel::Travel::followed`]). Forward it goes no farther than to the signal that ends the process, or
//! to before the call by which that exits; backwards no farther than to its first instruction. There its threads are, and can be looked at.
//!
//! Example: a child stores by a null pointer, and its parent goes on and exits. `continue` in the child's session stops at the store, by
//! SIGSEGV; `reverseContinue` behind the fork, where the child has run nothing.

use super::debuggee::{Debuggee, Reason};
use vmm::engine::lookout::Lookout;
use vmm::position::Position;
use vmm::process::{Noted, Process};
use vmm::replay::ReplayError;
use vmm::travel::{Stop, Travel};

/// Whether a process stands at the signal that has ended it.
pub(super) fn has_died(process: &Process, pid: i32) -> bool {
    process.pid() == pid && process.death().is_some()
}

/// The task by which a process has just exited.
pub(super) fn exit_of(process: &Process, pid: i32) -> Option<i32> {
    process.noted().iter().find_map(|noted| match noted {
        Noted::Ended { pid: ended, task } if *ended == pid => Some(*task),
        _ => None,
    })
}

/// Goes to where a process ran last: the signal that ended it, or the last call that it made. False where there never was such a process.
pub(super) fn to_last_moment(travel: &mut Travel, pid: i32) -> Result<bool, ReplayError> {
    if !travel.seek_process(pid)? {
        return Ok(false);
    }
    if travel.ended() && !travel.process().is_first() && travel.damage().is_none() {
        // A process that died last stands at the same position before it is taken away, and the recording ends as the first one did.
        let end = travel.position();
        travel.seek(travel.begin())?;
        travel.seek(end)?;
        if travel.process().death().is_none() {
            travel.seek_end()?;
            let task = travel.process().thread();
            travel.step_back_of(task)?;
        }
        return Ok(true);
    }
    if travel.ended() || travel.process().death().is_some() {
        return Ok(true);
    }
    let task = travel.process().thread();
    while travel.process().pid() == pid && travel.next_event()? {}
    travel.step_back_of(task)?;
    Ok(true)
}

/// Goes on to where a process runs next, if it does.
pub(super) fn to_next_moment(travel: &mut Travel, pid: i32) -> Result<bool, ReplayError> {
    while travel.process().pid() != pid {
        if !travel.next_event()? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Debuggee {
    /// Where the process of the session runs first.
    pub(super) fn first(&mut self) -> Result<Position, ReplayError> {
        let (begin, pid) = (self.travel.begin(), self.travel.followed());
        if let Some((_, first)) = self.first.filter(|(of, _)| *of == pid) {
            return Ok(first);
        }
        let is_begin = begin == Position::default() && pid == self.travel.process().first_pid();
        let first = if is_begin { begin } else { self.look_for_first(pid)? };
        self.first = Some((pid, first));
        Ok(first)
    }

    fn look_for_first(&mut self, pid: i32) -> Result<Position, ReplayError> {
        let (here, ended) = (self.travel.position(), self.travel.ended());
        self.travel.seek(self.travel.begin())?;
        let is_there = to_next_moment(&mut self.travel, pid)?;
        let first = if is_there { self.travel.position() } else { self.travel.begin() };
        match ended {
            true => self.travel.seek_end()?,
            false => drop(self.travel.seek(here)?),
        }
        Ok(first)
    }

    /// Whether the process of the session stands where a signal has ended it: nothing of it runs behind.
    pub(super) fn is_dead(&self) -> bool {
        has_died(self.travel.process(), self.travel.followed())
    }

    /// Where a way forward has come to an end of the process, goes back into it if need be, and says why it stops there. `exited` is the
    /// task that was seen to exit.
    pub(super) fn end_of_process(
        &mut self,
        stop: Stop,
        exited: Option<i32>,
    ) -> Result<Option<Reason>, ReplayError> {
        let pid = self.travel.followed();
        if self.is_dead() {
            return Ok(Some(Reason::End));
        }
        if let Some(task) = exited {
            self.travel.step_back_of(task)?;
            return Ok(Some(Reason::Exit));
        }
        if stop == Stop::End && self.travel.process().pid() != pid {
            to_last_moment(&mut self.travel, pid)?;
            return Ok(Some(if self.is_dead() { Reason::End } else { Reason::Last }));
        }
        Ok(match stop {
            Stop::End => Some(Reason::End),
            Stop::Asked => Some(Reason::Pause),
            _ => None,
        })
    }

    /// Runs one instruction of the loaded thread, unless that is the process's end.
    pub(super) fn run_instruction(&mut self) -> Result<Reason, ReplayError> {
        let (pid, thread) = (self.travel.followed(), self.loaded());
        if self.is_dead() {
            return Ok(Reason::End);
        }
        let mut exited = None;
        self.travel.heed_kernel(true);
        let stop = self.travel.step_of(thread, &Lookout::default(), &mut |process, _| {
            exited = exit_of(process, pid);
            exited.is_some() || has_died(process, pid)
        });
        self.travel.heed_kernel(false);
        Ok(self.end_of_process(stop?, exited)?.unwrap_or(Reason::Step))
    }
}
