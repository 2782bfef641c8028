//! x87 instructions.

use iced_x86::Instruction;

use crate::machine::{Handler, Machine};
use crate::op::Op;

/// The handler and operands of `i`, if it is one of these.
pub(super) fn lookup<M: Machine>(_i: &Instruction) -> Option<(Handler<M>, Op)> {
    None
}
