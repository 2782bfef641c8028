//! SSE to SSE4.2: one file per family. This file is what they share: operands of 128 bits and their lanes.
//!
//! A vector register is two 64-bit halves. Integer lanes are exact bit-vector algebra, so that a solver reasons
//! about them; floating point goes through [`crate::opaque`].

pub mod blend;
pub mod compare_strings;
pub mod convert;
pub mod crc;
pub mod float;
pub mod lanes;
pub mod moves;
pub mod pack;
pub mod shift;
pub mod shuffle;
pub mod state;

use crate::domain::Domain;
use crate::machine::{Bv, Exec, Machine, Trap};
use crate::op::{Loc, Op};
use crate::sem::operand;

/// A 128-bit value: low half, high half.
pub(crate) type Xmm<M> = [Bv<M>; 2];

/// The vector register of an operand that the table has found to be one.
#[inline(always)]
fn number(loc: Loc) -> u8 {
    match loc {
        Loc::Vector(n) => n,
        _ => 0,
    }
}

/// The vector register at `loc`.
#[inline(always)]
fn register<M: Machine>(m: &M, loc: Loc) -> Xmm<M> {
    let n = number(loc);
    [m.vector(n, 0), m.vector(n, 1)]
}

/// Writes the vector register at `loc`.
#[inline(always)]
fn set_register<M: Machine>(m: &mut M, loc: Loc, v: Xmm<M>) {
    let n = number(loc);
    m.set_vector(n, 0, v[0]);
    m.set_vector(n, 1, v[1]);
}

/// The address of the memory operand, #GP unless it is a multiple of 16 (Intel SDM vol. 1, 11.3: the legacy
/// SSE forms require it of all 128-bit operands but those of the unaligned moves).
#[inline(always)]
fn aligned_address<M: Machine>(m: &mut M, op: &Op) -> Exec<Bv<M>> {
    let va = operand::effective_address(m, op);
    let misaligned = {
        let d = m.d();
        d.not(d.is_zero(4, d.trunc(64, 4, va)))
    };
    m.trap_if(misaligned, Trap::General)?;
    Ok(va)
}

/// Loads 128 bits.
#[inline(always)]
fn load128<M: Machine>(m: &mut M, op: &Op, va: Bv<M>) -> Exec<Xmm<M>> {
    let low = m.load(64, va).map_err(|trap| operand::non_canonical(op, trap))?;
    let above = m.d().bin(crate::domain::Bin::Add, 64, va, m.d().lit(64, 8));
    let high = m.load(64, above).map_err(|trap| operand::non_canonical(op, trap))?;
    Ok([low, high])
}

/// The 128 bits of a register or of aligned memory.
#[inline(always)]
fn source<M: Machine>(m: &mut M, op: &Op, loc: Loc) -> Exec<Xmm<M>> {
    if loc == Loc::Mem {
        let va = aligned_address(m, op)?;
        return load128(m, op, va);
    }
    Ok(register(m, loc))
}

/// The 128 bits of a register or of memory wherever it is.
#[inline(always)]
fn source_unaligned<M: Machine>(m: &mut M, op: &Op, loc: Loc) -> Exec<Xmm<M>> {
    if loc == Loc::Mem {
        let va = operand::effective_address(m, op);
        return load128(m, op, va);
    }
    Ok(register(m, loc))
}

/// Lane `n` of `w` bits.
#[inline(always)]
fn lane<D: Domain>(d: &D, w: u32, n: u32, v: [D::Bv; 2]) -> D::Bv {
    let half = if n * w < 64 { v[0] } else { v[1] };
    if w == 64 { half } else { d.extract(64, n * w % 64, w, half) }
}

/// The 128 bits whose lane `n` of `w` bits is `f(n)`.
#[inline(always)]
fn from_lanes<D: Domain>(d: &D, w: u32, mut f: impl FnMut(u32) -> D::Bv) -> [D::Bv; 2] {
    let low = half_from_lanes(d, w, 0, &mut f);
    [low, half_from_lanes(d, w, 64 / w, &mut f)]
}

/// The 64 bits whose lane `n` of `w` bits is `f(first + n)`.
#[inline(always)]
fn half_from_lanes<D: Domain>(d: &D, w: u32, first: u32, f: &mut impl FnMut(u32) -> D::Bv) -> D::Bv {
    let mut half = f(first);
    for n in 1..64 / w {
        half = d.concat(w, f(first + n), n * w, half);
    }
    half
}

/// `v` with lane `n` of `w` bits replaced.
#[inline(always)]
fn with_lane<D: Domain>(d: &D, w: u32, n: u32, v: [D::Bv; 2], value: D::Bv) -> [D::Bv; 2] {
    from_lanes(d, w, |i| if i == n { value } else { lane(d, w, i, v) })
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
