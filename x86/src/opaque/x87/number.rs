//! The 80-bit format: classes of operands, NaNs, and the rounding of a result into it.

use super::status::C1;
use crate::opaque::basic::{self, Magnitude};
use crate::opaque::exception::{INVALID, OVERFLOW, PRECISION, UNDERFLOW};
use crate::opaque::real::{Real, Rounded, Rounding};

/// An x87 number: significand, and sign with exponent.
pub(in crate::opaque) type Number = (u64, u64);

pub(super) const SIGN: u64 = 0x8000;
pub(super) const MAX_BIASED: u64 = 0x7fff;
pub(super) const BIAS: i32 = 16383;
pub(super) const MIN_EXPONENT: i32 = -16382;
pub(super) const MAX_EXPONENT: i32 = 16383;
/// The default NaN ("real indefinite").
pub(super) const INDEFINITE: Number = (0xc000_0000_0000_0000, 0xffff);
pub(super) const QUIET: u64 = 1 << 62;
pub(super) const INTEGER_BIT: u64 = 1 << 63;
/// What is added to the exponent of a result whose underflow is not masked (and subtracted on overflow).
pub(super) const BIAS_ADJUSTMENT: i32 = 24576;

/// The x87 control word.
#[derive(Clone, Copy)]
pub(super) struct Mode(pub(super) u64);

impl Mode {
    pub(super) fn rounding(self) -> Rounding {
        Rounding::from_bits(self.0 >> 10)
    }

    /// The precision of +, -, *, / and square root. The reserved encoding counts as full precision.
    pub(super) fn precision(self) -> u32 {
        match self.0 >> 8 & 3 {
            0 => 24,
            2 => 53,
            _ => 64,
        }
    }

    pub(super) fn masks(self, exception: u64) -> bool {
        self.0 & exception != 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Zero,
    Finite(Real),
    Infinity,
    QuietNan,
    SignalingNan,
    /// An encoding of the 8087 that later processors refuse: the integer bit is clear though it must be set.
    Unsupported,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    pub(super) number: Number,
    pub(super) negative: bool,
    pub(super) value: Value,
    pub(super) denormal: bool,
}

impl Operand {
    pub(super) fn new(number: Number) -> Operand {
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

    /// The operand where it is a number, which the callers have seen to.
    pub(super) fn as_number(&self) -> basic::Number {
        let magnitude = match self.value {
            Value::Finite(x) => Magnitude::Finite(x),
            Value::Infinity => Magnitude::Infinity,
            Value::Zero | Value::QuietNan | Value::SignalingNan | Value::Unsupported => Magnitude::Zero,
        };
        basic::Number { negative: self.negative, magnitude }
    }

    pub(super) fn is_nan(&self) -> bool {
        matches!(self.value, Value::QuietNan | Value::SignalingNan)
    }

    pub(super) fn quieted(&self) -> Number {
        (self.number.0 | QUIET, self.number.1)
    }
}

pub(super) fn raised_if(condition: bool, exception: u64) -> u64 {
    if condition { exception } else { 0 }
}

pub(super) fn result(number: Number, status: u64) -> [u64; 3] {
    [number.0, number.1, status]
}

pub(super) const INVALID_RESULT: [u64; 3] = [INDEFINITE.0, INDEFINITE.1, INVALID];

pub(super) fn signed_zero(negative: bool) -> Number {
    (0, raised_if(negative, SIGN))
}

pub(super) fn signed_infinity(negative: bool) -> Number {
    (INTEGER_BIT, MAX_BIASED | raised_if(negative, SIGN))
}

/// The result if an operand is a NaN or unsupported: of two NaNs of a kind the one with the larger
/// significand, of a quiet and a signaling one the quiet one (SDM vol. 1, table 4-7).
pub(super) fn propagate_nan(operands: &[Operand]) -> Option<[u64; 3]> {
    if operands.iter().any(|o| o.value == Value::Unsupported) {
        return Some(INVALID_RESULT);
    }
    let signaling = operands.iter().any(|o| o.value == Value::SignalingNan);
    let rank = |o: &&Operand| (o.value == Value::QuietNan, o.number.0, !o.negative);
    let nan = operands.iter().filter(|o| o.is_nan()).max_by_key(rank)?;
    Some(result(nan.quieted(), raised_if(signaling, INVALID)))
}

pub(super) fn encode(negative: bool, rounded: &Rounded) -> Number {
    let biased = u64::from((rounded.exponent + BIAS).unsigned_abs());
    let biased = if rounded.significand & INTEGER_BIT == 0 { 0 } else { biased };
    (rounded.significand, biased | raised_if(negative, SIGN))
}

/// Rounds an exact result to `precision` bits.
pub(super) fn finish(mode: Mode, precision: u32, exact: &Real) -> [u64; 3] {
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

pub(super) fn rounding_status(rounded: &Rounded) -> u64 {
    raised_if(rounded.inexact, PRECISION) | raised_if(rounded.up, C1)
}

pub(super) fn overflowed(mode: Mode, precision: u32, negative: bool, rounded: Rounded) -> [u64; 3] {
    let adjusted = Rounded { exponent: rounded.exponent - BIAS_ADJUSTMENT, ..rounded };
    let masked = mode.masks(OVERFLOW);
    if !masked && adjusted.exponent <= MAX_EXPONENT {
        return result(encode(negative, &adjusted), OVERFLOW | rounding_status(&rounded));
    }
    // An overflow that is not masked and beyond adjusting (FSCALE) is an infinity in every direction.
    if !masked || mode.rounding().overflows_to_infinity(negative) {
        return result(signed_infinity(negative), OVERFLOW | PRECISION | C1);
    }
    let largest = (u64::MAX << (64 - precision), (MAX_BIASED - 1) | raised_if(negative, SIGN));
    result(largest, OVERFLOW | PRECISION)
}
