//! When the newest events of a program that is being recorded were served: how far before its crash a second run to it stands.
//!
//! Example: a program reads, computes for 3 s and crashes. A second run has served that read, and has computed for 2 s since: about
//! a second is left.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// So many are known. A program that does little but system calls serves as many in some milliseconds.
const MOST: usize = 1 << 12;

/// The times of the newest events.
#[derive(Default)]
pub(super) struct ServedAt {
    /// How many events had been served, and since when, the oldest first.
    times: VecDeque<(u64, Instant)>,
    /// When the program crashed.
    crash: Option<Instant>,
}

impl ServedAt {
    /// So many events have been served by now.
    pub(super) fn note(&mut self, events: u64, now: Instant) {
        if self.times.back().is_some_and(|(newest, _)| *newest >= events) {
            return;
        }
        if self.times.len() == MOST {
            self.times.pop_front();
        }
        self.times.push_back((events, now));
    }

    /// The program has crashed.
    pub(super) fn note_crash(&mut self, now: Instant) {
        self.crash = Some(now);
    }

    /// How long before the crash this was.
    pub(super) fn before_crash(&self, at: Instant) -> Duration {
        self.crash.unwrap_or_else(Instant::now).saturating_duration_since(at)
    }

    /// How long before the crash the last of so many events was served; `None` where that is too long ago to be known.
    pub(super) fn left(&self, events: u64) -> Option<Duration> {
        // Several may have been served at once: the last of them was told.
        let behind = self.times.partition_point(|(served, _)| *served <= events);
        let (_, at) = self.times.get(behind.checked_sub(1)?)?;
        Some(self.before_crash(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_counted_from_the_event_before() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut served = ServedAt::default();
        served.note(10, start);
        served.note(10, after(1));
        served.note(13, after(5));
        served.note_crash(after(9));
        let left = |events| served.left(events).map(|left| left.as_millis());
        assert_eq!(left(9), None);
        assert_eq!(left(10), Some(9));
        assert_eq!(left(12), Some(9), "it was served together with the next");
        assert_eq!((left(13), left(20)), (Some(4), Some(4)));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let now = Instant::now();
        let mut served = ServedAt::default();
        (1..=MOST as u64 + 2).for_each(|events| served.note(events, now));
        served.note_crash(now);
        assert_eq!((served.left(2), served.left(3)), (None, Some(Duration::ZERO)));
    }
}
