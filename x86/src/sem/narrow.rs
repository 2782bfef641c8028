//! Jumps, calls and returns of 32-bit code: rip is of 32 bits, and so is what they push and pop.

use super::operand::read;
use super::stack;
use crate::domain::Domain;
use crate::machine::{Bv, Exec, Flow, FlowOf, Machine};
use crate::op::Op;

/// The target in the first operand.
fn target<M: Machine>(m: &mut M, op: &Op) -> Exec<Bv<M>> {
    let to = read(m, op, op.a, 32)?;
    Ok(m.d().zext(32, 64, to))
}

fn push_next<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let back = m.d().lit(32, op.next & 0xffff_ffff);
    stack::push_value(m, 32, back)
}

/// CALL of a constant address.
pub fn call<M: Machine>(m: &mut M, op: &Op) -> Exec<FlowOf<M>> {
    push_next(m, op)?;
    Ok(Flow::Jump(m.d().lit(64, op.imm)))
}

/// CALL through a register or memory.
pub fn call_indirect<M: Machine>(m: &mut M, op: &Op) -> Exec<FlowOf<M>> {
    let to = target(m, op)?;
    push_next(m, op)?;
    Ok(Flow::Jump(to))
}

/// JMP through a register or memory.
pub fn jmp_indirect<M: Machine>(m: &mut M, op: &Op) -> Exec<FlowOf<M>> {
    Ok(Flow::Jump(target(m, op)?))
}

/// RET; the immediate is what else it releases.
pub fn ret<M: Machine>(m: &mut M, op: &Op) -> Exec<FlowOf<M>> {
    let to = stack::top(m, 32)?;
    let released = 4 + u32::try_from(op.imm & 0xffff).unwrap_or(0);
    stack::release(m, released);
    Ok(Flow::Jump(m.d().zext(32, 64, to)))
}
