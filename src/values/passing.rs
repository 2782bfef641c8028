//! Where values are when a function begins and when it has returned: the System V ABI for x86-64, 3.2.3, and what rustc makes of it.
//!
//! Rust promises nothing of how its functions are called. What all its versions of these years do is known: what one or two numbers or
//! pointers are made of is in as many registers (`&str`, `Option<u32>`, a pair), other things of one word are in one, and of what is
//! larger than two words the address is in a register. Behind a parameter that is none of these, it is not known where the next one is.
//!
//! Example: `fn add(order: Order, count: u32)` with an `Order` of 40 bytes has the address of the order in rdi, and `count` in rsi. In C
//! the order would be on the stack, and the count in rdi.

use super::World;
use super::info::{Die, Entry, Info};
use super::types::{Record, Shape, Type, is_declared};
use super::value::{Place, Value};
use gimli::AttributeValue;
use std::rc::Rc;

/// Types may be made of types so often; damaged ones of themselves.
const DEEPEST: usize = 24;
/// A value of more bytes is in memory.
const IN_REGISTERS: u64 = 16;
/// Scalars of a value of so few bytes, alternatives of an enumeration included.
const MOST_SCALARS: usize = 64;
/// Members and functions of a class.
const MOST_CHILDREN: usize = 10_000;
/// rdi, rsi, rdx, rcx, r8, r9 by their DWARF numbers: the registers of integers and pointers.
pub(crate) const GENERAL: [usize; 6] = [5, 4, 1, 2, 8, 9];
const VECTORS: usize = 8;
/// rax and rdx, which hold results.
const RESULTS: [usize; 2] = [0, 1];
const RSP: usize = 7;

/// What a scalar is passed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    General,
    Vector,
}

/// A number or a pointer in a value: so many bytes behind its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scalar {
    at: u64,
    size: u64,
    class: Class,
}

/// Where a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// In a general register, by DWARF number.
    General(usize),
    /// In the low part of a vector register.
    Vector(usize),
    /// So many bytes above the stack pointer.
    Stack(u64),
}

/// Where a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Where {
    /// Its scalars are in registers, or each on the stack.
    Scattered(Vec<(u64, u64, Source)>),
    /// In memory, and its address is there.
    Pointed(Source),
    /// So many bytes above the stack pointer.
    Stack(u64),
    Unknown,
}

impl Where {
    /// The value of a type that is there, where a function begins or has just returned.
    pub(super) fn value(&self, ty: &Type, world: &dyn World) -> Value {
        let nowhere = || Place::Nowhere("it is not known where it is".to_owned());
        let address = |it: Option<u64>| it.map_or_else(nowhere, Place::Memory);
        let place = match self {
            Where::Scattered(parts) => put_together(ty, parts, world).map_or_else(nowhere, Place::Bytes),
            Where::Pointed(source) => address(word(*source, world)),
            Where::Stack(above) => address(stack(*above, world)),
            Where::Unknown => nowhere(),
        };
        Value::new(ty.clone(), place)
    }

    /// The registers, and words of the stack, that it needs.
    pub(super) fn sources(&self) -> Vec<Source> {
        match self {
            Where::Scattered(parts) => parts.iter().map(|(.., source)| *source).collect(),
            Where::Pointed(source) => vec![*source],
            Where::Stack(_) | Where::Unknown => Vec::new(),
        }
    }

    pub(super) fn has_vector(&self) -> bool {
        self.sources().iter().any(|source| matches!(source, Source::Vector(_)))
    }
}

fn put_together(ty: &Type, parts: &[(u64, u64, Source)], world: &dyn World) -> Option<Vec<Option<u8>>> {
    let mut bytes = vec![None; usize::try_from(ty.size().unwrap_or(8).min(IN_REGISTERS)).ok()?];
    for (at, size, source) in parts {
        let word = word(*source, world)?.to_le_bytes();
        let places = bytes.iter_mut().skip(usize::try_from(*at).ok()?).zip(word);
        places.take(usize::try_from(*size).ok()?).for_each(|(place, byte)| *place = Some(byte));
    }
    Some(bytes)
}

fn word(source: Source, world: &dyn World) -> Option<u64> {
    match source {
        Source::General(number) => world.frame(0)?.general.get(number).copied().flatten(),
        Source::Vector(number) => {
            let low = world.frame(0)?.vector?.get(number)? & u128::from(u64::MAX);
            u64::try_from(low).ok()
        }
        Source::Stack(above) => {
            let mut bytes = [0; 8];
            world.read(stack(above, world)?, &mut bytes).then(|| u64::from_le_bytes(bytes))
        }
    }
}

