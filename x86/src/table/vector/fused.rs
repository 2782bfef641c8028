//! FMA.

use iced_x86::{Instruction, MandatoryPrefix, OpCodeTableKind};

use crate::machine::{Body, Machine};
use crate::op::{Condition, Encoding, Op};
use crate::sem::vector::float::{Double, Single};
use crate::sem::vector::fused;

/// Its opcodes are regular: the high digit is the order of the operands, the low one the function, W the format.
/// The handlers find order and signs in the opcode.
pub(super) fn body<M: Machine>(i: &Instruction, op: &mut Op) -> Option<Body<M>> {
    // Asked first: iced makes its table of opcodes when it is first asked for one, and takes 2 ms for that.
    if op.vector.encoding == Encoding::Legacy {
        return None;
    }
    let code = i.op_code();
    let is_in_map = code.table() == OpCodeTableKind::T0F38 && code.mandatory_prefix() == MandatoryPrefix::P66;
    let opcode = u8::try_from(code.op_code()).unwrap_or(0);
    if !is_in_map || !(9..=0xb).contains(&(opcode >> 4)) || opcode & 15 < 6 {
        return None;
    }
    op.cc = Condition(opcode);
    let is_scalar = opcode & 15 > 8 && opcode & 1 != 0;
    Some(match (is_scalar, code.w() != 0) {
        (false, false) => fused::packed::<M, Single>,
        (false, true) => fused::packed::<M, Double>,
        (true, false) => fused::scalar::<M, Single>,
        (true, true) => fused::scalar::<M, Double>,
    })
}
