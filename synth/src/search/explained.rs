//! What a store at an unknown address may have overwritten.
//!
//! An older instruction finds something else in memory than what it needs. That is a contradiction, unless a newer store of the
//! path, whose address nothing tells, went just there. On most paths it did not: so this is asked only when all else was
//! tried, and where the other ways died soon. Then each such store is placed there in its turn. The address is a choice like any
//! other: what follows from it is marked, and the certificate checks it. What contradicts may be an address that was chosen, too:
//! those are given up first ([`super::anew`]).

use super::Search;
use super::candidates::Candidate;
use crate::past::deferred::{AccessNumber, Early};
use crate::past::hypothesis::Refusal;
use rustc_hash::FxHashSet;
use std::ops::RangeInclusive;

/// So many places of stores are tried for one instruction.
const MOST_PLACES: usize = 24;
/// So many stores together may explain it.
const MOST_STORES: usize = 4;
/// So many explanations are followed, where each led nowhere soon.
const MOST_EXPLANATIONS: u32 = 8;

/// What may still be tried for one instruction.
struct Tries {
    /// So many stores together, at the least and at the most, may explain it.
    stores: RangeInclusive<usize>,
    /// Places of stores.
    places: usize,
    /// Explanations that have led nowhere are found again before the next one.
    known: u32,
}

/// Where memory may have been overwritten.
pub(super) const OVERWRITTEN: &str = "what a store at an unknown address may have overwritten";