fn stack(above: u64, world: &dyn World) -> Option<u64> {
    Some(world.frame(0)?.general[RSP]?.wrapping_add(above))
}

/// How a value is passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Passed(How);

#[derive(Clone, Debug, PartialEq, Eq)]
enum How {
    /// In registers: all of it, or on the stack, so in C; or each scalar for itself, so in Rust.
    Scalars { all: Vec<Scalar>, together: bool },
    /// Its address is.
    Pointed,
    /// On the stack, in so many bytes.
    Stack { size: u64, align: u64 },
    /// It is not known, nor where those behind it are.
    Unknown,
}

impl Passed {
    pub(super) fn of(ty: &Type, rust: bool) -> Passed {
        Passed(how(ty, rust))
    }

    /// Where it is when a function has returned it.
    pub(super) fn returned(&self, ty: &Type) -> Where {
        let is_record = matches!(ty.shape(), Shape::Record(_));
        match &self.0 {
            How::Scalars { all, .. } => {
                let mut places = Places::default();
                let mut place = |scalar: &Scalar| match scalar.class {
                    Class::General => Some(Source::General(*RESULTS.get(places.count(scalar.class))?)),
                    Class::Vector => Some(Source::Vector(places.count(scalar.class))),
                };
                let parts: Option<Vec<_>> = all.iter().map(|it| Some((it.at, it.size, place(it)?))).collect();
                parts.map_or(Where::Unknown, Where::Scattered)
            }
            How::Pointed => Where::Pointed(Source::General(RESULTS[0])),
            // A long double is in a register of the x87.
            How::Stack { .. } if is_record => Where::Pointed(Source::General(RESULTS[0])),
            How::Stack { .. } | How::Unknown => Where::Unknown,
        }
    }
}

fn how(ty: &Type, rust: bool) -> How {
    let (shape, size) = (ty.shape(), ty.size().unwrap_or(8));
    if is_special(ty, 0) {
        return How::Pointed;
    }
    let is_record = matches!(shape, Shape::Record(_) | Shape::Array { .. });
    if size > IN_REGISTERS {
        return if rust { How::Pointed } else { How::Stack { size: size.next_multiple_of(8), align: 8 } };
    }
    let mut all = Vec::new();
    match scalars(ty, 0, 0, &mut all) {
        Ok(()) => {}
        Err(NotInRegisters::Memory) if !rust => {
            return How::Stack { size: size.next_multiple_of(8), align: 16 };
        }
        Err(_) => return How::Unknown,
    }
    if !rust {
        return How::Scalars { all: words(&all, size), together: true };
    }
    all.sort_by_key(|it| (it.at, it.size));
    // Alternatives that have the same scalars in the same places are passed as one.
    all.dedup();
    let overlap = all.windows(2).any(|pair| pair[0].at + pair[0].size > pair[1].at);
    if is_record && (overlap || all.len() > 2) {
        // In one register, as a number. How more than a word is passed has changed.
        return if size <= 8 {
            How::Scalars { all: vec![whole(size)], together: false }
        } else {
            How::Unknown
        };
    }
    How::Scalars { all, together: false }
}

/// A word that is passed as a number, whatever is in it.
fn whole(size: u64) -> Scalar {
    Scalar { at: 0, size, class: Class::General }
}

/// Whether it is a class of C++ that is not copied as its bytes are: of an argument, or a result, the address is passed. LLVM says it; of
/// GCC's classes it is those with a destructor, or a copying or moving constructor, that somebody has written, with virtual functions,
/// or with a part that is such a class.
fn is_special(ty: &Type, depth: usize) -> bool {
    let Type::Entry(info, die) = ty.plain() else { return false };
    let Some(entry) = info.entry(die).filter(|_| depth < DEEPEST) else { return false };
    match (entry.tag(), entry.attr_value(gimli::DW_AT_calling_convention)) {
        (gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type, None) => {}
        (gimli::DW_TAG_array_type, _) => return is_special(&Type::of(&info, die), depth + 1),
        (_, convention) => {
            return convention == Some(AttributeValue::CallingConvention(gimli::DW_CC_pass_by_reference));
        }
    }
    let children = info.children(die);
    children.iter().take(MOST_CHILDREN).any(|(child, entry)| match entry.tag() {
        gimli::DW_TAG_subprogram => is_special_function(&info, die, *child, entry),
        gimli::DW_TAG_inheritance if entry.attr_value(gimli::DW_AT_virtuality).is_some() => true,
        gimli::DW_TAG_member | gimli::DW_TAG_inheritance => {
            let is_static = entry.attr_value(gimli::DW_AT_external).is_some() || is_declared(entry);
            !is_static && is_special(&Type::of(&info, *child), depth + 1)
        }
        _ => false,
    })
}

