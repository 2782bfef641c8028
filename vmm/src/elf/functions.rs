//! Where a program's functions are, by its symbol table and its unwind tables. Both are only a help: what of them is
//! damaged is taken as not there.

use super::{ENDIAN, Sections};
use crate::memory::tables::{covered, union};
use crate::ram::Virt;
use object::elf;
use object::read::elf::{SectionHeader, Sym};
use std::ops::Range;

/// The functions of a program.
#[derive(Debug, Default)]
pub(super) struct Functions {
    /// Where they start, by the symbol table, in order; empty for a stripped program.
    pub(super) starts: Vec<Virt>,
    /// What they cover, by both tables: ranges in order, no two of which touch.
    pub(super) bodies: Vec<Range<Virt>>,
}

impl Functions {
    /// Reads the tables of `file`; `code` are its sections of instructions, with `bias` added to the file's addresses.
    pub(super) fn read(sections: &Sections<'_>, file: &[u8], bias: u64, code: &[Range<Virt>]) -> Functions {
        let (starts, mut bodies) = symbols(sections, file, bias, code);
        bodies.extend(unwind_entries(sections, file, bias));
        bodies.retain(|body| code.iter().any(|range| range.start <= body.start && body.end <= range.end));
        Functions { starts, bodies: union(bodies) }
    }
}

/// The functions of the symbol table: where they start, and what they cover. One of no size, as assembly has them,
/// goes to the next symbol of any kind.
fn symbols(
    sections: &Sections<'_>,
    file: &[u8],
    bias: u64,
    code: &[Range<Virt>],
) -> (Vec<Virt>, Vec<Range<Virt>>) {
    let Ok(symbols) = sections.symbols(ENDIAN, file, elf::SHT_SYMTAB) else { return Default::default() };
    let defined = || symbols.iter().filter(|symbol| symbol.st_shndx(ENDIAN) != elf::SHN_UNDEF);
    let address = |symbol: &Sym64| symbol.st_value(ENDIAN).wrapping_add(bias);
    let mut addresses: Vec<Virt> = defined().map(address).chain(code.iter().map(|range| range.end)).collect();
    addresses.sort_unstable();
    let is_function = |symbol: &&Sym64| [elf::STT_FUNC, elf::STT_GNU_IFUNC].contains(&symbol.st_type());
    let body = |symbol: &Sym64| {
        let start = address(symbol);
        let next = || addresses.get(addresses.partition_point(|&other| other <= start)).copied();
        let end = match symbol.st_size(ENDIAN) {
            0 => next(),
            size => start.checked_add(size),
        };
        start..end.unwrap_or(start)
    };
    let mut starts: Vec<Virt> = defined().filter(is_function).map(address).collect();
    starts.sort_unstable();
    starts.dedup();
    (starts, defined().filter(is_function).map(body).collect())
}

type Sym64 = elf::Sym64<object::LittleEndian>;

/// What the entries of `.eh_frame` cover; stripped programs have it as well.
fn unwind_entries(sections: &Sections<'_>, file: &[u8], bias: u64) -> Vec<Range<Virt>> {
    let Some((_, section)) = sections.section_by_name(ENDIAN, b".eh_frame") else { return Vec::new() };
    let Ok(bytes) = section.data(ENDIAN, file) else { return Vec::new() };
    covered(bytes, section.sh_addr(ENDIAN), bias)
}
