//! How often checkpoints are taken, and how much of them is kept.

use std::time::Duration;

/// How often checkpoints are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Two are no nearer than this.
    pub every: Duration,
    /// They take at most one part in so many of the time, on whichever processor; zero: they may take anything.
    pub share: u32,
    /// None is taken when those on disk have more bytes than this; a flight recorder has its own bound.
    pub most: u64,
    /// They never have more bytes than this: what would is not kept.
    pub room: u64,
}

impl Default for Rate {
    /// What is not noticed: every five seconds, a hundredth of the time, and a gigabyte.
    fn default() -> Rate {
        Rate { every: Duration::from_secs(5), share: 100, most: 1 << 30, room: u64::MAX }
    }
}

impl Rate {
    /// This often, but for what would take more than half of the time; zero: whenever one can be taken.
    #[must_use]
    pub fn every(every: Duration) -> Rate {
        let share = if every.is_zero() { 0 } else { 2 };
        Rate { every, share, most: u64::MAX, room: u64::MAX }
    }

    /// The same in so many bytes.
    #[must_use]
    pub fn within(self, room: u64) -> Rate {
        Rate { room, ..self }
    }
}