/// Whether a function of a class makes it one that is not copied as its bytes are.
fn is_special_function(info: &Rc<Info>, class: Die, die: Die, entry: &Entry) -> bool {
    let has = |name| entry.attr_value(name).is_some();
    if has(gimli::DW_AT_virtuality) {
        return true;
    }
    let name = info.name_of(die).unwrap_or_default();
    let own = info.name_of(class).unwrap_or_default();
    let is_constructor = || {
        let children = info.children(die).into_iter();
        let mut parameters = children.filter(|(_, it)| it.tag() == gimli::DW_TAG_formal_parameter).skip(1);
        let of_class = |(parameter, _): (Die, Entry)| match Type::of(info, parameter).shape() {
            Shape::Pointer { to, reference: true } => matches!(to.plain(), Type::Entry(_, it) if it == class),
            _ => false,
        };
        name == own.split('<').next().unwrap_or_default()
            && parameters.next().is_some_and(of_class)
            && parameters.next().is_none()
    };
    let made = [gimli::DW_AT_artificial, gimli::DW_AT_defaulted, gimli::DW_AT_deleted];
    !made.into_iter().any(has) && (name.starts_with('~') || is_constructor())
}

/// Why a value has no scalars that could be in registers.
enum NotInRegisters {
    Memory,
    Unknown,
}

/// The scalars that a value is made of.
fn scalars(ty: &Type, at: u64, depth: usize, found: &mut Vec<Scalar>) -> Result<(), NotInRegisters> {
    if depth > DEEPEST || found.len() > MOST_SCALARS {
        return Err(NotInRegisters::Unknown);
    }
    let size = ty.size().unwrap_or(8);
    let mut add = |size: u64, class| {
        let word = |n: u64| Scalar { at: at + 8 * n, size: (size - 8 * n).min(8), class };
        found.extend((0..size.min(IN_REGISTERS).div_ceil(8)).map(word));
    };
    match ty.shape() {
        Shape::Number { encoding: gimli::DW_ATE_float } if size > 8 => return Err(NotInRegisters::Memory),
        Shape::Number { encoding: gimli::DW_ATE_float } => add(size, Class::Vector),
        Shape::Number { encoding: gimli::DW_ATE_complex_float } if size <= 16 => add(size, Class::Vector),
        Shape::Number { encoding: gimli::DW_ATE_complex_float } => return Err(NotInRegisters::Memory),
        Shape::Number { .. } | Shape::Enumeration { .. } => add(size, Class::General),
        Shape::Pointer { .. } | Shape::Void => add(8, Class::General),
        Shape::Record(record) => of_record(&record, at, depth, found)?,
        // Vectors of the processor are in one register each.
        Shape::Array { .. } if ty.is_vector() => return Err(NotInRegisters::Unknown),
        Shape::Array { element, count } => {
            let each = element.size().unwrap_or(0);
            for n in 0..count.unwrap_or(0).min(IN_REGISTERS) {
                scalars(&element, at + n * each, depth + 1, found)?;
            }
        }
        Shape::Function | Shape::Unknown(_) => return Err(NotInRegisters::Unknown),
    }
    Ok(())
}

fn of_record(record: &Record, at: u64, depth: usize, found: &mut Vec<Scalar>) -> Result<(), NotInRegisters> {
    let tells = record.variants.iter().map(|(tells, _)| tells);
    let alternatives = record.variants.iter().flat_map(|(_, all)| all.iter().map(|it| &it.member));
    for member in record.members.iter().chain(tells).chain(alternatives) {
        // A virtual base class is somewhere behind a pointer.
        let from = member.bits.map(|(from, _)| from / 8).or(member.at).ok_or(NotInRegisters::Memory)?;
        if from > IN_REGISTERS {
            return Err(NotInRegisters::Unknown);
        }
        match member.bits {
            Some((from, bits)) => {
                let size = (from % 8 + bits.min(64)).div_ceil(8);
                found.push(Scalar { at: at + from / 8, size, class: Class::General });
            }
            None => scalars(&member.ty, at + from, depth + 1, found)?,
        }
    }
    Ok(())
}

