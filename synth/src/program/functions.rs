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
/// one starts. Unnamed ones (stripped files) are called `sub_ADDRESS`.
pub(super) fn extents(symbols: &[CodeSymbol], code: &[Segment]) -> Vec<Function> {
    let mut starts: Vec<&CodeSymbol> = symbols.iter().collect();
    starts.sort_by_key(|symbol| symbol.start);
    let mut functions: Vec<Function> = Vec::new();
    for same in starts.chunk_by(|a, b| a.start == b.start) {
        let start = same[0].start;
        let Some(range) = code.iter().find(|range| (range.start..range.end()).contains(&start)) else {
            continue;
        };
        let size = same.iter().map(|symbol| symbol.size).max().unwrap_or(0);
        let end = if size == 0 { range.end() } else { start.saturating_add(size).min(range.end()) };
        let names = same.iter().map(|symbol| symbol.name.as_str()).filter(|name| !name.is_empty());
        let name = names.min_by_key(|name| familiarity(name)).map_or_else(|| unnamed(start), str::to_owned);
        functions.push(Function { name, start, end });
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
