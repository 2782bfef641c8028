//! Shifts: of lanes by one amount or by one each, and of 128 bits by bytes.

use super::lanes::rotate_left;
use super::{
    Block, blockwise, by_blocks, by_lanes, commit, first, first_place, from_lanes, immediate, lane,
    load_bits, register, second, second_place, source_address, sources,
};
use crate::domain::{Bin, Cmp, Domain};
use crate::machine::{Bv, Exec, Machine, PackedOf};
use crate::op::{Loc, Op};
use crate::packed::Packed;
use crate::sem::operand::Bits;

/// A direction of shift.
pub trait Shift {
    /// The operation on a lane.
    const OP: Bin;
}

/// PSLLW, VPSLLVD..
pub struct Left;
/// PSRLW, VPSRLVD..
pub struct Right;
/// PSRAW, VPSRAVD..
pub struct Arithmetic;

impl Shift for Left {
    const OP: Bin = Bin::Shl;
}
impl Shift for Right {
    const OP: Bin = Bin::Shr;
}
impl Shift for Arithmetic {
    const OP: Bin = Bin::Sar;
}

/// PSLLW and its kin: shifts the lanes of `W` bits by the immediate or by the low quadword of 128 bits.
pub fn lanes<M: Machine, S: Shift, const W: u32>(m: &mut M, op: &Op) -> Exec {
    if second_place(op) == Loc::Imm {
        let by = immediate(op).min(W);
        let source = [first_place(op); 2];
        return blockwise(m, op, source, [W, W], false, |d, _, a, _| a.shifted(d, S::OP, W, by));
    }
    let count = count(m, op)?;
    let amount = cut_amount(m.d(), W, 64, count);
    by_lanes::<_, Bits<W>>(m, op, [first_place(op); 2], false, |d, a, _| d.bin(S::OP, W, a, amount))
}

/// The low quadword of the second source, of which memory holds 128 bits at every vector length.
fn count<M: Machine>(m: &mut M, op: &Op) -> Exec<Bv<M>> {
    if second_place(op) != Loc::Mem {
        return Ok(register(m, op, second_place(op))[0]);
    }
    let va = source_address(m, op, 128)?;
    Ok(load_bits(m, op, va, 128)?[0])
}

/// VPSLLVD and its kin: each lane by the amount in the lane of the second source.
pub fn variable<M: Machine, S: Shift, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let b = second(m, op, W)?;
    let a = first(m, op);
    let d = m.d();
    let r = from_lanes(d, op, W, |n| {
        let amount = cut_amount(d, W, W, lane(d, W, n, &b));
        d.bin(S::OP, W, lane(d, W, n, &a), amount)
    });
    commit(m, op, W, r);
    Ok(())
}

/// An amount of `from` bits in `w` bits: all amounts of `w` and more do the same.
pub(super) fn cut_amount<D: Domain>(d: &D, w: u32, from: u32, count: D::Bv) -> D::Bv {
    let in_range = d.cmp(Cmp::Ult, from, count, d.lit(from, u64::from(w)));
    d.ite(in_range, w, d.trunc(from, w, count), d.lit(w, u64::from(w)))
}

/// The 128 bits that start at byte `first` of `v`, lowest quadword first; zeros follow it.
pub(super) fn window<D: Domain>(d: &D, v: &[D::Bv], first: u32) -> Block<D> {
    let quadword = |n: u32| v.get(n as usize).copied().unwrap_or_else(|| d.lit(64, 0));
    [0, 1].map(|half| {
        let (n, bit) = (first / 8 + half, first % 8 * 8);
        if bit == 0 {
            return quadword(n);
        }
        let low = d.extract(64, bit, 64 - bit, quadword(n));
        d.concat(bit, d.trunc(64, bit, quadword(n + 1)), 64 - bit, low)
    })
}

/// PSRLDQ, or PSLLDQ if `LEFT`: each 128 bits.
pub fn bytes<M: Machine, const LEFT: bool>(m: &mut M, op: &Op) -> Exec {
    let amount = immediate(op).min(16);
    by_blocks(m, op, [first_place(op); 2], [8, 8], |d, _, a, _| {
        let (zero, a) = (d.lit(64, 0), a.parts(d));
        PackedOf::<M>::from_parts(match LEFT {
            true => window(d, &[zero, zero, a[0], a[1]], 16 - amount),
            false => window(d, &a, amount),
        })
    })
}

/// PALIGNR: in each 128 bits, the first source above the second, shifted right by bytes.
pub fn align_right<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let amount = immediate(op).min(32);
    by_blocks(m, op, sources(op), [8, 8], |d, _, a, b| {
        let ([a, above], [b, c]) = (a.parts(d), b.parts(d));
        PackedOf::<M>::from_parts(window(d, &[b, c, a, above], amount))
    })
}

/// VPMULTISHIFTQB: each byte of the result is eight bits of the quadword of the second source, from the bit on that the
/// byte of the first source numbers; above bit 63 comes bit 0.
pub fn unaligned_bytes<M: Machine>(m: &mut M, op: &Op) -> Exec {
    by_blocks(m, op, sources(op), [64, 8], |d, _, numbers, v| {
        PackedOf::<M>::from_lanes(d, 8, |n| {
            let amount = d.zext(6, 64, d.trunc(8, 6, numbers.lane(d, 8, n)));
            d.trunc(64, 8, rotate_left(d, 64, v.lane(d, 64, n / 8), d.negate(64, amount)))
        })
    })
}
