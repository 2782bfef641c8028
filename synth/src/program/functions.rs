//! Extents of functions, from symbols and unwind entries, without overlaps and without holes in the code.

use super::code::Code;
use super::elf::{CodeSymbol, Segment};
use iced_x86::Mnemonic;

/// A function's extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name; of several, the one that people write.
    pub name: String,
    /// The first address.
    pub start: u64,
    /// The first address after it.
    pub end: u64,
}

/// The functions that symbols and unwind entries tell of, sorted; an extent ends at the latest where the next
/// one starts. Unnamed ones (stripped files) are called `sub_ADDRESS`. An unwind entry inside of what a symbol has
/// the size of is a part of that: glibc's `clone3` has one of its own for the new thread.
pub(super) fn extents(symbols: &[CodeSymbol], code: &[Segment]) -> Vec<Function> {
    let mut starts: Vec<&CodeSymbol> = symbols.iter().collect();
    starts.sort_by_key(|symbol| symbol.start);
    let mut functions: Vec<Function> = Vec::new();
    // Where the last function ends that has a name and a size.
    let mut sized = 0;
    for same in starts.chunk_by(|a, b| a.start == b.start) {
        let start = same[0].start;
        let Some(range) = code.iter().find(|range| (range.start..range.end()).contains(&start)) else {
            continue;
        };
        let size = same.iter().map(|symbol| symbol.size).max().unwrap_or(0);
        let end = if size == 0 { range.end() } else { start.saturating_add(size).min(range.end()) };
        let names = same.iter().map(|symbol| symbol.name.as_str()).filter(|name| !name.is_empty());
        let name = names.min_by_key(|name| familiarity(name)).map(str::to_owned);
        if name.is_none() && start < sized {
            continue;
        }
        if name.is_some() {
            sized = if size == 0 { start } else { end };
        }
        functions.push(Function { name: name.unwrap_or_else(|| unnamed(start)), start, end });
    }
    for at in 1..functions.len() {
        let next = functions[at].start;
        let before = &mut functions[at - 1];
        before.end = before.end.min(next);
    }
    functions
}

/// Adds functions for code that no extent covers (assembly without sizes, .plt, stripped files), leaving out
/// what is only padding.
pub(super) fn name_gaps(functions: &mut Vec<Function>, code: &[Segment], decoded: &Code) {
    let mut gaps = Vec::new();
    for range in code {
        let inside = functions.iter().filter(|function| (range.start..range.end()).contains(&function.start));
        let mut at = range.start;
        for function in inside {
            gaps.push((at, function.start));
            at = function.end;
        }
        gaps.push((at, range.end()));
    }
    for (start, end) in gaps.into_iter().filter(|(start, end)| start < end) {
        let first = decoded.between(start, end).find(|instruction| !is_padding(instruction));
        if let Some(instruction) = first {
            let start = instruction.ip();
            functions.push(Function { name: unnamed(start), start, end });
        }
    }
    functions.sort_by_key(|function| function.start);
}

/// What code is called that no symbol names.
pub(super) fn unnamed(start: u64) -> String {
    format!("sub_{start:x}")
}

/// Orders aliases: `puts` before `_IO_puts`, then the shorter, then the alphabet.
fn familiarity(name: &str) -> (usize, usize, &str) {
    (name.len() - name.trim_start_matches('_').len(), name.len(), name)
}

/// What assemblers and linkers fill holes with.
fn is_padding(instruction: &iced_x86::Instruction) -> bool {
    let zeros = instruction.mnemonic() == Mnemonic::Add
        && instruction.len() == 2
        && instruction.op0_kind() == iced_x86::OpKind::Memory
        && instruction.op1_register() == iced_x86::Register::AL;
    zeros || matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unwind_entry_inside_of_a_function_is_a_part_of_it() {
        let symbol =
            |start, size, name: &str| CodeSymbol { start, size, name: name.to_owned(), indirect: false };
        let code =
            [Segment { bias: 0, start: 0x1000, contents: vec![0x90; 0x100], writable: false, size: 0x100 }];
        let symbols = [
            symbol(0x1000, 0x30, "clone3"),
            symbol(0x1000, 0x21, ""),
            symbol(0x1021, 0xf, ""),
            // Behind it, and behind one whose size nobody knows, it is one.
            symbol(0x1030, 0x10, ""),
            symbol(0x1040, 0, "assembly"),
            symbol(0x1050, 0x10, ""),
        ];
        let found = extents(&symbols, &code);
        let found: Vec<_> = found.iter().map(|it| (it.name.as_str(), it.start, it.end)).collect();
        let expected = [
            ("clone3", 0x1000, 0x1030),
            ("sub_1030", 0x1030, 0x1040),
            ("assembly", 0x1040, 0x1050),
            ("sub_1050", 0x1050, 0x1060),
        ];
        assert_eq!(found, expected);
    }
}
