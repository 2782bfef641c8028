//! Memory at every point of the past: the core, and for each byte the steps that overwrote it.
//!
//! The value that a store destroyed is a variable. A byte as step `n` saw it is the variable of the latest
//! store at or before `n` counted backwards (that is: the first store that was still to come), or the core's.

use super::image::Image;
use crate::term::{Term, Terms};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// A step number: 1 is the last instruction before the crash.
pub type Step = u32;

/// A store was found at a step that lies after (in backward order: before) a read that has already been
/// answered without it: the hypothesis must be built again with the store's address known from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale;

enum Change {
    Wrote(u64, usize),
    Read(u64),
}

/// A point to go back to.
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

/// Stores and reads of the path, by byte.
#[derive(Default)]
pub struct History {
    /// For each byte: (step, the byte before that step), by ascending step.
    overwritten: FxHashMap<u64, Vec<(Step, Term)>>,
    /// For each byte: the steps that read it.
    read: FxHashMap<u64, Vec<Step>>,
    changes: Vec<Change>,
    /// Where accesses went, also those that were taken back, and how many bytes they took.
    touched: FxHashSet<(u64, u32)>,
}

impl History {
    /// The present point.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark(self.changes.len())
    }

    /// Forgets what came after `mark`.
    pub fn undo(&mut self, mark: Mark) {
        while self.changes.len() > mark.0 {
            match self.changes.pop().expect("longer than the mark") {
                Change::Wrote(va, at) => {
                    self.overwritten.get_mut(&va).expect("an overwritten byte").remove(at);
                }
                Change::Read(va) => {
                    self.read.get_mut(&va).expect("a byte that was read").pop();
                }
            }
        }
    }

    /// The byte at `va` before step `step`, 8 bits; `None` where the core has none.
    pub fn byte(&self, terms: &Terms, image: &dyn Image, va: u64, step: Step) -> Option<Term> {
        if let Some(stores) = self.overwritten.get(&va) {
            let count = stores.partition_point(|&(at, _)| at <= step);
            if count > 0 {
                return Some(stores[count - 1].1);
            }
        }
        image.byte(va).map(|b| terms.lit_term(8, u64::from(b)))
    }

    /// `bytes` bytes from `va` on before step `step`, little-endian in one vector.
    pub fn value(&self, terms: &Terms, image: &dyn Image, va: u64, bytes: u32, step: Step) -> Option<Term> {
        let mut value = self.byte(terms, image, va, step)?;
        for n in 1..bytes {
            let next = self.byte(terms, image, va.wrapping_add(u64::from(n)), step)?;
            value = terms.build_concat(next, value);
        }
        Some(value)
    }

    /// Notes an access, for good.
    pub fn note_access(&mut self, va: u64, bytes: u32) {
        self.touched.insert((va, bytes));
    }

    /// All bytes that accesses touched, also those that were taken back, in address order.
    #[must_use]
    pub fn touched(&self) -> Vec<u64> {
        let bytes = |&(va, bytes): &(u64, u32)| (0..u64::from(bytes)).map(move |n| va.wrapping_add(n));
        let mut all: Vec<u64> = self.touched.iter().flat_map(bytes).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Notes that `step` read these bytes.
    pub fn note_read(&mut self, va: u64, bytes: u32, step: Step) {
        for n in 0..u64::from(bytes) {
            let va = va.wrapping_add(n);
            self.read.entry(va).or_default().push(step);
            self.changes.push(Change::Read(va));
        }
    }

    /// Notes that `step` overwrote the bytes from `va` on; what was there before becomes a variable.
    pub fn note_write(&mut self, terms: &Terms, va: u64, bytes: u32, step: Step) -> Result<(), Stale> {
        let before = terms.fresh(8 * bytes);
        for n in 0..bytes {
            let va = va.wrapping_add(u64::from(n));
            let stores = self.overwritten.entry(va).or_default();
            let at = stores.partition_point(|&(s, _)| s <= step);
            let next_store = stores.get(at).map_or(Step::MAX, |&(s, _)| s);
            let missed = |&r: &Step| r > step && r < next_store;
            if self.read.get(&va).is_some_and(|reads| reads.iter().any(missed)) || at < stores.len() {
                return Err(Stale);
            }
            stores.insert(at, (step, terms.build_extract(8 * n, 8, before)));
            self.changes.push(Change::Wrote(va, at));
        }
        Ok(())
    }

    /// The oldest reads of steps that ran before `since`, the oldest first: so many addresses at most, with how many bytes, up to eight.
    #[must_use]
    pub fn reads_before(&self, since: Step, most: usize) -> Vec<(u64, u32)> {
        let mut found: Vec<(u64, u32)> = Vec::new();
        for change in self.changes.iter().rev() {
            let Change::Read(va) = *change else { continue };
            let is_before = self.is_read_before(va, since);
            let is_full = found.len() == most;
            match found.last_mut() {
                _ if !is_before => {}
                // The bytes of a read were noted in ascending order.
                Some((start, bytes)) if va.wrapping_add(1) == *start && *bytes < 8 => {
                    (*start, *bytes) = (va, *bytes + 1);
                }
                _ if is_full => break,
                _ => found.push((va, 1)),
            }
        }
        found
    }

    /// Whether a step that ran before `since` read the byte at `va`.
    #[must_use]
    pub fn is_read_before(&self, va: u64, since: Step) -> bool {
        self.read.get(&va).is_some_and(|reads| reads.iter().any(|step| *step > since))
    }

    /// Whether some step of the path overwrote the byte at `va`.
    #[must_use]
    pub fn is_overwritten(&self, va: u64) -> bool {
        self.overwritten.get(&va).is_some_and(|stores| !stores.is_empty())
    }

    /// Whether a step from the newest to `step` overwrote the byte at `va`.
    #[must_use]
    pub fn is_overwritten_since(&self, va: u64, step: Step) -> bool {
        self.overwritten.get(&va).and_then(|stores| stores.first()).is_some_and(|&(at, _)| at <= step)
    }

    /// The bytes of `place` that a step from the newest to `step` overwrote, in address order.
    #[must_use]
    pub fn overwritten_in(&self, place: &Range<u64>, step: Step) -> Vec<u64> {
        let mut all: Vec<u64> = self.overwritten.keys().copied().filter(|va| place.contains(va)).collect();
        all.retain(|&va| self.is_overwritten_since(va, step));
        all.sort_unstable();
        all
    }

    /// The bytes that some step up to `step` overwrote, in address order.
    #[must_use]
    pub fn overwritten(&self, step: Step) -> Vec<u64> {
        let first = |stores: &Vec<(Step, Term)>| stores.first().is_some_and(|&(s, _)| s <= step);
        let mut all: Vec<u64> =
            self.overwritten.iter().filter(|(_, s)| first(s)).map(|(&va, _)| va).collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_ran_before_a_step_are_told_by_what_they_read() {
        let mut history = History::default();
        history.note_read(0x1000, 8, 3);
        history.note_read(0x2000, 4, 5);
        history.note_read(0x2010, 16, 6);
        assert_eq!(history.reads_before(4, 9), [(0x2018, 8), (0x2010, 8), (0x2000, 4)]);
        assert_eq!(history.reads_before(4, 1), [(0x2018, 8)]);
        assert_eq!(history.reads_before(2, 9).last(), Some(&(0x1000, 8)));
        assert_eq!(history.reads_before(6, 9), []);
    }
}
