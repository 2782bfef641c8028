//! What an instruction is about to access, told from its operands and the registers before it.
//!
//! Example: `add [rbx+8], eax` with rbx = 0x1000 stores to 0x1008..0x100c, and loads from there.

use crate::ram::Virt;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, Register, UsedMemory};
use std::ops::Range;
use x86::state::Regs;

/// An XSAVE area, and whatever else is said to have no size, is no longer than this.
const LARGEST: u64 = 4096;

/// An access to data.
pub struct DataAccess {
    /// The linear addresses.
    pub range: Range<Virt>,
    /// Whether it stores.
    pub writes: bool,
    /// The register that a string instruction moves on.
    base: Register,
}

/// What the instruction accesses, and whether it is one that repeats. Stores come first.
#[must_use]
pub fn accesses(code: &[u8], regs: &Regs) -> Vec<(DataAccess, bool)> {
    let instruction = Decoder::with_ip(64, code, regs.rip, DecoderOptions::NONE).decode();
    let repeats = instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix());
    // Of one that repeats iced tells no size.
    let element = if repeats { u64::from(x86::decode::op(&instruction).w / 8) } else { 0 };
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(&instruction).used_memory();
    let mut found: Vec<(DataAccess, bool)> = used
        .iter()
        .flat_map(|memory| {
            let (reads, writes) = kinds(memory.access());
            let range = range(memory, regs, element);
            [(writes, true), (reads, false)].into_iter().filter_map(move |(does, writes)| {
                let access = DataAccess { range: range.clone()?, writes, base: memory.base() };
                does.then_some((access, repeats))
            })
        })
        .collect();
    found.sort_by_key(|(access, _)| !access.writes);
    found
}

/// Whether it loads, and whether it stores.
fn kinds(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        OpAccess::None | OpAccess::NoMemAccess => (false, false),
    }
}

/// What is accessed; `element` is the size where that is not told.
fn range(memory: &UsedMemory, regs: &Regs, element: u64) -> Option<Range<Virt>> {
    // The elements of a gather are not told: registers of vectors have no value here.
    let start = memory.virtual_address(0, |register, _, _| value(register, regs))?;
    let size = match memory.memory_size().size() as u64 {
        0 if element > 0 => element,
        0 => LARGEST,
        size => size,
    };
    Some(start..start.saturating_add(size))
}

fn value(register: Register, regs: &Regs) -> Option<u64> {
    match register {
        Register::FS => Some(regs.fs_base),
        Register::GS => Some(regs.gs_base),
        _ if register.is_segment_register() => Some(0),
        _ if register.is_ip() => Some(regs.rip),
        _ if register.is_gpr() => {
            let full = regs.gpr[register.full_register().number()];
            Some(if register.size() == 4 { full & 0xffff_ffff } else { full })
        }
        _ => None,
    }
}

/// All that a string instruction has accessed that moved its registers from `before` to `after`.
#[must_use]
pub fn repeated(access: &DataAccess, before: &Regs, after: &Regs) -> Range<Virt> {
    let (from, to) = (value(access.base, before), value(access.base, after));
    let Some((from, to)) = from.zip(to) else { return access.range.clone() };
    let size = access.range.end - access.range.start;
    // Behind the last element, upwards; before the first, downwards.
    if to >= from { from..to.max(from) } else { to.wrapping_add(size)..from.saturating_add(size) }
}
