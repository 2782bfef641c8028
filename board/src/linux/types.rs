//! BTF: the kernel's own types, with the places of their fields (Linux, bpf/btf.rst).
//!
//! A header, then types one behind another, then names. Example: type 117 is `struct task_struct` of 3,392 bytes, its 80th member
//! `pid` is at bit 10,496.

use super::space::Space;
use super::symbols::Symbols;
use std::collections::HashMap;

/// More bytes of it are damage.
const MOST: u64 = 64 << 20;
/// Structures in structures, and names for types of names, are followed so far.
const DEEPEST: u32 = 16;

/// All types.
pub(super) struct Types {
    bytes: Vec<u8>,
    /// Where names begin.
    names: usize,
    /// Where each type begins, from type 1 on.
    starts: Vec<usize>,
    structures: HashMap<String, u32>,
}

/// A field, in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// From the beginning of the outermost structure.
    pub(super) bit: u64,
    /// Of a bit field, else 0.
    pub(super) bits: u32,
    kind: u32,
}

/// A structure.
pub(super) struct Struct<'t> {
    types: &'t Types,
    name: &'t str,
    fields: HashMap<String, Field>,
    /// In bytes.
    pub(super) size: u64,
}

impl Struct<'_> {
    /// A field that is perhaps there.
    pub(super) fn field(&self, name: &str) -> Option<Field> {
        self.fields.get(name).copied()
    }

    /// Where a field begins, in bytes.
    pub(super) fn offset(&self, name: &str) -> Result<u64, String> {
        let field = self.field(name);
        field.map(|field| field.bit / 8).ok_or_else(|| format!("BTF has no {name} in struct {}", self.name))
    }

    /// The bytes of a field.
    pub(super) fn size_of(&self, name: &str) -> Result<u64, String> {
        let size = self.field(name).and_then(|field| self.types.size(field.kind, 0));
        size.ok_or_else(|| format!("BTF has no size of {name} in struct {}", self.name))
    }
}

/// Kinds of types.
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// The head of a type.
#[derive(Clone, Copy)]
struct Head {
    name: u32,
    kind: u32,
    length: usize,
    /// Offsets of members have sizes of bit fields above them.
    has_bits: bool,
    /// A size, or another type.
    rest: u32,
}

impl Types {
    /// Reads them where kallsyms says that they are.
    pub(super) fn read(space: &Space<'_>, symbols: &Symbols) -> Result<Types, String> {
        let ends = symbols.address("__start_BTF").zip(symbols.address("__stop_BTF"));
        let (start, stop) =
            ends.ok_or("kallsyms has no __start_BTF: the kernel was built without its types")?;
        let size = stop.checked_sub(start).filter(|size| *size <= MOST).ok_or("BTF has no end")?;
        let bytes = space.bytes(start, usize::try_from(size).unwrap_or(0)).ok_or("BTF is not in memory")?;
        Types::of(bytes).ok_or_else(|| "BTF is in no form that is known".to_owned())
    }

    /// Finds the types in all of its bytes.
    pub(super) fn of(bytes: Vec<u8>) -> Option<Types> {
        const MAGIC: u16 = 0xeb9f;
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
        if u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?) != MAGIC || *bytes.get(2)? != 1 {
            return None;
        }
        let (header, kinds, kinds_size, names) = (word(4)?, word(8)?, word(12)?, word(16)?);
        let mut at = header.checked_add(kinds)?;
        let (end, names) = (at.checked_add(kinds_size)?, header.checked_add(names)?);
        let mut types = Types { bytes, names, starts: Vec::new(), structures: HashMap::new() };
        while at < end {
            let head = types.head_at(at)?;
            types.starts.push(at);
            let number = u32::try_from(types.starts.len()).ok()?;
            if head.kind == kind::STRUCT && head.name != 0 {
                let name = types.name(head.name)?.to_owned();
                types.structures.entry(name).or_insert(number);
            }
            at = at.checked_add(12)?.checked_add(behind(head)?)?;
        }
        (at == end).then_some(types)
    }

    /// A structure by its name.
    pub(super) fn structure<'t>(&'t self, name: &'t str) -> Result<Struct<'t>, String> {
        let number = self.structures.get(name).ok_or_else(|| format!("BTF has no struct {name}"))?;
        let mut fields = HashMap::new();
        let found =
            self.head(*number).map(|head| head.rest.into()).zip(self.members(*number, 0, 0, &mut fields));
        let (size, ()) = found.ok_or_else(|| format!("BTF's struct {name} is cut"))?;
        Ok(Struct { types: self, name, fields, size })
    }

    /// Adds the members of a structure or union at a bit, and those of what has no name in it.
    fn members(&self, number: u32, bit: u64, depth: u32, into: &mut HashMap<String, Field>) -> Option<()> {
        let head = self.head(number)?;
        if !matches!(head.kind, kind::STRUCT | kind::UNION) || depth > DEEPEST {
            return Some(());
        }
        let start = self.starts[number as usize - 1] + 12;
        for n in 0..head.length {
            let [name, kind, place] = [0, 4, 8].map(|k| self.word(start + 12 * n + k));
            let (name, kind, place) = (name?, kind?, place?);
            let (offset, bits) = if head.has_bits { (place & 0xff_ffff, place >> 24) } else { (place, 0) };
            let bit = bit + u64::from(offset);
            if name == 0 {
                self.members(kind, bit, depth + 1, into)?;
            } else {
                into.entry(self.name(name)?.to_owned()).or_insert(Field { bit, bits, kind });
            }
        }
        Some(())
    }

    /// The bytes of a type.
    fn size(&self, number: u32, depth: u32) -> Option<u64> {
        let head = self.head(number)?;
        match head.kind {
            kind::INT | kind::STRUCT | kind::UNION | kind::ENUM | kind::ENUM64 => Some(head.rest.into()),
            kind::PTR => Some(8),
            kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG
                if depth < DEEPEST =>
            {
                self.size(head.rest, depth + 1)
            }
            kind::ARRAY if depth < DEEPEST => {
                let at = self.starts[number as usize - 1] + 12;
                self.size(self.word(at)?, depth + 1)?.checked_mul(self.word(at + 8)?.into())
            }
            _ => None,
        }
    }

    fn head(&self, number: u32) -> Option<Head> {
        self.head_at(*self.starts.get(usize::try_from(number).ok()?.checked_sub(1)?)?)
    }

    fn head_at(&self, at: usize) -> Option<Head> {
        let (name, what, rest) = (self.word(at)?, self.word(at + 4)?, self.word(at + 8)?);
        let length = (what & 0xffff) as usize;
        Some(Head { name, kind: what >> 24 & 0x1f, length, has_bits: what >> 31 != 0, rest })
    }

    fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
    }

    fn name(&self, offset: u32) -> Option<&str> {
        let from = self.bytes.get(self.names.checked_add(offset as usize)?..)?;
        let end = from.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&from[..end]).ok()
    }
}

/// The bytes behind the head of a type.
fn behind(head: Head) -> Option<usize> {
    Some(match head.kind {
        kind::INT | kind::VAR | kind::DECL_TAG => 4,
        kind::ARRAY => 12,
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * head.length,
        kind::ENUM | kind::FUNC_PROTO => 8 * head.length,
        // Pointers, forward declarations, names and qualifiers of types, functions, numbers with a point.
        2 | 7..=12 | 16 | kind::TYPE_TAG => 0,
        _ => return None,
    })
}
