//! Operand values that are likely to matter: the edges of integers and of floating point, among random ones.

use crate::case::Image;
use crate::dont_care::HARMLESS_FLAGS;
use crate::host;
use crate::layout::{CODE, DATA, DATA_SIZE, PAGE, WRITABLE};
use crate::random::Random;
use x86::state::{Fpu, MXCSR_RESET, RFLAGS_DF, RFLAGS_FIXED, RFLAGS_IF};
use x86::xsave::component;

const SINGLES: [u32; 20] = [
    0x0000_0000, // 0
    0x0000_0001, // smallest denormal
    0x007f_ffff, // largest denormal
    0x0080_0000, // smallest normal
    0x7f7f_ffff, // largest
    0x7f80_0000, // infinity
    0x7f80_0001, // signalling NaN
    0x7fa5_5a5a, // signalling NaN with a payload
    0x7fc0_0000, // quiet NaN
    0x7fd2_3456, // quiet NaN with a payload
    0x3f80_0000, // 1
    0x3f80_0001, // 1 + epsilon
    0x3f7f_ffff, // 1 - epsilon
    0x3f00_0000, // 0.5
    0x4f00_0000, // 2^31
    0x4eff_ffff, // just below 2^31
    0x5f00_0000, // 2^63
    0x5eff_ffff, // just below 2^63
    0x4b00_0001, // 2^23 + 1
    0x4048_f5c3, // 3.14
];

const DOUBLES: [u64; 22] = [
    0x0000_0000_0000_0000, // 0
    0x0000_0000_0000_0001, // smallest denormal
    0x000f_ffff_ffff_ffff, // largest denormal
    0x0010_0000_0000_0000, // smallest normal
    0x7fef_ffff_ffff_ffff, // largest
    0x7ff0_0000_0000_0000, // infinity
    0x7ff0_0000_0000_0001, // signalling NaN
    0x7ff4_5a5a_5a5a_5a5a, // signalling NaN with a payload
    0x7ff8_0000_0000_0000, // quiet NaN
    0x7ffa_1234_5678_9abc, // quiet NaN with a payload
    0x3ff0_0000_0000_0000, // 1
    0x3ff0_0000_0000_0001, // 1 + epsilon
    0x3fef_ffff_ffff_ffff, // 1 - epsilon
    0x3fe0_0000_0000_0000, // 0.5
    0x41e0_0000_0000_0000, // 2^31
    0x41df_ffff_ffc0_0000, // 2^31 - 1
    0x43e0_0000_0000_0000, // 2^63
    0x43df_ffff_ffff_ffff, // just below 2^63
    0x4330_0000_0000_0001, // 2^52 + 1
    0x380f_ffff_ffff_ffff, // rounds to the smallest normal single
    0x36a0_0000_0000_0000, // smallest denormal single
    0x47ef_ffff_f000_0000, // rounds past the largest single
];

/// An integer operand.
pub(crate) fn integer(random: &mut Random) -> u64 {
    let bits = random.next();
    let width = [8, 16, 32, 64][random.index(4)];
    match random.below(8) {
        0 => [0, 1, u64::MAX, 2][random.index(4)],
        1 => (1 << (width - 1)) - bits % 3 + 1,
        2 => (1_u64 << random.below(64)).wrapping_add(bits % 3).wrapping_sub(1),
        3 => bits % 67,
        4 => (bits % 67).wrapping_neg(),
        5 => bits >> random.below(64),
        _ => bits,
    }
}

/// A single-precision operand.
pub(crate) fn single(random: &mut Random) -> u32 {
    let bits = random.next();
    let (low, high) = (low_half(bits), low_half(bits >> 32));
    match random.below(8) {
        0..=3 => SINGLES[random.index(SINGLES.len())] | high & 1 << 31,
        4 => (0x3f80_0000 + ((high % 25) << 23)) | low & 0x807f_ffff,
        5 => low & 0x807f_ffff,
        6 => 0x4b00_0000 | low & 0x80ff_ffff,
        _ => low,
    }
}

