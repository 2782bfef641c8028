//! FSIN and its kin: the exact value, rounded.
//!
//! Processors compute these with a few bits more than the result has, so that theirs is the correctly rounded one most
//! of the time (on a Xeon of 2023: sines 97 to 99 %, logarithms and powers 85 to 95 %) and else off by one in the last
//! place; which it is differs from one to the next. What is exact here is reported as inexact, as they do.
//!
//! Angles are reduced by the pi of Intel's processors, which has 66 bits (SDM vol. 1, 8.3.8).

use super::number::{
    INVALID_RESULT, MAX_BIASED, MIN_EXPONENT, Mode, Number, Operand, SIGN, Value, finish, raised_if, result,
    signed_infinity, signed_zero,
};
use super::status::C2;
use crate::opaque::X87Arithmetic;
use crate::opaque::exception::{PRECISION, UNDERFLOW, ZERO_DIVIDE};
use crate::opaque::real::Real;
use crate::opaque::series::{
    ONE, PI, arctangent, cosine, log2, log2_of_1_and, negated, power_of_2_less_1, product, quotient, scaled,
    sine, sum, tangent,
};

/// Half of the 66-bit pi, in units of 2^-65.
const HALF_PI: u128 = 0x3_243f_6a88_85a3_08d3;
/// Angles from 2^63 on are refused.
const ANGLE_LIMIT: i32 = 63;
/// An operand below 2^-68 is its own sine or tangent, whatever the direction of rounding, as Intel's processors have it.
const TINY: i32 = -69;
/// And a ratio below 2^-40 its own arctangent.
const TINY_RATIO: i32 = -41;

/// Rounds a number that lies strictly between others.
fn inexact(mode: Mode, x: Real) -> [u64; 3] {
    finish(mode, 64, &Real { significand: x.significand | 1, ..x })
}

/// Rounds a number that may be exact, but counts as inexact.
fn as_inexact(mode: Mode, exact: &Real) -> [u64; 3] {
    let [x, y, status] = finish(mode, 64, exact);
    [x, y, status | PRECISION | raised_if(exact.exponent < MIN_EXPONENT, UNDERFLOW)]
}

fn zero(negative: bool) -> [u64; 3] {
    result(signed_zero(negative), 0)
}

fn infinity(negative: bool) -> [u64; 3] {
    result(signed_infinity(negative), 0)
}

fn one(negative: bool) -> Number {
    (1 << 63, MAX_BIASED >> 1 | raised_if(negative, SIGN))
}

/// An angle as quarter turns (modulo 4) and a rest of at most an eighth of one, both of its magnitude.
fn reduce(x: Real) -> (u64, Real) {
    let x = Real { negative: false, ..x };
    let eighth = Real::new(false, 62, HALF_PI).map(|half| scaled(half, -1));
    if eighth.is_none_or(|eighth| x.compare_magnitude(&eighth).is_le()) {
        return (0, x);
    }
    let (mut turns, mut rest) = (0_u64, x.significand >> 64);
    for _ in 0..x.exponent + 2 {
        rest <<= 1;
        turns = turns << 1 | u64::from(rest >= HALF_PI);
        rest -= if rest >= HALF_PI { HALF_PI } else { 0 };
    }
    let is_more = rest > HALF_PI / 2;
    let rest = Real::new(is_more, 62, if is_more { HALF_PI - rest } else { rest });
    // No 64-bit number is a multiple of the odd 66-bit one, so there is a rest.
    (turns + u64::from(is_more), rest.unwrap_or(x))
}

/// FSIN, FCOS and FPTAN of an operand that is not a NaN.
pub(super) fn angle(op: X87Arithmetic, a: &Operand, mode: Mode) -> [u64; 3] {
    let x = match a.value {
        Value::Zero if op == X87Arithmetic::Cosine => return result(one(false), 0),
        Value::Zero => return result(a.number, 0),
        Value::Finite(x) => x,
        _ => return INVALID_RESULT,
    };
    if x.exponent >= ANGLE_LIMIT {
        return result(a.number, C2);
    }
    if x.exponent <= TINY && op != X87Arithmetic::Cosine {
        return as_inexact(mode, &x);
    }
    let (turns, rest) = reduce(x);
    let is_odd = turns & 1 != 0;
    let (value, flips) = match op {
        X87Arithmetic::Sine => (if is_odd { cosine(rest) } else { sine(rest) }, turns & 2 != 0),
        X87Arithmetic::Cosine => (if is_odd { sine(rest) } else { cosine(rest) }, (turns + 1) & 2 != 0),
        _ if is_odd => (negated(quotient(ONE, tangent(rest))), false),
        _ => (tangent(rest), false),
    };
    let flips = flips != (x.negative && op != X87Arithmetic::Cosine);
    inexact(mode, if flips { negated(value) } else { value })
}

