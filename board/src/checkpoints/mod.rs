//! Checkpoints: whole states of a machine at moments of its recording, in one file beside the journal.
//!
//! A file is the magic `GRETELP\n`, the format's version (u32) and frames ([`vmm::journal::frame`]). Frames of the marker `GMPG` hold
//! pages of 4 KiB, which are numbered through the file. One of the marker `GMCP` is a [`Head`]: a checkpoint, which says which of the
//! pages are where. A page that has not changed since the checkpoint before is not written again. A page of zeros is in no head.
//!
//! A file that is torn or damaged is used as far as it is whole: [`Shelf`] knows which checkpoints these are.
//!
//! Example: a kernel has booted, and 21,000 pages are not zero. The first checkpoint has 83 frames of pages and a head; the second, a
//! thousand million instructions later, has 9 frames more, and a head that refers to both.

mod shelf;
mod writer;

pub use shelf::{Shelf, ShelfError};
pub use writer::Writer;

use crate::boot::{LEAST_MEMORY, MOST_MEMORY};
use crate::machine::Moment;
use crate::memory::PAGE;
use std::collections::BTreeMap;
use vmm::journal::numbers::{Cursor, put_u64};

/// The version of the format.
const VERSION: u32 = 3;
const MAGIC: &[u8; 8] = b"GRETELP\n";
const PAGES: &[u8; 4] = b"GMPG";
const HEAD: &[u8; 4] = b"GMCP";
/// Pages of a frame, at most.
const TOGETHER: usize = 256;

/// A checkpoint, but for its pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// When it was taken.
    pub(crate) retired: u64,
    pub(crate) time: u64,
    /// How many records of the journal are before it. The last of them is a check of this moment.
    pub(crate) records: u64,
    /// Bytes of RAM.
    pub(crate) memory: u64,
    /// Registers and devices.
    pub(crate) state: Vec<u64>,
    /// The numbers of pages: of frames of memory, by their own numbers, and of blocks of the disk.
    pub(crate) frames: BTreeMap<u64, u64>,
    pub(crate) blocks: BTreeMap<u64, u64>,
}

impl Head {
    /// When it was taken.
    pub(crate) fn at(&self) -> Moment {
        Moment { retired: self.retired, time: self.time }
    }

    /// Instructions `u`, time `u`, records `u`, memory `u`; the state, a list of `u`; frames, then blocks: lists of runs, of which each
    /// is the gap to the run before `u`, the number of its first page `u`, and how many there are `u`.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [self.retired, self.time, self.records, self.memory, self.state.len() as u64] {
            put_u64(&mut out, number);
        }
        self.state.iter().for_each(|word| put_u64(&mut out, *word));
        put_runs(&mut out, &self.frames);
        put_runs(&mut out, &self.blocks);
        out
    }

    /// Reads an encoding; `None` if it is not one, or one that refers to more pages than these.
    fn decode(bytes: &[u8], pages: u64) -> Option<Head> {
        let mut c = Cursor(bytes);
        let [retired, time, records, memory] = [c.u64()?, c.u64()?, c.u64()?, c.u64()?];
        if !(LEAST_MEMORY..=MOST_MEMORY).contains(&memory) {
            return None;
        }
        let state = c.list(Cursor::u64)?;
        let frames = take_runs(&mut c, memory / PAGE as u64, pages)?;
        // No image is longer than a file can be.
        let blocks = take_runs(&mut c, u64::MAX / PAGE as u64, pages)?;
        let head = Head { retired, time, records, memory, state, frames, blocks };
        c.0.is_empty().then_some(head)
    }
}

/// Appends a map from numbers to numbers of pages, as runs in which both rise by one.
fn put_runs(out: &mut Vec<u8>, map: &BTreeMap<u64, u64>) {
    let mut runs: Vec<(u64, u64, u64)> = Vec::new();
    for (at, page) in map {
        match runs.last_mut() {
            Some((start, first, count)) if *start + *count == *at && *first + *count == *page => *count += 1,
            _ => runs.push((*at, *page, 1)),
        }
    }
    put_u64(out, runs.len() as u64);
    let mut end = 0;
    for (start, first, count) in runs {
        put_u64(out, start - end);
        put_u64(out, first);
        put_u64(out, count);
        end = start + count;
    }
}

/// Reads that back; `None` where a number is not below `limit`, or there are not so many pages. No page is in two places.
fn take_runs(c: &mut Cursor<'_>, limit: u64, pages: u64) -> Option<BTreeMap<u64, u64>> {
    let (mut map, mut end) = (BTreeMap::new(), 0_u64);
    for _ in 0..c.u64()? {
        let (gap, first, count) = (c.u64()?, c.u64()?, c.u64()?);
        let start = end.checked_add(gap)?;
        end = start.checked_add(count).filter(|end| *end <= limit)?;
        first.checked_add(count).filter(|last| *last <= pages)?;
        (map.len() as u64).checked_add(count).filter(|all| *all <= pages)?;
        map.extend((start..end).zip(first..));
    }
    Some(map)
}

#[cfg(test)]
mod tests;
