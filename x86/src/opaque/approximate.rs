//! Approximations of reciprocals, as Intel's processors have them.
//!
//! The manuals give a bound of the error for RCPPS and RSQRTPS (1.5 * 2^-12), and a reference for those with 14 bits. What is
//! here was found by trying all significands on a processor (Intel family 6, model 207) and equals it in every bit. The
//! short ones are the rounded function of the middle of an interval. The long ones are lines, whose coefficients are among
//! the few that give all the processor's results. No exception is ever raised.

use super::Format;
use super::real::{Real, high_half};
use super::sse::{Mode, Operand, Value, finish};

/// A function, and how many bits of the result can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Approximation {
    /// RCPPS: 1 / b, 12 bits. Denormals count as zeros, and so do such results.
    Reciprocal,
    /// RSQRTPS: 1 / sqrt(b), 12 bits. Denormals count as zeros.
    ReciprocalRoot,
    /// VRCP14PS: 1 / b, 14 bits. DAZ and FTZ are honoured.
    Reciprocal14,
    /// VRSQRT14PS: 1 / sqrt(b), 14 bits. DAZ is honoured.
    ReciprocalRoot14,
}

impl Approximation {
    fn is_root(self) -> bool {
        matches!(self, Approximation::ReciprocalRoot | Approximation::ReciprocalRoot14)
    }

    fn is_short(self) -> bool {
        matches!(self, Approximation::Reciprocal | Approximation::ReciprocalRoot)
    }
}

/// The function of `b`, which honours DAZ already.
pub(super) fn evaluate(function: Approximation, format: Format, b: &Operand, mode: Mode) -> [u64; 3] {
    let infinity = format.signed_infinity(b.negative);
    let value = match b.value {
        Value::QuietNan | Value::SignalingNan => b.quieted(format),
        Value::Zero => infinity,
        Value::Finite(_) if function.is_short() && b.denormal => infinity,
        _ if function.is_root() && b.negative => format.default_nan(),
        Value::Infinity => format.signed_zero(b.negative),
        Value::Finite(x) => of_number(function, format, &x, mode),
    };
    [value, 0, 0]
}

fn of_number(function: Approximation, format: Format, x: &Real, mode: Mode) -> u64 {
    const DEFAULT: Mode = Mode(0x1f80);
    let r = match function {
        Approximation::Reciprocal => reciprocal(x),
        Approximation::ReciprocalRoot => reciprocal_root(x),
        Approximation::Reciprocal14 => reciprocal14(x),
        Approximation::ReciprocalRoot14 => reciprocal_root14(x),
    };
    if r.exponent < format.parameters().min_exponent && (function.is_short() || mode.flush_to_zero()) {
        return format.signed_zero(x.negative);
    }
    finish(format, DEFAULT, &r).0
}

/// `digits`, the last of which counts 2^(exponent - bits), with the sign of `x`.
fn real(x: &Real, digits: u64, bits: u32, exponent: i32) -> Real {
    let significand = u128::from(digits) << (127 - bits);
    let lead = significand.leading_zeros();
    Real { negative: x.negative, exponent: exponent - lead.cast_signed(), significand: significand << lead }
}

/// The first `bits` bits of the fraction.
fn fraction(x: &Real, bits: u32) -> u64 {
    high_half(x.significand) << 1 >> (64 - bits)
}

/// 13 bits of the reciprocal of the middle of the interval that 11 bits of the fraction name.
fn reciprocal(x: &Real) -> Real {
    let middle = 2 * fraction(x, 11) + 4097;
    real(x, ((1 << 26) / middle).div_ceil(2), 13, -x.exponent)
}

/// 13 bits of the reciprocal root of the middle of the interval that 10 bits of the fraction and the parity of the
/// exponent name.
fn reciprocal_root(x: &Real) -> Real {
    let parity = x.exponent & 1;
    let middle = (2 * fraction(x, 10) + 2049) << parity;
    real(x, ((1_u64 << 39) / middle).isqrt().div_ceil(2), 13, -(x.exponent - parity) / 2)
}

fn reciprocal14(x: &Real) -> Real {
    if x.significand << 1 == 0 {
        return Real { exponent: -x.exponent, ..*x };
    }
    real(x, on_line(&RECIPROCAL, fraction(x, 16)), 17, -x.exponent)
}

fn reciprocal_root14(x: &Real) -> Real {
    let parity = x.exponent & 1;
    let half = -(x.exponent - parity) / 2;
    if x.significand << 1 == 0 && parity == 0 {
        return Real { exponent: half, ..*x };
    }
    let lines = if parity == 0 { &ROOT_EVEN } else { &ROOT_ODD };
    real(x, on_line(lines, fraction(x, 15)), 17, half)
}

/// A line: its value at the start of an interval, and its descent from one argument to the next, in units of 2^-26.
type Line = (u64, u64);

