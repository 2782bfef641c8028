//! What there is besides arithmetic, nearly all of it in AVX-512: numbers taken apart, scaled, chosen, approximated (Intel
//! SDM vol. 2, at the instructions). Every function returns (value, raised exceptions, 0).

use super::approximate::{self, Approximation};
use super::exception::{ALL, DENORMAL, INVALID, PRECISION, ZERO_DIVIDE};
use super::real::{Real, Rounding};
use super::sse::{Mode, Operand, Value, finish, pack, propagate_nan, raised_if, signed_order, top_bits};
use super::{Format, convert};

/// An operation on a and b, some with an immediate. Those on one number take b.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Auxiliary {
    /// VRNDSCALE: b rounded to a multiple of 2^-M. RC is that of the mode; the immediate is M and whether PRECISION is
    /// suppressed.
    RoundScale,
    /// VREDUCE: what that takes away from b.
    Reduce,
    /// VGETEXP: the exponent of b as a number.
    Exponent,
    /// VGETMANT: the significand of b in an interval, with a sign, which the immediate chooses.
    Significand,
    /// VSCALEF: a * 2^floor(b).
    Scale,
    /// VRANGE: the smaller or larger of a and b, or of their magnitudes, with a sign, which the immediate chooses.
    Range,
    /// An approximation of a function of b.
    Approximate(Approximation),
}

impl Auxiliary {
    /// Whether it looks at b alone.
    #[must_use]
    pub const fn is_unary(self) -> bool {
        !matches!(self, Auxiliary::Scale | Auxiliary::Range)
    }
}

/// See [`super::Opaque::Auxiliary`].
pub(super) fn evaluate(op: Auxiliary, format: Format, imm: u8, a: u64, b: u64, mode: u64) -> [u64; 3] {
    let mode = Mode(mode);
    let (a, b) = (Operand::read(format, a, mode), Operand::read(format, b, mode));
    match op {
        Auxiliary::RoundScale => round_scale(format, &b, imm, mode),
        Auxiliary::Reduce => reduce(format, &b, imm, mode),
        Auxiliary::Exponent => exponent(format, &b, mode),
        Auxiliary::Significand => significand(format, &b, imm),
        Auxiliary::Scale => scale(format, &a, &b, mode),
        Auxiliary::Range => range(format, &a, &b, imm),
        Auxiliary::Approximate(approximation) => approximate::evaluate(approximation, format, &b, mode),
    }
}

/// `x` rounded to a multiple of 2^-M (`None` is zero), and whether that changed it. Numbers beyond 2^63 are such multiples.
fn to_multiple(x: Real, imm: u8, rounding: Rounding) -> (Option<Real>, bool) {
    let fraction_bits = i32::from(imm >> 4);
    let scaled = Real { exponent: x.exponent + fraction_bits, ..x };
    let Some(rounded) = scaled.to_integer(rounding) else { return (Some(x), false) };
    let integer = Real::from_integer(x.negative, rounded.significand);
    (integer.map(|r| Real { exponent: r.exponent - fraction_bits, ..r }), rounded.inexact)
}

/// PRECISION, unless the immediate suppresses it.
fn reported(imm: u8, inexact: bool) -> u64 {
    raised_if(inexact && imm & 8 == 0, PRECISION)
}

fn round_scale(format: Format, b: &Operand, imm: u8, mode: Mode) -> [u64; 3] {
    if let Some(nan) = propagate_nan(format, &[b]) {
        return nan;
    }
    let Value::Finite(x) = b.value else { return [b.bits, 0, 0] };
    let (multiple, inexact) = to_multiple(x, imm, mode.rounding());
    let value = match multiple {
        Some(r) if inexact => pack(format, r.negative, r.exponent, top_bits(&r)),
        Some(_) => b.bits,
        None => format.signed_zero(b.negative),
    };
    [value, reported(imm, inexact), 0]
}

