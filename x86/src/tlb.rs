//! A direct-mapped cache of translations. Reads, writes and fetches have one each, so that a hit is one compare
//! and a miss is the hook for whatever the first access of its kind must notice.

use crate::bus::PAGE_SIZE;

/// Entries; a power of two. Regions of a program often lie whole megabytes apart: pages that far from each other must not
/// share an entry.
const ENTRIES: usize = 1024;

#[derive(Clone, Copy)]
struct Entry {
    /// The page number, or [`EMPTY`].
    page: u64,
    /// The number of its frame in RAM.
    frame: u64,
}

/// A page number that no 64-bit address has.
const EMPTY: Entry = Entry { page: u64::MAX, frame: 0 };

/// The cache.
#[derive(Clone)]
pub(crate) struct Tlb {
    entries: Box<[Entry; ENTRIES]>,
    /// The slots that were filled since the last [`Tlb::clear`], if they are no more than [`FEW`]; then one more.
    filled: Vec<u16>,
}

/// So many entries are cleared one by one: whoever asks often what was written finds few.
const FEW: usize = 32;

#[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
#[inline(always)]
const fn slot(page: u64) -> usize {
    page as usize % ENTRIES
}

impl Tlb {
    pub(crate) fn new() -> Tlb {
        Tlb { entries: Box::new([EMPTY; ENTRIES]), filled: Vec::with_capacity(FEW + 1) }
    }

    /// The RAM offset of `va` if its page is cached.
    #[inline(always)]
    pub(crate) fn get(&self, va: u64) -> Option<u64> {
        let page = va / PAGE_SIZE;
        let entry = &self.entries[slot(page)];
        (entry.page == page).then_some(entry.frame * PAGE_SIZE + va % PAGE_SIZE)
    }

    /// The number of the frame of `va` if its page is cached.
    #[inline(always)]
    pub(crate) fn frame(&self, va: u64) -> Option<u64> {
        let page = va / PAGE_SIZE;
        let entry = &self.entries[slot(page)];
        (entry.page == page).then_some(entry.frame)
    }

    pub(crate) fn insert(&mut self, va: u64, frame: u64) {
        let page = va / PAGE_SIZE;
        self.entries[slot(page)] = Entry { page, frame: frame / PAGE_SIZE };
        if self.filled.len() <= FEW {
            self.filled.push(u16::try_from(slot(page)).expect("there are fewer entries"));
        }
    }

    pub(crate) fn remove(&mut self, va: u64) {
        let page = va / PAGE_SIZE;
        let entry = &mut self.entries[slot(page)];
        if entry.page == page {
            *entry = EMPTY;
        }
    }

    /// Forgets every page that lives in `frame`.
    pub(crate) fn remove_frame(&mut self, frame: u64) {
        for entry in self.entries.iter_mut().filter(|e| e.frame == frame / PAGE_SIZE) {
            *entry = EMPTY;
        }
    }

    pub(crate) fn clear(&mut self) {
        if self.filled.len() > FEW {
            self.entries.fill(EMPTY);
        }
        for slot in self.filled.drain(..) {
            self.entries[usize::from(slot)] = EMPTY;
        }
    }
}
