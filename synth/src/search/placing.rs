//! Whether the accesses of a path could have addresses.
//!
//! An address that the program computed from what it still had is found when older instructions tell it. Where none does for
//! long, one is chosen: a path on which none fits leads nowhere that a certificate could begin.

use super::Search;
use crate::past::addresses::Patience;

/// For so many instructions, the search waits for older ones to tell an address.
const ADDRESS_PATIENCE: usize = 96;

/// So many instructions are left at once before it is asked whether an access has an address again.
const STRIDE: usize = 4;

impl Search<'_> {
    /// Whether every access that lies well behind has an address, or could be given one.
    pub(super) fn addresses_hold(&mut self) -> bool {
        if self.hypothesis.lost_a_pointer() {
            self.meet_here("a pointer that lies nowhere any more");
            return false;
        }
        let Some(before) = self.frames.last().map(|frame| frame.placed_before) else { return true };
        let placed = self.place(before);
        if let (Some(placed), Some(frame)) = (placed, self.frames.last_mut()) {
            frame.placed = placed;
        }
        placed.is_some()
    }

    /// How long the path was when all its accesses had addresses last; `None` if one that has waited long could go nowhere.
    fn place(&mut self, before: usize) -> Option<usize> {
        let len = self.hypothesis.len();
        let (patience, half) = (self.steps_of(ADDRESS_PATIENCE), self.steps_of(ADDRESS_PATIENCE / 2));
        // What the records alone give was not chosen, so the wait of what lies there begins at their end.
        if len < self.covered + patience || len < before + half {
            return Some(before);
        }
        if self.hypothesis.is_placed(&(1..len - patience)) {
            return Some(before);
        }
        self.statistics.assumed = true;
        if self.hypothesis.try_addresses(&(1..len - half + 1), Patience::SEARCH) {
            return Some(len);
        }
        if self.place_late(&(1..len - half + 1)) || self.choose_anew(&(1..len - half + 1)) {
            return Some(len);
        }
        self.meet_unknown_address();
        self.stuck = self.hypothesis.take_stuck();
        None
    }

    /// Leaves the choices that have nothing to do with an access that no address was found for: as long as it has none by itself,
    /// whatever else is known, no other way from here can help it.
    pub(super) fn leave_stuck(&mut self) {
        let Some(access) = self.stuck.take().filter(|_| self.restarts.leaves_stuck()) else { return };
        let (before, step) = (self.hypothesis.len(), access.step as usize);
        if self.helpable == Some(access) {
            return;
        }
        while self.hypothesis.len() >= step && self.hypothesis.is_stuck(access, Patience::SEARCH) {
            let to = self.hypothesis.len().saturating_sub(STRIDE).max(step - 1);
            while self.hypothesis.len() > to && self.retreat() {}
            self.restarts.note_left();
        }
        // It has addresses by itself, which only do not go with those of others: that is not asked again.
        self.helpable = (self.hypothesis.len() == before).then_some(access);
        tracing::debug!(
            before,
            after = self.hypothesis.len(),
            ?access,
            "choices were left that do not help an access"
        );
    }
}
