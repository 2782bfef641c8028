//! Where instructions that read the machine are rewritten to UD2, so that they leave the guest on every host.
//!
//! They are found by disassembly: byte patterns alone are not proof (nine of ten that look like RDTSC in common
//! libraries are parts of other instructions). Code is disassembled afresh at each function that the program's tables
//! name. What no table covers may be data: assembly keeps constants among its functions, as libcrypto does with the
//! 150 KB of multiples of P-256's base point, and about every 64 KB of random bytes hold a machine read at an
//! instruction's boundary. There an instruction is rewritten only among others of the kind that programs consist of
//! ([`super::search`]), for a constant that was changed is a wrong result that nobody is told of.
//!
//! FNSTENV, FNSAVE and FXSAVE, which store the address of the last x87 instruction, are rewritten with them, and what some
//! hosts run and others refuse, and what tells of descriptor tables. FNSTENV and FNSAVE have opcodes of one byte, one of 1400
//! random bytes, so these, what is refused and what tells of descriptors only where a table says that there is code.
//!
//! PAUSE is rewritten with them, but only where a table says that there is code: it reads nothing, and one that is left alone
//! is only slow. Who executes it waits for another thread, and this is where that one gets the processor.
//!
//! Code that the guest writes to a page that is executable already is found when it is executed ([`super::turns`]).

use super::search::{find, is_pause};
use crate::plain::plain;
use crate::ram::{PAGE, Virt};
use iced_x86::{Decoder, DecoderOptions};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// UD2.
pub const UD2: [u8; 2] = [0x0f, 0x0b];
/// What a program's tables say of its code.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// Where functions start, in order.
    pub functions: &'a [Virt],
    /// What is certainly code: ranges in order, no two of which touch.
    pub bodies: &'a [Range<Virt>],
}

/// The rewritten instructions by address, each with the two bytes that UD2 replaced.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    originals: BTreeMap<Virt, [u8; 2]>,
}
plain!(struct Sites { originals });

impl Sites {
    /// Whether the instruction at `address` was rewritten.
    #[must_use]
    pub fn contains(&self, address: Virt) -> bool {
        self.originals.contains_key(&address)
    }

    /// Whether one lies in the page at `page`, or reaches into it.
    #[must_use]
    pub fn has_any(&self, page: Virt) -> bool {
        self.originals.range(page.saturating_sub(1)..page.saturating_add(PAGE)).next().is_some()
    }

    /// Those that begin in a range, in order, and what the program has there.
    pub(super) fn originals_in(&self, range: Range<Virt>) -> impl Iterator<Item = (Virt, [u8; 2])> {
        self.originals.range(range).map(|(address, original)| (*address, *original))
    }

    /// Adds some that are known.
    pub(super) fn extend(&mut self, found: &[(Virt, [u8; 2])]) {
        self.originals.extend(found.iter().copied());
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.originals.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.originals.is_empty()
    }

    /// Finds the machine reads in `code`, which is at `start`. Gives the new ones' addresses.
    pub fn add(&mut self, start: Virt, code: &[u8], known: Known<'_>) -> Vec<Virt> {
        let mut new = Vec::new();
        for address in find(start, code, known) {
            let at = offset(start, address);
            let bytes = [code[at], code[at + 1]];
            if bytes != UD2 && self.originals.insert(address, bytes).is_none() {
                new.push(address);
            }
        }
        new
    }

    /// Adds what an earlier search has found at these distances in code that begins so, behind which are zeroes.
    pub(super) fn add_found(&mut self, start: Virt, distances: &[u32], code: &[u8]) {
        let byte = |at: usize| code.get(at).copied().unwrap_or(0);
        for at in distances.iter().map(|distance| *distance as usize) {
            self.originals.insert(start + at as u64, [byte(at), byte(at + 1)]);
        }
    }

    /// How far behind the start of `range` those in it are; `None` where that is too far for 32 bits.
    pub(super) fn distances(&self, range: &Range<Virt>) -> Option<Arc<[u32]>> {
        self.originals_in(range.clone()).map(|(at, _)| u32::try_from(at - range.start).ok()).collect()
    }

