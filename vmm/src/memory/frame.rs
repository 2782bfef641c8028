//! Which frame holds a page: what tells, between two checkpoints, whether a page was written.

use super::vma::Backing;
use super::{AddressSpace, Virt};
use crate::ram::paging::{Reach, translate_user};
use crate::ram::{Memory, Phys};

impl AddressSpace {
    /// The frame of the page at `address`, if it is there and no other address space stores to it. A checkpoint shares it
    /// from when it is taken on, and whoever stores to it then gets a copy: as long as it is the same, nothing was stored.
    #[must_use]
    pub fn private_frame(&self, memory: &Memory, address: Virt) -> Option<Phys> {
        let (_, mapping) = self.mappings.find(address)?;
        match (&mapping.backing, translate_user(memory.ram(), self.root(), address)) {
            (Backing::Shared(..), _) => None,
            (_, Reach::Page(frame, _)) => Some(frame),
            _ => None,
        }
    }

    /// The same, with another owner, which is the caller: whoever stores to the page next gets a copy.
    pub(crate) fn hold_page(&mut self, memory: &mut Memory, address: Virt) -> Option<Phys> {
        let frame = self.private_frame(memory, address)?;
        let rights = self.mappings.find(address).map(|(_, mapping)| mapping.rights)?;
        memory.frames_mut().share(frame);
        let entry = self.entry_rights(memory, address, frame, rights);
        let stale = self.tables.protect(memory.ram_mut(), address, entry);
        memory.invalidate(stale);
        Some(frame)
    }
}
