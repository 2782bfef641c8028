//! Addresses to source lines, read from DWARF when first asked for.

use gimli::{EndianArcSlice, LittleEndian, SectionId};
use std::cell::OnceCell;
use std::sync::Arc;

type Reader = EndianArcSlice<LittleEndian>;

/// A place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLine<'a> {
    /// The file as the compiler was given it.
    pub file: &'a str,
    /// The line, from 1.
    pub line: u32,
}

/// The line table of one executable.
pub(super) struct Lines {
    sections: Vec<(String, Arc<[u8]>)>,
    bias: u64,
    context: OnceCell<Option<addr2line::Context<Reader>>>,
}

impl Lines {
    /// Keeps the debug sections for later.
    pub(super) fn new(sections: Vec<(String, Arc<[u8]>)>, bias: u64) -> Lines {
        Lines { sections, bias, context: OnceCell::new() }
    }

    /// The line of the instruction at `va`. Damaged debug information is the same as none: it decides nothing.
    pub(super) fn at(&self, va: u64) -> Option<SourceLine<'_>> {
        let context = self.context.get_or_init(|| self.load()).as_ref()?;
        let location = context.find_location(va.wrapping_sub(self.bias)).ok()??;
        Some(SourceLine { file: location.file?, line: location.line.filter(|line| *line > 0)? })
    }

    fn load(&self) -> Option<addr2line::Context<Reader>> {
        if !self.sections.iter().any(|(name, _)| name == ".debug_line") {
            return None;
        }
        let section = |id: SectionId| {
            let found = self.sections.iter().find(|(name, _)| name == id.name());
            let bytes = found.map_or_else(|| Arc::from([]), |(_, bytes)| Arc::clone(bytes));
            Ok::<_, gimli::Error>(Reader::new(bytes, LittleEndian))
        };
        addr2line::Context::from_dwarf(gimli::Dwarf::load(section).ok()?).ok()
    }
}
