//! The search for instructions that are to be rewritten ([`super::sites`]).
//!
//! What was found in some bytes is kept, by a digest of them and of what is known of them: the next program that maps the same
//! library, as each command of a shell script does, has its instructions at once.
//!
//! Only functions that have bytes of such an instruction in them are decoded, up to the last of these ([`super::candidates`]).
//!
//! Example: libc's 1.4 MB of code are searched in a third of the 8 ms that it takes without candidates, and digested in 0.2.

use super::candidates::{Candidates, may_contain};
use super::ordinary::is_ordinary;
use super::rewritten::Kind;
use super::sites::{Known, offset};
use crate::ram::Virt;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use xxhash_rust::xxh3::Xxh3;

/// How many instructions before and behind a machine read must be ordinary where no table says that it is code.
const NEIGHBOURS: usize = 8;

/// Whether the instruction at `at` stands among ordinary ones, as far as control flows past them in a straight line.
/// `code` is where they may jump to.
fn is_among_code(instructions: &[Instruction], at: usize, code: &Range<Virt>) -> bool {
    let before = instructions[..at].iter().rev().take(NEIGHBOURS);
    let behind = instructions[at + 1..].iter();
    let leaves = |instruction: &&Instruction| {
        matches!(instruction.flow_control(), FlowControl::Return | FlowControl::UnconditionalBranch)
    };
    // What follows a return may be anything, the return itself must be ordinary.
    let mut left = false;
    let behind = behind.take(NEIGHBOURS).take_while(|i| !std::mem::replace(&mut left, leaves(i)));
    let before = before.take_while(|i| !leaves(i));
    before.chain(behind).all(|instruction| is_ordinary(instruction, code))
}

impl Known<'_> {
    /// Cuts `range` where a function starts, and where what is known begins and ends.
    fn parts(&self, range: &Range<Virt>) -> Vec<Range<Virt>> {
        let edges = self.bodies.iter().flat_map(|body| [body.start, body.end]);
        let mut cuts: Vec<Virt> = edges.chain(self.functions.iter().copied()).collect();
        cuts.retain(|cut| (range.start + 1..range.end).contains(cut));
        cuts.extend([range.start, range.end]);
        cuts.sort_unstable();
        cuts.dedup();
        cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
    }

    /// Whether `address` is certainly code.
    fn covers(&self, address: Virt) -> bool {
        let behind = self.bodies.partition_point(|body| body.start <= address);
        self.bodies[..behind].last().is_some_and(|body| address < body.end)
    }
}

/// What was found in code that was searched: distances from its start.
static SEARCHED: Mutex<Option<FxHashMap<u128, Arc<[u32]>>>> = Mutex::new(None);
/// The results for more pieces of code than this are forgotten.
const MOST_SEARCHED: usize = 4096;
/// Less code than this is searched as soon as it is digested.
const WORTH_KEEPING: usize = 1 << 14;

/// The addresses of the machine reads in `code`, which is at `start`.
pub(super) fn find(start: Virt, code: &[u8], known: Known<'_>) -> Vec<Virt> {
    let parts = known.parts(&(start..start + code.len() as u64));
    if code.len() < WORTH_KEEPING {
        return search(start, code, &parts, known);
    }
    let key = digest(start, code, &parts, known);
    let lock = || SEARCHED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = lock().as_ref().and_then(|searched| searched.get(&key)) {
        return found.iter().map(|distance| start + u64::from(*distance)).collect();
    }
    let found = search(start, code, &parts, known);
    if let Ok(distances) = found.iter().map(|address| u32::try_from(address - start)).collect() {
        let mut searched = lock();
        let searched = searched.get_or_insert_default();
        if searched.len() >= MOST_SEARCHED {
            searched.clear();
        }
        searched.insert(key, distances);
    }
    found
}

/// A digest of all that the result depends on. 128 bits of a hash that is not cryptographic: a program that finds a collision
/// misleads its own recording, and could as well be one whose tables lie.
fn digest(start: Virt, code: &[u8], parts: &[Range<Virt>], known: Known<'_>) -> u128 {
    let mut state = Xxh3::new();
    state.update(code);
    for part in parts {
        state.update(&(part.start - start).to_le_bytes());
        state.update(&[u8::from(known.covers(part.start))]);
    }
    state.digest128()
}