/// The words of a value in C: one is in a vector register where all that is in it are floating-point numbers.
fn words(scalars: &[Scalar], size: u64) -> Vec<Scalar> {
    let word = |n: u64| {
        let mut inside =
            scalars.iter().filter(|it| it.at < 8 * (n + 1) && it.at + it.size > 8 * n).peekable();
        inside.peek()?;
        let is_vector = inside.all(|it| it.class == Class::Vector);
        let class = if is_vector { Class::Vector } else { Class::General };
        Some(Scalar { at: 8 * n, size: (size - 8 * n).min(8), class })
    };
    (0..size.div_ceil(8)).filter_map(word).collect()
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
    /// Those of the parameters of a function that returns its result there; `None` gives none.
    pub(super) fn behind_result(result: Option<&Where>) -> Places {
        // The caller says where it goes.
        let general = usize::from(matches!(result, Some(Where::Pointed(_))));
        Places { general, lost: result == Some(&Where::Unknown), ..Places::default() }
    }

    pub(super) fn take(&mut self, passed: &Passed) -> Where {
        self.lost |= passed.0 == How::Unknown;
        if self.lost {
            return Where::Unknown;
        }
        match &passed.0 {
            How::Unknown => Where::Unknown,
            How::Pointed => Where::Pointed(self.one(Class::General)),
            How::Stack { size, align } => Where::Stack(self.on_stack(*size, *align)),
            How::Scalars { all, together } => {
                let count = |class| all.iter().filter(|it| it.class == class).count();
                let (general, vectors) = (count(Class::General), count(Class::Vector));
                if *together && (self.general + general > GENERAL.len() || self.vectors + vectors > VECTORS) {
                    return Where::Stack(self.on_stack(8 * all.len() as u64, 8));
                }
                Where::Scattered(all.iter().map(|it| (it.at, it.size, self.one(it.class))).collect())
            }
        }
    }

    /// The place of one scalar.
    fn one(&mut self, class: Class) -> Source {
        let n = self.count(class);
        match class {
            Class::General if n < GENERAL.len() => Source::General(GENERAL[n]),
            Class::Vector if n < VECTORS => Source::Vector(n),
            _ => Source::Stack(self.on_stack(8, 8)),
        }
    }

    /// How many of a class there were before, and one more now.
    fn count(&mut self, class: Class) -> usize {
        let count = match class {
            Class::General => &mut self.general,
            Class::Vector => &mut self.vectors,
        };
        *count += 1;
        *count - 1
    }

    fn on_stack(&mut self, size: u64, align: u64) -> u64 {
        // Above the return address.
        let at = self.stack.next_multiple_of(align);
        self.stack = at.saturating_add(size);
        at + 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalars(classes: &[Class], together: bool) -> Passed {
        let all = classes.iter().zip(0..).map(|(class, n)| Scalar { at: 8 * n, size: 8, class: *class });
        Passed(How::Scalars { all: all.collect(), together })
    }

    #[test]
    fn behind_what_is_not_known_nothing_is() {
        let one = scalars(&[Class::General], true);
        let pointed = Where::Pointed(Source::General(RESULTS[0]));
        let mut places = Places::behind_result(Some(&pointed));
        let general = |n: usize| Where::Scattered(vec![(0, 8, Source::General(GENERAL[n]))]);
        assert_eq!(places.take(&one), general(1));
        places.take(&scalars(&[Class::General; 2], true));
        assert_eq!(places.take(&one), general(4));
        assert_eq!(places.take(&Passed(How::Unknown)), Where::Unknown);
        assert_eq!(places.take(&one), Where::Unknown);
        assert_eq!(Places::behind_result(Some(&Where::Unknown)).take(&one), Where::Unknown);
        assert_eq!(Places::behind_result(None).take(&one), general(0));
    }

    /// Where registers run out, C passes a structure whole on the stack, and Rust each half where there is room.
    #[test]
    fn what_does_not_fit_is_on_the_stack() {
        let pair = [Class::General; 2];
        for (together, expected) in [
            (true, Where::Stack(8)),
            (false, Where::Scattered(vec![(0, 8, Source::General(GENERAL[5])), (8, 8, Source::Stack(8))])),
        ] {
            let mut places = Places::behind_result(None);
            for _ in 0..5 {
                places.take(&scalars(&[Class::General], together));
            }
            assert_eq!(places.take(&scalars(&pair, together)), expected);
        }
    }
}
