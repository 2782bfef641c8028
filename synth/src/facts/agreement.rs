//! How much of what was said was known already, and agreed: the trace that a true past leaves.
//!
//! An equation of two numbers is either a contradiction or an agreement. That two numbers which have nothing to do with each other
//! are equal is the less likely the more values they could have had, so an agreement counts as many bits as would have to match by
//! chance: few for zero and small numbers, of which memory is full.

use super::Facts;
use crate::term::{Term, Terms};

/// What agreement of two truth values, of two zeros, of two small numbers and of other numbers counts at most.
const TRUTH: u64 = 1;
const ZERO: u64 = 2;
const SMALL: u64 = 5;
const MOST: u32 = 24;

impl Facts {
    /// By how many bits all that was said agrees with what was known before it was said.
    #[must_use]
    pub fn agreed(&self) -> u64 {
        self.agreed
    }

    /// Says something that agrees by itself: it counts nothing.
    pub fn without_agreement<R>(&mut self, said: impl FnOnce(&mut Facts) -> R) -> R {
        let before = self.agreed;
        let result = said(self);
        self.agreed = before;
        result
    }

    /// Both sides of an equation are this term.
    pub(super) fn note_agreement(&mut self, terms: &Terms, both: Term) {
        let Some(value) = terms.value(both) else { return };
        self.agreed += match (terms.width(both), value) {
            (0, _) => TRUTH,
            (_, 0) => ZERO,
            (_, 1..256) => SMALL,
            (width, _) => u64::from(width.min(MOST)),
        };
    }
}
