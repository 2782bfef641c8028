//! Bytes that a user names by an address, or by an expression of the source: `order->amount`, `table[3].next`, `main::count`.
//!
//! An expression is evaluated ([`crate::values`]) where the program stands, in the innermost call that has debug information and
//! knows the name; in front of `::`, a function that is on the stack says in which. A name that no debug information has may be in a
//! symbol table, which knows how many bytes it has.
//!
//! Example: a program crashes in `strlen`, of which there is no debug information, called by `rename_order`. `order->amount` is looked
//! for in `rename_order`, where `order` is in rbx: it is the eight bytes at 16 behind what rbx holds.

use crate::exit::{Code, Failure};
use crate::sight::{Known, Sight};
use crate::symbols::Symbols;
use crate::values::{Value, World, evaluate, number, register_name};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use vmm::travel::Travel;

/// What is said of an address alone where bytes are asked for.
pub(crate) const NO_LENGTH: &str = "an address does not say how many bytes: say LENGTH behind it";

/// What lies below this is a member or an element of what a null pointer points to.
const NULL_PAGE: u64 = 4096;

/// So many calls on the stack are looked at for a name.
const MOST_CALLS: usize = 100;

/// What a user names on a command line.
#[derive(Clone, Debug)]
pub(crate) enum Named {
    /// A number.
    Address(u64),
    /// An expression.
    Expression(String),
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Named, String> {
        if let Some(address) = number(text) {
            return Ok(Named::Address(address));
        }
        let is_one_word = text.chars().all(char::is_alphanumeric);
        match text.trim().chars().next() {
            Some('0'..='9') if is_one_word => {
                Err(format!("`{text}` is no number: write it as 4096 or 0x1000"))
            }
            Some(_) => Ok(Named::Expression(text.to_owned())),
            None => Err("an address, as 4096 or 0x1000, or an expression, as list->head".to_owned()),
        }
    }
}

/// Where the value of an expression is.
pub(crate) enum Place {
    /// In memory; an object whose size is not known has none.
    Memory(Range<u64>),
    /// In a register of the innermost call.
    Register {
        /// Its name.
        name: String,
        /// How many bytes of it, from the lowest on.
        bytes: u64,
    },
    /// It is a number that is nowhere: the address of something.
    Number(u64),
}

/// What an expression means where the program stands.
pub(crate) struct Meaning {
    /// Where its value is.
    pub(crate) place: Place,
    /// The value, if it is a number or a pointer.
    pub(crate) number: Option<u64>,
    expression: String,
    /// Its type, where there is debug information.
    ty: Option<String>,
    /// The function in which it was evaluated.
    function: Option<String>,
}

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.expression)?;
        if let Some(function) = &self.function {
            write!(f, " as {function} sees it")?;
        }
        match &self.place {
            Place::Memory(range) if range.is_empty() => write!(f, " is at {:#x}", range.start)?,
            Place::Memory(range) => {
                write!(f, " is {} at {:#x}", counted(range.end - range.start), range.start)?
            }
            Place::Register { name, bytes } => write!(f, " is {} of {name}", counted(*bytes))?,
            Place::Number(number) => write!(f, " is {number:#x}")?,
        }
        self.ty.as_ref().map_or(Ok(()), |ty| write!(f, ": {ty}"))?;
        match &self.place {
            Place::Memory(range) if range.start < NULL_PAGE => write!(f, ", by a null pointer"),
            _ => Ok(()),
        }
    }
}

impl Meaning {
    /// What an expression means in a thread of the loaded process, whose symbols these are; else why it means nothing.
    pub(crate) fn of(
        expression: &str,
        travel: &mut Travel,
        symbols: &Symbols,
        thread: i32,
    ) -> Result<Meaning, String> {
        // What cannot be read is as if it were not known.
        let fpu = travel.process_mut().state().ok().map(|state| state.fpu);
        let process = travel.process();
        let known = Known::of(process, symbols);
        let sight = Sight::new(process, &known, thread, fpu);
        match Evaluated::of(expression, &sight) {
            Ok(evaluated) => evaluated.meant(expression, &sight),
            Err(why) => Meaning::of_symbol(expression, symbols).ok_or(why)?,
        }
    }

