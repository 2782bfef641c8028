//! From addresses to RAM: the translations that the CPU caches, and when it forgets them.

use super::{Cpu, is_canonical};
use crate::bus::{Access, Bus, PAGE_SIZE, PageFault, Translation};
use crate::machine::{Exec, Trap};

impl<B: Bus> Cpu<B> {
    /// Forgets how the page of `va` translates. Call it when its mapping or protection changes.
    pub fn invalidate_page(&mut self, va: u64) {
        self.reads.remove(va);
        self.writes.remove(va);
        self.fetches.remove(va);
        if let Some(parked) = &mut self.parked {
            parked.remove(va);
        }
        if self.fetched.remove(&(va / PAGE_SIZE)) {
            self.frames.bump_epoch();
        }
    }

    /// Forgets every translation, as when another process with other page tables runs next. Decoded instructions
    /// stay: they belong to frames, and are found again wherever a page leads to such a frame.
    pub fn flush_tlb(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.fetches.clear();
        self.fetched.clear();
        if let Some(parked) = &mut self.parked {
            parked.clear();
        }
        self.frames.bump_epoch();
    }

    /// The frames that instructions have written since the last call, or ever: RAM offsets in order.
    ///
    /// A frame is noted when the first store to it is allowed, so that a store that is allowed and then traps in its
    /// second page counts, too. Writes through [`Cpu::bus_mut`] are not noted: whoever makes them knows of them.
    pub fn take_written(&mut self) -> Vec<u64> {
        self.writes.clear();
        if let Some(parked) = &mut self.parked {
            parked.clear_writes();
        }
        self.frames.take_written()
    }

    /// Says that `len` bytes of RAM from `offset` were written by someone else than this CPU, so that
    /// instructions decoded from their frames are decoded again.
    pub fn written(&mut self, offset: u64, len: u64) {
        let noted = self.frames.noted().saturating_sub(1);
        let Some(last) = len.checked_sub(1).map(|n| offset.saturating_add(n).min(noted)) else { return };
        for frame in offset / PAGE_SIZE..=last / PAGE_SIZE {
            self.frames.changed(frame * PAGE_SIZE);
        }
    }

    /// Says that frames that instructions were decoded from may have been written by someone else: those that hold something
    /// else in `ram`, the memory that the CPU runs against next, are decoded again.
    pub fn compare_code(&mut self, ram: &[u8]) {
        self.frames.compare_code(ram);
    }

    /// Translates `va` for an access of one kind, through the cache of that kind.
    #[inline(always)]
    pub(crate) fn locate_read(&mut self, va: u64) -> Exec<u64> {
        match self.reads.get(va) {
            Some(at) => Ok(at),
            None => self.miss(va, Access::Read),
        }
    }

    #[inline(always)]
    pub(crate) fn locate_write(&mut self, va: u64) -> Exec<u64> {
        match self.writes.get(va) {
            Some(at) => Ok(at),
            None => self.miss(va, Access::Write),
        }
    }

    /// [`Cpu::locate_read`] for so many bytes, which are in one page.
    #[inline(always)]
    pub(crate) fn locate_load(&mut self, va: u64, bytes: u64) -> Exec<u64> {
        match self.reads.get(va) {
            Some(at) => Ok(at),
            None => self.miss_of(va, Access::Read, bytes),
        }
    }

    /// [`Cpu::locate_write`] for so many bytes, which are in one page.
    #[inline(always)]
    pub(crate) fn locate_store(&mut self, va: u64, bytes: u64) -> Exec<u64> {
        match self.writes.get(va) {
            Some(at) => Ok(at),
            None => self.miss_of(va, Access::Write, bytes),
        }
    }

    #[inline(always)]
    pub(crate) fn locate_fetch(&mut self, va: u64) -> Exec<u64> {
        match self.fetches.get(va) {
            Some(at) => Ok(at),
            None => self.miss(va, Access::Execute),
        }
    }

    /// Where the instructions at `va` are, for somebody who looks at them and executes none: the guest does not see that.
    pub(crate) fn locate_code(&mut self, va: u64) -> Option<u64> {
        if let Some(at) = self.fetches.get(va) {
            return Some(at);
        }
        let ram = self.bus.ram().len() as u64;
        let Translation { frame, .. } = is_canonical(va).then(|| self.bus.peek_code(va))??;
        if frame.checked_add(PAGE_SIZE).is_none_or(|end| end > ram) {
            return None;
        }
        self.fetched.insert(va / PAGE_SIZE);
        if self.bus.may_cache(va, Access::Execute) {
            self.fetches.insert(va, frame);
        }
        Some(frame + va % PAGE_SIZE)
    }

    #[cold]
    #[inline(never)]
    fn miss_of(&mut self, va: u64, access: Access, bytes: u64) -> Exec<u64> {
        self.bus.expect_length(Some(bytes));
        let found = self.miss(va, access);
        self.bus.expect_length(None);
        found
    }

    #[cold]
    #[inline(never)]
    fn miss(&mut self, va: u64, access: Access) -> Exec<u64> {
        let Translation { frame, .. } = self.translate(va, access)?;
        let tlb = match access {
            Access::Read => &mut self.reads,
            Access::Execute => {
                self.fetched.insert(va / PAGE_SIZE);
                &mut self.fetches
            }
            Access::Write if self.frames.has_code(frame) => {
                self.code_store = Some(frame);
                return Err(Trap::Page);
            }
            Access::Write => {
                self.frames.add_written(frame);
                &mut self.writes
            }
        };
        if self.bus.may_cache(va, access) {
            tlb.insert(va, frame);
        } else if let Some(bytes) = self.bus.part_around(va, access) {
            tlb.insert_part(va, frame, &bytes);
        }
        Ok(frame + va % PAGE_SIZE)
    }

    fn translate(&mut self, va: u64, access: Access) -> Exec<Translation> {
        if !is_canonical(va) {
            return Err(Trap::General);
        }
        let ram = self.bus.ram().len() as u64;
        match self.bus.translate(va, access) {
            Ok(t) if t.frame.checked_add(PAGE_SIZE).is_some_and(|end| end <= ram) => Ok(t),
            Ok(_) => Err(self.page_fault(PageFault::new(va, access, false))),
            Err(fault) => Err(self.page_fault(fault)),
        }
    }

    fn page_fault(&mut self, fault: PageFault) -> Trap {
        self.fault = Some(fault);
        Trap::Page
    }

    /// Keeps `frame` out of the write cache from now on: instructions have been decoded from it.
    pub(crate) fn mark_code(&mut self, frame: u64) {
        // What no store was allowed to is in no cache of stores.
        if self.frames.add_code(frame, self.bus.ram()) && self.frames.is_written(frame) {
            self.writes.remove_frame(frame);
            if let Some(parked) = &mut self.parked {
                parked.remove_writes_of(frame);
            }
        }
    }
}
