//! DWARF expressions in unwind tables, by which signal frames and hand-written code say where their caller's registers are.

use super::unwind::{Registers, Walked};
use super::unwind_tables::Slice;
use gimli::{Encoding, EvaluationResult, Expression, Location, Value};

/// No table of a compiler or of libc needs more steps.
const MOST_STEPS: u32 = 1000;

/// What an expression says.
pub(super) enum Said {
    /// An address in memory.
    Address(u64),
    /// A value itself.
    Value(u64),
}

impl Said {
    /// The number, whichever it is.
    pub(super) fn number(self) -> u64 {
        match self {
            Said::Address(number) | Said::Value(number) => number,
        }
    }
}

/// What an expression says with these registers and this memory; `initial` is on its stack. `None` if it needs what is
/// not known, or is none.
pub(super) fn evaluate(
    expression: Expression<Slice<'_>>,
    encoding: Encoding,
    initial: Option<u64>,
    registers: &Registers,
    memory: &dyn Walked,
) -> Option<Said> {
    let mut evaluation = expression.evaluation(encoding);
    evaluation.set_max_iterations(MOST_STEPS);
    if let Some(initial) = initial {
        evaluation.set_initial_value(initial);
    }
    let mut result = evaluation.evaluate().ok()?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresMemory { address, size, .. } => {
                let mut bytes = [0; 8];
                let wanted = bytes.get_mut(..usize::from(size))?;
                if !memory.read(address, wanted) {
                    return None;
                }
                evaluation.resume_with_memory(Value::Generic(u64::from_le_bytes(bytes)))
            }
            EvaluationResult::RequiresRegister { register, .. } => {
                evaluation.resume_with_register(Value::Generic(registers.get(register)?))
            }
            _ => return None,
        }
        .ok()?;
    }
    match evaluation.as_result() {
        [piece] => match piece.location {
            Location::Address { address } => Some(Said::Address(address)),
            Location::Value { value } => Some(Said::Value(value.to_u64(u64::MAX).ok()?)),
            _ => None,
        },
        _ => None,
    }
}
