//! How the personality reads and writes the guest's memory: every pointer and length is checked against what
//! the guest itself may touch, and a bad one is an error for the guest (EFAULT), never one of ours.

use super::space::{Access, AddressSpace, SpaceError, allows};
use super::vma::{Backing, page_of, page_up};
use crate::ram::{Memory, PAGE, PAGE_LEN, Phys, StalePage, Virt, Written};
use std::cell::Cell;
use std::ops::Range;

/// Why guest memory cannot be accessed.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The guest may not touch it: EFAULT.
    #[error("the guest's pointer is bad")]
    Bad,
    /// Something beneath the guest failed.
    #[error(transparent)]
    Space(#[from] SpaceError),
}

/// Splits `length` bytes at `address` at page boundaries: address and range of the buffer. None if it wraps
/// around.
fn pages(address: Virt, length: usize) -> Option<impl Iterator<Item = (Virt, Range<usize>)>> {
    let end = address.checked_add(length as u64)?;
    let mut at = address;
    Some(std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let stop = end.min(page_of(at).saturating_add(PAGE));
        let index = |va: Virt| usize::try_from(va - address).expect("an offset inside a slice");
        let part = (at, index(at)..index(stop));
        at = stop;
        Some(part)
    }))
}

impl AddressSpace {
    /// The frame and the range in it where the bytes are, if they lie in one page and its page table entry allows the access:
    /// then there is nothing to grow, to make resident or to copy. Not of stores to a page that is executed, too.
    fn direct(
        &self,
        memory: &Memory,
        address: Virt,
        length: usize,
        access: Access,
    ) -> Option<(Phys, Range<usize>)> {
        let from = usize::try_from(address % PAGE).expect("an offset inside a page");
        let part = from..from.checked_add(length).filter(|end| *end <= PAGE_LEN)?;
        let found = self.tables.walk(memory.ram(), address)?;
        let rights = found.rights?;
        let allowed = match access {
            Access::Read => true,
            Access::Write => rights.write && !rights.execute,
            Access::Execute => rights.execute,
        };
        allowed.then_some((found.frame, part))
    }

    /// How many of `length` bytes at `address` the guest may access so, from the first on.
    pub fn accessible(&mut self, memory: &Memory, address: Virt, length: u64, access: Access) -> u64 {
        let len = usize::try_from(length).unwrap_or(usize::MAX);
        if self.direct(memory, address, len, access).is_some() {
            return length;
        }
        self.grow_stack(address);
        let end = address.saturating_add(length);
        let mut at = address;
        while at < end {
            let Some((start, mapping)) = self.mappings().find(at) else { break };
            let rest = match &mapping.backing {
                Backing::Zero(_) => None,
                Backing::File(content, from) => Some(content.size.saturating_sub(*from)),
                Backing::Shared(object, from) | Backing::Copied(object, from) => {
                    Some(object.size(memory).saturating_sub(*from))
                }
            };
            let end_of_file = rest.and_then(page_up).and_then(|rest| start.checked_add(rest));
            let usable = end_of_file.map_or(mapping.end, |end| mapping.end.min(end));
            if !allows(mapping.rights, access) || usable <= at {
                break;
            }
            at = usable;
        }
        at.min(end) - address
    }

    /// Reads what the guest may read. Makes nothing resident.
    pub fn read(&mut self, memory: &Memory, address: Virt, bytes: &mut [u8]) -> Result<(), AccessError> {
        if let Some((frame, part)) = self.direct(memory, address, bytes.len(), Access::Read) {
            bytes.copy_from_slice(&memory.ram().frame(frame)[part]);
            return Ok(());
        }
        let length = bytes.len() as u64;
        if self.accessible(memory, address, length, Access::Read) < length {
            return Err(AccessError::Bad);
        }
        if self.copy(memory, address, bytes) { Ok(()) } else { Err(AccessError::Bad) }
    }

