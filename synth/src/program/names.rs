//! What one file says of names, lines and types, without decoding its code: for who looks at a program, and does not search in it.

use super::elf::CodeSymbol;
use super::functions::{self, Function, unnamed};
use super::lines::{Lines, Reader, SourceFrame};
use super::{ProgramError, elf, take_tables};
use std::ops::Range;
use std::sync::Arc;
use vmm::elfcore::Module;

/// A name of code, at its run-time address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// The name, as the linker has it.
    pub name: String,
    /// The first address.
    pub start: u64,
    /// The code there only chooses what is called by this name (IFUNC).
    pub indirect: bool,
}

/// The names of one file that is loaded.
pub struct Names {
    /// By address, without overlaps.
    functions: Vec<Function>,
    /// By address; several may have one.
    symbols: Vec<Symbol>,
    extent: Range<u64>,
    lines: Vec<(Range<u64>, Lines)>,
}

impl Names {
    /// Reads them.
    ///
    /// # Errors
    /// When it is not an x86-64 ELF executable or library, or is damaged.
    pub fn of(module: Module<'_>) -> Result<Names, ProgramError> {
        let (image, tables) = elf::parse(module.bytes, module.bias)?;
        let (mut symbols, mut lines) = (Vec::new(), Vec::new());
        take_tables(module, &image, tables, &mut symbols, &mut lines);
        let mut functions = functions::extents(&symbols, &image.code);
        functions.retain(|function| function.name != unnamed(function.start));
        let named = symbols.into_iter().filter(|symbol| !symbol.name.is_empty());
        let symbol = |it: CodeSymbol| Symbol { name: it.name, start: it.start, indirect: it.indirect };
        let mut symbols: Vec<Symbol> = named.map(symbol).collect();
        symbols.sort_by(|a, b| (a.start, &a.name).cmp(&(b.start, &b.name)));
        symbols.dedup();
        Ok(Names { functions, symbols, extent: image.extent(), lines })
    }

    /// From the first to the last address that the file loads.
    #[must_use]
    pub fn extent(&self) -> Range<u64> {
        self.extent.clone()
    }

    /// The function that `va` is in, if it has a name.
    #[must_use]
    pub fn function_at(&self, va: u64) -> Option<&Function> {
        let after = self.functions.partition_point(|function| function.start <= va);
        self.functions[..after].last().filter(|function| va < function.end)
    }

    /// All names of code, by address.
    #[must_use]
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// As [`super::Program::source_frames`].
    #[must_use]
    pub fn source_frames(&self, va: u64) -> Vec<SourceFrame> {
        self.lines.first().map_or_else(Vec::new, |(_, lines)| lines.frames(va))
    }

    /// The file's debug information, whose addresses are those in the file.
    #[must_use]
    pub fn dwarf(&self) -> Option<&Arc<gimli::Dwarf<Reader>>> {
        self.lines.first().and_then(|(_, lines)| lines.dwarf())
    }
}
