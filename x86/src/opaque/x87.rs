//! The rules of the x87 (Intel SDM vol. 1, 4.8 and 8): the 80-bit format with its unsupported encodings, NaNs,
//! precision control, and C1 as the direction of rounding. A number is (significand, sign and exponent).

use std::cmp::Ordering;

use super::exception::{DENORMAL, INVALID, OVERFLOW, PRECISION, UNDERFLOW, ZERO_DIVIDE};
use super::real::{Real, Rounded, Rounding};
use super::sse::{self, pack};
use super::{Format, X87Arithmetic};

/// Bits of the x87 status word, but for [`super::exception`].
pub mod status {
    /// An invalid operation was a stack overflow or underflow.
    pub const STACK_FAULT: u64 = 1 << 6;
    /// An unmasked exception is pending.
    pub const SUMMARY: u64 = 1 << 7;
    /// Condition code 0.
    pub const C0: u64 = 1 << 8;
    /// Condition code 1: the last rounding was away from zero; or a stack fault was an overflow.
    pub const C1: u64 = 1 << 9;
    /// Condition code 2.
    pub const C2: u64 = 1 << 10;
    /// Condition code 3.
    pub const C3: u64 = 1 << 14;
    /// All four.
    pub const CONDITIONS: u64 = C0 | C1 | C2 | C3;
    /// A copy of [`SUMMARY`].
    pub const BUSY: u64 = 1 << 15;
    /// The lowest bit of TOP.
    pub const TOP_SHIFT: u32 = 11;
    /// The bits of TOP.
    pub const TOP: u64 = 7 << TOP_SHIFT;
}
use status::{C0, C1, C2, C3};

/// An x87 number: significand, and sign with exponent.
pub(super) type Number = (u64, u64);

const SIGN: u64 = 0x8000;
const MAX_BIASED: u64 = 0x7fff;
const BIAS: i32 = 16383;
const MIN_EXPONENT: i32 = -16382;
const MAX_EXPONENT: i32 = 16383;
/// The default NaN ("real indefinite").
const INDEFINITE: Number = (0xc000_0000_0000_0000, 0xffff);
const QUIET: u64 = 1 << 62;
const INTEGER_BIT: u64 = 1 << 63;
/// What is added to the exponent of a result whose underflow is not masked (and subtracted on overflow).
const BIAS_ADJUSTMENT: i32 = 24576;

/// The x87 control word.
#[derive(Clone, Copy)]
struct Mode(u64);

impl Mode {
    fn rounding(self) -> Rounding {
        Rounding::from_bits(self.0 >> 10)
    }

    /// The precision of +, -, *, / and square root. The reserved encoding counts as full precision.
    fn precision(self) -> u32 {
        match self.0 >> 8 & 3 {
            0 => 24,
            2 => 53,
            _ => 64,
        }
    }

    fn masks(self, exception: u64) -> bool {
        self.0 & exception != 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Zero,
    Finite(Real),
    Infinity,
    QuietNan,
    SignalingNan,
    /// An encoding of the 8087 that later processors refuse: the integer bit is clear though it must be set.
    Unsupported,
}

#[derive(Clone, Copy, Debug)]
struct Operand {
    number: Number,
    negative: bool,
    value: Value,
    denormal: bool,
}

impl Operand {
    fn new(number: Number) -> Operand {
        let (significand, sign_exponent) = number;
        let negative = sign_exponent & SIGN != 0;
        let biased = sign_exponent & MAX_BIASED;
        let value = if significand & INTEGER_BIT == 0 && biased != 0 {
            Value::Unsupported
        } else if biased == MAX_BIASED {
            match (significand & !INTEGER_BIT, significand & QUIET) {
                (0, _) => Value::Infinity,
                (_, 0) => Value::SignalingNan,
                _ => Value::QuietNan,
            }
        } else {
            let exponent = i32::try_from(biased.max(1)).unwrap_or(0) - BIAS;
            let real = Real::new(negative, exponent, u128::from(significand) << 64);
            real.map_or(Value::Zero, Value::Finite)
        };
        Operand { number, negative, value, denormal: biased == 0 && significand != 0 }
    }

    fn is_nan(&self) -> bool {
        matches!(self.value, Value::QuietNan | Value::SignalingNan)
    }

