//! Addresses to source lines and inlined functions, read from DWARF when first asked for; and names as the source has them.

use super::elf::{Sections, separate_debug};
use super::readable;
use gimli::{EndianArcSlice, LittleEndian, SectionId};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

/// How debug information is read.
pub type Reader = EndianArcSlice<LittleEndian>;

/// The debug information of a file, parsed.
struct Parsed {
    dwarf: Arc<gimli::Dwarf<Reader>>,
    context: addr2line::Context<Reader>,
}

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

/// Where the debug information of a file is.
pub(super) enum Debug {
    /// In its own sections.
    Sections(Sections),
    /// In another file, which was installed beside it.
    Separate(Arc<[u8]>),
}

/// The line table of one executable.
pub(super) struct Lines {
    debug: Debug,
    bias: u64,
    parsed: OnceCell<Option<Parsed>>,
}

impl Lines {
    /// Keeps the debug information for later.
    pub(super) fn new(debug: Debug, bias: u64) -> Lines {
        Lines { debug, bias, parsed: OnceCell::new() }
    }

    /// The functions that the instruction at `va` belongs to, the innermost inlined one first. Damaged debug
    /// information is the same as none: it decides nothing.
    pub(super) fn frames(&self, va: u64) -> Vec<SourceFrame> {
        let Some(parsed) = self.parsed() else { return Vec::new() };
        let mut frames = Vec::new();
        if let Ok(mut found) = parsed.context.find_frames(va.wrapping_sub(self.bias)).skip_all_loads() {
            while let Ok(Some(frame)) = found.next() {
                let function = frame.function.and_then(|name| Some(readable(&name.demangle().ok()?)));
                let (file, line) = frame.location.map_or((None, None), |at| (at.file, at.line));
                let (file, line) = (file.map(str::to_owned), line.filter(|line| *line > 0));
                frames.push(SourceFrame { function, file, line });
            }
        }
        frames
    }

    /// All of it, where there is any.
    pub(super) fn dwarf(&self) -> Option<&Arc<gimli::Dwarf<Reader>>> {
        self.parsed().map(|parsed| &parsed.dwarf)
    }

    fn parsed(&self) -> Option<&Parsed> {
        self.parsed.get_or_init(|| self.load()).as_ref()
    }

    fn load(&self) -> Option<Parsed> {
        let sections = match &self.debug {
            Debug::Sections(sections) => Cow::Borrowed(sections),
            Debug::Separate(file) => Cow::Owned(separate_debug(file)),
        };
        if !sections.iter().any(|(name, _)| name == ".debug_line") {
            return None;
        }
        let section = |id: SectionId| {
            let found = sections.iter().find(|(name, _)| name == id.name());
            let bytes = found.map_or_else(|| Arc::from([]), |(_, bytes)| Arc::clone(bytes));
            Ok::<_, gimli::Error>(Reader::new(bytes, LittleEndian))
        };
        let dwarf = Arc::new(gimli::Dwarf::load(section).ok()?);
        let context = addr2line::Context::from_arc_dwarf(Arc::clone(&dwarf)).ok()?;
        Some(Parsed { dwarf, context })
    }
}

/// A name as the source has it: what C++ and Rust compilers make of one is undone. All these begin with an underscore: to a demangler,
/// a function `f` would be the type `float`.
#[must_use]
pub fn demangled(name: &str) -> Cow<'_, str> {
    match name.starts_with('_') {
        true => addr2line::demangle_auto(Cow::Borrowed(name), None),
        false => Cow::Borrowed(name),
    }
}

#[cfg(test)]
mod tests {
    use super::demangled;

    #[test]
    fn names_are_as_in_the_source() {
        assert_eq!(demangled("_ZN5Cache3getEi"), "Cache::get(int)");
        assert_eq!(
            demangled("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"),
            "core::fmt::Write::write_fmt"
        );
        for name in ["main", "f", "i"] {
            assert_eq!(demangled(name), name);
        }
        assert_eq!(demangled("_Z"), "_Z");
    }
}
