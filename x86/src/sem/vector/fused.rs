//! FMA: multiplication and addition with one rounding. One handler serves all orders of the operands and all signs.

use super::float::{Float, Raised, each_lane, mode, of_lane, settle};
use super::{Wide, commit, commit_low_over, lane, low_of, number, register, source};
use crate::machine::{Bv, Exec, Machine};
use crate::op::{Loc, Op};
use crate::opaque::{Fused, Opaque};

/// The opcode byte, which the table leaves as the selector: its high digit is the order of the operands, its low digit
/// the signs (Intel SDM vol. 2, table A-4).
fn opcode(op: &Op) -> u8 {
    op.cc.0
}

/// Multiplicand, multiplier and addend among the three operands: 132, 213 or 231.
fn ordered<T>(op: &Op, a: T, b: T, c: T) -> [T; 3] {
    match opcode(op) >> 4 {
        9 => [a, c, b],
        0xa => [b, a, c],
        _ => [b, c, a],
    }
}

/// The function of lane `n`: of VFMADDSUB and VFMSUBADD, the addend's sign changes from lane to lane.
fn function<F: Float>(op: &Op, n: u32) -> Opaque {
    let signs = opcode(op) & 15;
    let (negate_product, negate_addend) = match signs {
        6 => (false, n.is_multiple_of(2)),
        7 => (false, !n.is_multiple_of(2)),
        _ => (signs & 4 != 0, signs & 2 != 0),
    };
    Opaque::SseFused(Fused { format: F::FORMAT, negate_product, negate_addend })
}

/// The packed forms.
pub fn packed<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let c = source(m, op, op.c, F::W)?;
    let [x, y, z]: [Wide<M>; 3] = ordered(op, register(m, op, op.a), register(m, op, op.b), c);
    let mode = mode(m, op);
    let (r, raised) = each_lane(m, op, F::W, |d, raised, n| {
        let args = [lane(d, F::W, n, &x), lane(d, F::W, n, &y), lane(d, F::W, n, &z), mode];
        raised.apply(d, function::<F>(op, n), &args)
    });
    settle(m, op, &raised)?;
    commit(m, op, F::W, r);
    Ok(())
}

/// The scalar forms: the rest of the 128 bits stays.
pub fn scalar<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let c = low_of(m, op, op.c, F::W)?;
    let [x, y, z] = ordered(op, low::<M, F>(m, op.a), low::<M, F>(m, op.b), c);
    let (mode, mut raised) = (mode(m, op), Raised::none(m.d()));
    let v = of_lane(m, op, 0, &mut raised, &mut |d, raised, _| {
        raised.apply(d, function::<F>(op, 0), &[x, y, z, mode])
    });
    settle(m, op, &raised)?;
    commit_low_over(m, op, op.a, F::W, v);
    Ok(())
}

/// The low lane of a register.
fn low<M: Machine, F: Float>(m: &M, loc: Loc) -> Bv<M> {
    lane(m.d(), F::W, 0, &[m.vector(number(loc), 0)])
}
