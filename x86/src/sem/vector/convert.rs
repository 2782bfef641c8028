//! Conversions between formats and integers, and rounding to integers.

use super::float::{Float, Half, Raised, Single, between_registers, each_lane, mode, of_lane, settle};
use super::{
    Wide, commit, commit_lanes, commit_low, commit_store, first_lanes, lane, length, low_of, register,
    second_low, second_place, source, source_of,
};
use crate::domain::{Bin, Domain};
use crate::machine::{Bv, Exec, Machine};
use crate::op::{Loc, Op};
use crate::opaque::{Opaque, exception};
use crate::sem::operand;

/// RC of MXCSR: toward zero.
const RC_ZERO: u64 = 0x6000;

/// What the table leaves as the selector of a conversion: RC is toward zero whatever MXCSR says.
pub const TRUNCATE: u8 = 1;
/// The same: the integer has no sign.
pub const UNSIGNED: u8 = 2;

/// A conversion of one lane, chosen by the table.
pub trait Conversion {
    /// The width of the source in bits.
    const FROM: u32;
    /// The width of the result in bits.
    const TO: u32;
    /// The function.
    fn function(signed: bool) -> Opaque;
}

/// An integer of `BITS` bits to a float.
pub struct FromInteger<F, const BITS: u32>(std::marker::PhantomData<F>);
impl<F: Float, const BITS: u32> Conversion for FromInteger<F, BITS> {
    const FROM: u32 = BITS;
    const TO: u32 = F::W;
    fn function(signed: bool) -> Opaque {
        Opaque::SseFromInteger { bits: BITS, signed, to: F::FORMAT }
    }
}

/// A float to an integer of `BITS` bits.
pub struct ToInteger<F, const BITS: u32>(std::marker::PhantomData<F>);
impl<F: Float, const BITS: u32> Conversion for ToInteger<F, BITS> {
    const FROM: u32 = F::W;
    const TO: u32 = BITS;
    fn function(signed: bool) -> Opaque {
        Opaque::SseToInteger { from: F::FORMAT, bits: BITS, signed }
    }
}

/// A float to another.
pub struct Between<F, T>(std::marker::PhantomData<(F, T)>);
impl<F: Float, T: Float> Conversion for Between<F, T> {
    const FROM: u32 = F::W;
    const TO: u32 = T::W;
    fn function(_: bool) -> Opaque {
        Opaque::SseConvert { from: F::FORMAT, to: T::FORMAT }
    }
}

pub(super) fn conversion_mode<M: Machine>(m: &M, op: &Op) -> Bv<M> {
    let d = m.d();
    if op.cc.0 & TRUNCATE != 0 { d.bin(Bin::Or, 16, mode(m, op), d.lit(16, RC_ZERO)) } else { mode(m, op) }
}

/// What a lane is converted by.
pub(super) fn function<C: Conversion>(op: &Op) -> Opaque {
    C::function(op.cc.0 & UNSIGNED == 0)
}

#[inline(always)]
fn convert_one<M: Machine, C: Conversion>(m: &mut M, op: &Op, from: Loc) -> Exec<Bv<M>> {
    let b = low_of(m, op, from, C::FROM)?;
    let (mode, mut raised) = (conversion_mode(m, op), Raised::none(m.d()));
    let v =
        of_lane(m, op, 0, &mut raised, &mut |d, raised, _| raised.apply(d, function::<C>(op), &[b, mode]));
    settle(m, op, &raised)?;
    Ok(v)
}

/// [`into_low_lane`], legacy and from a general register.
pub fn from_register<M: Machine, C: Conversion>(m: &mut M, op: &Op) -> Exec {
    let Loc::Reg(from) = op.b else { return into_low_lane::<M, C>(m, op) };
    into_low_lane::<M, C>(m, &Op { b: Loc::Reg(from), ..between_registers(op) })
}

/// [`into_low_lane`], legacy and between registers.
pub fn low_lane_registers<M: Machine, C: Conversion>(m: &mut M, op: &Op) -> Exec {
    into_low_lane::<M, C>(m, &between_registers(op))
}

/// [`packed`], likewise.
pub fn packed_registers<M: Machine, C: Conversion>(m: &mut M, op: &Op) -> Exec {
    packed::<M, C>(m, &between_registers(op))
}

/// CVTSI2SS, CVTSI2SD, CVTSS2SD, CVTSD2SS: into the low lane; the rest is that of the first source.
#[inline(always)]
pub fn into_low_lane<M: Machine, C: Conversion>(m: &mut M, op: &Op) -> Exec {
    let v = convert_one::<M, C>(m, op, second_place(op))?;
    commit_low(m, op, C::TO, v);
    Ok(())
}

