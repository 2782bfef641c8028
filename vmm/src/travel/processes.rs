//! The processes of a recording: where each ran, and which there are.

use super::Travel;
use crate::engine::Until;
use crate::replay::ReplayError;
use std::collections::BTreeMap;

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
            self.walk(Until::Exit)?;
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
