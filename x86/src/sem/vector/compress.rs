//! The lanes that a mask names put side by side, and put back to where the mask has them.

use super::{
    Wide, above, commit, first_lanes, from_lanes, is_active, lane, length, parts, register, set_register,
    store_chosen,
};
use crate::domain::{Bin, Cmp, Domain};
use crate::machine::{Bool, Bv, Exec, Machine};
use crate::op::{Loc, Op};
use crate::sem::operand;

/// For each lane, and for the end: how many of the lanes below it the mask names, 8 bits.
fn ranks<M: Machine>(m: &M, op: &Op, count: u32) -> Vec<Bv<M>> {
    let d = m.d();
    let mut ranks = vec![d.lit(8, 0)];
    for n in 0..count {
        let below = ranks[n as usize];
        ranks.push(d.bin(Bin::Add, 8, below, d.from_bool(8, is_active(m, op, n))));
    }
    ranks
}

/// For each lane: whether it is one of the first, of which there are as many as the mask names.
fn is_filled<M: Machine>(m: &M, ranks: &[Bv<M>]) -> Vec<Bool<M>> {
    let (d, total) = (m.d(), ranks[ranks.len() - 1]);
    (0..ranks.len() as u64 - 1).map(|n| d.cmp(Cmp::Ult, 8, d.lit(8, n), total)).collect()
}

/// The lanes of `v` that the mask names, side by side, and whatever above them. Each goes down by as many lanes as the
/// mask leaves out below it: by one if the number is odd, then by two, and so on. In this order no two of them meet
/// (Warren, Hacker's Delight, "Compress, or generalized extract").
fn moved_down<M: Machine>(m: &M, op: &Op, w: u32, v: &Wide<M>, ranks: &[Bv<M>]) -> Vec<Bv<M>> {
    let (d, none) = (m.d(), m.d().lit(8, 0));
    let with_way = |(n, &rank): (u32, &Bv<M>)| {
        let way = d.bin(Bin::Sub, 8, d.lit(8, u64::from(n)), rank);
        (lane(d, w, n, v), d.ite(is_active(m, op, n), 8, way, none))
    };
    let mut lanes: Vec<_> = (0..).zip(&ranks[..ranks.len() - 1]).map(with_way).collect();
    for bit in 0..lanes.len().trailing_zeros() {
        for n in 0..lanes.len() {
            let (stays, way) = lanes[n];
            let way = d.ite(d.bit(8, bit, way), 8, none, way);
            lanes[n] = match lanes.get(n + (1 << bit)) {
                Some(&(other, its_way)) => {
                    let comes = d.bit(8, bit, its_way);
                    (d.ite(comes, w, other, stays), d.ite(comes, 8, its_way, way))
                }
                None => (stays, way),
            };
        }
    }
    lanes.into_iter().map(|(v, _)| v).collect()
}

/// VPCOMPRESSB and its kin: lane n is the n-th of those that the mask names; further lanes are not stored, and in a
/// register stay or become zero.
pub fn compress<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let (count, v) = (length(op) / W, register(m, op, op.b));
    let ranks = ranks(m, op, count);
    let filled = is_filled(m, &ranks);
    let lanes = moved_down(m, op, W, &v, &ranks);
    let d = m.d();
    let r = first_lanes(d, W, count, |n| lanes[n as usize]);
    if op.a == Loc::Mem {
        let va = operand::effective_address(m, op);
        return store_chosen(m, op, va, W, &filled, &r);
    }
    let old = register(m, op, op.a);
    let r = first_lanes(d, W, count, |n| {
        let other = if op.vector.mask.is_zeroing() { d.lit(W, 0) } else { lane(d, W, n, &old) };
        d.ite(filled[n as usize], W, lane(d, W, n, &r), other)
    });
    set_register(m, op, op.a, r);
    Ok(())
}

/// VPEXPANDB and its kin: the n-th lane that the mask names is lane n of the source, of which no more is loaded than the
/// mask has lanes.
pub fn expand<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let count = length(op) / W;
    let ranks = ranks(m, op, count);
    let mut v = register(m, op, op.b);
    if op.b == Loc::Mem {
        let va = operand::effective_address(m, op);
        let mut lanes = Vec::with_capacity(64);
        for (at, c) in (0..).step_by(W as usize / 8).zip(is_filled(m, &ranks)) {
            let from = above(m.d(), va, at);
            lanes.push(m.load_if(c, W, from).map_err(|trap| operand::non_canonical(op, trap))?);
        }
        v = first_lanes(m.d(), W, count, |n| lanes[n as usize]);
    }
    let (d, bits) = (m.d(), count.trailing_zeros());
    let r = from_lanes(d, op, W, |n| d.select(W, &v[..parts(op)], d.trunc(8, bits, ranks[n as usize])));
    commit(m, op, W, r);
    Ok(())
}
