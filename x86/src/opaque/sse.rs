//! The rules of SSE floating point (Intel SDM vol. 1, 4.8 and 11.5): classes of operands, NaNs, DAZ and FTZ,
//! and which exceptions are raised. Every function returns (value, raised exceptions, 0).

use super::basic::{self, Magnitude, Number, Outcome};
use super::exception::{ALL, DENORMAL, INVALID, OVERFLOW, PRECISION, UNDERFLOW, ZERO_DIVIDE};
use super::fast;
use super::real::{Real, Rounding};
use super::{Arithmetic, Format};
use std::cmp::Ordering;

/// The control part of MXCSR.
#[derive(Clone, Copy)]
pub(super) struct Mode(pub(super) u64);

impl Mode {
    /// Denormal operands count as zeros.
    pub(super) fn denormals_are_zero(self) -> bool {
        self.0 & 0x40 != 0
    }

    /// Tiny results become zeros.
    pub(super) fn flush_to_zero(self) -> bool {
        self.0 & 0x8000 != 0
    }

    /// The same where tiny results stay what they are.
    pub(super) fn without_flush_to_zero(self) -> Mode {
        Mode(self.0 & !0x8000)
    }

    /// The same where denormal operands count as what they are.
    pub(super) fn with_denormals(self) -> Mode {
        Mode(self.0 & !0x40)
    }

    pub(super) fn masks(self, exception: u64) -> bool {
        self.0 >> 7 & exception != 0
    }

    #[inline]
    pub(super) fn rounding(self) -> Rounding {
        Rounding::from_bits(self.0 >> 13)
    }

    /// All exceptions masked, round to nearest, neither DAZ nor FTZ: how nearly every program runs.
    #[inline]
    pub(super) fn is_default(self) -> bool {
        self.0 == ALL << 7
    }
}

/// The numbers that define a format.
pub(super) struct Parameters {
    pub(super) precision: u32,
    pub(super) min_exponent: i32,
    pub(super) max_exponent: i32,
    pub(super) sign: u64,
    pub(super) quiet: u64,
    pub(super) infinity: u64,
}

impl Format {
    #[inline]
    pub(super) fn parameters(self) -> Parameters {
        match self {
            Format::Half => Parameters {
                precision: 11,
                min_exponent: -14,
                max_exponent: 15,
                sign: 1 << 15,
                quiet: 1 << 9,
                infinity: 0x7c00,
            },
            Format::Single => Parameters {
                precision: 24,
                min_exponent: -126,
                max_exponent: 127,
                sign: 1 << 31,
                quiet: 1 << 22,
                infinity: 0x7f80_0000,
            },
            Format::Double => Parameters {
                precision: 53,
                min_exponent: -1022,
                max_exponent: 1023,
                sign: 1 << 63,
                quiet: 1 << 51,
                infinity: 0x7ff0_0000_0000_0000,
            },
        }
    }

    /// The width of the stored fraction.
    #[inline]
    pub(crate) fn fraction_bits(self) -> u32 {
        self.parameters().precision - 1
    }

    /// The default NaN: quiet, its sign set.
    pub(super) fn default_nan(self) -> u64 {
        let p = self.parameters();
        p.sign | p.infinity | p.quiet
    }

    pub(super) fn signed_zero(self, negative: bool) -> u64 {
        if negative { self.parameters().sign } else { 0 }
    }

    pub(super) fn signed_infinity(self, negative: bool) -> u64 {
        self.parameters().infinity | self.signed_zero(negative)
    }
}

/// What the bits of an operand say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Zero,
    Finite(Real),
    Infinity,
    QuietNan,
    SignalingNan,
}

/// An operand taken apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    pub(super) bits: u64,
    pub(super) negative: bool,
    pub(super) value: Value,
    pub(super) denormal: bool,
}

impl Operand {
    pub(super) fn new(format: Format, bits: u64) -> Operand {
        let p = format.parameters();
        let negative = bits & p.sign != 0;
        let magnitude = bits & !p.sign;
        let fraction = magnitude & ((1 << format.fraction_bits()) - 1);
        let biased = magnitude >> format.fraction_bits();
        let denormal = biased == 0 && fraction != 0;
        let value = if magnitude > p.infinity {
            if bits & p.quiet != 0 { Value::QuietNan } else { Value::SignalingNan }
        } else if magnitude == p.infinity {
            Value::Infinity
        } else {
            let exponent = i32::try_from(biased.max(1)).unwrap_or(0) - p.max_exponent;
            let hidden = u64::from(biased != 0) << format.fraction_bits();
            let significand = u128::from(hidden | fraction) << (127 - format.fraction_bits());
            Real::new(negative, exponent, significand).map_or(Value::Zero, Value::Finite)
        };
        Operand { bits, negative, value, denormal }
    }

