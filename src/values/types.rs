//! What a type is: its shape, its size, and its name as C writes it.

use super::info::{Die, Entry, Info};
use gimli::{AttributeValue, DwAt, DwAte, DwTag};
use std::rc::Rc;
use synth::program::readable;

/// Names of names, qualifiers of qualifiers, arrays of arrays.
const DEEPEST: usize = 32;
/// Parameters in the name of a function's type; the others are left out.
const MOST_PARAMETERS: usize = 8;
/// More members or values than these are not listed: no source has them.
const MOST_MEMBERS: usize = 10_000;

/// A type.
#[derive(Clone)]
pub(super) enum Type {
    /// None: what `void *` points to.
    Void,
    /// A number that no debug information describes: a register, a literal.
    Number { encoding: DwAte, size: u64 },
    /// A vector register.
    Wide,
    /// A pointer that no debug information describes: `&x`.
    Pointer(Rc<Type>),
    /// An entry.
    Entry(Rc<Info>, Die),
    /// The rest of an array type, where so many of its dimensions were indexed.
    Rest(Rc<Info>, Die, usize),
    /// What is wrong with it.
    Unknown(&'static str),
}

/// What can be done with a value of a type.
pub(super) enum Shape {
    Void,
    Number { encoding: DwAte },
    Pointer { to: Type, reference: bool },
    Record(Record),
    Array { element: Type, count: Option<u64> },
    Enumeration { names: Vec<(String, i128)> },
    Function,
    Unknown(&'static str),
}

/// A structure, union or class.
pub(super) struct Record {
    pub(super) members: Vec<Member>,
    /// Of an enumeration of Rust: what tells which of the others is there, and those.
    pub(super) variants: Option<(Member, Vec<Variant>)>,
}

/// A part of a record.
#[derive(Clone)]
pub(super) struct Member {
    /// Empty for one that has none, whose own members are the record's.
    pub(super) name: String,
    pub(super) ty: Type,
    /// Bytes from the record's beginning; `None` where that is computed.
    pub(super) at: Option<u64>,
    /// A bit field: bits from the record's beginning, and how many.
    pub(super) bits: Option<(u64, u64)>,
    pub(super) base: bool,
}

/// A part of a record that is there for one value of what tells them apart; `None` for all others.
pub(super) struct Variant {
    pub(super) value: Option<i128>,
    pub(super) member: Member,
}

impl Type {
    /// The type that an entry has.
    pub(super) fn of(info: &Rc<Info>, die: Die) -> Type {
        match info.attribute(die, gimli::DW_AT_type) {
            None => Type::Void,
            Some((_, AttributeValue::DebugTypesRef(_))) => {
                Type::Unknown("a type in a type unit, which are not read")
            }
            Some((at, value)) => match info.referred(at, &value) {
                Some(die) => Type::Entry(Rc::clone(info), die),
                None => Type::Unknown("a type that is not in this file"),
            },
        }
    }

    pub(super) fn entry(info: &Rc<Info>, die: Die) -> Type {
        Type::Entry(Rc::clone(info), die)
    }

    /// A whole number of 64 bits.
    pub(super) fn word(signed: bool) -> Type {
        let encoding = if signed { gimli::DW_ATE_signed } else { gimli::DW_ATE_unsigned };
        Type::Number { encoding, size: 8 }
    }

    /// Whether it is a vector of the processor.
    pub(super) fn is_vector(&self) -> bool {
        let Type::Entry(info, die) = self.plain() else { return false };
        info.entry(die).is_some_and(|it| it.attr_value(gimli::DW_AT_GNU_vector).is_some())
    }

    pub(super) fn pointer_to(self) -> Type {
        Type::Pointer(Rc::new(self))
    }

    /// Without the names and qualifiers that it was given; of a structure that is declared alone, its definition elsewhere.
    pub(super) fn plain(&self) -> Type {
        let mut ty = self.clone();
        for _ in 0..DEEPEST {
            let Type::Entry(info, die) = &ty else { return ty };
            let Some(entry) = info.entry(*die) else { return Type::Unknown("a damaged type") };
            let tag = entry.tag();
            if is_declared(&entry)
                && let Some(definition) = definition(info, *die, tag)
            {
                return Type::Entry(Rc::clone(info), definition);
            }
            if tag != gimli::DW_TAG_typedef && qualifier(tag).is_none() {
                return ty;
            }
            ty = Type::of(info, *die);
        }
        Type::Unknown("a type that is named in a circle")
    }

