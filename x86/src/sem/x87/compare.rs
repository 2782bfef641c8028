//! FCOM and its kin, FTST, FXAM.

use super::load::{from_float, from_integer};
use super::{Effect, Number, STACK_UNDERFLOW, any_of, check_pending, is_empty, number, place};
use crate::domain::{Bin, Cmp, Domain};
use crate::flags::Flags;
use crate::machine::{Bool, Bv, Control, Exec, Machine};
use crate::op::Op;
use crate::opaque::{Opaque, exception, status};
use crate::sem::operand;
use crate::sem::vector::float::Float;

/// The conditions of operands that cannot be compared.
const UNORDERED: u64 = status::C0 | status::C2 | status::C3;

/// The status of comparing ST(0) with `other`; `empty` if an operand is missing.
fn compare<M: Machine>(m: &M, signaling: bool, other: Number<M>, empty: Bool<M>) -> Bv<M> {
    let (d, first) = (m.d(), number(m, 0));
    let [found, _, _] = d.opaque(Opaque::X87Compare { signaling }, &[first.0, first.1, other.0, other.1]);
    d.ite(empty, 16, d.lit(16, UNORDERED | STACK_UNDERFLOW), found)
}

fn commit<M: Machine, const POPS: u8>(m: &mut M, found: Bv<M>) {
    let effect = Effect::new(m, found).conditions();
    (0..POPS).fold(effect, |effect, _| effect.pop()).commit(m);
}

/// FCOM, FCOMP, FCOMPP (`SIGNALING`), FUCOM, FUCOMP, FUCOMPP with ST(i).
pub fn registers<M: Machine, const SIGNALING: bool, const POPS: u8>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let i = if POPS == 2 { 1 } else { place(op.b) };
    let empty = m.d().or(is_empty(m, 0), is_empty(m, i));
    let found = compare(m, SIGNALING, number(m, i), empty);
    commit::<M, POPS>(m, found);
    Ok(())
}

/// FCOM, FCOMP with a single or double in memory.
pub fn float<M: Machine, F: Float, const POPS: u8>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let loaded = operand::load(m, op, F::W)?;
    let d = m.d();
    let (other, widened) = from_float::<M, F>(d, loaded, false);
    let found = compare(m, true, other, is_empty(m, 0));
    let denormal = d.bin(Bin::And, 16, widened, d.lit(16, exception::DENORMAL));
    let unordered = any_of(d, found, status::C2);
    let found = d.ite(unordered, 16, found, d.bin(Bin::Or, 16, found, denormal));
    commit::<M, POPS>(m, found);
    Ok(())
}

/// FICOM, FICOMP.
pub fn integer<M: Machine, const W: u32, const POPS: u8>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let loaded = operand::load(m, op, W)?;
    let other = from_integer(m.d(), W, loaded);
    let found = compare(m, true, other, is_empty(m, 0));
    commit::<M, POPS>(m, found);
    Ok(())
}

/// FTST: with zero.
pub fn test<M: Machine>(m: &mut M, _op: &Op) -> Exec {
    check_pending(m)?;
    let zero = (m.d().lit(64, 0), m.d().lit(16, 0));
    let found = compare(m, true, zero, is_empty(m, 0));
    commit::<M, 0>(m, found);
    Ok(())
}

/// FCOMI, FCOMIP (`SIGNALING`), FUCOMI, FUCOMIP: the relation as unsigned comparison flags.
pub fn to_flags<M: Machine, const SIGNALING: bool, const POPS: u8>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let i = place(op.b);
    let empty = m.d().or(is_empty(m, 0), is_empty(m, i));
    let found = compare(m, SIGNALING, number(m, i), empty);
    let d = m.d();
    let clear = d.bool(false);
    let condition = |c| any_of(d, found, c);
    let carry_parity_zero = [condition(status::C0), condition(status::C2), condition(status::C3)];
    let [carry, parity, zero] = carry_parity_zero;
    let flags = Flags::from_bits(d, [carry, parity, clear, zero, clear, clear]);
    let without_conditions = d.bin(Bin::And, 16, found, d.lit(16, !UNORDERED));
    let effect = Effect::new(m, without_conditions).keeping_c1();
    m.set_flags(flags);
    if POPS == 1 { effect.pop() } else { effect }.commit(m);
    Ok(())
}

/// FXAM: the class of ST(0) in C3, C2, C0 and its sign in C1; it raises nothing.
pub fn examine<M: Machine>(m: &mut M, _op: &Op) -> Exec {
    const EMPTY: u64 = status::C3 | status::C0;
    const NAN: u64 = status::C0;
    const INFINITY: u64 = status::C2 | status::C0;
    const NORMAL: u64 = status::C2;
    const ZERO: u64 = status::C3;
    const DENORMAL: u64 = status::C3 | status::C2;
    const UNSUPPORTED: u64 = 0;
    check_pending(m)?;
    let empty = is_empty(m, 0);
    let (significand, sign_exponent) = number(m, 0);
    let d = m.d();
    let exponent = d.trunc(16, 15, sign_exponent);
    let class = |c, then, other| d.ite(c, 16, d.lit(16, then), other);
    let integer_bit = d.sign(64, significand);
    let fraction_is_zero = d.is_zero(63, d.trunc(64, 63, significand));
    let small = class(d.is_zero(64, significand), ZERO, d.lit(16, DENORMAL));
    let large = class(fraction_is_zero, INFINITY, d.lit(16, NAN));
    let is_large = d.cmp(Cmp::Eq, 15, exponent, d.lit(15, 0x7fff));
    let supported = d.ite(is_large, 16, large, d.lit(16, NORMAL));
    let not_small = d.ite(integer_bit, 16, supported, d.lit(16, UNSUPPORTED));
    let found = class(empty, EMPTY, d.ite(d.is_zero(15, exponent), 16, small, not_small));
    let sign = class(d.sign(16, sign_exponent), status::C1, d.lit(16, 0));
    let found = d.bin(Bin::Or, 16, found, sign);
    let status = {
        let kept = d.lit(16, !status::CONDITIONS);
        d.bin(Bin::Or, 16, d.bin(Bin::And, 16, m.control(Control::X87Status), kept), found)
    };
    m.set_control(Control::X87Status, status);
    Ok(())
}
