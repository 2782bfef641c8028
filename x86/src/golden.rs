//! Golden cases: one instruction (or a few that run one after the other), the state before, the state after, as one
//! line of text. The same files run on the concrete machine, in the symbolic domain and on the processor.
//!
//! ```text
//! 48 01 c8 | add rax, rcx | rax=1 rcx=2 => rax=3 pf=1
//! f7 f1    | div ecx      | rax=1       => #DE
//! ```
//!
//! Numbers are hexadecimal. Names: the general registers, `rip`, `cf pf af zf sf of df nt ac id`, `fs` and `gs` (bases),
//! `xmm0=HIGH_LOW`, `ymm0=` and `zmm0=` (four and eight numbers, the highest first), `k0`, `st0=EXPONENT_SIGNIFICAND`
//! (physical registers), `mxcsr fcw fsw ftw`, and `[ADDRESS]=BYTES`. `xmm0` says nothing of the rest of zmm0.
//! What is not named is, before: rsp [`STACK`], rip [`CODE`], the control registers as a program starts with
//! them, all else zero; after: as it was before, but rip behind the instruction. A flag that the manual leaves
//! undefined is `?`. Memory is [`DATA`] to [`DATA_END`], readable and writable, zero where nothing is said;
//! nothing else but the code is mapped. A string instruction runs to its end.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};

use crate::flags::Flag;
use crate::machine::Trap;
use crate::op::Gpr;
use crate::state::{RFLAGS_FIXED, RFLAGS_IF, State};

/// Where the instruction is.
pub const CODE: u64 = 0x40_0000;
/// Where the memory begins.
pub const DATA: u64 = 0x1_0000;
/// Where the memory ends.
pub const DATA_END: u64 = 0x1_4000;
/// rsp, unless a case says otherwise.
pub const STACK: u64 = 0x1_3000;

/// Registers and the bytes of memory that a case names; other bytes are zero.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Situation {
    /// The registers.
    pub state: State,
    /// Bytes by address.
    pub memory: BTreeMap<u64, u8>,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its number, from 1.
    pub line: usize,
    /// The instruction, or several.
    pub bytes: Vec<u8>,
    /// The instruction as text; [`disassemble`] gives the same.
    pub text: String,
    /// What is so before.
    pub before: Situation,
    /// What must be so after.
    pub after: Situation,
    /// The RFLAGS bits that may be anything after.
    pub undefined: u64,
    /// How the instruction must trap.
    pub trap: Option<Trap>,
}

/// A line that is not a case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("golden case in line {line}: {what}")]
pub struct Error {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

/// The traps by name.
const TRAPS: [(&str, Trap); 9] = [
    ("#PF", Trap::Page),
    ("#DE", Trap::Divide),
    ("#UD", Trap::Undefined),
    ("#GP", Trap::General),
    ("#SS", Trap::Stack),
    ("#BP", Trap::Breakpoint),
    ("#DB", Trap::Debug),
    ("#MF", Trap::X87),
    ("#XM", Trap::Simd),
];

/// The arithmetic flags by name, in the order of [`Flag::ALL`].
const FLAGS: [&str; 6] = ["cf", "pf", "af", "zf", "sf", "of"];

/// Other flags that a program can change, with their bits in RFLAGS.
const OTHER_FLAGS: [(&str, u32); 4] = [("df", 10), ("nt", 14), ("ac", 18), ("id", 21)];

/// Reads a file of cases. Empty lines and lines that begin with `#` are skipped.
///
/// # Errors
/// The first line that is not a case.
pub fn parse(text: &str) -> Result<Vec<Case>, Error> {
    (1..)
        .zip(text.lines())
        .filter(|(_, l)| !l.trim().is_empty() && !l.starts_with('#'))
        .map(|(line, l)| parse_case(line, l).map_err(|what| Error { line, what }))
        .collect()
}

/// Instructions at [`CODE`] as text, in Intel's syntax, with semicolons between them, up to the first that is none.
#[must_use]
pub fn disassemble(bytes: &[u8]) -> String {
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_space_after_operand_separator(true);
    let mut texts = Vec::new();
    for i in &mut Decoder::with_ip(64, bytes, CODE, DecoderOptions::NONE) {
        let mut text = String::new();
        formatter.format(&i, &mut text);
        texts.push(text);
        if i.is_invalid() {
            break;
        }
    }
    texts.join("; ")
}

fn parse_case(line: usize, text: &str) -> Result<Case, String> {
    let mut parts = text.splitn(3, '|').map(str::trim);
    let (Some(hex), Some(name), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("expected BYTES | TEXT | BEFORE => AFTER".to_owned());
    };
    let bytes = parse_bytes(hex)?;
    let (given, expected) = rest.split_once("=>").ok_or("no => between before and after")?;
    let mut before = Situation::default();
    before.state.regs.gpr[usize::from(Gpr::RSP.0)] = STACK;
    before.state.regs.rip = CODE;
    before.state.regs.rflags = RFLAGS_FIXED | RFLAGS_IF;
    for word in given.split_whitespace() {
        if set(&mut before, word)? != 0 {
            return Err(format!("{word} before the instruction"));
        }
    }
    let mut case =
        Case { line, text: name.to_owned(), after: before.clone(), before, undefined: 0, trap: None, bytes };
    case.after.state.regs.rip = CODE + case.bytes.len() as u64;
    for word in expected.split_whitespace() {
        match TRAPS.iter().find(|(name, _)| *name == word) {
            Some(&(_, trap)) => {
                case.trap = Some(trap);
                // INT3 and INT1 retire.
                if !matches!(trap, Trap::Breakpoint | Trap::Debug) {
                    case.after.state.regs.rip = CODE;
                }
            }
            None => case.undefined |= set(&mut case.after, word)?,
        }
    }
    Ok(case)
}

fn parse_number(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|e| format!("{text}: {e}"))
}

