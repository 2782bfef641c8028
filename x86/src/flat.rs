//! The simplest [`Bus`]: pages mapped one by one into a growing RAM, for tests, benchmarks and oracles.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::bus::{Access, Bus, PAGE_SIZE, PageFault, Translation, part_between};

/// What may be done with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection {
    /// It may be written. Reading is always allowed.
    pub write: bool,
    /// It may be executed.
    pub execute: bool,
}

impl Protection {
    /// Read only.
    pub const READ: Protection = Protection { write: false, execute: false };
    /// Read and write.
    pub const DATA: Protection = Protection { write: true, execute: false };
    /// Read and execute.
    pub const CODE: Protection = Protection { write: false, execute: true };
    /// All.
    pub const ALL: Protection = Protection { write: true, execute: true };
}

/// Memory of as many pages as are mapped.
#[derive(Clone, Debug, Default)]
pub struct Flat {
    ram: Vec<u8>,
    pages: BTreeMap<u64, (u64, Protection)>,
    /// Bytes that stores have to ask for, and how many have that began there.
    watched: Vec<Range<u64>>,
    asked: u64,
}

impl Flat {
    /// Nothing mapped.
    #[must_use]
    pub fn new() -> Flat {
        Flat::default()
    }

    /// Maps `bytes` at `va` (a multiple of the page size), zeros up to the end of the last page.
    pub fn map(&mut self, va: u64, bytes: &[u8], protection: Protection) {
        let page_size = usize::try_from(PAGE_SIZE).unwrap_or(usize::MAX);
        for (page, chunk) in (va / PAGE_SIZE..).zip(bytes.chunks(page_size)) {
            let frame = self.ram.len();
            self.ram.extend_from_slice(chunk);
            self.ram.resize(frame + page_size, 0);
            self.pages.insert(page, (frame as u64, protection));
        }
    }

    /// Maps the page of `va` to the frame at RAM offset `frame`, which other pages may lead to, too; the CPU must forget
    /// what was there.
    pub fn alias(&mut self, va: u64, frame: u64, protection: Protection) {
        self.pages.insert(va / PAGE_SIZE, (frame, protection));
    }

    /// Changes the protection of the mapped page of `va`; the CPU must forget it.
    pub fn protect(&mut self, va: u64, protection: Protection) {
        if let Some(page) = self.pages.get_mut(&(va / PAGE_SIZE)) {
            page.1 = protection;
        }
    }

    /// Unmaps the page of `va`; the CPU must forget it.
    pub fn unmap(&mut self, va: u64) {
        self.pages.remove(&(va / PAGE_SIZE));
    }

    /// Has stores ask for these bytes each time, and for no others; the CPU must forget the pages.
    pub fn watch(&mut self, bytes: &[Range<u64>]) {
        self.watched = bytes.to_vec();
    }

    fn is_on_page(bytes: &Range<u64>, va: u64) -> bool {
        (bytes.start / PAGE_SIZE..bytes.end.div_ceil(PAGE_SIZE)).contains(&(va / PAGE_SIZE))
    }

    /// How many stores have asked that begin in the bytes that are watched.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// The RAM offset of the byte at `va`.
    #[must_use]
    pub fn offset(&self, va: u64) -> Option<u64> {
        self.pages.get(&(va / PAGE_SIZE)).map(|(frame, _)| frame + va % PAGE_SIZE)
    }

    /// The byte at `va`.
    #[must_use]
    pub fn byte(&self, va: u64) -> Option<u8> {
        self.ram.get(usize::try_from(self.offset(va)?).ok()?).copied()
    }

    /// Writes a byte at `va` whatever its protection; false where nothing is mapped.
    pub fn set_byte(&mut self, va: u64, byte: u8) -> bool {
        let at = self.offset(va).and_then(|at| usize::try_from(at).ok());
        match at.and_then(|at| self.ram.get_mut(at)) {
            Some(to) => {
                *to = byte;
                true
            }
            None => false,
        }
    }
}

impl Bus for Flat {
    #[inline(always)]
    fn ram(&self) -> &[u8] {
        &self.ram
    }
    #[inline(always)]
    fn ram_mut(&mut self) -> &mut [u8] {
        &mut self.ram
    }
    fn translate(&mut self, va: u64, access: Access) -> Result<Translation, PageFault> {
        let Some(&(frame, Protection { write, execute })) = self.pages.get(&(va / PAGE_SIZE)) else {
            return Err(PageFault::new(va, access, false));
        };
        let allowed = match access {
            Access::Read => true,
            Access::Write => write,
            Access::Execute => execute,
        };
        if !allowed {
            return Err(PageFault::new(va, access, true));
        }
        if access == Access::Write && self.watched.iter().any(|bytes| bytes.contains(&va)) {
            self.asked += 1;
        }
        Ok(Translation { frame, writable: write, executable: execute })
    }

    fn may_cache(&self, va: u64, access: Access) -> bool {
        access != Access::Write || !self.watched.iter().any(|bytes| Flat::is_on_page(bytes, va))
    }

    fn part_around(&self, va: u64, _access: Access) -> Option<Range<u64>> {
        part_between(va, self.watched.iter().cloned())
    }
}
