//! Time travel: a replay that goes to any position of its recording, forwards and backwards; and the near past of a program that
//! is being recorded ([`recent`]), from which its crash is run again ([`retrace`]). [`keeping`] leaves checkpoints on disk.
//!
//! Going forward it keeps checkpoints ([`stops`]); going back it restores the nearest one before the goal, and runs forward
//! from there. On the software CPU a position is exact to the instruction. Under KVM, which does not count, whole segments run
//! there, and the software CPU takes over at the last event before the goal.
//!
//! What the recorder has written of checkpoints to disk ([`crate::checkpoints`]) is used where it is nearer than what is in memory.
//!
//! Example: a recording of 60 s has some hundred checkpoints when it was run once; `seek` to event 5,000 restores the one at
//! event 4,712 and runs the 288 events in between.

mod keeping;
mod recent;
mod records;
mod retrace;
mod served_at;
mod stops;

use crate::checkpoints::{About, CheckpointError};
use crate::engine::{Counters, EngineKind, Machine, Until};
use crate::position::Position;
use crate::process::{Checkpoint, ProcessError};
use crate::recording::Recording;
use crate::replay::{Progress, Replay, ReplayError, Replayed};
pub use keeping::Kept;
pub use recent::Recent;
pub use retrace::{LastBranches, RetraceError};
use std::time::{Duration, Instant};
pub use stops::Pace;
use stops::{Stop, Stops};

/// So many instructions run at most between two looks at whether a checkpoint is due: some 50 ms.
const STRETCH: u64 = 1 << 23;

/// A replay that goes to any position.
pub struct Timeline {
    replay: Replay,
    stops: Stops,
    /// How long it takes to run from the start to here.
    spent: Duration,
    /// Whether [`Timeline::position`] is where the program stands: a processor that does not count is behind it once it has
    /// run without coming to an event.
    exact: bool,
    /// The recording's end is reached.
    ended: bool,
}

/// Where to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Position(Position),
    /// When so many instructions have retired since the program's start.
    Retired(u64),
    /// The end of the recording, from the newest checkpoint on.
    End,
    /// The end behind all that the recording compares.
    WholeEnd,
}

impl Goal {
    /// Whether a program at `position` with these counts has come there or further; `None` where the counts do not say.
    fn compare(self, position: Position, counters: Option<Counters>) -> Option<std::cmp::Ordering> {
        Some(match self {
            Goal::Position(goal) => position.cmp(&goal),
            Goal::Retired(goal) => counters?.instructions.cmp(&goal),
            Goal::End | Goal::WholeEnd => std::cmp::Ordering::Less,
        })
    }

    /// Whether a checkpoint is not behind it, as far as is known. Counts that begin elsewhere than those of the whole timeline
    /// (`late` or not) say nothing.
    fn may_be_behind(self, stop: &Stop, late: bool) -> bool {
        if matches!(self, Goal::Retired(_)) && stop.counters().is_some() && stop.counts_late() != late {
            return false;
        }
        self.compare(stop.position(), stop.counters()).is_none_or(std::cmp::Ordering::is_le)
    }
}

impl Timeline {
    /// Opens a recording, before its first instruction.
    ///
    /// # Errors
    /// When the recording cannot be used.
    pub fn open(recording: &Recording, machine: Machine) -> Result<Timeline, ReplayError> {
        Timeline::with_pace(recording, machine, Pace::default())
    }

    /// The same with checkpoints as close as `pace` says.
    ///
    /// # Errors
    /// As [`Timeline::open`].
    pub fn with_pace(recording: &Recording, machine: Machine, pace: Pace) -> Result<Timeline, ReplayError> {
        Timeline::of(Replay::start(recording, machine, None)?, pace)
    }

    /// A replay that has not run yet, with checkpoints as close as `pace` says.
    ///
    /// # Errors
    /// When there is no memory for a checkpoint.
    pub fn of(mut replay: Replay, pace: Pace) -> Result<Timeline, ReplayError> {
        let mut stops = Stops::new(pace);
        let spent = replay.spent_before();
        stops.keep(&mut replay, spent, false)?;
        Ok(Timeline { replay, stops, spent, exact: true, ended: false })
    }

    /// Where it stands: at an event that was served, or so many instructions behind it.
    #[must_use]
    pub fn position(&self) -> Position {
        self.replay.process().position()
    }

    /// Whether the program stands where the recording's last record left it.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// The replay, as it stands.
    #[must_use]
    pub fn replay(&self) -> &Replay {
        &self.replay
    }

    /// The replay, for those who look at the program or program its processor. Who runs it does so by
    /// [`Timeline::step_until`].
    pub fn replay_mut(&mut self) -> &mut Replay {
        &mut self.replay
    }

    /// From now on the frames at two checkpoints say of each page by itself whether something was stored to it in between.
    pub(crate) fn tell_stores_apart(&mut self) {
        self.replay.process_mut().memory_mut().copy_alone(true);
    }

