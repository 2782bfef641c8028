//! A type at a place, and how to get from one value to others: members, elements, what it points to.

use super::info::{Die, Info};
use super::types::{Member, Record, Shape, Type};
use super::{World, location};
use gimli::DwAte;
use std::ops::Range;
use std::rc::Rc;

/// No value larger than this is read at once.
const LARGEST: u64 = 1 << 16;
/// Records that are looked through for a member: bases and members without a name have members of their own.
const MOST_RECORDS: u32 = 200;

/// A value of the program.
#[derive(Clone)]
pub(crate) struct Value {
    pub(super) ty: Type,
    pub(super) place: Place,
    /// A bit field: bits from the place's beginning, and how many.
    pub(super) bits: Option<(u64, u64)>,
    /// The register of its frame that all of it is in, by DWARF number.
    pub(super) register: Option<u16>,
}

/// Where a value is.
#[derive(Clone)]
pub(super) enum Place {
    /// In memory.
    Memory(u64),
    /// In registers, or nowhere but known; bytes that are not known are `None`.
    Bytes(Vec<Option<u8>>),
    /// A pointer that the program does not have, to a variable of a frame that it has.
    Target(Rc<(Rc<Info>, Die, usize)>),
    /// Why there is none.
    Nowhere(String),
}

/// A part of a value, with the expression that gives it.
pub(crate) struct Child {
    pub(crate) name: String,
    pub(crate) expression: String,
    pub(crate) value: Value,
}

impl Value {
    pub(super) fn new(ty: Type, place: Place) -> Value {
        Value { ty, place, bits: None, register: None }
    }

    /// What is in memory there.
    pub(super) fn at_address(ty: &Type, address: u64) -> Value {
        Value::new(ty.clone(), Place::Memory(address))
    }

    /// A number that no variable has.
    pub(crate) fn number(number: i128, signed: bool) -> Value {
        let bytes = number.to_le_bytes()[..8].iter().copied().map(Some).collect();
        Value::new(Type::word(signed), Place::Bytes(bytes))
    }

    /// Memory, of which the debug information says nothing.
    pub(super) fn word_at(address: u64) -> Value {
        Value::new(Type::word(false), Place::Memory(address))
    }

    /// Its type, as C writes it.
    pub(crate) fn type_name(&self) -> String {
        self.ty.name()
    }

    /// Where it is in memory.
    pub(crate) fn address(&self) -> Option<u64> {
        match self.place {
            Place::Memory(address) if self.bits.is_none() => Some(address),
            _ => None,
        }
    }

    /// The bytes in memory that it has a part in, if it is there and its size is known: those of a bit field hold others, too.
    pub(crate) fn extent(&self) -> Option<Range<u64>> {
        let Place::Memory(address) = self.place else { return None };
        let (first, size) = match self.bits {
            Some((from, size)) => (from / 8, (from % 8).checked_add(size)?.div_ceil(8)),
            None => (0, self.size()?),
        };
        let start = address.checked_add(first)?;
        Some(start..start.checked_add(size)?)
    }

    /// The register of its frame that all of it is in, by DWARF number.
    pub(crate) fn register(&self) -> Option<u16> {
        self.register
    }

    /// Whether an expression has made it of others, as `&x` or a sum: it is no variable, nor a part of one.
    pub(crate) fn is_made(&self) -> bool {
        let is_made = matches!(self.ty, Type::Number { .. } | Type::Pointer(_));
        is_made && matches!(self.place, Place::Bytes(_)) && self.register.is_none()
    }

    /// Why it has no value.
    pub(crate) fn missing(&self) -> Option<&str> {
        match &self.place {
            Place::Nowhere(why) => Some(why),
            _ => None,
        }
    }

    /// Its size in bytes.
    pub(crate) fn size(&self) -> Option<u64> {
        self.ty.size()
    }

    /// Where a pointer points to, or where the value itself is: what to show of the memory.
    pub(crate) fn memory_reference(&self, world: &dyn World) -> Option<u64> {
        match self.ty.shape() {
            Shape::Pointer { .. } => self.unsigned(world).ok(),
            _ => self.address(),
        }
    }

