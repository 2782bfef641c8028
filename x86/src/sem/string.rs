//! String instructions (Intel SDM vol. 1, 7.3.9): one iteration per call.
//!
//! With a REP prefix the driver asks [`any_left`] before the first iteration and goes on while the returned
//! [`Flow::Repeat`] says `again`; so faults land between two iterations, with rcx, rsi and rdi advanced.

use super::operand::{register, set_register, with_segment};
use crate::domain::{Bin, Domain};
use crate::flags::{By, Flag, Flags};
use crate::machine::{Bool, Bv, Exec, Flow, FlowOf, Machine};
use crate::op::{Condition, Gpr, Op, Rep, Segment};

/// The selector of MOVS, in `op.cc`. LODS has none.
pub const MOVS: Condition = Condition(1);
/// That of STOS.
pub const STOS: Condition = Condition(2);
/// That of CMPS.
pub const CMPS: Condition = Condition(3);
/// That of SCAS.
pub const SCAS: Condition = Condition(4);

/// Width of rcx, rsi and rdi as the instruction uses them.
fn address_width(op: &Op) -> u32 {
    if op.mem.addr32 { 32 } else { 64 }
}

/// Whether a string instruction does anything at all: without a prefix always, with one if rcx is not zero.
pub fn any_left<M: Machine>(m: &M, op: &Op) -> Bool<M> {
    if op.rep == Rep::None {
        return m.d().bool(true);
    }
    let w = address_width(op);
    let count = register(m, Gpr::RCX, w);
    m.d().not(m.d().is_zero(w, count))
}

/// The address in rsi, in the segment of the prefix.
fn source<M: Machine>(m: &M, op: &Op) -> Bv<M> {
    let w = address_width(op);
    with_segment(m, op.mem.segment, m.d().zext(w, 64, register(m, Gpr::RSI, w)))
}

/// The address in rdi, always in ES.
fn destination<M: Machine>(m: &M, op: &Op) -> Bv<M> {
    let w = address_width(op);
    with_segment(m, Segment::Flat, m.d().zext(w, 64, register(m, Gpr::RDI, w)))
}

/// Moves `registers` by one element in the direction of DF, counts rcx down under a prefix, and says whether
/// there is another iteration: rcx is not zero, and `and_if` holds.
fn advance<M: Machine>(m: &mut M, op: &Op, registers: &[Gpr], and_if: Bool<M>) -> FlowOf<M> {
    let w = address_width(op);
    let size = u64::from(op.w / 8);
    let step = m.d().ite(m.direction(), w, m.d().lit(w, size.wrapping_neg()), m.d().lit(w, size));
    for &r in registers {
        let v = m.d().bin(Bin::Add, w, register(m, r, w), step);
        set_register(m, r, w, v);
    }
    if op.rep == Rep::None {
        return Flow::Repeat { again: m.d().bool(false) };
    }
    let count = m.d().bin(Bin::Sub, w, register(m, Gpr::RCX, w), m.d().lit(w, 1));
    set_register(m, Gpr::RCX, w, count);
    let left = m.d().not(m.d().is_zero(w, count));
    Flow::Repeat { again: m.d().and(left, and_if) }
}

/// MOVS.
pub fn movs<M: Machine>(m: &mut M, op: &Op) -> Exec<FlowOf<M>> {
    let w = u32::from(op.w);
    let v = m.load(w, source(m, op))?;
    m.store(w, destination(m, op), v)?;
    let always = m.d().bool(true);
    Ok(advance(m, op, &[Gpr::RSI, Gpr::RDI], always))
}

/// STOS.
pub fn stos<M: Machine>(m: &mut M, op: &Op) -> Exec<FlowOf<M>> {
    let w = u32::from(op.w);
    let v = register(m, Gpr::RAX, w);
    m.store(w, destination(m, op), v)?;
    let always = m.d().bool(true);
    Ok(advance(m, op, &[Gpr::RDI], always))
}

/// LODS.
pub fn lods<M: Machine>(m: &mut M, op: &Op) -> Exec<FlowOf<M>> {
    let w = u32::from(op.w);
    let v = m.load(w, source(m, op))?;
    set_register(m, Gpr::RAX, w, v);
    let always = m.d().bool(true);
    Ok(advance(m, op, &[Gpr::RSI], always))
}

/// CMPS.
pub fn cmps<M: Machine>(m: &mut M, op: &Op) -> Exec<FlowOf<M>> {
    let w = u32::from(op.w);
    let a = m.load(w, source(m, op))?;
    let b = m.load(w, destination(m, op))?;
    Ok(compare(m, op, a, b, &[Gpr::RSI, Gpr::RDI]))
}

/// SCAS.
pub fn scas<M: Machine>(m: &mut M, op: &Op) -> Exec<FlowOf<M>> {
    let w = u32::from(op.w);
    let a = register(m, Gpr::RAX, w);
    let b = m.load(w, destination(m, op))?;
    Ok(compare(m, op, a, b, &[Gpr::RDI]))
}

fn compare<M: Machine>(m: &mut M, op: &Op, a: Bv<M>, b: Bv<M>, registers: &[Gpr]) -> FlowOf<M> {
    let w = u32::from(op.w);
    let r = m.d().bin(Bin::Sub, w, a, b);
    let flags = Flags { by: By::Sub, w, a, b, r };
    m.set_flags(flags);
    let zero = flags.get(m.d(), Flag::Zero);
    let and_if = if op.rep == Rep::Repne { m.d().not(zero) } else { zero };
    advance(m, op, registers, and_if)
}
