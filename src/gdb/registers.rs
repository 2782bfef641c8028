//! The registers of x86-64 as gdb's remote protocol has them: the order of the `g` packet, and the description of it that gdb reads.
//!
//! Source: gdb's features/i386/64bit-{core,sse,linux,segments,avx}.xml. Beside gdbstub_arch's, it has the upper halves of ymm
//! registers and the bases of FS and GS.

use gdbstub::arch::{Arch, Registers};
use std::fmt::Write;
use x86::op::Gpr;
use x86::state::State;

/// The order of general registers in the packet, by the number that instructions encode.
const ORDER: [usize; 16] = [0, 3, 1, 2, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
/// The selectors of a 64-bit program under Linux: CS, SS, and four that are zero.
const SELECTORS: [u32; 6] = [0x33, 0x2b, 0, 0, 0, 0];

/// x86-64 with AVX.
pub(super) enum X86 {}

impl Arch for X86 {
    type Usize = u64;
    type Registers = Shown;
    type BreakpointKind = usize;
    type RegId = ();
}

/// The registers of a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Shown(pub(super) State);

impl Registers for Shown {
    type ProgramCounter = u64;

    fn pc(&self) -> u64 {
        self.0.regs.rip
    }

    fn gdb_serialize(&self, mut write_byte: impl FnMut(Option<u8>)) {
        let mut write = |bytes: &[u8]| bytes.iter().for_each(|byte| write_byte(Some(*byte)));
        let State { regs, fpu } = &self.0;
        ORDER.iter().for_each(|number| write(&regs.gpr[*number].to_le_bytes()));
        write(&regs.rip.to_le_bytes());
        write(&low32(regs.rflags).to_le_bytes());
        SELECTORS.iter().for_each(|selector| write(&selector.to_le_bytes()));
        let top = usize::from(fpu.status >> 11 & 7);
        for n in 0..8 {
            let (significand, exponent) = fpu.st[(top + n) % 8];
            write(&significand.to_le_bytes());
            write(&exponent.to_le_bytes());
        }
        let tags = full_tags(fpu.tag, &fpu.st);
        let [instruction, data] = [fpu.instruction, fpu.data];
        let words = [
            u32::from(fpu.control),
            u32::from(fpu.status),
            tags,
            low32(instruction >> 32),
            low32(instruction),
            low32(data >> 32),
            low32(data),
            u32::from(fpu.opcode),
        ];
        words.iter().for_each(|word| write(&word.to_le_bytes()));
        for n in 0..16 {
            fpu.xmm(n).iter().for_each(|half| write(&half.to_le_bytes()));
        }
        write(&fpu.mxcsr.to_le_bytes());
        // orig_rax: no system call is being restarted.
        write(&u64::MAX.to_le_bytes());
        write(&regs.fs_base.to_le_bytes());
        write(&regs.gs_base.to_le_bytes());
        for n in 0..16 {
            fpu.vector[n][2..4].iter().for_each(|part| write(&part.to_le_bytes()));
        }
    }

    /// A recording's registers are not written.
    fn gdb_deserialize(&mut self, _: &[u8]) -> Result<(), ()> {
        Err(())
    }
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

/// The description of the registers in the order of [`Shown`].
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
        let mut bytes = 0;
        Shown::default().gdb_serialize(|_| bytes += 1);
        let sizes = description();
        let bits = sizes.split("bitsize=\"").skip(1).map(|rest| {
            rest.split('"').next().and_then(|bits| bits.parse::<usize>().ok()).expect("a number")
        });
        assert_eq!(bits.sum::<usize>(), bytes * 8);
    }
}
