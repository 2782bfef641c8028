//! Which instructions are generated: every encoding of 64-bit mode that the table has semantics for.
//!
//! The list follows the table by itself: a new family is tested as soon as it is in the table.

use super::operands::{Operands, Pins};
use crate::dont_care;
use crate::host;
use crate::interpreter;
use crate::layout::CODE;
use crate::random::Random;
use iced_x86::{Code, Decoder, DecoderOptions, Encoder, EncodingKind, Instruction, Mnemonic};
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
    for code in encodings() {
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
    for code in encodings() {
        let mut i = Instruction::default();
        i.set_code(code);
        if host::runs(code) && dont_care::exclusion(&i, &[]).is_none() && !has_semantics(code) {
            let features: Vec<String> = code.cpuid_features().iter().map(|f| format!("{f:?}")).collect();
            missing.entry(features.join(" ")).or_default().push(code);
        }
    }
    missing
}

/// Every encoding of 64-bit mode. Those that are WAIT and another instruction (FSTCW, FINIT) are two, and near
/// branches with an operand-size prefix are those without it, as on Intel's processors.
pub fn encodings() -> impl Iterator<Item = Code> {
    Code::values().filter(|code| {
        let info = code.op_code();
        info.is_instruction() && info.mode64() && !info.fwait() && info.intel_decoder64()
    })
}

/// Whether the table has semantics for an encoding, on whatever processor: with some operands, at least.
#[must_use]
pub fn is_in_table(code: Code) -> bool {
    let mut samples = samples(code).peekable();
    if samples.peek().is_some() {
        return samples.any(|(i, _)| interpreter::has_semantics(&i));
    }
    // Its operands are of kinds that are not generated, such as control registers.
    let mut i = Instruction::default();
    i.set_code(code);
    code.op_code().encoding() == EncodingKind::Legacy && interpreter::has_semantics(&i)
}

/// Whether this host can compare an encoding.
fn has_semantics(code: Code) -> bool {
    samples(code).any(|(i, bytes)| is_fit(&i, &bytes))
}

/// An encoding with a few random operands: a table may refuse some of them.
fn samples(code: Code) -> impl Iterator<Item = (Instruction, Vec<u8>)> {
    const TRIES: u64 = 8;
    (0..TRIES).filter_map(move |stream| {
        let mut random = Random::new(0, stream);
        let mut pins = Pins::default();
        let i = Operands::new(&mut random, &mut pins, None).instruction(code, CODE)?;
        let bytes = encode(&i, CODE)?;
        let decoded = decode(&bytes, CODE).filter(|decoded| decoded.mnemonic() == code.mnemonic())?;
        Some((decoded, bytes))
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