/// Underflow counts as masked, and is not raised.
fn reduce(format: Format, b: &Operand, imm: u8, mode: Mode) -> [u64; 3] {
    if let Some(nan) = propagate_nan(format, &[b]) {
        return nan;
    }
    let zero = format.signed_zero(mode.rounding() == Rounding::Down);
    let x = match b.value {
        Value::Finite(x) => x,
        Value::Zero => return [zero, 0, 0],
        _ => return [format.signed_zero(false), 0, 0],
    };
    let rest = match to_multiple(x, imm, mode.rounding()).0 {
        Some(multiple) => x.add(Real { negative: !multiple.negative, ..multiple }),
        None => Some(x),
    };
    match rest {
        Some(rest) => {
            let (value, raised) = finish(format, Mode(mode.0 | ALL << 7), &rest);
            [value, reported(imm, raised & PRECISION != 0), 0]
        }
        None => [zero, 0, 0],
    }
}

fn exponent(format: Format, b: &Operand, mode: Mode) -> [u64; 3] {
    if let Some(nan) = propagate_nan(format, &[b]) {
        return nan;
    }
    match b.value {
        Value::Zero => [format.signed_infinity(true), 0, 0],
        Value::Finite(x) => {
            let exponent = u64::from(x.exponent.cast_unsigned());
            let [value, _, _] = convert::from_integer(32, true, format, exponent, mode.0);
            [value, raised_if(b.denormal, DENORMAL), 0]
        }
        _ => [format.signed_infinity(false), 0, 0],
    }
}

fn significand(format: Format, b: &Operand, imm: u8) -> [u64; 3] {
    if let Some(nan) = propagate_nan(format, &[b]) {
        return nan;
    }
    let negative = b.negative && imm & 4 == 0;
    if b.negative && imm & 8 != 0 && b.value != Value::Zero {
        return [format.default_nan(), INVALID, 0];
    }
    let Value::Finite(x) = b.value else { return [pack(format, negative, 0, 1 << 63), 0, 0] };
    let halved = match imm & 3 {
        0 => false,
        1 => x.exponent & 1 != 0,
        2 => true,
        // From 3/4 to 3/2.
        _ => x.significand >> 126 & 1 != 0,
    };
    let value = pack(format, negative, if halved { -1 } else { 0 }, top_bits(&x));
    [value, raised_if(b.denormal, DENORMAL), 0]
}

fn scale(format: Format, a: &Operand, b: &Operand, mode: Mode) -> [u64; 3] {
    let signaling = [a, b].iter().any(|o| o.value == Value::SignalingNan);
    let to_infinity = b.value == Value::Infinity;
    let special = match (a.value, b.value) {
        (Value::QuietNan, Value::Infinity) if b.negative => Some(0),
        (Value::QuietNan, Value::Infinity) => Some(format.signed_infinity(false)),
        _ if a.is_nan() => Some(a.quieted(format)),
        _ if b.is_nan() => Some(b.quieted(format)),
        (Value::Infinity, Value::Infinity) if b.negative => None,
        (Value::Zero, Value::Infinity) if !b.negative => None,
        (Value::Zero | Value::Infinity, _) => Some(a.bits),
        _ if to_infinity && b.negative => Some(format.signed_zero(a.negative)),
        _ if to_infinity => Some(format.signed_infinity(a.negative)),
        (Value::Finite(x), _) => return scale_finite(format, a, x, b, mode),
        _ => None,
    };
    match special {
        Some(value) => {
            let denormal = a.denormal && !b.is_nan();
            [value, raised_if(signaling, INVALID) | raised_if(denormal, DENORMAL), 0]
        }
        None => [format.default_nan(), INVALID, 0],
    }
}

