//! Lanes moved to other places, unchanged. Where nothing else is said, each 128 bits by themselves.

use super::{
    Block, block_from_lanes, by_blocks, commit, first, from_block, from_lanes, immediate, lane, low_block,
    parts, register, second_place, source_whole, sources, with_lane,
};
use crate::domain::Domain;
use crate::machine::{Exec, Machine, PackedOf};
use crate::op::{Loc, Op};
use crate::packed::Packed;
use crate::sem::operand;

/// PUNPCKLBW .. PUNPCKHQDQ, UNPCKLPS .. UNPCKHPD: the lanes of the low (or `HIGH`) halves in turn.
pub fn interleave<M: Machine, const W: u32, const HIGH: bool>(m: &mut M, op: &Op) -> Exec {
    let first = if HIGH { 64 / W } else { 0 };
    by_blocks(m, op, sources(op), [W, W], |d, _, a, b| {
        PackedOf::<M>::from_lanes(d, W, |n| (if n % 2 == 0 { a } else { b }).lane(d, W, first + n / 2))
    })
}

/// PSHUFD, and VPERMILPS by an immediate.
pub fn doublewords<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let order = immediate(op);
    by_blocks(m, op, [op.b, op.b], [32, 32], |d, _, _, b| {
        PackedOf::<M>::from_lanes(d, 32, |n| b.lane(d, 32, order >> (2 * n) & 3))
    })
}

/// PSHUFLW, or PSHUFHW if `HIGH`: the words of one half; the other half is copied.
pub fn words<M: Machine, const HIGH: bool>(m: &mut M, op: &Op) -> Exec {
    let order = immediate(op);
    by_blocks(m, op, [op.b, op.b], [16, 16], |d, _, _, b| {
        PackedOf::<M>::from_lanes(d, 16, |n| {
            let chosen = (n & 4) + (order >> (2 * (n & 3)) & 3);
            b.lane(d, 16, if HIGH == (n >= 4) { chosen } else { n })
        })
    })
}

/// SHUFPS: two lanes of the first source, then two of the second.
pub fn singles<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let order = immediate(op);
    by_blocks(m, op, sources(op), [32, 32], |d, _, a, b| {
        PackedOf::<M>::from_lanes(d, 32, |n| (if n < 2 { a } else { b }).lane(d, 32, order >> (2 * n) & 3))
    })
}

/// SHUFPD: two bits of the immediate for each 128 bits.
pub fn doubles<M: Machine>(m: &mut M, op: &Op) -> Exec {
    by_blocks(m, op, sources(op), [64, 64], |d, n, a, b| {
        let order = immediate(op) >> (2 * n);
        PackedOf::<M>::from_parts([a.lane(d, 64, order & 1), b.lane(d, 64, order >> 1 & 1)])
    })
}

/// MOVSLDUP, or MOVSHDUP if `HIGH`: each even (odd) single twice.
pub fn duplicate_singles<M: Machine, const HIGH: bool>(m: &mut M, op: &Op) -> Exec {
    let b = source_whole(m, op, op.b, 32)?;
    let d = m.d();
    let r = from_lanes(d, op, 32, |n| lane(d, 32, n & !1 | u32::from(HIGH), &b));
    commit(m, op, 32, r);
    Ok(())
}

/// MOVDDUP: each even double twice; of memory, 64 bits make 128.
pub fn duplicate_double<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let b = match parts(op) {
        2 => {
            let v = operand::read(m, op, op.b, 64)?;
            from_block(m.d(), [v, v])
        }
        _ => source_whole(m, op, op.b, 64)?,
    };
    let d = m.d();
    let r = from_lanes(d, op, 64, |n| lane(d, 64, n & !1, &b));
    commit(m, op, 64, r);
    Ok(())
}

/// PSHUFB: each byte of the result is chosen by the low four bits of a byte of the second source, or zero if its sign
/// is set.
pub fn bytes<M: Machine>(m: &mut M, op: &Op) -> Exec {
    by_blocks(m, op, sources(op), [8, 8], |d, _, a, order| {
        let table = a.parts(d);
        PackedOf::<M>::from_lanes(d, 8, |n| {
            let index = order.lane(d, 8, n);
            let byte = d.select(8, &table, d.trunc(8, 4, index));
            d.ite(d.sign(8, index), 8, d.lit(8, 0), byte)
        })
    })
}

/// PINSRB, PINSRW, PINSRD, PINSRQ.
pub fn insert<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let v = operand::read(m, op, second_place(op), W)?;
    let a: Block<M::D> = low_block::<M::D>(&first(m, op));
    let r = from_block(m.d(), with_lane(m.d(), W, immediate(op) % (128 / W), a, v));
    commit(m, op, W, r);
    Ok(())
}

/// PEXTRB, PEXTRW, PEXTRD, PEXTRQ, EXTRACTPS: to memory, or to a general register, whose rest becomes zero.
pub fn extract<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let b = register(m, op, op.b);
    let v = lane(m.d(), W, immediate(op) % (128 / W), &b);
    if op.a == Loc::Mem {
        return operand::store(m, op, W, v);
    }
    let v = m.d().zext(W, 64, v);
    operand::write(m, op, op.a, 64, v)
}

/// INSERTPS: a single of a register (or the one in memory) into a place, then a mask of zeros.
pub fn insert_single<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let selector = immediate(op);
    let v = match second_place(op) {
        Loc::Mem => operand::load(m, op, 32)?,
        loc => lane(m.d(), 32, selector >> 6, &register(m, op, loc)),
    };
    let a: Block<M::D> = low_block::<M::D>(&first(m, op));
    let d = m.d();
    let inserted = with_lane(d, 32, selector >> 4 & 3, a, v);
    let block = block_from_lanes(d, 32, |n| {
        if selector >> n & 1 != 0 { d.lit(32, 0) } else { lane(d, 32, n, &inserted) }
    });
    let r = from_block(d, block);
    commit(m, op, 32, r);
    Ok(())
}
