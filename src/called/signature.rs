//! What a function takes and gives, from debug information, and in which registers (System V ABI for x86-64, 3.2.3).
//!
//! Where the debug information says that a parameter is in a register when the function begins, it is there: so it is with copies that
//! the compiler made for some callers. Else the ABI says where it is ([`super::passing`]); not in what LLVM (clang, rustc) has optimised,
//! which gives functions that only their own file calls other parameters under the same name.
//!
//! Example: of `int order(const char *name, double price, long count)`, `name` is in rdi, `price` in xmm0, `count` in rsi; the result is
//! the low half of rax.

use super::passing::{Passed, Places, Source};
use super::value::Kind;
use crate::symbols::Loaded;
use gimli::{
    AttributeValue, DebuggingInformationEntry, EndianArcSlice, Expression, LittleEndian, Operation, Unit,
    UnitOffset, constants as dw,
};
use std::rc::Rc;

pub(super) type Reader = EndianArcSlice<LittleEndian>;
pub(super) type Entry = DebuggingInformationEntry<Reader>;

/// What a function takes and gives.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    pub(crate) parameters: Vec<Parameter>,
    /// `None` of a function that gives nothing.
    pub(crate) result: Option<Kind>,
    /// It takes more than is named.
    pub(crate) variadic: bool,
}

/// A parameter.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) at: Where,
}

/// Where a parameter is when the function begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// In a general register, by hardware number.
    General(usize),
    /// In the low part of a vector register.
    Vector(usize),
    /// So many bytes above the stack pointer.
    Stack(u64),
    /// The compiler left it out, or it is in several registers.
    Nowhere,
}

/// rdi, rsi, rdx, rcx, r8, r9: the registers of integers and pointers.
pub(super) const GENERAL: [usize; 6] = [7, 6, 2, 1, 8, 9];
/// Hardware numbers of DWARF registers 0 to 7.
const HARDWARE: [usize; 8] = [0, 2, 1, 3, 6, 7, 5, 4];
const FIRST_XMM: u16 = 17;

/// The signature of the function that begins at `entry`; `None` where the module's debug information says nothing of it.
pub(crate) fn of(module: &Loaded, entry: u64) -> Option<Signature> {
    let dwarf = module.dwarf()?;
    let own = entry.wrapping_sub(module.bias());
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        let Ok(unit) = dwarf.unit(header) else { continue };
        let mut ranges = dwarf.unit_ranges(&unit).ok()?;
        let mut covers = false;
        while let Ok(Some(range)) = ranges.next() {
            covers |= (range.begin..range.end).contains(&own);
        }
        if covers && is_assembly(&unit) {
            return None;
        }
        if covers && let Some(function) = function_at(dwarf, &unit, own) {
            let made = module.names().symbols().iter().any(|it| it.start == entry && !it.name.contains('.'));
            return signature(&Source { dwarf, unit: Rc::new(unit) }, function, own, made);
        }
    }
    None
}

/// Whether a unit was written by hand: its functions have no types.
fn is_assembly(unit: &Unit<Reader>) -> bool {
    let mut entries = unit.entries();
    let root = entries.next_dfs().ok().flatten();
    let language = root.and_then(|root| root.attr_value(dw::DW_AT_language));
    matches!(language, Some(AttributeValue::Language(dw::DW_LANG_Mips_Assembler)))
}

fn function_at(dwarf: &gimli::Dwarf<Reader>, unit: &Unit<Reader>, address: u64) -> Option<UnitOffset> {
    let mut entries = unit.entries();
    while let Ok(Some(entry)) = entries.next_dfs() {
        if entry.tag() == dw::DW_TAG_subprogram
            && let Some(low) = entry.attr_value(dw::DW_AT_low_pc)
            && dwarf.attr_address(unit, low).ok().flatten() == Some(address)
        {
            return Some(entry.offset());
        }
    }
    None
}