    /// What a symbol table has by that name.
    fn of_symbol(name: &str, symbols: &Symbols) -> Option<Result<Meaning, String>> {
        match &symbols.objects(name.trim())[..] {
            [] => None,
            [range] => Some(Ok(Meaning {
                place: Place::Memory(range.clone()),
                number: None,
                expression: name.trim().to_owned(),
                ty: None,
                function: None,
            })),
            several => {
                let places: Vec<_> = several.iter().map(|range| format!("{:#x}", range.start)).collect();
                Some(Err(format!("`{name}` is the name of several: at {}", places.join(", "))))
            }
        }
    }

    /// The bytes that are asked for by it, `length` of them if that is said.
    pub(crate) fn bytes(&self, length: Option<u64>) -> Result<Range<u64>, String> {
        let start = match &self.place {
            Place::Memory(range) => match length {
                None if range.is_empty() => {
                    return Err(format!("{self}, and its size is not known: say LENGTH"));
                }
                None => return Ok(range.clone()),
                Some(_) => range.start,
            },
            Place::Number(number) => *number,
            Place::Register { name, .. } => {
                return Err(format!(
                    "{self}, and in no memory: `gretel why --of {name}` goes back from there"
                ));
            }
        };
        let length = length.ok_or_else(|| format!("{self}, which is taken for an address: say LENGTH"))?;
        start.checked_add(length).map(|end| start..end).ok_or_else(|| format!("{self}: LENGTH is too large"))
    }

    /// The address that it is: what a pointer or a number holds, or where it is in memory itself.
    pub(crate) fn address(&self) -> Result<u64, String> {
        match (&self.place, self.number) {
            (_, Some(number)) => Ok(number),
            (Place::Memory(range), None) => Ok(range.start),
            _ => Err(format!("{self}, which is no address")),
        }
    }
}

/// The bytes that are named, `length` of them if that is said, where the program stands; what an expression means is said in words.
pub(crate) fn bytes(
    named: &Named,
    length: Option<u64>,
    travel: &mut Travel,
    symbols: &Symbols,
) -> Result<(Range<u64>, Option<Meaning>), String> {
    match named {
        Named::Address(address) => {
            let length = length.ok_or(NO_LENGTH)?;
            let end = address.checked_add(length).ok_or("that is beyond the address space")?;
            Ok((*address..end, None))
        }
        Named::Expression(text) => {
            let thread = travel.process().thread();
            let meant = Meaning::of(text, travel, symbols, thread)?;
            Ok((meant.bytes(length)?, Some(meant)))
        }
    }
}

/// The address that is named, where the program stands.
pub(crate) fn address(
    named: &Named,
    travel: &mut Travel,
    symbols: &Symbols,
) -> Result<(u64, Option<Meaning>), String> {
    match named {
        Named::Address(address) => Ok((*address, None)),
        Named::Expression(text) => {
            let thread = travel.process().thread();
            let meant = Meaning::of(text, travel, symbols, thread)?;
            Ok((meant.address()?, Some(meant)))
        }
    }
}

/// The failure of who cannot be told what was meant.
pub(crate) fn usage(why: String) -> Failure {
    Failure::new(Code::Usage, why)
}

/// A value, and where it was found.
struct Evaluated {
    value: Value,
    /// The call in which it was evaluated, the innermost is 0, and its function.
    call: usize,
    function: Option<String>,
}