    /// What can be done with its values.
    pub(super) fn shape(&self) -> Shape {
        let (info, die) = match self.plain() {
            Type::Void => return Shape::Void,
            Type::Number { encoding, .. } => return Shape::Number { encoding },
            Type::Wide => return Shape::Number { encoding: gimli::DW_ATE_unsigned },
            Type::Pointer(to) => return Shape::Pointer { to: (*to).clone(), reference: false },
            Type::Rest(info, die, skip) => return array(&info, die, skip),
            Type::Unknown(why) => return Shape::Unknown(why),
            Type::Entry(info, die) => (info, die),
        };
        let Some(entry) = info.entry(die) else { return Shape::Unknown("a damaged type") };
        match entry.tag() {
            gimli::DW_TAG_base_type => match entry.attr_value(gimli::DW_AT_encoding) {
                Some(AttributeValue::Encoding(encoding)) => Shape::Number { encoding },
                _ => Shape::Unknown("a damaged type"),
            },
            gimli::DW_TAG_unspecified_type => Shape::Void,
            gimli::DW_TAG_pointer_type => Shape::Pointer { to: Type::of(&info, die), reference: false },
            gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type => {
                Shape::Pointer { to: Type::of(&info, die), reference: true }
            }
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                match is_declared(&entry) {
                    true => Shape::Unknown("a type that is declared, and defined in no file that was read"),
                    false => Shape::Record(record(&info, die)),
                }
            }
            gimli::DW_TAG_array_type => array(&info, die, 0),
            gimli::DW_TAG_enumeration_type => Shape::Enumeration { names: enumerators(&info, die) },
            gimli::DW_TAG_subroutine_type | gimli::DW_TAG_subprogram => Shape::Function,
            _ => Shape::Unknown("a type of a kind that is not shown"),
        }
    }

    /// Its size in bytes, where that is known.
    pub(super) fn size(&self) -> Option<u64> {
        self.size_at(0)
    }

    fn size_at(&self, depth: usize) -> Option<u64> {
        if depth > DEEPEST {
            return None;
        }
        let own = match self.plain() {
            Type::Void | Type::Unknown(_) => return None,
            Type::Number { size, .. } => return Some(size),
            Type::Pointer(_) => return Some(8),
            Type::Wide => return Some(16),
            Type::Rest(info, die, skip) => array(&info, die, skip),
            Type::Entry(info, die) => {
                let entry = info.entry(die)?;
                if let Some(size) = number(&entry, gimli::DW_AT_byte_size) {
                    return Some(size);
                }
                match entry.tag() {
                    gimli::DW_TAG_array_type => array(&info, die, 0),
                    gimli::DW_TAG_enumeration_type => return Type::of(&info, die).size_at(depth + 1),
                    gimli::DW_TAG_pointer_type
                    | gimli::DW_TAG_reference_type
                    | gimli::DW_TAG_rvalue_reference_type => return Some(8),
                    _ => return None,
                }
            }
        };
        match own {
            Shape::Array { element, count } => element.size_at(depth + 1)?.checked_mul(count?),
            _ => None,
        }
    }

    /// The name of a class or structure, without what it is in and without parameters: `vector`.
    pub(super) fn class(&self) -> Option<String> {
        let Type::Entry(info, die) = self.plain() else { return None };
        let name = info.name_of(die)?;
        Some(name.split('<').next().unwrap_or_default().to_owned())
    }

    /// The type that a template or generic type was given for a parameter of this name.
    pub(super) fn parameter(&self, name: &str) -> Option<Type> {
        let Type::Entry(info, die) = self.plain() else { return None };
        let of_name = |(die, entry): &(Die, Entry)| {
            entry.tag() == gimli::DW_TAG_template_type_parameter
                && info.name_of(*die).is_some_and(|it| it == name)
        };
        info.children(die).iter().find(|it| of_name(it)).map(|(die, _)| Type::of(&info, *die))
    }

    /// Its name as C writes it.
    pub(super) fn name(&self) -> String {
        self.declare("", 0)
    }

