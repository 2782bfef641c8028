//! Which frame holds a page: what tells, between two checkpoints, whether a page was written.

use super::{AddressSpace, Virt};
use crate::ram::paging::{Reach, translate_user};
use crate::ram::{Memory, PAGE, Phys};

impl AddressSpace {
    /// The frame of the page at `address`, if it is there and nobody else stores to it: no other address space, nor who writes to the
    /// file that it shows. A checkpoint shares it from when it is taken on, and whoever stores to it then gets a copy: as long as it
    /// is the same, nothing was stored.
    #[must_use]
    pub fn private_frame(&self, memory: &Memory, address: Virt) -> Option<Phys> {
        let (start, mapping) = self.mappings.find(address)?;
        let Reach::Page(frame, _) = translate_user(memory.ram(), self.root(), address) else { return None };
        let is_of_file = mapping.backing.object().is_some_and(|(object, at)| {
            memory.object_frame(object.id, (at + (address - start)) / PAGE) == Some(frame)
        });
        (!mapping.backing.is_shared() && !is_of_file).then_some(frame)
    }

    /// The same, with another owner, which is the caller: whoever stores to the page next gets a copy.
    pub(crate) fn hold_page(&mut self, memory: &mut Memory, address: Virt) -> Option<Phys> {
        let frame = self.private_frame(memory, address)?;
        let rights = self.mappings.find(address).map(|(_, mapping)| mapping.rights)?;
        memory.hold_page(frame);
        let entry = self.entry_rights(memory, address, frame, rights);
        let stale = self.tables.protect(memory.ram_mut(), address, entry);
        memory.invalidate(stale);
        Some(frame)
    }
}