/// a * 2^floor(b) of finite numbers, a not zero.
fn scale_finite(format: Format, a: &Operand, x: Real, b: &Operand, mode: Mode) -> [u64; 3] {
    // Beyond it, every number overflows or underflows.
    const FAR: i32 = 0x4000;
    let by = match b.value {
        Value::Finite(y) => {
            let floor = y
                .to_integer(Rounding::Down)
                .map_or(FAR, |r| i32::try_from(r.significand.min(FAR.cast_unsigned().into())).unwrap_or(FAR));
            if b.negative { -floor } else { floor }
        }
        _ => 0,
    };
    let (value, raised) = finish(format, mode, &Real { exponent: x.exponent + by, ..x });
    [value, raised | raised_if(a.denormal, DENORMAL), 0]
}

fn range(format: Format, a: &Operand, b: &Operand, imm: u8) -> [u64; 3] {
    if let Some(nan) = [a, b].iter().find(|o| o.value == Value::SignalingNan) {
        return [nan.quieted(format), INVALID, 0];
    }
    let key = |o: &Operand| {
        let order = signed_order(o);
        // Of zeros, and of equal magnitudes, the negative one is the smaller.
        if imm & 2 == 0 { (order, !o.negative) } else { (order.abs(), !o.negative) }
    };
    let chosen = match (a.is_nan(), b.is_nan()) {
        (true, false) => b,
        (_, true) => a,
        _ if (key(a) <= key(b)) == (imm & 1 == 0) => a,
        _ => b,
    };
    let sign = format.parameters().sign;
    let magnitude = chosen.bits & !sign;
    let value = match imm >> 2 & 3 {
        0 => magnitude | a.bits & sign,
        1 => chosen.bits,
        2 => magnitude,
        _ => magnitude | sign,
    };
    let denormal = (a.denormal || b.denormal) && !a.is_nan() && !b.is_nan();
    [value, raised_if(denormal, DENORMAL), 0]
}

/// VFIXUPIMM: the answer that `table` has for the class of b, and the exceptions that the immediate asks for.
pub(super) fn fix_up(format: Format, imm: u8, a: u64, b: u64, table: u64, mode: u64) -> [u64; 3] {
    let b = Operand::read(format, b, Mode(mode));
    let one = pack(format, false, 0, 1 << 63);
    let class = match b.value {
        Value::QuietNan => 0,
        Value::SignalingNan => 1,
        Value::Zero => 2,
        _ if b.bits == one => 3,
        Value::Infinity => {
            if b.negative {
                4
            } else {
                5
            }
        }
        Value::Finite(_) => {
            if b.negative {
                6
            } else {
                7
            }
        }
    };
    // The bits of the immediate that ask for an exception, by class: ZERO_DIVIDE, INVALID.
    let (zero_divide, invalid) =
        [(0, 0), (0, 0x10), (1, 2), (4, 8), (0, 0x20), (0, 0x80), (0, 0x40), (0, 0)][class];
    let raised = raised_if(imm & zero_divide != 0, ZERO_DIVIDE) | raised_if(imm & invalid != 0, INVALID);
    let value = answer(format, table >> (4 * class) & 15, a, &b);
    [value, raised, 0]
}

/// Answer number `n` of VFIXUPIMM.
fn answer(format: Format, n: u64, a: u64, b: &Operand) -> u64 {
    // The 53 leading bits of pi, which a format rounds.
    const PI: u64 = 0xc90f_daa2_2168_c000;
    let number = |exponent, significand, negative| {
        let real = Real { negative, exponent, significand: u128::from(significand) << 64 };
        finish(format, Mode(0x1f80), &real).0
    };
    match n {
        0 => a,
        1 => b.bits,
        2 => b.bits | format.parameters().infinity | format.parameters().quiet,
        3 => format.default_nan(),
        4 => format.signed_infinity(true),
        5 => format.signed_infinity(false),
        6 => format.signed_infinity(b.negative),
        7 => format.signed_zero(true),
        8 => format.signed_zero(false),
        9 => number(0, 1 << 63, true),
        10 => number(0, 1 << 63, false),
        11 => number(-1, 1 << 63, false),
        12 => number(6, 90 << 57, false),
        13 => number(0, PI, false),
        14 => format.signed_infinity(false) - 1,
        _ => format.signed_infinity(true) - 1,
    }
}
