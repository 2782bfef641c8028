//! The address space: what is mapped ([`Mappings`]), and which of its pages are resident, in which frames
//! ([`PageTables`]; a page that the guest may not touch at all keeps its frame there).
//!
//! Pages become resident when they are first touched, never before, and the order of touches does not matter
//! (see [`layout::PAGES_PER_FAULT`]), so on every engine the same pages are resident at the same point of an
//! execution.

use super::fill::Ahead;
use super::layout;
use super::sites::Sites;
use super::turns::Turns;
use super::vma::{Attributes, Backing, Mapping, Mappings, page_of};
use super::{MappingInfo, Rights};
use crate::ram::paging::{self, PageTables, PagingError};
use crate::ram::{Memory, OutOfFrames, Phys, Ram, Virt};
use std::ops::Range;

/// One program's memory.
pub struct AddressSpace {
    pub(super) mappings: Mappings,
    pub(super) sites: Sites,
    pub(super) turns: Turns,
    pub(super) tables: PageTables,
    /// Where the heap starts.
    pub(super) heap: Virt,
    /// Where it ends (the "break"); not a multiple of the page size.
    pub(super) heap_end: Virt,
    /// What is mapped from now on is locked (MCL_FUTURE).
    pub(crate) locks_future: bool,
    pub(super) ahead: Ahead,
}

/// How the guest touches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Execute,
}

/// Why an address cannot be touched: what Linux tells by si_code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing is mapped there: SEGV_MAPERR.
    NotMapped,
    /// The mapping does not allow it: SEGV_ACCERR.
    Forbidden,
    /// The file that is mapped there has ended: BUS_ADRERR.
    BehindFile,
}

/// The guest's memory is used up, or its page tables cannot hold an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct SpaceError(#[from] PagingError);

impl From<OutOfFrames> for SpaceError {
    fn from(error: OutOfFrames) -> Self {
        SpaceError(error.into())
    }
}

impl AddressSpace {
    /// An empty address space.
    ///
    /// # Errors
    /// When all frames are in use.
    pub fn new(memory: &mut Memory) -> Result<AddressSpace, SpaceError> {
        let tables = PageTables::new(memory)?;
        Ok(AddressSpace {
            mappings: Mappings::default(),
            sites: Sites::default(),
            turns: Turns::default(),
            tables,
            heap: 0,
            heap_end: 0,
            locks_future: false,
            ahead: Ahead::default(),
        })
    }

    /// The top level of its page tables, for [`crate::engine::Cpu::set_page_table`].
    #[must_use]
    pub fn root(&self) -> Phys {
        self.tables.root()
    }

    /// Gives back all that it has of memory. The processor must use other page tables by then.
    pub fn release(self, memory: &mut Memory) {
        let frames: Vec<Phys> =
            self.tables.mapped(memory.ram(), 0, layout::USER_END).map(|(_, mapping)| mapping.frame).collect();
        frames.into_iter().for_each(|frame| memory.frames_mut().release(frame));
        self.tables.release(memory);
        memory.tidy_files();
    }

    /// What is mapped.
    #[must_use]
    pub fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    /// The rewritten machine reads.
    #[must_use]
    pub fn sites(&self) -> &Sites {
        &self.sites
    }

    /// The mappings as /proc/PID/maps shows them.
    #[must_use]
    pub fn describe(&self) -> Vec<MappingInfo> {
        let describe = |(start, mapping): (Virt, &Mapping)| {
            let (name, file_offset) = match &mapping.backing {
                Backing::Zero(name) => ((*name).to_owned(), 0),
                Backing::File(content, at) => (content.name.clone(), content.file_offset + at),
                Backing::Shared(object, at) | Backing::Copied(object, at) => (object.name.clone(), *at),
            };
            MappingInfo { start, end: mapping.end, rights: mapping.rights, name, file_offset }
        };
        self.mappings.iter().map(describe).collect()
    }

    /// Whether other address spaces may see and change what lies there.
    #[must_use]
    pub fn is_shared(&self, address: Virt) -> bool {
        self.mappings.find(address).is_some_and(|(_, mapping)| mapping.backing.is_shared())
    }

    /// Maps `range`, in place of what was there.
    pub fn map(
        &mut self,
        memory: &mut Memory,
        range: Range<Virt>,
        rights: Rights,
        backing: Backing,
    ) -> Result<(), SpaceError> {
        let grows_down = matches!(backing, Backing::Zero("[stack]"));
        self.map_as(memory, range, rights, backing, Attributes { grows_down, ..Attributes::default() })
    }

    /// The same, with what else was asked for.
    pub fn map_as(
        &mut self,
        memory: &mut Memory,
        range: Range<Virt>,
        rights: Rights,
        backing: Backing,
        attributes: Attributes,
    ) -> Result<(), SpaceError> {
        self.unmap(memory, &range)?;
        self.mappings.insert(range.start, Mapping { end: range.end, rights, backing, attributes });
        if rights.execute {
            self.rewrite_by_tables(memory, range)?;
        }
        Ok(())
    }