    /// A declaration of `inner` with this type.
    fn declare(&self, inner: &str, depth: usize) -> String {
        let plain = |name: &str| if inner.is_empty() { name.to_owned() } else { format!("{name} {inner}") };
        if depth > DEEPEST {
            return plain("...");
        }
        let (info, die, skip) = match self {
            Type::Void => return plain("void"),
            Type::Number { encoding, size } => return plain(number_name(*encoding, *size)),
            Type::Wide => return plain("unsigned __int128"),
            Type::Pointer(to) => return to.declare_pointer("*", inner, depth + 1),
            Type::Unknown(_) => return plain("?"),
            Type::Rest(info, die, skip) => (info, *die, *skip),
            Type::Entry(info, die) => (info, *die, 0),
        };
        let Some(tag) = info.entry(die).map(|entry| entry.tag()) else { return plain("?") };
        let target = || Type::of(info, die);
        match tag {
            gimli::DW_TAG_pointer_type => {
                if let Some(name) = info.name_of(die) {
                    return plain(&name);
                }
                target().declare_pointer("*", inner, depth + 1)
            }
            gimli::DW_TAG_reference_type => target().declare_pointer("&", inner, depth + 1),
            gimli::DW_TAG_rvalue_reference_type => target().declare_pointer("&&", inner, depth + 1),
            gimli::DW_TAG_array_type => {
                let counts = dimensions(info, die).into_iter().skip(skip);
                let counts =
                    counts.map(|count| count.map_or_else(|| "[]".to_owned(), |count| format!("[{count}]")));
                target().declare(&format!("{inner}{}", counts.collect::<String>()), depth + 1)
            }
            gimli::DW_TAG_subroutine_type | gimli::DW_TAG_subprogram => {
                let children = info.children(die).into_iter();
                let parameters = children.filter(|(_, it)| it.tag() == gimli::DW_TAG_formal_parameter);
                let parameters = parameters.take(MOST_PARAMETERS);
                // Deeper than others: damaged types have themselves as parameters.
                let name = |die: Die| Type::of(info, die).declare("", depth + DEEPEST / 4);
                let names: Vec<_> = parameters.map(|(die, _)| name(die)).collect();
                let names = if names.is_empty() { "void".to_owned() } else { names.join(", ") };
                target().declare(&format!("{inner}({names})"), depth + 1)
            }
            tag => match (qualifier(tag), target()) {
                (Some(word), to) if to.is_pointer() => {
                    let inner = if inner.is_empty() { word.to_owned() } else { format!("{word} {inner}") };
                    to.declare(&inner, depth + 1)
                }
                (Some(word), to) => format!("{word} {}", to.declare(inner, depth + 1)),
                (None, _) => {
                    let name = info.name_of(die).map_or_else(|| "{...}".to_owned(), |name| readable(&name));
                    let kind = kind(tag).filter(|_| info.is_c(die.unit)).unwrap_or_default();
                    plain(&format!("{kind}{name}"))
                }
            },
        }
    }

    fn declare_pointer(&self, sign: &str, inner: &str, depth: usize) -> String {
        let inner = format!("{sign}{inner}");
        let needs = match self {
            Type::Rest(..) => true,
            Type::Entry(info, die) => info.entry(*die).is_some_and(|entry| {
                matches!(
                    entry.tag(),
                    gimli::DW_TAG_array_type | gimli::DW_TAG_subroutine_type | gimli::DW_TAG_subprogram
                )
            }),
            _ => false,
        };
        self.declare(&if needs { format!("({inner})") } else { inner }, depth)
    }

    fn is_pointer(&self) -> bool {
        match self {
            Type::Pointer(_) => true,
            Type::Entry(info, die) => {
                info.entry(*die).is_some_and(|entry| entry.tag() == gimli::DW_TAG_pointer_type)
            }
            _ => false,
        }
    }
}

/// What C calls a number of 64 or 32 bits, or a character.
fn number_name(encoding: DwAte, size: u64) -> &'static str {
    match (encoding, size) {
        (gimli::DW_ATE_signed_char, _) => "char",
        (gimli::DW_ATE_signed, 4) => "int",
        (gimli::DW_ATE_signed, _) => "long",
        _ => "unsigned long",
    }
}

pub(super) fn is_declared(entry: &Entry) -> bool {
    matches!(entry.attr_value(gimli::DW_AT_declaration), Some(AttributeValue::Flag(true)))
}

/// The definition of a structure that an entry declares alone.
fn definition(info: &Info, die: Die, tag: DwTag) -> Option<Die> {
    let name = info.name_of(die)?;
    info.named(&name).iter().find(|(of, found)| *of == tag && *found != die).map(|(_, die)| *die)
}

fn qualifier(tag: DwTag) -> Option<&'static str> {
    Some(match tag {
        gimli::DW_TAG_const_type => "const",
        gimli::DW_TAG_volatile_type => "volatile",
        gimli::DW_TAG_restrict_type => "restrict",
        gimli::DW_TAG_atomic_type => "_Atomic",
        _ => return None,
    })
}

/// What C writes before a name.
fn kind(tag: DwTag) -> Option<&'static str> {
    Some(match tag {
        gimli::DW_TAG_structure_type => "struct ",
        gimli::DW_TAG_union_type => "union ",
        gimli::DW_TAG_enumeration_type => "enum ",
        _ => return None,
    })
}

fn number(entry: &Entry, name: DwAt) -> Option<u64> {
    entry.attr_value(name)?.udata_value()
}

