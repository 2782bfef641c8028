//! Numbers taken apart, scaled, chosen and approximated: AVX-512, and the approximations of SSE.

use super::convert::rounding_mode;
use super::float::{Float, Raised, each_lane, mode, of_lane, settle};
use super::{commit, commit_low, first, first_low, lane, register, second, second_low, source};
use crate::domain::Domain;
use crate::machine::{Bv, Exec, Machine};
use crate::op::Op;
use crate::opaque::{Approximation, Auxiliary, Opaque};

/// The operations by the selector that the table leaves.
const OPERATIONS: [Auxiliary; 10] = [
    Auxiliary::RoundScale,
    Auxiliary::Reduce,
    Auxiliary::Exponent,
    Auxiliary::Significand,
    Auxiliary::Scale,
    Auxiliary::Range,
    Auxiliary::Approximate(Approximation::Reciprocal),
    Auxiliary::Approximate(Approximation::ReciprocalRoot),
    Auxiliary::Approximate(Approximation::Reciprocal14),
    Auxiliary::Approximate(Approximation::ReciprocalRoot14),
];

/// The selector of an operation.
#[must_use]
pub fn selector(op: Auxiliary) -> u8 {
    (0..).zip(OPERATIONS).find(|(_, o)| *o == op).map_or(0, |(n, _)| n)
}

fn operation(op: &Op) -> Auxiliary {
    OPERATIONS[usize::from(op.cc.0) % OPERATIONS.len()]
}

/// What is to be evaluated, and the mode, whose RC the immediate may replace.
fn function<M: Machine, F: Float>(m: &M, op: &Op) -> (Opaque, Bv<M>) {
    let auxiliary = operation(op);
    let mode = match auxiliary {
        Auxiliary::RoundScale | Auxiliary::Reduce => rounding_mode(m, op),
        _ => mode(m, op),
    };
    (Opaque::SseAuxiliary { op: auxiliary, format: F::FORMAT, imm: op.imm.to_le_bytes()[0] }, mode)
}

/// The packed forms.
pub fn packed<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let (a, b) = if operation(op).is_unary() {
        let b = source(m, op, op.b, F::W)?;
        (b, b)
    } else {
        let b = second(m, op, F::W)?;
        (first(m, op), b)
    };
    let (function, mode) = function::<M, F>(m, op);
    let (r, raised) = each_lane(m, op, F::W, |d, raised, n| {
        raised.apply(d, function, &[lane(d, F::W, n, &a), lane(d, F::W, n, &b), mode])
    });
    settle(m, op, &raised)?;
    commit(m, op, F::W, r);
    Ok(())
}

/// The scalar forms: the rest of the 128 bits is that of the first source.
pub fn scalar<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let b = second_low(m, op, F::W)?;
    let a = if operation(op).is_unary() { b } else { first_low(m, op, F::W) };
    let (function, mode) = function::<M, F>(m, op);
    let mut raised = Raised::none(m.d());
    let v = of_lane(m, op, 0, &mut raised, &mut |d, raised, _| raised.apply(d, function, &[a, b, mode]));
    settle(m, op, &raised)?;
    commit_low(m, op, F::W, v);
    Ok(())
}

fn fix_up<F: Float>(op: &Op) -> Opaque {
    Opaque::SseFixUp { format: F::FORMAT, imm: op.imm.to_le_bytes()[0] }
}

/// VFIXUPIMMPS, VFIXUPIMMPD: by a table in the low 32 bits of each lane of the third operand.
pub fn fix_up_packed<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let table = second(m, op, F::W)?;
    let (old, b) = (register(m, op, op.a), first(m, op));
    let (mode, function) = (mode(m, op), fix_up::<F>(op));
    let (r, raised) = each_lane(m, op, F::W, |d, raised, n| {
        let row = lane(d, 32, n * F::W / 32, &table);
        raised.apply(d, function, &[lane(d, F::W, n, &old), lane(d, F::W, n, &b), row, mode])
    });
    settle(m, op, &raised)?;
    commit(m, op, F::W, r);
    Ok(())
}

/// VFIXUPIMMSS, VFIXUPIMMSD.
pub fn fix_up_scalar<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let table = second_low(m, op, F::W)?;
    let (old, b) = (lane(m.d(), F::W, 0, &register(m, op, op.a)), first_low(m, op, F::W));
    let row = if F::W == 32 { table } else { m.d().trunc(F::W, 32, table) };
    let (mode, function, mut raised) = (mode(m, op), fix_up::<F>(op), Raised::none(m.d()));
    let args = [old, b, row, mode];
    let v = of_lane(m, op, 0, &mut raised, &mut |d, raised, _| raised.apply(d, function, &args));
    settle(m, op, &raised)?;
    commit_low(m, op, F::W, v);
    Ok(())
}
