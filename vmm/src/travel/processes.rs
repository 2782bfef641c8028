//! The processes of a recording: where each ran, and which there are.

use super::Travel;
use crate::position::Position;
use crate::replay::ReplayError;
use std::collections::BTreeMap;

/// The calls that may start a process.
const STARTS: [i64; 4] = [libc::SYS_fork, libc::SYS_vfork, libc::SYS_clone, libc::SYS_clone3];

impl Travel {
    /// Goes to the last event behind which this process was loaded: where it ended, or where the recording does. False, and at the
    /// end, where there never was such a process.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn seek_process(&mut self, pid: i32) -> Result<bool, ReplayError> {
        self.seek_end()?;
        if self.process().pid() == pid {
            return Ok(true);
        }
        self.seek(self.begin())?;
        let mut last = None;
        while !self.ended() {
            if self.process().pid() == pid {
                last = Some(self.position());
            }
            // At full speed, with checkpoints.
            self.seek(Position { event: self.position().event + 1, retired: 0 })?;
        }
        Ok(match last {
            Some(last) => self.seek(last)? == last,
            None => false,
        })
    }

    /// Goes to the first event behind which this process is loaded. False, and at the end, where there is no such process.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn seek_first_of(&mut self, pid: i32) -> Result<bool, ReplayError> {
        self.seek(self.begin())?;
        while self.process().pid() != pid {
            if !self.next_event()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Goes to behind the call that started a process, which lives at this position. Gives the process that made the call, whose memory it
    /// began with; `None` for one that the recording begins with.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn seek_start_of(&mut self, pid: i32, lives: Position) -> Result<Option<i32>, ReplayError> {
        let mut calls = self.calls(&STARTS)?;
        calls.retain(|(event, _)| *event <= lives.event);
        let begin = self.begin();
        if pid == self.process().first_pid()
            || begin > Position::default()
                && self.seek(begin).map(|_| self.process().space_of(pid).is_some())?
        {
            return Ok(None);
        }
        // Behind the first of them behind which it lives.
        let (mut low, mut high) = (0, calls.len());
        while low < high {
            let middle = low.midpoint(high);
            self.seek(Position { event: calls[middle].0, retired: 0 })?;
            let lives = self.process().space_of(pid).is_some();
            (low, high) = if lives { (low, middle) } else { (middle + 1, high) };
        }
        let Some((event, task)) = calls.get(low) else { return Ok(None) };
        self.seek(Position { event: *event, retired: 0 })?;
        let by = self.process().tasks().find(|it| it.id == *task);
        Ok(by.map(|by| by.pid).filter(|by| *by != pid))
    }

    /// Where another process is loaded, since it has changed what is shared with `pid`: goes to before the instruction of `pid` behind
    /// which that is seen, which is the call that waited meanwhile.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn back_into(&mut self, pid: i32) -> Result<(), ReplayError> {
        if self.process().pid() == pid {
            return Ok(());
        }
        while self.process().pid() != pid {
            if !self.next_event()? {
                return Ok(());
            }
        }
        let task = self.process().thread();
        self.step_back_of(task).map(drop)
    }

    /// All processes that ever ran, by number, each with the path of its last program. It ends at the recording's end.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn processes(&mut self) -> Result<BTreeMap<i32, Vec<u8>>, ReplayError> {
        let mut found = BTreeMap::new();
        self.seek(self.begin())?;
        loop {
            let (pid, process) = (self.process().pid(), self.process());
            if let Some((path, _)) = process.command_of(pid) {
                found.insert(pid, path.to_bytes().to_vec());
            }
            if !self.next_event()? {
                return Ok(found);
            }
        }
    }
}
