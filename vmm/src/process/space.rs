//! The address space: what is mapped ([`Mappings`]), and which of its pages are resident, in which frames
//! ([`PageTables`]; a page that the guest may not touch at all keeps its frame there).
//!
//! Pages become resident when they are first touched, never before, and the order of touches does not matter
//! (see [`layout::PAGES_PER_FAULT`]), so on every engine the same pages are resident at the same point of an
//! execution.

use super::layout::{self, PAGE_BYTES, PAGES_PER_FAULT, STACK_END, STACK_GUARD, STACK_LIMIT};
use super::sites::{Known, Sites};
use super::vma::{Backing, Mapping, Mappings, page_of, page_up};
use super::{MappingInfo, Rights};
use crate::engine::{Engine, EngineError, Phys, StalePage, Virt};
use crate::paging::{self, FrameAllocator, PageTables, PagingError};
use crate::ram::{PAGE, Ram};
use std::ops::Range;
use xxhash_rust::xxh3::Xxh3;

/// One program's memory.
pub struct AddressSpace {
    pub(super) mappings: Mappings,
    pub(super) sites: Sites,
    tables: PageTables,
    frames: FrameAllocator,
    /// Where the heap starts.
    heap: Virt,
    /// Where it ends (the "break"); not a multiple of the page size.
    heap_end: Virt,
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

/// What goes wrong beneath the guest.
#[derive(Debug, thiserror::Error)]
pub enum SpaceError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// All frames are in use.
    #[error(transparent)]
    Paging(#[from] PagingError),
}

impl AddressSpace {
    /// An empty address space, which the engine uses from now on.
    pub fn new(engine: &mut dyn Engine) -> Result<AddressSpace, SpaceError> {
        let mut frames = FrameAllocator::new(engine);
        let kernel_entry = engine.kernel_entry();
        let tables = PageTables::new(engine.ram_mut(), &mut frames, kernel_entry)?;
        engine.set_page_table(tables.root())?;
        Ok(AddressSpace {
            mappings: Mappings::default(),
            sites: Sites::default(),
            tables,
            frames,
            heap: 0,
            heap_end: 0,
        })
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
            };
            MappingInfo { start, end: mapping.end, rights: mapping.rights, name, file_offset }
        };
        self.mappings.iter().map(describe).collect()
    }

    /// Maps `range`, in place of what was there.
    pub fn map(
        &mut self,
        engine: &mut dyn Engine,
        range: Range<Virt>,
        rights: Rights,
        backing: Backing,
    ) -> Result<(), SpaceError> {
        self.unmap(engine, &range)?;
        let grows_down = matches!(backing, Backing::Zero("[stack]"));
        self.mappings.insert(range.start, Mapping { end: range.end, rights, backing, grows_down });
        if rights.execute {
            self.rewrite(engine, range, Known::default())?;
        }
        Ok(())
    }

    /// Unmaps `range`.
    pub fn unmap(&mut self, engine: &mut dyn Engine, range: &Range<Virt>) -> Result<(), SpaceError> {
        self.discard(engine, range)?;
        self.mappings.remove(range);
        self.sites.remove(range);
        Ok(())
    }

    /// Gives `range`, all of which is mapped, other rights.
    pub fn protect(
        &mut self,
        engine: &mut dyn Engine,
        range: &Range<Virt>,
        rights: Rights,
    ) -> Result<(), SpaceError> {
        let becomes_code: Vec<Range<Virt>> = self
            .mappings
            .iter()
            .filter(|(start, mapping)| rights.execute && !mapping.rights.execute && *start < range.end)
            .map(|(start, mapping)| start.max(range.start)..mapping.end.min(range.end))
            .filter(|part| !part.is_empty())
            .collect();
        self.mappings.set_rights(range, rights);
        let mut stale = Vec::new();
        for (page, _) in self.resident(engine.ram(), range) {
            stale.extend(self.tables.protect(engine.ram_mut(), page, entry_rights(rights)));
        }
        engine.invalidate(&stale)?;
        for part in becomes_code {
            self.rewrite(engine, part, Known::default())?;
        }
        Ok(())
    }

    /// Drops the resident pages of `range`; touched again, they are as they were first (MADV_DONTNEED).
    pub fn discard(&mut self, engine: &mut dyn Engine, range: &Range<Virt>) -> Result<(), SpaceError> {
        for (_, frame) in self.withdraw(engine, range)? {
            self.frames.release(frame);
        }
        Ok(())
    }

    /// Moves `length` bytes from `from` to `to`, where nothing is mapped (mremap).
    pub fn relocate(
        &mut self,
        engine: &mut dyn Engine,
        from: &Range<Virt>,
        to: Virt,
    ) -> Result<(), SpaceError> {
        let place = |address: Virt| address - from.start + to;
        let pages = self.withdraw(engine, from)?;
        for (start, mapping) in self.mappings.remove(from) {
            self.mappings.insert(place(start), Mapping { end: place(mapping.end), ..mapping });
        }
        self.sites.relocate(from, to);
        for (page, frame) in pages {
            let rights =
                self.mappings.find(place(page)).map_or_else(Rights::default, |(_, mapping)| mapping.rights);
            self.enter(engine.ram_mut(), place(page), frame, rights)?;
        }
        Ok(())
    }

    /// Where mmap puts `length` bytes (a multiple of the page size) for which no address was asked.
    #[must_use]
    pub fn gap(&self, length: u64) -> Option<Virt> {
        self.mappings.highest_gap(length, &(layout::USER_START..layout::MMAP_END))
    }

    /// Where the heap starts, and where it ends.
    #[must_use]
    pub fn heap(&self) -> Range<Virt> {
        self.heap..self.heap_end
    }

    /// Puts the heap's start and end at `start`, the first page behind the program.
    pub fn set_heap(&mut self, start: Virt) {
        (self.heap, self.heap_end) = (start, start);
    }

    /// Moves the heap's end; gives where it is now, which is where it was if it cannot be moved.
    pub fn set_heap_end(&mut self, engine: &mut dyn Engine, end: Virt) -> Result<Virt, SpaceError> {
        let (Some(old_top), Some(new_top)) = (page_up(self.heap_end), page_up(end)) else {
            return Ok(self.heap_end);
        };
        if end < self.heap || new_top > layout::MMAP_END {
            return Ok(self.heap_end);
        }
        if new_top < old_top {
            self.unmap(engine, &(new_top..old_top))?;
        } else if new_top > old_top {
            if !self.mappings.is_free(&(old_top..new_top + PAGE)) {
                return Ok(self.heap_end);
            }
            let rights = Rights { read: true, write: true, execute: false };
            self.map(engine, old_top..new_top, rights, Backing::Zero("[heap]"))?;
        }
        self.heap_end = end;
        Ok(end)
    }

    /// Makes the page at `address` resident, and its neighbours, if `access` is allowed. For an access that
    /// the engine refused, and for those of the personality.
    pub fn touch(
        &mut self,
        engine: &mut dyn Engine,
        address: Virt,
        access: Access,
    ) -> Result<Result<(), Refusal>, SpaceError> {
        self.grow_stack(address);
        let Some((start, mapping)) = self.mappings.find(address) else { return Ok(Err(Refusal::NotMapped)) };
        if !allows(mapping.rights, access) {
            return Ok(Err(Refusal::Forbidden));
        }
        if self.frame(engine.ram(), address).is_some() {
            return Ok(Ok(()));
        }
        let Mapping { end, rights, backing, .. } = mapping.clone();
        let group = PAGES_PER_FAULT * PAGE;
        let first = (address / group * group).max(start);
        let last = (address / group * group + group).min(end);
        for page in (first..last).step_by(PAGE_BYTES) {
            if self.frame(engine.ram(), page).is_some() {
                continue;
            }
            if !self.fill(engine.ram_mut(), page, rights, &backing, page - start)? && page == page_of(address)
            {
                return Ok(Err(Refusal::BehindFile));
            }
        }
        Ok(Ok(()))
    }

    /// Makes one page resident; false if its file has ended.
    fn fill(
        &mut self,
        ram: &mut Ram,
        page: Virt,
        rights: Rights,
        backing: &Backing,
        distance: u64,
    ) -> Result<bool, SpaceError> {
        let mut bytes = [0; PAGE_BYTES];
        if !backing.fill(distance, &mut bytes) {
            return Ok(false);
        }
        self.sites.hide(page, &mut bytes);
        let frame = self.frames.allocate(ram)?;
        *ram.frame_mut(frame) = bytes;
        self.enter(ram, page, frame, rights)?;
        Ok(true)
    }

    /// Enters a page, which was not resident, into the page tables.
    fn enter(&mut self, ram: &mut Ram, page: Virt, frame: Phys, rights: Rights) -> Result<(), SpaceError> {
        let entry = entry_rights(rights);
        self.tables.map(ram, &mut self.frames, page, frame, entry.unwrap_or_default())?;
        if entry.is_none() {
            self.tables.protect(ram, page, None);
        }
        Ok(())
    }

    /// Takes the resident pages of `range` out of the page tables; gives them and their frames.
    fn withdraw(
        &mut self,
        engine: &mut dyn Engine,
        range: &Range<Virt>,
    ) -> Result<Vec<(Virt, Phys)>, SpaceError> {
        let pages = self.resident(engine.ram(), range);
        let mut stale = Vec::new();
        for (page, _) in &pages {
            stale.extend(self.tables.unmap(engine.ram_mut(), *page).and_then(|(_, stale)| stale));
        }
        engine.invalidate(&stale)?;
        Ok(pages)
    }

    /// The resident pages of `range` and their frames, in address order.
    fn resident(&self, ram: &Ram, range: &Range<Virt>) -> Vec<(Virt, Phys)> {
        self.tables.mapped(ram, range.start, range.end).map(|(page, mapping)| (page, mapping.frame)).collect()
    }

    /// Extends the stack down to `address`, if it lies in the stack's reach.
    pub(super) fn grow_stack(&mut self, address: Virt) {
        if !(STACK_END - STACK_LIMIT..STACK_END).contains(&address) {
            return;
        }
        let Some((start, stack)) = self.mappings.at_or_after(address) else { return };
        let page = page_of(address);
        let gap = page.saturating_sub(STACK_GUARD)..start;
        if start <= address || !stack.grows_down || !self.mappings.is_free(&gap) {
            return;
        }
        let mapping = Mapping { end: start, ..stack.clone() };
        self.mappings.insert(page, mapping);
    }

    /// Rewrites the machine reads in `range`, which is executable.
    pub fn rewrite(
        &mut self,
        engine: &mut dyn Engine,
        range: Range<Virt>,
        known: Known<'_>,
    ) -> Result<(), SpaceError> {
        let Some(code) = self.code(engine.ram(), &range) else { return Ok(()) };
        let mut stale = Vec::new();
        for address in self.sites.add(range.start, &code, known) {
            for page in [page_of(address), page_of(address + 1)] {
                let Some(frame) = self.frame(engine.ram(), page) else { continue };
                self.sites.hide(page, engine.ram_mut().frame_mut(frame));
                stale.push(StalePage { page, frame });
            }
        }
        Ok(engine.invalidate(&stale)?)
    }

    /// The bytes of `range`, if a file or a resident page holds any of them: zeroes hold no instruction to
    /// rewrite.
    fn code(&self, ram: &Ram, range: &Range<Virt>) -> Option<Vec<u8>> {
        let file = self
            .mappings
            .find(range.start)
            .is_some_and(|(_, found)| matches!(found.backing, Backing::File(..)));
        if !file && self.tables.mapped(ram, range.start, range.end).next().is_none() {
            return None;
        }
        let mut code = vec![0; usize::try_from(range.end - range.start).ok()?];
        for (page, bytes) in (range.start..).step_by(PAGE_BYTES).zip(code.chunks_mut(PAGE_BYTES)) {
            self.copy_page(ram, page, bytes);
        }
        Some(code)
    }

    /// Copies from inside one page, resident or not, with the rewritten instructions as the guest sees them.
    /// False if it is not mapped, or its file has ended.
    pub(super) fn copy_page(&self, ram: &Ram, address: Virt, bytes: &mut [u8]) -> bool {
        let page = page_of(address);
        if let Some(frame) = self.frame(ram, page) {
            let from = usize::try_from(address - page).expect("an offset inside a page");
            bytes.copy_from_slice(&ram.frame(frame)[from..from + bytes.len()]);
            return true;
        }
        let Some((start, mapping)) = self.mappings.find(address) else { return false };
        let mapped = mapping.backing.fill(address - start, bytes)
            || address != page && mapping.backing.fill(page - start, &mut [0]);
        self.sites.hide(address, bytes);
        mapped
    }

    /// A digest of the resident pages that are not all zero, with their addresses, in address order. It
    /// includes the time page (which changes only at exits, by inputs), the vDSO and the rewritten
    /// instructions; it does not include the engine's own pages, the page tables, or which pages of zeroes
    /// are resident.
    #[must_use]
    pub fn digest(&self, ram: &Ram) -> u64 {
        let mut digest = Xxh3::new();
        for (page, mapping) in self.tables.mapped(ram, 0, layout::USER_END) {
            let bytes = ram.frame(mapping.frame);
            if bytes.iter().any(|&byte| byte != 0) {
                digest.update(&page.to_le_bytes());
                digest.update(bytes);
            }
        }
        digest.digest()
    }

    /// The frame of a resident page.
    #[must_use]
    pub fn frame(&self, ram: &Ram, page: Virt) -> Option<Phys> {
        self.tables.walk(ram, page).map(|mapping| mapping.frame)
    }
}

/// Rights as a page table has them: it cannot refuse reading alone.
fn entry_rights(rights: Rights) -> Option<paging::Rights> {
    let entry = paging::Rights { write: rights.write, execute: rights.execute };
    allows(rights, Access::Read).then_some(entry)
}

/// Whether rights allow an access: as on the processor, what may be written or executed may be read.
#[must_use]
pub(super) fn allows(rights: Rights, access: Access) -> bool {
    match access {
        Access::Read => rights.read || rights.write || rights.execute,
        Access::Write => rights.write,
        Access::Execute => rights.execute,
    }
}
