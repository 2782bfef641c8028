//! Addresses to source lines and inlined functions, read from DWARF when first asked for.

use gimli::{EndianArcSlice, LittleEndian, SectionId};
use std::cell::OnceCell;
use std::sync::Arc;

type Reader = EndianArcSlice<LittleEndian>;

/// A function in the source that an instruction belongs to: the one that was compiled, or one inlined there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFrame {
    /// Its name in the debug information.
    pub function: Option<String>,
    /// The file as the compiler was given it.
    pub file: Option<String>,
    /// The line, from 1: of the instruction, or of the call that was inlined.
    pub line: Option<u32>,
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

    /// The functions that the instruction at `va` belongs to, the innermost inlined one first. Damaged debug
    /// information is the same as none: it decides nothing.
    pub(super) fn frames(&self, va: u64) -> Vec<SourceFrame> {
        let Some(context) = self.context.get_or_init(|| self.load()) else { return Vec::new() };
        let mut frames = Vec::new();
        if let Ok(mut found) = context.find_frames(va.wrapping_sub(self.bias)).skip_all_loads() {
            while let Ok(Some(frame)) = found.next() {
                let function = frame.function.and_then(|name| Some(name.raw_name().ok()?.into_owned()));
                let (file, line) = frame.location.map_or((None, None), |at| (at.file, at.line));
                let (file, line) = (file.map(str::to_owned), line.filter(|line| *line > 0));
                frames.push(SourceFrame { function, file, line });
            }
        }
        frames
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
