//! ORC: how far each instruction of the kernel is from its return address (Linux, x86/orc-unwinder.rst).
//!
//! A table of addresses in order, each relative to itself, and one of entries. Which bits of an entry are what, BTF says; what the kinds
//! of frames are numbered has changed once. Example: at do_syscall_64+0x5d the stack before the call was at rsp+24, rbp is at 16 below.

use super::space::Space;
use super::symbols::Symbols;
use super::types::{Field, Struct, Types};

/// Entries of one table, at most.
const MOST: u64 = 1 << 24;

/// Where something is that was before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// It is not told.
    Nowhere,
    /// The stack of the caller.
    Caller,
    /// A register, by its number in an instruction.
    Register(usize),
    /// In memory, at rsp; the distance is added behind.
    AtStack,
    /// In memory, at a distance from rbp.
    AtFrame,
}

/// What kind of frame it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing is known here.
    Unknown,
    /// Nobody called this.
    Outermost,
    /// It was called.
    Call,
    /// It was entered by an exception or a system call, and all registers are on the stack.
    Registers,
    /// The same, but only what the processor has stored is there.
    Processor,
}

/// What is told of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) stack: (Base, i16),
    pub(super) frame: (Base, i16),
    pub(super) kind: Kind,
}

/// The tables of a kernel.
pub(super) struct Orc<'o, 'm> {
    space: &'o Space<'m>,
    symbols: &'o Symbols,
    /// Addresses, entries, how many.
    table: (u64, u64, u64),
    shape: Shape,
}

/// Where the bits are.
struct Shape {
    size: u64,
    stack_offset: Field,
    frame_offset: Field,
    stack: Field,
    frame: Field,
    kind: Field,
    /// Before 6.4: whether nobody called this.
    end: Option<Field>,
}

impl Shape {
    fn of(entry: &Struct<'_>) -> Option<Shape> {
        Some(Shape {
            size: entry.size,
            stack_offset: entry.field("sp_offset")?,
            frame_offset: entry.field("bp_offset")?,
            stack: entry.field("sp_reg")?,
            frame: entry.field("bp_reg")?,
            kind: entry.field("type")?,
            end: entry.field("end"),
        })
    }

    /// The bits of a field of an entry, which has eight bytes at most.
    fn get(entry: u64, field: Field, width: u32) -> u64 {
        let bits = if field.bits == 0 { width } else { field.bits };
        let shift = u32::try_from(field.bit).unwrap_or(u32::MAX);
        entry.checked_shr(shift).unwrap_or(0) & (1_u64.checked_shl(bits).unwrap_or(0).wrapping_sub(1))
    }

    fn entry(&self, bits: u64) -> Entry {
        #[expect(clippy::cast_possible_truncation, reason = "sixteen bits were taken")]
        let offset = |field| (Shape::get(bits, field, 16) as u16).cast_signed();
        let base = |field| base(Shape::get(bits, field, 4));
        let number = Shape::get(bits, self.kind, 8);
        // Where `end` is not a bit of its own, it is a kind, behind one for what is not known.
        let kind = match (self.end, number) {
            (Some(end), _) if Shape::get(bits, end, 1) != 0 => Kind::Outermost,
            (Some(_), 0) | (None, 2) => Kind::Call,
            (Some(_), 1) | (None, 3) => Kind::Registers,
            (Some(_), 2) | (None, 4) => Kind::Processor,
            (None, 1) => Kind::Outermost,
            _ => Kind::Unknown,
        };
        Entry {
            stack: (base(self.stack), offset(self.stack_offset)),
            frame: (base(self.frame), offset(self.frame_offset)),
            kind,
        }
    }
}

/// `ORC_REG_*`.
fn base(number: u64) -> Base {
    match number {
        1 => Base::Caller,
        2 => Base::Register(2),
        3 => Base::Register(7),
        4 => Base::Register(5),
        5 => Base::Register(4),
        6 => Base::Register(10),
        7 => Base::Register(13),
        8 => Base::AtFrame,
        9 => Base::AtStack,
        _ => Base::Nowhere,
    }
}

impl<'o, 'm> Orc<'o, 'm> {
    pub(super) fn of(
        space: &'o Space<'m>,
        symbols: &'o Symbols,
        types: &Types,
    ) -> Result<Orc<'o, 'm>, String> {
        let address = |name: &str| {
            symbols
                .address(name)
                .ok_or_else(|| format!("kallsyms has no {name}: the kernel is not built with ORC"))
        };
        let start = address("__start_orc_unwind_ip")?;
        let count = address("__stop_orc_unwind_ip")?.saturating_sub(start) / 4;
        let table = (start, address("__start_orc_unwind")?, count);
        let entry = types.structure("orc_entry")?;
        let shape = Shape::of(&entry).filter(|shape| (1..=8).contains(&shape.size));
        Ok(Orc { space, symbols, table, shape: shape.ok_or("BTF has another struct orc_entry")? })
    }

    /// What is told of the instruction at an address.
    pub(super) fn find(&self, address: u64) -> Option<Entry> {
        let (addresses, entries, count) = match self.symbols.module(address) {
            Some(module) => module.orc?,
            None => self.table,
        };
        let address_of = |n: u64| {
            let at = addresses.wrapping_add(4 * n);
            Some(at.wrapping_add_signed(self.space.int(at)?.cast_signed().into()))
        };
        let (mut low, mut high) = (0, count.min(MOST));
        while low < high {
            let middle = low.midpoint(high);
            if address_of(middle)? <= address { low = middle + 1 } else { high = middle }
        }
        let n = low.checked_sub(1)?;
        let size = usize::try_from(self.shape.size).ok()?;
        let bytes = self.space.bytes(entries.wrapping_add(n * self.shape.size), size)?;
        let mut bits = [0; 8];
        bits[..size].copy_from_slice(&bytes);
        Some(self.shape.entry(u64::from_le_bytes(bits)))
    }
}
