//! Conversions between the 80-bit format and the others.

use super::number::{
    INTEGER_BIT, Mode, Number, Operand, QUIET, Value, encode, raised_if, result, rounding_status,
    signed_infinity, signed_zero,
};
use super::status::C1;
use crate::opaque::Format;
use crate::opaque::exception::{DENORMAL, INVALID, OVERFLOW, PRECISION, UNDERFLOW};
use crate::opaque::real::{Real, Rounding};
use crate::opaque::sse::{self, pack};

/// Widens an SSE format, which is exact. A signaling NaN is made quiet if `quiet`.
pub(in crate::opaque) fn from_float(format: Format, quiet: bool, bits: u64) -> [u64; 3] {
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
pub(in crate::opaque) fn to_float(format: Format, a: Number, mode: u64) -> [u64; 3] {
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
pub(in crate::opaque) fn to_integer(bits: u32, a: Number, mode: u64) -> [u64; 3] {
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