impl Search<'_> {
    /// Has a candidate that memory contradicts tried once more, after the others, with a store that explains it.
    pub(super) fn explain_later(&mut self, candidate: &Candidate) {
        let may_be_placed =
            self.restarts.places_stores() && self.hypothesis.newest_unresolved_store().is_some();
        if candidate.explained.is_some() || !may_be_placed && !self.may_choose_anew() {
            return;
        }
        self.explain_again(candidate, 0);
    }

    fn explain_again(&mut self, candidate: &Candidate, known: u32) {
        let again = Candidate { explained: Some(known), ..candidate.clone() };
        if let Some(frame) = self.frames.last_mut() {
            frame.candidates.push(again);
        }
    }

    /// Prepends a candidate that memory contradicts, with newer stores where the contradictions are. It is tried once more, with others,
    /// if this leads nowhere: so many have `known` to.
    ///
    /// # Errors
    /// When no other stores of the path explain it.
    pub(super) fn prepend_explained(&mut self, candidate: &Candidate, known: u32) -> Result<(), Refusal> {
        let explained = self.explain_otherwise(candidate, known);
        if explained.is_ok() && known + 1 < MOST_EXPLANATIONS {
            self.explain_again(candidate, known + 1);
        }
        explained
    }

    fn explain_otherwise(&mut self, candidate: &Candidate, known: u32) -> Result<(), Refusal> {
        let mut tries = Tries { stores: 0..=0, places: 0, known };
        if self.prepend_without_choices(candidate, &mut tries) {
            return Ok(());
        }
        let mut explained = self.prepend(candidate);
        if self.restarts.places_stores() && explained == Err(Refusal::Contradiction) {
            // One alone, at any of the places, is likelier than several.
            for stores in [1..=1, 2..=MOST_STORES] {
                (tries.stores, tries.places) = (stores, MOST_PLACES);
                explained = explained.or_else(|_| self.explain_by_stores(candidate, 0, &mut tries));
            }
        }
        explained
    }

    /// Prepends a candidate to the path without the addresses that were chosen. False: it contradicts that as well, or it was not
    /// tried; then nothing changes.
    fn prepend_without_choices(&mut self, candidate: &Candidate, tries: &mut Tries) -> bool {
        let fits = self.anew(|search, told| search.explain_with(told, candidate, 0, tries).is_ok());
        if fits {
            tracing::debug!(depth = self.hypothesis.len(), "addresses that were chosen are given up");
        }
        fits
    }

    /// The same on the present path with these addresses, the last `placed` of which are stores'; if it is not explained, nothing changes.
    fn explain_with(
        &mut self,
        early: Vec<Early>,
        candidate: &Candidate,
        placed: usize,
        tries: &mut Tries,
    ) -> Result<(), Refusal> {
        let hypothesis = self.rebuilt_with(early)?;
        let before = self.take_over(hypothesis);
        let explained = self.explain(candidate, placed, tries);
        match explained {
            Ok(()) => self.statistics.assumed = true,
            Err(_) => _ = self.take_over(before),
        }
        explained
    }

    /// The same with `placed` stores, or with more of them.
    fn explain(&mut self, candidate: &Candidate, placed: usize, tries: &mut Tries) -> Result<(), Refusal> {
        match self.prepend(candidate) {
            Ok(()) => self.refuse_known(candidate, placed, tries),
            Err(Refusal::Contradiction) if placed < *tries.stores.end() => {
                self.explain_by_stores(candidate, placed, tries)
            }
            refused => refused,
        }
    }

    /// The same with more stores than `placed`, after it was refused with these.
    fn explain_by_stores(
        &mut self,
        candidate: &Candidate,
        placed: usize,
        tries: &mut Tries,
    ) -> Result<(), Refusal> {
        for (store, at) in self.stores_that_explain() {
            if tries.places == 0 {
                break;
            }
            tries.places -= 1;
            let since = self.hypothesis.len() + 1;
            let mut early = self.hypothesis.early_and_chosen();
            early.push(Early { since, assumed: true, access: store, address: at });
            if self.explain_with(early, candidate, placed + 1, tries).is_ok() {
                let depth = self.hypothesis.len();
                tracing::debug!(depth, ?store, at, "a store explains what memory holds");
                return Ok(());
            }
        }
        Err(Refusal::Contradiction)
    }

    /// Refuses an explanation that has no solution, though memory does not contradict it, or that was followed before.
    fn refuse_known(
        &mut self,
        candidate: &Candidate,
        placed: usize,
        tries: &mut Tries,
    ) -> Result<(), Refusal> {
        if placed < *tries.stores.start() || self.is_satisfiable(candidate.effort) == Some(false) {
            return Err(Refusal::Contradiction);
        }
        match tries.known.checked_sub(1) {
            Some(known) => {
                tries.known = known;
                Err(Refusal::Contradiction)
            }
            None => Ok(()),
        }
    }

    /// The stores without an address that could have overwritten what the step which was refused last found, and where they would
    /// be. What contradicts memory last was often told by what was found before: both are such places. What the step found itself may
    /// be right, and contradict what the steps right behind it have found.
    fn stores_that_explain(&mut self) -> Vec<(AccessNumber, u64)> {
        let mut found: Vec<(u64, u32)> = self.hypothesis.accessed().iter().rev().copied().collect();
        let own = found.len();
        found.extend(self.hypothesis.found_before_stores());
        let stores = self.hypothesis.unplaced_stores();
        let over = |(n, (va, bytes)): (usize, (u64, u32))| {
            let memory = self.hypothesis.memory();
            let is_found_before =
                move |store: &AccessNumber| n < own || memory.is_read_before(va, store.step);
            let of_store = move |(store, stored): (AccessNumber, u32)| {
                places_over(va, bytes, stored).map(move |at| (store, at))
            };
            stores.iter().copied().filter(move |(store, _)| is_found_before(store)).flat_map(of_store)
        };
        let mut seen = FxHashSet::default();
        let mut places: Vec<_> = found.into_iter().enumerate().flat_map(over).collect();
        places.retain(|place| seen.insert(*place));
        places.retain(|&(store, at)| self.hypothesis.could_be_at(store, at));
        places
    }
}

/// Where a store of `stored` bytes can begin that overwrites some of `bytes` from `va` on: at the same place, or where it is
/// aligned to its own size or ends together with them.
fn places_over(va: u64, bytes: u32, stored: u32) -> impl Iterator<Item = u64> {
    let (bytes, stored) = (u64::from(bytes), u64::from(stored));
    let mut places = vec![va];
    let others = [va - va % stored.max(1), va.wrapping_add(bytes).wrapping_sub(stored)];
    places.extend(others.into_iter().filter(|&at| at != va));
    places.dedup();
    places.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_placed_where_it_overwrites_what_was_read() {
        let places = |va, bytes, stored| places_over(va, bytes, stored).collect::<Vec<_>>();
        assert_eq!(places(0x1008, 8, 8), [0x1008]);
        assert_eq!(places(0x100c, 4, 8), [0x100c, 0x1008]);
        assert_eq!(places(0x1008, 8, 1), [0x1008, 0x100f]);
        for at in places(0x1004, 4, 16) {
            assert!(at < 0x1008 && at + 16 > 0x1004, "{at:#x}");
        }
    }
}
