//! SSE, AVX and AVX-512: one file per family. This file is what they share: operands, lanes, and the commit.
//!
//! A vector register is eight parts of 64 bits. Integer lanes are exact bit-vector algebra, so that a solver reasons
//! about them; floating point goes through [`crate::opaque`].
//!
//! # How to add an instruction
//!
//! One handler serves the legacy form (its destination is its first source), the VEX form (three operands) and the
//! EVEX form (mask, broadcast, rounding), at every vector length. It has three steps:
//!
//! 1. Read what can trap: [`second`] (or [`second_low`] of a scalar, [`source`] of an instruction with one source).
//!    It checks alignment where the encoding asks for it, broadcasts, and touches no lane that the mask leaves out.
//!    Instructions that move data between lanes load all of it whatever the mask says (in the manual: exception
//!    types E4NF): these use [`second_whole`]. Then read [`first`].
//! 2. Compute all parts of the result: with [`from_lanes`] lane by lane, or with [`in_blocks`] where each 128 bits
//!    are computed by themselves. Floating point: [`float::each_lane`], then [`float::settle`].
//! 3. [`commit`] with the width of the lanes that a mask bit stands for ([`commit_low`] for a scalar): it applies the
//!    mask, and clears what is above the result unless the encoding is legacy.
//!
//! A simple operation of two lanes is one line in [`lanes`]. Then name the handler in [`crate::table`] (`table/vector`)
//! by mnemonic: `N::Paddb | N::Vpaddb` has all forms and lengths at once. Add a golden case for each mnemonic, and run
//! `x86-oracle --mnemonic vpaddb`, which takes its encodings from the table.

pub mod aes;
pub mod blend;
pub mod compare_strings;
pub mod convert;
pub mod crc;
pub mod float;
pub mod galois;
pub mod lanes;
pub mod masked;
pub mod moves;
pub mod pack;
pub mod permute;
pub mod sha;
pub mod shift;
pub mod shuffle;
pub mod state;

use crate::domain::{Bin, Domain};
use crate::machine::{Bool, Bv, Exec, Machine, Trap};
use crate::op::{Embedded, Encoding, Loc, Op};
use crate::sem::operand;

/// 512 bits as parts of 64, the lowest first.
pub(crate) type Wide<M> = [Bv<M>; 8];
/// 128 bits: low half, high half.
pub(crate) type Block<D> = [<D as Domain>::Bv; 2];

/// Whether the encoding is legacy SSE.
#[inline(always)]
fn is_legacy(op: &Op) -> bool {
    op.vector.encoding == Encoding::Legacy
}

/// The vector length in parts.
#[inline(always)]
fn parts(op: &Op) -> usize {
    usize::from(op.vector.parts).min(8)
}

/// The vector length in bits.
#[inline(always)]
fn length(op: &Op) -> u32 {
    u32::from(op.vector.parts) * 64
}

/// Where the first of two sources is.
#[inline(always)]
fn first_place(op: &Op) -> Loc {
    if is_legacy(op) { op.a } else { op.b }
}

/// Where the second of two sources is.
#[inline(always)]
fn second_place(op: &Op) -> Loc {
    if is_legacy(op) { op.b } else { op.c }
}

/// The vector register of an operand that the table has found to be one.
#[inline(always)]
fn number(loc: Loc) -> u8 {
    match loc {
        Loc::Vector(n) => n,
        _ => 0,
    }
}

/// The vector register at `loc`, all of it.
#[inline(always)]
fn register<M: Machine>(m: &M, loc: Loc) -> Wide<M> {
    let n = number(loc);
    [0, 1, 2, 3, 4, 5, 6, 7].map(|part| m.vector(n, part))
}

/// The first of two sources, a register.
#[inline(always)]
fn first<M: Machine>(m: &M, op: &Op) -> Wide<M> {
    register(m, first_place(op))
}

/// The second of two sources, lanes of `w` bits.
#[inline(always)]
fn second<M: Machine>(m: &mut M, op: &Op, w: u32) -> Exec<Wide<M>> {
    source(m, op, second_place(op), w)
}

/// The second of two sources, all of which is loaded whatever the mask says.
#[inline(always)]
fn second_whole<M: Machine>(m: &mut M, op: &Op, w: u32) -> Exec<Wide<M>> {
    source_whole(m, op, second_place(op), w)
}

