//! ORC: how far each instruction of the kernel is from its return address (Linux, x86/orc-unwinder.rst).
//!
//! A table of addresses in order, each relative to itself, and one of entries. Which bits of an entry are what, BTF says; what the kinds
//! of frames are numbered has changed once (6.4), and what the registers are numbered, too (7.1). Example: at do_syscall_64+0x5d the stack before the call was at rsp+24, rbp is at 16 below.

use super::space::Space;
use super::symbols::Symbols;
use super::types::{Field, Struct, Types};
use std::cmp::Ordering;

/// Entries of one table, at most.
const MOST: u64 = 1 << 24;
/// So many of its entries tell what registers are numbered.
const LOOKED_AT: u64 = 4096;

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
    numbering: Numbering,
}

/// What the registers are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbering {
    /// Up to Linux 7.0.
    First,
    /// Since Linux 7.1.
    Second,
}

impl Numbering {
    /// The number of rsp. It is by far what most entries have; the number that it has in the other numbering is rdi's, and rare.
    const fn stack_pointer(self) -> u64 {
        match self {
            Numbering::First => 5,
            Numbering::Second => 3,
        }
    }

    /// The numbering of a table, by its first entries. Neither BTF nor VMCOREINFO tells.
    fn of(entries: &[u64], shape: &Shape) -> Option<Numbering> {
        let count = |numbering: Numbering| {
            let has = |bits: &&u64| Shape::get(**bits, shape.stack, 4) == numbering.stack_pointer();
            entries.iter().filter(has).count()
        };
        match count(Numbering::First).cmp(&count(Numbering::Second)) {
            Ordering::Greater => Some(Numbering::First),
            Ordering::Less => Some(Numbering::Second),
            Ordering::Equal => None,
        }
    }

    /// `ORC_REG_*`.
    fn base(self, number: u64) -> Base {
        match (self, number) {
            (Numbering::First, 1) | (Numbering::Second, 8) => Base::Caller,
            (Numbering::Second, 1) => Base::Register(0),
            (_, 2) => Base::Register(2),
            (Numbering::First, 3) | (Numbering::Second, 5) => Base::Register(7),
            (_, 4) => Base::Register(5),
            (Numbering::First, 5) | (Numbering::Second, 3) => Base::Register(4),
            (_, 6) => Base::Register(10),
            (_, 7) => Base::Register(13),
            (Numbering::First, 8) | (Numbering::Second, 10) => Base::AtFrame,
            (_, 9) => Base::AtStack,
            _ => Base::Nowhere,
        }
    }
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

    /// The `n`th entry of a table.
    fn read(&self, space: &Space<'_>, entries: u64, n: u64) -> Option<u64> {
        let size = usize::try_from(self.size).ok()?;
        let bytes = space.bytes(entries.wrapping_add(n * self.size), size)?;
        let mut bits = [0; 8];
        bits.get_mut(..size)?.copy_from_slice(&bytes);
        Some(u64::from_le_bytes(bits))
    }

    /// The bits of a field of an entry, which has eight bytes at most.
    fn get(entry: u64, field: Field, width: u32) -> u64 {
        let bits = if field.bits == 0 { width } else { field.bits };
        let shift = u32::try_from(field.bit).unwrap_or(u32::MAX);
        entry.checked_shr(shift).unwrap_or(0) & (1_u64.checked_shl(bits).unwrap_or(0).wrapping_sub(1))
    }

    fn entry(&self, bits: u64, numbering: Numbering) -> Entry {
        #[expect(clippy::cast_possible_truncation, reason = "sixteen bits were taken")]
        let offset = |field| (Shape::get(bits, field, 16) as u16).cast_signed();
        let base = |field| numbering.base(Shape::get(bits, field, 4));
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
        let shape = shape.ok_or("BTF has another struct orc_entry")?;
        let first = (0..count.min(LOOKED_AT)).map_while(|n| shape.read(space, table.1, n));
        let numbering = Numbering::of(&first.collect::<Vec<_>>(), &shape);
        let numbering =
            numbering.ok_or("the registers of the unwind tables have numbers that are not known")?;
        Ok(Orc { space, symbols, table, shape, numbering })
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
        Some(self.shape.entry(self.shape.read(self.space, entries, n)?, self.numbering))
    }
}
