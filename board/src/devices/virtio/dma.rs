//! The guest's memory as a device sees it, which notes what it has written there.

use crate::memory::frames;
use std::collections::BTreeSet;

/// Memory, for as long as a device is served.
pub(crate) struct Dma<'m> {
    pub(crate) ram: &'m mut [u8],
    /// The frames that were written: their first addresses.
    pub(crate) written: &'m mut BTreeSet<u64>,
}

impl Dma<'_> {
    /// A piece of memory; `None` where a part of it is none.
    pub(in crate::devices) fn get(&self, at: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(at).ok()?;
        self.ram.get(start..start.checked_add(length)?)
    }

    pub(in crate::devices) fn bytes<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        self.get(at, N)?.try_into().ok()
    }

    pub(in crate::devices) fn half(&self, at: u64) -> Option<u16> {
        self.bytes(at).map(u16::from_le_bytes)
    }

    /// Writes all of it, or nothing where that is not memory.
    pub(in crate::devices) fn put(&mut self, at: u64, bytes: &[u8]) -> Option<()> {
        let start = usize::try_from(at).ok()?;
        let room = self.ram.get_mut(start..start.checked_add(bytes.len())?)?;
        room.copy_from_slice(bytes);
        self.written.extend(frames(at, bytes.len() as u64));
        Some(())
    }
}
