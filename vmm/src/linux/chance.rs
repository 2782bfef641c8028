//! Random schedules, so that races show: `record --chaos` and `--seed`.
//!
//! The numbers are a function of the seed, which is in the journal's header, so a replay draws the same.

use crate::plain::{In, Out, Plain};

/// How long slices are, in nanoseconds of shown time: most are ordinary, some are very short.
const SHORTEST: u64 = 20_000;
const LONGEST: u64 = 5_000_000;

/// A stream of random numbers (splitmix64; Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Plain for Chance {
    fn put(&self, out: &mut Out) {
        self.0.put(out);
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        u64::take(from).map(Chance)
    }
}

impl Chance {
    /// The stream of a seed.
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `count`; zero if that is zero.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        let count = count.max(1) as u64;
        usize::try_from(self.next() % count).expect("below a usize")
    }

    /// The length of a slice, in nanoseconds: its logarithm is uniform between the shortest and the longest.
    pub(crate) fn slice(&mut self) -> u64 {
        let doublings = (LONGEST / SHORTEST).ilog2();
        let base = SHORTEST << (self.next() % u64::from(doublings + 1));
        base + self.next() % base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_slices_and_they_are_in_bounds() {
        let (mut a, mut b) = (Chance::new(7), Chance::new(7));
        for _ in 0..1000 {
            let slice = a.slice();
            assert_eq!(slice, b.slice());
            assert!((SHORTEST..=2 * LONGEST).contains(&slice));
            assert!(a.below(3) < 3 && b.below(3) < 3);
        }
    }
}
