//! MXCSR, and the FXSAVE image of x87 and SSE state (Intel SDM vol. 1, 10.5.1).

use super::{aligned_address, load_bits};
use crate::domain::{Bin, Domain};
use crate::machine::{Bv, Control, Exec, Machine, Trap};
use crate::op::Op;
use crate::sem::operand;

/// The size of the FXSAVE image, all of which must be accessible.
const IMAGE_BYTES: u64 = 512;
/// The size of the part of it that the processor writes.
const SAVED_BYTES: u64 = 416;

/// #GP if a value for MXCSR sets a bit that Intel's processors do not have. AMD's bit 17 is not modelled.
fn check_mxcsr<M: Machine>(m: &mut M, v: Bv<M>) -> Exec {
    let reserved = {
        let d = m.d();
        d.not(d.is_zero(16, d.extract(32, 16, 16, v)))
    };
    m.trap_if(reserved, Trap::General)
}

/// LDMXCSR.
pub fn ldmxcsr<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let v = operand::load(m, op, 32)?;
    check_mxcsr(m, v)?;
    m.set_control(Control::Mxcsr, v);
    Ok(())
}

/// STMXCSR.
pub fn stmxcsr<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let v = m.control(Control::Mxcsr);
    operand::store(m, op, 32, v)
}

fn offset<M: Machine>(d: &M::D, va: Bv<M>, by: u64) -> Bv<M> {
    d.bin(Bin::Add, 64, va, d.lit(64, by))
}

/// FXSAVE, FXSAVE64: 416 bytes; those above are not written. The last x87 opcode and pointers are stored as
/// zeros.
pub fn fxsave<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let va = aligned_address(m, op, 16)?;
    m.prepare_store(va, IMAGE_BYTES).map_err(|trap| operand::non_canonical(op, trap))?;
    let zero = m.d().lit(64, 0);
    let header = {
        let d = m.d();
        let words = d.concat(16, m.control(Control::X87Status), 16, m.control(Control::X87Control));
        let tag = d.zext(8, 32, m.control(Control::X87Tag));
        d.concat(32, tag, 32, words)
    };
    let mask = m.d().lit(32, m.mxcsr_mask().0.into());
    let mxcsr = m.d().concat(32, mask, 32, m.control(Control::Mxcsr));
    let mut image = vec![[header, zero], [zero, mxcsr]];
    for n in 0..8 {
        let (significand, sign_exponent) = m.x87((m.x87_top() + n) & 7);
        image.push([significand, m.d().zext(16, 64, sign_exponent)]);
    }
    image.extend((0..16).map(|n| [m.vector(n, 0), m.vector(n, 1)]));
    for (at, v) in (0..).step_by(16).zip(image) {
        let to = offset::<M>(m.d(), va, at);
        m.store_parts(to, &v).map_err(|trap| operand::non_canonical(op, trap))?;
    }
    Ok(())
}

/// FXRSTOR, FXRSTOR64. The last x87 opcode and pointers are ignored.
pub fn fxrstor<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let va = aligned_address(m, op, 16)?;
    let last = offset::<M>(m.d(), va, IMAGE_BYTES - 1);
    m.load(8, last).map_err(|trap| operand::non_canonical(op, trap))?;
    let mut image = Vec::with_capacity(26);
    for at in (0..SAVED_BYTES).step_by(16) {
        let from = offset::<M>(m.d(), va, at);
        image.push(load_bits(m, op, from, 128)?);
    }
    let field = |m: &M, half: usize, low: u32, w: u32| m.d().extract(64, low, w, image[half / 2][half % 2]);
    let mxcsr = field(m, 3, 0, 32);
    check_mxcsr(m, mxcsr)?;
    m.set_control(Control::Mxcsr, mxcsr);
    let control = crate::sem::x87::fixed_control(m.d(), field(m, 0, 0, 16));
    m.set_control(Control::X87Control, control);
    let status = crate::sem::x87::summarized(m.d(), field(m, 0, 16, 16), control);
    m.set_control(Control::X87Status, status);
    m.set_control(Control::X87Tag, field(m, 0, 32, 8));
    for n in 0..8 {
        let (significand, sign_exponent) = (image[2 + usize::from(n)][0], image[2 + usize::from(n)][1]);
        let sign_exponent = m.d().trunc(64, 16, sign_exponent);
        m.set_x87((m.x87_top() + n) & 7, significand, sign_exponent);
    }
    for n in 0..16 {
        let [low, high, ..] = image[10 + usize::from(n)];
        m.set_vector(n, 0, low);
        m.set_vector(n, 1, high);
    }
    Ok(())
}
