//! Every encoding of every map, and states to run them in.

use iced_x86::{Decoder, DecoderOptions, Instruction};
use x86::bus::PAGE_SIZE;
use x86::state::{Fpu, Regs, State};

/// Where the instructions are said to be.
pub(crate) const CODE: u64 = 0x40_0000;
/// Where three pages of memory are.
pub(crate) const DATA: u64 = 0x1000_0000;

/// Prefix bytes that select a form.
const PREFIXES: [&[u8]; 9] =
    [&[], &[0x66], &[0xf2], &[0xf3], &[0x48], &[0x66, 0x48], &[0xf2, 0x48], &[0xf3, 0x48], &[0xf0]];
/// Opcode maps: one byte, 0F, 0F 38, 0F 3A.
const MAPS: [&[u8]; 4] = [&[], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]];
/// Maps of VEX-encoded instructions: 0F, 0F 38 and 0F 3A.
const VEX_MAPS: [u8; 3] = [1, 2, 3];
/// The register of VEX.vvvv: rbx or xmm3, and none.
const VVVV: [u8; 2] = [0b1100, 0b1111];

/// VEX prefixes with one register: every map, W 0 and 1, L 0 and 1, pp 0 to 3.
fn vex_prefixes(vvvv: u8) -> impl Iterator<Item = Vec<u8>> {
    (0..16).flat_map(move |n| VEX_MAPS.map(|map| vec![0xc4, 0xe0 | map, (n & 8) << 4 | vvvv << 3 | n & 7]))
}

/// EVEX prefixes with one register and mask k1: every map, W 0 and 1, pp 0 to 3, every length, and with EVEX.b.
fn evex_prefixes(vvvv: u8) -> impl Iterator<Item = Vec<u8>> {
    const LENGTHS_AND_B: [u8; 4] = [0x00, 0x20, 0x40, 0x50];
    (0..8).flat_map(move |n| {
        let forms = VEX_MAPS.iter().flat_map(move |map| LENGTHS_AND_B.map(|form| (*map, form)));
        forms.map(move |(map, form)| {
            vec![0x62, 0xf0 | map, (n & 4) << 5 | vvvv << 3 | 4 | n & 3, form | 8 | 1]
        })
    })
}

/// Every valid instruction of every map, in a memory and a register form, with its bytes.
pub(crate) fn encodings() -> Vec<(Instruction, Vec<u8>)> {
    let legacy = PREFIXES.iter().flat_map(|p| MAPS.iter().map(move |m| [*p, *m].concat()));
    let vex = VVVV.into_iter().flat_map(vex_prefixes);
    let evex = VVVV.into_iter().flat_map(evex_prefixes);
    legacy.chain(vex).chain(evex).flat_map(|prefix| of_prefix(&prefix)).collect()
}

fn of_prefix(prefix: &[u8]) -> Vec<(Instruction, Vec<u8>)> {
    let mut found = Vec::new();
    for opcode in 0..=255 {
        // [rsi], [rax + rcx] and rsi itself, each with every reg field.
        for modrm in (0..8).flat_map(|reg| [reg << 3 | 6, reg << 3 | 4, 0xc0 | reg << 3 | 6]) {
            let mut bytes = prefix.to_vec();
            bytes.extend([opcode, modrm, 8, 0, 0, 0, 0, 0, 0, 0]);
            let i = Decoder::with_ip(64, &bytes, CODE, DecoderOptions::NONE).decode();
            if !i.is_invalid() {
                bytes.truncate(i.len());
                found.push((i, bytes));
            }
        }
    }
    found
}

/// Registers that point into memory, but for those of `small`.
pub(crate) fn state(small: &[usize]) -> State {
    let mut regs = Regs { rip: CODE, rflags: 0x202, fs_base: DATA, ..Regs::default() };
    for (n, r) in (0..).zip(&mut regs.gpr) {
        *r = DATA + PAGE_SIZE + 64 * n;
    }
    for &n in small {
        regs.gpr[n] = 3 + n as u64;
    }
    let mut fpu = Fpu { tag: 0xff, ..Fpu::default() };
    for (n, half) in (1..).zip(fpu.vector.as_flattened_mut()) {
        *half = 0x3ff0_0000_3f80_0000 + n;
    }
    fpu.opmask = [u64::MAX; 8];
    fpu.st = [(1 << 63, 0x3fff); 8];
    State { regs, fpu }
}
