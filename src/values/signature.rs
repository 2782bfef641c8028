//! What a function takes and gives, from debug information, and where that is when it begins and when it has returned.
//!
//! Where the debug information says where a parameter is when the function begins, it is there: so it is with copies that the compiler
//! made for some callers. Else the ABI says it ([`super::passing`]); not in what LLVM (clang, rustc) has optimised, which gives
//! functions that only their own file calls other parameters under the same name ([`super::spilled`] tells).
//!
//! Example: of `int order(const char *name, double price, std::string note)`, `name` is in rdi, `price` in xmm0, the address of `note` in
//! rsi; the result is the low half of rax.

use super::info::{Die, Info};
use super::passing::{GENERAL, Passed, Places, Source, Where};
use super::spilled::Read;
use super::types::Type;
use super::value::Value;
use super::{World, location};
use gimli::{AttributeValue, Operation};
use std::rc::Rc;

/// What a function takes and gives.
#[derive(Clone)]
pub(crate) struct Signature {
    pub(crate) parameters: Vec<Parameter>,
    /// `None` of a function that gives nothing.
    result: Option<(Type, Where)>,
    /// It takes more than is named.
    pub(crate) variadic: bool,
}

/// A parameter.
#[derive(Clone)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    ty: Type,
    /// By the ABI.
    place: Where,
    /// The entry whose location holds where the function begins.
    told: Option<(Rc<Info>, Die)>,
}

/// A type of C that no debug information describes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plain {
    Pointer,
    Text,
    Int,
    Long,
    Unsigned,
}

impl Plain {
    fn ty(self) -> Type {
        let number = |encoding, size| Type::Number { encoding, size };
        match self {
            Plain::Pointer => Type::Void.pointer_to(),
            Plain::Text => number(gimli::DW_ATE_signed_char, 1).pointer_to(),
            Plain::Int => number(gimli::DW_ATE_signed, 4),
            Plain::Long => number(gimli::DW_ATE_signed, 8),
            Plain::Unsigned => number(gimli::DW_ATE_unsigned, 8),
        }
    }
}

impl Signature {
    /// That of the function that begins at `entry`; `None` where the debug information says nothing of it. Of a `copy` that the compiler
    /// made for some callers, the ABI does not say what it takes.
    pub(crate) fn of(
        info: &Rc<Info>,
        entry: u64,
        copy: bool,
        read: &dyn Fn(u64, &mut [u8]) -> bool,
    ) -> Option<Signature> {
        let own = entry.wrapping_sub(info.bias);
        let die = info.function_at(own)?;
        let begins = info.ranges_of(die.unit, &info.entry(die)?).iter().any(|range| range.start == own);
        let made = Made::of(info, die.unit);
        // Functions of assembly have no types.
        if !begins || made.assembly {
            return None;
        }
        let result = info.attribute(die, gimli::DW_AT_type).map(|_| {
            let ty = Type::of(info, die);
            let place = Passed::of(&ty, made.rust).returned(&ty);
            (ty, place)
        });
        let mut places = Places::behind_result(result.as_ref().map(|(_, place)| place));
        let (mut parameters, mut variadic, mut locations) = (Vec::new(), false, Vec::new());
        for (die, of) in info.children(die) {
            variadic |= of.tag() == gimli::DW_TAG_unspecified_parameters;
            if of.tag() != gimli::DW_TAG_formal_parameter {
                continue;
            }
            let (ty, location) = (Type::of(info, die), Location::of(info, die, entry));
            let place = places.take(&Passed::of(&ty, made.rust));
            locations.push(location);
            parameters.push(Parameter {
                name: info.name_of(die).unwrap_or_default(),
                place,
                told: (location == Location::Told).then(|| (Rc::clone(info), die)),
                ty,
            });
        }
        let read = Read::of(entry, read);
        let is_read = |it: &Parameter| it.place.sources().iter().all(|source| read.has(*source));
        // Without optimisation, what is passed in registers is saved in its places at once.
        let mut saved = parameters.iter().zip(&locations).filter(|(_, it)| **it == Location::Slot).peekable();
        let is_plain = saved.peek().is_some() && saved.all(|(parameter, _)| is_read(parameter));
        for parameter in &mut parameters {
            let is_by_rules = !copy && (!made.llvm || is_plain && is_read(parameter));
            if !is_by_rules {
                parameter.place = Where::Unknown;
            }
        }
        Some(Signature { parameters, result, variadic })
    }

