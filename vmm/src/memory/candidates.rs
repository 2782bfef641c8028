//! Where bytes stand that an instruction which is to be rewritten ([`super::rewritten`]) has in it: what lies elsewhere need not be
//! decoded.
//!
//! Each of those instructions has two bytes that are next to each other: opcode bytes, an opcode and its ModRM byte, or the last
//! prefix and the opcode. They are looked for 64 places at a time, without branches, which the compiler turns into vector
//! instructions.
//!
//! Example: of libc's 1.4 MB of code 700 kB are in functions that hold such a pair by chance, most of them 0F 00 in a distance. The
//! ModRM byte behind it says that only the forms 4 and 5 are VERR and VERW.

use std::ops::Range;

/// A machine read or FXSAVE: looked for in all code.
const ANYWHERE: u8 = 1;
/// Looked for only where there is certainly code.
const IN_CODE: u8 = 2;
/// A prefix between the one that matters (REP) and the opcode, as nobody writes it.
const ODD: u8 = 4;
/// So many places are looked at together.
pub(super) const CHUNK: usize = 64;

/// The places in some code, in order.
pub(super) struct Candidates {
    places: Vec<(usize, u8)>,
}

impl Candidates {
    /// All places in `code`.
    pub(super) fn of(code: &[u8]) -> Candidates {
        let mut places = Vec::new();
        for from in (0..code.len()).step_by(CHUNK) {
            let mut bytes = [0; CHUNK + 2];
            let there = &code[from..code.len().min(from + CHUNK + 2)];
            bytes[..there.len()].copy_from_slice(there);
            let classes = classes(&bytes);
            if classes == [0; CHUNK] {
                continue;
            }
            // A pair has its second byte in the code.
            let pairs = classes[..CHUNK.min(there.len() - 1)].iter().enumerate();
            places.extend(pairs.filter(|(_, class)| **class != 0).map(|(at, class)| (from + at, *class)));
        }
        Candidates { places }
    }

    /// Those in a range that have both bytes there: what is looked for where there is `certain`ly code, or where there may be.
    /// The second value: whether there are some, and only odd ones.
    pub(super) fn within(&self, range: &Range<usize>, certain: bool) -> (Vec<usize>, bool) {
        let last = range.end.saturating_sub(1);
        let begin = self.places.partition_point(|(at, _)| *at < range.start);
        let wanted = if certain { ANYWHERE | IN_CODE | ODD } else { ANYWHERE };
        let inside = self.places[begin..].iter().take_while(|(at, _)| *at < last);
        let (mut places, mut usual) = (Vec::new(), false);
        for (at, class) in inside.filter(|(_, class)| class & wanted != 0) {
            places.push(*at);
            usual |= class & !ODD != 0;
        }
        let only_odd = !places.is_empty() && !usual;
        (places, only_odd)
    }
}

/// The class of each of the first places.
fn classes(bytes: &[u8; CHUNK + 2]) -> [u8; CHUNK] {
    let (mut classes, [first, second, third]) =
        ([0; CHUNK], [0, 1, 2].map(|from| &bytes[from..from + CHUNK]));
    for at in 0..CHUNK {
        classes[at] = class(first[at], second[at], third[at]);
    }
    classes
}

/// What the three bytes may begin.
#[inline]
fn class(a: u8, b: u8, c: u8) -> u8 {
    let (form, in_memory) = (c >> 3 & 7, c < 0xc0);
    let two_byte = a == 0x0f;
    // RDTSC, CPUID; RDTSCP, XGETBV, XEND and those of monitors; XSAVE, XRSTOR, XSAVEOPT, FXSAVE; RDRAND, RDSEED, RDPID, XSAVEC,
    // XSAVES, XRSTORS, and not CMPXCHG8B; XBEGIN, XABORT.
    let anywhere = two_byte
        & ((b == 0x31)
            | (b == 0xa2)
            | (b == 0x01) & !in_memory
            | (b == 0xae) & in_memory & ((form == 0) | (form & 4 != 0) & (form != 7))
            | (b == 0xc7) & (form > 2))
        | (a & 0xfe == 0xc6) & (b == 0xf8);
    // LAR, LSL, VERR, VERW; PAUSE; FNSTENV and FNSAVE; INS and OUTS behind REP.
    let in_code = two_byte & ((b == 0x02) | (b == 0x03) | (b == 0x00) & (form & 6 == 4))
        | (a == 0xf3) & (b == 0x90)
        | (a & 0xfb == 0xd9) & (b & 0x38 == 0x30) & (b < 0xc0)
        | is_prefix_of_port(a) & (b & 0xfc == 0x6c);
    let odd = is_prefix(a) & is_prefix(b) & ((c == 0x90) | (c & 0xfc == 0x6c));
    let marked = |is: bool, mark: u8| u8::from(is) * mark;
    marked(anywhere, ANYWHERE) | marked(in_code, IN_CODE) | marked(odd, ODD)
}

/// REX, and the prefixes for sizes and REP.
#[inline]
fn is_prefix_of_port(byte: u8) -> bool {
    (byte & 0xf0 == 0x40) | (byte & 0xfe == 0x66) | (byte & 0xfe == 0xf2)
}

/// The same, LOCK and segments.
#[inline]
fn is_prefix(byte: u8) -> bool {
    is_prefix_of_port(byte) | (byte == 0xf0) | (byte & 0xe7 == 0x26) | (byte & 0xfe == 0x64)
}

/// Whether the opcode bytes of what is looked for occur at all; cheap, and true for little code. FNSTENV and FNSAVE (/6,
/// with an operand in memory) are looked for where there is `certain`ly code.
pub(super) fn may_contain(code: &[u8], certain: bool) -> bool {
    let begins = |pair: &[u8]| match pair {
        [0x0f, 0x01 | 0x31 | 0xa2 | 0xae | 0xc7] | [0xc6 | 0xc7, 0xf8] | [0xf3, 0x90] => true,
        // LAR, LSL, VERR and VERW.
        [0x0f, 0x00 | 0x02 | 0x03] => certain,
        [0xd9 | 0xdd, operand] => certain && *operand >> 3 & 7 == 6 && *operand < 0xc0,
        // INS and OUTS behind REP, which may have other prefixes behind it.
        [0xf2 | 0xf3 | 0x40..=0x4f | 0x66 | 0x67, 0x6c..=0x6f] => certain,
        _ => false,
    };
    code.windows(2).any(begins)
}
