//! The text in which `perf script -F brstack` prints branch stacks: a line for each sample, the newest branch first.
//!
//! ` 0xFROM/0xTO/PREDICTED/IN_TX/ABORT/CYCLES/TYPE/SPEC `, blanks on both sides. Linux,
//! tools/perf/builtin-script.c, `print_bstack_flags`, and tools/perf/util/branch.c for the names; perf before 6.2
//! does not print the speculation, and before 4.13 no type.

use super::perf::{EXTENDED, Entry, Stack, spec};
use std::fmt::Write;

/// `PERF_BR_*` by their numbers. perf prints nothing for a type that is not known.
const TYPES: [&str; 15] = [
    "",
    "COND",
    "UNCOND",
    "IND",
    "CALL",
    "IND_CALL",
    "RET",
    "SYSCALL",
    "SYSRET",
    "COND_CALL",
    "COND_RET",
    "ERET",
    "IRQ",
    "SERROR",
    "NO_TX",
];
/// `PERF_BR_NEW_*` by their numbers, as perf names them on x86.
const NEW_TYPES: [&str; 8] =
    ["FAULT_ALGN", "FAULT_DATA", "FAULT_INST", "ARCH_1", "ARCH_2", "ARCH_3", "ARCH_4", "ARCH_5"];
/// `PERF_BR_SPEC_*` by their numbers.
const SPECULATIONS: [&str; 4] = ["-", "SPEC_WRONG_PATH", "NON_SPEC_CORRECT_PATH", "SPEC_CORRECT_PATH"];

/// The stack as `perf script -F brstack` prints it, without the end of the line.
#[must_use]
pub fn print(stack: &Stack) -> String {
    let mut line = String::new();
    for entry in &stack.entries {
        let predicted = match (entry.mispred, entry.predicted) {
            (false, false) => '-',
            (_, true) => 'P',
            (true, false) => 'M',
        };
        let (from, to, cycles) = (entry.from, entry.to, entry.cycles);
        let (in_tx, abort) = (if entry.in_tx { 'X' } else { '-' }, if entry.abort { 'A' } else { '-' });
        let kind = match entry.kind {
            EXTENDED => NEW_TYPES.get(usize::from(entry.new_type)),
            kind => TYPES.get(usize::from(kind)),
        };
        let kind = kind.copied().unwrap_or_default();
        let spec = SPECULATIONS[usize::from(entry.spec & 3)];
        write!(line, " {from:#x}/{to:#x}/{predicted}/{in_tx}/{abort}/{cycles}/{kind}/{spec} ")
            .expect("a string takes all that is written");
    }
    line
}

/// A word that looks like a branch and is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: '{word}': {field} cannot be read")]
pub struct BrstackError {
    /// The number of its line, from 1.
    pub line: usize,
    /// The word.
    pub word: String,
    /// Which of its parts.
    pub field: &'static str,
}

/// The stacks of a text, one for each line with branches on it. Other fields that `perf script` prints on a line
/// (time, event, address) are passed over, and so are lines without branches.
///
/// # Errors
/// At the first word that begins as a branch and does not go on as one.
pub fn parse(text: &str) -> Result<Vec<Stack>, BrstackError> {
    by_line(text).filter_map(|(_, stack)| stack.transpose()).collect()
}

/// Each line of a text, with the stack that is on it, if there is one.
pub(crate) fn by_line(text: &str) -> impl Iterator<Item = (&str, Result<Option<Stack>, BrstackError>)> {
    text.lines().enumerate().map(|(n, line)| (line, stack_of(line, n + 1)))
}

fn stack_of(line: &str, number: usize) -> Result<Option<Stack>, BrstackError> {
    let branches = line.split_whitespace().filter(|word| is_branch(word));
    let entries = branches.map(|word| {
        let word_of = |field| BrstackError { line: number, word: word.chars().take(120).collect(), field };
        entry(word).map_err(word_of)
    });
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    Ok((!entries.is_empty()).then(|| Stack { entries, ..Stack::default() }))
}

/// Whether there are branches in a text.
#[must_use]
pub fn is_brstack(text: &str) -> bool {
    text.split_whitespace().any(is_branch)
}

