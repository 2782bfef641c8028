//! The memory of a program as a walker sees it.

use crate::engine::Virt;
use std::ops::Range;

/// The memory of a program whose stack is walked.
pub trait Space {
    /// The 64-bit word at an address, if it is in memory.
    fn word(&self, address: Virt) -> Option<u64>;
    /// Reads the program's own code and tables, whether they were touched or not; false if any is not mapped.
    fn read(&self, address: Virt, bytes: &mut [u8]) -> bool;
    /// The file that is mapped at an address.
    fn file(&self, address: Virt) -> Option<MappedFile<'_>>;
    /// Another number where other code may be mapped.
    fn layout(&self) -> u64;
}

/// A file that is mapped, and where: all of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile<'a> {
    /// From its beginning to behind its last part.
    pub range: Range<Virt>,
    /// Its path.
    pub name: &'a str,
}

/// A part of a file that is mapped.
#[derive(Clone, Debug)]
pub struct Piece<'a> {
    /// Where.
    pub range: Range<Virt>,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file's path; empty where there is none.
    pub name: &'a str,
}

impl<'a> MappedFile<'a> {
    /// The file of which `at` is a part, whose neighbours `below` and `above` are, the nearest first. `None` if its beginning is not
    /// mapped: then its own headers are not there to read.
    pub fn around(
        at: Piece<'a>,
        below: impl Iterator<Item = Piece<'a>>,
        above: impl Iterator<Item = Piece<'a>>,
    ) -> Option<MappedFile<'a>> {
        let name = Some(at.name).filter(|name| !name.is_empty())?;
        let mut same = std::iter::once(at.clone()).chain(below).take_while(|part| part.name == name);
        let start = same.find(|part| part.offset == 0)?.range.start;
        // The same file, loaded once more, begins anew.
        let rest = above.take_while(|part| part.name == name && part.offset != 0);
        let end = rest.last().map_or(at.range.end, |part| part.range.end);
        Some(MappedFile { range: start..end, name })
    }
}

/// Memory of which only words are known: then all of the program's code is in its executable.
pub struct Words<'a>(pub &'a dyn Fn(Virt) -> Option<u64>);

impl Space for Words<'_> {
    fn word(&self, address: Virt) -> Option<u64> {
        (self.0)(address)
    }

    fn read(&self, _: Virt, _: &mut [u8]) -> bool {
        false
    }

    fn file(&self, _: Virt) -> Option<MappedFile<'_>> {
        None
    }

    fn layout(&self) -> u64 {
        0
    }
}
