//! Lanes made narrower or wider.

use super::lanes::{saturate_signed, saturate_unsigned};
use super::{from_lanes, lane, register, set_register, source};
use crate::domain::Domain;
use crate::machine::{Exec, Machine};
use crate::op::{Loc, Op};
use crate::sem::operand;

/// PACKSSWB, PACKSSDW, PACKUSWB, PACKUSDW: the lanes of destination and source, saturated to `W` bits.
pub fn narrow<M: Machine, const W: u32, const SIGNED: bool>(m: &mut M, op: &Op) -> Exec {
    let b = source(m, op, op.b)?;
    let a = register(m, op.a);
    let d = m.d();
    let per_register = 64 / W;
    let r = from_lanes(d, W, |n| {
        let v = lane(d, 2 * W, n % per_register, if n < per_register { a } else { b });
        if SIGNED { saturate_signed(d, 2 * W, W, v) } else { saturate_unsigned(d, 2 * W, W, v) }
    });
    set_register(m, op.a, r);
    Ok(())
}

/// PMOVSX, PMOVZX: the low lanes of `FROM` bits, extended to `TO` bits.
pub fn widen<M: Machine, const FROM: u32, const TO: u32, const SIGNED: bool>(m: &mut M, op: &Op) -> Exec {
    let loaded = 128 / TO * FROM;
    let low = match op.b {
        Loc::Vector(n) => m.vector(n, 0),
        _ => {
            let v = operand::load(m, op, loaded)?;
            m.d().zext(loaded, 64, v)
        }
    };
    let d = m.d();
    let r = from_lanes(d, TO, |n| {
        let v = d.extract(64, n * FROM, FROM, low);
        if SIGNED { d.sext(FROM, TO, v) } else { d.zext(FROM, TO, v) }
    });
    set_register(m, op.a, r);
    Ok(())
}
