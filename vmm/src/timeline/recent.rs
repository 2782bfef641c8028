//! The near past of a program that is being recorded: its newest checkpoints, and what entered since the older of them.
//!
//! From there a crash is run again, in the same memory, without running the whole program again ([`super::retrace`]). Two are
//! kept, so that there is one which is not too near when the crash comes. They are invisible to the program: nothing is
//! journaled for one, also where a processor that computes is kicked for it.

use super::records::Records;
use super::served_at::ServedAt;
use crate::gate::{Input, Time};
use crate::journal::Record;
use crate::process::{Checkpoint, CheckpointCost, Process, ProcessError};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Checkpoints are at least so far apart.
const NEAREST: Duration = Duration::from_millis(100);
/// The same while tasks are preempted: such a stretch runs again on the software CPU from its beginning.
const NEAREST_PREEMPTED: Duration = Duration::from_millis(40);
/// They cost at most one part in so many of the run time; where they would be farther apart than [`FARTHEST`] then, since what runs
/// again behind a crash is the way from the older of them, one part in fewer.
const SHARE: u32 = 64;
const FARTHEST: Duration = Duration::from_secs(20);
const DEAR_SHARE: u32 = 10;
/// The first costs at most one part in so many of the time before it: a crash before that is run again from the start.
const FIRST_SHARE: u32 = 4;
/// How many there are.
const KEPT: usize = 2;
/// Records of more bytes than these are not kept: the program reads much, and has no near past until the next checkpoint.
const MOST_BYTES: usize = 256 << 20;

/// A checkpoint, and where it is among the records.
pub(super) struct Window {
    pub(super) checkpoint: Checkpoint,
    /// How many records had been put, and how many events had begun.
    pub(super) record: usize,
    pub(super) events: u64,
    /// When it was taken.
    pub(super) at: Instant,
}

/// The near past. Whoever drops it instead of using it up leaves frames of the memory in use.
pub struct Recent {
    pub(super) windows: VecDeque<Window>,
    /// The records behind the first window, a piece for each.
    kept: Records,
    /// A preemption is among those behind the last window.
    preempted: bool,
    /// When the program began.
    began: Instant,
    /// When to look whether there is to be a checkpoint; never, if none are wanted.
    due: Option<Instant>,
    /// The program was told of the first time.
    told: bool,
    /// What the last checkpoint costs.
    cost: CheckpointCost,
    /// When the newest events were served, if there are to be checkpoints.
    served: ServedAt,
}

impl Recent {
    /// Nothing yet, before the program runs: if checkpoints are wanted, the first comes a while later, as soon as what it may cost
    /// is little beside the time until then. Crashes before that are run again from the start.
    #[must_use]
    pub fn new(wanted: bool) -> Recent {
        let began = Instant::now();
        Recent {
            began,
            windows: VecDeque::new(),
            kept: Records::default(),
            preempted: false,
            due: wanted.then(|| began + NEAREST),
            told: false,
            cost: CheckpointCost::default(),
            served: ServedAt::default(),
        }
    }

    /// Keeps a record that was journaled.
    pub(crate) fn put(&mut self, record: &Record) {
        if self.windows.is_empty() {
            return;
        }
        self.preempted |= matches!(record, Record::Begin { event: crate::gate::Event::Preempt(_), .. });
        self.kept.put(record);
    }

    /// The program has crashed.
    pub(crate) fn note_crash(&mut self, now: Instant) {
        self.served.note_crash(now);
    }

    /// How long the program ran until its crash.
    pub(crate) fn ran(&self) -> Duration {
        self.served.before_crash(self.began)
    }

    /// Keeps an input that was journaled.
    pub(crate) fn put_input(&mut self, input: &Input) {
        if !self.windows.is_empty() {
            self.kept.put_input(input);
        }
    }

    /// Between two steps of the program, at this time: keeps a checkpoint if one is due, when `events` have begun. Gives the
    /// memory of all back when the program may need it.
    ///
    /// # Errors
    /// When the processor does not give its state.
    pub(crate) fn keep_if_due(
        &mut self,
        process: &mut Process,
        events: u64,
        now: Instant,
    ) -> Result<(), ProcessError> {
        let Some(due) = self.due else { return Ok(()) };
        self.served.note(events, now);
        let frames = process.memory().frames();
        let is_scarce = frames.available() < frames.used();
        if self.kept.bytes() > MOST_BYTES || is_scarce && !self.windows.is_empty() {
            self.clear(process);
        }
        // Where there are processes, one may die early, and the others cannot be run again from the start.
        let first_fork = self.windows.is_empty() && !is_scarce && process.has_other_processes();
        if now < due && !first_fork {
            if !std::mem::replace(&mut self.told, true) {
                process.come_back_at(Some(clock_after(due - now)));
            }
            return Ok(());
        }
        if is_scarce || !first_fork && self.is_too_soon(process, now) {
            self.set_due(process, NEAREST);
            return Ok(());
        }
        let before = Instant::now();
        let checkpoint = match process.checkpoint() {
            Ok(checkpoint) => checkpoint,
            Err(ProcessError::Memory(_)) => {
                self.set_due(process, NEAREST);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let record = self.kept.next();
        self.kept.begin_piece();
        self.windows.push_back(Window { checkpoint, record, events, at: before });
        while self.windows.len() > KEPT {
            self.forget_first(process);
        }
        self.cost = CheckpointCost::of_taken(process, before.elapsed());
        let nearest = if self.preempted { NEAREST_PREEMPTED } else { NEAREST };
        self.preempted = false;
        self.set_due(process, nearest);
        Ok(())
    }

    /// Whether a checkpoint now would cost too much: the first, or another one, as the last one has.
    fn is_too_soon(&self, process: &Process, now: Instant) -> bool {
        let (last, cost, share) = match self.windows.back() {
            Some(last) => (last.at, self.cost.so_far(process), SHARE),
            None => (self.began, CheckpointCost::foreseen(process), FIRST_SHARE),
        };
        let apart = cost.saturating_mul(share).min(FARTHEST.max(cost.saturating_mul(DEAR_SHARE)));
        now < last + apart
    }

    fn set_due(&mut self, process: &mut Process, after: Duration) {
        self.due = Some(Instant::now() + after);
        process.come_back_at(Some(clock_after(after)));
    }

    fn forget_first(&mut self, process: &mut Process) {
        let Some(gone) = self.windows.pop_front() else { return };
        process.release(gone.checkpoint);
        self.kept.forget_first();
    }

    /// Forgets all, and gives the memory back.
    pub(crate) fn clear(&mut self, process: &mut Process) {
        while !self.windows.is_empty() {
            self.forget_first(process);
        }
    }

    /// When the newest events were served.
    pub(super) fn take_served(&mut self) -> ServedAt {
        std::mem::take(&mut self.served)
    }

    /// The windows, the newest first, and the records behind the first of them, whose number is given; then there are none.
    pub(super) fn take(&mut self) -> (Vec<Window>, Vec<Record>, usize) {
        let windows = self.windows.drain(..).rev().collect();
        let (records, first) = self.kept.take();
        self.preempted = false;
        self.due = self.due.map(|_| Instant::now());
        (windows, records, first)
    }
}

/// The host's monotonic clock so long from now, in nanoseconds.
pub(super) fn clock_after(after: Duration) -> u64 {
    Time::now().monotonic.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX))
}