fn parse_bytes(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return Err(format!("{text:?} is not a list of bytes"));
    }
    let byte = |pair: &[char]| {
        let text: String = pair.iter().collect();
        u8::from_str_radix(&text, 16).map_err(|e| format!("{text}: {e}"))
    };
    digits.chunks(2).map(byte).collect()
}

/// Applies `NAME=VALUE`; gives the RFLAGS bit that it makes undefined, else 0.
fn set(to: &mut Situation, word: &str) -> Result<u64, String> {
    let (name, value) = word.split_once('=').ok_or_else(|| format!("{word}: expected NAME=VALUE"))?;
    if let Some(address) = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')) {
        let address = parse_number(address)?;
        to.memory.extend((address..).zip(parse_bytes(value)?));
        return Ok(0);
    }
    if let Some(n) = FLAGS.iter().position(|f| *f == name) {
        return set_flag(to, Flag::ALL[n], value);
    }
    if let Some(n) = Gpr::NAMES.iter().position(|r| *r == name) {
        to.state.regs.gpr[n] = parse_number(value)?;
        return Ok(0);
    }
    if let Some((_, bit)) = OTHER_FLAGS.iter().find(|(flag, _)| *flag == name) {
        let flags = &mut to.state.regs.rflags;
        *flags = *flags & !(1 << bit) | u64::from(value == "1") << bit;
        return Ok(0);
    }
    set_other(to, name, value)?;
    Ok(0)
}

fn set_flag(to: &mut Situation, flag: Flag, value: &str) -> Result<u64, String> {
    let bit = 1 << flag.bit();
    let flags = &mut to.state.regs.rflags;
    match value {
        "0" => *flags &= !bit,
        "1" => *flags |= bit,
        "?" => {
            *flags &= !bit;
            return Ok(bit);
        }
        _ => return Err(format!("a flag is 0, 1 or ?, not {value}")),
    }
    Ok(0)
}

fn set_other(to: &mut Situation, name: &str, value: &str) -> Result<(), String> {
    let State { regs, fpu } = &mut to.state;
    let narrow = |v: u64| u16::try_from(v).map_err(|_| format!("{name}={value} does not fit in 16 bits"));
    match name {
        "rip" => regs.rip = parse_number(value)?,
        "fs" => regs.fs_base = parse_number(value)?,
        "gs" => regs.gs_base = parse_number(value)?,
        "fcw" => fpu.control = narrow(parse_number(value)?)?,
        "fsw" => fpu.status = narrow(parse_number(value)?)?,
        "ftw" => {
            fpu.tag = u8::try_from(parse_number(value)?).map_err(|_| "ftw has 8 bits".to_owned())?;
        }
        "mxcsr" => {
            fpu.mxcsr = u32::try_from(parse_number(value)?).map_err(|_| "mxcsr has 32 bits".to_owned())?;
        }
        _ => {
            let mut parts: Vec<u64> = value.rsplit('_').map(parse_number).collect::<Result<_, _>>()?;
            let register = |prefix, limit, count| {
                let n: usize = name.strip_prefix(prefix)?.parse().ok()?;
                (n < limit && parts.len() == count).then_some(n)
            };
            if let Some(n) = register("xmm", 32, 2).or_else(|| register("ymm", 32, 4)) {
                fpu.vector[n][..parts.len()].copy_from_slice(&parts);
            } else if let Some(n) = register("zmm", 32, 8) {
                fpu.vector[n].copy_from_slice(&parts);
            } else if let Some(n) = register("k", 8, 1) {
                fpu.opmask[n] = parts.remove(0);
            } else if let Some(n) = register("st", 8, 2) {
                fpu.st[n] = (parts[0], narrow(parts[1])?);
            } else {
                return Err(format!("{name}: no such name, or not as many numbers as it has"));
            }
        }
    }
    Ok(())
}

