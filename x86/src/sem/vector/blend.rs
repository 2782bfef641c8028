//! Lanes chosen from two registers, and PTEST.

use super::{
    commit, first, from_lanes, immediate, is_active, is_legacy, lane, parts, register, second, set_register,
    source,
};
use crate::domain::{Bin, Domain};
use crate::flags::Flags;
use crate::machine::{Bv, Exec, Machine};
use crate::op::{Loc, Op};

/// PBLENDW, BLENDPS, BLENDPD, VPBLENDD: lane n comes from the second source if bit n of the immediate is set. It has
/// eight bits, which are used again for the next eight lanes.
pub fn by_immediate<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let b = second(m, op, W)?;
    let a = first(m, op);
    let (d, chosen) = (m.d(), immediate(op));
    let r = from_lanes(d, op, W, |n| lane(d, W, n, if chosen >> (n % 8) & 1 != 0 { &b } else { &a }));
    commit(m, op, W, r);
    Ok(())
}

/// PBLENDVB, BLENDVPS, BLENDVPD: by the signs of the lanes of xmm0, or of the fourth operand.
pub fn by_sign<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let b = second(m, op, W)?;
    let signs = register(m, op, if is_legacy(op) { Loc::Vector(0) } else { op.d });
    let a = first(m, op);
    let d = m.d();
    let r = from_lanes(d, op, W, |n| {
        d.ite(d.sign(W, lane(d, W, n, &signs)), W, lane(d, W, n, &b), lane(d, W, n, &a))
    });
    commit(m, op, W, r);
    Ok(())
}

/// VPBLENDMB and its kin, VBLENDMPS, VBLENDMPD: a lane that the mask names comes from the second source, another from the
/// first, or is zero.
pub fn by_mask<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let b = second(m, op, W)?;
    let a = first(m, op);
    let d = m.d();
    let r = from_lanes(d, op, W, |n| {
        let other = if op.vector.mask.is_zeroing() { d.lit(W, 0) } else { lane(d, W, n, &a) };
        d.ite(is_active(m, op, n), W, lane(d, W, n, &b), other)
    });
    set_register(m, op, op.a, r);
    Ok(())
}

/// PTEST, VTESTPS, VTESTPD: of the bits `LOOKED_AT` of each part: ZF if none of the source is set in the destination, CF
/// if all are; the other flags are clear.
pub fn test<M: Machine, const LOOKED_AT: u64>(m: &mut M, op: &Op) -> Exec {
    let b = source(m, op, op.b, 64)?;
    let a = register(m, op, op.a);
    let d = m.d();
    let is_none = |f: &dyn Fn(usize) -> Bv<M>| {
        let looked_at = |n| d.bin(Bin::And, 64, f(n), d.lit(64, LOOKED_AT));
        let any = (0..parts(op)).fold(d.lit(64, 0), |any, n| d.bin(Bin::Or, 64, any, looked_at(n)));
        d.is_zero(64, any)
    };
    let zero = is_none(&|n| d.bin(Bin::And, 64, a[n], b[n]));
    let carry = is_none(&|n| d.bin(Bin::And, 64, d.complement(64, a[n]), b[n]));
    let clear = d.bool(false);
    let flags = Flags::from_bits(d, [carry, clear, clear, zero, clear, clear]);
    m.set_flags(flags);
    Ok(())
}
