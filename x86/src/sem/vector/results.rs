//! How results are written, under masks and above the vector length.

use super::algebra::{Block, Wide, first_lanes, from_parts, lane};
use super::operands::{
    above, both_sources, first_place, is_active, is_legacy, length, mask_bit, number, parts, register,
};
use crate::domain::{Bin, Domain};
use crate::machine::{Bool, Bv, Exec, Machine};
use crate::op::{Loc, Op};
use crate::sem::operand;

/// Computes the destination part by part from two sources: `f(part of the first, part of the second)`, lanes of `w`
/// bits. In memory is the second at most; it is loaded as [`super::source`] does, or as [`super::source_whole`] if `whole`.
///
/// A part is written before the next is read; and no more is read at once, since the host is slow to load at once what
/// the instruction before has just stored in parts.
#[inline(always)]
pub(super) fn by_parts<M: Machine>(
    m: &mut M,
    op: &Op,
    sources: [Loc; 2],
    w: u32,
    whole: bool,
    f: impl Fn(&M::D, Bv<M>, Bv<M>) -> Bv<M>,
) -> Exec {
    if let (None, [Loc::Vector(a), Loc::Vector(b)]) = (op.vector.mask.register(), sources) {
        let to = number(op.a);
        for n in 0..op.vector.parts {
            let v = f(m.d(), m.vector(a, n), m.vector(b, n));
            m.set_vector(to, n, v);
        }
        clear_above(m, op, to);
        return Ok(());
    }
    by_parts_of_any(m, op, sources, w, whole, f)
}

/// [`by_parts`] with a mask, or with memory.
#[inline(never)]
fn by_parts_of_any<M: Machine>(
    m: &mut M,
    op: &Op,
    sources: [Loc; 2],
    w: u32,
    whole: bool,
    f: impl Fn(&M::D, Bv<M>, Bv<M>) -> Bv<M>,
) -> Exec {
    let [a, b] = both_sources(m, op, sources, w, whole)?;
    let r = from_parts(m.d(), op, |n| f(m.d(), a[n], b[n]));
    commit(m, op, w, r);
    Ok(())
}

/// As [`by_parts`], 128 bits by 128 bits: block `n` is `f(n, block of the first, block of the second)`. Memory has lanes
/// of `loaded` bits, all of which are loaded; the result has lanes of `w`.
#[inline(always)]
pub(super) fn by_blocks<M: Machine>(
    m: &mut M,
    op: &Op,
    sources: [Loc; 2],
    [loaded, w]: [u32; 2],
    f: impl Fn(&M::D, u8, Block<M::D>, Block<M::D>) -> Block<M::D>,
) -> Exec {
    if let (None, [Loc::Vector(a), Loc::Vector(b)]) = (op.vector.mask.register(), sources) {
        let to = number(op.a);
        for n in 0..op.vector.parts / 2 {
            let block = |register| [m.vector(register, 2 * n), m.vector(register, 2 * n + 1)];
            let [low, high] = f(m.d(), n, block(a), block(b));
            m.set_vector(to, 2 * n, low);
            m.set_vector(to, 2 * n + 1, high);
        }
        clear_above(m, op, to);
        return Ok(());
    }
    by_blocks_of_any(m, op, sources, [loaded, w], f)
}

/// [`by_blocks`] with a mask, or with memory.
#[inline(never)]
fn by_blocks_of_any<M: Machine>(
    m: &mut M,
    op: &Op,
    sources: [Loc; 2],
    [loaded, w]: [u32; 2],
    f: impl Fn(&M::D, u8, Block<M::D>, Block<M::D>) -> Block<M::D>,
) -> Exec {
    let [a, b] = both_sources(m, op, sources, loaded, true)?;
    let mut r = [m.d().lit(64, 0); 8];
    for (n, block) in (0..).zip(r[..parts(op)].chunks_exact_mut(2)) {
        let k = 2 * usize::from(n);
        block.copy_from_slice(&f(m.d(), n, [a[k], a[k + 1]], [b[k], b[k + 1]]));
    }
    commit(m, op, w, r);
    Ok(())
}

/// Clears what is above the vector length, unless the encoding is legacy.
#[inline(always)]
fn clear_above<M: Machine>(m: &mut M, op: &Op, register: u8) {
    if !is_legacy(op) {
        let zero = m.d().lit(64, 0);
        match op.vector.parts {
            2 => [2, 3, 4, 5, 6, 7].iter().for_each(|part| m.set_vector(register, *part, zero)),
            4 => [4, 5, 6, 7].iter().for_each(|part| m.set_vector(register, *part, zero)),
            _ => {}
        }
    }
}

/// Writes the destination register: lanes of `w` bits under the mask, zeros above the vector length unless the
/// encoding is legacy.
#[inline(always)]
pub(super) fn commit<M: Machine>(m: &mut M, op: &Op, w: u32, r: Wide<M>) {
    commit_lanes(m, op, w, length(op) / w, r);
}

/// Writes the destination register where the result is the first `count` lanes, and zeros above them.
#[inline(always)]
pub(super) fn commit_lanes<M: Machine>(m: &mut M, op: &Op, w: u32, count: u32, mut r: Wide<M>) {
    if op.vector.mask.register().is_some() {
        r = masked(m, op, w, count, &r);
    }
    set_register(m, op, op.a, r);
}

