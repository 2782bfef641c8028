//! Getting ready for looks back: checkpoints that are left on disk for all that come, and what is done while nobody asks for anything.
//!
//! The first step back into what KVM has run needs the count of its instructions, so the software CPU has to run all of it since the
//! last event. Whoever waits for a person can do that meanwhile.
//!
//! Example: a debugger is opened at a crash behind 16 billion instructions without an event. While its user reads the stack,
//! [`Travel::prepare`] runs them and keeps checkpoints; the step back then takes milliseconds.

use super::{STRETCH, Travel};
use crate::checkpoints::Rate;
use crate::engine::Until;
use crate::position::Position;
use crate::recording::RecordingError;
use crate::replay::ReplayError;
use crate::timeline::Kept;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A debugger that says nothing for so long waits for its user: time for [`Travel::prepare`].
pub const SILENCE: Duration = Duration::from_millis(100);

impl Travel {
    /// Goes from the beginning to the end, and leaves checkpoints on disk, in place of those that are there: for this and for later
    /// journeys. `tell` is told now and then where it stands, and says whether to go on; `None` where it did not want to, and then those
    /// that are there stay.
    ///
    /// # Errors
    /// At the first difference to the recording, and when there can be no such file.
    pub fn leave_checkpoints(
        &mut self,
        rate: Rate,
        tell: &mut dyn FnMut(Position) -> bool,
    ) -> Result<Option<Kept>, ReplayError> {
        let path = self.recording.checkpoints();
        let unwritable = |error| RecordingError::Write { path: path.clone(), error };
        let new = self.recording.begin_checkpoints().map_err(unwritable)?;
        self.seek(self.begin())?;
        self.look_away()?;
        let kept = self.timeline.run_to_end_keeping(new, rate, tell);
        self.recording.end_checkpoints(matches!(kept, Ok(Some(_)))).map_err(unwritable)?;
        let kept = kept?;
        self.timeline.replay_mut().look_at_shelf(&self.recording)?;
        self.damage = self.timeline.replay().damage();
        Ok(kept)
    }

    /// Runs the way from the newest checkpoint to here on the processor that counts, which keeps checkpoints. It ends here again, early
    /// when somebody asks for a stop; what was kept until then stays, and the next call goes on there.
    ///
    /// # Errors
    /// When it cannot come back to here.
    pub fn prepare(&mut self) -> Result<(), ReplayError> {
        let here = self.position();
        let frames = self.process().memory().frames();
        let is_scarce = frames.available() < frames.used();
        let Some(start) = self.checkpoint_before(here).filter(|_| !is_scarce && self.prepared != Some(here))
        else {
            return Ok(());
        };
        let ended = self.ended();
        self.look_away()?;
        // It is come back to by this, however far the way was gone.
        self.timeline.keep_here()?;
        // A difference on the way is told to who asks for something there.
        let _ = self.seek(start).and_then(|_| self.walk_to(here));
        let asked = self.is_asked();
        self.timeline.come_back(here)?;
        // Where memory is scarce, what was kept may have been given back.
        match ended {
            true if !self.ended() => self.seek_end()?,
            false if self.position() < here => drop(self.seek(here)?),
            _ => {}
        }
        self.prepared = (!asked).then_some(here);
        Ok(())
    }

    fn walk_to(&mut self, goal: Position) -> Result<(), ReplayError> {
        while self.position() < goal && !self.ended() && !self.asks.load(Ordering::Relaxed) {
            let (here, now) = (self.position(), self.retired()?);
            let left = if here.event == goal.event { goal.retired - here.retired } else { STRETCH };
            self.walk(Until::Retired(now + left.min(STRETCH)))?;
        }
        Ok(())
    }
}