/// Whether a word begins with two addresses.
fn is_branch(word: &str) -> bool {
    word.starts_with("0x") && word.split_once('/').is_some_and(|(_, rest)| rest.starts_with("0x"))
}

/// The branch of a word, or which of its fields is wrong.
fn entry(word: &str) -> Result<Entry, &'static str> {
    let mut fields = word.split('/');
    let mut next = || fields.next();
    let address = |text: Option<&str>| {
        let digits = text?.strip_prefix("0x")?;
        let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        plain.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
    };
    let from = address(next()).ok_or("where the branch is")?;
    let to = address(next()).ok_or("where it went")?;
    let (mispred, predicted) = match next() {
        Some("M") => (true, false),
        Some("P") => (false, true),
        Some("-") => (false, false),
        _ => return Err("whether it was predicted"),
    };
    let mut is = |letter: &str, field: &'static str| match next() {
        Some("-") => Ok(false),
        Some(text) if text == letter => Ok(true),
        _ => Err(field),
    };
    let in_tx = is("X", "whether it is in a transaction")?;
    let abort = is("A", "whether it is an abort")?;
    let cycles = fields.next().and_then(|text| text.parse().ok()).ok_or("the cycles")?;
    let (kind, new_type) = fields.next().map_or(Some((0, 0)), kind).ok_or("the type")?;
    let spec = match fields.next() {
        Some(text) => place(&SPECULATIONS, text).ok_or("the speculation")?,
        None => spec::UNKNOWN,
    };
    if fields.next().is_some() {
        return Err("what follows the speculation");
    }
    Ok(Entry { from, to, mispred, predicted, in_tx, abort, cycles, kind, spec, new_type, ..Entry::default() })
}

/// The numbers `kind` and `new_type` of a type's name.
fn kind(text: &str) -> Option<(u8, u8)> {
    let extended = || place(&NEW_TYPES, text).map(|new_type| (EXTENDED, new_type));
    match text {
        // As some versions of perf print what is not known.
        "-" | "N/A" => Some((0, 0)),
        _ => place(&TYPES, text).map(|kind| (kind, 0)).or_else(extended),
    }
}

/// The number of a name.
fn place(names: &[&str], text: &str) -> Option<u8> {
    names.iter().position(|name| *name == text).and_then(|n| u8::try_from(n).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_as_perf_prints_it() {
        let entries = vec![
            Entry { from: 0x40_1136, to: 0x40_1140, predicted: true, kind: 4, spec: 2, ..Entry::default() },
            Entry {
                from: u64::MAX,
                to: 0,
                mispred: true,
                in_tx: true,
                abort: true,
                cycles: 77,
                ..Entry::default()
            },
        ];
        let stack = Stack { entries, ..Stack::default() };
        let line =
            " 0x401136/0x401140/P/-/-/0/CALL/NON_SPEC_CORRECT_PATH  0xffffffffffffffff/0x0/M/X/A/77//- ";
        assert_eq!(print(&stack), line);
        assert_eq!(parse(&format!("prog 42 1.5: cycles:u: {line}\n\nother 0x1\n")), Ok(vec![stack]));
    }

    #[test]
    fn what_older_versions_print_is_read() {
        let entry = Entry { from: 1, to: 2, predicted: true, cycles: 5, ..Entry::default() };
        for text in ["0x1/0x2/P/-/-/5", "0x1/0x2/P/-/-/5/", "0x1/0x2/P/-/-/5/-", "0x1/0x2/P/-/-/5//-"] {
            assert_eq!(parse(text).unwrap()[0].entries, [entry], "{text}");
        }
    }

    #[test]
    fn a_word_that_is_not_a_branch_is_named_with_its_line() {
        let why = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            why("\n0x1/0x2/Q/-/-/5"),
            "line 2: '0x1/0x2/Q/-/-/5': whether it was predicted cannot be read"
        );
        assert_eq!(why("0x1/0x2/P/-/-/70000"), "line 1: '0x1/0x2/P/-/-/70000': the cycles cannot be read");
        assert!(why("0x1/0x/P/-/-/1").contains("where it went"));
        assert!(why("0x1/0x2/P/-/-/1/JUMP/-").contains("the type"));
        assert!(why("0x1/0x2/P/-/-/1/COND/-/3").contains("what follows"));
    }
}
