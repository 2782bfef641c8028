//! FBLD and FBSTP: integers of 18 decimal digits, two in a byte, with a sign in the byte above.

use super::load::{from_integer, upper_address};
use super::store::finish_80_bits;
use super::{Effect, STACK_UNDERFLOW, any_of, check_pending, is_empty, mode, number};
use crate::domain::{Bin, Cmp, Domain};
use crate::machine::{Exec, Machine};
use crate::op::Op;
use crate::opaque::{Opaque, exception};
use crate::sem::operand;

/// 10^18.
const LIMIT: u64 = 1_000_000_000_000_000_000;
/// "Packed decimal indefinite", what an invalid operation stores: digits and sign.
const INDEFINITE: (u64, u64) = (0xc000_0000_0000_0000, 0xffff);
const SIGN: u64 = 0x8000;

/// FBLD. Digits above nine, which the manual leaves open, count as they are.
pub fn load<M: Machine>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let low = operand::load(m, op, 64)?;
    let above = upper_address(m, op);
    let high = m.load(16, above).map_err(|trap| operand::non_canonical(op, trap))?;
    let d = m.d();
    let digits = (0..2).map(|n| d.extract(16, 4 * n, 4, high)).rev();
    let digits = digits.chain((0..16).map(|n| d.extract(64, 4 * n, 4, low)).rev());
    let magnitude = digits.fold(d.lit(64, 0), |sum, digit| {
        let tens = d.bin(Bin::Mul, 64, sum, d.lit(64, 10));
        d.bin(Bin::Add, 64, tens, d.zext(4, 64, digit))
    });
    let (significand, exponent) = from_integer(d, 64, magnitude);
    let sign_exponent = d.bin(Bin::Or, 16, exponent, d.bin(Bin::And, 16, high, d.lit(16, SIGN)));
    let nothing = d.lit(16, 0);
    Effect::new(m, nothing).push(m, (significand, sign_exponent)).commit(m);
    Ok(())
}

/// FBSTP.
pub fn store<M: Machine>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let (significand, sign_exponent) = number(m, 0);
    let empty = is_empty(m, 0);
    let d = m.d();
    let [integer, found, _] =
        d.opaque(Opaque::X87ToInteger { bits: 64 }, &[significand, sign_exponent, mode(m)]);
    let magnitude = d.ite(d.sign(64, integer), 64, d.negate(64, integer), integer);
    let too_large = d.not(d.cmp(Cmp::Ult, 64, magnitude, d.lit(64, LIMIT)));
    let found = d.ite(too_large, 16, d.lit(16, exception::INVALID), found);
    let found = d.ite(empty, 16, d.lit(16, STACK_UNDERFLOW), found);
    let (zero, ten) = (d.lit(64, 0), d.lit(64, 10));
    let mut rest = magnitude;
    let mut digit = || {
        let division = d.divide(false, 64, zero, rest, ten);
        rest = division.quotient;
        d.trunc(64, 4, division.remainder)
    };
    let low = (1..16).fold(digit(), |digits, n| d.concat(4, digit(), 4 * n, digits));
    let high = [digit(), digit()];
    let high = d.zext(8, 16, d.concat(4, high[1], 4, high[0]));
    let high = d.bin(Bin::Or, 16, high, d.bin(Bin::And, 16, sign_exponent, d.lit(16, SIGN)));
    let invalid = any_of(d, found, exception::INVALID);
    let low = d.ite(invalid, 64, d.lit(64, INDEFINITE.0), low);
    let high = d.ite(invalid, 16, d.lit(16, INDEFINITE.1), high);
    finish_80_bits(m, op, (low, high), found)
}
