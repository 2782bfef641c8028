//! Conversions between formats and integers, and rounding to integers.

use super::float::{Float, Raised, each_lane, mode, of_lane, settle};
use super::{
    commit, commit_lanes, commit_low, first_lanes, lane, length, low_of, second_low, second_place, source,
    source_of,
};
use crate::domain::{Bin, Domain};
use crate::machine::{Bv, Exec, Machine};
use crate::op::{Loc, Op};
use crate::opaque::{Format, Opaque, exception};
use crate::sem::operand;

/// RC of MXCSR: toward zero.
const RC_ZERO: u64 = 0x6000;

/// A conversion of one lane, chosen by the table.
pub trait Conversion {
    /// The width of the source in bits.
    const FROM: u32;
    /// The width of the result in bits.
    const TO: u32;
    /// The function.
    const OPAQUE: Opaque;
    /// Whether it rounds toward zero whatever MXCSR says.
    const TRUNCATE: bool = false;
}

/// A signed integer of `BITS` bits to a float.
pub struct FromInteger<F, const BITS: u32>(std::marker::PhantomData<F>);
impl<F: Float, const BITS: u32> Conversion for FromInteger<F, BITS> {
    const FROM: u32 = BITS;
    const TO: u32 = F::W;
    const OPAQUE: Opaque = Opaque::SseFromInteger { bits: BITS, to: F::FORMAT };
}

/// A float to a signed integer of `BITS` bits.
pub struct ToInteger<F, const BITS: u32, const TRUNCATE: bool>(std::marker::PhantomData<F>);
impl<F: Float, const BITS: u32, const TRUNCATE: bool> Conversion for ToInteger<F, BITS, TRUNCATE> {
    const FROM: u32 = F::W;
    const TO: u32 = BITS;
    const OPAQUE: Opaque = Opaque::SseToInteger { from: F::FORMAT, bits: BITS };
    const TRUNCATE: bool = TRUNCATE;
}

/// A single to a double.
pub struct Widen;
impl Conversion for Widen {
    const FROM: u32 = 32;
    const TO: u32 = 64;
    const OPAQUE: Opaque = Opaque::SseConvert { from: Format::Single };
}

/// A double to a single.
pub struct Narrow;
impl Conversion for Narrow {
    const FROM: u32 = 64;
    const TO: u32 = 32;
    const OPAQUE: Opaque = Opaque::SseConvert { from: Format::Double };
}

pub(super) fn conversion_mode<M: Machine, C: Conversion>(m: &M, op: &Op) -> Bv<M> {
    let d = m.d();
    if C::TRUNCATE { d.bin(Bin::Or, 16, mode(m, op), d.lit(16, RC_ZERO)) } else { mode(m, op) }
}

fn convert_one<M: Machine, C: Conversion>(m: &mut M, op: &Op, from: Loc) -> Exec<Bv<M>> {
    let b = low_of(m, op, from, C::FROM)?;
    let (mode, mut raised) = (conversion_mode::<M, C>(m, op), Raised::none(m.d()));
    let v = of_lane(m, op, 0, &mut raised, &mut |d, raised, _| raised.apply(d, C::OPAQUE, &[b, mode]));
    settle(m, op, &raised)?;
    Ok(v)
}

/// CVTSI2SS, CVTSI2SD, CVTSS2SD, CVTSD2SS: into the low lane; the rest is that of the first source.
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
pub fn packed<M: Machine, C: Conversion>(m: &mut M, op: &Op) -> Exec {
    let count = length(op) / C::FROM.max(C::TO);
    let b = source_of(m, op, op.b, count * C::FROM, C::FROM)?;
    let (r, raised) = {
        let (d, mode, mut raised) = (m.d(), conversion_mode::<M, C>(m, op), Raised::none(m.d()));
        let mut convert = |d: &M::D, raised: &mut Raised<M::D>, n: u32| {
            raised.apply(d, C::OPAQUE, &[lane(d, C::FROM, n, &b), mode])
        };
        let r = first_lanes(d, C::TO, count, |n| of_lane(m, op, n, &mut raised, &mut convert));
        (r, raised)
    };
    settle(m, op, &raised)?;
    commit_lanes(m, op, C::TO, count, r);
    Ok(())
}

/// The mode of ROUNDPS and its kin: RC is in the immediate unless its bit 2 says MXCSR.
fn rounding_mode<M: Machine>(m: &M, op: &Op) -> Bv<M> {
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