/// The source at `loc`, lanes of `w` bits.
#[inline(always)]
fn source<M: Machine>(m: &mut M, op: &Op, loc: Loc, w: u32) -> Exec<Wide<M>> {
    source_of(m, op, loc, length(op), w)
}

/// The source at `loc`, all of which is loaded whatever the mask says.
#[inline(always)]
fn source_whole<M: Machine>(m: &mut M, op: &Op, loc: Loc, w: u32) -> Exec<Wide<M>> {
    if loc != Loc::Mem {
        return Ok(register(m, loc));
    }
    let va = source_address(m, op, length(op))?;
    if op.vector.embedded == Embedded::Broadcast {
        let v = m.load(w, va).map_err(|trap| operand::non_canonical(op, trap))?;
        return Ok(from_lanes(m.d(), op, w, |_| v));
    }
    load_bits(m, op, va, length(op))
}

/// The source at `loc`, of which memory holds `bits` bits (16 to 512), lanes of `w` bits.
#[inline(always)]
fn source_of<M: Machine>(m: &mut M, op: &Op, loc: Loc, bits: u32, w: u32) -> Exec<Wide<M>> {
    if loc != Loc::Mem {
        return Ok(register(m, loc));
    }
    let va = source_address(m, op, bits)?;
    load_lanes(m, op, va, bits, w)
}

/// The address of a source in memory, #GP if it is misaligned: the legacy encodings require alignment of all 128-bit
/// operands but those of the unaligned moves (Intel SDM vol. 1, 11.3), VEX and EVEX do not (vol. 1, 14.9).
#[inline(always)]
fn source_address<M: Machine>(m: &mut M, op: &Op, bits: u32) -> Exec<Bv<M>> {
    if is_legacy(op) && bits == 128 {
        aligned_address(m, op, 16)
    } else {
        Ok(operand::effective_address(m, op))
    }
}

/// The address of the memory operand, #GP unless it is a multiple of `bytes` (a power of two).
#[inline(always)]
fn aligned_address<M: Machine>(m: &mut M, op: &Op, bytes: u32) -> Exec<Bv<M>> {
    let va = operand::effective_address(m, op);
    let misaligned = {
        let (d, bits) = (m.d(), bytes.trailing_zeros());
        d.not(d.is_zero(bits, d.trunc(64, bits, va)))
    };
    m.trap_if(misaligned, Trap::General)?;
    Ok(va)
}

/// The address `by` bytes above `va`.
#[inline(always)]
fn above<D: Domain>(d: &D, va: D::Bv, by: u32) -> D::Bv {
    if by == 0 { va } else { d.bin(Bin::Add, 64, va, d.lit(64, u64::from(by))) }
}

/// Loads `bits` bits, or those lanes of `w` of them that the mask names, or one for all.
#[inline(always)]
fn load_lanes<M: Machine>(m: &mut M, op: &Op, va: Bv<M>, bits: u32, w: u32) -> Exec<Wide<M>> {
    if op.vector.mask.register().is_some() || op.vector.embedded == Embedded::Broadcast {
        return load_chosen(m, op, va, bits, w);
    }
    load_bits(m, op, va, bits)
}

/// Loads `bits` bits; zeros are above them.
#[inline(always)]
fn load_bits<M: Machine>(m: &mut M, op: &Op, va: Bv<M>, bits: u32) -> Exec<Wide<M>> {
    let mut v = [m.d().lit(64, 0); 8];
    if bits < 64 {
        let low = m.load(bits, va).map_err(|trap| operand::non_canonical(op, trap))?;
        v[0] = m.d().zext(bits, 64, low);
        return Ok(v);
    }
    m.load_parts(va, &mut v[..bits as usize / 64]).map_err(|trap| operand::non_canonical(op, trap))?;
    Ok(v)
}