/// A double-precision operand.
pub(crate) fn double(random: &mut Random) -> u64 {
    let bits = random.next();
    let fraction = bits & 0x800f_ffff_ffff_ffff;
    match random.below(8) {
        0..=3 => DOUBLES[random.index(DOUBLES.len())] | bits & 1 << 63,
        4 => (0x3ff + random.below(66)) << 52 | fraction,
        5 => fraction,
        6 => (0x369 + random.below(300)) << 52 | fraction,
        _ => bits,
    }
}

/// Part of a vector register: integers, a double or two singles.
pub(crate) fn half(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => integer(random),
        1 => double(random),
        2 => u64::from(single(random)) | u64::from(single(random)) << 32,
        _ => random.next(),
    }
}

/// An x87 register: significand, and sign with exponent. Mostly canonical, at times one of the encodings that
/// no x87 instruction makes.
pub(crate) fn extended(random: &mut Random) -> (u64, u16) {
    const INTEGER_BIT: u64 = 1 << 63;
    let bits = random.next();
    let sign = if random.percent(50) { 0x8000 } else { 0 };
    let near_one = 0x3fff - 8 + u16::try_from(random.below(80)).unwrap_or(0);
    let (significand, exponent) = match random.below(16) {
        0 => (0, 0),
        1 => (INTEGER_BIT, 0x3fff),
        2 => (INTEGER_BIT, 0x7fff),
        3 => (INTEGER_BIT | 1 << 62 | bits >> 2, 0x7fff),
        4 => (INTEGER_BIT | bits >> 2, 0x7fff),
        5 => (bits & !INTEGER_BIT, 0),
        6 => (u64::MAX, 0x7ffe),
        7 => (INTEGER_BIT, 1),
        8 => (bits, u16::try_from(random.below(0x8000)).unwrap_or(0)),
        9 | 10 => (INTEGER_BIT | bits << 40, near_one),
        11 => (INTEGER_BIT | bits << 11, near_one),
        _ => (INTEGER_BIT | bits, near_one),
    };
    (significand, sign | exponent)
}

/// Arithmetic flags at random, and at times DF, NT and ID.
pub(crate) fn rflags(random: &mut Random) -> u64 {
    let direction = if random.percent(10) { RFLAGS_DF } else { 0 };
    let others = if random.percent(10) { random.next() & HARMLESS_FLAGS } else { 0 };
    RFLAGS_FIXED | RFLAGS_IF | direction | others | random.next() & x86::flags::ARITHMETIC
}

/// Makes most lanes of `width` bits (32 or 64) small signed numbers.
pub(crate) fn small_indices(random: &mut Random, width: u32, register: &mut [u64; 8]) {
    if host::components() & component::AVX == 0 {
        return;
    }
    let length = if host::components() == component::ALL { 8 } else { 4 };
    for part in &mut register[..length] {
        let small = |random: &mut Random| match random.below(40) {
            0 => far_index(random),
            _ => random.below(512).wrapping_sub(256),
        };
        *part = match width {
            32 => small(random) & 0xffff_ffff | small(random) << 32,
            _ => small(random),
        };
    }
}

/// An index that may lead out of the data pages.
fn far_index(random: &mut Random) -> u64 {
    random.below(0x8000).wrapping_sub(0x4000)
}

/// A mask: of few lanes, of nearly all, of the lowest, or any.
fn opmask(random: &mut Random) -> u64 {
    match random.below(5) {
        0 => 1 << random.below(64),
        1 => !(1 << random.below(16)),
        2 => [0, 0xff, 0xffff, 0xffff_ffff, u64::MAX][random.index(5)],
        _ => random.next(),
    }
}

/// How many vector registers this host has, and how many parts of 64 bits each has.
pub(crate) fn vector_registers() -> (usize, usize) {
    match host::components() {
        component::ALL => (32, 8),
        components if components & component::AVX != 0 => (16, 4),
        _ => (16, 2),
    }
}