/// Searches part by part.
fn search(start: Virt, code: &[u8], parts: &[Range<Virt>], known: Known<'_>) -> Vec<Virt> {
    let range = start..start + code.len() as u64;
    let candidates = Candidates::of(code);
    let mut found = Vec::new();
    for part in parts {
        let inside = offset(start, part.start)..offset(start, part.end);
        let (bytes, certain) = (&code[inside.clone()], known.covers(part.start));
        let (places, only_odd) = candidates.within(&inside, certain);
        // Odd prefixes were always looked for only where there was something else to decode for.
        if places.is_empty() || only_odd && !may_contain(bytes, certain) {
            continue;
        }
        let decoder = Decoder::with_ip(64, bytes, part.start, DecoderOptions::NONE);
        if certain {
            search_code(decoder, places.iter().map(|place| place - inside.start), &mut found);
            continue;
        }
        let instructions: Vec<Instruction> = decoder.into_iter().collect();
        let wanted = instructions.iter().enumerate().filter(|(at, instruction)| {
            let is_read = matches!(Kind::of(instruction), Some(Kind::Machine(_))) || is_fxsave(instruction);
            is_read && is_among_code(&instructions, *at, &range)
        });
        found.extend(wanted.map(|(_, instruction)| instruction.ip()));
    }
    found
}

/// Searches what is certainly code, instruction by instruction, as far as one has a candidate in it; what has none is none.
fn search_code(mut decoder: Decoder<'_>, places: impl Iterator<Item = usize>, found: &mut Vec<Virt>) {
    let mut instruction = Instruction::default();
    for place in places {
        // Several candidates may be in one instruction.
        let mut is_new = false;
        while decoder.position() <= place && decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            is_new = true;
        }
        if is_new && (Kind::of(&instruction).is_some() || is_pause(&instruction)) {
            found.push(instruction.ip());
        }
    }
}

fn is_fxsave(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Fxsave | Mnemonic::Fxsave64)
}

pub(super) fn is_pause(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Pause
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::candidates::CHUNK;

    /// What is found by decoding everything, in one part.
    fn decoded(code: &[u8], certain: bool) -> Vec<Virt> {
        let instructions: Vec<Instruction> =
            Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).into_iter().collect();
        let range = 0x1000..0x1000 + code.len() as u64;
        let wanted = |at: usize, i: &Instruction| {
            if certain {
                return Kind::of(i).is_some() || is_pause(i);
            }
            let is_read = matches!(Kind::of(i), Some(Kind::Machine(_))) || is_fxsave(i);
            is_read && is_among_code(&instructions, at, &range)
        };
        let found = instructions.iter().enumerate().filter(|(at, i)| wanted(*at, i));
        let found = found.map(|(_, i)| i.ip()).collect();
        if may_contain(code, certain) { found } else { Vec::new() }
    }

    fn found(code: &[u8], certain: bool) -> Vec<Virt> {
        let range = 0x1000..0x1000 + code.len() as u64;
        let known = Known { functions: &[], bodies: std::slice::from_ref(&range) };
        search(0x1000, code, std::slice::from_ref(&range), if certain { known } else { Known::default() })
    }

    /// Bytes of which many are opcodes and prefixes of what is looked for.
    fn random_code(state: &mut u64, length: usize) -> Vec<u8> {
        const LIKELY: [u8; 40] = [
            0x0f, 0x0f, 0x0f, 0x0f, 0x00, 0x01, 0x02, 0x03, 0x31, 0xa2, 0xae, 0xae, 0xc7, 0xc7, 0xc6, 0xf8,
            0xf3, 0xf3, 0xf2, 0x90, 0x90, 0xd9, 0xdd, 0x37, 0x30, 0x6c, 0x6d, 0x6e, 0x6f, 0x66, 0x67, 0x48,
            0x2e, 0x64, 0xf0, 0xf9, 0xd0, 0xd6, 0x20, 0x25,
        ];
        let mut next = || {
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            *state >> 11
        };
        let byte = |number: u64| (number >> 8 & 0xff) as u8;
        (0..length)
            .map(|_| match next() {
                number if number % 3 == 0 => byte(number),
                number if number % 3 == 1 => 0x90,
                number => LIKELY[usize::from(byte(number)) % LIKELY.len()],
            })
            .collect()
    }

    #[test]
    fn the_search_finds_what_decoding_everything_finds() {
        let (mut state, mut all) = (0x9e37_79b9_7f4a_7c15, 0);
        for round in 0..100_000 {
            let code = random_code(&mut state, 1 + round % (2 * CHUNK + 9));
            for certain in [false, true] {
                let expected = decoded(&code, certain);
                assert_eq!(found(&code, certain), expected, "{certain} {code:02x?}");
                all += expected.len();
            }
        }
        assert!(all > 30_000, "{all} were found");
    }

    #[test]
    fn odd_prefixes_are_found_only_beside_something_else() {
        // rep outsb fs: is found behind a chance 0F 00, and not alone.
        let alone = [0xf3, 0x64, 0x6e, 0xc3];
        assert!(found(&alone, true).is_empty());
        let beside = [0xb8, 0x0f, 0x00, 0x00, 0x00, 0xf3, 0x64, 0x6e, 0xc3];
        assert_eq!(found(&beside, true), [0x1005]);
        assert_eq!((decoded(&alone, true), decoded(&beside, true)), (vec![], vec![0x1005]));
    }
}