    /// Gives freshly loaded pages, none of them resident, their rights; their code was rewritten already.
    pub(crate) fn set_loaded_rights(&mut self, range: Range<Virt>, rights: Rights) {
        self.mappings.set_rights(&range, rights);
    }

    /// Unmaps `range`.
    pub fn unmap(&mut self, memory: &mut Memory, range: &Range<Virt>) -> Result<(), SpaceError> {
        self.discard(memory, range)?;
        self.mappings.remove(range);
        self.sites.remove(range);
        self.turns.remove(range);
        Ok(())
    }

    /// Gives `range`, all of which is mapped, other rights. Code that may be written is the program's own, whatever it was before.
    pub fn protect(
        &mut self,
        memory: &mut Memory,
        range: &Range<Virt>,
        rights: Rights,
    ) -> Result<(), SpaceError> {
        let was_code = |mapping: &Mapping| mapping.rights.execute && !mapping.has_turns();
        let becomes_code = |mapping: &Mapping| rights.execute && !was_code(mapping);
        let will_have_turns = |mapping: &Mapping| Mapping { rights, ..mapping.clone() }.has_turns();
        let parts = self.mappings.parts(range);
        let parts = parts.filter(|(_, mapping)| becomes_code(mapping) && !will_have_turns(mapping));
        let becomes_code: Vec<Range<Virt>> = parts.map(|(part, _)| part).collect();
        if rights.write {
            self.restore_anonymous(memory, range)?;
        }
        self.turns.remove(range);
        self.mappings.set_rights(range, rights);
        let mut stale = Vec::new();
        for (page, frame) in self.resident(memory.ram(), range) {
            let rights = self.entry_rights(memory, page, frame, rights);
            stale.extend(self.tables.protect(memory.ram_mut(), page, rights));
        }
        memory.invalidate(stale);
        for part in becomes_code {
            self.rewrite_by_tables(memory, part)?;
        }
        Ok(())
    }

    /// Drops the resident pages of `range`; touched again, they are as they were first (MADV_DONTNEED).
    pub fn discard(&mut self, memory: &mut Memory, range: &Range<Virt>) -> Result<(), SpaceError> {
        self.mappings.anonymous(range).iter().for_each(|part| self.sites.remove(part));
        self.turns.remove(range);
        for (_, frame) in self.withdraw(memory, range) {
            memory.frames_mut().release(frame);
        }
        Ok(())
    }

    /// Moves `length` bytes from `from` to `to`, where nothing is mapped (mremap).
    pub fn relocate(&mut self, memory: &mut Memory, from: &Range<Virt>, to: Virt) -> Result<(), SpaceError> {
        let place = |address: Virt| address - from.start + to;
        if self.mappings.parts(from).any(|(_, mapping)| mapping.has_turns()) {
            self.restore_anonymous(memory, from)?;
            self.turns.remove(from);
        }
        let pages = self.withdraw(memory, from);
        for (start, mapping) in self.mappings.remove(from) {
            self.mappings.insert(place(start), Mapping { end: place(mapping.end), ..mapping });
        }
        self.sites.relocate(from, to);
        for (page, frame) in pages {
            let rights =
                self.mappings.find(place(page)).map_or_else(Rights::default, |(_, mapping)| mapping.rights);
            self.enter(memory, place(page), frame, rights)?;
        }
        Ok(())
    }

    /// Where mmap puts `length` bytes (a multiple of the page size) for which no address was asked.
    #[must_use]
    pub fn gap(&self, length: u64) -> Option<Virt> {
        self.mappings.highest_gap(length, &(layout::USER_START..layout::MMAP_END))
    }

    /// Makes the page at `address` resident, and its neighbours, if `access` is allowed. For an access that
    /// the engine refused, and for those of the personality.
    pub fn touch(
        &mut self,
        memory: &mut Memory,
        address: Virt,
        access: Access,
    ) -> Result<Result<(), Refusal>, SpaceError> {
        self.grow_stack(address);
        let Some((start, mapping)) = self.mappings.find(address) else { return Ok(Err(Refusal::NotMapped)) };
        if !allows(mapping.rights, access) {
            return Ok(Err(Refusal::Forbidden));
        }
        let (rights, inside) = (mapping.rights, start..mapping.end);
        if self.frame(memory.ram(), page_of(address)).is_none()
            && let Err(refusal) = self.bring(memory, address)?
        {
            return Ok(Err(refusal));
        }
        if access == Access::Write {
            self.begin_writing(memory, page_of(address))?;
        }
        if access == Access::Write
            && let Some(found) = self.tables.walk(memory.ram(), address)
            && found.rights.is_some_and(|rights| !rights.write)
        {
            self.unshare(memory, page_of(address), found.frame, rights)?;
            self.unshare_ahead(memory, page_of(address), &inside, rights);
            self.regain(memory, page_of(address), rights);
        }
        Ok(Ok(()))
    }