    /// Its bits in hexadecimal digits.
    pub(crate) fn hex(&self, world: &dyn World) -> Result<String, String> {
        let (raw, _) = self.raw(world)?;
        Ok(format!("{raw:#x}"))
    }

    /// Its bytes; the reason where there are none.
    pub(super) fn bytes(&self, world: &dyn World) -> Result<Vec<u8>, String> {
        let size = self.ty.size().ok_or("its size is not known")?;
        if size > LARGEST {
            return Err(format!("{size} bytes, which is too large to read at once"));
        }
        self.first_bytes(world, usize::try_from(size).unwrap_or(0))
    }

    fn first_bytes(&self, world: &dyn World, size: usize) -> Result<Vec<u8>, String> {
        match &self.place {
            Place::Nowhere(why) => Err(why.clone()),
            Place::Target(_) => Err("a pointer that the program does not keep".to_owned()),
            Place::Memory(address) => {
                let mut bytes = vec![0; size];
                match world.read(*address, &mut bytes) {
                    true => Ok(bytes),
                    false => Err(format!("not mapped: {address:#x}")),
                }
            }
            Place::Bytes(all) => {
                let bytes: Option<Vec<u8>> = all.iter().take(size).copied().collect();
                bytes.filter(|bytes| bytes.len() == size).ok_or_else(|| "optimized out".to_owned())
            }
        }
    }

    /// The bits that a number, pointer or enumeration is.
    pub(super) fn raw(&self, world: &dyn World) -> Result<(u128, u64), String> {
        let word = |bytes: &[u8]| {
            bytes.iter().take(16).rev().fold(0_u128, |word, byte| word << 8 | u128::from(*byte))
        };
        let Some((from, size)) = self.bits else {
            let bytes = self.bytes(world)?;
            return Ok((word(&bytes), bytes.len() as u64 * 8));
        };
        if size == 0 || size > 64 {
            return Err("a bit field of no size, or of more than 64 bits".to_owned());
        }
        let (first, shift) = (from / 8, from % 8);
        let bytes =
            self.at(first).first_bytes(world, usize::try_from((shift + size).div_ceil(8)).unwrap_or(0))?;
        Ok((word(&bytes) >> shift & ((1 << size) - 1), size))
    }

    /// Its number, by its type.
    pub(super) fn integer(&self, world: &dyn World) -> Result<i128, String> {
        let signed = match self.ty.shape() {
            Shape::Number { encoding, .. } => is_signed(encoding).ok_or("it is not a whole number")?,
            Shape::Enumeration { .. } | Shape::Pointer { .. } => false,
            Shape::Function => {
                return self.address().map(i128::from).ok_or_else(|| "it has no address".to_owned());
            }
            _ => return Err(format!("it is no number, but of type {}", self.ty.name())),
        };
        let (raw, bits) = self.raw(world)?;
        let negative = signed && (1..128).contains(&bits) && raw >> (bits - 1) & 1 == 1;
        let number = if negative { raw | u128::MAX << bits } else { raw };
        Ok(number.cast_signed())
    }

    /// Its number as an address.
    pub(crate) fn unsigned(&self, world: &dyn World) -> Result<u64, String> {
        let (raw, _) = self.raw(world)?;
        u64::try_from(raw).map_err(|_| "a number of more than 64 bits".to_owned())
    }

    /// What a whole number, an enumeration or a pointer holds.
    pub(crate) fn number_or_pointer(&self, world: &dyn World) -> Option<u64> {
        match self.ty.shape() {
            Shape::Number { encoding, .. } if is_signed(encoding).is_some() => self.unsigned(world).ok(),
            Shape::Enumeration { .. } | Shape::Pointer { .. } => self.unsigned(world).ok(),
            _ => None,
        }
    }

    /// The same place, so many bytes farther.
    fn at(&self, offset: u64) -> Value {
        let place = match &self.place {
            Place::Memory(address) => Place::Memory(address.wrapping_add(offset)),
            Place::Bytes(all) => {
                Place::Bytes(usize::try_from(offset).ok().and_then(|n| all.get(n..)).unwrap_or(&[]).to_vec())
            }
            other => other.clone(),
        };
        Value::new(self.ty.clone(), place)
    }

