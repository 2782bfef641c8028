//! Lanes moved across the whole vector, and parts of vectors put in, taken out and repeated.

use super::{
    Wide, above, commit, commit_lanes, commit_store, first, first_lanes, from_lanes, immediate, in_blocks,
    is_active, lane, length, load_bits, load_for_all, parts, register, second_place, second_whole,
    source_whole,
};
use crate::domain::Domain;
use crate::machine::{Exec, Machine};
use crate::op::{Loc, Op};
use crate::sem::operand;

/// VPERMD, VPERMPS, VPERMQ, VPERMPD, VPERMB, VPERMW: each lane is the one of the second source whose number the first source has.
pub fn by_index<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let table = second_whole(m, op, W)?;
    let index = first(m, op);
    let (d, bits) = (m.d(), (length(op) / W).trailing_zeros());
    let r = from_lanes(d, op, W, |n| {
        let index = d.trunc(W, bits, lane(d, W, n, &index));
        d.select(W, &table[..parts(op)], index)
    });
    commit(m, op, W, r);
    Ok(())
}

/// VPERMT2B and its kin: each lane is one of two tables that the first source numbers. The destination is the low table,
/// the second source the high one. `OVER_INDEX`, VPERMI2B and its kin: the destination has the numbers, and the first
/// source is the low table.
pub fn from_two<M: Machine, const W: u32, const OVER_INDEX: bool>(m: &mut M, op: &Op) -> Exec {
    let high = second_whole(m, op, W)?;
    let (destination, first) = (register(m, op, op.a), first(m, op));
    let (index, low) = if OVER_INDEX { (destination, first) } else { (first, destination) };
    let (d, bits) = (m.d(), (length(op) / W).trailing_zeros());
    let r = from_lanes(d, op, W, |n| {
        let index = lane(d, W, n, &index);
        let of = |table: &Wide<M>| d.select(W, &table[..parts(op)], d.trunc(W, bits, index));
        d.ite(d.bit(W, bits, index), W, of(&high), of(&low))
    });
    commit(m, op, W, r);
    Ok(())
}

/// VALIGND, VALIGNQ: the first source above the second, shifted right by lanes.
pub fn align_right<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let b = second_whole(m, op, W)?;
    let a = first(m, op);
    let (d, count) = (m.d(), length(op) / W);
    let amount = immediate(op) % count;
    let r = from_lanes(d, op, W, |n| match (n + amount).checked_sub(count) {
        Some(n) => lane(d, W, n, &a),
        None => lane(d, W, n + amount, &b),
    });
    commit(m, op, W, r);
    Ok(())
}

/// VPERMQ, VPERMPD by an immediate: the quadwords of each 256 bits.
pub fn quadwords<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let b = source_whole(m, op, op.b, 64)?;
    let (d, order) = (m.d(), immediate(op));
    let r = from_lanes(d, op, 64, |n| lane(d, 64, n & 4 | order >> (2 * (n & 3)) & 3, &b));
    commit(m, op, 64, r);
    Ok(())
}

/// VPERMILPS by a vector: in each 128 bits, the lanes of the first source that the low bits of the second name.
pub fn singles_in_blocks<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let order = second_whole(m, op, 32)?;
    let a = first(m, op);
    let d = m.d();
    let r = in_blocks(d, op, &a, &order, |_, a, order| {
        super::block_from_lanes(d, 32, |n| d.select(32, &a, d.trunc(32, 2, lane(d, 32, n, &order))))
    });
    commit(m, op, 32, r);
    Ok(())
}

/// VPERMILPD by a vector: the same by bit 1 of each quadword.
pub fn doubles_in_blocks<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let order = second_whole(m, op, 64)?;
    let a = first(m, op);
    let d = m.d();
    let r =
        in_blocks(d, op, &a, &order, |_, a, order| order.map(|n| d.select(64, &a, d.extract(64, 1, 1, n))));
    commit(m, op, 64, r);
    Ok(())
}

/// VPERMILPD by an immediate: a bit for each quadword.
pub fn doubles_in_blocks_by_immediate<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let b = source_whole(m, op, op.b, 64)?;
    let (d, order) = (m.d(), immediate(op));
    let r = from_lanes(d, op, 64, |n| lane(d, 64, n & !1 | order >> n & 1, &b));
    commit(m, op, 64, r);
    Ok(())
}

