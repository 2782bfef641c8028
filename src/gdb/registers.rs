//! The registers of x86-64 as gdb's remote protocol has them: the order of the `g` packet, and the description of it that gdb reads.
//!
//! Source: gdb's features/i386/64bit-{core,sse,linux,segments,avx}.xml. A register has the number of its place in both.

use std::fmt::Write;
use x86::op::Gpr;
use x86::state::{Fpu, Regs, State};

/// The order of general registers in the packet, by the number that instructions encode.
const ORDER: [usize; 16] = [0, 3, 1, 2, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
/// The selectors of a 64-bit program under Linux: CS, SS, and four that are zero.
pub(super) const SELECTORS: [u32; 6] = [0x33, 0x2b, 0, 0, 0, 0];

/// The number of rip, behind the general registers; eflags follows.
pub(super) const RIP: u16 = 16;
/// Those that are told with each stop, as every debugger asks for them: rbp, rsp, rip.
pub(super) const AT_STOPS: [u16; 3] = [6, 7, RIP];

/// The registers of a task.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shown {
    pub(super) regs: Regs,
    /// CS, SS, DS, ES, FS, GS.
    pub(super) selectors: [u32; 6],
    /// x87 and vector registers; none where they are not known.
    pub(super) fpu: Option<Fpu>,
}

impl From<State> for Shown {
    fn from(state: State) -> Shown {
        Shown { regs: state.regs, selectors: SELECTORS, fpu: Some(state.fpu) }
    }
}

/// All registers: two digits for each byte, `x` for those that are not known.
pub(super) fn packet(shown: Option<&Shown>) -> String {
    let unknown = Shown { regs: Regs::default(), selectors: SELECTORS, fpu: None };
    let known = fields(shown.unwrap_or(&unknown));
    let text = |(len, bytes): (usize, Option<Vec<u8>>)| match bytes.filter(|_| shown.is_some()) {
        Some(bytes) => super::hex::encode(&bytes),
        None => "x".repeat(2 * len),
    };
    known.into_iter().map(text).collect()
}

/// The `g` packet: all but the upper halves of ymm, which debuggers ask for one by one.
///
/// gdb refuses a packet that is longer than what it knows of the processor, and of a process that it finds in the list of threads,
/// and was not told of as a fork, it knows only the processor's baseline.
pub(super) fn general(shown: Option<&Shown>) -> String {
    let mut text = packet(shown);
    text.truncate(2 * BASELINE);
    text
}

/// One register, in the same way; `None` where there is none of this number.
pub(super) fn one(shown: Option<&Shown>, number: usize) -> Option<String> {
    let before: usize =
        SIZES.iter().flat_map(|(count, len)| std::iter::repeat_n(*len, *count)).take(number).sum();
    let len = SIZES.iter().flat_map(|(count, len)| std::iter::repeat_n(*len, *count)).nth(number)?;
    packet(shown).get(2 * before..2 * (before + len)).map(str::to_owned)
}

/// A general register, rip, eflags, or a base, as conditions ask for them.
pub(super) fn word(regs: &Regs, number: u16) -> Option<u64> {
    const EFLAGS: u16 = RIP + 1;
    match number {
        0..RIP => Some(regs.gpr[ORDER[usize::from(number)]]),
        RIP => Some(regs.rip),
        EFLAGS => Some(regs.rflags),
        FS_BASE => Some(regs.fs_base),
        GS_BASE => Some(regs.gs_base),
        _ => None,
    }
}

/// How many registers follow each other, and how many bytes each has: general ones and rip; eflags and selectors; st; x87's control
/// registers; xmm; mxcsr; orig_rax and the bases; the upper halves of ymm.
const SIZES: [(usize, usize); 8] = [(17, 8), (7, 4), (8, 10), (8, 4), (16, 16), (1, 4), (3, 8), (16, 16)];
/// So many bytes are all but the last of these.
const BASELINE: usize = 560;
const FS_BASE: u16 = 58;
const GS_BASE: u16 = 59;

