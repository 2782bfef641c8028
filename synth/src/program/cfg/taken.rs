//! Places in the code whose address the program takes: where calls and jumps through pointers can lead.

use crate::program::Program;
use crate::program::tables::{self, Cell};
use iced_x86::Mnemonic;
use std::collections::BTreeSet;

/// Places in the code whose address the program takes.
#[derive(Default)]
pub(super) struct Taken {
    /// Entries that instructions load, and that words of the file hold (function tables, relocations); with shared
    /// libraries also what the dynamic linker has put there. Of code without symbols, all such places.
    pub(super) entries: BTreeSet<u64>,
    /// Places within functions that such words hold.
    pub(super) labels: BTreeSet<u64>,
}

impl Taken {
    /// Those of a program; `cell` reads 8 bytes of the memory in which it ran.
    pub(super) fn by(program: &Program, cell: Cell<'_>) -> Taken {
        let mut taken = Taken::default();
        for instruction in program.code.all() {
            let stored = || tables::immediate(instruction).map(i64::cast_unsigned);
            let pushed =
                || instruction.try_immediate(0).ok().filter(|_| instruction.mnemonic() == Mnemonic::Push);
            let constant = tables::loaded_constant(instruction).or_else(stored).or_else(pushed);
            taken.entries.extend(constant.filter(|va| is_entry(program, *va) == Some(true)));
        }
        for segment in program.segments() {
            let skip = usize::try_from(segment.start.next_multiple_of(8) - segment.start).unwrap_or(0);
            let words = segment.contents.get(skip..).unwrap_or(&[]).chunks_exact(8);
            for word in words.map(|word| u64::from_le_bytes(word.try_into().expect("chunks of eight"))) {
                taken.word(program, word);
                taken.word(program, word.wrapping_add(segment.bias));
            }
            if program.is_linked() && segment.writable {
                let cells = (segment.start.next_multiple_of(8)..segment.start + segment.size).step_by(8);
                cells.filter_map(cell).for_each(|word| taken.word(program, word));
            }
        }
        taken.entries.insert(program.entry());
        taken
    }

    fn word(&mut self, program: &Program, word: u64) {
        match is_entry(program, word) {
            Some(true) => _ = self.entries.insert(word),
            Some(false) => _ = self.labels.insert(word),
            None => {}
        }
    }
}

/// Whether a function begins at `va`, if it is an instruction of one.
fn is_entry(program: &Program, va: u64) -> Option<bool> {
    let function = program.function_at(va)?;
    program.code.at(va)?;
    Some(function.start == va || function.name.starts_with("sub_"))
}
