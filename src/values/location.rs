//! Where a variable is: its location at an address, worked out to memory, to bytes of registers, or to the reason why it has no value.

use super::info::{Die, Info, Reader};
use super::types::Type;
use super::value::{Place, Value};
use super::{Frame, World};
use gimli::{
    AttributeValue, Encoding, Evaluation, EvaluationResult, Expression, Location, Piece, Reader as _,
    Value as Word, ValueType,
};
use std::cell::Cell;
use std::rc::Rc;

/// Operations of one expression: damaged ones may loop.
const MOST_OPERATIONS: u32 = 1000;
/// Expressions need others: the frame base, entry values of callers. Damaged ones may need each other.
const MOST_EXPRESSIONS: u32 = 64;
/// No variable that is in pieces is larger.
const LARGEST: u64 = 1 << 16;
/// What is said of a variable that the compiler keeps nowhere at an address.
const OPTIMIZED_OUT: &str = "optimized out";

/// The value of a variable, parameter or function in a frame.
pub(super) fn value(world: &dyn World, frame: usize, info: &Rc<Info>, die: Die) -> Value {
    let ty = match info.entry(die).map(|entry| entry.tag()) {
        Some(gimli::DW_TAG_subprogram) => return function(info, die),
        _ => Type::of(info, die),
    };
    match place(world, frame, info, die, &ty) {
        Ok((place, register)) => Value { register, ..Value::new(ty, place) },
        Err(why) => Value::new(ty, Place::Nowhere(why)),
    }
}

fn function(info: &Rc<Info>, die: Die) -> Value {
    let start = info.entry(die).and_then(|entry| info.ranges_of(die.unit, &entry).first().map(|it| it.start));
    let place = match start {
        Some(start) => Place::Memory(start.wrapping_add(info.bias)),
        None => Place::Nowhere(OPTIMIZED_OUT.to_owned()),
    };
    Value::new(Type::entry(info, die), place)
}

/// Where it is, and the register that all of it is in.
fn place(
    world: &dyn World,
    frame: usize,
    info: &Rc<Info>,
    die: Die,
    ty: &Type,
) -> Result<(Place, Option<u16>), String> {
    if let Some((_, constant)) = info.attribute(die, gimli::DW_AT_const_value) {
        return Ok((constant_value(info, die, &constant, ty)?, None));
    }
    let Some((at, location)) = info.attribute(die, gimli::DW_AT_location) else {
        return Err(OPTIMIZED_OUT.to_owned());
    };
    // An expression that needs no frame, such as a global's, works where there is none.
    let pc = world.frame(frame).map_or(0, |frame| frame.pc);
    let Some(expression) = expression_at(info, at.unit, &location, pc) else {
        return Err(OPTIMIZED_OUT.to_owned());
    };
    let left = Cell::new(MOST_EXPRESSIONS);
    let context = Context { world, frame, info, unit: at.unit, left: &left };
    let pieces = context.evaluate(expression)?;
    let register = match &pieces[..] {
        [Piece { location: Location::Register { register }, size_in_bits: None, .. }] => Some(register.0),
        _ => None,
    };
    Ok((context.put_together(&pieces, ty)?, register))
}

fn constant_value(
    info: &Info,
    die: Die,
    constant: &AttributeValue<Reader>,
    ty: &Type,
) -> Result<Place, String> {
    let size = usize::try_from(ty.size().unwrap_or(8)).unwrap_or(8);
    let bytes = match constant {
        AttributeValue::Block(block) => block.to_slice().ok().map(|bytes| bytes.to_vec()),
        AttributeValue::String(_) | AttributeValue::DebugStrRef(_) => {
            let text = info.string(die, gimli::DW_AT_const_value);
            text.map(|text| [text.as_bytes(), &[0]].concat())
        }
        other => {
            let number = other.udata_value().map(i128::from).or_else(|| other.sdata_value().map(i128::from));
            number.map(|number| number.to_le_bytes()[..size.min(16)].to_vec())
        }
    };
    let bytes = bytes.ok_or("a constant of a form that is not known")?;
    Ok(Place::Bytes(bytes.into_iter().map(Some).collect()))
}

/// The expression that holds at an address.
pub(super) fn expression_at(
    info: &Info,
    unit: usize,
    location: &AttributeValue<Reader>,
    pc: u64,
) -> Option<Expression<Reader>> {
    if let Some(expression) = location.exprloc_value() {
        return (!expression.0.is_empty()).then_some(expression);
    }
    let address = pc.wrapping_sub(info.bias);
    let mut list = info.dwarf(unit).attr_locations(info.unit(unit)?, location.clone()).ok()??;
    while let Ok(Some(entry)) = list.next() {
        if (entry.range.begin..entry.range.end).contains(&address) {
            return (!entry.data.0.is_empty()).then_some(entry.data);
        }
    }
    None
}