/// [`load_lanes`] under a mask, or of a broadcast.
#[inline(never)]
fn load_chosen<M: Machine>(m: &mut M, op: &Op, va: Bv<M>, bits: u32, w: u32) -> Exec<Wide<M>> {
    let count = bits / w;
    if op.vector.embedded == Embedded::Broadcast {
        let v = load_for_all(m, op, va, w, count)?;
        return Ok(first_lanes(m.d(), w, count, |_| v));
    }
    let mut lanes = Vec::with_capacity(64);
    for n in 0..count {
        let (active, from) = (is_active(m, op, n), above(m.d(), va, n * w / 8));
        lanes.push(m.load_if(active, w, from).map_err(|trap| operand::non_canonical(op, trap))?);
    }
    Ok(first_lanes(m.d(), w, count, |n| lanes[n as usize]))
}

/// Loads `w` bits that are used for `count` lanes, if the mask names one of these.
fn load_for_all<M: Machine>(m: &mut M, op: &Op, va: Bv<M>, w: u32, count: u32) -> Exec<Bv<M>> {
    let any = any_active(m, op, count);
    m.load_if(any, w, va).map_err(|trap| operand::non_canonical(op, trap))
}

/// The mask bit of lane `n`, if there is a mask.
#[inline(always)]
fn mask_bit<M: Machine>(m: &M, op: &Op, n: u32) -> Option<Bool<M>> {
    op.vector.mask.register().map(|k| m.d().bit(64, n, m.opmask(k)))
}

/// Whether lane `n` is computed.
#[inline(always)]
fn is_active<M: Machine>(m: &M, op: &Op, n: u32) -> Bool<M> {
    mask_bit(m, op, n).unwrap_or_else(|| m.d().bool(true))
}

/// Whether one of the first `count` lanes is computed.
fn any_active<M: Machine>(m: &M, op: &Op, count: u32) -> Bool<M> {
    (0..count).fold(m.d().bool(false), |any, n| m.d().or(any, is_active(m, op, n)))
}

/// The low `w` bits of the second source; of memory no more is loaded.
#[inline(always)]
fn second_low<M: Machine>(m: &mut M, op: &Op, w: u32) -> Exec<Bv<M>> {
    low_of(m, op, second_place(op), w)
}

/// The low `w` bits of the source at `loc`.
#[inline(always)]
fn low_of<M: Machine>(m: &mut M, op: &Op, loc: Loc, w: u32) -> Exec<Bv<M>> {
    match mask_bit(m, op, 0) {
        Some(active) if loc == Loc::Mem => {
            let va = operand::effective_address(m, op);
            m.load_if(active, w, va).map_err(|trap| operand::non_canonical(op, trap))
        }
        _ => operand::read(m, op, loc, w),
    }
}

/// Writes the destination register: lanes of `w` bits under the mask, zeros above the vector length unless the
/// encoding is legacy.
#[inline(always)]
fn commit<M: Machine>(m: &mut M, op: &Op, w: u32, r: Wide<M>) {
    commit_lanes(m, op, w, length(op) / w, r);
}

/// Writes the destination register where the result is the first `count` lanes, and zeros above them.
#[inline(always)]
fn commit_lanes<M: Machine>(m: &mut M, op: &Op, w: u32, count: u32, mut r: Wide<M>) {
    if op.vector.mask.register().is_some() {
        r = masked(m, op, w, count, &r);
    }
    set_register(m, op, op.a, r);
}

