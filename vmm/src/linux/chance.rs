//! Random schedules, so that races show: `record --chaos` and `--seed`.
//!
//! The numbers are a function of the seed, which is in the journal's header, so a replay draws the same.

use crate::plain::plain;

/// How long slices are, in nanoseconds of shown time: from some ten instructions, so that one ends between a load and the
/// store that belongs to it even in a program that is soon over, to an ordinary share.
const SHORTEST: u64 = 20;
const SHORT: u64 = SHORTEST << 9;
const LONGEST: u64 = 5_000_000;
/// One draw in so many is for slices above [`SHORT`]; they are most of the time all the same.
const LONG_IN: u64 = 16;
/// So many slices at most are of one length.
const ALIKE: u64 = 64;

/// A stream of random numbers (splitmix64; Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014), and
/// how the slices are at present: a race shows when several tasks in turn are interrupted often, so that slices of
/// about one length follow one another, where independent ones would leave most tasks to a long one.
#[derive(Clone, Debug)]
pub(crate) struct Chance {
    state: u64,
    scale: u64,
    alike: u64,
}
plain!(struct Chance { state, scale, alike });

impl Chance {
    /// The stream of a seed.
    pub(crate) fn new(seed: u64) -> Chance {
        Chance { state: seed, scale: LONGEST, alike: 0 }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `count`; zero if that is zero.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        let count = count.max(1) as u64;
        usize::try_from(self.next() % count).expect("below a usize")
    }

    /// The length of a slice, in nanoseconds: within a factor of two of the present scale, whose logarithm is uniform in its
    /// range.
    pub(crate) fn slice(&mut self) -> u64 {
        if self.alike == 0 {
            self.alike = 1 + self.next() % ALIKE;
            let (least, most) =
                if self.next().is_multiple_of(LONG_IN) { (SHORT, LONGEST) } else { (SHORTEST, SHORT) };
            let doublings = (most / least).ilog2();
            self.scale = least << (self.next() % u64::from(doublings + 1));
        }
        self.alike -= 1;
        self.scale + self.next() % self.scale
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
