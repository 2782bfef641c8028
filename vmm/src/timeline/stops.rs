//! The checkpoints of a timeline: when one is kept, and which go when there are too many.
//!
//! Their distance is run time, not events: a seek takes as long as the way from the checkpoint before. They lie closer the
//! nearer they are to the newest, since that is where one looks; the oldest are some five times as far apart.

use crate::checkpoints::loaded::Loaded;
use crate::engine::Counters;
use crate::host;
use crate::position::Position;
use crate::process::{Checkpoint, CheckpointCost};
use crate::replay::{Kept, Replay, ReplayError};
use std::time::{Duration, Instant};

/// How close checkpoints are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Two are no nearer than this, in run time.
    pub nearest: Duration,
    /// They cost at most one part in so many of the run time; zero: they may cost anything.
    pub share: u32,
}

impl Default for Pace {
    /// Twenty a second, and a twentieth of the run time.
    fn default() -> Pace {
        Pace { nearest: Duration::from_millis(50), share: 20 }
    }
}

/// As many are kept at most.
const MOST: usize = 128;
/// And so many where others may need the host's memory.
const FEW: usize = 8;

/// A checkpoint of a replay.
pub(super) struct Stop {
    kept: Kept,
    /// How long it takes to run from the start to here.
    spent: Duration,
    /// It is at the recording's end.
    ended: bool,
}

impl Stop {
    pub(super) fn position(&self) -> Position {
        self.kept.checkpoint.position()
    }

    pub(super) fn counters(&self) -> Option<Counters> {
        self.kept.checkpoint.counters()
    }

    pub(super) fn counts_late(&self) -> bool {
        self.kept.checkpoint.counts_late()
    }
}

/// All checkpoints, in order.
#[derive(Default)]
pub(super) struct Stops {
    stops: Vec<Stop>,
    pace: Pace,
    /// What the last costs.
    cost: CheckpointCost,
    /// Where the last one was kept, though it may be gone. The program has not got on if it is there still: after a checkpoint
    /// each first store to a page faults, and another checkpoint then would have it fault for ever.
    last: Option<Position>,
}