/// Writes the vector register at `loc`, whatever the mask says.
#[inline(always)]
fn set_register<M: Machine>(m: &mut M, op: &Op, loc: Loc, r: Wide<M>) {
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
fn commit_low<M: Machine>(m: &mut M, op: &Op, w: u32, mut v: Bv<M>) {
    if let Some(active) = mask_bit(m, op, 0) {
        let (d, old) = (m.d(), m.vector(number(op.a), 0));
        let other = if op.vector.mask.is_zeroing() { d.lit(w, 0) } else { d.trunc(64, w, old) };
        v = d.ite(active, w, v, other);
    }
    let a = first(m, op);
    let d = m.d();
    let low = if w == 64 { v } else { d.concat(64 - w, d.extract(64, w, 64 - w, a[0]), w, v) };
    let zero = d.lit(64, 0);
    set_register(m, op, op.a, [low, a[1], zero, zero, zero, zero, zero, zero]);
}

/// Stores the first `count` lanes of `w` bits at the memory operand, at `va`, under the mask.
#[inline(always)]
fn commit_store<M: Machine>(m: &mut M, op: &Op, va: Bv<M>, w: u32, count: u32, r: &Wide<M>) -> Exec {
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
fn store_chosen<M: Machine>(
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

/// Lane `n` of `w` bits.
#[inline(always)]
fn lane<D: Domain>(d: &D, w: u32, n: u32, v: &[D::Bv]) -> D::Bv {
    lane_of_part(d, w, n % (64 / w), v[(n * w / 64) as usize])
}

/// Lane `n` of `w` bits of 64.
#[inline(always)]
fn lane_of_part<D: Domain>(d: &D, w: u32, n: u32, part: D::Bv) -> D::Bv {
    if w == 64 { part } else { d.extract(64, n * w, w, part) }
}

/// The vector whose lane `n` of `w` bits is `f(n)`, up to the vector length.
#[inline(always)]
fn from_lanes<D: Domain>(d: &D, op: &Op, w: u32, mut f: impl FnMut(u32) -> D::Bv) -> [D::Bv; 8] {
    let mut v = [d.lit(64, 0); 8];
    for (first, part) in (0..).step_by(64 / w as usize).zip(&mut v[..parts(op)]) {
        *part = part_from_lanes(d, w, |n| f(first + n));
    }
    v
}

/// The vector whose part `n` is `f(n)`, up to the vector length.
#[inline(always)]
fn from_parts<D: Domain>(d: &D, op: &Op, mut f: impl FnMut(usize) -> D::Bv) -> [D::Bv; 8] {
    let mut v = [d.lit(64, 0); 8];
    for (n, part) in v[..parts(op)].iter_mut().enumerate() {
        *part = f(n);
    }
    v
}

/// The vector whose lane `n` of `w` bits is `f(n)` for the first `count` lanes, and zero above.
fn first_lanes<D: Domain>(d: &D, w: u32, count: u32, mut f: impl FnMut(u32) -> D::Bv) -> [D::Bv; 8] {
    let mut v = [d.lit(64, 0); 8];
    for (first, part) in (0..count).step_by(64 / w as usize).zip(&mut v) {
        *part = part_from_lanes(d, w, |n| if first + n < count { f(first + n) } else { d.lit(w, 0) });
    }
    v
}

/// The 64 bits whose lane `n` of `w` bits is `f(n)`.
#[inline(always)]
fn part_from_lanes<D: Domain>(d: &D, w: u32, mut f: impl FnMut(u32) -> D::Bv) -> D::Bv {
    let mut part = f(0);
    for n in 1..64 / w {
        part = d.concat(w, f(n), n * w, part);
    }
    part
}

/// The 128 bits whose lane `n` of `w` bits is `f(n)`.
#[inline(always)]
fn block_from_lanes<D: Domain>(d: &D, w: u32, mut f: impl FnMut(u32) -> D::Bv) -> Block<D> {
    let low = part_from_lanes(d, w, &mut f);
    [low, part_from_lanes(d, w, |n| f(64 / w + n))]
}

/// Computes each 128 bits by themselves: block `n` is `f(n, block of a, block of b)`.
#[inline(always)]
fn in_blocks<D: Domain>(
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
fn with_lane<D: Domain>(d: &D, w: u32, n: u32, v: Block<D>, value: D::Bv) -> Block<D> {
    block_from_lanes(d, w, |i| if i == n { value } else { lane(d, w, i, &v) })
}

/// The register whose low 128 bits are `block`.
#[inline(always)]
fn from_block<D: Domain>(d: &D, block: Block<D>) -> [D::Bv; 8] {
    let zero = d.lit(64, 0);
    [block[0], block[1], zero, zero, zero, zero, zero, zero]
}

/// The low 128 bits.
#[inline(always)]
fn low_block<D: Domain>(v: &[D::Bv; 8]) -> Block<D> {
    [v[0], v[1]]
}

/// All ones or all zeros.
#[inline(always)]
fn mask<D: Domain>(d: &D, w: u32, c: D::Bool) -> D::Bv {
    d.ite(c, w, d.lit(w, u64::MAX), d.lit(w, 0))
}

/// The immediate byte, for use as a number.
#[inline(always)]
fn immediate(op: &Op) -> u32 {
    u32::from(op.imm.to_le_bytes()[0])
}
