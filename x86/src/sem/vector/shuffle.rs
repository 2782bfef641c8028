//! Lanes moved to other places, unchanged.

use super::{Xmm, from_lanes, immediate, lane, register, set_register, source, with_lane};
use crate::domain::{Bin, Domain};
use crate::machine::{Exec, Machine};
use crate::op::{Loc, Op};
use crate::sem::operand;

/// PUNPCKLBW .. PUNPCKHQDQ, UNPCKLPS .. UNPCKHPD: the lanes of the low (or `HIGH`) halves in turn.
pub fn interleave<M: Machine, const W: u32, const HIGH: bool>(m: &mut M, op: &Op) -> Exec {
    let b = source(m, op, op.b)?;
    let a = register(m, op.a);
    let d = m.d();
    let first = if HIGH { 64 / W } else { 0 };
    let r = from_lanes(d, W, |n| lane(d, W, first + n / 2, if n % 2 == 0 { a } else { b }));
    set_register(m, op.a, r);
    Ok(())
}

/// PSHUFD.
pub fn doublewords<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let b = source(m, op, op.b)?;
    let (d, order) = (m.d(), immediate(op));
    let r = from_lanes(d, 32, |n| lane(d, 32, order >> (2 * n) & 3, b));
    set_register(m, op.a, r);
    Ok(())
}

/// PSHUFLW, or PSHUFHW if `HIGH`: the words of one half; the other half is copied.
pub fn words<M: Machine, const HIGH: bool>(m: &mut M, op: &Op) -> Exec {
    let b = source(m, op, op.b)?;
    let (d, order) = (m.d(), immediate(op));
    let shuffled = from_lanes(d, 16, |n| lane(d, 16, (n & 4) + (order >> (2 * (n & 3)) & 3), b));
    let r = if HIGH { [b[0], shuffled[1]] } else { [shuffled[0], b[1]] };
    set_register(m, op.a, r);
    Ok(())
}

/// SHUFPS: two lanes of the destination, then two of the source.
pub fn singles<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let b = source(m, op, op.b)?;
    let a = register(m, op.a);
    let (d, order) = (m.d(), immediate(op));
    let r = from_lanes(d, 32, |n| lane(d, 32, order >> (2 * n) & 3, if n < 2 { a } else { b }));
    set_register(m, op.a, r);
    Ok(())
}

/// SHUFPD.
pub fn doubles<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let b = source(m, op, op.b)?;
    let a = register(m, op.a);
    let order = immediate(op);
    let r = [lane(m.d(), 64, order & 1, a), lane(m.d(), 64, order >> 1 & 1, b)];
    set_register(m, op.a, r);
    Ok(())
}

/// MOVSLDUP, or MOVSHDUP if `HIGH`: each even (odd) single twice.
pub fn duplicate_singles<M: Machine, const HIGH: bool>(m: &mut M, op: &Op) -> Exec {
    let b = source(m, op, op.b)?;
    let d = m.d();
    let r = from_lanes(d, 32, |n| lane(d, 32, n & 2 | u32::from(HIGH), b));
    set_register(m, op.a, r);
    Ok(())
}

/// MOVDDUP.
pub fn duplicate_double<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let v = operand::read(m, op, op.b, 64)?;
    set_register(m, op.a, [v, v]);
    Ok(())
}

/// PSHUFB: each byte of the result is chosen by the low four bits of a byte of the source, or zero if its sign
/// is set.
pub fn bytes<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let order = source(m, op, op.b)?;
    let a = register(m, op.a);
    let d = m.d();
    let r = from_lanes(d, 8, |n| {
        let index = lane(d, 8, n, order);
        let half = d.ite(d.bit(8, 3, index), 64, a[1], a[0]);
        let amount = d.zext(6, 64, d.concat(3, d.trunc(8, 3, index), 3, d.lit(3, 0)));
        let byte = d.trunc(64, 8, d.bin(Bin::Shr, 64, half, amount));
        d.ite(d.sign(8, index), 8, d.lit(8, 0), byte)
    });
    set_register(m, op.a, r);
    Ok(())
}

/// PINSRB, PINSRW, PINSRD, PINSRQ.
pub fn insert<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let v = operand::read(m, op, op.b, W)?;
    let a = register(m, op.a);
    let r = with_lane(m.d(), W, immediate(op) % (128 / W), a, v);
    set_register(m, op.a, r);
    Ok(())
}

/// PEXTRB, PEXTRW, PEXTRD, PEXTRQ, EXTRACTPS: to memory, or to a general register, whose rest becomes zero.
pub fn extract<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let b = register(m, op.b);
    let v = lane(m.d(), W, immediate(op) % (128 / W), b);
    if op.a == Loc::Mem {
        return operand::store(m, op, W, v);
    }
    let v = m.d().zext(W, 64, v);
    operand::write(m, op, op.a, 64, v)
}

/// INSERTPS: a single of a register (or the one in memory) into a place, then a mask of zeros.
pub fn insert_single<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let selector = immediate(op);
    let v = match op.b {
        Loc::Mem => operand::load(m, op, 32)?,
        _ => lane(m.d(), 32, selector >> 6, register(m, op.b)),
    };
    let a: Xmm<M> = register(m, op.a);
    let d = m.d();
    let inserted = with_lane(d, 32, selector >> 4 & 3, a, v);
    let r =
        from_lanes(d, 32, |n| if selector >> n & 1 != 0 { d.lit(32, 0) } else { lane(d, 32, n, inserted) });
    set_register(m, op.a, r);
    Ok(())
}
