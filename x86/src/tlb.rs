//! A direct-mapped cache of translations. Reads, writes and fetches have one each, so that a hit is one compare
//! and a miss is the hook for whatever the first access of its kind must notice.
//!
//! Compiled code looks entries up by itself (see [`crate::cpu::Parts`]), so their layout is part of the interface.

use crate::bus::PAGE_SIZE;
use std::ops::Range;

/// Entries; a power of two. Regions of a program often lie whole megabytes apart: pages that far from each other must not
/// share an entry. With 1,024 of them python3 missed 500 times in a million instructions.
pub const ENTRIES: usize = 8192;

/// A translation that is cached. Page `n` may be in entry `n % ENTRIES` and in no other.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Entry {
    /// The page number; [`u64::MAX`], which no page has, where there is none.
    pub page: u64,
    /// What is added to an address in it for the offset in RAM, modulo 2^64.
    pub addend: u64,
}

/// No translation.
const EMPTY: Entry = Entry { page: u64::MAX, addend: 0 };

impl Entry {
    /// The offset of its frame in RAM.
    const fn frame(&self) -> u64 {
        self.page.wrapping_mul(PAGE_SIZE).wrapping_add(self.addend)
    }
}

/// A translation of a page of which some bytes are watched ([`crate::bus::Bus::watched`]): it holds for what
/// touches none of them. Compiled code that often comes to such a page looks here.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Around {
    /// As in [`Entry`].
    pub page: u64,
    /// As in [`Entry`].
    pub addend: u64,
    /// The first of these bytes.
    pub first: u64,
    /// The last one.
    pub last: u64,
}

const NOWHERE: Around = Around { page: EMPTY.page, addend: 0, first: 0, last: u64::MAX };

/// The cache.
#[derive(Clone)]
pub(crate) struct Tlb {
    entries: Box<[Entry; ENTRIES]>,
    /// The newest one; it is in none of the entries.
    around: Around,
    /// Whether there was one since that was asked.
    met_watched: bool,
    /// The slots that were filled since the last [`Tlb::clear`], if they are no more than [`FEW`]; then one more.
    filled: Vec<u16>,
    /// No frame that was ever cached ends behind this.
    reach: u64,
}

/// So many entries are cleared one by one: whoever asks often what was written finds few.
const FEW: usize = 256;

#[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
#[inline(always)]
const fn slot(page: u64) -> usize {
    page as usize % ENTRIES
}

impl Tlb {
    pub(crate) fn new() -> Tlb {
        let entries = vec![EMPTY; ENTRIES].try_into().expect("there are so many");
        Tlb { entries, around: NOWHERE, met_watched: false, filled: Vec::with_capacity(FEW + 1), reach: 0 }
    }

    /// The RAM offset of `va` if its page is cached.
    #[inline(always)]
    pub(crate) fn get(&self, va: u64) -> Option<u64> {
        let page = va / PAGE_SIZE;
        let entry = &self.entries[slot(page)];
        (entry.page == page).then_some(va.wrapping_add(entry.addend))
    }

    /// The number of the frame of `va` if its page is cached.
    #[inline(always)]
    pub(crate) fn frame(&self, va: u64) -> Option<u64> {
        self.get(va).map(|at| at / PAGE_SIZE)
    }

    pub(crate) fn insert(&mut self, va: u64, frame: u64) {
        let page = va / PAGE_SIZE;
        self.entries[slot(page)] = Entry { page, addend: frame.wrapping_sub(page * PAGE_SIZE) };
        self.reach = self.reach.max(frame + PAGE_SIZE);
        if self.filled.len() <= FEW {
            self.filled.push(u16::try_from(slot(page)).expect("there are fewer entries"));
        }
    }

    /// The page of `va`, but for these bytes of it.
    pub(crate) fn insert_around(&mut self, va: u64, frame: u64, bytes: &Range<u64>) {
        let page = va / PAGE_SIZE;
        let (first, last) = (bytes.start, bytes.end.saturating_sub(1));
        self.around = Around { page, addend: frame.wrapping_sub(page * PAGE_SIZE), first, last };
        self.met_watched = true;
        self.reach = self.reach.max(frame + PAGE_SIZE);
    }

    /// Whether a page of which some bytes are watched was accessed since this was called last.
    pub(crate) const fn take_met_watched(&mut self) -> bool {
        std::mem::replace(&mut self.met_watched, false)
    }

    pub(crate) fn around(&self) -> &Around {
        &self.around
    }

    pub(crate) fn entries(&self) -> &[Entry; ENTRIES] {
        &self.entries
    }

    pub(crate) fn reach(&self) -> u64 {
        self.reach
    }

    pub(crate) fn remove(&mut self, va: u64) {
        let page = va / PAGE_SIZE;
        let entry = &mut self.entries[slot(page)];
        if entry.page == page {
            *entry = EMPTY;
        }
        if self.around.page == page {
            self.around = NOWHERE;
        }
    }

    /// Forgets every page that lives in `frame`.
    pub(crate) fn remove_frame(&mut self, frame: u64) {
        for entry in self.entries.iter_mut().filter(|entry| entry.frame() == frame) {
            *entry = EMPTY;
        }
        self.around = NOWHERE;
    }

    pub(crate) fn clear(&mut self) {
        self.around = NOWHERE;
        if self.filled.len() > FEW {
            self.entries.fill(EMPTY);
        }
        for slot in self.filled.drain(..) {
            self.entries[usize::from(slot)] = EMPTY;
        }
    }
}
