//! FST, FIST and their kin.
//!
//! An exception that is not masked keeps memory as it was, so the destination is read before it is written.

use super::load::upper_address;
use super::{
    Effect, Number, STACK_UNDERFLOW, check_pending, choose, indefinite, is_empty, mode, number, place,
};
use crate::domain::{Bin, Domain};
use crate::machine::{Bv, Exec, Machine};
use crate::op::Op;
use crate::opaque::Opaque;
use crate::sem::operand;
use crate::sem::vector::float::Float;

/// Stores `value` (`invalid` if ST(0) is empty) and its status, and pops if `POP`.
fn finish<M: Machine, const W: u32, const POP: bool>(
    m: &mut M,
    op: &Op,
    invalid: u64,
    (value, found): (Bv<M>, Bv<M>),
) -> Exec {
    let at = |trap| operand::non_canonical(op, trap);
    let va = operand::effective_address(m, op);
    m.prepare_store(va, u64::from(W / 8)).map_err(at)?;
    let old = m.load(W, va).map_err(at)?;
    let empty = is_empty(m, 0);
    let found = m.d().ite(empty, 16, m.d().lit(16, STACK_UNDERFLOW), found);
    let value = m.d().ite(empty, W, m.d().lit(W, invalid), value);
    let effect = Effect::new(m, found).into_memory();
    let stored = m.d().ite(effect.is_held(m), W, old, value);
    m.store(W, va, stored).map_err(at)?;
    if POP { effect.pop() } else { effect }.commit(m);
    Ok(())
}

/// FST, FSTP of a single or a double.
pub fn float<M: Machine, F: Float, const POP: bool>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let (significand, sign_exponent) = number(m, 0);
    let [value, found, _] =
        m.d().opaque(Opaque::X87ToFloat(F::FORMAT), &[significand, sign_exponent, mode(m)]);
    if F::W == 32 {
        finish::<M, 32, POP>(m, op, 0xffc0_0000, (value, found))
    } else {
        finish::<M, 64, POP>(m, op, 0xfff8_0000_0000_0000, (value, found))
    }
}

/// FIST, FISTP; FISTTP if `TRUNCATE`.
pub fn integer<M: Machine, const W: u32, const POP: bool, const TRUNCATE: bool>(m: &mut M, op: &Op) -> Exec {
    /// RC of the control word: toward zero.
    const RC_ZERO: u64 = 0xc00;
    check_pending(m)?;
    let (significand, sign_exponent) = number(m, 0);
    let d = m.d();
    let mode = if TRUNCATE { d.bin(Bin::Or, 16, mode(m), d.lit(16, RC_ZERO)) } else { mode(m) };
    let [value, found, _] = d.opaque(Opaque::X87ToInteger { bits: W }, &[significand, sign_exponent, mode]);
    finish::<M, W, POP>(m, op, 1 << (W - 1), (value, found))
}

/// FSTP of an 80-bit number, which raises nothing but a stack fault.
pub fn extended<M: Machine>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let empty = is_empty(m, 0);
    let d = m.d();
    let found = d.ite(empty, 16, d.lit(16, STACK_UNDERFLOW), d.lit(16, 0));
    let value = choose(d, empty, indefinite(d), number(m, 0));
    finish_80_bits(m, op, value, found)
}

/// Stores 80 bits and pops.
pub(super) fn finish_80_bits<M: Machine>(m: &mut M, op: &Op, value: Number<M>, found: Bv<M>) -> Exec {
    let at = |trap| operand::non_canonical(op, trap);
    let (va, above) = (operand::effective_address(m, op), upper_address(m, op));
    m.prepare_store(va, 10).map_err(at)?;
    let old = (m.load(64, va).map_err(at)?, m.load(16, above).map_err(at)?);
    let effect = Effect::new(m, found);
    let stored = choose(m.d(), effect.is_held(m), old, value);
    m.store(64, va, stored.0).map_err(at)?;
    m.store(16, above, stored.1).map_err(at)?;
    effect.pop().commit(m);
    Ok(())
}

/// FST ST(i), FSTP ST(i).
pub fn register<M: Machine, const POP: bool>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let empty = is_empty(m, 0);
    let d = m.d();
    let value = choose(d, empty, indefinite(d), number(m, 0));
    let found = d.ite(empty, 16, d.lit(16, STACK_UNDERFLOW), d.lit(16, 0));
    let effect = Effect::new(m, found).write(m, place(op.a), value);
    if POP { effect.pop() } else { effect }.commit(m);
    Ok(())
}
