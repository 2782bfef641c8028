//! How often what an instruction reaches for together had the end of a page in it ([`Why::Spread`](crate::context::Why)), and how close
//! together it is looked up for that.
//!
//! Each time costs some hundred instructions, and to look all up apart costs some ten for each access, each time round. A structure
//! that lies across the end of a page is found there in each turn of a loop: that is seen soon. Of many small structures some always
//! do, each on pages of its own: that costs less than to look up all of them apart.

use rustc_hash::FxHashMap;

use crate::spans::Reach;

/// That the same page's end is met again says so much more than that another one is.
const SAME: u32 = 16;
/// So much, within so many instructions, is too often.
const TOO_MUCH: u32 = 64 * SAME;
const WITHIN: u64 = 1 << 20;

/// What is known of an instruction.
struct Known {
    reach: Reach,
    /// What was noted since so many instructions had retired.
    sum: u32,
    since: u64,
    /// The page whose end was met last.
    page: u64,
}

/// By the address of the instruction.
#[derive(Default)]
pub(crate) struct Spread(FxHashMap<u64, Known>);

impl Spread {
    /// Notes that the instruction at `rip` met the end of `page`, when so many instructions had retired; whether what it reaches for is
    /// looked up closer from now on.
    pub(crate) fn note(&mut self, rip: u64, page: u64, retired: u64) -> bool {
        let known = self.0.entry(rip).or_insert(Known { reach: Reach::All, sum: 0, since: retired, page });
        if !(known.since..known.since.saturating_add(WITHIN)).contains(&retired) {
            (known.sum, known.since) = (0, retired);
        }
        known.sum += if known.page == page { SAME } else { 1 };
        known.page = page;
        if known.sum < TOO_MUCH || known.reach == Reach::Alone {
            return false;
        }
        known.sum = 0;
        known.reach = known.reach.closer();
        true
    }

    /// How close together what the instruction at `rip` reaches for is looked up.
    pub(crate) fn reach(&self, rip: u64) -> Reach {
        self.0.get(&rip).map_or(Reach::All, |known| known.reach)
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes the ends of these pages, one every so many instructions; how close together all is looked up in the end.
    fn reach(pages: impl Iterator<Item = u64>, every: u64) -> Reach {
        let mut spread = Spread::default();
        for (n, page) in (1..).zip(pages) {
            spread.note(0x1000, page, n * every);
        }
        spread.reach(0x1000)
    }

    #[test]
    fn what_meets_the_same_end_again_and_again_is_looked_up_apart() {
        assert_eq!(reach(std::iter::repeat_n(7, 63), 1000), Reach::All);
        assert_eq!(reach(std::iter::repeat_n(7, 64), 1000), Reach::Near);
        assert_eq!(reach(std::iter::repeat_n(7, 128), 1000), Reach::Alone);
        assert_eq!(reach(std::iter::repeat_n(7, 5000), 100_000), Reach::All, "that costs little");
    }

    #[test]
    fn what_meets_many_ends_is_looked_up_together_unless_it_does_little_else() {
        assert_eq!(reach(0..5000, 2000), Reach::All);
        assert_eq!(reach(0..5000, 100), Reach::Alone);
    }
}
