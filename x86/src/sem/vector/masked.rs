//! Accesses of the lanes that a vector or an opmask names: VMASKMOVPS and its kin, gathers, scatters.

use super::{
    above, first_lanes, from_lanes, is_active, lane, length, mask as ones_if, number, parts, register,
    set_register, store_chosen,
};
use crate::domain::{Bin, Domain};
use crate::machine::{Bool, Bv, Exec, Machine};
use crate::op::{Loc, Op};
use crate::sem::operand;

/// VMASKMOVPS, VMASKMOVPD, VPMASKMOVD, VPMASKMOVQ: the lanes of `W` bits whose lane in the second operand has its sign
/// set; others are loaded as zeros, or not stored, and not looked at.
pub fn by_sign<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let va = operand::effective_address(m, op);
    let (mask, count) = (register(m, op, op.b), length(op) / W);
    let conditions: Vec<Bool<M>> = (0..count).map(|n| m.d().sign(W, lane(m.d(), W, n, &mask))).collect();
    if op.a == Loc::Mem {
        let v = register(m, op, op.c);
        return store_chosen(m, op, va, W, &conditions, &v);
    }
    let mut lanes = Vec::with_capacity(8);
    for (at, &c) in (0..).step_by(W as usize / 8).zip(&conditions) {
        let from = above(m.d(), va, at);
        lanes.push(m.load_if(c, W, from).map_err(|trap| operand::non_canonical(op, trap))?);
    }
    let r = first_lanes(m.d(), W, count, |n| lanes[n as usize]);
    set_register(m, op, op.a, r);
    Ok(())
}

/// VGATHERDPS and its kin: lanes of `W` bits from addresses whose indices are the lanes of `INDEX` bits of a vector,
/// where the sign of the lane in the third operand is set.
///
/// First the mask becomes all ones or all zeros in each lane. Then a lane that is loaded is written, and its mask
/// cleared, before the next is looked at: what a fault interrupts goes on where it was (Intel SDM vol. 2, VPGATHERDD).
/// Gathers and scatters are the instructions that leave a trace when they fault.
pub fn gather<M: Machine, const W: u32, const INDEX: u32>(m: &mut M, op: &Op) -> Exec {
    let indices = register(m, op, op.d);
    let mask = register(m, op, op.c);
    let signs = from_lanes(m.d(), op, W, |n| ones_if(m.d(), W, m.d().sign(W, lane(m.d(), W, n, &mask))));
    set_register(m, op, op.c, signs);
    let mut any = m.d().bool(false);
    for n in 0..length(op) / W.max(INDEX) {
        let active = m.d().sign(W, lane(m.d(), W, n, &signs));
        let va = element_address::<M>(m, op, INDEX, lane(m.d(), INDEX, n, &indices));
        let loaded = m.load_if(active, W, va).map_err(|trap| operand::non_canonical(op, trap))?;
        any = m.d().or(any, active);
        write_element(m, op, W, n, loaded, active, any);
        let (d, mask) = (m.d(), register(m, op, op.c));
        let rest = from_lanes(d, op, W, |k| if k == n { d.lit(W, 0) } else { lane(d, W, k, &mask) });
        set_register(m, op, op.c, rest);
    }
    clear_rest(m, op, W, length(op) / W.max(INDEX));
    let zero = [m.d().lit(64, 0); 8];
    set_register(m, op, op.c, zero);
    Ok(())
}

/// The same under an opmask: its bit n is cleared when lane n is written.
pub fn gather_by_mask<M: Machine, const W: u32, const INDEX: u32>(m: &mut M, op: &Op) -> Exec {
    let (indices, count) = (register(m, op, op.d), length(op) / W.max(INDEX));
    let mut any = m.d().bool(false);
    for n in 0..count {
        let active = is_active(m, op, n);
        let va = element_address::<M>(m, op, INDEX, lane(m.d(), INDEX, n, &indices));
        let loaded = m.load_if(active, W, va).map_err(|trap| operand::non_canonical(op, trap))?;
        any = m.d().or(any, active);
        write_element(m, op, W, n, loaded, active, any);
        keep_mask_above(m, op, n + 1);
    }
    clear_rest(m, op, W, count);
    keep_mask_above(m, op, 64);
    Ok(())
}

/// VSCATTERDPS and its kin: lanes of `W` bits to addresses whose indices are the lanes of `INDEX` bits of a vector, one
/// after the other, so that the highest stays where addresses are the same. Bit n of the mask is cleared when lane n
/// is stored.
pub fn scatter<M: Machine, const W: u32, const INDEX: u32>(m: &mut M, op: &Op) -> Exec {
    let (indices, v) = (register(m, op, op.d), register(m, op, op.b));
    for n in 0..length(op) / W.max(INDEX) {
        let active = is_active(m, op, n);
        let va = element_address::<M>(m, op, INDEX, lane(m.d(), INDEX, n, &indices));
        let element = lane(m.d(), W, n, &v);
        m.store_if(active, W, va, element).map_err(|trap| operand::non_canonical(op, trap))?;
        keep_mask_above(m, op, n + 1);
    }
    keep_mask_above(m, op, 64);
    Ok(())
}

/// Clears the bits of the mask below `n`.
fn keep_mask_above<M: Machine>(m: &mut M, op: &Op, n: u32) {
    if let Some(k) = op.vector.mask.register() {
        let d = m.d();
        let kept = d.lit(64, u64::MAX.checked_shl(n).unwrap_or(0));
        let rest = d.bin(Bin::And, 64, m.opmask(k), kept);
        m.set_opmask(k, rest);
    }
}

/// Clears the destination above the first `count` lanes of `w` bits, which may be fewer than the vector has.
fn clear_rest<M: Machine>(m: &mut M, op: &Op, w: u32, count: u32) {
    let (d, v) = (m.d(), register(m, op, op.a));
    let r = first_lanes(d, w, count, |n| lane(d, w, n, &v));
    set_register(m, op, op.a, r);
}

/// Writes lane `n` of the destination if it is `active`. What is above the vector becomes zero with the first lane that
/// is written, as processors have it.
fn write_element<M: Machine>(m: &mut M, op: &Op, w: u32, n: u32, v: Bv<M>, active: Bool<M>, any: Bool<M>) {
    let old = register(m, op, op.a);
    let d = m.d();
    let v = d.ite(active, w, v, lane(d, w, n, &old));
    let mut r = from_lanes(d, op, w, |k| if k == n { v } else { lane(d, w, k, &old) });
    for (above, old) in r.iter_mut().zip(old).skip(parts(op)) {
        *above = d.ite(any, 64, d.lit(64, 0), old);
    }
    for (part, v) in (0..).zip(r) {
        m.set_vector(number(op.a), part, v);
    }
}

/// The address of an element: base and displacement, and its index, sign-extended and scaled.
fn element_address<M: Machine>(m: &M, op: &Op, w: u32, index: Bv<M>) -> Bv<M> {
    let d = m.d();
    let scaled = d.bin(Bin::Shl, 64, d.sext(w, 64, index), d.lit(64, u64::from(op.mem.scale & 3)));
    let offset = d.bin(Bin::Add, 64, operand::effective_offset(m, op), scaled);
    operand::with_segment(m, op.mem.segment, operand::cut_to_address_size(m, op, offset))
}