/// 17 bits of a number between 1/2 and 1, by the line that the bits of `argument` above its low ten name.
fn on_line(lines: &[Line], argument: u64) -> u64 {
    let (start, descent) = lines[(argument >> 10) as usize % lines.len()];
    1 << 16 | (start - descent * (argument & 0x3ff)) >> 9
}

/// 1 / x - 1/2 of x from 1 to 2.
const RECIPROCAL: [Line; 64] = [
    (0x1fff900, 1009),
    (0x1f03600, 977),
    (0x1e0f200, 949),
    (0x1d22000, 921),
    (0x1c3bb00, 893),
    (0x1b5c700, 869),
    (0x1a83300, 843),
    (0x19b0600, 821),
    (0x18e3200, 797),
    (0x181bc00, 777),
    (0x1759800, 755),
    (0x169ca00, 735),
    (0x15e4c00, 717),
    (0x1531b00, 699),
    (0x1483100, 681),
    (0x13d8c00, 663),
    (0x1332f00, 647),
    (0x1291100, 631),
    (0x11f3600, 617),
    (0x1159300, 601),
    (0x10c2d00, 587),
    (0x102ff00, 573),
    (0xfa0a00, 561),
    (0xf14500, 547),
    (0xe8b600, 535),
    (0xe05800, 523),
    (0xd82d00, 513),
    (0xd02a00, 501),
    (0xc85700, 491),
    (0xc0ad00, 479),
    (0xb92e00, 469),
    (0xb1d700, 459),
    (0xaaaa00, 451),
    (0xa39f00, 441),
    (0x9cbc00, 433),
    (0x95f800, 423),
    (0x8f5a00, 415),
    (0x88dd00, 407),
    (0x828000, 399),
    (0x7c4300, 391),
    (0x762800, 385),
    (0x702500, 377),
    (0x6a4100, 369),
    (0x647b00, 363),
    (0x5ed100, 357),
    (0x593d00, 349),
    (0x53c600, 343),
    (0x4e6800, 337),
    (0x492300, 331),
    (0x43f500, 325),
    (0x3ede00, 319),
    (0x39e200, 315),
    (0x34f600, 309),
    (0x302100, 303),
    (0x2b6400, 299),
    (0x26b700, 293),
    (0x222200, 289),
    (0x1d9f00, 285),
    (0x192d00, 279),
    (0x14d300, 275),
    (0x108900, 271),
    (0xc4f00, 267),
    (0x82500, 263),
    (0x40b00, 259),
];

/// 1 / sqrt(x) - 1/2 of x from 1 to 2.
const ROOT_EVEN: [Line; 32] = [
    (0x1fff480, 1001),
    (0x1f05080, 955),
    (0x1e16280, 915),
    (0x1d31900, 877),
    (0x1c56700, 841),
    (0x1b84380, 807),
    (0x1aba680, 775),
    (0x19f8880, 747),
    (0x193dd00, 719),
    (0x188a080, 693),
    (0x17dcb80, 669),
    (0x1735a00, 647),
    (0x1694100, 625),
    (0x15f7d00, 603),
    (0x1560f80, 585),
    (0x14ced80, 567),
    (0x1441380, 549),
    (0x13b8180, 533),
    (0x1332f80, 517),
    (0x12b1c00, 501),
    (0x1234680, 487),
    (0x11ba980, 473),
    (0x1144400, 461),
    (0x10d1180, 449),
    (0x1060f80, 437),
    (0xff3d80, 425),
    (0xf89b00, 415),
    (0xf21f00, 403),
    (0xebcf80, 393),
    (0xe5ab00, 385),
    (0xdfa780, 375),
    (0xd9cd00, 367),
];

/// The same of x from 2 to 4.
const ROOT_ODD: [Line; 32] = [
    (0xd40a80, 707),
    (0xc8fc80, 675),
    (0xbe6e00, 647),
    (0xb45200, 619),
    (0xaaa600, 595),
    (0xa15b80, 571),
    (0x987080, 549),
    (0x8fdc80, 527),
    (0x879e80, 509),
    (0x7fad80, 491),
    (0x780280, 473),
    (0x709e80, 457),
    (0x697a80, 441),
    (0x629500, 427),
    (0x5be880, 413),
    (0x557580, 401),
    (0x4f3380, 389),
    (0x492180, 377),
    (0x433f80, 365),
    (0x3d8c80, 355),
    (0x380180, 345),
    (0x329f00, 335),
    (0x2d6200, 325),
    (0x284c00, 317),
    (0x235900, 309),
    (0x1e8680, 301),
    (0x19d380, 293),
    (0x153f00, 285),
    (0x10ca80, 279),
    (0xc6e80, 271),
    (0x83000, 265),
    (0x40b00, 259),
];
