//! Conversions between the formats of SSE, and between these and integers. Every function returns (value, raised
//! exceptions, 0).

use super::exception::{DENORMAL, INVALID, PRECISION};
use super::real::Real;
use super::sse::{Mode, Operand, Value, finish, raised_if};
use super::{Format, fast};

/// Converts between two formats. Denormal halves are numbers like others whatever the mode says, as operands (which
/// raise nothing) and as results (Intel SDM vol. 2, VCVTPH2PS and VCVTPS2PH).
pub(super) fn between(from: Format, to: Format, a: u64, mode: u64) -> [u64; 3] {
    let mode = match (from, to) {
        (Format::Half, _) => Mode(mode).with_denormals(),
        (_, Format::Half) => Mode(mode).without_flush_to_zero(),
        _ => Mode(mode),
    };
    if let Some(result) = fast::convert(from, to, a, mode) {
        return result;
    }
    let a = Operand::read(from, a, mode);
    match a.value {
        Value::Zero => [to.signed_zero(a.negative), 0, 0],
        Value::Infinity => [to.signed_infinity(a.negative), 0, 0],
        Value::Finite(x) => {
            let (value, raised) = finish(to, mode, &x);
            [value, raised | of_denormal(from, to, a.denormal), 0]
        }
        Value::QuietNan | Value::SignalingNan => {
            let fraction = a.bits & ((1 << from.fraction_bits()) - 1);
            let payload = fraction << (52 - from.fraction_bits()) >> (52 - to.fraction_bits());
            let nan = to.signed_infinity(a.negative) | to.parameters().quiet | payload;
            [nan, raised_if(a.value == Value::SignalingNan, INVALID), 0]
        }
    }
}

/// What a denormal operand raises. One that becomes a half loses precision, and processors say so even where underflow is
/// not masked and nothing is lost yet.
fn of_denormal(from: Format, to: Format, denormal: bool) -> u64 {
    match (from, to) {
        (Format::Half, _) => 0,
        (_, Format::Half) => raised_if(denormal, DENORMAL | PRECISION),
        _ => raised_if(denormal, DENORMAL),
    }
}

/// Converts to an integer; what does not fit becomes the "integer indefinite": the smallest signed, the largest unsigned.
pub(super) fn to_integer(from: Format, bits: u32, signed: bool, a: u64, mode: u64) -> [u64; 3] {
    let mode = Mode(mode);
    if signed && let Some(result) = fast::to_integer(from, bits, a, mode) {
        return result;
    }
    let a = Operand::read(from, a, mode);
    let rounded = match a.value {
        Value::Zero => return [0, 0, 0],
        Value::Finite(x) => x.to_integer(mode.rounding()),
        _ => None,
    };
    let (all, top) = (u64::MAX >> (64 - bits), 1_u64 << (bits - 1));
    let (largest, indefinite) = match (signed, a.negative) {
        (true, negative) => (top - 1 + u64::from(negative), top),
        (false, true) => (0, all),
        (false, false) => (all, all),
    };
    match rounded {
        Some(r) if r.significand <= largest => {
            let value = if a.negative { r.significand.wrapping_neg() } else { r.significand };
            [value & all, raised_if(r.inexact, PRECISION), 0]
        }
        _ => [indefinite, INVALID, 0],
    }
}

/// Converts from an integer.
pub(super) fn from_integer(bits: u32, signed: bool, to: Format, a: u64, mode: u64) -> [u64; 3] {
    let number = (a << (64 - bits)).cast_signed() >> (64 - bits);
    if signed && let Some(result) = fast::from_integer(to, bits, number, Mode(mode)) {
        return result;
    }
    let (negative, magnitude) = if signed { (number < 0, number.unsigned_abs()) } else { (false, a) };
    match Real::from_integer(negative, magnitude) {
        Some(x) => {
            let (value, raised) = finish(to, Mode(mode), &x);
            [value, raised, 0]
        }
        None => [0, 0, 0],
    }
}
