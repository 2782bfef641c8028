//! Where operands are, and how they are read.

use super::algebra::{Wide, first_lanes, from_block, from_lanes};
use crate::domain::{Bin, Domain};
use crate::machine::{Bool, Bv, Exec, Machine, PackedOf, Trap};
use crate::op::{Embedded, Encoding, Loc, Op};
use crate::packed::Packed;
use crate::sem::operand;

/// Whether the encoding is legacy SSE.
#[inline(always)]
pub(super) fn is_legacy(op: &Op) -> bool {
    op.vector.encoding == Encoding::Legacy
}

/// The vector length in parts.
#[inline(always)]
pub(super) fn parts(op: &Op) -> usize {
    usize::from(op.vector.parts).min(8)
}

/// The vector length in bits.
#[inline(always)]
pub(super) fn length(op: &Op) -> u32 {
    u32::from(op.vector.parts) * 64
}

/// Where the first of two sources is.
#[inline(always)]
pub(super) fn first_place(op: &Op) -> Loc {
    if is_legacy(op) { op.a } else { op.b }
}

/// Where the second of two sources is.
#[inline(always)]
pub(super) fn second_place(op: &Op) -> Loc {
    if is_legacy(op) { op.b } else { op.c }
}

/// The vector register of an operand that the table has found to be one.
#[inline(always)]
pub(super) fn number(loc: Loc) -> u8 {
    match loc {
        Loc::Vector(n) => n,
        _ => 0,
    }
}

/// The vector register at `loc`: all of it, or the 128 bits that legacy instructions know.
#[inline(always)]
pub(super) fn register<M: Machine>(m: &M, op: &Op, loc: Loc) -> Wide<M> {
    let n = number(loc);
    if is_legacy(op) {
        return from_block(m.d(), [m.vector(n, 0), m.vector(n, 1)]);
    }
    [0, 1, 2, 3, 4, 5, 6, 7].map(|part| m.vector(n, part))
}

/// The first of two sources, a register.
#[inline(always)]
pub(super) fn first<M: Machine>(m: &M, op: &Op) -> Wide<M> {
    register(m, op, first_place(op))
}

/// The second of two sources, lanes of `w` bits.
#[inline(always)]
pub(super) fn second<M: Machine>(m: &mut M, op: &Op, w: u32) -> Exec<Wide<M>> {
    source(m, op, second_place(op), w)
}

/// The second of two sources, all of which is loaded whatever the mask says.
#[inline(always)]
pub(super) fn second_whole<M: Machine>(m: &mut M, op: &Op, w: u32) -> Exec<Wide<M>> {
    source_whole(m, op, second_place(op), w)
}

/// The source at `loc`, lanes of `w` bits.
#[inline(always)]
pub(super) fn source<M: Machine>(m: &mut M, op: &Op, loc: Loc, w: u32) -> Exec<Wide<M>> {
    source_of(m, op, loc, length(op), w)
}

