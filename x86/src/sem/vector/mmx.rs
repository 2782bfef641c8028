//! MMX: vectors of 64 bits in the significands of the x87 registers, counted from the first and not from TOP.
//!
//! Every instruction with an MMX register, unless it faults, makes TOP zero and all registers valid, and one that writes
//! a register sets the bits above the significand (Intel SDM vol. 1, 9.5; vol. 3, table 13-2). An x87 exception that is
//! pending comes first. The operations on lanes, and the conversions, are those of the longer vectors.

use super::algebra::{lane, lane_of_part, part_from_lanes};
use super::convert::{Conversion, conversion_mode, function};
use super::float::{Raised, settle};
use super::lanes::{both, saturate_signed, saturate_unsigned};
use super::moves::signs;
use super::operands::{immediate, number, source_of};
use super::shift::{Shift, cut_amount, window};
use crate::domain::Domain;
use crate::machine::{Bv, Control, Exec, Machine};
use crate::op::{Gpr, Loc, Op};
use crate::packed::Lane;
use crate::sem::operand;
use crate::sem::x87::check_pending;

/// Does what an instruction does, between what all of them do.
fn switched<M: Machine>(m: &mut M, effect: impl FnOnce(&mut M) -> Exec) -> Exec {
    check_pending(m)?;
    effect(m)?;
    set_tags(m, 0xff);
    Ok(())
}

/// Makes TOP zero; a set bit is a register that is valid.
fn set_tags<M: Machine>(m: &mut M, valid: u64) {
    let tags = m.d().lit(8, valid);
    m.set_x87_top(0);
    m.set_control(Control::X87Tag, tags);
}

/// EMMS: all registers are empty.
pub fn empty<M: Machine>(m: &mut M, _op: &Op) -> Exec {
    check_pending(m)?;
    set_tags(m, 0);
    Ok(())
}

/// The first operand becomes `f(first, second)`; of the second, memory holds `bits` bits.
fn binary<M: Machine>(m: &mut M, op: &Op, bits: u32, f: impl FnOnce(&M::D, Bv<M>, Bv<M>) -> Bv<M>) -> Exec {
    switched(m, |m| {
        let b = operand::read(m, op, op.b, bits)?;
        let a = operand::read(m, op, op.a, 64)?;
        let r = f(m.d(), a, m.d().zext(bits, 64, b));
        operand::write(m, op, op.a, 64, r)
    })
}

/// `f(first, second)` in every lane, or `f` of the only source where the operation takes no other.
pub fn lanes<M: Machine, L: Lane>(m: &mut M, op: &Op) -> Exec {
    binary(m, op, 64, both::<_, L>)
}

/// PHADDW, PHADDD, PHADDSW, PHSUBW, PHSUBD, PHSUBSW: neighbours in the first operand, then in the second.
pub fn horizontal<M: Machine, L: Lane>(m: &mut M, op: &Op) -> Exec {
    binary(m, op, 64, |d, a, b| {
        part_from_lanes(d, L::W, |n| {
            let at = |k| lane(d, L::W, 2 * n + k, &[a, b]);
            L::lane(d, at(0), at(1))
        })
    })
}

/// PSLLW and its kin: shifts the lanes of `W` bits by the immediate or by 64 bits.
pub fn shift<M: Machine, S: Shift, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let by_immediate = op.b == Loc::Imm;
    binary(m, op, 64, |d, a, count| {
        let amount = match by_immediate {
            true => d.lit(W, u64::from(immediate(op).min(W))),
            false => cut_amount(d, W, 64, count),
        };
        part_from_lanes(d, W, |n| d.bin(S::OP, W, lane_of_part(d, W, n, a), amount))
    })
}

/// PUNPCKLBW .. PUNPCKHDQ: the lanes of the low (or `HIGH`) halves in turn. For the low one, 32 bits are loaded.
pub fn interleave<M: Machine, const W: u32, const HIGH: bool>(m: &mut M, op: &Op) -> Exec {
    let (bits, first) = if HIGH { (64, 32 / W) } else { (32, 0) };
    binary(m, op, bits, |d, a, b| {
        part_from_lanes(d, W, |n| lane_of_part(d, W, first + n / 2, if n % 2 == 0 { a } else { b }))
    })
}

/// PACKSSWB, PACKSSDW, PACKUSWB: the lanes of first and second operand, saturated to `W` bits.
pub fn narrow<M: Machine, const W: u32, const SIGNED: bool>(m: &mut M, op: &Op) -> Exec {
    binary(m, op, 64, |d, a, b| {
        part_from_lanes(d, W, |n| {
            let v = lane(d, 2 * W, n, &[a, b]);
            if SIGNED { saturate_signed(d, 2 * W, W, v) } else { saturate_unsigned(d, 2 * W, W, v) }
        })
    })
}

/// PSHUFB: each byte is chosen by the low three bits of a byte of the second operand, or zero if its sign is set.
pub fn shuffle_bytes<M: Machine>(m: &mut M, op: &Op) -> Exec {
    binary(m, op, 64, |d, a, order| {
        part_from_lanes(d, 8, |n| {
            let index = lane_of_part(d, 8, n, order);
            d.ite(d.sign(8, index), 8, d.lit(8, 0), d.select(8, &[a], d.trunc(8, 3, index)))
        })
    })
}