    /// Writes what the guest may write; nothing is written if it may not write it all.
    pub fn write(&mut self, memory: &mut Memory, address: Virt, bytes: &[u8]) -> Result<(), AccessError> {
        let length = bytes.len() as u64;
        if let Some((frame, part)) = self.direct(memory, address, bytes.len(), Access::Write) {
            memory.writes(Written { root: self.root(), address, len: length });
            memory.ram_mut().frame_mut(frame)[part].copy_from_slice(bytes);
            return Ok(());
        }
        if self.accessible(memory, address, length, Access::Write) < length {
            return Err(AccessError::Bad);
        }
        let parts = pages(address, bytes.len()).ok_or(AccessError::Bad)?;
        memory.writes(Written { root: self.root(), address, len: length });
        for (at, part) in parts {
            self.touch(memory, at, Access::Write)?.map_err(|_| AccessError::Bad)?;
            self.poke(memory, at, &bytes[part])?;
        }
        Ok(())
    }

    /// Writes inside one resident page, whatever its rights.
    pub(crate) fn poke(
        &mut self,
        memory: &mut Memory,
        address: Virt,
        bytes: &[u8],
    ) -> Result<(), AccessError> {
        let page = page_of(address);
        let frame = self.frame(memory.ram(), page).ok_or(AccessError::Bad)?;
        let from = usize::try_from(address - page).expect("an offset inside a page");
        memory.ram_mut().frame_mut(frame)[from..from + bytes.len()].copy_from_slice(bytes);
        if self.mappings().find(page).is_some_and(|(_, mapping)| mapping.rights.execute) {
            memory.invalidate([StalePage { page, frame }]);
        }
        Ok(())
    }

    /// Reads whatever its rights are, as the guest would see it (with rewritten machine reads); false if a
    /// byte is not mapped.
    pub(crate) fn copy(&self, memory: &Memory, address: Virt, bytes: &mut [u8]) -> bool {
        let Some(mut parts) = pages(address, bytes.len()) else { return false };
        parts.all(|(at, part)| self.copy_page(memory, at, &mut bytes[part]))
    }

    /// Reads whatever its rights are, with the program's own instructions; false if a byte is not mapped.
    pub fn read_original(&self, memory: &Memory, address: Virt, bytes: &mut [u8]) -> bool {
        let mapped = self.copy(memory, address, bytes);
        self.sites().reveal(address, bytes);
        mapped
    }

    /// The 64-bit word at `address`, whatever its rights are, if it is resident. `last` keeps the page that was read last
    /// and its frame: for stacks, where one word is near the other.
    pub(crate) fn word(
        &self,
        memory: &Memory,
        address: Virt,
        last: &Cell<Option<(Virt, Phys)>>,
    ) -> Option<u64> {
        let page = page_of(address);
        if !address.is_multiple_of(8) {
            let mut bytes = [0; 8];
            return self.copy(memory, address, &mut bytes).then(|| u64::from_le_bytes(bytes));
        }
        let found = last.get().filter(|(of, _)| *of == page);
        let (_, frame) = found.or_else(|| self.frame(memory.ram(), page).map(|frame| (page, frame)))?;
        last.set(Some((page, frame)));
        Some(memory.ram().word(frame + (address - page)))
    }

    /// Reads a string up to its zero byte, which is not part of it; `limit` includes it. `Ok(None)` if there
    /// is no zero byte so far.
    pub fn read_string(
        &mut self,
        memory: &Memory,
        address: Virt,
        limit: usize,
    ) -> Result<Option<Vec<u8>>, AccessError> {
        let mut text = Vec::new();
        let parts = pages(address, limit).ok_or(AccessError::Bad)?;
        for (at, part) in parts {
            let mut bytes = vec![0; part.len()];
            self.read(memory, at, &mut bytes)?;
            if let Some(end) = bytes.iter().position(|&byte| byte == 0) {
                text.extend_from_slice(&bytes[..end]);
                return Ok(Some(text));
            }
            text.extend_from_slice(&bytes);
        }
        Ok(None)
    }
}