    /// The replay, where it stands; the checkpoints are given up.
    #[must_use]
    pub fn into_replay(mut self) -> Replay {
        self.stops.clear(&mut self.replay);
        self.replay
    }

    /// Where there are checkpoints, in order.
    pub fn checkpoints(&self) -> impl Iterator<Item = Position> {
        self.stops.iter().map(Stop::position)
    }

    /// How long it takes to run from the start to here.
    pub(crate) fn spent(&self) -> Duration {
        self.spent
    }

    /// The same to the last checkpoint before this position, or at it, in memory or on disk.
    pub(crate) fn spent_to(&self, position: Position) -> Duration {
        let in_memory = self.stops.nearest(|stop| stop.position() <= position);
        let mut on_disk = self.replay.shelf().newest_first().map(|(_, about)| about);
        let on_disk = on_disk.find(|about| about.position <= position);
        let on_disk = on_disk.map(|about| (about.position, Duration::from_nanos(about.spent)));
        in_memory.into_iter().chain(on_disk).max_by_key(|(at, _)| *at).unwrap_or_default().1
    }

    /// The checkpoint in memory at this position.
    pub(crate) fn kept_at(&self, at: Position) -> Option<&Checkpoint> {
        self.stops.at(at)
    }

    /// The recording's system calls of these numbers: each one's event, and the task that made it. The journal is read once, and
    /// nothing is run.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub(crate) fn calls(&self, numbers: &[i64]) -> Result<Vec<(u64, i32)>, ReplayError> {
        match self.stops.first() {
            Some(first) => self.replay.calls_behind(first, numbers),
            None => Ok(Vec::new()),
        }
    }

    /// Goes to a position, or to the first point behind it where the program can stand: an event that was served together with
    /// the one before it is no such point, nor is an offset behind a segment's end. Gives where it is then; that is before
    /// the goal if the recording ends there.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn seek(&mut self, position: Position) -> Result<Position, ReplayError> {
        self.go(Goal::Position(position))?;
        Ok(self.position())
    }

    /// Goes to where so many instructions have retired since the program's start.
    ///
    /// # Errors
    /// At the first difference, and on a processor that does not count.
    pub fn seek_retired(&mut self, count: u64) -> Result<(), ReplayError> {
        self.go(Goal::Retired(count))
    }

    /// Goes to the end of the recording. What lies before the newest checkpoint is not run, and not compared, unless the journal is
    /// damaged there.
    ///
    /// # Errors
    /// At the first difference.
    pub fn seek_end(&mut self) -> Result<(), ReplayError> {
        self.go(Goal::End)
    }

    /// Goes to the end of the recording, and compares all that was not compared on the way to here.
    ///
    /// # Errors
    /// At the first difference.
    pub fn run_to_end(&mut self) -> Result<Replayed, ReplayError> {
        self.go(Goal::WholeEnd)?;
        self.replay.report()
    }

    /// Runs to the next exit or bound, and keeps no checkpoint.
    ///
    /// # Errors
    /// At the first difference, and when the processor does not know the bound.
    pub fn step_until(&mut self, until: Until) -> Result<Progress, ReplayError> {
        let events = self.replay.events();
        let progress = self.replay.step_until(until)?;
        self.ended = progress == Progress::Done;
        self.exact = self.counts() || self.replay.events() > events;
        Ok(progress)
    }

    /// Runs to the next exit, however that is fastest, and keeps no checkpoint.
    pub(crate) fn exit(&mut self) -> Result<Progress, ReplayError> {
        let before = Instant::now();
        let progress = self.step_until(Until::Exit)?;
        self.spent += before.elapsed();
        Ok(progress)
    }

    /// Runs to the next exit or bound on the processor that counts, and keeps a checkpoint where one is due.
    pub(crate) fn walk(&mut self, until: Until) -> Result<Progress, ReplayError> {
        self.replay.process_mut().count_exactly(true)?;
        let before = Instant::now();
        let progress = self.step_until(until)?;
        self.spent += before.elapsed();
        if self.exact {
            self.stops.keep_if_due(&mut self.replay, self.spent, self.ended)?;
        }
        Ok(progress)
    }

    /// Keeps a checkpoint here, however near the one before is.
    pub(crate) fn keep_here(&mut self) -> Result<(), ReplayError> {
        if self.exact { self.stops.keep(&mut self.replay, self.spent, self.ended) } else { Ok(()) }
    }

    /// Restores the newest checkpoint up to this position: the one that was kept there, if it is still there. What a position does not
    /// tell apart (a program before and behind its last task's end) is as it was.
    pub(crate) fn come_back(&mut self, kept: Position) -> Result<(), ReplayError> {
        let restored = self.stops.restore(&mut self.replay, None, |stop| stop.position() <= kept)?;
        if let Some((spent, ended)) = restored {
            (self.spent, self.exact, self.ended) = (spent, true, ended);
        }
        Ok(())
    }

    /// Whether the processor that runs now counts.
    fn counts(&self) -> bool {
        self.replay.process().cpu().counters().is_some()
    }

    fn go(&mut self, goal: Goal) -> Result<(), ReplayError> {
        self.approach(goal)?;
        self.replay.process_mut().count_exactly(false)?;
        while !self.ended && !self.is_at(goal)? {
            let (until, before) = (self.bound(goal)?, Instant::now());
            self.step_until(until)?;
            self.spent += before.elapsed();
            // Where it is not exact, a stop would be taken for another place.
            if self.exact {
                self.stops.keep_if_due(&mut self.replay, self.spent, self.ended)?;
            }
        }
        Ok(())
    }

    /// Restores the nearest checkpoint before the goal, unless the program stands nearer.
    fn approach(&mut self, goal: Goal) -> Result<(), ReplayError> {
        let counters = self.replay.process().cpu().counters();
        let is_surely_before = match goal {
            Goal::Position(goal) => self.exact || self.position().event < goal.event,
            Goal::Retired(_) => self.replay.process().counts_late() == self.replay.window_counts_late(),
            Goal::End | Goal::WholeEnd => true,
        };
        let order = goal.compare(self.position(), counters);
        let is_before = is_surely_before && order.is_some_and(|it| it.is_lt() || it.is_eq() && !self.ended);
        let from = is_before.then(|| self.position());
        self.fetch(goal, from)?;
        let late = self.replay.window_counts_late();
        let restored = self.stops.restore(&mut self.replay, from, |stop| goal.may_be_behind(stop, late))?;
        if let Some((spent, ended)) = restored {
            (self.spent, self.exact, self.ended) = (spent, true, ended);
        }
        Ok(())
    }

    /// Brings the nearest checkpoint before the goal from disk, if it is much nearer than those in memory, and than where the program
    /// stands. One that is damaged is told, and the one before it taken.
    fn fetch(&mut self, goal: Goal, from: Option<Position>) -> Result<(), ReplayError> {
        if goal == Goal::WholeEnd {
            return Ok(());
        }
        let late = self.replay.window_counts_late();
        let is_before =
            |about: &About| goal.compare(about.position, about.counters).is_some_and(|it| it.is_le());
        let stop = self.stops.nearest(|stop| goal.may_be_behind(stop, late));
        let near = stop.into_iter().chain(from.map(|from| (from, self.spent))).max_by_key(|(at, _)| *at);
        let (near, spent) = near.unwrap_or_default();
        let least = u64::try_from((spent + self.stops.pace().nearest).as_nanos()).unwrap_or(u64::MAX);
        let found: Vec<_> = self
            .replay
            .shelf()
            .newest_first()
            .filter(|(_, about)| is_before(about))
            .take_while(|(_, about)| about.position > near && about.spent > least)
            .filter(|(at, _)| goal != Goal::End || self.replay.shelf().is_reached(*at))
            .collect();
        for (at, about) in found {
            let there = self.stops.loaded_around(about.position);
            match self.replay.fetch(at, &there) {
                Ok(kept) => {
                    self.stops.add(kept, Duration::from_nanos(about.spent));
                    return Ok(());
                }
                Err(CheckpointError::Process(error)) => return Err(error.into()),
                Err(error) => tracing::warn!("{error}; an earlier one is used"),
            }
        }
        Ok(())
    }

    /// Whether the program stands at the goal, or further.
    fn is_at(&self, goal: Goal) -> Result<bool, ReplayError> {
        let process = self.replay.process();
        match goal.compare(process.position(), process.cpu().counters()) {
            Some(order) => Ok(order.is_ge()),
            None => {
                Err(ProcessError::from(crate::engine::EngineError::CannotCount(process.cpu().kind().name()))
                    .into())
            }
        }
    }

    /// How far to run at most, on the way to the goal.
    fn bound(&mut self, goal: Goal) -> Result<Until, ReplayError> {
        let here = self.position();
        if let Goal::Position(goal) = goal
            && goal.event == here.event
        {
            self.replay.process_mut().count_exactly(true)?;
        }
        let process = self.replay.process();
        let Some(counters) = process.cpu().counters().filter(|_| process.cpu().kind() == EngineKind::Soft)
        else {
            return Ok(Until::Exit);
        };
        // The other processor goes on with the next step, and knows no bound.
        let may_change = process.takes_turns() || process.engine_kind() == EngineKind::Kvm;
        if may_change && !process.is_counting_exactly() {
            return Ok(Until::Exit);
        }
        let now = counters.instructions;
        let left = match goal {
            Goal::Position(goal) if goal.event == here.event => goal.retired.saturating_sub(here.retired),
            Goal::Retired(goal) => goal.saturating_sub(now),
            _ => u64::MAX,
        };
        Ok(Until::Retired(now.saturating_add(left.min(STRETCH))))
    }
}
