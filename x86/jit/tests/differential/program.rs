//! A random guest: a loop of instructions of all encodings, with branches forward in it and a call.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use std::fmt;
use x86::bus::PAGE_SIZE;

use super::Source;

/// Where the code is, two pages.
pub(crate) const CODE: u64 = 0x40_0000;
/// Where the data is.
pub(crate) const DATA: u64 = 0x50_0000;
/// How much.
pub(crate) const DATA_PAGES: u64 = 3;
/// The middle of two pages of stack.
pub(crate) const STACK: u64 = 0x60_1000;

/// What may be in a program: instructions that fall through.
pub(crate) struct Pool {
    /// With a description in the integer table, so that their code is compiled.
    pub(crate) integer: Vec<Vec<u8>>,
    /// Vector instructions that are compiled.
    pub(crate) vector: Vec<Vector>,
    /// The others, but for strings ([`STRINGS`]).
    pub(crate) other: Vec<Vec<u8>>,
}

/// A vector instruction.
pub(crate) struct Vector {
    bytes: Vec<u8>,
    /// Its last byte is an immediate.
    has_immediate: bool,
    /// It has registers alone.
    has_registers: bool,
}

impl Vector {
    /// `i`, if it is one that is compiled.
    pub(crate) fn of(i: &Instruction, bytes: &[u8]) -> Option<Vector> {
        x86::table::lookup_compiled::<x86::cpu::Cpu<x86::flat::Flat>>(i)?;
        let has = |kind| (0..i.op_count()).any(|n| i.op_kind(n) == kind);
        Some(Vector {
            bytes: bytes.to_vec(),
            has_immediate: has(OpKind::Immediate8),
            has_registers: !has(OpKind::Memory),
        })
    }

    /// With some registers, if it has registers alone, and some immediate.
    pub(crate) fn encoded(&self, source: &mut Source<'_>) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let last = bytes.len() - 1;
        if self.has_immediate {
            bytes[last] = source.byte(255);
        }
        let modrm = if self.has_immediate { last - 1 } else { last };
        if self.has_registers {
            bytes[modrm] = 0xc0 | source.byte(64);
        }
        bytes
    }
}

impl Pool {
    pub(crate) fn new(all: impl IntoIterator<Item = (Instruction, Vec<u8>)>) -> Pool {
        let (mut integer, mut vector, mut other) = (Vec::new(), Vec::new(), Vec::new());
        for (i, bytes) in all {
            if i.flow_control() == FlowControl::Next && !i.is_string_instruction() {
                if let Some(compiled) = Vector::of(&i, &bytes) {
                    vector.push(compiled);
                    continue;
                }
                let is_integer = x86::table::lookup_integer::<x86::cpu::Cpu<x86::flat::Flat>>(&i).is_some();
                if is_integer { &mut integer } else { &mut other }.push(bytes);
            }
        }
        Pool { integer, vector, other }
    }
}

pub(crate) struct Program {
    /// The pages of code.
    pub(crate) code: Vec<u8>,
    /// Where it begins.
    pub(crate) start: u64,
    /// Where its instructions begin.
    pub(crate) starts: Vec<u64>,
}

/// An address in the data, sometimes near the end of a page, of all pages, or in the code.
pub(crate) fn pointer(source: &mut Source<'_>) -> u64 {
    match source.below(16) {
        0 => DATA + PAGE_SIZE * (1 + source.below(DATA_PAGES)) - source.below(16),
        1 => CODE + source.below(PAGE_SIZE),
        2 => DATA + PAGE_SIZE * DATA_PAGES + source.below(64),
        _ => DATA + 8 * source.below(DATA_PAGES * PAGE_SIZE / 8 - 16),
    }
}

/// 64 bits as programs have them in vector registers: one double, two singles, or small integers; seldom what is no number.
pub(crate) fn lanes(source: &mut Source<'_>) -> u64 {
    const DOUBLES: [f64; 8] = [0.0, -0.0, 1.0, 0.1, -3.5, 1e300, 5e-324, 4e18];
    const SINGLES: [f32; 8] = [0.0, -0.0, 1.0, 0.1, -3.5, 1e38, 1e-45, 3e9];
    let singles = |a: f32, b: f32| u64::from(a.to_bits()) | u64::from(b.to_bits()) << 32;
    match source.below(16) {
        0..6 => source.of(&DOUBLES).to_bits(),
        6..12 => singles(*source.of(&SINGLES), *source.of(&SINGLES)),
        12 => source.of(&[f64::NAN, f64::INFINITY, f64::from_bits(0x7ff0_0000_0000_0001)]).to_bits(),
        13 => source.below(u64::MAX),
        _ => source.below(3) << 32 | source.below(300),
    }
}

