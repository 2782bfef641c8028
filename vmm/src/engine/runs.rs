//! Which instructions ran, and in which order they ran last: what is asked of a processor to find who set a register.
//!
//! Between two branches that are taken, instructions run one after the other. Such a [`Run`] is kept once, however often it runs, with
//! a number that says when it ran last.

use super::Virt;
use rustc_hash::FxHashMap;
use x86::interpreter::Observer;
use x86::op::BranchKind;

/// Instructions that run one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The address of the first.
    pub start: Virt,
    /// That of the last, which is a branch that is taken; or of the one before which the processor came back.
    pub end: Virt,
    /// Whether the one at `end` has run.
    pub through: bool,
}

/// So many runs are at hand: those of a loop.
const AT_HAND: usize = 256;

/// The runs that were noted.
#[derive(Debug)]
pub(super) struct Runs {
    /// Where the one begins that is not over.
    start: Virt,
    /// How many there were.
    count: u64,
    /// Those that ran last, by a number that is made of their addresses: what runs again is there.
    at_hand: Box<[Option<(Run, u64)>; AT_HAND]>,
    /// The number of each when it ran last, of those that others have driven away from there.
    last: FxHashMap<Run, u64>,
}

impl Default for Runs {
    fn default() -> Runs {
        Runs { start: 0, count: 0, at_hand: Box::new([None; AT_HAND]), last: FxHashMap::default() }
    }
}

impl Runs {
    /// The processor begins to run at `rip`.
    pub(super) fn begin(&mut self, rip: Virt) {
        self.start = rip;
    }

    /// It comes back before the instruction at `rip`.
    pub(super) fn come_back(&mut self, rip: Virt) {
        self.note(rip, false);
    }

    /// All that there are, with their numbers.
    pub(super) fn take(&mut self) -> Vec<(Run, u64)> {
        for (run, number) in self.at_hand.iter_mut().filter_map(Option::take) {
            self.last.insert(run, number);
        }
        self.last.drain().collect()
    }

    fn note(&mut self, end: Virt, through: bool) {
        self.count += 1;
        let run = Run { start: self.start, end, through };
        let place = usize::try_from((run.start ^ run.end << 3) % AT_HAND as u64).unwrap_or(0);
        let there = &mut self.at_hand[place];
        match there {
            Some((known, number)) if *known == run => *number = self.count,
            _ => {
                if let Some((driven, number)) = there.replace((run, self.count)) {
                    self.last.insert(driven, number);
                }
            }
        }
    }
}

impl Observer for Runs {
    #[inline]
    fn branch(&mut self, from: u64, to: u64, _: BranchKind) {
        self.note(from, true);
        self.start = to;
    }
}

/// Both listen.
pub(super) struct Both<'a, A, B>(pub(super) &'a mut A, pub(super) &'a mut B);

impl<A: Observer, B: Observer> Observer for Both<'_, A, B> {
    const LISTENS: bool = A::LISTENS || B::LISTENS;

    fn branch(&mut self, from: u64, to: u64, kind: BranchKind) {
        self.0.branch(from, to, kind);
        self.1.branch(from, to, kind);
    }
}
