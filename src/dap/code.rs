//! Memory and instructions as the editor shows them.

use super::debuggee::Debuggee;
use super::protocol::{Answer, Memory};
use super::step::{LONGEST_INSTRUCTION, decoded};
use crate::values::number;
use iced_x86::{Formatter, IntelFormatter};
use serde_json::{Value, json};
use vmm::process::Process;

/// Bytes that are read at once.
const MOST_BYTES: u64 = 1 << 20;
/// Instructions that are shown at once.
const MOST_INSTRUCTIONS: u64 = 4096;
/// So many bytes behind a name are taken for code of it.
const LONGEST_FUNCTION: u64 = 1 << 20;

impl Debuggee {
    /// `readMemory`.
    pub(super) fn read_memory(&self, asked: &Memory) -> Answer {
        let start = reference(&asked.memory_reference)?.wrapping_add_signed(asked.offset);
        let process = self.travel.process();
        let count = asked.count.min(MOST_BYTES);
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < count {
            let at = start.wrapping_add(bytes.len() as u64);
            // Up to the end of the page, or what is asked for.
            let len = (4096 - at % 4096).min(count - bytes.len() as u64);
            let mut part = vec![0; usize::try_from(len).unwrap_or(0)];
            if !process.read_memory(at, &mut part) {
                break;
            }
            bytes.extend(part);
        }
        let unreadable = asked.count - bytes.len() as u64;
        let mut answer = json!({ "address": format!("{start:#x}"), "data": base64(&bytes) });
        if unreadable > 0 {
            answer["unreadableBytes"] = unreadable.into();
        }
        Ok(answer)
    }

    /// `disassemble`.
    pub(super) fn disassemble(&mut self, asked: &Memory) -> Answer {
        let at = reference(&asked.memory_reference)?.wrapping_add_signed(asked.offset);
        let count = asked.instruction_count.min(MOST_INSTRUCTIONS);
        let back = asked.instruction_offset.min(0).unsigned_abs().min(MOST_INSTRUCTIONS);
        let skip = asked.instruction_offset.max(0).unsigned_abs().min(MOST_INSTRUCTIONS);
        let before = self.instructions_before(at, back);
        let missing = back - before.len() as u64;
        let mut starts: Vec<Option<u64>> = vec![None; usize::try_from(missing).unwrap_or(0)];
        starts.extend(before.into_iter().map(Some));
        let mut next = Some(at);
        for n in 0.. {
            if starts.len() as u64 >= count {
                break;
            }
            if n >= skip {
                starts.push(next);
            }
            next = next.map(|at| {
                at.wrapping_add(decoded(self.travel.process(), at).map_or(1, |it| it.len() as u64))
            });
        }
        starts.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        let instructions: Vec<_> = starts.into_iter().map(|start| self.instruction(start)).collect();
        Ok(json!({ "instructions": instructions }))
    }

    /// Where the instructions before one begin, as many as are known: from the beginnings of named functions on, so that they are the
    /// instructions that run.
    fn instructions_before(&self, at: u64, count: u64) -> Vec<u64> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let (mut starts, mut end) = (Vec::new(), at);
        while starts.len() < count
            && let Some(begin) = self.named_before(end)
        {
            let mut part = self.instructions_between(begin, end);
            part.extend(starts);
            (starts, end) = (part, begin);
        }
        let first = starts.len().saturating_sub(count);
        starts.split_off(first)
    }

    /// The last beginning of a named function before an address, if that is in the same code.
    fn named_before(&self, address: u64) -> Option<u64> {
        let symbols = self.known.symbols.module_at(address.checked_sub(1)?)?.names().symbols();
        let before = symbols.partition_point(|symbol| symbol.start < address);
        let start = symbols[..before].last()?.start;
        (address - start <= LONGEST_FUNCTION).then_some(start)
    }

    fn instructions_between(&self, start: u64, end: u64) -> Vec<u64> {
        let (mut starts, mut next) = (Vec::new(), start);
        while next < end {
            starts.push(next);
            next += decoded(self.travel.process(), next).map_or(1, |it| it.len() as u64);
        }
        // What reaches beyond is no instruction: data, or padding.
        starts.pop_if(|_| next > end);
        starts
    }

    fn instruction(&mut self, start: Option<u64>) -> Value {
        let Some(start) = start else {
            return json!({ "address": "0x0", "instruction": "(not known)", "presentationHint": "invalid" });
        };
        let process = self.travel.process();
        let mut answer = match decoded(process, start) {
            Some(instruction) => {
                let mut text = String::new();
                IntelFormatter::new().format(&instruction, &mut text);
                json!({ "instruction": text, "instructionBytes": bytes_of(process, start, instruction.len()) })
            }
            None => json!({
                "instruction": "(bad)", "presentationHint": "invalid", "instructionBytes": bytes_of(process, start, 1),
            }),
        };
        answer["address"] = format!("{start:#x}").into();
        let place = self.known.symbols.place(start);
        if let Some(place) = place {
            if let Some(function) = place.function() {
                answer["symbol"] = function.into();
            }
            if let Some((file, line)) = place.line() {
                answer["line"] = line.into();
                answer["location"] = self.source(file);
            }
        }
        answer
    }
}

/// An address that this adapter gave.
fn reference(text: &str) -> Result<u64, String> {
    number(text).ok_or_else(|| format!("`{text}` is no address"))
}

fn bytes_of(process: &Process, start: u64, len: usize) -> String {
    let mut bytes = [0; LONGEST_INSTRUCTION];
    let bytes = &mut bytes[..len.min(LONGEST_INSTRUCTION)];
    if !process.read_memory(start, bytes) {
        return "not mapped".to_owned();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// Bytes as base64 (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let word =
            part.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        for n in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * n) & 63) as usize];
            text.push(if n <= part.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_as_the_rfc_has_it() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
