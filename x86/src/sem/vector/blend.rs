//! Lanes chosen from two registers, and PTEST.

use super::{from_lanes, immediate, lane, register, set_register, source};
use crate::domain::{Bin, Domain};
use crate::flags::Flags;
use crate::machine::{Exec, Machine};
use crate::op::Op;

/// PBLENDW, BLENDPS, BLENDPD: lane n comes from the source if bit n of the immediate is set.
pub fn by_immediate<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let b = source(m, op, op.b)?;
    let a = register(m, op.a);
    let (d, chosen) = (m.d(), immediate(op));
    let r = from_lanes(d, W, |n| lane(d, W, n, if chosen >> n & 1 != 0 { b } else { a }));
    set_register(m, op.a, r);
    Ok(())
}

/// PBLENDVB, BLENDVPS, BLENDVPD: by the signs of the lanes of xmm0.
pub fn by_sign<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let b = source(m, op, op.b)?;
    let (a, mask) = (register(m, op.a), [m.vector(0, 0), m.vector(0, 1)]);
    let d = m.d();
    let r =
        from_lanes(d, W, |n| d.ite(d.sign(W, lane(d, W, n, mask)), W, lane(d, W, n, b), lane(d, W, n, a)));
    set_register(m, op.a, r);
    Ok(())
}

/// PTEST: ZF if no bit of the source is set in the destination, CF if all are; the others are clear.
pub fn test<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let b = source(m, op, op.b)?;
    let a = register(m, op.a);
    let d = m.d();
    let and = |x, y| d.bin(Bin::And, 64, x, y);
    let none = |x, y| d.is_zero(64, d.bin(Bin::Or, 64, x, y));
    let zero = none(and(a[0], b[0]), and(a[1], b[1]));
    let carry = none(and(d.complement(64, a[0]), b[0]), and(d.complement(64, a[1]), b[1]));
    let clear = d.bool(false);
    let flags = Flags::from_bits(d, [carry, clear, clear, zero, clear, clear]);
    m.set_flags(flags);
    Ok(())
}
