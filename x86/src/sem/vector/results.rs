//! How results are written, under masks and above the vector length.

use super::algebra::{Block, Wide, lane};
use super::operands::{
    above, first_place, is_legacy, length, mask_bit, mask_bits, number, packed_source, register,
};
use crate::domain::{Bin, Domain};
use crate::machine::{Bool, Bv, Exec, Machine, PackedOf};
use crate::op::{Loc, Op};
use crate::packed::Packed;
use crate::sem::operand;

/// Computes the destination lane by lane from two sources: `f(lane of the first, lane of the second)`, of `w` bits. In
/// memory is the second at most; it is loaded as [`super::source`] does, or as [`super::source_whole`] if `whole`.
#[inline(always)]
pub(super) fn by_lanes<M: Machine>(
    m: &mut M,
    op: &Op,
    sources: [Loc; 2],
    w: u32,
    whole: bool,
    f: impl Fn(&M::D, Bv<M>, Bv<M>) -> Bv<M>,
) -> Exec {
    blockwise(m, op, sources, [w, w], whole, |d, _, a, b| {
        PackedOf::<M>::from_lanes(d, w, |n| f(d, a.lane(d, w, n), b.lane(d, w, n)))
    })
}

/// The same 128 bits by 128 bits: block `n` is `f(n, block of the first, block of the second)`. Memory has lanes
/// of `loaded` bits, all of which are loaded; the result has lanes of `w`.
#[inline(always)]
pub(super) fn by_blocks<M: Machine>(
    m: &mut M,
    op: &Op,
    sources: [Loc; 2],
    lanes: [u32; 2],
    f: impl Fn(&M::D, u8, PackedOf<M>, PackedOf<M>) -> PackedOf<M>,
) -> Exec {
    blockwise(m, op, sources, lanes, true, f)
}

/// A block is written before the next is read.
#[inline(always)]
fn blockwise<M: Machine>(
    m: &mut M,
    op: &Op,
    [a, b]: [Loc; 2],
    [loaded, w]: [u32; 2],
    whole: bool,
    f: impl Fn(&M::D, u8, PackedOf<M>, PackedOf<M>) -> PackedOf<M>,
) -> Exec {
    let (Loc::Vector(first), Loc::Vector(second), None) = (a, b, op.vector.mask.register()) else {
        return blockwise_of_any(m, op, [a, b], [loaded, w], whole, f);
    };
    let to = number(op.a);
    for n in 0..op.vector.parts / 2 {
        let v = f(m.d(), n, m.packed(first, n), m.packed(second, n));
        m.set_packed(to, n, v);
    }
    clear_above(m, op, to);
    Ok(())
}

/// [`blockwise`] with a mask, or with memory.
#[inline(never)]
fn blockwise_of_any<M: Machine>(
    m: &mut M,
    op: &Op,
    [a, b]: [Loc; 2],
    [loaded, w]: [u32; 2],
    whole: bool,
    f: impl Fn(&M::D, u8, PackedOf<M>, PackedOf<M>) -> PackedOf<M>,
) -> Exec {
    let second = packed_source(m, op, b, loaded, whole)?;
    let to = number(op.a);
    for (n, second) in (0..op.vector.parts / 2).zip(second) {
        let first = if a == b { second } else { m.packed(number(a), n) };
        let mut v = f(m.d(), n, first, second);
        if let Some(k) = op.vector.mask.register() {
            v = masked_block(m, op, w, k, n, v);
        }
        m.set_packed(to, n, v);
    }
    clear_above(m, op, to);
    Ok(())
}

/// Block `n` of a result, lanes of `w` bits, as the mask leaves it.
#[inline(always)]
fn masked_block<M: Machine>(m: &M, op: &Op, w: u32, k: u8, n: u8, v: PackedOf<M>) -> PackedOf<M> {
    let (d, new, old) = (m.d(), v.parts(), m.packed(number(op.a), n).parts());
    let part = |half: u8| {
        let at = usize::from(half);
        masked_part(d, op, w, m.opmask(k), 2 * n + half, new[at], old[at])
    };
    PackedOf::<M>::from_parts([part(0), part(1)])
}

/// Part `n` of a result, lanes of `w` bits, as the mask leaves it over the part `old` of the destination.
#[inline(always)]
fn masked_part<D: Domain>(d: &D, op: &Op, w: u32, mask: D::Bv, n: u8, new: D::Bv, old: D::Bv) -> D::Bv {
    let first = u64::from(n) * u64::from(64 / w);
    let bits = if first == 0 { mask } else { d.bin(Bin::Shr, 64, mask, d.lit(64, first)) };
    d.choose(w, bits, new, if op.vector.mask.is_zeroing() { d.lit(64, 0) } else { old })
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

/// Writes the destination register, whatever the mask says; zeros are above the vector length unless the encoding is
/// legacy.
#[inline(always)]
pub(super) fn set_packed<M: Machine>(m: &mut M, op: &Op, blocks: &[PackedOf<M>; 4]) {
    let to = number(op.a);
    for (n, block) in (0..op.vector.parts / 2).zip(blocks) {
        m.set_packed(to, n, *block);
    }
    clear_above(m, op, to);
}

/// Stores as many of the blocks as the vector has at `va`.
#[inline(always)]
pub(super) fn store_packed<M: Machine>(m: &mut M, op: &Op, va: Bv<M>, blocks: &[PackedOf<M>; 4]) -> Exec {
    match op.vector.parts {
        2 => m.store_packed(va, &blocks[..1]),
        4 => m.store_packed(va, &blocks[..2]),
        _ => m.store_packed(va, &blocks[..]),
    }
    .map_err(|trap| operand::non_canonical(op, trap))
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

/// The first `count` lanes of a result as the mask leaves them, and zeros above.
#[inline(never)]
fn masked<M: Machine>(m: &M, op: &Op, w: u32, count: u32, r: &Wide<M>) -> Wide<M> {
    let (d, old) = (m.d(), register(m, op.a));
    let Some(k) = op.vector.mask.register() else { return *r };
    let mut v = [d.lit(64, 0); 8];
    for (n, v) in (0..).zip(&mut v[..(count * w).div_ceil(64) as usize]) {
        let (new, old) = (r[usize::from(n)], old[usize::from(n)]);
        let of = |w| masked_part(d, op, w, m.opmask(k), n, new, old);
        *v = match w {
            8 => of(8),
            16 => of(16),
            32 => of(32),
            _ => of(64),
        };
    }
    let rest = count * w % 64;
    if rest != 0 {
        let last = (count * w / 64) as usize;
        v[last] = d.zext(rest, 64, d.trunc(64, rest, v[last]));
    }
    v
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
    let chosen = mask_bits(m, op);
    m.store_chosen(va, w, count, chosen, r).map_err(|trap| operand::non_canonical(op, trap))
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