    /// Whether [`AddressSpace::touch`] would need frames to allow the access; not asked of a stack that is to grow, which is small.
    pub(crate) fn takes_memory(&self, memory: &Memory, address: Virt, access: Access) -> bool {
        let Some((_, mapping)) = self.mappings.find(address) else { return false };
        allows(mapping.rights, access)
            && self.tables.walk(memory.ram(), address).is_none_or(|found| {
                let writable = found.rights.is_some_and(|rights| rights.write);
                access == Access::Write && !writable && memory.frames().owners(found.frame) > 1
            })
    }

    /// Makes a private page writable again that a fork has made read-only: in a frame of its own.
    pub(super) fn unshare(
        &mut self,
        memory: &mut Memory,
        page: Virt,
        frame: Phys,
        rights: Rights,
    ) -> Result<(), SpaceError> {
        let own = memory.unshare(frame)?;
        let entry = self.entry_rights(memory, page, own, rights);
        let stale = self.tables.map(memory, page, own, entry.unwrap_or_default())?;
        memory.invalidate(stale);
        if entry.is_none() {
            let stale = self.tables.protect(memory.ram_mut(), page, None);
            memory.invalidate(stale);
        }
        Ok(())
    }

    /// Rights as a page table has them: it cannot refuse reading alone, and a private page whose frame has other owners
    /// is not written. A page that may be both written and executed may have turns; where it has none, and where what is
    /// executed may be written elsewhere, processors that take turns are told.
    pub(super) fn entry_rights(
        &self,
        memory: &mut Memory,
        page: Virt,
        frame: Phys,
        rights: Rights,
    ) -> Option<paging::Rights> {
        let is = |what: fn(&Mapping) -> bool| self.mappings.find(page).is_some_and(|(_, it)| what(it));
        let write =
            rights.write && (memory.frames().owners(frame) == 1 || is(|mapping| mapping.backing.is_shared()));
        let entry = paging::Rights { write, execute: rights.execute };
        let has_turns = rights.write && rights.execute && is(Mapping::has_turns);
        let entry = if has_turns { self.turns.allowed(page, entry) } else { entry };
        if entry.execute && (entry.write || is(|mapping| mapping.backing.object().is_some())) {
            memory.code_changes_unseen();
        }
        allows(rights, Access::Read).then_some(entry)
    }

    /// Enters a page, which was not resident, into the page tables.
    pub(super) fn enter(
        &mut self,
        memory: &mut Memory,
        page: Virt,
        frame: Phys,
        rights: Rights,
    ) -> Result<(), SpaceError> {
        let entry = self.entry_rights(memory, page, frame, rights);
        self.tables.map(memory, page, frame, entry.unwrap_or_default())?;
        if entry.is_none() {
            self.tables.protect(memory.ram_mut(), page, None);
        }
        Ok(())
    }

    /// Takes the resident pages of `range` out of the page tables; gives them and their frames.
    fn withdraw(&mut self, memory: &mut Memory, range: &Range<Virt>) -> Vec<(Virt, Phys)> {
        let pages = self.resident(memory.ram(), range);
        let mut stale = Vec::new();
        for (page, _) in &pages {
            stale.extend(self.tables.unmap(memory.ram_mut(), *page).and_then(|(_, stale)| stale));
        }
        memory.invalidate(stale);
        pages
    }

    /// The resident pages of `range` and their frames, in address order.
    pub(crate) fn resident(&self, ram: &Ram, range: &Range<Virt>) -> Vec<(Virt, Phys)> {
        self.tables.mapped(ram, range.start, range.end).map(|(page, mapping)| (page, mapping.frame)).collect()
    }

    /// Copies from inside one page, resident or not, with the rewritten instructions as the guest sees them.
    /// False if it is not mapped, or its file has ended.
    pub(super) fn copy_page(&self, memory: &Memory, address: Virt, bytes: &mut [u8]) -> bool {
        let page = page_of(address);
        if let Some(frame) = self.frame(memory.ram(), page) {
            let from = usize::try_from(address - page).expect("an offset inside a page");
            bytes.copy_from_slice(&memory.ram().frame(frame)[from..from + bytes.len()]);
            return true;
        }
        let Some((start, mapping)) = self.mappings.find(address) else { return false };
        if let Some((object, at)) = mapping.backing.object() {
            let mapped = object.read(memory, at + (address - start), bytes);
            if !mapping.backing.is_shared() {
                self.sites.hide(address, bytes);
            }
            return mapped;
        }
        let mapped = mapping.backing.fill(address - start, bytes)
            || address != page && mapping.backing.fill(page - start, &mut [0]);
        self.sites.hide(address, bytes);
        mapped
    }

    /// The frame of a resident page.
    #[must_use]
    pub fn frame(&self, ram: &Ram, page: Virt) -> Option<Phys> {
        self.tables.walk(ram, page).map(|mapping| mapping.frame)
    }
}

/// Whether rights allow an access: as on the processor, what may be written or executed may be read.
#[must_use]
pub(crate) fn allows(rights: Rights, access: Access) -> bool {
    match access {
        Access::Read => rights.read || rights.write || rights.execute,
        Access::Write => rights.write,
        Access::Execute => rights.execute,
    }
}
