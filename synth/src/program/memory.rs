//! A program as it lies in memory, without a file: the kernel of a machine, relocated and patched, with its modules.
//!
//! Whoever looks into the memory says where code is and what it is called ([`Layout`]); the bytes are the core's.

use super::code::Code;
use super::elf::{CodeSymbol, Image, Segment};
use super::functions;
use super::{OfKernel, Program, ProgramError, elf};
use std::ops::Range;
use std::sync::OnceLock;
use vmm::elfcore::Core;

/// Where a kernel is in its memory.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// Where its code is, modules included; parts that overlap are one.
    pub code: Vec<Range<u64>>,
    /// Where its own data are, in which tables of functions and jumps are looked for.
    pub data: Vec<Range<u64>>,
    /// Names of code: first addresses, and sizes, zero where they are not known.
    pub names: Vec<(u64, u64, String)>,
    /// Where control comes to from elsewhere: what the processor enters by itself, and by which way.
    pub entries: Vec<(u64, &'static str)>,
}

impl Layout {
    /// That of a kernel whose file is loaded where it says: an ELF executable.
    ///
    /// # Errors
    /// When it is none, or is damaged.
    pub fn of_file(bytes: &[u8]) -> Result<Layout, ProgramError> {
        let (image, tables) = elf::parse(bytes, 0)?;
        let code = image.code.iter().map(|piece| piece.start..piece.end());
        let data = image.segments.iter().map(|piece| piece.start..piece.start + piece.size);
        let named = tables.symbols.into_iter().filter(|symbol| !symbol.name.is_empty());
        Ok(Layout {
            code: code.collect(),
            data: data.collect(),
            names: named.map(|symbol| (symbol.start, symbol.size, symbol.name)).collect(),
            entries: Vec::new(),
        })
    }
}

impl Program {
    /// The kernel in a core.
    ///
    /// # Errors
    /// When no code is where it should be, or too much.
    pub fn in_memory(core: &Core, layout: &Layout) -> Result<Program, ProgramError> {
        let code = pieces(core, &layout.code, true);
        if code.is_empty() {
            return Err(ProgramError::NoCode);
        }
        elf::check_code(&code)?;
        let segments = pieces(core, &[&layout.code[..], &layout.data[..]].concat(), false);
        let constant = segments.iter().filter(|segment| !segment.writable);
        let constant = constant.map(|segment| segment.start..segment.end()).collect();
        let image = Image { entry: NOWHERE, segments, code, constant };
        let symbol = |(start, size, name): &(u64, u64, String)| CodeSymbol {
            start: *start,
            size: *size,
            name: name.clone(),
            indirect: false,
        };
        let symbols: Vec<CodeSymbol> = layout.names.iter().map(symbol).collect();
        let mut functions = functions::extents(&symbols, &image.code);
        let code = Code::decode(&image, &functions);
        functions::name_gaps(&mut functions, &image.code, &code);
        let entered = layout.entries.iter().copied().collect();
        let registers = core.machine.as_ref().map(|machine| machine.registers).unwrap_or_default();
        let (selectors, time_stamp_aux) =
            (registers.segments.map(|segment| segment.selector), registers.tsc_aux);
        Ok(Program {
            image,
            functions,
            code,
            lines: Vec::new(),
            modules: 1,
            vdso: None,
            restorers: OnceLock::new(),
            kernel: Some(OfKernel { entered, selectors, time_stamp_aux }),
        })
    }
}

/// A kernel has no entry point to come back to.
const NOWHERE: u64 = u64::MAX;

/// What the core holds of these ranges: pieces as they lie side by side, with the same rights; executable ones alone if `is_code`.
fn pieces(core: &Core, ranges: &[Range<u64>], is_code: bool) -> Vec<Segment> {
    let mut found: Vec<Segment> = Vec::new();
    for range in merged(ranges) {
        for (start, bytes) in core.known(range) {
            let Some(rights) = core.segment(start).map(|segment| segment.rights) else { continue };
            if is_code && !rights.execute {
                continue;
            }
            match found.last_mut() {
                Some(last) if last.end() == start && last.writable == rights.write => {
                    last.contents.extend_from_slice(bytes);
                    last.size = last.contents.len() as u64;
                }
                _ => found.push(Segment {
                    bias: 0,
                    start,
                    contents: bytes.to_vec(),
                    writable: rights.write,
                    size: bytes.len() as u64,
                }),
            }
        }
    }
    found
}

/// Ranges in order, those that touch or overlap as one.
fn merged(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<Range<u64>> =
        ranges.iter().filter(|range| range.start < range.end).cloned().collect();
    sorted.sort_by_key(|range| (range.start, range.end));
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        assert_eq!(merged(&[5..7, 0..3, 6..9, 3..4, 20..20]), [0..4, 5..9]);
    }
}