fn signature(source: &Source<'_>, function: UnitOffset, low: u64, made: bool) -> Option<Signature> {
    let mut tree = source.unit.entries_tree(Some(function)).ok()?;
    let root = tree.root().ok()?;
    let Made { rust, llvm } = Made::of(source);
    let has_result = source.attr(root.entry(), dw::DW_AT_type).is_some();
    let of = source.type_of(root.entry());
    let in_memory = match &of {
        Some(of) => of.is_returned_in_memory(rust),
        None => (!has_result).then_some(false),
    };
    let result = has_result.then(|| of.map_or(Kind::Other, |of| of.kind()));
    let mut places = Places::behind_result(in_memory);
    let (mut parameters, mut variadic) = (Vec::new(), false);
    let mut children = root.children();
    while let Ok(Some(child)) = children.next() {
        let entry = child.entry();
        variadic |= entry.tag() == dw::DW_TAG_unspecified_parameters;
        if entry.tag() != dw::DW_TAG_formal_parameter {
            continue;
        }
        let of = source.type_of(entry);
        let by_rules = places.take(of.as_ref().map_or(Passed::Unknown, |of| of.passed(rust)));
        let is_by_rules = made && (!llvm || is_kept_on_stack(source, entry));
        let at = register(source, entry, low).unwrap_or(if is_by_rules { by_rules } else { Where::Nowhere });
        let name = source.attr(entry, dw::DW_AT_name).and_then(|(of, it)| of.text(it)).unwrap_or_default();
        parameters.push(Parameter { name, kind: of.map_or(Kind::Other, |of| of.kind()), at });
    }
    Some(Signature { parameters, result, variadic })
}

/// Who has made a unit.
struct Made {
    rust: bool,
    llvm: bool,
}

impl Made {
    fn of(source: &Source<'_>) -> Made {
        let mut entries = source.unit.entries();
        let root = entries.next_dfs().ok().flatten();
        let language = root.and_then(|root| root.attr_value(dw::DW_AT_language));
        let producer = root.and_then(|root| root.attr_value(dw::DW_AT_producer));
        let producer = producer.and_then(|it| source.text(it)).unwrap_or_default();
        let rust = matches!(language, Some(AttributeValue::Language(dw::DW_LANG_Rust)));
        Made { rust, llvm: rust || producer.contains("clang") || producer.contains("LLVM") }
    }
}

/// Whether a parameter has a place on the stack for the whole of the function, as without optimisation.
fn is_kept_on_stack(source: &Source<'_>, entry: &Entry) -> bool {
    let Some(AttributeValue::Exprloc(expression)) = entry.attr_value(dw::DW_AT_location) else {
        return false;
    };
    matches!(
        expression.operations(source.unit.encoding()).next(),
        Ok(Some(Operation::FrameOffset { .. } | Operation::RegisterOffset { .. }))
    )
}

/// The register that a parameter is in where the function begins, if its debug information names one.
fn register(source: &Source<'_>, entry: &Entry, low: u64) -> Option<Where> {
    let location = entry.attr_value(dw::DW_AT_location)?;
    if let AttributeValue::Exprloc(expression) = location {
        return only_register(source, expression);
    }
    let mut list = source.dwarf.attr_locations(&source.unit, location).ok().flatten()?;
    while let Ok(Some(part)) = list.next() {
        if (part.range.begin..part.range.end).contains(&low) {
            return only_register(source, part.data);
        }
    }
    None
}

fn only_register(source: &Source<'_>, expression: Expression<Reader>) -> Option<Where> {
    let mut operations = expression.operations(source.unit.encoding());
    let Ok(Some(Operation::Register { register })) = operations.next() else { return None };
    if operations.next().ok()?.is_some() {
        return None;
    }
    match register.0 {
        n @ 0..=15 => {
            let n = usize::from(n);
            Some(Where::General(HARDWARE.get(n).copied().unwrap_or(n)))
        }
        n @ FIRST_XMM..=32 => Some(Where::Vector(usize::from(n - FIRST_XMM))),
        _ => None,
    }
}