impl Evaluated {
    /// In the innermost call that knows the name, as a variable of its own, of its object or of its source file; else among all
    /// global names, those of the program's own code first.
    fn of(text: &str, sight: &Sight<'_, &Symbols>) -> Result<Evaluated, String> {
        let name = leading_name(text);
        let mut of_program = None;
        for call in (0..MOST_CALLS).take_while(|_| !name.is_empty()) {
            let Some(functions) = sight.functions(call) else { break };
            for function in functions.iter() {
                let found = |value| Evaluated { value, call, function: function.name() };
                if let Some((wanted, name_there)) = name.rsplit_once("::")
                    && function.name().as_deref() == Some(wanted)
                {
                    let text = text.replacen(name, name_there, 1);
                    return evaluate(sight, call, Some(function), &text).map(found);
                }
                if function.variables().iter().any(|variable| variable.name == name) {
                    return evaluate(sight, call, Some(function), text).map(found);
                }
                if sight.is_of_unit(call, name) {
                    return Evaluated::global(text, sight, call);
                }
                let is_method = function.variables().iter().any(|variable| variable.name == "this");
                if let (true, Ok(value)) = (is_method, evaluate(sight, call, Some(function), text)) {
                    return Ok(found(value));
                }
            }
            if sight.is_in_program(call) {
                of_program.get_or_insert(call);
            }
        }
        Evaluated::global(text, sight, of_program.unwrap_or(0))
    }

    fn global(text: &str, sight: &Sight<'_, &Symbols>, call: usize) -> Result<Evaluated, String> {
        Ok(Evaluated { value: evaluate(sight, call, None, text)?, call, function: None })
    }

    fn meant(self, expression: &str, world: &dyn World) -> Result<Meaning, String> {
        let Evaluated { value, call, function } = self;
        let value = value.referred(world)?;
        if let Some(why) = value.missing() {
            let whose = function.map(|function| format!(" in {function}")).unwrap_or_default();
            return Err(format!("`{expression}` has no value{whose}: {why}"));
        }
        let number = value.number_or_pointer(world);
        let place = match (value.extent(), value.address(), value.register()) {
            (Some(range), ..) => Place::Memory(range),
            (None, Some(address), _) => Place::Memory(address..address),
            (None, None, Some(register)) => {
                let name = register_name(register).filter(|_| call == 0);
                let name = name.ok_or_else(|| {
                    format!("`{expression}` is in a register that calls on the way to the innermost keep: where is not worked out")
                })?;
                Place::Register { name, bytes: value.size().unwrap_or(8).min(16) }
            }
            _ => {
                // What the debug information computes of a variable that is nowhere is no address, as what an expression makes is.
                let number = number.filter(|_| value.is_made()).ok_or_else(|| {
                    format!("`{expression}` is in no place of its own: the compiler computes it from others, or it is in pieces")
                })?;
                Place::Number(number)
            }
        };
        let ty = Some(value.type_name());
        Ok(Meaning { place, number, expression: expression.trim().to_owned(), ty, function })
    }
}

fn counted(bytes: u64) -> String {
    if bytes == 1 { "1 byte".to_owned() } else { format!("{bytes} bytes") }
}

/// The name that an expression begins with, behind its signs.
fn leading_name(text: &str) -> &str {
    let behind = text.trim_start_matches(['*', '&', '(', '!', '-', ' ']);
    let is_in = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    behind.split(|letter| !is_in(letter)).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_an_address_and_all_else_an_expression() {
        assert!(matches!("0x10".parse(), Ok(Named::Address(16))));
        assert!(matches!("16".parse(), Ok(Named::Address(16))));
        assert!(matches!("list->head".parse::<Named>(), Ok(Named::Expression(text)) if text == "list->head"));
        assert!([" ", "0xhere", "12x"].iter().all(|text| text.parse::<Named>().is_err()));
    }

    #[test]
    fn the_leading_name_stands_behind_signs() {
        let names = ["*(list->head)", " &main::count[2]", "count", "$rax"].map(leading_name);
        assert_eq!(names, ["list", "main::count", "count", ""]);
    }

    #[test]
    fn what_a_null_pointer_leads_to_is_called_so() {
        let said = |start: u64| {
            let (expression, ty) = ("list->head".to_owned(), Some("long".to_owned()));
            let place = Place::Memory(start..start + 8);
            Meaning { place, number: None, expression, ty, function: None }.to_string()
        };
        assert_eq!(said(0x10), "`list->head` is 8 bytes at 0x10: long, by a null pointer");
        assert_eq!(said(0x40_0010), "`list->head` is 8 bytes at 0x400010: long");
    }
}
