//! Spans across page ends: how often an instruction meets one, and how close together its accesses are looked up for that.
//!
//! A look-up that fails since its span has the end of a page in it ([`Why::Spread`](crate::context::Why)) costs some hundred
//! instructions; looking up each access alone costs some ten for each, every time. A structure that lies across a page end fails in
//! each turn of a loop, at the same page: its accesses are soon looked up alone. Of many small structures a few lie across one, each
//! on its own page: failing at those costs less, and the accesses stay together.
//!
//! Example: `mov rax, [rbx]; add rax, [rbx + 40]` with rbx 16 bytes below a page end fails 64 times; from then on the two are looked
//! up by the 64 bytes they are in ([`Reach::Near`]), and 64 failures later each alone.

use rustc_hash::FxHashMap;

use crate::spans::Reach;

/// The end of the same page, met again so often within so many instructions, is met too often,
const SAME: (u32, u64) = (64, 1 << 24);
/// and so are those of different pages.
const OTHERS: (u32, u64) = (1 << 10, 1 << 20);

/// How often something happened since so many instructions had retired.
#[derive(Clone, Copy)]
struct Times {
    times: u32,
    since: u64,
}

impl Times {
    const fn none(retired: u64) -> Times {
        Times { times: 0, since: retired }
    }

    /// It happens once more; whether that is often enough within so many instructions.
    fn is_often(&mut self, (often, within): (u32, u64), retired: u64) -> bool {
        if !(self.since..self.since.saturating_add(within)).contains(&retired) {
            *self = Times::none(retired);
        }
        self.times += 1;
        self.times >= often
    }
}

/// What is known of an instruction.
struct Known {
    reach: Reach,
    /// The page whose end was met last.
    page: u64,
    /// How often the end of the page before was met again, and how often that of another one.
    same: Times,
    others: Times,
}

/// By the address of the instruction.
#[derive(Default)]
pub(crate) struct Spread(FxHashMap<u64, Known>);

impl Spread {
    /// Notes that the instruction at `rip` met the end of `page`, when so many instructions had retired; whether what it reaches for is
    /// looked up closer from now on.
    pub(crate) fn note(&mut self, rip: u64, page: u64, retired: u64) -> bool {
        let none = Times::none(retired);
        let known = self.0.entry(rip).or_insert(Known { reach: Reach::All, page, same: none, others: none });
        let is_often = if std::mem::replace(&mut known.page, page) == page {
            known.same.is_often(SAME, retired)
        } else {
            known.others.is_often(OTHERS, retired)
        };
        if !is_often || known.reach == Reach::Alone {
            return false;
        }
        (known.same, known.others) = (none, none);
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
        assert_eq!(reach(std::iter::repeat_n(7, 5000), 1_000_000), Reach::All, "that costs little");
    }

    #[test]
    fn what_meets_many_ends_is_looked_up_together_unless_it_does_little_else() {
        assert_eq!(reach(0..5000, 2000), Reach::All);
        assert_eq!(reach(0..5000, 100), Reach::Alone);
    }
}
