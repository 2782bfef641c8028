//! FADD, FSUB, FMUL, FDIV in all their forms.

use super::load::{from_float, from_integer};
use super::{
    Effect, Number, STACK_UNDERFLOW, check_pending, choose, indefinite, is_empty, mode, number, place,
};
use crate::domain::{Bin, Cmp, Domain};
use crate::machine::{Bool, Bv, Exec, Machine};
use crate::op::Op;
use crate::opaque::{Opaque, X87Arithmetic, exception};
use crate::sem::operand;
use crate::sem::vector::float::Float;

/// An operation, chosen by the table.
pub trait Operation {
    /// The operation.
    const OP: X87Arithmetic;
    /// Whether the operands change places: source - destination, source / destination.
    const REVERSED: bool = false;
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $op:ident, $reversed:literal;)*) => {$(
        $(#[$doc])*
        pub struct $name;
        impl Operation for $name {
            const OP: X87Arithmetic = X87Arithmetic::$op;
            const REVERSED: bool = $reversed;
        }
    )*};
}
operations! {
    /// FADD, FADDP, FIADD.
    Add = Add, false;
    /// FSUB, FSUBP, FISUB.
    Sub = Sub, false;
    /// FSUBR, FSUBRP, FISUBR.
    SubReversed = Sub, true;
    /// FMUL, FMULP, FIMUL.
    Mul = Mul, false;
    /// FDIV, FDIVP, FIDIV.
    Div = Div, false;
    /// FDIVR, FDIVRP, FIDIVR.
    DivReversed = Div, true;
}

/// Applies a two-operand operation: the result and the status.
pub(super) fn apply<M: Machine>(m: &M, op: X87Arithmetic, a: Number<M>, b: Number<M>) -> (Number<M>, Bv<M>) {
    let [significand, sign_exponent, found] = m.d().opaque(Opaque::X87(op), &[a.0, a.1, b.0, b.1, mode(m)]);
    ((significand, sign_exponent), found)
}

/// ST(`to`) = ST(`to`) op `source`; `empty` if an operand is missing.
fn operate<M: Machine, O: Operation>(m: &M, to: u8, source: Number<M>, empty: Bool<M>) -> (Number<M>, Bv<M>) {
    let destination = number(m, to);
    let (a, b) = if O::REVERSED { (source, destination) } else { (destination, source) };
    let (value, found) = apply(m, O::OP, a, b);
    let d = m.d();
    (choose(d, empty, indefinite(d), value), d.ite(empty, 16, d.lit(16, STACK_UNDERFLOW), found))
}

/// Between registers: the destination is operand a, the source operand b. FADDP and its kin pop.
pub fn registers<M: Machine, O: Operation, const POP: bool>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let (to, from) = (place(op.a), place(op.b));
    let empty = m.d().or(is_empty(m, to), is_empty(m, from));
    let (value, found) = operate::<M, O>(m, to, number(m, from), empty);
    let effect = Effect::new(m, found).write(m, to, value);
    if POP { effect.pop() } else { effect }.commit(m);
    Ok(())
}

/// Whether a number is a NaN.
pub(super) fn is_nan<D: Domain>(d: &D, v: (D::Bv, D::Bv)) -> D::Bool {
    let exponent = d.trunc(16, 15, v.1);
    let fraction = d.bin(Bin::Shl, 64, v.0, d.lit(64, 1));
    d.and(d.cmp(Cmp::Eq, 15, exponent, d.lit(15, 0x7fff)), d.not(d.is_zero(64, fraction)))
}

/// ST(0) and a single or double in memory. Widening makes a denormal normal, so its exception is added here,
/// where a NaN or a division by zero does not outrank it.
pub fn float<M: Machine, F: Float, O: Operation>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let loaded = operand::load(m, op, F::W)?;
    let empty = is_empty(m, 0);
    let d = m.d();
    let (source, widened) = from_float::<M, F>(d, loaded, false);
    let (value, found) = operate::<M, O>(m, 0, source, empty);
    let outranked = d.or(is_nan(d, value), super::any_of(d, found, exception::ZERO_DIVIDE));
    let denormal = d.bin(Bin::And, 16, widened, d.lit(16, exception::DENORMAL));
    let found = d.ite(outranked, 16, found, d.bin(Bin::Or, 16, found, denormal));
    Effect::new(m, found).write(m, 0, value).commit(m);
    Ok(())
}

/// ST(0) and an integer in memory.
pub fn integer<M: Machine, const W: u32, O: Operation>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let loaded = operand::load(m, op, W)?;
    let source = from_integer(m.d(), W, loaded);
    let (value, found) = operate::<M, O>(m, 0, source, is_empty(m, 0));
    Effect::new(m, found).write(m, 0, value).commit(m);
    Ok(())
}
