//! Vectors as lanes of any width.

use super::operands::parts;
use crate::domain::Domain;
use crate::machine::Bv;
use crate::op::Op;

/// 512 bits as parts of 64, the lowest first.
pub(crate) type Wide<M> = [Bv<M>; 8];

/// 128 bits: low half, high half.
pub(crate) type Block<D> = [<D as Domain>::Bv; 2];

/// Lane `n` of `w` bits.
#[inline(always)]
pub(super) fn lane<D: Domain>(d: &D, w: u32, n: u32, v: &[D::Bv]) -> D::Bv {
    lane_of_part(d, w, n % (64 / w), v[(n * w / 64) as usize])
}

/// Lane `n` of `w` bits of 64.
#[inline(always)]
pub(super) fn lane_of_part<D: Domain>(d: &D, w: u32, n: u32, part: D::Bv) -> D::Bv {
    if w == 64 { part } else { d.extract(64, n * w, w, part) }
}

/// The vector whose lane `n` of `w` bits is `f(n)`, up to the vector length.
#[inline(always)]
pub(super) fn from_lanes<D: Domain>(d: &D, op: &Op, w: u32, mut f: impl FnMut(u32) -> D::Bv) -> [D::Bv; 8] {
    let mut v = [d.lit(64, 0); 8];
    for (first, part) in (0..).step_by(64 / w as usize).zip(&mut v[..parts(op)]) {
        *part = part_from_lanes(d, w, |n| f(first + n));
    }
    v
}

/// The vector whose part `n` is `f(n)`, up to the vector length.
#[inline(always)]
pub(super) fn from_parts<D: Domain>(d: &D, op: &Op, mut f: impl FnMut(usize) -> D::Bv) -> [D::Bv; 8] {
    let mut v = [d.lit(64, 0); 8];
    for (n, part) in v[..parts(op)].iter_mut().enumerate() {
        *part = f(n);
    }
    v
}

/// The vector whose lane `n` of `w` bits is `f(n)` for the first `count` lanes, and zero above.
pub(super) fn first_lanes<D: Domain>(
    d: &D,
    w: u32,
    count: u32,
    mut f: impl FnMut(u32) -> D::Bv,
) -> [D::Bv; 8] {
    let mut v = [d.lit(64, 0); 8];
    for (first, part) in (0..count).step_by(64 / w as usize).zip(&mut v) {
        *part = part_from_lanes(d, w, |n| if first + n < count { f(first + n) } else { d.lit(w, 0) });
    }
    v
}

/// The 64 bits whose lane `n` of `w` bits is `f(n)`.
#[inline(always)]
pub(super) fn part_from_lanes<D: Domain>(d: &D, w: u32, mut f: impl FnMut(u32) -> D::Bv) -> D::Bv {
    let mut part = f(0);
    for n in 1..64 / w {
        part = d.concat(w, f(n), n * w, part);
    }
    part
}

/// The 128 bits whose lane `n` of `w` bits is `f(n)`.
#[inline(always)]
pub(super) fn block_from_lanes<D: Domain>(d: &D, w: u32, mut f: impl FnMut(u32) -> D::Bv) -> Block<D> {
    let low = part_from_lanes(d, w, &mut f);
    [low, part_from_lanes(d, w, |n| f(64 / w + n))]
}

/// The blocks' `f(0)`, `f(1)`.. of `w` bits each (at most 16), side by side in 64 bits.
#[inline(always)]
pub(super) fn side_by_side<D: Domain>(d: &D, blocks: u8, w: u32, mut f: impl FnMut(u8) -> D::Bv) -> D::Bv {
    let (mut bits, mut count) = (f(0), w);
    for n in 1..blocks {
        bits = d.concat(w, f(n), count, bits);
        count += w;
    }
    d.zext(count, 64, bits)
}

/// Computes each 128 bits by themselves: block `n` is `f(n, block of a, block of b)`.
#[inline(always)]
pub(super) fn in_blocks<D: Domain>(
    d: &D,
    op: &Op,
    a: &[D::Bv; 8],
    b: &[D::Bv; 8],
    mut f: impl FnMut(u32, Block<D>, Block<D>) -> Block<D>,
) -> [D::Bv; 8] {
    let mut v = [d.lit(64, 0); 8];
    for n in 0..parts(op) / 2 {
        let block = f(u32::try_from(n).unwrap_or(0), [a[2 * n], a[2 * n + 1]], [b[2 * n], b[2 * n + 1]]);
        v[2 * n..2 * n + 2].copy_from_slice(&block);
    }
    v
}

/// `v` with lane `n` of `w` bits replaced.
#[inline(always)]
pub(super) fn with_lane<D: Domain>(d: &D, w: u32, n: u32, v: Block<D>, value: D::Bv) -> Block<D> {
    block_from_lanes(d, w, |i| if i == n { value } else { lane(d, w, i, &v) })
}

/// The register whose low 128 bits are `block`.
#[inline(always)]
pub(super) fn from_block<D: Domain>(d: &D, block: Block<D>) -> [D::Bv; 8] {
    let zero = d.lit(64, 0);
    [block[0], block[1], zero, zero, zero, zero, zero, zero]
}

/// The low 128 bits.
#[inline(always)]
pub(super) fn low_block<D: Domain>(v: &[D::Bv; 8]) -> Block<D> {
    [v[0], v[1]]
}

/// All ones or all zeros.
#[inline(always)]
pub(super) fn mask<D: Domain>(d: &D, w: u32, c: D::Bool) -> D::Bv {
    d.ite(c, w, d.lit(w, u64::MAX), d.lit(w, 0))
}
