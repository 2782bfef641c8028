//! Memory of programs, which a kernel under SMAP reaches with the access flag alone (SDM volume 3, 4.6.1).
//!
//! An access whose address becomes known late was no less under it: what is chosen for a kernel's pointer lies in the kernel's memory,
//! but between STAC and CLAC.

use super::history::Step;
use super::hypothesis::{Hypothesis, Refusal};

/// The memory of programs is the low half of all addresses.
pub(super) const END_OF_PROGRAMS: u64 = 1 << 47;

impl Hypothesis<'_> {
    /// Under SMAP a kernel reaches the memory of programs with the access flag set alone.
    pub(super) fn require_access(&mut self, step: Step, va: u64) -> Result<(), Refusal> {
        let flag = self.snapshots.get(step as usize).and_then(|before| before.access);
        match flag.filter(|_| va < END_OF_PROGRAMS && self.image.guards_programs()) {
            Some(flag) => Ok(self.facts.assert(&self.terms, flag)?),
            None => Ok(()),
        }
    }

    /// Whether nothing keeps a step from memory of programs, as far as that is known.
    pub(super) fn may_access_programs(&mut self, step: Step) -> bool {
        let flag = self.snapshots.get(step as usize).and_then(|before| before.access);
        match flag.filter(|_| self.image.guards_programs()) {
            Some(flag) => {
                let flag = self.facts.resolve(&self.terms, flag);
                self.terms.truth(flag) == Some(true)
            }
            None => true,
        }
    }
}
