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

/// A translation of a part of a page of which other bytes are watched ([`crate::bus::Bus::part_around`]). Compiled code that often comes
/// to such a page looks here.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub struct Part {
    /// The address of its first byte; behind `last` where there is none.
    pub first: u64,
    /// The address of its last byte.
    pub last: u64,
    /// As in [`Entry`].
    pub addend: u64,
}

const NO_PART: Part = Part { first: u64::MAX, last: 0, addend: 0 };

/// Parts that are cached; a power of two.
pub const PARTS: usize = 16;

/// What begins at `va` may be in the part of number `va >> PART_BITS[0] ^ va >> PART_BITS[1]`, modulo [`PARTS`], and in no other. Neighbours
/// in memory with watched bytes in between have different ones, and so have the same places of neighbouring pages.
pub const PART_BITS: [u32; 2] = [3, PAGE_SIZE.trailing_zeros()];

#[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
const fn part(va: u64) -> usize {
    (va >> PART_BITS[0] ^ va >> PART_BITS[1]) as usize % PARTS
}

/// The cache.
#[derive(Clone)]
pub(crate) struct Tlb {
    entries: Box<[Entry; ENTRIES]>,
    /// Those of parts of pages, which are in none of the entries.
    parts: Box<[Part; PARTS]>,
    has_parts: bool,
    /// Whether one of them was inserted since that was asked.
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
        Tlb {
            entries,
            parts: Box::new([NO_PART; PARTS]),
            has_parts: false,
            met_watched: false,
            filled: Vec::with_capacity(FEW + 1),
            reach: 0,
        }
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

    /// These bytes of the page of `va`, which is one of them.
    pub(crate) fn insert_part(&mut self, va: u64, frame: u64, bytes: &Range<u64>) {
        let addend = frame.wrapping_sub(va / PAGE_SIZE * PAGE_SIZE);
        self.parts[part(va)] = Part { first: bytes.start, last: bytes.end.saturating_sub(1), addend };
        (self.has_parts, self.met_watched) = (true, true);
        self.reach = self.reach.max(frame + PAGE_SIZE);
    }

    /// Whether a part was inserted since this was called last.
    pub(crate) const fn take_met_watched(&mut self) -> bool {
        std::mem::replace(&mut self.met_watched, false)
    }

    pub(crate) fn parts(&self) -> &[Part; PARTS] {
        &self.parts
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
        if self.has_parts {
            let is_of_page = |it: &&mut Part| it.first / PAGE_SIZE == page;
            self.parts.iter_mut().filter(is_of_page).for_each(|it| *it = NO_PART);
        }
    }

    fn clear_parts(&mut self) {
        if std::mem::take(&mut self.has_parts) {
            self.parts.fill(NO_PART);
        }
    }

    /// Forgets every page that lives in `frame`.
    pub(crate) fn remove_frame(&mut self, frame: u64) {
        for entry in self.entries.iter_mut().filter(|entry| entry.frame() == frame) {
            *entry = EMPTY;
        }
        self.clear_parts();
    }

    pub(crate) fn clear(&mut self) {
        self.clear_parts();
        if self.filled.len() > FEW {
            self.entries.fill(EMPTY);
        }
        for slot in self.filled.drain(..) {
            self.entries[usize::from(slot)] = EMPTY;
        }
    }
}
