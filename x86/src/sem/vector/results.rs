//! How results are written, under masks and above the vector length.

use super::algebra::{Block, Wide, lane};
use super::operands::{
    above, empty_blocks, first_place, is_legacy, length, mask_bit, mask_bits, number, packed_sources,
    register,
};
use crate::domain::{Bin, Domain};
use crate::machine::{Bool, Bv, Exec, Machine, PackedOf};
use crate::op::{Loc, Op};
use crate::packed::{Lane, Packed};
use crate::sem::operand::{self, Bits};

/// The width of lanes. It is a type, since the compiler must know it wherever it compiles what is done with them.
pub(super) trait LaneWidth {
    /// In bits.
    const W: u32;
}

impl<const W: u32> LaneWidth for Bits<W> {
    const W: u32 = W;
}

/// Computes the destination lane by lane from two sources: `f(lane of the first, lane of the second)`. In memory is
/// the second at most; it is loaded as [`super::source`] does, or as [`super::source_whole`] if `whole`.
#[inline(always)]
pub(super) fn by_lanes<M: Machine, W: LaneWidth>(
    m: &mut M,
    op: &Op,
    sources: [Loc; 2],
    whole: bool,
    f: impl Fn(&M::D, Bv<M>, Bv<M>) -> Bv<M>,
) -> Exec {
    blockwise(m, op, sources, [W::W, W::W], whole, |d, _, a, b| {
        PackedOf::<M>::from_lanes(d, W::W, |n| f(d, a.lane(d, W::W, n), b.lane(d, W::W, n)))
    })
}

/// The same with a description of a lane, which a domain may apply to all lanes at once.
#[inline(always)]
pub(super) fn by_lane<M: Machine, L: Lane>(m: &mut M, op: &Op, sources: [Loc; 2], whole: bool) -> Exec {
    blockwise(m, op, sources, [L::W, L::W], whole, |d, _, a, b| PackedOf::<M>::each::<L>(d, a, b))
}

/// The same 128 bits by 128 bits: block `n` is `f(n, block of the first, block of the second)`. Memory has lanes
/// of `loaded` bits, all of which are loaded; the result has lanes of `w`.
#[inline(always)]
pub(super) fn by_blocks<M: Machine>(
    m: &mut M,
    op: &Op,
    sources: [Loc; 2],
    lanes: [u32; 2],
    f: impl Fn(&M::D, u8, &PackedOf<M>, &PackedOf<M>) -> PackedOf<M>,
) -> Exec {
    blockwise(m, op, sources, lanes, true, f)
}

/// [`by_blocks`] where memory is loaded whole only if `whole`. Most often it is 128 bits of registers, at once.
#[inline(always)]
pub(super) fn blockwise<M: Machine>(
    m: &mut M,
    op: &Op,
    [a, b]: [Loc; 2],
    [loaded, w]: [u32; 2],
    whole: bool,
    f: impl Fn(&M::D, u8, &PackedOf<M>, &PackedOf<M>) -> PackedOf<M>,
) -> Exec {
    let (Loc::Vector(first), Loc::Vector(second), 2, None) =
        (a, b, op.vector.parts, op.vector.mask.register())
    else {
        return blockwise_of_any(m, op, [a, b], [loaded, w], whole, f);
    };
    let v = f(m.d(), 0, &m.packed(first, 0), &m.packed(second, 0));
    set_blocks(m, op, &[v]);
    Ok(())
}

/// [`blockwise`] with a mask, with memory, or of more than 128 bits.
#[inline(never)]
fn blockwise_of_any<M: Machine>(
    m: &mut M,
    op: &Op,
    sources: [Loc; 2],
    [loaded, w]: [u32; 2],
    whole: bool,
    f: impl Fn(&M::D, u8, &PackedOf<M>, &PackedOf<M>) -> PackedOf<M>,
) -> Exec {
    let (mut a, mut b) = (empty_blocks::<M, 4>(m), empty_blocks::<M, 4>(m));
    packed_sources(m, op, sources, (loaded, whole), [&mut a, &mut b])?;
    let mut v = [a[0]; 4];
    for (n, v) in (0..op.vector.parts / 2).zip(&mut v) {
        let at = usize::from(n & 3);
        of_block(m.d(), n, &a[at], &b[at], &f, v);
    }
    commit_blocks(m, op, w, &mut v);
    Ok(())
}

/// `v` becomes `f(n, a, b)`. It is a function by itself: amid others, the compiler would not see that the lanes are alike.
#[inline(never)]
fn of_block<D: Domain>(
    d: &D,
    n: u8,
    a: &D::Packed,
    b: &D::Packed,
    f: &impl Fn(&D, u8, &D::Packed, &D::Packed) -> D::Packed,
    v: &mut D::Packed,
) {
    *v = f(d, n, a, b);
}

/// Writes as many blocks as the vector has to the destination register: lanes of `w` bits under the mask.
#[inline(never)]
fn commit_blocks<M: Machine>(m: &mut M, op: &Op, w: u32, blocks: &mut [PackedOf<M>; 4]) {
    let blocks = &mut blocks[..usize::from(op.vector.parts / 2).min(4)];
    if op.vector.mask.register().is_some() {
        mask_blocks(m, op, w, blocks);
    }
    let to = number(op.a);
    for (n, block) in (0..).zip(blocks) {
        m.set_packed(to, n, *block);
    }
    clear_above(m, op, to);
}

/// The blocks of a result, lanes of `w` bits, become what the mask leaves of them.
fn mask_blocks<M: Machine>(m: &M, op: &Op, w: u32, blocks: &mut [PackedOf<M>]) {
    let d = m.d();
    for (n, block) in (0..).zip(blocks) {
        let (new, old) = (block.parts(d), m.packed(number(op.a), n).parts(d));
        *block = PackedOf::<M>::from_parts([0, 1].map(|half| {
            let at = usize::from(half);
            masked_part(d, op, w, mask_bits(m, op), 2 * n + half, new[at], old[at])
        }));
    }
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

/// Writes the destination register, whatever the mask says; zeros are above the blocks unless the encoding is legacy.
#[inline(always)]
pub(super) fn set_blocks<M: Machine, const N: usize>(m: &mut M, op: &Op, blocks: &[PackedOf<M>; N]) {
    let to = number(op.a);
    for (n, block) in (0..).zip(blocks) {
        m.set_packed(to, n, *block);
    }
    if !is_legacy(op) {
        let zero = m.d().lit(64, 0);
        for part in (2 * N..8).filter_map(|n| u8::try_from(n).ok()) {
            m.set_vector(to, part, zero);
        }
    }
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
    let (d, old) = (m.d(), register(m, op, op.a));
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
