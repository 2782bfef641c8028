//! What a search did not go past, and where.

use super::explained::OVERWRITTEN;
use super::{Search, Statistics, Window};

/// The solver's budget ended.
pub(super) const UNANSWERED: &str = "a question that the solver did not answer";

/// A place at which the search did not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// What it would take to go on.
    pub why: &'static str,
    /// The instruction.
    pub address: u64,
}

/// How a search came to such a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Met {
    /// How often.
    pub times: u64,
    /// How far back from the crash at most.
    pub deepest: usize,
    /// The general registers, a bit for each, that an address hangs on which nothing tells.
    pub registers: u16,
}

impl Statistics {
    /// Notes that the search, `depth` instructions back, does not go past this place.
    pub(super) fn meet(&mut self, why: &'static str, address: u64, depth: usize) {
        self.meet_waiting(why, address, depth, 0);
    }

    fn meet_waiting(&mut self, why: &'static str, address: u64, depth: usize, registers: u16) {
        *self.barriers.entry(why).or_default() += 1;
        let met = self.places.entry(Place { why, address }).or_default();
        met.times += 1;
        met.deepest = met.deepest.max(depth);
        met.registers |= registers;
    }
}

impl Search<'_> {
    /// Notes a barrier at the oldest instruction of the path.
    pub(super) fn meet_here(&mut self, why: &'static str) {
        self.statistics.meet(why, self.hypothesis.start(), self.hypothesis.instructions());
    }

    /// By which way the processor came to the oldest instruction of the path from elsewhere, if it did.
    pub(super) fn entered_by(&self, window: Window) -> Option<&'static str> {
        let (start, entered) = (self.hypothesis.start(), self.hypothesis.image().anchors().entered());
        if let Some(why) = self.program.entered_by(start) {
            return Some(why);
        }
        if entered.back == Some(start) && self.records.are_used(window) {
            return Some("where the processor came from elsewhere, by the branch records");
        }
        let is_all = entered.retired.is_some_and(|retired| window.retired.instructions >= retired);
        is_all.then_some("the newest interrupt, exception or system call, by the crumbs' count")
    }

    /// Notes that what was just refuted is so only as long as a newer store, whose address is not known, did not overwrite what
    /// older instructions found.
    pub(super) fn doubt_refutation(&mut self) {
        if self.hypothesis.newest_unresolved_store().is_some() {
            self.meet_waiting_for(OVERWRITTEN);
        }
    }

    /// The clock's page is written at exits that no path has, too, such as an instruction that reads the machine: what contradicts a
    /// path through the vDSO is not refuted.
    pub(super) fn doubt_clock(&mut self, address: u64) {
        self.statistics.assumed |= self.program.vdso().is_some_and(|vdso| vdso.contains(&address));
    }

    /// Notes that an access of the path has no address for too long.
    pub(super) fn meet_unknown_address(&mut self) {
        self.meet_waiting_for("an address that nothing determines");
    }

    /// Notes a barrier at the newest access that has no address.
    fn meet_waiting_for(&mut self, why: &'static str) {
        let depth = self.hypothesis.instructions();
        let waiting = self.hypothesis.waiting();
        let (address, registers) = waiting
            .map_or_else(|| (self.hypothesis.start(), 0), |waiting| (waiting.address, waiting.registers));
        self.statistics.meet_waiting(why, address, depth, registers);
    }
}
