//! Which instructions programs consist of: by them code is told from data that happens to decode.

use crate::ram::Virt;
use iced_x86::{EncodingKind, FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::ops::Range;
use x86::decode::machine_read;

/// Whether compilers and people write such an instruction: one of those that make up nearly all code, without odd
/// prefixes, and if it jumps directly, to a place in `code`. Of random bytes that decode, less than half are such.
pub(super) fn is_ordinary(instruction: &Instruction, code: &Range<Virt>) -> bool {
    // Padding comes with many prefixes.
    if instruction.mnemonic() == Mnemonic::Nop || machine_read(instruction).is_some() {
        return true;
    }
    let common = is_arithmetic(instruction.mnemonic()) && !changes_byte(instruction)
        || is_common(instruction)
        || is_transfer(instruction, code);
    common && has_no_odd_prefix(instruction)
}

/// Arithmetic. On a byte in memory, from a register, it is rare, and has the opcodes that small numbers decode to.
fn is_arithmetic(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{Adc, Add, And, Cmp, Dec, Inc, Neg, Not, Or, Sar, Sbb, Shl, Shr, Sub, Test, Xor};
    matches!(
        mnemonic,
        Add | Or | Adc | Sbb | And | Sub | Xor | Cmp | Test | Inc | Dec | Neg | Not | Shl | Shr | Sar
    )
}

fn changes_byte(instruction: &Instruction) -> bool {
    let kinds = (instruction.op0_kind(), instruction.op1_kind());
    let compares = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
    !compares && kinds == (OpKind::Memory, OpKind::Register) && instruction.memory_size().size() == 1
}

/// Moves, the stack, conditions, what stands around machine reads, and what is encoded with VEX, as AVX is.
fn is_common(instruction: &Instruction) -> bool {
    use Mnemonic::{
        Bsf, Bsr, Bswap, Bt, Btr, Bts, Cdq, Cdqe, Clflush, Cqo, Div, Endbr64, Fxrstor64, Fxsave64, Idiv,
        Imul, Int3, Lea, Leave, Lfence, Lzcnt, Mfence, Mov, Movaps, Movd, Movdqa, Movdqu, Movq, Movsx,
        Movsxd, Movups, Movzx, Mul, Pause, Pop, Push, Pxor, Rol, Ror, Sfence, Syscall, Tzcnt, Ud2, Xchg,
        Xorps,
    };
    let mnemonic = instruction.mnemonic();
    let listed = matches!(
        mnemonic,
        Bsf | Bsr
            | Bswap
            | Bt
            | Btr
            | Bts
            | Cdq
            | Cdqe
            | Clflush
            | Cqo
            | Div
            | Endbr64
            | Fxrstor64
            | Fxsave64
            | Idiv
            | Imul
            | Int3
            | Lea
            | Leave
            | Lfence
            | Lzcnt
            | Mfence
            | Mov
            | Movaps
            | Movd
            | Movdqa
            | Movdqu
            | Movq
            | Movsx
            | Movsxd
            | Movups
            | Movzx
            | Mul
            | Pause
            | Pop
            | Push
            | Pxor
            | Rol
            | Ror
            | Sfence
            | Syscall
            | Tzcnt
            | Ud2
            | Xchg
            | Xorps
    );
    listed || is_conditional(mnemonic) || instruction.encoding() == EncodingKind::VEX
}

/// CMOVcc and SETcc.
fn is_conditional(mnemonic: Mnemonic) -> bool {
    (Mnemonic::Cmova..=Mnemonic::Cmovs).contains(&mnemonic)
        || (Mnemonic::Seta..=Mnemonic::Sets).contains(&mnemonic)
}

/// Near calls, jumps and returns.
fn is_transfer(instruction: &Instruction, code: &Range<Virt>) -> bool {
    match instruction.flow_control() {
        FlowControl::ConditionalBranch => {
            instruction.is_jcc_short_or_near() && code.contains(&instruction.near_branch64())
        }
        FlowControl::Call | FlowControl::UnconditionalBranch => {
            instruction.is_call_near()
                || instruction.is_jmp_short_or_near() && code.contains(&instruction.near_branch64())
        }
        FlowControl::IndirectCall | FlowControl::IndirectBranch => {
            instruction.is_call_near_indirect() || instruction.is_jmp_near_indirect()
        }
        FlowControl::Return => instruction.mnemonic() == Mnemonic::Ret,
        _ => false,
    }
}

fn has_no_odd_prefix(instruction: &Instruction) -> bool {
    let segment = matches!(instruction.segment_prefix(), Register::None | Register::FS);
    let narrow = instruction.memory_base().is_gpr32() || instruction.memory_index().is_gpr32();
    segment && !narrow && !instruction.has_repne_prefix()
}
