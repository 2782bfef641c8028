//! Memory and what is on the disk by pages, and which of them have changed.

use crate::devices::disk::{BLOCK, Block};
use std::collections::BTreeSet;

/// The bytes of a frame of memory, and of a block of the disk.
pub(crate) const PAGE: usize = BLOCK;
/// What is in one.
pub(crate) type Page = Block;

/// The first addresses of the frames that so many bytes are in.
pub(crate) fn frames(at: u64, length: u64) -> impl Iterator<Item = u64> {
    const SIZE: u64 = PAGE as u64;
    let first = at / SIZE;
    let end = if length == 0 { first } else { at.saturating_add(length).div_ceil(SIZE) };
    (first..end).map(|frame| frame * SIZE)
}

/// What has changed of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dirty {
    /// Frames of memory: their first addresses.
    pub(crate) frames: BTreeSet<u64>,
    /// Blocks of the disk, by number.
    pub(crate) blocks: BTreeSet<u64>,
}

impl Dirty {
    pub(crate) fn add(&mut self, other: &Dirty) {
        self.frames.extend(&other.frames);
        self.blocks.extend(&other.blocks);
    }
}

/// A frame of memory, which may also be the processor's window behind it, which is none.
pub(crate) fn page(ram: &[u8], frame: u64) -> Option<&Page> {
    let at = usize::try_from(frame).ok()?;
    ram.get(at..at.checked_add(PAGE)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_in_the_frames_that_they_touch() {
        let of = |at, length| frames(at, length).collect::<Vec<_>>();
        assert_eq!((of(0x1fff, 1), of(0x1fff, 2)), (vec![0x1000], vec![0x1000, 0x2000]));
        assert_eq!((of(0x1001, 0), of(0x1000, 4096)), (vec![], vec![0x1000]));
        assert_eq!(page(&[7; 4096], 0), Some(&[7; 4096]));
        assert_eq!(page(&[7; 4096], 4096), None);
    }
}