/// F2XM1. Outside of -1 to 1, where the manual leaves it open, the operand itself, as Intel's processors have it.
pub(super) fn power(a: &Operand, mode: Mode) -> [u64; 3] {
    match a.value {
        Value::Infinity if a.negative => result(one(true), 0),
        Value::Finite(x) if x.exponent < 0 => inexact(mode, power_of_2_less_1(x)),
        Value::Finite(x) if x == negated(ONE) => as_inexact(mode, &scaled(x, -1)),
        Value::Finite(x) => as_inexact(mode, &x),
        _ => result(a.number, 0),
    }
}

/// b times a logarithm: what zeros and infinities make of it. `log` is negative, zero, positive, or infinite.
fn times_special(b: &Operand, log: Log) -> [u64; 3] {
    match (b.value, log) {
        (Value::Infinity, Log::Zero(_)) | (Value::Zero, Log::Infinite(_)) => INVALID_RESULT,
        (Value::Infinity, Log::Infinite(negative) | Log::Finite(negative)) => {
            infinity(b.negative != negative)
        }
        (_, Log::Infinite(negative)) => infinity(b.negative != negative),
        (_, Log::Zero(negative) | Log::Finite(negative)) => zero(b.negative != negative),
    }
}

/// A logarithm as far as zeros and infinities care: true is negative.
#[derive(Clone, Copy)]
enum Log {
    Zero(bool),
    Finite(bool),
    Infinite(bool),
}

/// FYL2X: b * log2(a).
pub(super) fn logarithm(a: &Operand, b: &Operand, mode: Mode) -> [u64; 3] {
    match (a.value, b.value) {
        (Value::Zero, Value::Finite(_)) => {
            let [x, y, _] = infinity(!b.negative);
            [x, y, ZERO_DIVIDE]
        }
        (Value::Zero, _) => times_special(b, Log::Infinite(true)),
        _ if a.negative => INVALID_RESULT,
        (Value::Infinity, _) => times_special(b, Log::Infinite(false)),
        (Value::Finite(x), Value::Finite(y)) => match log2(x) {
            Some(log) if is_power_of_2(x) => as_inexact(mode, &product(log, y)),
            Some(log) => inexact(mode, product(log, y)),
            None => zero(b.negative),
        },
        (Value::Finite(x), _) => {
            let log = log2(x).map_or(Log::Zero(false), |log| Log::Finite(log.negative));
            times_special(b, log)
        }
        _ => INVALID_RESULT,
    }
}

fn is_power_of_2(x: Real) -> bool {
    x.significand << 1 == 0
}

/// FYL2XP1: b * log2(a + 1). For a of -1 and below, where there is no such number, a, as Intel's processors have it.
pub(super) fn logarithm_plus_1(a: &Operand, b: &Operand, mode: Mode) -> [u64; 3] {
    match (a.value, b.value) {
        (Value::Infinity, _) if a.negative => INVALID_RESULT,
        (Value::Infinity, _) => times_special(b, Log::Infinite(false)),
        (Value::Zero, _) => times_special(b, Log::Zero(a.negative)),
        (Value::Finite(x), Value::Finite(y)) if x.exponent < -1 => {
            inexact(mode, product(log2_of_1_and(x), y))
        }
        (Value::Finite(x), Value::Finite(y)) => match x.add(ONE).filter(|more| !more.negative) {
            Some(more) if is_power_of_2(more) => as_inexact(mode, &product(log2(more).unwrap_or(more), y)),
            Some(more) => inexact(mode, product(log2(more).unwrap_or(more), y)),
            None => as_inexact(mode, &x),
        },
        _ => times_special(b, Log::Finite(a.negative)),
    }
}

/// FPATAN: the angle of the point whose abscissa is a and whose ordinate is b.
pub(super) fn angle_of_point(a: &Operand, b: &Operand, mode: Mode) -> [u64; 3] {
    let signed = |angle: Real| inexact(mode, Real { negative: b.negative, ..angle });
    let eighths = |n: i32| match n {
        1 => scaled(PI, -2),
        2 => scaled(PI, -1),
        3 => sum(scaled(PI, -1), scaled(PI, -2)),
        _ => PI,
    };
    match (b.value, a.value) {
        (Value::Infinity, Value::Infinity) => signed(eighths(if a.negative { 3 } else { 1 })),
        (Value::Infinity, _) => signed(eighths(2)),
        (_, Value::Infinity) | (Value::Zero, _) if a.negative => signed(eighths(4)),
        (_, Value::Infinity) | (Value::Zero, _) => zero(b.negative),
        (Value::Finite(_), Value::Zero) => signed(eighths(2)),
        (Value::Finite(y), Value::Finite(x)) => {
            let [x, y] = [x, y].map(|v| Real { negative: false, ..v });
            if y.exponent - x.exponent <= TINY_RATIO && !a.negative {
                return as_inexact(mode, &Real { negative: b.negative, ..y.div(x) });
            }
            let angle = if y.compare_magnitude(&x).is_le() {
                arctangent(quotient(y, x))
            } else {
                sum(eighths(2), negated(arctangent(quotient(x, y))))
            };
            signed(if a.negative { sum(PI, negated(angle)) } else { angle })
        }
        _ => INVALID_RESULT,
    }
}