/// PSHUFW.
pub fn shuffle_words<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let order = immediate(op);
    binary(m, op, 64, |d, _, b| part_from_lanes(d, 16, |n| lane_of_part(d, 16, order >> (2 * n) & 3, b)))
}

/// PALIGNR: the first operand above the second, shifted right by bytes.
pub fn align_right<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let amount = immediate(op).min(16);
    binary(m, op, 64, |d, a, b| window(d, &[b, a], amount)[0])
}

/// PINSRW.
pub fn insert<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let to = immediate(op) & 3;
    binary(m, op, 16, |d, a, v| {
        part_from_lanes(d, 16, |n| {
            lane_of_part(d, 16, if n == to { 0 } else { n }, if n == to { v } else { a })
        })
    })
}

/// PEXTRW: into a general register, whose rest becomes zero.
pub fn extract<M: Machine>(m: &mut M, op: &Op) -> Exec {
    switched(m, |m| {
        let b = operand::read(m, op, op.b, 64)?;
        let v = m.d().zext(16, 64, lane_of_part(m.d(), 16, immediate(op) & 3, b));
        operand::write(m, op, op.a, 64, v)
    })
}

/// PMOVMSKB.
pub fn sign_mask<M: Machine>(m: &mut M, op: &Op) -> Exec {
    switched(m, |m| {
        let b = operand::read(m, op, op.b, 64)?;
        let bits = m.d().zext(8, 64, signs(m.d(), 8, b));
        operand::write(m, op, op.a, 64, bits)
    })
}

/// MOVD, MOVQ, MOVNTQ, MOVDQ2Q, MOVQ2DQ: `W` bits; the rest of a register becomes zero.
pub fn copy<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    switched(m, |m| {
        let v = operand::read(m, op, op.b, W)?;
        if let Loc::Vector(n) = op.a {
            let zero = m.d().lit(64, 0);
            m.set_vector(n, 1, zero);
        }
        operand::write(m, op, op.a, W, v)
    })
}

/// MASKMOVQ: the bytes of the first register whose byte in the second has its sign set go to memory at rdi. As
/// with MASKMOVDQU, the memory is read and written whole.
pub fn masked_store<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let bits = if op.mem.addr32 { 32 } else { 64 };
    switched(m, |m| {
        let offset = m.d().zext(bits, 64, operand::register(m, Gpr::RDI, bits));
        let va = operand::with_segment(m, op.mem.segment, offset);
        m.prepare_store(va, 8).map_err(|trap| operand::non_canonical(op, trap))?;
        let old = m.load(64, va).map_err(|trap| operand::non_canonical(op, trap))?;
        let v = operand::read(m, op, op.b, 64)?;
        let mask = operand::read(m, op, op.c, 64)?;
        let merged = {
            let d = m.d();
            part_from_lanes(d, 8, |n| {
                let chosen = d.sign(8, lane_of_part(d, 8, n, mask));
                d.ite(chosen, 8, lane_of_part(d, 8, n, v), lane_of_part(d, 8, n, old))
            })
        };
        m.store(64, va, merged).map_err(|trap| operand::non_canonical(op, trap))
    })
}

/// Converts two lanes of `source`, and raises what that finds.
fn convert<M: Machine, C: Conversion>(m: &mut M, op: &Op, source: &[Bv<M>]) -> Exec<[Bv<M>; 2]> {
    let (lanes, raised) = {
        let (d, mode, mut raised) = (m.d(), conversion_mode(m, op), Raised::none(m.d()));
        let lanes = [0, 1].map(|n| raised.apply(d, function::<C>(op), &[lane(d, C::FROM, n, source), mode]));
        (lanes, raised)
    };
    settle(m, op, &raised)?;
    Ok(lanes)
}

/// CVTPI2PS (the upper half of the destination stays), CVTPI2PD. From memory they leave the x87 alone.
pub fn into_floats<M: Machine, C: Conversion>(m: &mut M, op: &Op) -> Exec {
    let effect = |m: &mut M| {
        let b = operand::read(m, op, op.b, 64)?;
        let [low, high] = convert::<M, C>(m, op, &[b])?;
        if C::TO == 64 {
            m.set_vector(number(op.a), 0, low);
            m.set_vector(number(op.a), 1, high);
        } else {
            let both = m.d().concat(32, high, 32, low);
            m.set_vector(number(op.a), 0, both);
        }
        Ok(())
    };
    if op.b == Loc::Mem { effect(m) } else { switched(m, effect) }
}

/// CVTPS2PI, CVTPD2PI and the truncating ones.
pub fn into_integers<M: Machine, C: Conversion>(m: &mut M, op: &Op) -> Exec {
    switched(m, |m| {
        let b = source_of(m, op, op.b, 2 * C::FROM, C::FROM)?;
        let [low, high] = convert::<M, C>(m, op, &b)?;
        let both = m.d().concat(32, high, 32, low);
        operand::write(m, op, op.a, 64, both)
    })
}
