//! The memory of the task that is loaded, for who walks its stack.

use crate::memory::AddressSpace;
use crate::memory::vma::{Backing, Mapping};
use crate::ram::{Memory, Phys, Virt};
use crate::stack::{MappedFile, Piece, Space};
use std::cell::Cell;

pub(super) struct Walked<'a> {
    space: &'a AddressSpace,
    memory: &'a Memory,
    /// The page that was read last, and its frame.
    resident: Cell<Option<(Virt, Phys)>>,
}

impl<'a> Walked<'a> {
    pub(super) fn new(space: &'a AddressSpace, memory: &'a Memory) -> Walked<'a> {
        Walked { space, memory, resident: Cell::new(None) }
    }
}

impl Space for Walked<'_> {
    fn word(&self, address: Virt) -> Option<u64> {
        self.space.word(self.memory, address, &self.resident)
    }

    fn read(&self, address: Virt, bytes: &mut [u8]) -> bool {
        self.space.read_original(self.memory, address, bytes)
    }

    fn file(&self, address: Virt) -> Option<MappedFile<'_>> {
        let mappings = self.space.mappings();
        let (start, mapping) = mappings.find(address)?;
        let below = mappings.below(start).map(piece);
        let above = mappings.iter_from(mapping.end).map(piece);
        MappedFile::around(piece((start, mapping)), below, above)
    }

    fn layout(&self) -> u64 {
        self.space.mappings().code()
    }
}

fn piece((start, mapping): (Virt, &Mapping)) -> Piece<'_> {
    let (name, offset) = match &mapping.backing {
        Backing::Zero(_) => ("", 0),
        Backing::File(content, at) => (content.name.as_str(), content.file_offset + at),
        Backing::Shared(object, at) | Backing::Copied(object, at) => (object.name.as_str(), *at),
    };
    let name = if name.starts_with('/') { name } else { "" };
    Piece { range: start..mapping.end, offset, name }
}
