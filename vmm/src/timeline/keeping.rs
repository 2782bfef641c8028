//! Running a recording to its end once, to leave checkpoints on disk from which later replays begin.
//!
//! A checkpoint needs a position, which a processor that does not count knows at events alone. Where such a processor has run for as
//! long as two checkpoints are to be apart and come to no event, it goes back to the last event, and the processor that counts runs
//! that segment with as many checkpoints as are due; but not where the way back there is longer than the segment.
//!
//! Example: of 10 s, KVM runs 9 s without an event. With a checkpoint every second it runs the first of these 9, and then the software
//! CPU all of them.

use super::recent::clock_after;
use super::{STRETCH, Timeline};
use crate::checkpoints::Rate;
use crate::checkpoints::keeper::Keeper;
use crate::engine::Until;
use crate::position::Position;
use crate::replay::{ReplayError, Replayed};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A segment that takes no longer is not run again for checkpoints in it.
const SHORT: Duration = Duration::from_millis(20);

/// A replay that wrote checkpoints.
pub struct Kept {
    /// What there is to say of it.
    pub replayed: Replayed,
    /// How many checkpoints were written.
    pub checkpoints: u64,
    /// The size of their file, in bytes.
    pub bytes: u64,
}

impl Timeline {
    /// Runs to the end of the recording, and writes checkpoints to `path`, which must not exist, for later replays. `tell` is told now
    /// and then where it stands, and says whether to go on; `None` where it did not want to.
    ///
    /// # Errors
    /// At the first difference, and when there can be no such file.
    pub fn run_to_end_keeping(
        &mut self,
        path: PathBuf,
        rate: Rate,
        tell: &mut dyn FnMut(Position) -> bool,
    ) -> Result<Option<Kept>, ReplayError> {
        self.tell_stores_apart();
        let mut keeper = self.replay.keeper(path, rate)?;
        let long = rate.every.max(SHORT);
        let (mut begun, mut comes_back) = (Instant::now(), None);
        while !self.ended {
            if !self.counts() && comes_back.is_none_or(|at| at <= Instant::now()) {
                self.replay.process_mut().come_back_at(Some(clock_after(long)));
                comes_back = Some(Instant::now() + long);
            }
            let event = self.replay.events();
            self.run_on(Until::Exit, &mut keeper)?;
            let mut goes_on = tell(self.position());
            if self.replay.events() > event {
                begun = Instant::now();
            } else if !self.counts() {
                comes_back = None;
                let is_long = begun.elapsed() >= long && begun.elapsed() >= self.half_of_way_by(event);
                if goes_on && !self.ended && is_long {
                    goes_on = self.count_segment(&mut keeper, tell)?;
                    begun = Instant::now();
                }
            }
            if !goes_on && !self.ended {
                keeper.finish(self.replay.process_mut());
                return Ok(None);
            }
        }
        self.keep_before_end(&mut keeper)?;
        let (checkpoints, bytes) = keeper.finish(self.replay.process_mut());
        Ok(Some(Kept { replayed: self.replay.report()?, checkpoints, bytes }))
    }

    /// Leaves a checkpoint right before the end, where nearly everyone who looks at a recording begins. The program stands at the end
    /// before and after.
    fn keep_before_end(&mut self, keeper: &mut Keeper) -> Result<(), ReplayError> {
        let end = self.replay.events();
        // The last events may be served together, as a signal that a program sends itself is, and each try is a way back.
        for event in [2, 4, 8, 16].iter().map_while(|before| end.checked_sub(*before)) {
            self.seek(Position { event, retired: 0 })?;
            if !self.ended {
                self.replay.keep_last_on_disk(keeper)?;
                return self.seek_end();
            }
        }
        Ok(())
    }

    /// Half of how long it takes to come from the checkpoint before this event to here: if the segment behind the event has taken as
    /// long, the way to the event is no longer than it.
    fn half_of_way_by(&self, event: u64) -> Duration {
        let before = self.stops.nearest(|stop| stop.position() <= Position { event, retired: 0 });
        before.map_or(self.spent, |(_, spent)| self.spent.saturating_sub(spent)) / 2
    }

    /// Runs the segment in which the program stands from its beginning, on the processor that counts. Whether to go on behind it.
    fn count_segment(
        &mut self,
        keeper: &mut Keeper,
        tell: &mut dyn FnMut(Position) -> bool,
    ) -> Result<bool, ReplayError> {
        let event = self.replay.events();
        self.seek(Position { event, retired: 0 })?;
        self.replay.process_mut().count_exactly(true)?;
        while self.replay.events() == event && !self.ended {
            let counters = self.replay.process().cpu().counters().unwrap_or_default();
            self.run_on(Until::Retired(counters.instructions.saturating_add(STRETCH)), keeper)?;
            if !tell(self.position()) {
                return Ok(false);
            }
        }
        self.replay.process_mut().count_exactly(false)?;
        Ok(true)
    }

    /// Runs to the next exit or bound, and keeps a checkpoint in memory and on disk where one is due: in memory wherever one is on disk.
    fn run_on(&mut self, until: Until, keeper: &mut Keeper) -> Result<(), ReplayError> {
        let (events, before) = (self.replay.events(), Instant::now());
        self.step_until(until)?;
        self.spent += before.elapsed();
        if self.exact {
            self.stops.keep_if_due(&mut self.replay, self.spent, self.ended)?;
        }
        if self.ended {
            return Ok(());
        }
        let newest = keeper.taken();
        self.replay.keep_on_disk(keeper, events)?;
        if self.exact && keeper.taken() != newest {
            // Pages that are copied for the one on disk are copied anyway, and the way back is as short as between those.
            self.stops.keep_one_more(&mut self.replay, self.spent, self.ended)?;
        }
        Ok(())
    }
}
