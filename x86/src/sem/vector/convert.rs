//! Conversions between formats and integers, and rounding to integers.

use super::float::{Float, Raised, mode, settle};
use super::{Xmm, from_lanes, lane, register, set_register, source, with_lane};
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

fn conversion_mode<M: Machine, C: Conversion>(m: &M) -> Bv<M> {
    let d = m.d();
    if C::TRUNCATE { d.bin(Bin::Or, 16, mode(m), d.lit(16, RC_ZERO)) } else { mode(m) }
}

fn convert_one<M: Machine, C: Conversion>(m: &mut M, op: &Op) -> Exec<Bv<M>> {
    let b = operand::read(m, op, op.b, C::FROM)?;
    let mut raised = Raised::none(m.d());
    let v = raised.apply(m.d(), C::OPAQUE, &[b, conversion_mode::<M, C>(m)]);
    settle(m, &raised)?;
    Ok(v)
}

/// CVTSI2SS, CVTSI2SD, CVTSS2SD, CVTSD2SS: into the low lane; the rest of the destination stays.
pub fn into_low_lane<M: Machine, C: Conversion>(m: &mut M, op: &Op) -> Exec {
    let v = convert_one::<M, C>(m, op)?;
    let a = register(m, op.a);
    let r = with_lane(m.d(), C::TO, 0, a, v);
    set_register(m, op.a, r);
    Ok(())
}

/// CVTSS2SI, CVTSD2SI and the truncating ones: into a general register.
pub fn into_general<M: Machine, C: Conversion>(m: &mut M, op: &Op) -> Exec {
    let v = convert_one::<M, C>(m, op)?;
    operand::write(m, op, op.a, C::TO, v)
}

/// The packed conversions: as many lanes as fit in both; the rest of the destination becomes zero.
pub fn packed<M: Machine, C: Conversion>(m: &mut M, op: &Op) -> Exec {
    let count = 128 / C::FROM.max(C::TO);
    let b: Xmm<M> = match op.b {
        Loc::Mem if count * C::FROM == 64 => [operand::load(m, op, 64)?, m.d().lit(64, 0)],
        _ => source(m, op, op.b)?,
    };
    let (r, raised) = {
        let (d, mode, mut raised) = (m.d(), conversion_mode::<M, C>(m), Raised::none(m.d()));
        let r = from_lanes(d, C::TO, |n| {
            if n >= count {
                return d.lit(C::TO, 0);
            }
            raised.apply(d, C::OPAQUE, &[lane(d, C::FROM, n, b), mode])
        });
        (r, raised)
    };
    settle(m, &raised)?;
    set_register(m, op.a, r);
    Ok(())
}

/// The mode of ROUNDPS and its kin: RC is in the immediate unless its bit 2 says MXCSR.
fn rounding_mode<M: Machine>(m: &M, op: &Op) -> Bv<M> {
    let d = m.d();
    if op.imm & 4 != 0 {
        return mode(m);
    }
    let rest = d.bin(Bin::And, 16, mode(m), d.lit(16, !RC_ZERO));
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
    let b = source(m, op, op.b)?;
    let (r, raised) = {
        let (d, mode, mut raised) = (m.d(), rounding_mode(m, op), Raised::none(m.d()));
        let r = from_lanes(d, F::W, |n| round_lane::<_, F>(d, &mut raised, op, lane(d, F::W, n, b), mode));
        (r, raised)
    };
    settle(m, &raised)?;
    set_register(m, op.a, r);
    Ok(())
}

/// ROUNDSS, ROUNDSD.
pub fn round_scalar<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let b = operand::read(m, op, op.b, F::W)?;
    let a = register(m, op.a);
    let mut raised = Raised::none(m.d());
    let mode = rounding_mode(m, op);
    let v = round_lane::<_, F>(m.d(), &mut raised, op, b, mode);
    settle(m, &raised)?;
    let r = with_lane(m.d(), F::W, 0, a, v);
    set_register(m, op.a, r);
    Ok(())
}