/// What differs between two situations, in the words of a case: `after` seen from `before`.
#[must_use]
pub fn difference(before: &Situation, after: &Situation) -> String {
    let mut words = Vec::new();
    let (old, new) = (&before.state, &after.state);
    for (n, name) in Gpr::NAMES.iter().enumerate() {
        if old.regs.gpr[n] != new.regs.gpr[n] {
            words.push(format!("{name}={:x}", new.regs.gpr[n]));
        }
    }
    let numbers = [
        ("rip", old.regs.rip, new.regs.rip),
        ("fs", old.regs.fs_base, new.regs.fs_base),
        ("gs", old.regs.gs_base, new.regs.gs_base),
        ("fcw", old.fpu.control.into(), new.fpu.control.into()),
        ("fsw", old.fpu.status.into(), new.fpu.status.into()),
        ("ftw", old.fpu.tag.into(), new.fpu.tag.into()),
        ("mxcsr", old.fpu.mxcsr.into(), new.fpu.mxcsr.into()),
    ];
    words.extend(numbers.iter().filter(|(_, a, b)| a != b).map(|(name, _, b)| format!("{name}={b:x}")));
    let arithmetic = FLAGS.into_iter().zip(Flag::ALL.map(Flag::bit));
    for (name, bit) in OTHER_FLAGS.into_iter().chain(arithmetic) {
        let (a, b) = (old.regs.rflags >> bit & 1, new.regs.rflags >> bit & 1);
        if a != b {
            words.push(format!("{name}={b}"));
        }
    }
    for (n, (old, new)) in old.fpu.vector.iter().zip(&new.fpu.vector).enumerate() {
        words.extend(vector_difference(n, old, new));
    }
    for (n, (old, new)) in old.fpu.opmask.iter().zip(new.fpu.opmask).enumerate() {
        if *old != new {
            words.push(format!("k{n}={new:x}"));
        }
    }
    for n in 0..8 {
        let (significand, exponent) = new.fpu.st[n];
        if old.fpu.st[n] != (significand, exponent) {
            words.push(format!("st{n}={exponent:x}_{significand:x}"));
        }
    }
    words.extend(changed_bytes(before, after));
    words.join(" ")
}

/// Vector register `n` as `NAME=VALUE`, by the name of the narrowest register that holds all that differs.
fn vector_difference(n: usize, old: &[u64; 8], new: &[u64; 8]) -> Option<String> {
    let highest = (0..8).rfind(|part| old[*part] != new[*part])?;
    let (name, count) = match highest {
        0..2 => ("xmm", 2),
        2..4 => ("ymm", 4),
        _ => ("zmm", 8),
    };
    let parts: Vec<String> = new[..count].iter().rev().map(|part| format!("{part:x}")).collect();
    Some(format!("{name}{n}={}", parts.join("_")))
}

/// Runs of bytes that differ, as `[ADDRESS]=BYTES`.
fn changed_bytes(before: &Situation, after: &Situation) -> Vec<String> {
    let byte = |s: &Situation, at: u64| s.memory.get(&at).copied().unwrap_or(0);
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut addresses: Vec<u64> = before.memory.keys().chain(after.memory.keys()).copied().collect();
    addresses.sort_unstable();
    addresses.dedup();
    for at in addresses.into_iter().filter(|&at| byte(before, at) != byte(after, at)) {
        match runs.last_mut() {
            Some((start, bytes)) if *start + bytes.len() as u64 == at => bytes.push(byte(after, at)),
            _ => runs.push((at, vec![byte(after, at)])),
        }
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    runs.iter().map(|(at, bytes)| format!("[{at:x}]={}", hex(bytes))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_reads_as_it_is_written() {
        let line = "48 01 c8 | add rax, rcx | rax=1 [10000]=ab xmm3=1_2 cf=1 => rax=3 cf=0 af=? [10000]=acad";
        let case = &parse(line).unwrap()[0];
        assert_eq!(case.before.state.fpu.xmm(3), [2, 1]);
        assert_eq!(case.after.state.regs.rip, CODE + 3);
        assert_eq!(case.undefined, 1 << 4);
        assert_eq!(disassemble(&case.bytes), case.text);
        let said = difference(&case.before, &case.after);
        assert_eq!(said, "rax=3 rip=400003 cf=0 [10000]=acad");
    }

    #[test]
    fn vector_registers_have_the_name_of_what_differs() {
        let line = "90 | nop | ymm1=4_3_2_1 zmm31=8_7_6_5_4_3_2_1 k7=f => xmm1=3_1 ymm2=1_0_0_0 zmm31=0_7_6_5_4_3_2_1 k7=0";
        let case = &parse(line).unwrap()[0];
        assert_eq!(case.before.state.fpu.vector[1], [1, 2, 3, 4, 0, 0, 0, 0]);
        assert_eq!(case.after.state.fpu.vector[1], [1, 3, 3, 4, 0, 0, 0, 0]);
        let said = difference(&case.before, &case.after);
        assert_eq!(said, "rip=400001 xmm1=3_1 ymm2=1_0_0_0 zmm31=0_7_6_5_4_3_2_1 k7=0");
    }

    #[test]
    fn a_bad_line_is_named() {
        for bad in ["48 | x", "4 | x | =>", "90 | nop | rax => ", "90 | nop | xyz=1 =>", "90 | nop | cf=? =>"]
        {
            let error = parse(&format!("# comment\n\n{bad}")).unwrap_err();
            assert_eq!(error.line, 3, "{bad}");
        }
    }
}