/// String instructions: with REP, with REPNE, without; of bytes and of eight bytes.
const STRINGS: [&[u8]; 12] = [
    &[0xf3, 0xa4],
    &[0xf3, 0x48, 0xa5],
    &[0xf3, 0xaa],
    &[0xf3, 0x48, 0xab],
    &[0xf3, 0xa6],
    &[0xf2, 0x48, 0xa7],
    &[0xf2, 0xae],
    &[0xf3, 0x48, 0xaf],
    &[0x48, 0xab],
    &[0xa4],
    &[0xa7],
    &[0xac],
];

impl Program {
    pub(crate) fn new(pool: &Pool, source: &mut Source<'_>) -> Program {
        let mut code = Vec::new();
        // Pieces of code, and the forward branches among them by where their displacement ends.
        let (mut starts, mut branches) = (Vec::new(), Vec::new());
        let count = 5 + source.below(40);
        for _ in 0..count {
            starts.push(code.len());
            match source.below(16) {
                // Jcc.
                0 | 1 => {
                    code.extend([0x0f, 0x80 | source.byte(16), 0, 0, 0, 0]);
                    branches.push(code.len());
                }
                // JMP, CALL.
                2 => {
                    code.extend([0xe8 | source.byte(2), 0, 0, 0, 0]);
                    branches.push(code.len());
                }
                // mov reg, pointer: not to rsp.
                3 | 4 => {
                    code.extend([0x48, 0xb8 | source.of(&[0, 1, 2, 3, 5, 6, 7])]);
                    code.extend(pointer(source).to_le_bytes());
                }
                // mov reg, a small number, for indices and amounts.
                5 => {
                    code.push(0xb8 | source.byte(4));
                    code.extend([source.byte(70), 0, 0, 0]);
                }
                // push rbx; pop rdx
                6 => code.extend([0x53, 0x5a]),
                // ret, from a call if there was one.
                7 if source.below(4) == 0 => code.push(0xc3),
                8..11 if !pool.vector.is_empty() => {
                    let vector = source.below(pool.vector.len() as u64);
                    code.extend(pool.vector[usize::try_from(vector).unwrap()].encoded(source));
                }
                11 if !pool.other.is_empty() => code.extend(source.of(&pool.other)),
                12 => {
                    // mov ecx, a small number, seldom none: then it repeats until it faults, or not at all.
                    if source.below(8) != 0 {
                        code.extend([0xb9, source.byte(70), 0, 0, 0]);
                    }
                    code.extend(*source.of(&STRINGS));
                }
                _ => code.extend(source.of(&pool.integer)),
            }
        }
        starts.push(code.len());
        // dec r15; jne start; syscall
        code.extend([0x49, 0xff, 0xcf]);
        let back = i32::try_from(code.len() + 6).unwrap();
        code.extend([0x0f, 0x85]);
        code.extend((-back).to_le_bytes());
        code.extend([0x0f, 0x05]);
        for behind in branches {
            let later: Vec<usize> = starts.iter().copied().filter(|start| *start >= behind).collect();
            let to = source.of(&later);
            code[behind - 4..behind].copy_from_slice(&u32::try_from(to - behind).unwrap().to_le_bytes());
        }
        // Half of all programs have the end of a page somewhere in them.
        let before =
            if source.below(2) == 0 { 0 } else { PAGE_SIZE - 1 - source.below(code.len() as u64 - 1) };
        let start = CODE + before;
        let mut pages = vec![0xcc; usize::try_from(before).unwrap()];
        pages.extend(&code);
        pages.resize(2 << 12, 0xcc);
        Program { starts: starts.into_iter().map(|at| start + at as u64).collect(), code: pages, start }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = &self.code[usize::try_from(self.start - CODE).unwrap()..];
        let mut decoder = Decoder::with_ip(64, code, self.start, DecoderOptions::NONE);
        while decoder.can_decode() {
            let i = decoder.decode();
            writeln!(f, "{:x} {i}", i.ip())?;
            if i.flow_control() == FlowControl::Call && i.code() == iced_x86::Code::Syscall {
                break;
            }
        }
        Ok(())
    }
}
