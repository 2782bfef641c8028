//! Types of parameters and results, and by which registers they are passed: the System V ABI for x86-64, 3.2.3, and what rustc makes of it.
//!
//! Rust promises nothing of how its functions are called. What all its versions of these years do is known: a number or a pointer is
//! in a register, `&str` and slices in two, and what is larger than two words is somewhere else, and its address in a register. Behind a
//! parameter that is none of these, it is not known where the next one is.
//!
//! Example: `fn add(order: Order, count: u32)` with an `Order` of 40 bytes has the address of the order in rdi, and `count` in rsi. In C the
//! order would be on the stack, and the count in rdi.

use super::signature::{Entry, GENERAL, Reader, Where};
use super::value::Kind;
use gimli::{AttributeValue, DwAt, Unit, UnitOffset, constants as dw};
use std::rc::Rc;

/// Types may be made of types so often; damaged ones of themselves.
const DEEPEST: usize = 24;
/// A value of more bytes is in memory.
const IN_REGISTERS: u64 = 16;
/// Parts of a structure of so few bytes.
const MOST_PARTS: usize = 64;
const VECTORS: usize = 8;

/// What a value is passed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    General,
    Vector,
}

/// A unit, and where its types are looked for.
#[derive(Clone)]
pub(super) struct Source<'a> {
    pub(super) dwarf: &'a gimli::Dwarf<Reader>,
    pub(super) unit: Rc<Unit<Reader>>,
}

/// A type.
#[derive(Clone)]
pub(super) struct Type<'a> {
    source: Source<'a>,
    at: UnitOffset,
}

impl<'a> Source<'a> {
    /// An attribute of an entry, or of the one that it is an instance of, and the unit of that.
    pub(super) fn attr(&self, entry: &Entry, name: DwAt) -> Option<(Source<'a>, AttributeValue<Reader>)> {
        let (mut source, mut entry) = (self.clone(), entry.clone());
        for _ in 0..DEEPEST {
            if let Some(value) = entry.attr_value(name) {
                return Some((source, value));
            }
            let origin = entry
                .attr_value(dw::DW_AT_abstract_origin)
                .or_else(|| entry.attr_value(dw::DW_AT_specification))?;
            let origin = source.follow(&origin)?;
            entry = origin.source.unit.entry(origin.at).ok()?;
            source = origin.source;
        }
        None
    }

    /// The type of an entry.
    pub(super) fn type_of(&self, entry: &Entry) -> Option<Type<'a>> {
        let (source, value) = self.attr(entry, dw::DW_AT_type)?;
        source.follow(&value)
    }

    /// What refers to an entry of this unit, or of another one, as where the linker has optimised, and in what rustc releases.
    fn follow(&self, reference: &AttributeValue<Reader>) -> Option<Type<'a>> {
        let here = |at| Some(Type { source: self.clone(), at });
        match reference {
            AttributeValue::UnitRef(offset) => here(*offset),
            AttributeValue::DebugInfoRef(offset) => {
                if let Some(at) = offset.to_unit_offset(&self.unit.header) {
                    return here(at);
                }
                let mut units = self.dwarf.units();
                while let Ok(Some(header)) = units.next() {
                    if let Some(at) = offset.to_unit_offset(&header) {
                        let unit = Rc::new(self.dwarf.unit(header).ok()?);
                        return Some(Type { source: Source { dwarf: self.dwarf, unit }, at });
                    }
                }
                None
            }
            _ => None,
        }
    }

    pub(super) fn text(&self, value: AttributeValue<Reader>) -> Option<String> {
        let string = self.dwarf.attr_string(&self.unit, value).ok()?;
        gimli::Reader::to_string_lossy(&string).ok().map(std::borrow::Cow::into_owned)
    }
}

impl<'a> Type<'a> {
    /// The type without names and qualifiers.
    fn bare(&self) -> Option<(Source<'a>, Entry)> {
        let mut of = self.clone();
        for _ in 0..DEEPEST {
            let entry = of.source.unit.entry(of.at).ok()?;
            let qualifies = matches!(
                entry.tag(),
                dw::DW_TAG_typedef
                    | dw::DW_TAG_const_type
                    | dw::DW_TAG_volatile_type
                    | dw::DW_TAG_restrict_type
                    | dw::DW_TAG_atomic_type
            );
            if !qualifies {
                return Some((of.source, entry));
            }
            of = of.source.follow(&entry.attr_value(dw::DW_AT_type)?)?;
        }
        None
    }

    /// How its values are shown.
    pub(super) fn kind(&self) -> Kind {
        let Some((source, entry)) = self.bare() else { return Kind::Other };
        let size = size(&source, &entry);
        match entry.tag() {
            dw::DW_TAG_base_type => base(&entry, size),
            dw::DW_TAG_pointer_type => {
                let target = entry.attr_value(dw::DW_AT_type).and_then(|it| source.follow(&it)?.bare());
                let is_text = target.is_some_and(|(source, target)| {
                    target.tag() == dw::DW_TAG_base_type
                        && base(&target, self::size(&source, &target)) == Kind::Char
                });
                if is_text { Kind::Text } else { Kind::Pointer }
            }
            dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type | dw::DW_TAG_unspecified_type => {
                Kind::Pointer
            }
            dw::DW_TAG_enumeration_type => enumeration(&source, &entry, size),
            _ => Kind::Other,
        }
    }