/// All registers in order, some together: how many bytes, and these, where they are known.
fn fields(shown: &Shown) -> Vec<(usize, Option<Vec<u8>>)> {
    let regs = &shown.regs;
    let mut first: Vec<u8> = ORDER.iter().flat_map(|number| regs.gpr[*number].to_le_bytes()).collect();
    first.extend(regs.rip.to_le_bytes());
    first.extend(low32(regs.rflags).to_le_bytes());
    first.extend(shown.selectors.iter().flat_map(|selector| selector.to_le_bytes()));
    // orig_rax: no system call is being restarted.
    let last: Vec<u8> =
        [u64::MAX, regs.fs_base, regs.gs_base].iter().flat_map(|word| word.to_le_bytes()).collect();
    let fpu = shown.fpu.as_ref();
    vec![
        (first.len(), Some(first)),
        (8 * 10 + 8 * 4, fpu.map(x87)),
        (16 * 16 + 4, fpu.map(sse)),
        (last.len(), Some(last)),
        (16 * 16, fpu.map(|fpu| fpu.vector[..16].iter().flat_map(|it| words(&it[2..4])).collect())),
    ]
}

fn words(words: &[u64]) -> impl Iterator<Item = u8> {
    words.iter().flat_map(|word| word.to_le_bytes())
}

fn sse(fpu: &Fpu) -> Vec<u8> {
    let xmm = (0..16).flat_map(|n| fpu.xmm(n).iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<_>>());
    xmm.chain(fpu.mxcsr.to_le_bytes()).collect()
}