/// VPERM2F128, VPERM2I128: each 128 bits are one of the four of both sources, or zero.
pub fn blocks<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let b = second_whole(m, op, 64)?;
    let a = first(m, op);
    let d = m.d();
    let r = from_lanes(d, op, 64, |n| {
        let selector = immediate(op) >> (4 * (n / 2));
        let from = if selector & 2 == 0 { &a } else { &b };
        if selector & 8 != 0 { d.lit(64, 0) } else { lane(d, 64, 2 * (selector & 1) + n % 2, from) }
    });
    commit(m, op, 64, r);
    Ok(())
}

/// VSHUFF32X4 and its kin: 128 bits by 128 bits, the low half from the first source and the high half from the second.
pub fn shuffle_blocks<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let b = second_whole(m, op, W)?;
    let a = first(m, op);
    let (d, count) = (m.d(), length(op) / 128);
    let r = from_lanes(d, op, 64, |n| {
        let to = n / 2;
        let from = immediate(op) >> (to * count.trailing_zeros()) & (count - 1);
        lane(d, 64, 2 * from + n % 2, if to < count / 2 { &a } else { &b })
    });
    commit(m, op, W, r);
    Ok(())
}

/// VBROADCASTSS, VBROADCASTSD, VPBROADCASTB and its kin: the low `W` bits in every lane.
pub fn broadcast<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let v = match op.b {
        Loc::Mem => {
            let va = operand::effective_address(m, op);
            load_for_all(m, op, va, W, length(op) / W)?
        }
        _ => operand::read(m, op, op.b, W)?,
    };
    let r = from_lanes(m.d(), op, W, |_| v);
    commit(m, op, W, r);
    Ok(())
}

/// VBROADCASTF128, VBROADCASTF32X2 and their kin: `BITS` bits, lanes of `W`, again and again.
pub fn broadcast_block<M: Machine, const W: u32, const BITS: u32>(m: &mut M, op: &Op) -> Exec {
    if op.b != Loc::Mem {
        let b = register(m, op, op.b);
        let r = from_lanes(m.d(), op, W, |n| lane(m.d(), W, n % (BITS / W), &b));
        commit(m, op, W, r);
        return Ok(());
    }
    let va = operand::effective_address(m, op);
    let (count, total) = (BITS / W, length(op) / W);
    let mut lanes = Vec::with_capacity(16);
    for n in 0..count {
        let any = (n..total).step_by(count as usize).fold(m.d().bool(false), |any, n| {
            let active = is_active(m, op, n);
            m.d().or(any, active)
        });
        let from = above(m.d(), va, n * W / 8);
        lanes.push(m.load_if(any, W, from).map_err(|trap| operand::non_canonical(op, trap))?);
    }
    let r = from_lanes(m.d(), op, W, |n| lanes[(n % count) as usize]);
    commit(m, op, W, r);
    Ok(())
}

/// VINSERTF128, VINSERTF32X4 and their kin: `BITS` bits of the second source in place of as many of the first, which the immediate
/// numbers.
pub fn insert_block<M: Machine, const W: u32, const BITS: u32>(m: &mut M, op: &Op) -> Exec {
    let b = match second_place(op) {
        Loc::Mem => {
            let va = operand::effective_address(m, op);
            load_bits(m, op, va, BITS)?
        }
        loc => register(m, op, loc),
    };
    let mut r = first(m, op);
    let at = (immediate(op) % (length(op) / BITS) * (BITS / 64)) as usize;
    r[at..at + BITS as usize / 64].copy_from_slice(&b[..BITS as usize / 64]);
    commit(m, op, W, r);
    Ok(())
}

/// VEXTRACTF128, VEXTRACTF32X4 and their kin: the `BITS` bits that the immediate numbers.
pub fn extract_block<M: Machine, const W: u32, const BITS: u32>(m: &mut M, op: &Op) -> Exec {
    let b = register(m, op, op.b);
    let from = immediate(op) % (length(op) / BITS) * (BITS / W);
    let r = first_lanes(m.d(), W, BITS / W, |n| lane(m.d(), W, from + n, &b));
    if op.a == Loc::Mem {
        let va = operand::effective_address(m, op);
        if op.vector.mask.register().is_some() {
            // Whether a lane is stored does not matter for faults.
            m.prepare_store(va, u64::from(BITS / 8)).map_err(|trap| operand::non_canonical(op, trap))?;
        }
        return commit_store(m, op, va, W, BITS / W, &r);
    }
    commit_lanes(m, op, W, BITS / W, r);
    Ok(())
}