    /// An operand as an instruction that honours DAZ sees it.
    pub(super) fn read(format: Format, bits: u64, mode: Mode) -> Operand {
        let operand = Operand::new(format, bits);
        if operand.denormal && mode.denormals_are_zero() {
            return Operand::new(format, bits & format.parameters().sign);
        }
        operand
    }

    /// The operand where it is not a NaN, which the callers have seen to.
    pub(super) fn as_number(&self) -> Number {
        let magnitude = match self.value {
            Value::Finite(x) => Magnitude::Finite(x),
            Value::Infinity => Magnitude::Infinity,
            Value::Zero | Value::QuietNan | Value::SignalingNan => Magnitude::Zero,
        };
        Number { negative: self.negative, magnitude }
    }

    pub(super) fn is_nan(&self) -> bool {
        matches!(self.value, Value::QuietNan | Value::SignalingNan)
    }

    pub(super) fn quieted(&self, format: Format) -> u64 {
        self.bits | format.parameters().quiet
    }
}

pub(super) fn raised_if(condition: bool, exception: u64) -> u64 {
    if condition { exception } else { 0 }
}

/// The result if an operand is a NaN: the first that is, made quiet.
pub(super) fn propagate_nan(format: Format, operands: &[&Operand]) -> Option<[u64; 3]> {
    let nan = operands.iter().find(|o| o.is_nan())?;
    let signaling = operands.iter().any(|o| o.value == Value::SignalingNan);
    Some([nan.quieted(format), raised_if(signaling, INVALID), 0])
}

/// Rounds an exact result into `format`.
pub(super) fn finish(format: Format, mode: Mode, exact: &Real) -> (u64, u64) {
    let p = format.parameters();
    let rounding = mode.rounding();
    let rounded = exact.round(p.precision, rounding);
    let inexact = raised_if(rounded.inexact, PRECISION);
    if rounded.exponent > p.max_exponent {
        return (overflowed(format, rounding, exact.negative), overflow_flags(mode, inexact));
    }
    if rounded.exponent >= p.min_exponent {
        return (pack(format, exact.negative, rounded.exponent, rounded.significand), inexact);
    }
    if !mode.masks(UNDERFLOW) {
        return (0, UNDERFLOW | inexact);
    }
    if mode.flush_to_zero() {
        return (format.signed_zero(exact.negative), UNDERFLOW | PRECISION);
    }
    let rounded = exact.round_gradually(p.min_exponent, p.precision, rounding);
    let raised = raised_if(rounded.inexact, UNDERFLOW | PRECISION);
    (pack(format, exact.negative, rounded.exponent, rounded.significand), raised)
}

fn overflow_flags(mode: Mode, inexact: u64) -> u64 {
    if mode.masks(OVERFLOW) { OVERFLOW | PRECISION } else { OVERFLOW | inexact }
}

/// The masked response to an overflow: an infinity or the largest finite number.
pub(super) fn overflowed(format: Format, rounding: Rounding, negative: bool) -> u64 {
    let infinity = format.signed_infinity(negative);
    if rounding.overflows_to_infinity(negative) { infinity } else { infinity - 1 }
}

/// Puts a rounded number into its format; a significand without its top bit is a denormal.
pub(super) fn pack(format: Format, negative: bool, exponent: i32, significand: u64) -> u64 {
    let p = format.parameters();
    let stored = significand >> (63 - format.fraction_bits());
    let biased = u64::from((exponent + p.max_exponent).unsigned_abs());
    let magnitude =
        if significand >> 63 == 0 { stored } else { ((biased - 1) << format.fraction_bits()) + stored };
    magnitude | format.signed_zero(negative)
}

/// Two-operand arithmetic, and the square root of `b`.
pub(super) fn arithmetic(op: Arithmetic, format: Format, a: u64, b: u64, mode: u64) -> [u64; 3] {
    let mode = Mode(mode);
    if let Some(result) = fast::gradual(op, format, a, b, mode) {
        return result;
    }
    let a = Operand::read(format, a, mode);
    let b = Operand::read(format, b, mode);
    match op {
        Arithmetic::Min | Arithmetic::Max => extremum(op, &a, &b),
        Arithmetic::Sqrt => square_root(format, &b, mode),
        _ => four_operations(op, format, &a, &b, mode),
    }
}

