//! Values of arguments and results as people read them.

use super::signature::{GENERAL, Signature, Where};
use std::fmt::Write;
use std::rc::Rc;
use vmm::engine::EngineError;
use vmm::process::{Process, ProcessError};
use x86::op::Gpr;
use x86::state::Regs;

/// So many bytes of a string are shown.
const LONGEST: usize = 48;

/// How values of a type are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An integer of at most 8 bytes.
    Integer {
        bytes: u64,
        signed: bool,
    },
    Bool,
    Char,
    Enumeration {
        bytes: u64,
        names: Rc<[(i64, String)]>,
    },
    Pointer,
    /// A pointer to characters.
    Text,
    Float,
    Double,
    /// A structure, a long double, or what debug information does not say.
    Other,
}

/// An argument or a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The parameter, or the register where that is not known.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// The arguments of a function that begins where the program stands; without a signature, the registers that hold the first integers
/// and pointers.
pub(crate) fn arguments(
    process: &mut Process,
    signature: Option<&Signature>,
) -> Result<Vec<Shown>, ProcessError> {
    let regs = *process.cpu().regs();
    let Some(signature) = signature else {
        let shown = |number: usize| Shown {
            name: Gpr::NAMES[number].to_owned(),
            text: format!("{:#x}", regs.gpr[number]),
        };
        return Ok(GENERAL.into_iter().map(shown).collect());
    };
    let mut arguments = Vec::new();
    for parameter in &signature.parameters {
        let word = word(process, &regs, parameter.at)?;
        let text = match word {
            Some(word) => show(process, &parameter.kind, word),
            None if parameter.kind == Kind::Other => "{...}".to_owned(),
            None => "?".to_owned(),
        };
        arguments.push(Shown { name: parameter.name.clone(), text });
    }
    if signature.variadic {
        arguments.push(Shown { name: String::new(), text: "...".to_owned() });
    }
    Ok(arguments)
}

/// The result of a function that has just returned; `None` of one that gives nothing.
pub(crate) fn result(
    process: &mut Process,
    signature: Option<&Signature>,
) -> Result<Option<String>, ProcessError> {
    let Some(signature) = signature else {
        return Ok(Some(format!("{:#x}", process.cpu().regs().gpr[usize::from(Gpr::RAX.0)])));
    };
    let Some(kind) = &signature.result else { return Ok(None) };
    let at = match kind {
        Kind::Float | Kind::Double => Where::Vector(0),
        Kind::Other => return Ok(Some("{...}".to_owned())),
        _ => Where::General(usize::from(Gpr::RAX.0)),
    };
    let regs = *process.cpu().regs();
    Ok(word(process, &regs, at)?.map(|word| show(process, kind, word)))
}

/// The word in a place.
fn word(process: &mut Process, regs: &Regs, at: Where) -> Result<Option<u64>, ProcessError> {
    Ok(match at {
        Where::General(number) => regs.gpr.get(number).copied(),
        Where::Vector(number) => {
            let fpu = process.cpu_mut().fpu().map_err(|error: EngineError| ProcessError::from(error))?;
            fpu.vector.get(number).map(|register| register[0])
        }
        Where::Stack(above) => {
            let mut bytes = [0; 8];
            let read = process.read_memory(regs.gpr[usize::from(Gpr::RSP.0)].wrapping_add(above), &mut bytes);
            read.then(|| u64::from_le_bytes(bytes))
        }
        Where::Nowhere => None,
    })
}

fn show(process: &Process, kind: &Kind, word: u64) -> String {
    let [first, ..] = word.to_le_bytes();
    match kind {
        Kind::Integer { bytes, signed: true } => signed(word, *bytes).to_string(),
        Kind::Integer { bytes, signed: false } => low(word, *bytes).to_string(),
        Kind::Bool => (first != 0).to_string(),
        Kind::Char => format!("{first} '{}'", first.escape_ascii()),
        Kind::Enumeration { bytes, names } => {
            let value = signed(word, *bytes);
            let known = names.iter().find(|(it, _)| *it == value || it.cast_unsigned() == low(word, *bytes));
            known.map_or_else(|| value.to_string(), |(_, name)| name.clone())
        }
        Kind::Pointer => format!("{word:#x}"),
        Kind::Text => text(process, word),
        Kind::Float => f32::from_bits(u32::try_from(low(word, 4)).unwrap_or(0)).to_string(),
        Kind::Double => f64::from_bits(word).to_string(),
        Kind::Other => "{...}".to_owned(),
    }
}

/// The low bytes of a word.
fn low(word: u64, bytes: u64) -> u64 {
    if bytes >= 8 { word } else { word & ((1 << (8 * bytes)) - 1) }
}

/// The same as a signed number.
fn signed(word: u64, bytes: u64) -> i64 {
    let unused = 64 - 8 * bytes.clamp(1, 8);
    (word << unused).cast_signed() >> unused
}

/// A pointer with the string that it points to.
fn text(process: &Process, address: u64) -> String {
    let mut shown = format!("{address:#x}");
    let mut string = Vec::new();
    let mut byte = [0];
    while string.len() <= LONGEST && process.read_memory(address.wrapping_add(string.len() as u64), &mut byte)
    {
        if byte == [0] {
            // Writing to a string does not fail.
            let _ = write!(shown, " \"{}\"", string.escape_ascii());
            return shown;
        }
        string.push(byte[0]);
    }
    if string.len() > LONGEST {
        let _ = write!(shown, " \"{}\"...", string[..LONGEST].escape_ascii());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::{low, signed};

    #[test]
    fn numbers_have_the_width_of_their_type() {
        assert_eq!((signed(0xffff_ffff, 4), low(0xffff_ffff, 4)), (-1, 0xffff_ffff));
        assert_eq!((signed(0x1ff, 1), low(0x1ff, 1)), (-1, 0xff));
        assert_eq!((signed(u64::MAX, 8), low(u64::MAX, 8)), (-1, u64::MAX));
    }
}