    /// What it points or refers to. Of a number, the word at that address.
    pub(super) fn target(&self, world: &dyn World) -> Result<Value, String> {
        let to = match self.ty.shape() {
            Shape::Pointer { to, .. } => to,
            Shape::Array { .. } => return self.element(world, 0),
            Shape::Number { encoding, .. } if is_signed(encoding).is_some() => {
                return Ok(Value::word_at(u64::try_from(self.integer(world)?).map_err(|e| e.to_string())?));
            }
            _ => return Err(format!("it is no pointer, but of type {}", self.ty.name())),
        };
        if let Place::Target(target) = &self.place {
            let (info, die, frame) = &**target;
            return Ok(location::value(world, *frame, info, *die));
        }
        Ok(Value::new(to, Place::Memory(self.unsigned(world)?)))
    }

    /// A pointer to it.
    pub(super) fn pointer(&self) -> Result<Value, String> {
        let address = self.address().ok_or("it is not in memory, so that it has no address")?;
        let bytes = address.to_le_bytes().iter().copied().map(Some).collect();
        Ok(Value::new(self.ty.clone().pointer_to(), Place::Bytes(bytes)))
    }

    /// An element of an array, or of what a pointer points to.
    pub(super) fn element(&self, world: &dyn World, n: i128) -> Result<Value, String> {
        let (element, from) = match self.ty.shape() {
            Shape::Array { element, .. } => (element, self.clone()),
            Shape::Pointer { reference: false, .. } => {
                let target = self.target(world)?;
                (target.ty.clone(), target)
            }
            _ => return Err(format!("it is no array and no pointer, but of type {}", self.ty.name())),
        };
        let size = element.size().ok_or("the size of its elements is not known")?;
        let offset = n.checked_mul(i128::from(size)).and_then(|offset| i64::try_from(offset).ok());
        let offset = offset.ok_or("the element is outside the address space")?;
        if offset < 0 && !matches!(from.place, Place::Memory(_)) {
            return Err("the element is before the beginning".to_owned());
        }
        Ok(Value { ty: element, ..from.at(offset.cast_unsigned()) })
    }

    /// What a reference refers to, and any other value itself.
    pub(crate) fn referred(&self, world: &dyn World) -> Result<Value, String> {
        match self.ty.shape() {
            Shape::Pointer { reference: true, .. } => self.target(world),
            _ => Ok(self.clone()),
        }
    }

    /// A member, also of what is inherited and of members without a name. Of a pointer, of what it points to: so Rust writes it.
    pub(super) fn member(&self, world: &dyn World, name: &str) -> Result<Value, String> {
        let of = match self.ty.shape() {
            Shape::Pointer { .. } => self.target(world)?,
            _ => self.clone(),
        };
        let Shape::Record(record) = of.ty.shape() else {
            return Err(format!("it has no members, since it is of type {}", of.ty.name()));
        };
        let mut left = MOST_RECORDS;
        let found = of.member_of(world, record, name, &mut left);
        found.ok_or_else(|| format!("{} has no member `{name}`", of.ty.name()))
    }

    fn member_of(&self, world: &dyn World, record: Record, name: &str, left: &mut u32) -> Option<Value> {
        *left = left.checked_sub(1)?;
        let parts = self.parts(world, record);
        if let Some((_, value)) = parts.iter().find(|(member, _)| member.name == name && !member.base) {
            return Some(value.clone());
        }
        let inner = parts.into_iter().filter(|(member, _)| member.base || member.name.is_empty());
        inner.into_iter().find_map(|(_, value)| match value.ty.shape() {
            Shape::Record(record) => value.member_of(world, record, name, left),
            _ => None,
        })
    }

    /// The members of a record, with the alternative that is there.
    pub(super) fn parts(&self, world: &dyn World, record: Record) -> Vec<(Member, Value)> {
        let mut parts: Vec<_> = record.members.into_iter().map(|it| (it.clone(), self.part(&it))).collect();
        if let Some((tells, variants)) = record.variants {
            let number = self.part(&tells).raw(world).ok().and_then(|(raw, _)| i128::try_from(raw).ok());
            let known = variants.iter().find(|it| number.is_some() && it.value == number);
            let there = known.or_else(|| variants.iter().find(|it| it.value.is_none()));
            parts.extend(there.map(|it| (it.member.clone(), self.part(&it.member))));
        }
        parts
    }