/// Writes the vector register at `loc`, whatever the mask says.
#[inline(always)]
pub(super) fn set_register<M: Machine>(m: &mut M, op: &Op, loc: Loc, r: Wide<M>) {
    let n = number(loc);
    m.set_vector(n, 0, r[0]);
    m.set_vector(n, 1, r[1]);
    if !is_legacy(op) {
        let zero = m.d().lit(64, 0);
        for part in 2..8 {
            m.set_vector(n, part, if part < op.vector.parts { r[usize::from(part)] } else { zero });
        }
    }
}

/// The first `count` lanes of a result as the mask leaves them.
#[inline(never)]
fn masked<M: Machine>(m: &M, op: &Op, w: u32, count: u32, r: &Wide<M>) -> Wide<M> {
    let (d, old) = (m.d(), register(m, op.a));
    first_lanes(d, w, count, |n| {
        let other = if op.vector.mask.is_zeroing() { d.lit(w, 0) } else { lane(d, w, n, &old) };
        d.ite(is_active(m, op, n), w, lane(d, w, n, r), other)
    })
}

/// Writes the low lane of the destination, `w` bits, under bit 0 of the mask; the rest of its 128 bits is that of the
/// first source.
#[inline(always)]
pub(super) fn commit_low<M: Machine>(m: &mut M, op: &Op, w: u32, v: Bv<M>) {
    commit_low_over(m, op, first_place(op), w, v);
}

/// The same where the rest is that of the register `rest`.
#[inline(always)]
pub(super) fn commit_low_over<M: Machine>(m: &mut M, op: &Op, rest: Loc, w: u32, mut v: Bv<M>) {
    if let Some(active) = mask_bit(m, op, 0) {
        let (d, old) = (m.d(), m.vector(number(op.a), 0));
        let other = if op.vector.mask.is_zeroing() { d.lit(w, 0) } else { d.trunc(64, w, old) };
        v = d.ite(active, w, v, other);
    }
    let from = number(rest);
    let a: Block<M::D> = [m.vector(from, 0), m.vector(from, 1)];
    let d = m.d();
    let low = if w == 64 { v } else { d.concat(64 - w, d.extract(64, w, 64 - w, a[0]), w, v) };
    let to = number(op.a);
    m.set_vector(to, 0, low);
    if !is_legacy(op) {
        m.set_vector(to, 1, a[1]);
        clear_above(m, op, to);
    }
}

/// Writes the opmask register that is the destination: its first `count` bits are `f(0)`, `f(1)`.. where the mask has
/// them, the others are clear.
#[inline(always)]
pub(super) fn commit_mask<M: Machine>(m: &mut M, op: &Op, count: u32, f: impl Fn(&M::D, u32) -> Bool<M>) {
    let d = m.d();
    let mut bits = d.from_bool(1, f(d, 0));
    for n in 1..count {
        bits = d.concat(1, d.from_bool(1, f(d, n)), n, bits);
    }
    let bits = d.zext(count, 64, bits);
    set_mask(m, op, bits);
}

/// Writes those of the 64 bits to the opmask register that is the destination which the mask has, and clears the others.
#[inline(always)]
pub(super) fn set_mask<M: Machine>(m: &mut M, op: &Op, mut bits: Bv<M>) {
    let Loc::Mask(to) = op.a else { return };
    let d = m.d();
    if let Some(k) = op.vector.mask.register() {
        bits = d.bin(Bin::And, 64, bits, m.opmask(k));
    }
    m.set_opmask(to, bits);
}

/// Stores the first `count` lanes of `w` bits at the memory operand, at `va`, under the mask.
#[inline(always)]
pub(super) fn commit_store<M: Machine>(
    m: &mut M,
    op: &Op,
    va: Bv<M>,
    w: u32,
    count: u32,
    r: &Wide<M>,
) -> Exec {
    if op.vector.mask.register().is_some() {
        return store_masked(m, op, va, w, count, r);
    }
    let bits = w * count;
    let stored = if bits < 64 {
        let low = m.d().trunc(64, bits, r[0]);
        m.store(bits, va, low)
    } else {
        m.store_parts(va, &r[..bits as usize / 64])
    };
    stored.map_err(|trap| operand::non_canonical(op, trap))
}

/// [`commit_store`] under a mask.
#[inline(never)]
fn store_masked<M: Machine>(m: &mut M, op: &Op, va: Bv<M>, w: u32, count: u32, r: &Wide<M>) -> Exec {
    let conditions: Vec<Bool<M>> = (0..count).map(|n| is_active(m, op, n)).collect();
    store_chosen(m, op, va, w, &conditions, r)
}

/// Stores those lanes of `w` bits whose condition holds, all or nothing.
pub(super) fn store_chosen<M: Machine>(
    m: &mut M,
    op: &Op,
    va: Bv<M>,
    w: u32,
    conditions: &[Bool<M>],
    r: &Wide<M>,
) -> Exec {
    for (at, &c) in (0..).step_by(w as usize / 8).zip(conditions) {
        let to = above(m.d(), va, at);
        m.prepare_store_if(c, to, u64::from(w / 8)).map_err(|trap| operand::non_canonical(op, trap))?;
    }
    for (n, &c) in (0..).zip(conditions) {
        let (to, v) = (above(m.d(), va, n * w / 8), lane(m.d(), w, n, r));
        m.store_if(c, w, to, v).map_err(|trap| operand::non_canonical(op, trap))?;
    }
    Ok(())
}