    /// Whether the caller says where a result of it goes; `None` where that depends on the version of the compiler.
    pub(super) fn is_returned_in_memory(&self, rust: bool) -> Option<bool> {
        let (source, entry) = self.bare()?;
        let size = size(&source, &entry);
        match (is_aggregate(&entry), rust) {
            (false, _) => Some(false),
            (true, false) => Some(self.classes().is_none()),
            (true, true) if size <= 8 => Some(false),
            (true, true) => (size > IN_REGISTERS).then_some(true),
        }
    }

    pub(super) fn passed(&self, rust: bool) -> Passed {
        let Some((source, entry)) = self.bare() else { return Passed::Unknown };
        if by_reference(&entry) {
            return Passed::In([Some(Class::General), None]);
        }
        let size = size(&source, &entry);
        if rust && is_aggregate(&entry) {
            return rust_aggregate(&source, &entry, size);
        }
        match self.classes() {
            Some(classes) => Passed::In(classes),
            None => Passed::InMemory(size.max(8).next_multiple_of(8)),
        }
    }

    /// The classes of the one or two words of a value; `None` of one that is passed in memory.
    fn classes(&self) -> Option<[Option<Class>; 2]> {
        let (source, entry) = self.bare()?;
        let is_pointer = !is_aggregate(&entry) && entry.tag() != dw::DW_TAG_base_type;
        let size = size(&source, &entry);
        let size = if is_pointer { size.max(1) } else { size };
        if size > IN_REGISTERS || by_reference(&entry) {
            return None;
        }
        let mut parts = Vec::new();
        self.parts(0, 0, &mut parts)?;
        let class = |word: u64| {
            let mut inside = parts.iter().filter(|(at, _)| at / 8 == word).peekable();
            inside.peek()?;
            let vector = inside.all(|(_, class)| *class == Class::Vector);
            Some(if vector { Class::Vector } else { Class::General })
        };
        Some([class(0), class(1)])
    }

    /// The scalars that a value is made of, with where they begin; `None` where one is passed in memory (long double), or not known.
    fn parts(&self, at: u64, depth: usize, parts: &mut Vec<(u64, Class)>) -> Option<()> {
        let (source, entry) = self.bare().filter(|_| depth < DEEPEST && parts.len() < MOST_PARTS)?;
        let size = size(&source, &entry);
        match entry.tag() {
            dw::DW_TAG_base_type => {
                let is_float = encoding(&entry) == Some(dw::DW_ATE_float);
                if is_float && size > 8 {
                    return None;
                }
                let class = if is_float { Class::Vector } else { Class::General };
                parts.extend((0..size.div_ceil(8).max(1)).map(|word| (at + 8 * word, class)));
            }
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                let mut tree = source.unit.entries_tree(Some(entry.offset())).ok()?;
                let mut members = tree.root().ok()?.children();
                while let Ok(Some(member)) = members.next() {
                    let member = member.entry();
                    let is_static = member.attr_value(dw::DW_AT_external).is_some();
                    if !matches!(member.tag(), dw::DW_TAG_member | dw::DW_TAG_inheritance) || is_static {
                        continue;
                    }
                    let offset = member.attr_value(dw::DW_AT_data_member_location);
                    let offset = offset.and_then(|it| it.udata_value()).unwrap_or(0);
                    let of = source.follow(&member.attr_value(dw::DW_AT_type)?)?;
                    of.parts(at.checked_add(offset)?, depth + 1, parts)?;
                }
            }
            // Its length is that of what it is in; each word has the class of its elements.
            dw::DW_TAG_array_type => {
                let of = source.follow(&entry.attr_value(dw::DW_AT_type)?)?;
                of.parts(at, depth + 1, parts)?;
                if at < 8 {
                    of.parts(8, depth + 1, parts)?;
                }
            }
            _ => parts.push((at, Class::General)),
        }
        Some(())
    }
}

/// How rustc passes a structure, as far as that is the same in all its versions.
fn rust_aggregate(source: &Source<'_>, entry: &Entry, size: u64) -> Passed {
    let name = entry.attr_value(dw::DW_AT_name).and_then(|name| source.text(name)).unwrap_or_default();
    match size {
        0 => Passed::In([None, None]),
        // `&str`, `&[u8]`, `&mut [T]`, `&dyn Trait`: an address, and a length or another address.
        16 if name.starts_with('&') || name.starts_with('*') => Passed::In([Some(Class::General); 2]),
        1..=IN_REGISTERS => Passed::Unknown,
        _ => Passed::In([Some(Class::General), None]),
    }
}

