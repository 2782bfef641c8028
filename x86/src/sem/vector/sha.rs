//! SHA-1 and SHA-256 (FIPS 180), a few rounds at a time; exact, for they are sums, rotations and choices of 32 bits.
//!
//! The instructions keep the oldest of four words in the highest lane (SHA-1) or the lowest (SHA-256's schedule).

use super::{Block, block_from_lanes, commit, first, from_block, immediate, lane, low_block, second_whole};
use crate::domain::{Bin, Domain};
use crate::machine::{Exec, Machine};
use crate::op::Op;

const W: u32 = 32;

fn add<D: Domain>(d: &D, terms: &[D::Bv]) -> D::Bv {
    terms[1..].iter().fold(terms[0], |sum, &term| d.bin(Bin::Add, W, sum, term))
}

fn xor<D: Domain>(d: &D, a: D::Bv, b: D::Bv) -> D::Bv {
    d.bin(Bin::Xor, W, a, b)
}

fn and<D: Domain>(d: &D, a: D::Bv, b: D::Bv) -> D::Bv {
    d.bin(Bin::And, W, a, b)
}

/// Rotates right.
fn rotated<D: Domain>(d: &D, n: u32, a: D::Bv) -> D::Bv {
    d.concat(n, d.trunc(W, n, a), W - n, d.extract(W, n, W - n, a))
}

/// Where the bits of `a` are set those of `b`, elsewhere those of `c`.
fn choice<D: Domain>(d: &D, a: D::Bv, b: D::Bv, c: D::Bv) -> D::Bv {
    xor(d, and(d, a, b), and(d, d.complement(W, a), c))
}

fn majority<D: Domain>(d: &D, a: D::Bv, b: D::Bv, c: D::Bv) -> D::Bv {
    xor(d, xor(d, and(d, a, b), and(d, a, c)), and(d, b, c))
}

/// The rotations of `a` by the three amounts, added without carries; the last is a shift if `SHIFTS`.
fn sigma<D: Domain, const SHIFTS: bool>(d: &D, amounts: [u32; 3], a: D::Bv) -> D::Bv {
    let [x, y] = [amounts[0], amounts[1]].map(|n| rotated(d, n, a));
    let z = match SHIFTS {
        true => d.bin(Bin::Shr, W, a, d.lit(W, amounts[2].into())),
        false => rotated(d, amounts[2], a),
    };
    xor(d, xor(d, x, y), z)
}

/// The two sources, and the block that `f` makes of them, lane by lane from the lowest.
fn with_sources<M: Machine>(
    m: &mut M,
    op: &Op,
    f: impl FnOnce(&M::D, Block<M::D>, Block<M::D>) -> [<M::D as Domain>::Bv; 4],
) -> Exec {
    let b = second_whole(m, op, W)?;
    let a = first(m, op);
    let d = m.d();
    let lanes = f(d, low_block::<M::D>(&a), low_block::<M::D>(&b));
    let block = block_from_lanes(d, W, |n| lanes[n as usize]);
    let r = from_block(d, block);
    commit(m, op, W, r);
    Ok(())
}

/// The four lanes, the highest first.
fn words<D: Domain>(d: &D, v: &Block<D>) -> [D::Bv; 4] {
    [3, 2, 1, 0].map(|n| lane(d, W, n, v))
}

/// SHA1RNDS4: four rounds, with the function and constant that the immediate chooses.
pub fn sha1_rounds<M: Machine>(m: &mut M, op: &Op) -> Exec {
    const CONSTANTS: [u64; 4] = [0x5a82_7999, 0x6ed9_eba1, 0x8f1b_bcdc, 0xca62_c1d6];
    let kind = immediate(op) & 3;
    with_sources(m, op, |d, state, schedule| {
        let [mut a, mut b, mut c, mut e_next] = words(d, &state);
        // The first word of the schedule has E added to it already.
        let mut e = d.lit(W, 0);
        for w in words(d, &schedule) {
            let f = match kind {
                0 => choice(d, b, c, e_next),
                2 => majority(d, b, c, e_next),
                _ => xor(d, xor(d, b, c), e_next),
            };
            let sum = add(d, &[f, rotated(d, 27, a), w, e, d.lit(W, CONSTANTS[kind as usize])]);
            (e, e_next, c, b, a) = (e_next, c, rotated(d, 2, b), a, sum);
        }
        [e_next, c, b, a]
    })
}

/// SHA1NEXTE: adds the E that the first word of the state becomes after four rounds.
pub fn sha1_next_e<M: Machine>(m: &mut M, op: &Op) -> Exec {
    with_sources(m, op, |d, state, schedule| {
        let [a, ..] = words(d, &state);
        let [w0, w1, w2, w3] = words(d, &schedule);
        [w3, w2, w1, add(d, &[w0, rotated(d, 2, a)])]
    })
}

/// SHA1MSG1.
pub fn sha1_schedule_1<M: Machine>(m: &mut M, op: &Op) -> Exec {
    with_sources(m, op, |d, a, b| {
        let [w0, w1, w2, w3] = words(d, &a);
        let [w4, w5, ..] = words(d, &b);
        [xor(d, w5, w3), xor(d, w4, w2), xor(d, w3, w1), xor(d, w2, w0)]
    })
}

/// SHA1MSG2.
pub fn sha1_schedule_2<M: Machine>(m: &mut M, op: &Op) -> Exec {
    with_sources(m, op, |d, a, b| {
        let next = |sum, w| rotated(d, 31, xor(d, sum, w));
        let [s0, s1, s2, s3] = words(d, &a);
        let [_, w13, w14, w15] = words(d, &b);
        let w16 = next(s0, w13);
        [next(s3, w16), next(s2, w15), next(s1, w14), w16]
    })
}

/// SHA256RNDS2: two rounds; the words of the schedule, with the constants added, are in xmm0.
pub fn sha256_rounds<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let schedule = m.vector(0, 0);
    with_sources(m, op, |d, cdgh, abef| {
        let [mut a, mut b, mut e, mut f] = words(d, &abef);
        let [mut c, mut e_next, mut g, mut h] = words(d, &cdgh);
        for n in 0..2 {
            let w = d.extract(64, W * n, W, schedule);
            let sum = add(d, &[choice(d, e, f, g), sigma::<_, false>(d, [6, 11, 25], e), w, h]);
            let more = add(d, &[majority(d, a, b, c), sigma::<_, false>(d, [2, 13, 22], a)]);
            (h, g, f, e) = (g, f, e, add(d, &[sum, e_next]));
            (e_next, c, b, a) = (c, b, a, add(d, &[sum, more]));
        }
        [f, e, b, a]
    })
}

/// SHA256MSG1.
pub fn sha256_schedule_1<M: Machine>(m: &mut M, op: &Op) -> Exec {
    with_sources(m, op, |d, a, b| {
        let w: [_; 4] = std::array::from_fn(|n| lane(d, W, [0, 1, 2, 3][n], &a));
        let next = [w[1], w[2], w[3], lane(d, W, 0, &b)];
        std::array::from_fn(|n| add(d, &[w[n], sigma::<_, true>(d, [7, 18, 3], next[n])]))
    })
}

/// SHA256MSG2.
pub fn sha256_schedule_2<M: Machine>(m: &mut M, op: &Op) -> Exec {
    with_sources(m, op, |d, a, b| {
        let next = |n, before| add(d, &[lane(d, W, n, &a), sigma::<_, true>(d, [17, 19, 10], before)]);
        let (w16, w17) = (next(0, lane(d, W, 2, &b)), next(1, lane(d, W, 3, &b)));
        [w16, w17, next(2, w16), next(3, w17)]
    })
}
