//! Why an instruction could not be executed, in one sentence: what it tried, and the value that made it try that.
//!
//! Example: ``"`add rsi, [rax+0x10]` accesses 0x726564727f, where nothing is mapped: rax = 0x726564726f"``.

use super::shown::value_texts;
use iced_x86::{FlowControl, Instruction, Mnemonic};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use synth::report::written;
use vmm::memory::MappingInfo;
use vmm::slice::{Byte, Origin};

/// What is known of where it tried to go or to access.
pub(super) enum There<'a> {
    /// All that is mapped.
    Mapped(&'a [MappingInfo]),
    /// Nothing: of a core alone it is not said.
    Unknown,
}

/// What the bytes to blame are: `rax = 0x0`.
pub(super) struct Values {
    text: String,
    /// The number that they are, where they are the eight bytes of one.
    word: Option<u64>,
}

/// An instruction that faulted.
pub(super) fn faulted(
    instruction: &Instruction,
    address: Option<u64>,
    there: &There<'_>,
    values: &Values,
) -> String {
    let text = written(instruction);
    let jumps = matches!(instruction.flow_control(), FlowControl::Return | FlowControl::IndirectBranch)
        || instruction.is_call_near_indirect();
    let tried = match address {
        Some(address) => format!("accesses {address:#x}{}", why_not(address, there)),
        None if jumps => match values.word {
            Some(target) => format!("goes to {target:#x}, which is not canonical"),
            None => "goes to an address that is not canonical".to_owned(),
        },
        None if divides(instruction) => "divides by zero, or its quotient is too large".to_owned(),
        None => "cannot be executed with this operand".to_owned(),
    };
    format!("`{text}` {tried}: {values}")
}

/// A branch that went where nothing can be executed.
pub(super) fn went(instruction: &Instruction, address: u64, place: &str, values: &Values) -> String {
    let text = written(instruction);
    format!("`{text}` went to {address:#x}, where there is no code, at {place}: {values}")
}

fn divides(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Div | Mnemonic::Idiv)
}

/// Why an address cannot be accessed.
fn why_not(address: u64, there: &There<'_>) -> &'static str {
    let There::Mapped(mappings) = there else { return "" };
    let is_canonical = (address.cast_signed() << 16 >> 16) == address.cast_signed();
    match mappings.iter().find(|it| (it.start..it.end).contains(&address)) {
        _ if !is_canonical => ", which is not canonical",
        None => ", where nothing is mapped",
        Some(it) if !it.rights.write && it.rights.read => ", which may not be written",
        Some(it) if !it.rights.read => ", which may not be accessed",
        Some(_) => "",
    }
}

impl Values {
    /// Those of the bytes whose values are not known have their names alone.
    pub(super) fn of(bytes: &BTreeSet<Byte>, known: &BTreeMap<Byte, u8>) -> Values {
        let given = bytes.iter().map(|byte| (*byte, (known.get(byte).copied(), Origin::default()))).collect();
        let word: Option<Vec<u8>> = bytes.iter().map(|byte| known.get(byte).copied()).collect();
        let word = word.and_then(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
        Values { text: value_texts(&given).join(", "), word }
    }
}

impl Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};
    use vmm::memory::Rights;

    fn instruction(code: &[u8]) -> Instruction {
        Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode()
    }

    #[test]
    fn each_fault_is_said_with_its_value() {
        let load = instruction(&[0x48, 0x8b, 0x03]); // mov rax, [rbx]
        let store = instruction(&[0xc6, 0x03, 0x78]); // mov byte ptr [rbx], 0x78
        let (ret, divide) = (instruction(&[0xc3]), instruction(&[0xf7, 0xf9])); // ret; idiv ecx
        let rights = Rights { read: true, write: false, execute: false };
        let constant =
            MappingInfo { start: 0x2000, end: 0x3000, rights, file_offset: 0, name: String::new() };
        let values =
            Values { text: "rbx = 0x4545454545454545".to_owned(), word: Some(0x4545_4545_4545_4545) };
        let mapped = There::Mapped(std::slice::from_ref(&constant));
        for (instruction, address, there, expected) in [
            (
                &load,
                Some(0x10),
                &mapped,
                "`mov rax, [rbx]` accesses 0x10, where nothing is mapped: rbx = 0x4545454545454545",
            ),
            (
                &load,
                Some(0x4141_4141_4141_4141),
                &mapped,
                "`mov rax, [rbx]` accesses 0x4141414141414141, which is not canonical: rbx = 0x4545454545454545",
            ),
            (
                &store,
                Some(0x2004),
                &mapped,
                "`mov byte ptr [rbx], 0x78` accesses 0x2004, which may not be written: rbx = 0x4545454545454545",
            ),
            (&load, Some(0x10), &There::Unknown, "`mov rax, [rbx]` accesses 0x10: rbx = 0x4545454545454545"),
            (
                &ret,
                None,
                &mapped,
                "`ret` goes to 0x4545454545454545, which is not canonical: rbx = 0x4545454545454545",
            ),
            (
                &divide,
                None,
                &mapped,
                "`idiv ecx` divides by zero, or its quotient is too large: rbx = 0x4545454545454545",
            ),
        ] {
            assert_eq!(faulted(instruction, address, there, &values), expected);
        }
    }

    #[test]
    fn what_is_not_known_is_not_made_up() {
        let bytes: BTreeSet<Byte> = (0..8).map(|n| Byte::General(3, n)).collect();
        let known = bytes.iter().map(|byte| (*byte, 0)).collect();
        let (all, none) = (Values::of(&bytes, &known), Values::of(&bytes, &BTreeMap::new()));
        assert_eq!((all.text.as_str(), all.word), ("rbx = 0x0", Some(0)));
        assert_eq!((none.text.as_str(), none.word), ("rbx = ?", None));
    }
}