fn size(source: &Source<'_>, entry: &Entry) -> u64 {
    source.attr(entry, dw::DW_AT_byte_size).and_then(|(_, size)| size.udata_value()).unwrap_or(0)
}

fn enumeration(source: &Source<'_>, entry: &Entry, size: u64) -> Kind {
    let mut names = Vec::new();
    if let Ok(mut tree) = source.unit.entries_tree(Some(entry.offset()))
        && let Ok(root) = tree.root()
    {
        let mut children = root.children();
        while let Ok(Some(child)) = children.next() {
            let value = child.entry().attr_value(dw::DW_AT_const_value);
            let value =
                value.and_then(|it| it.sdata_value().or_else(|| it.udata_value().map(u64::cast_signed)));
            let name = child.entry().attr_value(dw::DW_AT_name).and_then(|it| source.text(it));
            names.extend(value.zip(name));
        }
    }
    Kind::Enumeration { bytes: size, names: names.into() }
}

/// How a value is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    In([Option<Class>; 2]),
    /// On the stack, in so many bytes.
    InMemory(u64),
    /// It is not known, nor where those behind it are.
    Unknown,
}

/// What is taken of the places of parameters.
#[derive(Default)]
pub(super) struct Places {
    general: usize,
    vectors: usize,
    stack: u64,
    lost: bool,
}

impl Places {
    /// Where the first parameter is, if the result is none, or returned in memory or not; `None` is not known.
    pub(super) fn behind_result(in_memory: Option<bool>) -> Places {
        let general = usize::from(in_memory == Some(true));
        Places { general, lost: in_memory.is_none(), ..Places::default() }
    }

    pub(super) fn take(&mut self, passed: Passed) -> Where {
        self.lost |= passed == Passed::Unknown;
        if self.lost {
            return Where::Nowhere;
        }
        let classes = match passed {
            Passed::InMemory(bytes) => return self.on_stack(bytes),
            Passed::In(classes) => classes,
            Passed::Unknown => return Where::Nowhere,
        };
        let words: Vec<Class> = classes.into_iter().flatten().collect();
        let count = |class| words.iter().filter(|it| **it == class).count();
        let (general, vectors) = (count(Class::General), count(Class::Vector));
        if self.general + general > GENERAL.len() || self.vectors + vectors > VECTORS {
            return self.on_stack(8 * words.len() as u64);
        }
        let at = match words[..] {
            [Class::General] => Where::General(GENERAL[self.general]),
            [Class::Vector] => Where::Vector(self.vectors),
            _ => Where::Nowhere,
        };
        self.general += general;
        self.vectors += vectors;
        at
    }

    fn on_stack(&mut self, bytes: u64) -> Where {
        // Above the return address.
        let at = 8 + self.stack;
        self.stack = self.stack.saturating_add(bytes);
        Where::Stack(at)
    }
}

fn is_aggregate(entry: &Entry) -> bool {
    matches!(
        entry.tag(),
        dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type | dw::DW_TAG_array_type
    )
}

/// A class that is not copied as its bytes are.
fn by_reference(entry: &Entry) -> bool {
    let convention = entry.attr_value(dw::DW_AT_calling_convention);
    matches!(convention, Some(AttributeValue::CallingConvention(dw::DW_CC_pass_by_reference)))
}

fn encoding(entry: &Entry) -> Option<dw::DwAte> {
    match entry.attr_value(dw::DW_AT_encoding)? {
        AttributeValue::Encoding(encoding) => Some(encoding),
        _ => None,
    }
}

fn base(entry: &Entry, size: u64) -> Kind {
    match (encoding(entry), size) {
        (Some(dw::DW_ATE_boolean), _) => Kind::Bool,
        (Some(dw::DW_ATE_signed_char | dw::DW_ATE_unsigned_char), 1) => Kind::Char,
        (Some(dw::DW_ATE_signed | dw::DW_ATE_signed_char), 1..=8) => {
            Kind::Integer { bytes: size, signed: true }
        }
        (Some(dw::DW_ATE_unsigned | dw::DW_ATE_unsigned_char | dw::DW_ATE_UTF), 1..=8) => {
            Kind::Integer { bytes: size, signed: false }
        }
        (Some(dw::DW_ATE_float), 4) => Kind::Float,
        (Some(dw::DW_ATE_float), 8) => Kind::Double,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_what_is_not_known_nothing_is() {
        let one = Passed::In([Some(Class::General), None]);
        let mut places = Places::behind_result(Some(true));
        assert_eq!(places.take(one), Where::General(GENERAL[1]));
        assert_eq!(places.take(Passed::In([Some(Class::General); 2])), Where::Nowhere);
        assert_eq!(places.take(one), Where::General(GENERAL[4]));
        assert_eq!(places.take(Passed::Unknown), Where::Nowhere);
        assert_eq!(places.take(one), Where::Nowhere);
        assert_eq!(Places::behind_result(None).take(one), Where::Nowhere);
    }
}
