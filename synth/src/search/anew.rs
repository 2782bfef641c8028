//! Addresses that were chosen, and are chosen anew.
//!
//! An address is chosen when its access has waited for long, and stays chosen while the search goes on. What older steps tell
//! can be at odds with it hundreds of instructions later: then it is not the step that is wrong. So where a step is refuted, or an
//! access finds no address, the path is built again without what was chosen, and all of it is chosen once more, together. That
//! costs as much as the path is long, and most refuted steps are wrong: it may take a share of the fuel, and no more.

use super::Search;
use crate::fuel::UNITS_A_SECOND;
use crate::past::addresses::Patience;
use crate::past::deferred::Early;
use crate::past::hypothesis::Hypothesis;
use std::ops::Range;

/// One part in so many of all fuel may go into it (decision 77).
const SHARE: u64 = 16;

/// As if so much had been burnt before the search began: early, what was chosen is most of what can be wrong.
const FIRST: u64 = 16 * UNITS_A_SECOND;

impl<'p> Search<'p> {
    /// Whether addresses were chosen, and there is fuel for giving them up.
    pub(super) fn may_choose_anew(&self) -> bool {
        let burnt = self.hypothesis.terms().fuel().burnt();
        self.spent_anew * SHARE <= burnt + FIRST && self.hypothesis.has_choices()
    }

    /// Has the path known from the start one of the addresses with which its stuck access would be known too late, and chooses
    /// addresses for these steps. False: none suit; then nothing changes.
    pub(super) fn place_late(&mut self, steps: &Range<usize>) -> bool {
        self.hypothesis.take_late().into_iter().any(|early| self.place_late_at(early, steps))
    }

    fn place_late_at(&mut self, early: Early, steps: &Range<usize>) -> bool {
        let burnt = self.hypothesis.terms().fuel().burnt();
        if self.spent_anew * SHARE > burnt + FIRST {
            return false;
        }
        let mut known = self.hypothesis.early_and_chosen();
        known.push(early);
        let found = self.present_with(known).is_some_and(|hypothesis| self.choose_in(hypothesis, steps));
        self.spent_anew += self.hypothesis.terms().fuel().burnt() - burnt;
        found
    }

    /// Chooses addresses for these steps in another hypothesis of the same path. False: none suit; then nothing changes.
    fn choose_in(&mut self, hypothesis: Hypothesis<'p>, steps: &Range<usize>) -> bool {
        let before = self.take_over(hypothesis);
        let found = self.hypothesis.try_addresses(steps, Patience::SEARCH);
        if !found {
            self.take_over(before);
        }
        found
    }

    /// Chooses addresses for these steps, and all that were chosen before, together. False: none suit; then nothing changes.
    pub(super) fn choose_anew(&mut self, steps: &Range<usize>) -> bool {
        self.anew(|search, told| {
            search.present_with(told).is_some_and(|without| search.choose_in(without, steps))
        })
    }

    /// Does this with the addresses that were not chosen, and counts its fuel; false where there is none left for it.
    pub(super) fn anew(&mut self, work: impl FnOnce(&mut Self, Vec<Early>) -> bool) -> bool {
        if !self.may_choose_anew() {
            return false;
        }
        let mut told = self.hypothesis.early_and_chosen();
        told.retain(|early| !early.assumed);
        let before = self.hypothesis.terms().fuel().burnt();
        let done = work(self, told);
        self.spent_anew += self.hypothesis.terms().fuel().burnt() - before;
        done
    }

    /// The present path with these addresses, its oldest step among it, which was prepended and not taken yet.
    fn present_with(&mut self, early: Vec<Early>) -> Option<Hypothesis<'p>> {
        let step = *self.hypothesis.path().last()?;
        let newest =
            self.hypothesis.calls().last().filter(|call| call.step as usize == self.hypothesis.len());
        let call = newest.map(|call| call.number);
        let mut hypothesis = self.rebuilt_with(early).ok()?;
        self.take_again(&mut hypothesis, step, call).ok()?;
        Some(hypothesis)
    }
}