fn x87(fpu: &Fpu) -> Vec<u8> {
    let mut bytes = Vec::new();
    let top = usize::from(fpu.status >> 11 & 7);
    for n in 0..8 {
        let (significand, exponent) = fpu.st[(top + n) % 8];
        bytes.extend(significand.to_le_bytes());
        bytes.extend(exponent.to_le_bytes());
    }
    let [instruction, data] = [fpu.instruction, fpu.data];
    let control = [
        u32::from(fpu.control),
        u32::from(fpu.status),
        full_tags(fpu.tag, &fpu.st),
        low32(instruction >> 32),
        low32(instruction),
        low32(data >> 32),
        low32(data),
        u32::from(fpu.opcode),
    ];
    bytes.extend(control.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is meant")]
const fn low32(value: u64) -> u32 {
    value as u32
}

/// The tag word as FNSTENV stores it, of the abridged one: two bits for each register (Intel SDM vol. 1, 8.1.7).
fn full_tags(abridged: u8, st: &[(u64, u16); 8]) -> u32 {
    let tag = |n: usize| {
        let (significand, exponent) = st[n];
        match exponent & 0x7fff {
            _ if abridged >> n & 1 == 0 => 3,
            0 if significand == 0 => 1,
            0 | 0x7fff => 2,
            _ if significand >> 63 == 0 => 2,
            _ => 0,
        }
    };
    (0..8).map(|n| tag(n) << (2 * n)).sum()
}

/// The description of the registers in the order of [`packet`].
pub(super) fn description() -> String {
    let mut xml = String::from(
        "<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\"><target>\
         <architecture>i386:x86-64</architecture><osabi>GNU/Linux</osabi>\
         <feature name=\"org.gnu.gdb.i386.core\">",
    );
    let mut register = |name: &str, bits: u32, kind: &str| {
        // Writing to a string does not fail.
        let _ = write!(xml, "<reg name=\"{name}\" bitsize=\"{bits}\" type=\"{kind}\"/>");
    };
    for number in ORDER {
        let kind = if matches!(number, 4 | 5) { "data_ptr" } else { "int64" };
        register(Gpr::NAMES[number], 64, kind);
    }
    register("rip", 64, "code_ptr");
    for name in ["eflags", "cs", "ss", "ds", "es", "fs", "gs"] {
        register(name, 32, "int32");
    }
    (0..8).for_each(|n| register(&format!("st{n}"), 80, "i387_ext"));
    for name in ["fctrl", "fstat", "ftag", "fiseg", "fioff", "foseg", "fooff", "fop"] {
        register(name, 32, "int");
    }
    xml.push_str("</feature><feature name=\"org.gnu.gdb.i386.sse\">");
    xml.push_str(VECTOR_TYPE);
    let mut register = |name: &str, bits: u32, kind: &str| {
        let _ = write!(xml, "<reg name=\"{name}\" bitsize=\"{bits}\" type=\"{kind}\"/>");
    };
    (0..16).for_each(|n| register(&format!("xmm{n}"), 128, "vec128"));
    register("mxcsr", 32, "int");
    xml.push_str(
        "</feature><feature name=\"org.gnu.gdb.i386.linux\"><reg name=\"orig_rax\" bitsize=\"64\" type=\"int\"/>\
         </feature><feature name=\"org.gnu.gdb.i386.segments\"><reg name=\"fs_base\" bitsize=\"64\" type=\"int\"/>\
         <reg name=\"gs_base\" bitsize=\"64\" type=\"int\"/></feature><feature name=\"org.gnu.gdb.i386.avx\">",
    );
    let mut register = |name: &str| {
        let _ = write!(xml, "<reg name=\"{name}\" bitsize=\"128\" type=\"uint128\"/>");
    };
    (0..16).for_each(|n| register(&format!("ymm{n}h")));
    xml.push_str("</feature></target>");
    xml
}

/// What gdb shows an xmm register as.
const VECTOR_TYPE: &str = "<vector id=\"v4f\" type=\"ieee_single\" count=\"4\"/>\
    <vector id=\"v2d\" type=\"ieee_double\" count=\"2\"/><vector id=\"v16i8\" type=\"int8\" count=\"16\"/>\
    <vector id=\"v8i16\" type=\"int16\" count=\"8\"/><vector id=\"v4i32\" type=\"int32\" count=\"4\"/>\
    <vector id=\"v2i64\" type=\"int64\" count=\"2\"/><union id=\"vec128\"><field name=\"v4_float\" type=\"v4f\"/>\
    <field name=\"v2_double\" type=\"v2d\"/><field name=\"v16_int8\" type=\"v16i8\"/><field name=\"v8_int16\" type=\"v8i16\"/>\
    <field name=\"v4_int32\" type=\"v4i32\"/><field name=\"v2_int64\" type=\"v2i64\"/>\
    <field name=\"uint128\" type=\"uint128\"/></union>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packet_is_as_long_as_its_description_says() {
        let description = description();
        let bits = description.split("bitsize=\"").skip(1).map(|rest| {
            rest.split('"').next().and_then(|bits| bits.parse::<usize>().ok()).expect("a number") / 8
        });
        let sizes: Vec<_> = SIZES.iter().flat_map(|(count, len)| std::iter::repeat_n(*len, *count)).collect();
        assert_eq!(bits.collect::<Vec<_>>(), sizes);
        for fpu in [None, Some(Fpu::default())] {
            let packet = packet(Some(&Shown { regs: Regs::default(), selectors: SELECTORS, fpu }));
            assert_eq!(packet.len(), 2 * sizes.iter().sum::<usize>());
            assert_eq!(BASELINE, sizes[..sizes.len() - 16].iter().sum::<usize>());
        }
    }

    #[test]
    fn a_register_is_found_by_its_number() {
        let mut regs = Regs { rip: 0x1234, fs_base: 0x77, gs_base: 0x88, ..Regs::default() };
        regs.gpr[3] = 5;
        let shown = Shown { regs, selectors: [0x10, 0x18, 0, 0, 0, 0], fpu: None };
        assert_eq!((word(&regs, 1), word(&regs, RIP), word(&regs, 200)), (Some(5), Some(0x1234), None));
        let little = |word: u64| Some(crate::gdb::hex::encode(&word.to_le_bytes()));
        assert_eq!(one(Some(&shown), RIP.into()), little(0x1234));
        assert_eq!(one(Some(&shown), usize::from(RIP) + 2), Some("10000000".to_owned()));
        assert_eq!(one(Some(&shown), FS_BASE.into()), little(0x77));
        assert_eq!(one(Some(&shown), GS_BASE.into()), little(0x88));
        assert_eq!((one(Some(&shown), 24), one(None, 0)), (Some("x".repeat(20)), Some("x".repeat(16))));
        assert_eq!(one(Some(&shown), 76), None);
    }
}
