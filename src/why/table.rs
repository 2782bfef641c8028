//! A value that was looked up in a table of the program or of a library: it is the table's, and the input chose which entry.
//!
//! Example: python's `int("0x1234567", 16)` takes each digit from a table of its own file. A slice ends there, since a load's address is
//! not followed (`--addresses` follows all of them, the stack pointer's, too). What is worth the next question is the index. A table of
//! pointers, such as an interpreter's of the code for each operation, is the file's too where the dynamic linker has relocated it.

use iced_x86::{Instruction, Register};
use std::path::Path;
use vmm::memory::MappingInfo;
use vmm::position::Position;
use vmm::slice::{Byte, Made, Node, Slice, Writer};

/// The next question.
pub(super) struct Index {
    /// The register that told which entry.
    pub(super) register: String,
    pub(super) at: Position,
    pub(super) thread: i32,
}

/// The newest load from a table that the value came from; `None` where an input was reached.
pub(super) fn index(slice: &Slice<Position>, mappings: &[MappingInfo]) -> Option<Index> {
    let is_made_inside =
        |it: &Node<Position>| matches!(it.writer.made, Made::Instruction(_) | Made::Begin(_));
    if !slice.nodes.iter().filter(|it| it.sources.is_empty()).all(is_made_inside) {
        return None;
    }
    // A table need not be constant by its rights: that nobody wrote to it is what counts.
    let is_of_file = |byte: Byte| {
        let Byte::Memory(at) = byte else { return false };
        let there = mappings.iter().find(|it| (it.start..it.end).contains(&at));
        there.is_some_and(|it| it.name.starts_with('/'))
    };
    let is_of_linker = |rip: u64| {
        let there = mappings.iter().find(|it| (it.start..it.end).contains(&rip));
        there.and_then(|it| Path::new(&it.name).file_name()).is_some_and(|name| {
            let name = name.to_string_lossy();
            name.starts_with("ld-") || name.starts_with("ld.")
        })
    };
    let is_files_own = |from: usize| match &slice.nodes[from].writer {
        Writer { made: Made::Begin(_), .. } => true,
        Writer { made: Made::Instruction(_), rip, .. } => is_of_linker(*rip),
        _ => false,
    };
    let from_table = |node: &Node<Position>| {
        let is_entry = |byte, from: usize| is_of_file(byte) && is_files_own(from);
        // What the linker looks up for itself is no table of the program's.
        let is_own = !is_of_linker(node.writer.rip);
        is_own && !node.sources.is_empty() && node.sources.iter().all(|it| is_entry(it.byte, it.node))
    };
    slice.nodes.iter().filter(|node| from_table(node)).find_map(|node| {
        let Made::Instruction(load) = &node.writer.made else { return None };
        let register = format!("{:?}", index_of(load)?).to_lowercase();
        Some(Index { register, at: node.writer.at, thread: node.writer.place.thread })
    })
}

/// The register that told where in a table.
fn index_of(load: &Instruction) -> Option<Register> {
    let told = [load.memory_index(), load.memory_base()].into_iter().find(|it| *it != Register::None)?;
    Some(told.full_register()).filter(|it| !matches!(it, Register::RIP | Register::RSP))
}