    /// Where the result is to be put, where the function begins, if the caller says that.
    pub(crate) fn result_address(&self, world: &dyn World) -> Option<u64> {
        let is_pointed = matches!(self.result, Some((_, Where::Pointed(_))));
        world.frame(0)?.general[GENERAL[0]].filter(|_| is_pointed)
    }

    /// That of a function of C with at most six parameters.
    pub(crate) fn plain(
        parameters: Vec<(String, Plain)>,
        result: Option<Plain>,
        variadic: bool,
    ) -> Signature {
        let parameters = parameters.into_iter().zip(GENERAL).map(|((name, plain), register)| {
            let ty = plain.ty();
            let place = Where::Scattered(vec![(0, ty.size().unwrap_or(8), Source::General(register))]);
            Parameter { name, ty, place, told: None }
        });
        let result = result.map(|plain| {
            let ty = plain.ty();
            let place = Passed::of(&ty, false).returned(&ty);
            (ty, place)
        });
        Signature { parameters: parameters.collect(), result, variadic }
    }

    #[cfg(test)]
    pub(crate) fn has_result(&self) -> bool {
        self.result.is_some()
    }

    /// What it has returned, where it has just done so; `None` of one that gives nothing. `address` is that of
    /// [`Signature::result_address`]: rax need not have it in what LLVM has optimised.
    pub(crate) fn result(&self, world: &dyn World, address: Option<u64>) -> Option<Value> {
        let (ty, place) = self.result.as_ref()?;
        Some(match address {
            Some(address) => Value::at_address(ty, address),
            None => place.value(ty, world),
        })
    }

    /// Whether vector registers are needed for its arguments.
    pub(crate) fn takes_vectors(&self) -> bool {
        self.parameters.iter().any(|it| it.told.is_some() || it.place.has_vector())
    }

    /// Whether they are for its result.
    pub(crate) fn gives_vectors(&self) -> bool {
        self.result.as_ref().is_some_and(|(_, place)| place.has_vector())
    }
}

impl Parameter {
    /// The argument, where the function begins.
    pub(crate) fn value(&self, world: &dyn World) -> Value {
        let told = self.told.as_ref().map(|(info, die)| location::value(world, 0, info, *die));
        told.filter(|it| it.missing().is_none()).unwrap_or_else(|| self.place.value(&self.ty, world))
    }
}

/// Who has made a unit.
struct Made {
    rust: bool,
    llvm: bool,
    assembly: bool,
}

impl Made {
    fn of(info: &Info, unit: usize) -> Made {
        let root = info.root(unit);
        let language = root.and_then(|root| info.attribute(root, gimli::DW_AT_language)).map(|(_, it)| it);
        let producer = root.and_then(|root| info.string(root, gimli::DW_AT_producer)).unwrap_or_default();
        let is = |wanted| matches!(language, Some(AttributeValue::Language(of)) if of == wanted);
        let rust = is(gimli::DW_LANG_Rust);
        Made {
            rust,
            llvm: rust || producer.contains("clang") || producer.contains("LLVM"),
            assembly: is(gimli::DW_LANG_Mips_Assembler),
        }
    }
}

/// What the location of a parameter says of it where the function begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    /// It is there then.
    Told,
    /// It has a place on the stack for the whole of the function, as without optimisation, and comes there later.
    Slot,
    Nothing,
}

impl Location {
    fn of(info: &Rc<Info>, die: Die, entry: u64) -> Location {
        if info.attribute(die, gimli::DW_AT_const_value).is_some() {
            return Location::Told;
        }
        let Some((at, location)) = info.attribute(die, gimli::DW_AT_location) else {
            return Location::Nothing;
        };
        let Some(expression) = location::expression_at(info, at.unit, &location, entry) else {
            return Location::Nothing;
        };
        if location.exprloc_value().is_none() {
            return Location::Told;
        }
        let Some(unit) = info.unit(at.unit) else { return Location::Nothing };
        match expression.operations(unit.encoding()).next() {
            Ok(Some(Operation::Register { .. })) => Location::Told,
            // rbp and rsp.
            Ok(Some(Operation::FrameOffset { .. })) => Location::Slot,
            Ok(Some(Operation::RegisterOffset { register: gimli::Register(6 | 7), .. })) => Location::Slot,
            _ => Location::Nothing,
        }
    }
}