    pub(super) fn part(&self, member: &Member) -> Value {
        if let Some(bits) = member.bits {
            return Value { bits: Some(bits), ..Value::new(member.ty.clone(), self.place.clone()) };
        }
        match member.at {
            Some(at) => Value { ty: member.ty.clone(), ..self.at(at) },
            None => {
                let why = "a virtual base class, whose place is computed";
                Value::new(member.ty.clone(), Place::Nowhere(why.to_owned()))
            }
        }
    }

    /// How many parts it can be taken apart into: elements by number, and others.
    pub(crate) fn count(&self, world: &dyn World) -> (u64, u64) {
        let Ok(of) = self.referred(world) else { return (0, 0) };
        match of.ty.shape() {
            Shape::Array { count, .. } => (count.unwrap_or(0), 0),
            Shape::Record(_) => (0, of.children(world, "", 0..0).len() as u64),
            Shape::Pointer { to, .. } => {
                let is_there = of.target(world).is_ok_and(|target| target.is_readable(world));
                (
                    0,
                    u64::from(
                        is_there && !matches!(to.shape(), Shape::Void | Shape::Function | Shape::Unknown(_)),
                    ),
                )
            }
            _ => (0, 0),
        }
    }

    fn is_readable(&self, world: &dyn World) -> bool {
        match self.place {
            Place::Memory(address) => world.read(address, &mut [0]),
            Place::Bytes(_) | Place::Target(_) => true,
            Place::Nowhere(_) => false,
        }
    }

    /// Its parts; of an array, those elements. `expression` is what gave the value.
    pub(crate) fn children(&self, world: &dyn World, expression: &str, elements: Range<u64>) -> Vec<Child> {
        let Ok(of) = self.referred(world) else { return Vec::new() };
        let within = if expression.starts_with(['*', '&', '-', '!']) {
            format!("({expression})")
        } else {
            expression.to_owned()
        };
        match of.ty.shape() {
            Shape::Array { count, .. } => {
                let elements = elements.start..elements.end.min(count.unwrap_or(0));
                let element = |n: u64| {
                    let value = of.element(world, i128::from(n)).ok()?;
                    Some(Child { name: format!("[{n}]"), expression: format!("{within}[{n}]"), value })
                };
                elements.filter_map(element).collect()
            }
            Shape::Record(record) => {
                let children = of.parts(world, record).into_iter().map(|(member, value)| {
                    let name = match (member.name.as_str(), member.base) {
                        ("", _) => "{...}".to_owned(),
                        (name, _) => name.to_owned(),
                    };
                    // Members of a base, or of one without a name, are its own.
                    let own = member.base || member.name.is_empty();
                    let expression = if own { within.clone() } else { format!("{within}.{name}") };
                    Child { name, expression, value }
                });
                children.collect()
            }
            Shape::Pointer { .. } => pointed_to(&of, world, expression, &within),
            _ => Vec::new(),
        }
    }
}

/// Of a pointer to a record, that one's members; else what it points to.
fn pointed_to(of: &Value, world: &dyn World, expression: &str, within: &str) -> Vec<Child> {
    let Ok(target) = of.target(world) else { return Vec::new() };
    if let Shape::Record(record) = target.ty.shape()
        && record.variants.is_none()
        && record.members.iter().all(|member| !member.base && !member.name.is_empty())
    {
        let parts = target.parts(world, record).into_iter();
        return parts
            .map(|(member, value)| Child {
                expression: format!("{within}->{}", member.name),
                name: member.name,
                value,
            })
            .collect();
    }
    vec![Child { name: format!("*{expression}"), expression: format!("*{within}"), value: target }]
}

/// Whether an encoding of whole numbers has a sign; `None` for the others.
pub(super) fn is_signed(encoding: DwAte) -> Option<bool> {
    match encoding {
        gimli::DW_ATE_signed | gimli::DW_ATE_signed_char | gimli::DW_ATE_signed_fixed => Some(true),
        gimli::DW_ATE_unsigned
        | gimli::DW_ATE_unsigned_char
        | gimli::DW_ATE_boolean
        | gimli::DW_ATE_address
        | gimli::DW_ATE_UTF
        | gimli::DW_ATE_ASCII => Some(false),
        _ => None,
    }
}