impl Stops {
    pub(super) fn new(pace: Pace) -> Stops {
        Stops { pace, ..Stops::default() }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stop> {
        self.stops.iter()
    }

    /// Keeps the replay as it stands, `spent` behind the start.
    pub(super) fn keep(
        &mut self,
        replay: &mut Replay,
        spent: Duration,
        ended: bool,
    ) -> Result<(), ReplayError> {
        let before = Instant::now();
        let kept = replay.keep()?;
        self.last = Some(kept.checkpoint.position());
        self.insert(Stop { kept, spent, ended });
        self.cost = CheckpointCost::of_taken(replay.process(), before.elapsed());
        Ok(())
    }

    /// The frames that those from disk have, which are in memory: of the nearest behind a position, and the nearest before.
    pub(super) fn loaded_around(&self, at: Position) -> Vec<&Loaded> {
        let from_disk = || self.stops.iter().filter(|stop| !stop.kept.loaded.is_empty());
        let behind = from_disk().find(|stop| stop.position() >= at);
        let before = from_disk().rfind(|stop| stop.position() < at);
        behind.into_iter().chain(before).map(|stop| &stop.kept.loaded).collect()
    }

    /// Adds a checkpoint from disk, `spent` behind the start.
    pub(super) fn add(&mut self, kept: Kept, spent: Duration) {
        self.insert(Stop { kept, spent, ended: false });
    }

    fn insert(&mut self, stop: Stop) {
        let at = self.stops.partition_point(|other| other.position() <= stop.position());
        self.stops.insert(at, stop);
    }

    /// The one at this position.
    pub(super) fn at(&self, at: Position) -> Option<&Checkpoint> {
        let stop = self.stops.iter().rfind(|stop| stop.position() == at)?;
        Some(&stop.kept.checkpoint)
    }

    /// Where the first one is, which stays.
    pub(super) fn first(&self) -> Option<&Kept> {
        self.stops.first().map(|stop| &stop.kept)
    }

    /// The last checkpoint that `is_before` accepts, and how long it takes to run to there.
    pub(super) fn nearest(&self, is_before: impl Fn(&Stop) -> bool) -> Option<(Position, Duration)> {
        let stop = self.stops.iter().rfind(|stop| is_before(stop))?;
        Some((stop.position(), stop.spent))
    }

    /// Two checkpoints are no nearer than this.
    pub(super) fn pace(&self) -> Pace {
        self.pace
    }

    /// Keeps the replay if the neighbours are far enough, and there is memory for it. Gives memory back if the program may
    /// need it.
    pub(super) fn keep_if_due(
        &mut self,
        replay: &mut Replay,
        spent: Duration,
        ended: bool,
    ) -> Result<(), ReplayError> {
        self.make_room(replay);
        let process = replay.process();
        let position = process.position();
        let behind = self.stops.partition_point(|stop| stop.position() <= position);
        let Some(before) = behind.checked_sub(1).and_then(|n| self.stops.get(n)) else { return Ok(()) };
        // Most of the time this is the answer.
        if spent < before.spent + self.pace.nearest
            || before.position() == position
            || self.last == Some(position)
        {
            return Ok(());
        }
        let distance = self.pace.nearest.max(self.cost.so_far(process).saturating_mul(self.pace.share));
        // How far the next one is is not known where a faster processor has come to it: by its time it would be behind.
        let is_far = spent >= before.spent + distance
            && self
                .stops
                .get(behind)
                .is_none_or(|next| next.spent <= spent || next.spent >= spent + distance);
        if is_far { self.keep_one_more(replay, spent, ended) } else { Ok(()) }
    }

    /// Keeps the replay where it stands exactly, unless there is one already, or no memory for it; gives others back where there are too
    /// many.
    pub(super) fn keep_one_more(
        &mut self,
        replay: &mut Replay,
        spent: Duration,
        ended: bool,
    ) -> Result<(), ReplayError> {
        let (frames, position) = (replay.process().memory().frames(), replay.process().position());
        if frames.available() < frames.used() || self.at(position).is_some() {
            return Ok(());
        }
        if self.stops.len() >= FEW && host::is_short_of_memory() {
            self.thin(replay);
        }
        self.keep(replay, spent, ended)?;
        if self.stops.len() > MOST {
            self.thin(replay);
        }
        Ok(())
    }

    /// Restores the last checkpoint that `is_before` accepts; gives how long it takes to run to
    /// there, and whether the recording ends there. Does nothing if the replay stands at `from`, and that is no earlier.
    pub(super) fn restore(
        &mut self,
        replay: &mut Replay,
        from: Option<Position>,
        is_before: impl Fn(&Stop) -> bool,
    ) -> Result<Option<(Duration, bool)>, ReplayError> {
        let nearest = self.stops.iter().rposition(is_before);
        let Some(stop) = self.stops.get_mut(nearest.unwrap_or(0)) else { return Ok(None) };
        if from.is_some_and(|from| from >= stop.position()) {
            return Ok(None);
        }
        replay.go_back(&mut stop.kept)?;
        Ok(Some((stop.spent, stop.ended)))
    }

    /// Gives all back.
    pub(super) fn clear(&mut self, replay: &mut Replay) {
        for stop in self.stops.drain(..) {
            replay.release(stop.kept);
        }
    }

    /// Gives every second checkpoint back while less than a quarter of the memory is free. The first one stays: it
    /// holds what the program was loaded with.
    fn make_room(&mut self, replay: &mut Replay) {
        loop {
            let frames = replay.process().memory().frames();
            if self.stops.len() < 2 || frames.available() >= frames.used() / 3 {
                return;
            }
            for n in (1..self.stops.len()).rev().step_by(2) {
                self.remove(replay, n);
            }
        }
    }

    /// Gives the checkpoint back that is missed least: whose neighbours would be least far apart, by how near to the end
    /// they are.
    fn thin(&mut self, replay: &mut Replay) {
        // Times of another run are among them, which need not be in order: none is earlier than one before it.
        let mut latest = Duration::ZERO;
        let times = self.stops.iter().map(|stop| {
            latest = latest.max(stop.spent);
            latest
        });
        let times: Vec<Duration> = times.collect();
        let Some(last) = times.last().copied() else { return };
        let gap = |n: usize| (times[n + 1] - times[n - 1]).as_secs_f64();
        let age = |n: usize| (last - times[n] + last / 4).as_secs_f64();
        let missed = |n: &usize| gap(*n) / age(*n);
        let least = (1..self.stops.len().saturating_sub(1)).min_by(|a, b| missed(a).total_cmp(&missed(b)));
        if let Some(n) = least {
            self.remove(replay, n);
        }
    }

    fn remove(&mut self, replay: &mut Replay, n: usize) {
        let stop = self.stops.remove(n);
        replay.release(stop.kept);
    }
}
