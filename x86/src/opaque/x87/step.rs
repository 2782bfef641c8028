//! FSCALE and the partial remainders.

use std::cmp::Ordering;

use super::number::{
    INVALID_RESULT, Mode, Operand, Value, finish, raised_if, result, signed_infinity, signed_zero,
};
use super::status::{C0, C1, C2, C3};
use crate::opaque::real::{Real, Rounding};

/// No exponent, added to any other, stays in range beyond this.
const SCALE_LIMIT: u64 = 0x1_0000;

pub(super) fn scale(a: &Operand, b: &Operand, mode: Mode) -> [u64; 3] {
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
pub(super) fn remainder(a: &Operand, b: &Operand, nearest: bool, mode: Mode) -> [u64; 3] {
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