/// CVTSS2SI, CVTSD2SI and the truncating ones: into a general register.
pub fn into_general<M: Machine, C: Conversion>(m: &mut M, op: &Op) -> Exec {
    let v = convert_one::<M, C>(m, op, op.b)?;
    operand::write(m, op, op.a, C::TO, v)
}

/// The packed conversions: as many lanes as fit in both; the rest of the destination becomes zero.
#[inline(always)]
pub fn packed<M: Machine, C: Conversion>(m: &mut M, op: &Op) -> Exec {
    let count = length(op) / C::FROM.max(C::TO);
    let b = source_of(m, op, op.b, count * C::FROM, C::FROM)?;
    let mode = conversion_mode(m, op);
    let (r, raised) = convert_lanes::<M, C>(m, op, count, &b, mode);
    settle(m, op, &raised)?;
    commit_lanes(m, op, C::TO, count, r);
    Ok(())
}

/// The first `count` lanes of `v`, converted.
#[inline(always)]
fn convert_lanes<M: Machine, C: Conversion>(
    m: &M,
    op: &Op,
    count: u32,
    v: &Wide<M>,
    mode: Bv<M>,
) -> (Wide<M>, Raised<M::D>) {
    let (d, mut raised) = (m.d(), Raised::none(m.d()));
    let mut convert = |d: &M::D, raised: &mut Raised<M::D>, n: u32| {
        raised.apply(d, function::<C>(op), &[lane(d, C::FROM, n, v), mode])
    };
    let r = first_lanes(d, C::TO, count, |n| of_lane(m, op, n, &mut raised, &mut convert));
    (r, raised)
}

/// VCVTPS2PH: RC is as for ROUNDPS; the halves go to a register or to memory. As on processors, the flags of the
/// conversion stay in MXCSR if the store faults; when it is tried again they are the same.
pub fn to_halves<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let count = length(op) / 32;
    let (v, mode) = (register(m, op, op.b), rounding_mode(m, op));
    let (r, raised) = convert_lanes::<M, Between<Single, Half>>(m, op, count, &v, mode);
    settle(m, op, &raised)?;
    if op.a == Loc::Mem {
        let va = operand::effective_address(m, op);
        return commit_store(m, op, va, 16, count, &r);
    }
    commit_lanes(m, op, 16, count, r);
    Ok(())
}

/// The mode of ROUNDPS and its kin: RC is in the immediate unless its bit 2 says MXCSR.
pub(super) fn rounding_mode<M: Machine>(m: &M, op: &Op) -> Bv<M> {
    let d = m.d();
    if op.imm & 4 != 0 {
        return mode(m, op);
    }
    let rest = d.bin(Bin::And, 16, mode(m, op), d.lit(16, !RC_ZERO));
    d.bin(Bin::Or, 16, rest, d.lit(16, (op.imm & 3) << 13))
}

/// Rounds one lane; bit 3 of the immediate suppresses the precision exception.
fn round_lane<D: Domain, F: Float>(d: &D, raised: &mut Raised<D>, op: &Op, v: D::Bv, mode: D::Bv) -> D::Bv {
    let [value, found, _] = d.opaque(Opaque::SseRound(F::FORMAT), &[v, mode]);
    let reported = if op.imm & 8 == 0 { exception::ALL } else { !exception::PRECISION };
    raised.add(d, d.bin(Bin::And, 6, found, d.lit(6, reported)));
    value
}

/// ROUNDPS, ROUNDPD.
pub fn round_packed<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let b = source(m, op, op.b, F::W)?;
    let mode = rounding_mode(m, op);
    let (r, raised) =
        each_lane(m, op, F::W, |d, raised, n| round_lane::<_, F>(d, raised, op, lane(d, F::W, n, &b), mode));
    settle(m, op, &raised)?;
    commit(m, op, F::W, r);
    Ok(())
}

/// ROUNDSS, ROUNDSD.
pub fn round_scalar<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let b = second_low(m, op, F::W)?;
    let (mode, mut raised) = (rounding_mode(m, op), Raised::none(m.d()));
    let v = of_lane(m, op, 0, &mut raised, &mut |d, raised, _| round_lane::<_, F>(d, raised, op, b, mode));
    settle(m, op, &raised)?;
    commit_low(m, op, F::W, v);
    Ok(())
}