/// The numbers of elements of an array type; `None` where one is not known or computed.
fn dimensions(info: &Info, die: Die) -> Vec<Option<u64>> {
    let children = info.children(die).into_iter().take(DEEPEST);
    let ranges = children.filter(|(_, it)| it.tag() == gimli::DW_TAG_subrange_type);
    let count = |entry: &Entry| {
        if let Some(count) = number(entry, gimli::DW_AT_count) {
            return Some(count);
        }
        let last = entry.attr_value(gimli::DW_AT_upper_bound)?;
        // An array of no elements has -1.
        match (last.sdata_value(), last.udata_value()) {
            (Some(-1), _) => Some(0),
            (_, Some(last)) => last.checked_add(1),
            _ => None,
        }
    };
    ranges.map(|(_, entry)| count(&entry)).collect()
}

fn array(info: &Rc<Info>, die: Die, skip: usize) -> Shape {
    let counts = dimensions(info, die);
    let is_vector = info.entry(die).is_some_and(|entry| entry.attr_value(gimli::DW_AT_GNU_vector).is_some());
    let element = match counts.len() > skip + 1 {
        true => Type::Rest(Rc::clone(info), die, skip + 1),
        false => Type::of(info, die),
    };
    match counts.get(skip) {
        Some(count) => Shape::Array { element, count: *count },
        None if is_vector => Shape::Unknown("a vector without a number of elements"),
        None => Shape::Array { element, count: None },
    }
}

fn enumerators(info: &Info, die: Die) -> Vec<(String, i128)> {
    let children = info.children(die).into_iter().take(MOST_MEMBERS);
    let named = children.filter(|(_, entry)| entry.tag() == gimli::DW_TAG_enumerator);
    named
        .filter_map(|(die, entry)| Some((info.name_of(die)?, constant(&entry, gimli::DW_AT_const_value)?)))
        .collect()
}

fn constant(entry: &Entry, name: DwAt) -> Option<i128> {
    let value = entry.attr_value(name)?;
    // Of the forms that have no sign, producers use the shortest: 200 is one byte.
    value.udata_value().map(i128::from).or_else(|| value.sdata_value().map(i128::from))
}

fn record(info: &Rc<Info>, die: Die) -> Record {
    let mut record = Record { members: Vec::new(), variants: None };
    for (die, entry) in info.children(die).into_iter().take(MOST_MEMBERS) {
        match entry.tag() {
            // A static member is a global variable.
            gimli::DW_TAG_member | gimli::DW_TAG_inheritance
                if entry.attr_value(gimli::DW_AT_external).is_none() && !is_declared(&entry) =>
            {
                record.members.push(member(info, die, &entry));
            }
            gimli::DW_TAG_variant_part => record.variants = variants(info, die, &entry),
            _ => {}
        }
    }
    record
}

fn member(info: &Rc<Info>, die: Die, entry: &Entry) -> Member {
    let base = entry.tag() == gimli::DW_TAG_inheritance;
    let ty = Type::of(info, die);
    let at = match entry.attr_value(gimli::DW_AT_data_member_location) {
        None => Some(0),
        Some(value) => value.udata_value(),
    };
    let bits = number(entry, gimli::DW_AT_bit_size).and_then(|size| {
        let from = match (number(entry, gimli::DW_AT_data_bit_offset), number(entry, gimli::DW_AT_bit_offset))
        {
            (Some(from), _) => from,
            // DWARF 2 and 3 count from the most significant bit of a word of the declared size.
            (None, Some(offset)) => {
                let whole = number(entry, gimli::DW_AT_byte_size).or_else(|| ty.size())?.checked_mul(8)?;
                at?.checked_mul(8)?.checked_add(whole.checked_sub(offset)?.checked_sub(size)?)?
            }
            (None, None) => at?.checked_mul(8)?,
        };
        Some((from, size))
    });
    let name = if base { ty.name() } else { info.name_of(die).unwrap_or_default() };
    Member { name, ty, at, bits, base }
}

/// The alternatives of a Rust enumeration.
fn variants(info: &Rc<Info>, part: Die, entry: &Entry) -> Option<(Member, Vec<Variant>)> {
    let discriminant = info.referred(part, &entry.attr_value(gimli::DW_AT_discr)?)?;
    let tells = member(info, discriminant, &info.entry(discriminant)?);
    let children = info.children(part).into_iter().take(MOST_MEMBERS);
    let all = children.filter(|(_, entry)| entry.tag() == gimli::DW_TAG_variant);
    let variant = |(die, entry): (Die, Entry)| {
        let (at, of) = info.children(die).into_iter().find(|(_, it)| it.tag() == gimli::DW_TAG_member)?;
        Some(Variant { value: constant(&entry, gimli::DW_AT_discr_value), member: member(info, at, &of) })
    };
    Some((tells, all.filter_map(variant).collect()))
}
