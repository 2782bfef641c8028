//! Going back: from one checkpoint to the next older one, each time forward to where the one before began.

use super::{Stop, Travel};
use crate::engine::Until;
use crate::engine::lookout::Lookout;
use crate::position::Position;
use crate::replay::ReplayError;

impl Travel {
    /// Goes to before the last instruction that the loaded task ran. False where it has run none: then at the beginning.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn step_back(&mut self) -> Result<Stop, ReplayError> {
        let task = self.process().thread();
        self.go_before(self.position(), Some(task))
    }

    /// Goes back to the last thing before here that is looked for, or to the beginning.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn backward(&mut self, lookout: &Lookout) -> Result<Stop, ReplayError> {
        let here = self.position();
        let mut end = here;
        while let Some(start) = self.checkpoint_before(end) {
            if self.seek(start)? >= end {
                break;
            }
            if let Some((stop, at)) = self.last_before(lookout, end)? {
                match stop {
                    Stop::Breakpoint(_) => drop(self.seek(at)?),
                    _ => drop(self.go_before(at, None)?),
                }
                return Ok(stop);
            }
            if self.is_asked() {
                self.seek(here)?;
                return Ok(Stop::Asked);
            }
            end = start;
        }
        self.seek(self.begin())?;
        Ok(Stop::Begin)
    }

    /// Where the recording begins.
    #[must_use]
    pub fn begin(&self) -> Position {
        self.timeline().replay().window_begins().unwrap_or_default()
    }

    /// The last hit between here and `end`, and its position.
    fn last_before(
        &mut self,
        lookout: &Lookout,
        end: Position,
    ) -> Result<Option<(Stop, Position)>, ReplayError> {
        let rip = self.process().cpu().regs().rip;
        let begins_at = self.process().pid() == self.followed() && lookout.at.binary_search(&rip).is_ok();
        let mut last = begins_at.then(|| (Stop::Breakpoint(rip), self.position()));
        let mut from = self.position();
        loop {
            let stop = self.scan(lookout, Some(end), Some)?;
            self.look_out(&Lookout::default())?;
            match stop {
                Some(stop) => last = Some((stop, self.position())),
                None => return Ok(last),
            }
            debug_assert!(self.position() > from, "a hit is behind the one before");
            from = self.position();
        }
    }

    /// The newest checkpoint before a position.
    fn checkpoint_before(&self, position: Position) -> Option<Position> {
        let disk = self.timeline().replay().shelf().newest_first().map(|(_, about)| about.position);
        let begin = (self.begin() < position).then(|| self.begin());
        self.timeline().checkpoints().chain(disk).chain(begin).filter(|at| *at < position).max()
    }

    /// Goes to before the last instruction that ran before `here`: of this task, or of whichever.
    fn go_before(&mut self, here: Position, task: Option<i32>) -> Result<Stop, ReplayError> {
        if here.retired > 0 {
            self.seek(Position { retired: here.retired - 1, ..here })?;
            return Ok(Stop::There);
        }
        let mut event = here.event;
        while event > self.begin().event {
            event -= 1;
            let segment = self.seek(Position { event, retired: 0 })?;
            if segment >= here || task.is_some_and(|task| task != self.process().thread()) {
                continue;
            }
            // The event may be served at its instruction, which did not retire, or behind it.
            let len = self.length(segment.event)?;
            for retired in [len, len.saturating_sub(1)] {
                if self.seek(Position { event: segment.event, retired })? < here {
                    return Ok(Stop::There);
                }
            }
        }
        self.seek(self.begin())?;
        Ok(Stop::Begin)
    }

    /// How many instructions retire behind this event, where the program stands, before the next.
    fn length(&mut self, event: u64) -> Result<u64, ReplayError> {
        let start = self.retired()?;
        while self.position().event == event && !self.ended() {
            self.walk(Until::Exit)?;
        }
        Ok(self.retired()? - start)
    }
}