    fn quieted(&self) -> Number {
        (self.number.0 | QUIET, self.number.1)
    }
}

fn raised_if(condition: bool, exception: u64) -> u64 {
    if condition { exception } else { 0 }
}

fn result(number: Number, status: u64) -> [u64; 3] {
    [number.0, number.1, status]
}

const INVALID_RESULT: [u64; 3] = [INDEFINITE.0, INDEFINITE.1, INVALID];

fn signed_zero(negative: bool) -> Number {
    (0, raised_if(negative, SIGN))
}

fn signed_infinity(negative: bool) -> Number {
    (INTEGER_BIT, MAX_BIASED | raised_if(negative, SIGN))
}

/// The result if an operand is a NaN or unsupported: of two NaNs of a kind the one with the larger
/// significand, of a quiet and a signaling one the quiet one (SDM vol. 1, table 4-7).
fn propagate_nan(operands: &[Operand]) -> Option<[u64; 3]> {
    if operands.iter().any(|o| o.value == Value::Unsupported) {
        return Some(INVALID_RESULT);
    }
    let signaling = operands.iter().any(|o| o.value == Value::SignalingNan);
    let rank = |o: &&Operand| (o.value == Value::QuietNan, o.number.0, !o.negative);
    let nan = operands.iter().filter(|o| o.is_nan()).max_by_key(rank)?;
    Some(result(nan.quieted(), raised_if(signaling, INVALID)))
}

fn encode(negative: bool, rounded: &Rounded) -> Number {
    let biased = u64::from((rounded.exponent + BIAS).unsigned_abs());
    let biased = if rounded.significand & INTEGER_BIT == 0 { 0 } else { biased };
    (rounded.significand, biased | raised_if(negative, SIGN))
}

/// Rounds an exact result to `precision` bits.
fn finish(mode: Mode, precision: u32, exact: &Real) -> [u64; 3] {
    let rounding = mode.rounding();
    let rounded = exact.round(precision, rounding);
    if rounded.exponent > MAX_EXPONENT {
        return overflowed(mode, precision, exact.negative, rounded);
    }
    if rounded.exponent >= MIN_EXPONENT {
        return result(encode(exact.negative, &rounded), rounding_status(&rounded));
    }
    if mode.masks(UNDERFLOW) {
        let rounded = exact.round_gradually(MIN_EXPONENT, precision, rounding);
        let tiny = raised_if(rounded.inexact, UNDERFLOW);
        return result(encode(exact.negative, &rounded), tiny | rounding_status(&rounded));
    }
    let adjusted = Rounded { exponent: rounded.exponent + BIAS_ADJUSTMENT, ..rounded };
    if adjusted.exponent < MIN_EXPONENT {
        // Beyond adjusting (FSCALE): a zero in every direction.
        return result(signed_zero(exact.negative), UNDERFLOW | PRECISION);
    }
    result(encode(exact.negative, &adjusted), UNDERFLOW | rounding_status(&rounded))
}

fn rounding_status(rounded: &Rounded) -> u64 {
    raised_if(rounded.inexact, PRECISION) | raised_if(rounded.up, C1)
}

fn overflowed(mode: Mode, precision: u32, negative: bool, rounded: Rounded) -> [u64; 3] {
    let adjusted = Rounded { exponent: rounded.exponent - BIAS_ADJUSTMENT, ..rounded };
    let masked = mode.masks(OVERFLOW);
    if !masked && adjusted.exponent <= MAX_EXPONENT {
        return result(encode(negative, &adjusted), OVERFLOW | rounding_status(&rounded));
    }
    // An overflow that is not masked and beyond adjusting (FSCALE) is an infinity in every direction.
    if !masked || mode.rounding().overflows_to_infinity(negative) {
        return result(signed_infinity(negative), OVERFLOW | PRECISION | C1);
    }
    let largest = (u64::MAX << (64 - precision), MAX_BIASED - 1 | raised_if(negative, SIGN));
    result(largest, OVERFLOW | PRECISION)
}

/// Arithmetic on a and b, or on a alone.
pub(super) fn arithmetic(op: X87Arithmetic, a: Number, b: Number, mode: u64) -> [u64; 3] {
    let (a, b, mode) = (Operand::new(a), Operand::new(b), Mode(mode));
    match op {
        X87Arithmetic::Sqrt => square_root(&a, mode),
        X87Arithmetic::RoundToInteger => round_to_integer(&a, mode),
        X87Arithmetic::Exponent => exponent(&a),
        X87Arithmetic::Significand => significand(&a),
        _ => {
            if let Some(nan) = propagate_nan(&[a, b]) {
                return nan;
            }
            let computed = match op {
                X87Arithmetic::Scale => scale(&a, &b, mode),
                X87Arithmetic::Remainder => remainder(&a, &b, false, mode),
                X87Arithmetic::RemainderNearest => remainder(&a, &b, true, mode),
                _ => four_operations(op, &a, &b, mode),
            };
            with_denormal(computed, a.denormal || b.denormal)
        }
    }
}

/// Adds the denormal exception, which the invalid operation and the division by zero outrank.
fn with_denormal([x, y, status]: [u64; 3], denormal: bool) -> [u64; 3] {
    let outranked = status & (INVALID | ZERO_DIVIDE) != 0;
    [x, y, status | raised_if(denormal && !outranked, DENORMAL)]
}

fn four_operations(op: X87Arithmetic, a: &Operand, b: &Operand, mode: Mode) -> [u64; 3] {
    let b_negative = b.negative != (op == X87Arithmetic::Sub);
    let product_negative = a.negative != b.negative;
    let infinity = |negative| result(signed_infinity(negative), 0);
    let zero = |negative| result(signed_zero(negative), 0);
    let exact = match (op, a.value, b.value) {
        (X87Arithmetic::Add | X87Arithmetic::Sub, x, y) => match (x, y) {
            (Value::Infinity, Value::Infinity) if a.negative != b_negative => return INVALID_RESULT,
            (Value::Infinity, _) => return infinity(a.negative),
            (_, Value::Infinity) => return infinity(b_negative),
            (Value::Finite(x), Value::Finite(y)) => x.add(Real { negative: b_negative, ..y }),
            (Value::Finite(x), _) => Some(x),
            (_, Value::Finite(y)) => Some(Real { negative: b_negative, ..y }),
            _ if a.negative == b_negative => return zero(a.negative),
            _ => None,
        },
        (X87Arithmetic::Mul, x, y) => match (x, y) {
            (Value::Infinity, Value::Zero) | (Value::Zero, Value::Infinity) => return INVALID_RESULT,
            (Value::Infinity, _) | (_, Value::Infinity) => return infinity(product_negative),
            (Value::Finite(x), Value::Finite(y)) => Some(x.mul(y)),
            _ => return zero(product_negative),
        },
        (_, x, y) => match (x, y) {
            (Value::Infinity, Value::Infinity) | (Value::Zero, Value::Zero) => return INVALID_RESULT,
            (Value::Infinity, _) => return infinity(product_negative),
            (_, Value::Zero) => return result(signed_infinity(product_negative), ZERO_DIVIDE),
            (Value::Finite(x), Value::Finite(y)) => Some(x.div(y)),
            _ => return zero(product_negative),
        },
    };
    match exact {
        Some(exact) => finish(mode, mode.precision(), &exact),
        None => zero(mode.rounding() == Rounding::Down),
    }
}

fn square_root(a: &Operand, mode: Mode) -> [u64; 3] {
    if let Some(nan) = propagate_nan(&[*a]) {
        return nan;
    }
    match a.value {
        Value::Zero => result(a.number, 0),
        _ if a.negative => INVALID_RESULT,
        Value::Finite(x) => with_denormal(finish(mode, mode.precision(), &x.sqrt()), a.denormal),
        _ => result(a.number, 0),
    }
}

fn round_to_integer(a: &Operand, mode: Mode) -> [u64; 3] {
    if let Some(nan) = propagate_nan(&[*a]) {
        return nan;
    }
    let Value::Finite(x) = a.value else { return result(a.number, 0) };
    let Some(rounded) = x.to_integer(mode.rounding()) else { return result(a.number, 0) };
    let number = match Real::from_integer(a.negative, rounded.significand) {
        Some(integer) => encode(a.negative, &integer.round(64, Rounding::Zero)),
        None => signed_zero(a.negative),
    };
    with_denormal(result(number, rounding_status(&rounded)), a.denormal)
}

/// No exponent, added to any other, stays in range beyond this.
const SCALE_LIMIT: u64 = 0x1_0000;

fn scale(a: &Operand, b: &Operand, mode: Mode) -> [u64; 3] {
    match (a.value, b.value) {
        (Value::Zero, Value::Infinity) if !b.negative => INVALID_RESULT,
        (Value::Infinity, Value::Infinity) if b.negative => INVALID_RESULT,
        (Value::Zero | Value::Infinity, _) => result(a.number, 0),
        (_, Value::Infinity) if b.negative => result(signed_zero(a.negative), 0),
        (_, Value::Infinity) => result(signed_infinity(a.negative), 0),
        (Value::Finite(x), Value::Finite(by)) => {
            let by = by.to_integer(Rounding::Zero).map_or(SCALE_LIMIT, |r| r.significand.min(SCALE_LIMIT));
            let by = i32::try_from(by).unwrap_or(0);
            let by = if b.negative { -by } else { by };
            finish(mode, 64, &Real { exponent: x.exponent + by, ..x })
        }
        (Value::Finite(x), _) => finish(mode, 64, &x),
        _ => result(a.number, 0),
    }
}

/// The most bits of the quotient that one step finds.
const REMAINDER_STEP: i32 = 63;

/// One step of FPREM (or FPREM1 if `nearest`): C2 if more are needed, else C0, C3, C1 are bits 2, 1, 0 of the
/// quotient.
fn remainder(a: &Operand, b: &Operand, nearest: bool, mode: Mode) -> [u64; 3] {
    let (x, y) = match (a.value, b.value) {
        (Value::Infinity, _) | (_, Value::Zero) => return INVALID_RESULT,
        (Value::Finite(x), Value::Finite(y)) => (x, y),
        (Value::Finite(x), _) => return finish(mode, 64, &x),
        _ => return result(a.number, 0),
    };
    let gap = x.exponent - y.exponent;
    let (dividend, divisor) = (x.significand >> 64, y.significand >> 64);
    if gap > REMAINDER_STEP {
        let step = 32 | gap & 31;
        let rest = (dividend << step) % divisor;
        return remainder_result(a.negative, rest, y.exponent + gap - step, C2, mode);
    }
    if gap < -1 || (gap < 0 && !nearest) {
        return finish(mode, 64, &x);
    }
    // For a gap of -1 everything is counted in halves of the divisor's last place.
    let (numerator, divisor, exponent) = match gap {
        -1 => (dividend, divisor << 1, y.exponent - 1),
        _ => (dividend << gap, divisor, y.exponent),
    };
    let (mut quotient, mut rest) = (numerator / divisor, numerator % divisor);
    let mut negative = a.negative;
    let round_up = match (rest << 1).cmp(&divisor) {
        Ordering::Less => false,
        Ordering::Equal => quotient & 1 != 0,
        Ordering::Greater => true,
    };
    if nearest && round_up {
        rest = divisor - rest;
        quotient += 1;
        negative = !negative;
    }
    let bit = |n: u32, condition| raised_if(quotient >> n & 1 != 0, condition);
    let status = bit(2, C0) | bit(1, C3) | bit(0, C1);
    if rest == 0 {
        return result(signed_zero(a.negative), status);
    }
    remainder_result(negative, rest, exponent, status, mode)
}

/// `rest * 2^(exponent - 63)`, which is exact.
fn remainder_result(negative: bool, rest: u128, exponent: i32, status: u64, mode: Mode) -> [u64; 3] {
    match Real::new(negative, exponent + 64, rest) {
        Some(rest) => {
            let [x, y, raised] = finish(mode, 64, &rest);
            [x, y, raised | status]
        }
        None => result(signed_zero(negative), status),
    }
}

fn exponent(a: &Operand) -> [u64; 3] {
    if let Some(nan) = propagate_nan(&[*a]) {
        return nan;
    }
    match a.value {
        Value::Zero => result(signed_infinity(true), ZERO_DIVIDE),
        Value::Finite(x) => {
            let magnitude = u64::from(x.exponent.unsigned_abs());
            let number = match Real::from_integer(x.exponent < 0, magnitude) {
                Some(r) => encode(r.negative, &r.round(64, Rounding::Zero)),
                None => signed_zero(false),
            };
            result(number, raised_if(a.denormal, DENORMAL))
        }
        _ => result(signed_infinity(false), 0),
    }
}

fn significand(a: &Operand) -> [u64; 3] {
    if let Some(nan) = propagate_nan(&[*a]) {
        return nan;
    }
    match a.value {
        Value::Zero => result(a.number, ZERO_DIVIDE),
        Value::Finite(x) => {
            let number = encode(a.negative, &Real { exponent: 0, ..x }.round(64, Rounding::Zero));
            result(number, raised_if(a.denormal, DENORMAL))
        }
        _ => result(a.number, 0),
    }
}

/// A key that orders numbers that are not NaNs; both zeros have the same.
fn signed_order(operand: &Operand) -> i128 {
    let magnitude = match operand.value {
        Value::Finite(x) => i128::from(x.exponent + 0x1_0000) << 64 | i128::from(operand.number.0),
        Value::Infinity => i128::MAX,
        _ => 0,
    };
    if operand.negative { -magnitude } else { magnitude }
}

/// Compares; the condition codes are those of FCOM.
pub(super) fn compare(signaling: bool, a: Number, b: Number) -> [u64; 3] {
    let (a, b) = (Operand::new(a), Operand::new(b));
    let any = |value| a.value == value || b.value == value;
    if any(Value::Unsupported) || a.is_nan() || b.is_nan() {
        let invalid = signaling || any(Value::SignalingNan) || any(Value::Unsupported);
        return [C0 | C2 | C3 | raised_if(invalid, INVALID), 0, 0];
    }
    let relation = match signed_order(&a).cmp(&signed_order(&b)) {
        Ordering::Less => C0,
        Ordering::Equal => C3,
        Ordering::Greater => 0,
    };
    [relation | raised_if(a.denormal || b.denormal, DENORMAL), 0, 0]
}

/// Widens an SSE format, which is exact. A signaling NaN is made quiet if `quiet`.
pub(super) fn from_float(format: Format, quiet: bool, bits: u64) -> [u64; 3] {
    let operand = sse::Operand::new(format, bits);
    let fraction = bits << (64 - format.fraction_bits()) >> 1;
    match operand.value {
        sse::Value::Zero => result(signed_zero(operand.negative), 0),
        sse::Value::Infinity => result(signed_infinity(operand.negative), 0),
        sse::Value::Finite(x) => {
            let number = encode(operand.negative, &x.round(64, Rounding::Zero));
            result(number, raised_if(operand.denormal, DENORMAL))
        }
        sse::Value::QuietNan | sse::Value::SignalingNan => {
            let (_, sign_exponent) = signed_infinity(operand.negative);
            let quieted = quiet && operand.value == sse::Value::SignalingNan;
            let significand = INTEGER_BIT | fraction | raised_if(quieted, QUIET);
            result((significand, sign_exponent), raised_if(quieted, INVALID))
        }
    }
}

/// Narrows to an SSE format: (value, status, 0).
pub(super) fn to_float(format: Format, a: Number, mode: u64) -> [u64; 3] {
    let (a, mode) = (Operand::new(a), Mode(mode));
    match a.value {
        Value::Zero => [format.signed_zero(a.negative), 0, 0],
        Value::Infinity => [format.signed_infinity(a.negative), 0, 0],
        Value::Unsupported => [format.default_nan(), INVALID, 0],
        Value::QuietNan | Value::SignalingNan => {
            let payload = (a.number.0 | QUIET) << 1 >> (64 - format.fraction_bits());
            let signaling = a.value == Value::SignalingNan;
            [format.signed_infinity(a.negative) | payload, raised_if(signaling, INVALID), 0]
        }
        Value::Finite(x) => narrow(format, mode, &x),
    }
}

fn narrow(format: Format, mode: Mode, exact: &Real) -> [u64; 3] {
    let p = format.parameters();
    let rounding = mode.rounding();
    let rounded = exact.round(p.precision, rounding);
    if rounded.exponent > p.max_exponent {
        let infinite = rounding.overflows_to_infinity(exact.negative);
        let inexact = raised_if(rounded.inexact || mode.masks(OVERFLOW), PRECISION);
        let value = sse::overflowed(format, rounding, exact.negative);
        return [value, OVERFLOW | inexact | raised_if(infinite, C1), 0];
    }
    let (rounded, tiny) = if rounded.exponent >= p.min_exponent {
        (rounded, 0)
    } else if mode.masks(UNDERFLOW) {
        let rounded = exact.round_gradually(p.min_exponent, p.precision, rounding);
        (rounded, raised_if(rounded.inexact, UNDERFLOW))
    } else {
        return [0, UNDERFLOW | rounding_status(&rounded), 0];
    };
    let value = pack(format, exact.negative, rounded.exponent, rounded.significand);
    [value, tiny | rounding_status(&rounded), 0]
}

/// Converts to a signed integer: (value, status, 0).
pub(super) fn to_integer(bits: u32, a: Number, mode: u64) -> [u64; 3] {
    let a = Operand::new(a);
    let rounded = match a.value {
        Value::Zero => return [0, 0, 0],
        Value::Finite(x) => x.to_integer(Mode(mode).rounding()),
        _ => None,
    };
    let limit = 1_u64 << (bits - 1);
    match rounded {
        Some(r) if r.significand < limit + u64::from(a.negative) => {
            let value = if a.negative { r.significand.wrapping_neg() } else { r.significand };
            [value & (u64::MAX >> (64 - bits)), rounding_status(&r), 0]
        }
        _ => [limit, INVALID, 0],
    }
}
