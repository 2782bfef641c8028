//! Writing where the guest itself may not: what a debugger does, or a program that patches its own code, by /proc/PID/mem.
//!
//! Linux allows it (FOLL_FORCE) where a write would only ever change the process's own copy of a page: in private mappings.
//! Code that is written so is searched for machine reads like code that is mapped.

use super::access::AccessError;
use super::sites::Known;
use super::space::{Access, AddressSpace, allows};
use super::vma::page_of;
use crate::ram::{Memory, PAGE, Virt};

impl AddressSpace {
    /// Writes inside one page, also where the guest may not, if what is mapped there is private.
    pub(crate) fn force(
        &mut self,
        memory: &mut Memory,
        address: Virt,
        bytes: &[u8],
    ) -> Result<(), AccessError> {
        let Some((_, mapping)) = self.mappings.find(address) else { return Err(AccessError::Bad) };
        let rights = mapping.rights;
        if allows(rights, Access::Write) {
            return self.write(memory, address, bytes);
        }
        if mapping.backing.is_shared() {
            return Err(AccessError::Bad);
        }
        self.own(memory, page_of(address))?;
        self.restore_sites(memory, address, bytes.len() as u64)?;
        self.poke(memory, address, bytes)?;
        if rights.execute {
            let page = page_of(address);
            self.rewrite(memory, page..page + PAGE, Known::default())?;
        }
        Ok(())
    }

    /// Makes a private page resident, in a frame of its own.
    fn own(&mut self, memory: &mut Memory, page: Virt) -> Result<(), AccessError> {
        if self.frame(memory.ram(), page).is_none() {
            self.bring(memory, page)?.map_err(|_| AccessError::Bad)?;
        }
        let (Some(frame), Some((_, mapping))) = (self.frame(memory.ram(), page), self.mappings.find(page))
        else {
            return Err(AccessError::Bad);
        };
        if memory.frames().owners(frame) > 1 {
            self.unshare(memory, page, frame, mapping.rights)?;
        }
        Ok(())
    }

    /// Puts the program's own bytes back where instructions were rewritten of which a range has a part.
    pub(super) fn restore_sites(
        &mut self,
        memory: &mut Memory,
        address: Virt,
        length: u64,
    ) -> Result<(), AccessError> {
        for (site, original) in self.sites.take(&(address..address + length)) {
            for (at, byte) in (site..).zip(original) {
                self.own(memory, page_of(at))?;
                self.poke(memory, at, &[byte])?;
            }
        }
        Ok(())
    }
}