    /// Whether one lies in a range, or reaches into it.
    pub(super) fn reaches_into(&self, range: &Range<Virt>) -> bool {
        self.originals.range(range.start.saturating_sub(1)..range.end).next().is_some()
    }

    /// Forgets those in a range that is no longer mapped.
    pub fn remove(&mut self, range: &Range<Virt>) {
        let gone: Vec<Virt> = self.originals.range(range.clone()).map(|(address, _)| *address).collect();
        for address in gone {
            self.originals.remove(&address);
        }
    }

    /// Forgets those of which a range has a part; gives them, with what the program has there.
    pub(super) fn take(&mut self, range: &Range<Virt>) -> Vec<(Virt, [u8; 2])> {
        let overlapping = range.start.saturating_sub(1)..range.end;
        let taken = self.originals.range(overlapping.clone()).map(|(&at, &bytes)| (at, bytes)).collect();
        self.remove(&overlapping);
        taken
    }

    /// Moves those in a range that was moved by mremap.
    pub fn relocate(&mut self, range: &Range<Virt>, to: Virt) {
        let moved: Vec<_> = self.originals.range(range.clone()).map(|(&at, &bytes)| (at, bytes)).collect();
        self.remove(range);
        self.originals.extend(moved.into_iter().map(|(at, bytes)| (at - range.start + to, bytes)));
    }

    /// Writes UD2 into `bytes`, which are what is at `start`, wherever an instruction was rewritten.
    pub fn hide(&self, start: Virt, bytes: &mut [u8]) {
        self.overlay(start, bytes, |_| UD2);
    }

    /// Writes the program's own bytes back into `bytes`.
    pub fn reveal(&self, start: Virt, bytes: &mut [u8]) {
        self.overlay(start, bytes, |original| original);
    }

    fn overlay(&self, start: Virt, bytes: &mut [u8], what: impl Fn([u8; 2]) -> [u8; 2]) {
        let end = start.saturating_add(bytes.len() as u64);
        for (&address, &original) in self.originals.range(start.saturating_sub(1)..end) {
            for (at, byte) in (address..).zip(what(original)) {
                if (start..end).contains(&at) {
                    bytes[offset(start, at)] = byte;
                }
            }
        }
    }
}

/// The distance of `address` from `start`, which is not above it, inside a slice.
pub(super) fn offset(start: Virt, address: Virt) -> usize {
    usize::try_from(address - start).expect("an offset inside a slice")
}

