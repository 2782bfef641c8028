//! The guest's clock: nanoseconds made of instructions.
//!
//! One instruction takes one nanosecond. What takes longer on a machine, or nothing at all happens in, is skipped: a halted
//! processor goes at once to the next timer, a read of a port takes as long as on an ISA bus. So two runs with the same input
//! have the same time at each instruction. Example: 5,000 instructions and a HLT until a timer at 4 ms make it 4 ms.

use crate::saved::saved;

/// The clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    retired: u64,
    skipped: u64,
}

saved!(struct Clock { retired, skipped });

impl Clock {
    /// Nanoseconds since the machine began.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.retired.saturating_add(self.skipped)
    }

    /// Says how many instructions have retired.
    pub fn retire_to(&mut self, retired: u64) {
        self.retired = retired;
    }

    /// Lets time pass in which nothing retires.
    pub fn skip(&mut self, nanoseconds: u64) {
        self.skipped = self.skipped.saturating_add(nanoseconds);
    }

    /// Skips to a time, unless it is past.
    pub fn skip_to(&mut self, time: u64) {
        self.skip(time.saturating_sub(self.now()));
    }

    /// How many instructions will have retired at a time if nothing is skipped before.
    #[must_use]
    pub fn retired_at(&self, time: u64) -> u64 {
        time.saturating_sub(self.skipped)
    }
}

/// Ticks of a counter of `hertz` in so many nanoseconds.
#[expect(clippy::cast_possible_truncation, reason = "64 bits of ticks are 58 years at 10 GHz")]
pub(crate) const fn ticks(nanoseconds: u64, hertz: u64) -> u64 {
    (nanoseconds as u128 * hertz as u128 / 1_000_000_000) as u64
}

/// The first nanosecond at which a counter of `hertz` has made so many ticks.
#[expect(clippy::cast_possible_truncation, reason = "as for ticks")]
pub(crate) const fn nanoseconds(ticks: u64, hertz: u64) -> u64 {
    (ticks as u128 * 1_000_000_000).div_ceil(hertz as u128) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_has_made_its_ticks_at_the_time_it_is_asked_for_and_not_before() {
        const HERTZ: u64 = 1_193_182;
        for n in [1, 2, 3, 1000, 65_536, 1 << 40] {
            let at = nanoseconds(n, HERTZ);
            assert_eq!((ticks(at, HERTZ), ticks(at - 1, HERTZ)), (n, n - 1));
        }
    }

    #[test]
    fn time_is_what_retired_and_what_was_skipped() {
        let mut clock = Clock::default();
        clock.retire_to(5_000);
        clock.skip_to(4_000_000);
        clock.skip_to(10);
        assert_eq!((clock.now(), clock.retired_at(4_000_100)), (4_000_000, 5_100));
    }
}
