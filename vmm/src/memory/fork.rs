//! Second address spaces with the content of one: of a child, and of a checkpoint.

use super::AddressSpace;
use super::fill::Ahead;
use super::space::SpaceError;
use super::vma::Mapping;
use crate::ram::Memory;
use crate::ram::paging::{Fate, PageTables};

impl AddressSpace {
    /// A second address space with the same content: private pages are copied when one of the two writes to them, shared ones
    /// stay shared.
    ///
    /// # Errors
    /// When all frames are in use; then there is no second one, and this one is as it was.
    pub fn fork(&mut self, memory: &mut Memory) -> Result<AddressSpace, SpaceError> {
        let tables = self.fork_tables(memory, true)?;
        let (mappings, mut sites, mut turns) =
            (self.mappings.forked(), self.sites.clone(), self.turns.clone());
        let is_left = |mapping: &Mapping| mapping.attributes.not_forked || mapping.attributes.wiped_on_fork;
        for (start, mapping) in self.mappings.iter().filter(|(_, mapping)| is_left(mapping)) {
            sites.remove(&(start..mapping.end));
            turns.remove(&(start..mapping.end));
        }
        let (heap, heap_end) = (self.heap, self.heap_end);
        let ahead = Ahead::default();
        Ok(AddressSpace { mappings, sites, turns, tables, heap, heap_end, locks_future: false, ahead })
    }

    /// The same as it is, for a checkpoint: what a fork leaves out is in it.
    ///
    /// # Errors
    /// As [`AddressSpace::fork`].
    pub fn twin(&mut self, memory: &mut Memory) -> Result<AddressSpace, SpaceError> {
        let tables = self.fork_tables(memory, false)?;
        let (mappings, sites, turns) = (self.mappings.clone(), self.sites.clone(), self.turns.clone());
        let (heap, heap_end, locks_future) = (self.heap, self.heap_end, self.locks_future);
        Ok(AddressSpace { mappings, sites, turns, tables, heap, heap_end, locks_future, ahead: self.ahead })
    }

    /// Page tables with the same frames; without those that a fork leaves out, if it is one.
    fn fork_tables(&mut self, memory: &mut Memory, is_fork: bool) -> Result<PageTables, SpaceError> {
        let mappings = &self.mappings;
        // Pages come in order, so most are of the mapping of the one before.
        let (mut known, mut fate) = (0..0, Fate::Copied);
        let mut fate_of = |page| {
            if !known.contains(&page) {
                let found = mappings.find(page);
                known = found.map_or(0..0, |(start, mapping)| start..mapping.end);
                fate = found.map_or(Fate::Left, |(_, mapping)| match &mapping.attributes {
                    it if is_fork && (it.not_forked || it.wiped_on_fork) => Fate::Left,
                    _ if mapping.backing.is_shared() => Fate::Shared,
                    _ => Fate::Copied,
                });
            }
            fate
        };
        let (tables, stale) = self.tables.fork(memory, &mut fate_of)?;
        memory.invalidate(stale);
        Ok(tables)
    }
}