/// What an expression is evaluated in.
#[derive(Clone, Copy)]
struct Context<'a> {
    world: &'a dyn World,
    frame: usize,
    info: &'a Rc<Info>,
    unit: usize,
    /// How many expressions may still be evaluated for this value.
    left: &'a Cell<u32>,
}

impl Context<'_> {
    fn evaluate(self, expression: Expression<Reader>) -> Result<Vec<Piece<Reader>>, String> {
        let broken = |error: gimli::Error| format!("its location is damaged: {error}");
        let left = self.left.get().checked_sub(1).ok_or("its location needs too many others")?;
        self.left.set(left);
        let unit = self.info.unit(self.unit).ok_or("its unit is damaged")?;
        let encoding = unit.encoding();
        let mut evaluation = expression.evaluation(encoding);
        evaluation.set_max_iterations(MOST_OPERATIONS);
        let mut result = evaluation.evaluate().map_err(broken)?;
        loop {
            if result == EvaluationResult::Complete {
                return Ok(evaluation.result());
            }
            result = self.answer(&mut evaluation, result, encoding)?.map_err(broken)?;
        }
    }

    /// Gives an evaluation what it asks for.
    fn answer(
        self,
        evaluation: &mut Evaluation<Reader>,
        asked: EvaluationResult<Reader>,
        encoding: Encoding,
    ) -> Result<gimli::Result<EvaluationResult<Reader>>, String> {
        use EvaluationResult as Asked;
        Ok(match asked {
            Asked::RequiresMemory { address, size, base_type, .. } => {
                let word = self.word(address, size)?;
                let value = Word::from_u64(self.value_type(base_type), word);
                evaluation.resume_with_memory(value.map_err(|error| error.to_string())?)
            }
            Asked::RequiresRegister { register, base_type } => {
                let value = Word::from_u64(self.value_type(base_type), self.register(register.0)?);
                evaluation.resume_with_register(value.map_err(|error| error.to_string())?)
            }
            Asked::RequiresFrameBase => evaluation.resume_with_frame_base(self.frame_base()?),
            Asked::RequiresCallFrameCfa => evaluation.resume_with_call_frame_cfa(self.cfa()?),
            Asked::RequiresTls(offset) => {
                let address = self.info.thread_local(offset, self.own_frame()?.fs_base);
                evaluation.resume_with_tls(
                    address
                        .ok_or("a thread-local variable of a library: where those are is not worked out")?,
                )
            }
            Asked::RequiresAtLocation(reference) => {
                let bytes = self.location_of(reference).ok_or("the location of another entry")?;
                evaluation.resume_with_at_location(bytes)
            }
            Asked::RequiresEntryValue(expression) => {
                evaluation.resume_with_entry_value(Word::Generic(self.entry_value(expression, encoding)?))
            }
            Asked::RequiresRelocatedAddress(address) => {
                evaluation.resume_with_relocated_address(address.wrapping_add(self.info.bias))
            }
            Asked::RequiresIndexedAddress { index, relocate } => {
                let unit = self.info.unit(self.unit).ok_or("its unit is damaged")?;
                let address =
                    self.info.dwarf(self.unit).address(unit, index).map_err(|error| error.to_string())?;
                let bias = if relocate { self.info.bias } else { 0 };
                evaluation.resume_with_indexed_address(address.wrapping_add(bias))
            }
            Asked::RequiresBaseType(offset) => evaluation.resume_with_base_type(self.value_type(offset)),
            Asked::RequiresParameterRef(_) => return Err("a parameter of the caller".to_owned()),
            Asked::Complete
            | Asked::RequiresWasmLocal { .. }
            | Asked::RequiresWasmGlobal { .. }
            | Asked::RequiresWasmStack { .. } => return Err("a location that x86-64 has not".to_owned()),
        })
    }

    fn own_frame(self) -> Result<Frame, String> {
        self.world.frame(self.frame).ok_or_else(|| "there is no such frame".to_owned())
    }

    fn word(self, address: u64, size: u8) -> Result<u64, String> {
        let mut bytes = [0; 8];
        let part = bytes.get_mut(..usize::from(size)).ok_or("a word of more than eight bytes")?;
        match self.world.read(address, part) {
            true => Ok(u64::from_le_bytes(bytes)),
            false => Err(format!("not mapped: {address:#x}")),
        }
    }

    fn register(self, number: u16) -> Result<u64, String> {
        let frame = self.own_frame()?;
        if let Some(vector) = vector_of(&frame, number) {
            return Ok(u64::try_from(vector & u128::from(u64::MAX)).unwrap_or(0));
        }
        let value = frame.general.get(usize::from(number)).copied().flatten();
        // A register that calls do not keep is unknown in a caller.
        value.ok_or_else(|| OPTIMIZED_OUT.to_owned())
    }

    fn cfa(self) -> Result<u64, String> {
        self.own_frame()?.cfa.ok_or_else(|| "the frame is not known: the unwind tables do not say".to_owned())
    }

    /// The frame base of the function that the frame is in.
    fn frame_base(self) -> Result<u64, String> {
        let missing = "the function has no frame base";
        let pc = self.own_frame()?.pc;
        let die = self.info.function_at(pc.wrapping_sub(self.info.bias)).ok_or(missing)?;
        let (at, base) = self.info.attribute(die, gimli::DW_AT_frame_base).ok_or(missing)?;
        let expression = expression_at(self.info, at.unit, &base, pc).ok_or(missing)?;
        let context = Context { unit: at.unit, ..self };
        match context.evaluate(expression)?.as_slice() {
            [Piece { location: Location::Register { register }, .. }] => self.register(register.0),
            [Piece { location: Location::Address { address }, .. }] => Ok(*address),
            _ => Err(missing.to_owned()),
        }
    }

    fn location_of(self, reference: gimli::DieReference<usize>) -> Option<Reader> {
        let die = match reference {
            gimli::DieReference::UnitRef(offset) => Die { unit: self.unit, offset },
            gimli::DieReference::DebugInfoRef(offset) => self.info.die(offset)?,
        };
        let (at, location) = self.info.attribute(die, gimli::DW_AT_location)?;
        Some(expression_at(self.info, at.unit, &location, self.own_frame().ok()?.pc)?.0)
    }

    /// What a register was when the function was entered, where the caller's debug information says how it computed that.
    fn entry_value(self, of: Expression<Reader>, encoding: Encoding) -> Result<u64, String> {
        let unknown = || OPTIMIZED_OUT.to_owned();
        let callee = self.own_frame()?;
        let caller = self.world.frame(self.frame + 1).ok_or_else(unknown)?;
        let info = self.world.info(caller.pc).ok_or_else(unknown)?;
        let address = caller.pc.wrapping_sub(info.bias);
        let function = info.function_at(address).ok_or_else(unknown)?;
        let site = call_site(&info, function, caller.rip.wrapping_sub(info.bias)).ok_or_else(unknown)?;
        // The site must be of this function: behind a tail call it is another's.
        let (_, origin) = info.attribute(site, gimli::DW_AT_call_origin).ok_or_else(unknown)?;
        let named = info.referred(site, &origin).and_then(|die| info.name_of(die));
        let own = self.info.function_at(callee.pc.wrapping_sub(self.info.bias));
        if named.is_none() || named != own.and_then(|die| self.info.name_of(die)) {
            return Err(unknown());
        }
        for (die, entry) in info.children(site) {
            let location = entry.attr_value(gimli::DW_AT_location).and_then(|value| value.exprloc_value());
            let is_it = location.is_some_and(|location| same(&location, &of, encoding));
            if !is_it {
                continue;
            }
            let value = entry.attr_value(gimli::DW_AT_call_value).and_then(|value| value.exprloc_value());
            let context = Context {
                world: self.world,
                frame: self.frame + 1,
                info: &info,
                unit: die.unit,
                left: self.left,
            };
            return match context.evaluate(value.ok_or_else(unknown)?)?.as_slice() {
                [Piece { location: Location::Address { address }, .. }] => Ok(*address),
                [Piece { location: Location::Value { value }, .. }] => {
                    value.to_u64(u64::MAX).map_err(|e| e.to_string())
                }
                [Piece { location: Location::Register { register }, .. }] => context.register(register.0),
                _ => Err(unknown()),
            };
        }
        Err(unknown())
    }

    /// How an expression takes a word of a base type; the generic type where there is none.
    fn value_type(self, offset: gimli::UnitOffset<usize>) -> ValueType {
        let entry = || {
            if offset.0 == 0 {
                return None;
            }
            let entry = self.info.entry(Die { unit: self.unit, offset })?;
            ValueType::from_entry(&entry).ok().flatten()
        };
        entry().unwrap_or(ValueType::Generic)
    }

    fn put_together(self, pieces: &[Piece<Reader>], ty: &Type) -> Result<Place, String> {
        match pieces {
            [] => Err(OPTIMIZED_OUT.to_owned()),
            [Piece { location: Location::Address { address }, size_in_bits: None, .. }] => {
                Ok(Place::Memory(*address))
            }
            [Piece { location: Location::Empty, size_in_bits: None, .. }] => Err(OPTIMIZED_OUT.to_owned()),
            [
                Piece {
                    location: Location::ImplicitPointer { value, byte_offset }, size_in_bits: None, ..
                },
            ] => {
                let die = self.info.die(*value).filter(|_| *byte_offset == 0);
                let die = die.ok_or("a pointer to what the compiler keeps nowhere")?;
                Ok(Place::Target(Rc::new((Rc::clone(self.info), die, self.frame))))
            }
            [piece] if piece.size_in_bits.is_none() => {
                Ok(Place::Bytes(self.bytes(piece, ty.size().unwrap_or(8))?))
            }
            pieces => {
                let mut all = Vec::new();
                for piece in pieces {
                    let bits = piece.size_in_bits.unwrap_or(0);
                    if bits % 8 != 0 || piece.bit_offset.is_some_and(|offset| offset != 0) {
                        return Err("a variable in pieces that are not whole bytes".to_owned());
                    }
                    all.extend(self.bytes(piece, bits / 8)?);
                }
                Ok(Place::Bytes(all))
            }
        }
    }

    /// The bytes of a piece; those that are nowhere are `None`.
    fn bytes(self, piece: &Piece<Reader>, size: u64) -> Result<Vec<Option<u8>>, String> {
        let size = usize::try_from(size.min(LARGEST)).unwrap_or(0);
        let known = |bytes: &[u8]| {
            let mut all: Vec<_> = bytes.iter().take(size).copied().map(Some).collect();
            all.resize(size, Some(0));
            all
        };
        Ok(match &piece.location {
            Location::Empty | Location::ImplicitPointer { .. } => vec![None; size],
            Location::Register { register } => match vector_of(&self.own_frame()?, register.0) {
                Some(vector) => known(&vector.to_le_bytes()),
                None => match self.register(register.0) {
                    Ok(word) => known(&word.to_le_bytes()),
                    // Of a variable in pieces, the others may be known.
                    Err(_) if piece.size_in_bits.is_some() => vec![None; size],
                    Err(why) => return Err(why),
                },
            },
            Location::Address { address } => {
                let mut bytes = vec![0; size];
                match self.world.read(*address, &mut bytes) {
                    true => known(&bytes),
                    false => vec![None; size],
                }
            }
            Location::Value { value } => known(&number_bytes(*value)),
            Location::Bytes { value } => known(&value.to_slice().map_err(|error| error.to_string())?),
        })
    }
}