/// Where the PAUSE at `rip` ends, if that is what these bytes are.
#[must_use]
pub fn behind_pause(rip: Virt, bytes: &[u8]) -> Option<Virt> {
    let instruction = Decoder::with_ip(64, bytes, rip, DecoderOptions::NONE).decode();
    is_pause(&instruction).then(|| instruction.next_ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_instructions_at_a_boundary_are_rewritten() {
        // mov eax, 0x0000310f (holds the bytes of RDTSC); rdtsc; cpuid; ret
        let code = [0xb8, 0x0f, 0x31, 0x00, 0x00, 0x0f, 0x31, 0x0f, 0xa2, 0xc3];
        let mut sites = Sites::default();
        assert_eq!(sites.add(0x1000, &code, Known::default()), [0x1005, 0x1007]);
        let mut hidden = code;
        sites.hide(0x1000, &mut hidden);
        assert_eq!(hidden, [0xb8, 0x0f, 0x31, 0x00, 0x00, 0x0f, 0x0b, 0x0f, 0x0b, 0xc3]);
        sites.reveal(0x1000, &mut hidden);
        assert_eq!(hidden, code);
    }

    #[test]
    fn pauses_are_rewritten_where_there_is_certainly_code() {
        // pause; nop; mov eax, 0x90f3; ret
        let code = [0xf3, 0x90, 0x90, 0xb8, 0xf3, 0x90, 0, 0, 0xc3];
        let known = Known { functions: &[], bodies: std::slice::from_ref(&(0x1000..0x1009)) };
        assert_eq!(Sites::default().add(0x1000, &code, known), [0x1000]);
        assert!(Sites::default().add(0x1000, &code, Known::default()).is_empty());
        assert_eq!(behind_pause(0x1000, &code), Some(0x1002));
        assert_eq!(behind_pause(0x1002, &code[2..]), None);
    }

    #[test]
    fn what_stores_the_last_x87_instruction_is_rewritten() {
        // fnstenv [rdi]; fwait; fnstenv [rdi]; o16 fnsave [rdi]; fnstcw [rdi]; fxsave64 [rdi]; ret
        let code = [0xd9, 0x37, 0x9b, 0xd9, 0x37, 0x66, 0xdd, 0x37, 0xd9, 0x3f, 0x48, 0x0f, 0xae, 0x07, 0xc3];
        let body = 0x1000..0x1000 + code.len() as u64;
        let known = Known { functions: &[], bodies: std::slice::from_ref(&body) };
        assert_eq!(Sites::default().add(0x1000, &code, known), [0x1000, 0x1003, 0x1005, 0x100a]);
        assert_eq!(Sites::default().add(0x1008, &code[8..], Known::default()), [0_u64; 0]);
        assert_eq!(Sites::default().add(0x100a, &code[10..], Known::default()), [0x100a]);
    }

    #[test]
    fn a_function_symbol_ends_what_was_decoded_before_it() {
        // A stray byte 0xb8 of data before the function would swallow the CPUID as an immediate.
        let code = [0xb8, 0x0f, 0xa2, 0xc3, 0x90, 0x90];
        assert!(Sites::default().add(0x1000, &code, Known::default()).is_empty());
        assert_eq!(
            Sites::default().add(0x1000, &code, Known { functions: &[0x1001], bodies: &[] }),
            [0x1001]
        );
    }

    #[test]
    fn a_rewriting_that_straddles_two_pages_is_seen_from_both() {
        let mut sites = Sites::default();
        sites.add(0x1fff, &[0x0f, 0xa2], Known::default());
        let (mut first, mut second) = ([0x90; 4], [0x90; 4]);
        sites.hide(0x1ffc, &mut first);
        sites.hide(0x2000, &mut second);
        assert_eq!((first, second), ([0x90, 0x90, 0x90, 0x0f], [0x0b, 0x90, 0x90, 0x90]));
    }

    #[test]
    fn transactions_are_rewritten() {
        // xbegin 0x1006; xabort 1; xend; xtest
        let code = [0xc7, 0xf8, 0, 0, 0, 0, 0xc6, 0xf8, 1, 0x0f, 0x01, 0xd5, 0x0f, 0x01, 0xd6];
        assert_eq!(Sites::default().add(0x1000, &code, Known::default()), [0x1000, 0x1006, 0x1009, 0x100c]);
    }

    /// A table of constants among functions, of the kind that cryptography needs.
    fn table() -> Vec<u8> {
        let mut x = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x.to_le_bytes()
        };
        (0..1 << 17).flat_map(|_| next()).collect()
    }

    #[test]
    fn constants_among_code_are_left_alone() {
        let table = table();
        let everything = std::slice::from_ref(&(0..u64::MAX));
        let decoded = Sites::default().add(0x1000, &table, Known { functions: &[], bodies: everything });
        assert!(decoded.len() > 10, "only {} machine reads to be taken for code", decoded.len());
        assert_eq!(Sites::default().add(0x1000, &table, Known::default()), [0_u64; 0]);
    }

    #[test]
    fn code_beside_constants_is_rewritten_with_tables_and_without() {
        // mov eax, 7; xor ecx, ecx; cpuid; mov [rdi], ebx; ret
        let function = [0xb8, 7, 0, 0, 0, 0x31, 0xc9, 0x0f, 0xa2, 0x89, 0x1f, 0xc3];
        let mut code = table();
        let start = 0x1000 + code.len() as u64;
        code.extend(function);
        // 06 is no instruction.
        code.extend([0x06; 4]);
        let body = start..start + function.len() as u64;
        let known = Known { functions: &[start], bodies: &[body] };
        assert_eq!(Sites::default().add(0x1000, &code, known), [start + 7]);
        assert_eq!(Sites::default().add(start, &function, Known::default()), [start + 7]);
    }
}
