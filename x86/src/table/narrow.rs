//! Code of 32 bits: what it has in common with 64-bit code, and the few instructions that it has not.
//!
//! An instruction that iced decodes in 32-bit mode has the operands of one of 64-bit mode with the prefix 67, and registers
//! that are written lose their upper halves. So the table is the same but for what goes through the stack, and for transfers.
//! What the table does not see is left out: segments with a base, addresses and branches of 16 bits, and what 64-bit code has
//! no more (PUSHA, BOUND, the decimal adjustments).

use super::lookup as lookup_wide;
use crate::machine::{Handler, Machine};
use crate::op::{BranchKind, Op};
use crate::sem::{control, narrow};
use iced_x86::{Code, Instruction, Mnemonic as N, OpKind, Register};

/// The handler and operands of an instruction of 32-bit code; `None` where there are no semantics.
pub(crate) fn lookup<M: Machine>(i: &Instruction) -> Option<(Handler<M>, Op)> {
    if !is_served(i) {
        return None;
    }
    let op = crate::decode::op(i);
    let last = |run, kind| Some((Handler::Last(run, Some(kind)), op));
    match i.code() {
        Code::Call_rel32_32 => last(narrow::call::<M>, BranchKind::RelativeCall),
        Code::Call_rm32 => last(narrow::call_indirect::<M>, BranchKind::IndirectCall),
        Code::Jmp_rm32 => last(narrow::jmp_indirect::<M>, BranchKind::IndirectJump),
        Code::Retnd | Code::Retnd_imm16 => last(narrow::ret::<M>, BranchKind::Return),
        // Outside of 64-bit mode Intel's processors have none.
        Code::Syscall => Some((Handler::Last(control::undefined::<M>, None), op)),
        _ => lookup_wide(i),
    }
}

/// Whether operands and transfers are of 32 bits, in flat segments.
fn is_served(i: &Instruction) -> bool {
    let is_left_out = match i.mnemonic() {
        N::Call | N::Jmp => matches!(i.code(), Code::Call_rm16 | Code::Jmp_rm16),
        N::Ret => matches!(i.code(), Code::Retnw | Code::Retnw_imm16),
        N::Loop | N::Loope | N::Loopne => {
            !matches!(i.code(), Code::Loop_rel8_32_ECX | Code::Loope_rel8_32_ECX | Code::Loopne_rel8_32_ECX)
        }
        // What they store has the eight registers of 32-bit code alone.
        N::Fxsave | N::Fxrstor => true,
        _ => false,
    };
    !is_left_out && (0..i.op_count()).all(|n| is_flat(i, n))
}

/// Whether an operand is none of 16-bit addresses and none of a segment with a base.
fn is_flat(i: &Instruction, n: u32) -> bool {
    let has_base = matches!(i.memory_segment(), Register::FS | Register::GS);
    match i.op_kind(n) {
        OpKind::Memory => {
            let short = |r: Register| r != Register::None && !r.is_gpr32() && !r.is_vector_register();
            let is_absolute = i.memory_base() == Register::None && i.memory_index() == Register::None;
            // XLAT's index is AL.
            let has_short_index = short(i.memory_index()) && i.mnemonic() != N::Xlatb;
            let is_short =
                short(i.memory_base()) || has_short_index || is_absolute && i.memory_displ_size() == 2;
            !has_base && !is_short
        }
        OpKind::MemorySegESI => !has_base,
        OpKind::MemorySegSI | OpKind::MemorySegDI | OpKind::MemoryESDI | OpKind::NearBranch16 => false,
        _ => true,
    }
}