/// xmm0 to xmm15 are DWARF registers 17 to 32.
fn vector_of(frame: &Frame, number: u16) -> Option<u128> {
    let n = usize::from(number.checked_sub(17)?);
    frame.vector.as_ref()?.get(n).copied()
}

fn number_bytes(value: Word) -> Vec<u8> {
    match value {
        Word::F32(value) => value.to_le_bytes().to_vec(),
        Word::F64(value) => value.to_le_bytes().to_vec(),
        Word::I8(value) => i64::from(value).to_le_bytes().to_vec(),
        Word::I16(value) => i64::from(value).to_le_bytes().to_vec(),
        Word::I32(value) => i64::from(value).to_le_bytes().to_vec(),
        Word::I64(value) => value.to_le_bytes().to_vec(),
        other => other.to_u64(u64::MAX).unwrap_or(0).to_le_bytes().to_vec(),
    }
}

/// The entry of the call behind which an address of the file is, in a function.
fn call_site(info: &Info, function: Die, return_address: u64) -> Option<Die> {
    let unit = info.unit(function.unit)?;
    let mut cursor = unit.entries_at_offset(function.offset).ok()?;
    let root = cursor.next_dfs().ok()??.depth();
    while let Ok(Some(entry)) = cursor.next_dfs() {
        if entry.depth() <= root {
            return None;
        }
        let returns = entry.attr_value(gimli::DW_AT_call_return_pc);
        let address =
            returns.and_then(|value| info.dwarf(function.unit).attr_address(unit, value).ok().flatten());
        if entry.tag() == gimli::DW_TAG_call_site && address == Some(return_address) {
            return Some(Die { unit: function.unit, offset: entry.offset() });
        }
    }
    None
}

/// Whether two expressions are the same operations: those of registers are short.
fn same(a: &Expression<Reader>, b: &Expression<Reader>, encoding: Encoding) -> bool {
    let (mut a, mut b) = (a.clone().operations(encoding), b.clone().operations(encoding));
    loop {
        match (a.next(), b.next()) {
            (Ok(None), Ok(None)) => return true,
            (Ok(Some(one)), Ok(Some(other))) if one == other => {}
            _ => return false,
        }
    }
}
