//! Which instructions are generated: every encoding of 64-bit mode that the table has semantics for.
//!
//! The list follows the table by itself: a new family is tested as soon as it is in the table.

use super::operands::{Operands, Pins};
use crate::dont_care;
use crate::host;
use crate::interpreter;
use crate::layout::CODE;
use crate::random::Random;
use iced_x86::{Code, Decoder, DecoderOptions, Encoder, Instruction, Mnemonic};
use std::collections::BTreeMap;

/// An encoding that has semantics.
#[derive(Clone, Copy, Debug)]
pub(super) struct Template {
    /// The encoding.
    pub(super) code: Code,
}

/// Every template, or those of some mnemonics, grouped by mnemonic: an instruction with many encodings is not
/// tested more often for it.
pub(super) fn all(only: &[Mnemonic]) -> Vec<(Mnemonic, Vec<Template>)> {
    let mut groups: Vec<(Mnemonic, Vec<Template>)> = Vec::new();
    for code in Code::values().filter(|code| code.op_code().is_instruction() && code.op_code().mode64()) {
        let mnemonic = code.mnemonic();
        let wanted = only.is_empty() || only.contains(&mnemonic);
        if !(wanted && host::runs(code) && has_semantics(code)) {
            continue;
        }
        let template = Template { code };
        match groups.iter_mut().find(|(m, _)| *m == mnemonic) {
            Some((_, templates)) => templates.push(template),
            None => groups.push((mnemonic, vec![template])),
        }
    }
    groups
}

/// The encodings that this host runs in user mode and that have no semantics, by the feature that they need.
#[must_use]
pub fn missing() -> BTreeMap<String, Vec<Code>> {
    let mut missing: BTreeMap<String, Vec<Code>> = BTreeMap::new();
    for code in Code::values().filter(|code| code.op_code().is_instruction() && code.op_code().mode64()) {
        let mut i = Instruction::default();
        i.set_code(code);
        if host::runs(code) && dont_care::exclusion(&i, &[]).is_none() && !has_semantics(code) {
            let features: Vec<String> = code.cpuid_features().iter().map(|f| format!("{f:?}")).collect();
            missing.entry(features.join(" ")).or_default().push(code);
        }
    }
    missing
}

/// Tries a few random operands: a table may refuse some of them.
fn has_semantics(code: Code) -> bool {
    const TRIES: u64 = 8;
    (0..TRIES).any(|stream| {
        let mut random = Random::new(0, stream);
        let mut pins = Pins::default();
        Operands::new(&mut random, &mut pins, None)
            .instruction(code, CODE)
            .and_then(|i| encode(&i, CODE))
            .and_then(|bytes| Some((decode(&bytes, CODE)?, bytes)))
            // FINIT and its like are WAIT and another instruction.
            .is_some_and(|(i, bytes)| is_fit(&i, &bytes) && i.mnemonic() == code.mnemonic())
    })
}

/// Whether an instruction can be compared: it has semantics, and no reason against it.
pub(super) fn is_fit(i: &Instruction, code: &[u8]) -> bool {
    !i.is_invalid()
        && host::runs(i.code())
        && dont_care::exclusion(i, code).is_none()
        && interpreter::has_semantics(i)
}

/// The bytes of an instruction at `ip`; `None` where its operands cannot be encoded together.
pub(super) fn encode(i: &Instruction, ip: u64) -> Option<Vec<u8>> {
    let mut encoder = Encoder::new(64);
    encoder.encode(i, ip).ok()?;
    Some(encoder.take_buffer())
}

/// The instruction that `bytes` begin with.
pub(super) fn decode(bytes: &[u8], ip: u64) -> Option<Instruction> {
    let i = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
    (!i.is_invalid()).then_some(i)
}