/// x87 and vector state, as far as this host has it. One in eight has exceptions unmasked.
pub(crate) fn fpu(random: &mut Random) -> Fpu {
    let mut fpu = Fpu::default();
    let components = host::components();
    let (registers, parts) = vector_registers();
    for register in &mut fpu.vector[..registers] {
        register[..parts].fill_with(|| half(random));
    }
    if components & component::OPMASK != 0 {
        fpu.opmask.fill_with(|| opmask(random));
    }
    let bits = low_half(random.next());
    const STICKY: u32 = 0x3f;
    const ROUNDING_AND_MODES: u32 = 0xe040;
    fpu.mxcsr = if random.percent(50) { MXCSR_RESET } else { MXCSR_RESET | bits & ROUNDING_AND_MODES };
    if random.percent(50) {
        fpu.mxcsr |= bits >> 16 & STICKY;
    }
    if random.percent(8) {
        fpu.mxcsr &= !(bits >> 8 & STICKY << 7);
    }
    x87(random, &mut fpu);
    fpu
}

fn x87(random: &mut Random, fpu: &mut Fpu) {
    let bits = random.next().to_le_bytes().map(u16::from);
    for register in &mut fpu.st {
        *register = extended(random);
    }
    const CONDITION: u16 = 0x4700;
    const STICKY: u16 = 0x3f;
    let top = bits[0] & 7;
    fpu.status = top << 11 | bits[1] << 8 & CONDITION;
    if random.percent(25) {
        fpu.status |= bits[2] & STICKY;
    }
    if random.percent(50) {
        let precision = [0, 2, 3, 3][random.index(4)];
        fpu.control = 0x7f | precision << 8 | (bits[3] & 3) << 10;
    }
    if random.percent(6) {
        fpu.control &= !(bits[4] & STICKY);
    }
    if fpu.status & !fpu.control & STICKY != 0 {
        const SUMMARY: u16 = 0x8080;
        fpu.status |= SUMMARY;
    }
    fpu.tag = match random.below(4) {
        0 => 0,
        1 => 0xff,
        2 => random.next().to_le_bytes()[0],
        _ => {
            let depth = random.below(9);
            (0..depth).fold(0, |tag, n| tag | 1 << ((u64::from(top) + n) & 7))
        }
    };
}

/// Offset in the data pages of the first slot that holds an address in the code page, and their distance.
pub(crate) const CODE_SLOTS: (u64, u64) = (0, 0x100);
/// Offset in the data pages of the first slot that holds harmless RFLAGS, and their distance.
pub(crate) const FLAG_SLOTS: (u64, u64) = (0x40, 0x100);
/// Addresses in the code page from here on hold INT3, whatever the case.
pub(crate) const INT3_FROM: u64 = CODE + 0x800;
/// How many there are before those that a program at the end of the page may replace.
pub(crate) const INT3_LEN: u64 = 0x700;

/// Fills the data pages: mostly operands, some addresses of data and code, some RFLAGS.
pub(crate) fn image(random: &mut Random) -> Image {
    let mut image = [0; DATA_SIZE];
    for offset in (0..DATA_SIZE).step_by(16) {
        let slot = &mut image[offset..offset + 16];
        if random.percent(15) {
            let (significand, sign_exponent) = extended(random);
            slot[..8].copy_from_slice(&significand.to_le_bytes());
            slot[8..10].copy_from_slice(&sign_exponent.to_le_bytes());
        } else {
            let low = if random.percent(10) { DATA + random.below(WRITABLE as u64) } else { half(random) };
            slot[..8].copy_from_slice(&low.to_le_bytes());
            slot[8..].copy_from_slice(&half(random).to_le_bytes());
        }
    }
    let mut put = |slots: (u64, u64), value: &mut dyn FnMut() -> u64| {
        for at in (slots.0..DATA_SIZE as u64).step_by(usize::try_from(slots.1).unwrap_or(PAGE)) {
            let at = usize::try_from(at).unwrap_or(0);
            image[at..at + 8].copy_from_slice(&value().to_le_bytes());
        }
    };
    put(CODE_SLOTS, &mut || INT3_FROM + random.below(INT3_LEN));
    put(FLAG_SLOTS, &mut || rflags(random));
    image
}

/// The low 32 bits.
fn low_half(bits: u64) -> u32 {
    let [a, b, c, d, ..] = bits.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
