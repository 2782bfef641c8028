//! Operations on ST(0), alone or with ST(1), and moves between registers.

use super::arithmetic::{apply, is_nan};
use super::{Effect, Number, STACK_UNDERFLOW, check_pending, choose, indefinite, is_empty, number, place};
use crate::domain::{Bin, Domain};
use crate::machine::{Control, Exec, Machine};
use crate::op::Op;
use crate::opaque::{X87Arithmetic, status};

/// An operation with ST(0) as its first operand and its destination, chosen by the table.
pub trait Operation {
    /// The operation.
    const OP: X87Arithmetic;
    /// Whether ST(1) is an operand.
    const TWO: bool = false;
    /// Whether it is a remainder, which defines all conditions, and not only C1.
    const REMAINDER: bool = false;
}

/// FSQRT.
pub struct Sqrt;
impl Operation for Sqrt {
    const OP: X87Arithmetic = X87Arithmetic::Sqrt;
}
/// FRNDINT.
pub struct RoundToInteger;
impl Operation for RoundToInteger {
    const OP: X87Arithmetic = X87Arithmetic::RoundToInteger;
}
/// FSCALE.
pub struct Scale;
impl Operation for Scale {
    const OP: X87Arithmetic = X87Arithmetic::Scale;
    const TWO: bool = true;
}
/// FPREM.
pub struct Remainder;
impl Operation for Remainder {
    const OP: X87Arithmetic = X87Arithmetic::Remainder;
    const TWO: bool = true;
    const REMAINDER: bool = true;
}
/// FPREM1.
pub struct RemainderNearest;
impl Operation for RemainderNearest {
    const OP: X87Arithmetic = X87Arithmetic::RemainderNearest;
    const TWO: bool = true;
    const REMAINDER: bool = true;
}

/// ST(0) = op(ST(0), ST(1)).
pub fn operate<M: Machine, O: Operation>(m: &mut M, _op: &Op) -> Exec {
    check_pending(m)?;
    let second = u8::from(O::TWO);
    let empty = m.d().or(is_empty(m, 0), is_empty(m, second));
    let (value, found) = apply(m, O::OP, number(m, 0), number(m, second));
    let d = m.d();
    let value = choose(d, empty, indefinite(d), value);
    let found = d.ite(empty, 16, d.lit(16, STACK_UNDERFLOW), found);
    let effect = Effect::new(m, found).write(m, 0, value);
    if O::REMAINDER { with_quotient(m, effect, value) } else { effect }.commit(m);
    Ok(())
}

/// Defines all conditions; but a remainder that is held back or not a number has no quotient, and C0 and C3 stay
/// as they were.
fn with_quotient<M: Machine>(m: &M, effect: Effect<M>, remainder: Number<M>) -> Effect<M> {
    const QUOTIENT: u64 = status::C0 | status::C3;
    let d = m.d();
    let none = d.or(effect.is_held(m), is_nan(d, remainder));
    let old = d.bin(Bin::And, 16, m.control(Control::X87Status), d.lit(16, QUOTIENT));
    let raised = d.bin(Bin::And, 16, effect.found, d.lit(16, !status::CONDITIONS));
    let found = d.ite(none, 16, d.bin(Bin::Or, 16, raised, old), effect.found);
    Effect { found, ..effect }.conditions()
}

/// FXTRACT: the exponent replaces ST(0), then the significand is pushed.
pub fn extract<M: Machine>(m: &mut M, _op: &Op) -> Exec {
    check_pending(m)?;
    let empty = is_empty(m, 0);
    let (exponent, found) = apply(m, X87Arithmetic::Exponent, number(m, 0), number(m, 0));
    let (significand, _) = apply(m, X87Arithmetic::Significand, number(m, 0), number(m, 0));
    let d = m.d();
    let full = d.not(is_empty(m, 7));
    let exponent = choose(d, d.or(empty, full), indefinite(d), exponent);
    let significand = choose(d, empty, indefinite(d), significand);
    let found = d.ite(empty, 16, d.lit(16, STACK_UNDERFLOW), found);
    Effect::new(m, found).write(m, 0, exponent).push(m, significand).commit(m);
    Ok(())
}

/// FCHS, or FABS if `ABSOLUTE`: the sign, of NaNs too.
pub fn sign<M: Machine, const ABSOLUTE: bool>(m: &mut M, _op: &Op) -> Exec {
    const SIGN: u64 = 0x8000;
    check_pending(m)?;
    let empty = is_empty(m, 0);
    let (significand, sign_exponent) = number(m, 0);
    let d = m.d();
    let changed = if ABSOLUTE {
        d.bin(Bin::And, 16, sign_exponent, d.lit(16, !SIGN))
    } else {
        d.bin(Bin::Xor, 16, sign_exponent, d.lit(16, SIGN))
    };
    let value = choose(d, empty, indefinite(d), (significand, changed));
    let found = d.ite(empty, 16, d.lit(16, STACK_UNDERFLOW), d.lit(16, 0));
    Effect::new(m, found).write(m, 0, value).commit(m);
    Ok(())
}

/// FXCH. An empty register counts as the default NaN once the stack fault is masked.
pub fn exchange<M: Machine>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let i = place(op.b);
    let d = m.d();
    let (first, other) = (is_empty(m, 0), is_empty(m, i));
    let found = d.ite(d.or(first, other), 16, d.lit(16, STACK_UNDERFLOW), d.lit(16, 0));
    let to_other = choose(d, first, indefinite(d), number(m, 0));
    let to_first = choose(d, other, indefinite(d), number(m, i));
    Effect::new(m, found).write(m, i, to_other).write(m, 0, to_first).commit(m);
    Ok(())
}

/// FCMOVcc: ST(0) = ST(i) if condition `CC` (as Jcc encodes it) holds.
pub fn conditional_move<M: Machine, const CC: u8>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let i = place(op.b);
    let d = m.d();
    let holds = m.flags().holds(d, crate::op::Condition(CC));
    let empty = d.or(is_empty(m, 0), is_empty(m, i));
    let value = choose(d, holds, number(m, i), number(m, 0));
    let value = choose(d, empty, indefinite(d), value);
    let found = d.ite(empty, 16, d.lit(16, STACK_UNDERFLOW), d.lit(16, 0));
    Effect::new(m, found).write(m, 0, value).keeping_c1().commit(m);
    Ok(())
}

/// FINCSTP (`BY` 1), FDECSTP (`BY` 7).
pub fn rotate<M: Machine, const BY: u8>(m: &mut M, _op: &Op) -> Exec {
    check_pending(m)?;
    let nothing = m.d().lit(16, 0);
    Effect::new(m, nothing).rotate(BY).commit(m);
    Ok(())
}

/// FFREE, or FFREEP if `POP`.
pub fn free<M: Machine, const POP: bool>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let nothing = m.d().lit(16, 0);
    let effect = Effect::new(m, nothing).empty(m, place(op.a));
    if POP { effect.pop() } else { effect }.commit(m);
    Ok(())
}
