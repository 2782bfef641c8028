//! FSIN, FCOS, FSINCOS, FPTAN, FPATAN, F2XM1, FYL2X, FYL2XP1.
//!
//! The first four refuse an angle that is too large: C2 is set and nothing else happens, so that for FSINCOS and
//! FPTAN the depth of the stack depends on the data.

use super::arithmetic::apply;
use super::{Effect, Number, STACK_UNDERFLOW, any_of, check_pending, choose, indefinite, is_empty, number};
use crate::domain::{Bin, Domain};
use crate::machine::{Bool, Bv, Exec, Machine};
use crate::op::Op;
use crate::opaque::{X87Arithmetic, status};

/// A function, chosen by the table.
pub trait Function {
    /// The operation.
    const OP: X87Arithmetic;
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        pub struct $name;
        impl Function for $name {
            const OP: X87Arithmetic = X87Arithmetic::$name;
        }
    )*};
}
functions! {
    /// FSIN.
    Sine;
    /// FCOS.
    Cosine;
    /// F2XM1.
    Power;
    /// FYL2X.
    Logarithm;
    /// FYL2XP1.
    LogarithmPlus1;
    /// FPATAN.
    AngleOfPoint;
}

/// A function of ST(0), and what it found; `empty` if there is no ST(0).
fn of_top<M: Machine>(m: &M, op: X87Arithmetic, empty: Bool<M>) -> (Number<M>, Bv<M>) {
    let (value, found) = apply(m, op, number(m, 0), number(m, 0));
    let d = m.d();
    (choose(d, empty, indefinite(d), value), d.ite(empty, 16, d.lit(16, STACK_UNDERFLOW), found))
}

/// FSIN, FCOS, F2XM1: ST(0) = f(ST(0)).
pub fn replace<M: Machine, F: Function>(m: &mut M, _op: &Op) -> Exec {
    check_pending(m)?;
    let (value, found) = of_top(m, F::OP, is_empty(m, 0));
    let effect = Effect::new(m, found).write(m, 0, value);
    if F::OP == X87Arithmetic::Power { effect } else { effect.defining(status::C2) }.commit(m);
    Ok(())
}

/// FYL2X, FYL2XP1, FPATAN: ST(1) = f(ST(0), ST(1)), then pops.
pub fn combine<M: Machine, F: Function>(m: &mut M, _op: &Op) -> Exec {
    check_pending(m)?;
    let empty = m.d().or(is_empty(m, 0), is_empty(m, 1));
    let (value, found) = apply(m, F::OP, number(m, 0), number(m, 1));
    let d = m.d();
    let value = choose(d, empty, indefinite(d), value);
    let found = d.ite(empty, 16, d.lit(16, STACK_UNDERFLOW), found);
    Effect::new(m, found).write(m, 1, value).pop().commit(m);
    Ok(())
}

/// FPTAN, which pushes one, and FSINCOS if `SINE`, which pushes the cosine.
pub fn replace_and_push<M: Machine, const SINE: bool>(m: &mut M, _op: &Op) -> Exec {
    check_pending(m)?;
    let (empty, full) = (is_empty(m, 0), m.d().not(is_empty(m, 7)));
    let first = if SINE { X87Arithmetic::Sine } else { X87Arithmetic::Tangent };
    let (replaced, mut found) = of_top(m, first, empty);
    let (pushed, more) = of_top(m, X87Arithmetic::Cosine, empty);
    let d = m.d();
    let too_large = d.and(any_of(d, found, status::C2), d.not(full));
    let pushed = if SINE {
        found = d.bin(Bin::Or, 16, found, more);
        pushed
    } else {
        let one = (d.lit(64, 1 << 63), d.lit(16, 0x3fff));
        choose(d, super::arithmetic::is_nan(d, replaced), replaced, one)
    };
    let replaced = choose(d, full, indefinite(d), replaced);
    let effect = Effect::new(m, found).defining(status::C2).write(m, 0, replaced);
    effect.push(m, pushed).unless(too_large).commit(m);
    Ok(())
}