/// The source at `loc`, all of which is loaded whatever the mask says.
#[inline(always)]
pub(super) fn source_whole<M: Machine>(m: &mut M, op: &Op, loc: Loc, w: u32) -> Exec<Wide<M>> {
    if loc != Loc::Mem {
        return Ok(register(m, op, loc));
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
pub(super) fn source_of<M: Machine>(m: &mut M, op: &Op, loc: Loc, bits: u32, w: u32) -> Exec<Wide<M>> {
    if loc != Loc::Mem {
        return Ok(register(m, op, loc));
    }
    let va = source_address(m, op, bits)?;
    load_lanes(m, op, va, bits, w)
}

/// The address of a source in memory, #GP if it is misaligned: the legacy encodings require alignment of all 128-bit
/// operands but those of the unaligned moves (Intel SDM vol. 1, 11.3), VEX and EVEX do not (vol. 1, 14.9).
#[inline(always)]
pub(super) fn source_address<M: Machine>(m: &mut M, op: &Op, bits: u32) -> Exec<Bv<M>> {
    if is_legacy(op) && bits == 128 {
        aligned_address(m, op, 16)
    } else {
        Ok(operand::effective_address(m, op))
    }
}

/// The address of the memory operand, #GP unless it is a multiple of `bytes` (a power of two).
#[inline(always)]
pub(super) fn aligned_address<M: Machine>(m: &mut M, op: &Op, bytes: u32) -> Exec<Bv<M>> {
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
pub(super) fn above<D: Domain>(d: &D, va: D::Bv, by: u32) -> D::Bv {
    if by == 0 { va } else { d.bin(Bin::Add, 64, va, d.lit(64, u64::from(by))) }
}

/// Loads `bits` bits, or those lanes of `w` of them that the mask names, or one for all.
#[inline(always)]
pub(super) fn load_lanes<M: Machine>(m: &mut M, op: &Op, va: Bv<M>, bits: u32, w: u32) -> Exec<Wide<M>> {
    if op.vector.mask.register().is_some() || op.vector.embedded == Embedded::Broadcast {
        return load_chosen(m, op, va, bits, w);
    }
    load_bits(m, op, va, bits)
}

/// Loads `bits` bits; zeros are above them.
#[inline(always)]
pub(super) fn load_bits<M: Machine>(m: &mut M, op: &Op, va: Bv<M>, bits: u32) -> Exec<Wide<M>> {
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
    let chosen = mask_bits(m, op);
    let mut v = [m.d().lit(64, 0); 8];
    m.load_chosen(va, w, count, chosen, &mut v).map_err(|trap| operand::non_canonical(op, trap))?;
    Ok(v)
}

/// Loads `w` bits that are used for `count` lanes, if the mask names one of these.
pub(super) fn load_for_all<M: Machine>(m: &mut M, op: &Op, va: Bv<M>, w: u32, count: u32) -> Exec<Bv<M>> {
    let any = any_active(m, op, count);
    m.load_if(any, w, va).map_err(|trap| operand::non_canonical(op, trap))
}

/// The mask bit of lane `n`, if there is a mask.
#[inline(always)]
pub(super) fn mask_bit<M: Machine>(m: &M, op: &Op, n: u32) -> Option<Bool<M>> {
    op.vector.mask.register().map(|k| m.d().bit(64, n, m.opmask(k)))
}

/// The mask, 64 bits, all set where there is none.
#[inline(always)]
pub(super) fn mask_bits<M: Machine>(m: &M, op: &Op) -> Bv<M> {
    op.vector.mask.register().map_or_else(|| m.d().lit(64, u64::MAX), |k| m.opmask(k))
}

/// Whether lane `n` is computed.
#[inline(always)]
pub(super) fn is_active<M: Machine>(m: &M, op: &Op, n: u32) -> Bool<M> {
    mask_bit(m, op, n).unwrap_or_else(|| m.d().bool(true))
}

/// Whether one of the first `count` lanes is computed.
pub(super) fn any_active<M: Machine>(m: &M, op: &Op, count: u32) -> Bool<M> {
    (0..count).fold(m.d().bool(false), |any, n| m.d().or(any, is_active(m, op, n)))
}

/// The low `w` bits of the second source; of memory no more is loaded.
#[inline(always)]
pub(super) fn second_low<M: Machine>(m: &mut M, op: &Op, w: u32) -> Exec<Bv<M>> {
    low_of(m, op, second_place(op), w)
}

/// The low `w` bits of the source at `loc`.
#[inline(always)]
pub(super) fn low_of<M: Machine>(m: &mut M, op: &Op, loc: Loc, w: u32) -> Exec<Bv<M>> {
    match mask_bit(m, op, 0) {
        Some(active) if loc == Loc::Mem => {
            let va = operand::effective_address(m, op);
            m.load_if(active, w, va).map_err(|trap| operand::non_canonical(op, trap))
        }
        _ => operand::read(m, op, loc, w),
    }
}

/// The source at `loc` as the blocks of a vector that has `N` of them, lanes of `w` bits; all of it is loaded if `whole`,
/// whatever the mask says.
#[inline(always)]
pub(super) fn packed_source<M: Machine, const N: usize>(
    m: &mut M,
    op: &Op,
    loc: Loc,
    (w, whole): (u32, bool),
    blocks: &mut [PackedOf<M>; N],
) -> Exec {
    let masked = op.vector.mask.register().is_some() && !whole;
    match loc {
        Loc::Mem if masked || op.vector.embedded == Embedded::Broadcast => {
            let parts = if whole { source_whole(m, op, loc, w)? } else { source(m, op, loc, w)? };
            for (block, parts) in blocks.iter_mut().zip(parts.as_chunks().0) {
                *block = PackedOf::<M>::from_parts(*parts);
            }
            Ok(())
        }
        Loc::Mem => {
            let va = source_address(m, op, length(op))?;
            m.load_packed(va, blocks).map_err(|trap| operand::non_canonical(op, trap))
        }
        loc => {
            packed_register(m, loc, blocks);
            Ok(())
        }
    }
}

/// [`packed_source`] of two, where memory is the second at most; the same place twice is loaded once.
#[inline(never)]
pub(super) fn packed_sources<M: Machine>(
    m: &mut M,
    op: &Op,
    [a, b]: [Loc; 2],
    how: (u32, bool),
    [first, second]: [&mut [PackedOf<M>; 4]; 2],
) -> Exec {
    match op.vector.parts {
        2 => {
            let [low, ..] = second;
            packed_source(m, op, b, how, std::array::from_mut(low))?;
        }
        4 => {
            let (low, _) = second.split_first_chunk_mut::<2>().ok_or(Trap::Undefined)?;
            packed_source(m, op, b, how, low)?;
        }
        _ => packed_source(m, op, b, how, second)?,
    }
    match a == b {
        true => *first = *second,
        false => packed_register(m, a, &mut first[..usize::from(op.vector.parts / 2).min(4)]),
    }
    Ok(())
}

/// The blocks of the register at `loc`.
#[inline(always)]
pub(super) fn packed_register<M: Machine>(m: &M, loc: Loc, blocks: &mut [PackedOf<M>]) {
    for (n, block) in (0..).zip(blocks) {
        *block = m.packed(number(loc), n);
    }
}

/// Blocks to be written.
#[inline(always)]
pub(super) fn empty_blocks<M: Machine, const N: usize>(m: &M) -> [PackedOf<M>; N] {
    let zero = m.d().lit(64, 0);
    [PackedOf::<M>::from_parts([zero, zero]); N]
}

/// Where the two sources are.
#[inline(always)]
pub(super) fn sources(op: &Op) -> [Loc; 2] {
    [first_place(op), second_place(op)]
}

/// The low `w` bits of the first source.
#[inline(always)]
pub(super) fn first_low<M: Machine>(m: &M, op: &Op, w: u32) -> Bv<M> {
    let low = m.vector(number(first_place(op)), 0);
    if w == 64 { low } else { m.d().trunc(64, w, low) }
}

/// The immediate byte, for use as a number.
#[inline(always)]
pub(super) fn immediate(op: &Op) -> u32 {
    u32::from(op.imm.to_le_bytes()[0])
}
