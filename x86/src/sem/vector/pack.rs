//! Lanes made narrower or wider.

use super::lanes::{saturate_signed, saturate_unsigned};
use super::{
    by_blocks, commit, commit_lanes, commit_store, first_lanes, from_lanes, lane, length, register,
    source_of, sources,
};
use crate::domain::{Cmp, Domain};
use crate::machine::{Exec, Machine, PackedOf};
use crate::op::{Loc, Op};
use crate::packed::Packed;
use crate::sem::operand;

/// PACKSSWB, PACKSSDW, PACKUSWB, PACKUSDW: in each 128 bits, the lanes of first and second source, saturated to `W`
/// bits.
pub fn narrow<M: Machine, const W: u32, const SIGNED: bool>(m: &mut M, op: &Op) -> Exec {
    let per_block = 64 / W;
    by_blocks(m, op, sources(op), [2 * W, W], |d, _, a, b| {
        PackedOf::<M>::from_lanes(d, W, |n| {
            let v = (if n < per_block { a } else { b }).lane(d, 2 * W, n % per_block);
            if SIGNED { saturate_signed(d, 2 * W, W, v) } else { saturate_unsigned(d, 2 * W, W, v) }
        })
    })
}

/// PMOVSX, PMOVZX: the low lanes of `FROM` bits, extended to `TO` bits.
pub fn widen<M: Machine, const FROM: u32, const TO: u32, const SIGNED: bool>(m: &mut M, op: &Op) -> Exec {
    let b = source_of(m, op, op.b, length(op) / TO * FROM, FROM)?;
    let d = m.d();
    let r = from_lanes(d, op, TO, |n| {
        let v = lane(d, FROM, n, &b);
        if SIGNED { d.sext(FROM, TO, v) } else { d.zext(FROM, TO, v) }
    });
    commit(m, op, TO, r);
    Ok(())
}

/// How a lane is cut.
pub trait Cut {
    /// `v` of `from` bits in `to` bits.
    fn cut<D: Domain>(d: &D, from: u32, to: u32, v: D::Bv) -> D::Bv;
}

/// VPMOVWB and its kin: the low bits.
pub struct Low;
/// VPMOVSWB and its kin: the nearest signed number.
pub struct Signed;
/// VPMOVUSWB and its kin: the nearest unsigned number to an unsigned one.
pub struct Unsigned;

impl Cut for Low {
    #[inline(always)]
    fn cut<D: Domain>(d: &D, from: u32, to: u32, v: D::Bv) -> D::Bv {
        d.trunc(from, to, v)
    }
}
impl Cut for Signed {
    #[inline(always)]
    fn cut<D: Domain>(d: &D, from: u32, to: u32, v: D::Bv) -> D::Bv {
        saturate_signed(d, from, to, v)
    }
}
impl Cut for Unsigned {
    #[inline(always)]
    fn cut<D: Domain>(d: &D, from: u32, to: u32, v: D::Bv) -> D::Bv {
        let most = d.lit(from, u64::MAX >> (64 - to));
        d.trunc(from, to, d.ite(d.cmp(Cmp::Ult, from, most, v), from, most, v))
    }
}

/// VPMOVWB, VPMOVSWB, VPMOVUSWB and their kin: lanes of `FROM` bits cut to `TO`, in the low part of a register or in
/// memory.
pub fn cut<M: Machine, C: Cut, const FROM: u32, const TO: u32>(m: &mut M, op: &Op) -> Exec {
    let (b, count) = (register(m, op, op.b), length(op) / FROM);
    let r = first_lanes(m.d(), TO, count, |n| C::cut(m.d(), FROM, TO, lane(m.d(), FROM, n, &b)));
    if op.a == Loc::Mem {
        let va = operand::effective_address(m, op);
        return commit_store(m, op, va, TO, count, &r);
    }
    commit_lanes(m, op, TO, count, r);
    Ok(())
}
