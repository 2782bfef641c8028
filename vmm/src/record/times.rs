//! Where the time of a recording goes, if that is measured.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long parts of a recording took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Up to the program's first step: its files are stored, its memory is made.
    pub start: Duration,
    /// From there to the program's end.
    pub run: Duration,
    /// What of that were the program's steps; the rest are digests and checkpoints between them.
    pub steps: Duration,
    /// What of the steps the journal took.
    pub journal: Duration,
}

/// Measures them, or nothing.
pub(super) struct Stopwatch(Option<Cell<Times>>);

impl Stopwatch {
    pub(super) fn new(measures: bool) -> Stopwatch {
        Stopwatch(measures.then(Cell::default))
    }

    /// Does something, and adds how long it took to a part.
    pub(super) fn of<T>(&self, part: impl FnOnce(&mut Times) -> &mut Duration, act: impl FnOnce() -> T) -> T {
        if self.0.is_none() {
            return act();
        }
        let start = Instant::now();
        let done = act();
        self.add(part, start.elapsed());
        done
    }

    pub(super) fn add(&self, part: impl FnOnce(&mut Times) -> &mut Duration, took: Duration) {
        if let Some(times) = &self.0 {
            let mut all = times.get();
            *part(&mut all) += took;
            times.set(all);
        }
    }

    pub(super) fn times(&self) -> Option<Times> {
        self.0.as_ref().map(Cell::get)
    }
}