fn four_operations(op: Arithmetic, format: Format, a: &Operand, b: &Operand, mode: Mode) -> [u64; 3] {
    if let Some(nan) = propagate_nan(format, &[a, b]) {
        return nan;
    }
    let denormal = raised_if(a.denormal || b.denormal, DENORMAL);
    let (x, y) = (a.as_number(), b.as_number());
    let outcome = match op {
        Arithmetic::Add => basic::add(x, y),
        Arithmetic::Sub => basic::add(x, -y),
        Arithmetic::Mul => basic::multiply(x, y),
        _ => basic::divide(x, y),
    };
    conclude(format, mode, outcome, denormal)
}

/// The result of arithmetic; `denormal` is what its operands raise.
pub(super) fn conclude(format: Format, mode: Mode, outcome: Outcome, denormal: u64) -> [u64; 3] {
    match outcome {
        Outcome::Exact(exact) => {
            let (value, raised) = finish(format, mode, &exact);
            [value, raised | denormal, 0]
        }
        Outcome::Zero(negative) => [format.signed_zero(negative), denormal, 0],
        Outcome::Cancelled => [format.signed_zero(mode.rounding() == Rounding::Down), denormal, 0],
        Outcome::Infinity(negative) => [format.signed_infinity(negative), denormal, 0],
        Outcome::DividedByZero(negative) => [format.signed_infinity(negative), ZERO_DIVIDE, 0],
        Outcome::Invalid => [format.default_nan(), INVALID, 0],
    }
}

fn square_root(format: Format, b: &Operand, mode: Mode) -> [u64; 3] {
    if let Some(nan) = propagate_nan(format, &[b]) {
        return nan;
    }
    match b.value {
        Value::Zero => [b.bits, 0, 0],
        _ if b.negative => [format.default_nan(), INVALID, 0],
        Value::Finite(x) => {
            let (value, raised) = finish(format, mode, &x.sqrt());
            [value, raised | raised_if(b.denormal, DENORMAL), 0]
        }
        _ => [b.bits, 0, 0],
    }
}

fn extremum(op: Arithmetic, a: &Operand, b: &Operand) -> [u64; 3] {
    let Some(order) = order(a, b) else { return [b.bits, INVALID, 0] };
    let wanted = if op == Arithmetic::Min { Ordering::Less } else { Ordering::Greater };
    let value = if order == wanted { a.bits } else { b.bits };
    [value, raised_if(a.denormal || b.denormal, DENORMAL), 0]
}

/// How two operands compare as numbers; `None` if either is a NaN.
fn order(a: &Operand, b: &Operand) -> Option<Ordering> {
    if a.is_nan() || b.is_nan() {
        return None;
    }
    Some(signed_order(a).cmp(&signed_order(b)))
}

/// A key that orders numbers that are not NaNs; both zeros have the same.
pub(super) fn signed_order(operand: &Operand) -> i128 {
    let magnitude = match operand.value {
        Value::Finite(x) => i128::from(x.exponent + 0x1_0000) << 64 | (x.significand >> 64).cast_signed(),
        Value::Infinity => i128::MAX,
        _ => 0,
    };
    if operand.negative { -magnitude } else { magnitude }
}

/// Compares; the relation is as [`super::Opaque::SseCompare`] says.
pub(super) fn compare(format: Format, signaling: bool, a: u64, b: u64, mode: u64) -> [u64; 3] {
    if let Some(result) = fast::compare(format, a, b, Mode(mode)) {
        return result;
    }
    let a = Operand::read(format, a, Mode(mode));
    let b = Operand::read(format, b, Mode(mode));
    match order(&a, &b) {
        Some(order) => {
            let relation = match order {
                Ordering::Less => 1,
                Ordering::Equal => 2,
                Ordering::Greater => 0,
            };
            [relation, raised_if(a.denormal || b.denormal, DENORMAL), 0]
        }
        None => {
            let invalid = signaling || [a, b].iter().any(|o| o.value == Value::SignalingNan);
            [4, raised_if(invalid, INVALID), 0]
        }
    }
}

/// Rounds to an integer in the same format.
pub(super) fn round(format: Format, a: u64, mode: u64) -> [u64; 3] {
    let mode = Mode(mode);
    let a = Operand::read(format, a, mode);
    if let Some(nan) = propagate_nan(format, &[&a]) {
        return nan;
    }
    let Value::Finite(x) = a.value else { return [a.bits, 0, 0] };
    let Some(rounded) = x.to_integer(mode.rounding()) else { return [a.bits, 0, 0] };
    let value = match Real::from_integer(a.negative, rounded.significand) {
        Some(integer) => pack(format, a.negative, integer.exponent, top_bits(&integer)),
        None => format.signed_zero(a.negative),
    };
    [value, raised_if(rounded.inexact, PRECISION), 0]
}

/// The 64 leading bits of a number that has no more.
pub(super) fn top_bits(x: &Real) -> u64 {
    x.round(64, Rounding::Zero).significand
}
