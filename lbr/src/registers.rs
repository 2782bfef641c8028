//! A dump of model-specific registers, and the text in which tools print one (docs/formats.md has its grammar).

use crate::dump::Dump;
use crate::msr;
use std::collections::BTreeMap;
use std::fmt;

/// Registers by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registers(BTreeMap<u32, u64>);

impl Registers {
    /// The value of a register, if the dump has it.
    #[must_use]
    pub fn get(&self, index: u32) -> Option<u64> {
        self.0.get(&index).copied()
    }

    /// Every register of the dump, by its number.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        self.0.iter().map(|(index, value)| (*index, *value))
    }

    /// Sets a register.
    pub fn set(&mut self, index: u32, value: u64) {
        self.0.insert(index, value);
    }

    /// How many registers follow one another from `first` on, `step` numbers apart.
    pub(crate) fn run(&self, first: u32, step: u32) -> u32 {
        (0..).take_while(|n| self.0.contains_key(&(first + n * step))).count().try_into().unwrap_or(u32::MAX)
    }
}

impl FromIterator<(u32, u64)> for Registers {
    fn from_iter<I: IntoIterator<Item = (u32, u64)>>(registers: I) -> Registers {
        Registers(registers.into_iter().collect())
    }
}

/// As text that [`parse`] reads: a line for each register, with its name behind it.
impl fmt::Display for Registers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, value) in self.iter() {
            let name = msr::name(index).map(|name| format!("  # {name}")).unwrap_or_default();
            writeln!(f, "{index:#x} {value:#018x}{name}")?;
        }
        Ok(())
    }
}

/// A line of a text that is not one of a dump of registers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: '{text}': {why}")]
pub struct TextError {
    /// Its number, from 1.
    pub line: usize,
    /// Its beginning.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
}

/// Reads a dump: lines of a register and its value, and of what is known besides. It gives that in the `Dump`.
///
/// # Errors
/// With the number of the first line that is neither, or that contradicts an earlier one.
pub fn parse(text: &str) -> Result<(Dump, Registers), TextError> {
    let (mut dump, mut registers) = (Dump::default(), Registers::default());
    for (n, line) in text.lines().enumerate() {
        parse_line(line, &mut dump, &mut registers).map_err(|why| {
            let text = line.trim().chars().take(60).collect();
            TextError { line: n + 1, text, why }
        })?;
    }
    Ok((dump, registers))
}

/// One line: `#` begins a comment, `: = , [ ]` separate as blanks do.
fn parse_line(line: &str, dump: &mut Dump, registers: &mut Registers) -> Result<(), String> {
    let line = line.split('#').next().unwrap_or_default();
    let separators = |c: char| c.is_whitespace() || ":=,[]".contains(c);
    if let Some((key, value)) = line.trim().split_once(separators)
        && dump.set(key, value.trim_matches(separators))?
    {
        return Ok(());
    }
    let mut words = line.split(separators).filter(|word| !word.is_empty()).peekable();
    words.next_if(|word| ["msr", "rdmsr", "wrmsr"].iter().any(|tool| tool.eq_ignore_ascii_case(word)));
    let words: Vec<&str> = words.collect();
    let &[index, value] = words.as_slice() else {
        return match words.is_empty() {
            true => Ok(()),
            false => Err("expected a register and its value, such as 0x680 0x401136".to_owned()),
        };
    };
    let index = register(index)?;
    let value =
        hexadecimal(value).ok_or_else(|| format!("{value} is not a hexadecimal number of 64 bits"))?;
    match registers.0.insert(index, value) {
        Some(earlier) if earlier != value => Err(format!(
            "MSR {index:#x} was {earlier:#x} on an earlier line: give the registers of one processor"
        )),
        _ => Ok(()),
    }
}

fn register(word: &str) -> Result<u32, String> {
    let number = hexadecimal(word).and_then(|number| u32::try_from(number).ok());
    let known = number.or_else(|| msr::number(word));
    known.ok_or_else(|| {
        format!("{word} is neither the hexadecimal number of a register nor a name that is known")
    })
}

/// A hexadecimal number, with `0x` or without, and with the tick that Windows debuggers put in its middle.
fn hexadecimal(word: &str) -> Option<u64> {
    let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")).unwrap_or(word).replace('`', "");
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(&digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Family;

    #[test]
    fn lines_as_tools_print_them_are_read() {
        let text = "\
# a dump of one processor
family intel-legacy:5
0x1c9 0x3
680 401136
wrmsr 0x6c0 0x401140
msr[681] = 00007fff`12345678
MSR_LASTBRANCH_1_TO_IP: ffffffff81000000
0xdc0=8000000000000001  # mispredicted

depth: 2
";
        let (dump, registers) = parse(text).unwrap();
        assert_eq!(dump, Dump { depth: Some(2), ..Dump::of(Family::IntelLegacy { format: 5 }) });
        let expected = [
            (0x1c9, 3),
            (0x680, 0x40_1136),
            (0x681, 0x7fff_1234_5678),
            (0x6c0, 0x40_1140),
            (0x6c1, 0xffff_ffff_8100_0000),
            (0xdc0, 0x8000_0000_0000_0001),
        ];
        assert_eq!(registers.iter().collect::<Vec<_>>(), expected);
        assert_eq!(parse(&registers.to_string()), Ok((Dump::default(), registers)));
    }

    #[test]
    fn a_line_that_is_something_else_is_named() {
        let why = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            why("0x680 1\n0x681"),
            "line 2: '0x681': expected a register and its value, such as 0x680 0x401136"
        );
        assert_eq!(
            why("MSR_NOTHING 1"),
            "line 1: 'MSR_NOTHING 1': MSR_NOTHING is neither the hexadecimal number of a register nor a name that \
             is known"
        );
        assert!(why("680 0x10000000000000000").ends_with("is not a hexadecimal number of 64 bits"));
        assert!(why("680 +5").contains("not a hexadecimal"));
        assert!(why("680 1\n680 2").contains("line 2: '680 2': MSR 0x680 was 0x1 on an earlier line"));
        assert!(why("depth many").contains("line 1: 'depth many': "));
    }
}
