//! The rules of the x87 (Intel SDM vol. 1, 4.8 and 8): the 80-bit format with its unsupported encodings, NaNs,
//! precision control, and C1 as the direction of rounding. A number is (significand, sign and exponent).
//!
//! This file: arithmetic and comparison. `number`: the format. `step`: FSCALE and FPREM. `convert`: the other
//! formats. `transcendental`: sines, logarithms and the like.

mod convert;
mod number;
mod step;
mod transcendental;

use std::cmp::Ordering;

use super::X87Arithmetic;
use super::basic::{self, Outcome};
use super::exception::{DENORMAL, INVALID, ZERO_DIVIDE};
use super::real::{Real, Rounding};
pub(super) use convert::{from_float, to_float, to_integer};
use number::{
    INVALID_RESULT, Mode, Number, Operand, Value, encode, finish, propagate_nan, raised_if, result,
    rounding_status, signed_infinity, signed_zero,
};
use status::{C0, C2, C3};
use step::{remainder, scale};

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

/// Arithmetic on a and b, or on a alone.
pub(super) fn arithmetic(op: X87Arithmetic, a: Number, b: Number, mode: u64) -> [u64; 3] {
    let (a, b, mode) = (Operand::new(a), Operand::new(b), Mode(mode));
    match op {
        X87Arithmetic::Sqrt => square_root(&a, mode),
        X87Arithmetic::RoundToInteger => round_to_integer(&a, mode),
        X87Arithmetic::Exponent => exponent(&a),
        X87Arithmetic::Significand => significand(&a),
        X87Arithmetic::Sine | X87Arithmetic::Cosine | X87Arithmetic::Tangent | X87Arithmetic::Power => {
            if let Some(nan) = propagate_nan(&[a]) {
                return nan;
            }
            let computed = match op {
                X87Arithmetic::Power => transcendental::power(&a, mode),
                _ => transcendental::angle(op, &a, mode),
            };
            with_denormal(computed, a.denormal)
        }
        _ => {
            if let Some(nan) = propagate_nan(&[a, b]) {
                return nan;
            }
            let computed = match op {
                X87Arithmetic::Scale => scale(&a, &b, mode),
                X87Arithmetic::Remainder => remainder(&a, &b, false, mode),
                X87Arithmetic::RemainderNearest => remainder(&a, &b, true, mode),
                X87Arithmetic::Logarithm => transcendental::logarithm(&a, &b, mode),
                X87Arithmetic::LogarithmPlus1 => transcendental::logarithm_plus_1(&a, &b, mode),
                X87Arithmetic::AngleOfPoint => transcendental::angle_of_point(&a, &b, mode),
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
    let (x, y) = (a.as_number(), b.as_number());
    let outcome = match op {
        X87Arithmetic::Add => basic::add(x, y),
        X87Arithmetic::Sub => basic::add(x, -y),
        X87Arithmetic::Mul => basic::multiply(x, y),
        _ => basic::divide(x, y),
    };
    match outcome {
        Outcome::Exact(exact) => finish(mode, mode.precision(), &exact),
        Outcome::Zero(negative) => result(signed_zero(negative), 0),
        Outcome::Cancelled => result(signed_zero(mode.rounding() == Rounding::Down), 0),
        Outcome::Infinity(negative) => result(signed_infinity(negative), 0),
        Outcome::DividedByZero(negative) => result(signed_infinity(negative), ZERO_DIVIDE),
        Outcome::Invalid => INVALID_RESULT,
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
