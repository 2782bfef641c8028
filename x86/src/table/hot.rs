//! The hot dozen: 32- and 64-bit forms by operand shape, for machines where an operand decided at run time
//! costs a tenth of the speed or more. The same functions as in [`super::integer`], with other parameters.

use iced_x86::Mnemonic as N;

use crate::machine::{Body, Machine};
use crate::op::{Loc, Op};
use crate::sem::operand::{Bits, Imm, Memory, Reg, Width};
use crate::sem::{arithmetic, logic, shift, stack, transfer};

/// A generic function with shapes for its last two parameters: register or memory, with register, memory or
/// immediate. `$f` is everything before them.
macro_rules! shapes {
    ($op:expr, $($f:ident)::+ <$($parameter:tt),*>) => {
        match ($op.a, $op.b) {
            (Loc::Reg(_), Loc::Reg(_)) => Some($($f)::+::<$($parameter),*, Reg<0>, Reg<1>>),
            (Loc::Reg(_), Loc::Imm) => Some($($f)::+::<$($parameter),*, Reg<0>, Imm>),
            (Loc::Reg(_), Loc::Mem) => Some($($f)::+::<$($parameter),*, Reg<0>, Memory>),
            (Loc::Mem, Loc::Reg(_)) => Some($($f)::+::<$($parameter),*, Memory, Reg<1>>),
            (Loc::Mem, Loc::Imm) => Some($($f)::+::<$($parameter),*, Memory, Imm>),
            _ => None,
        }
    };
}

type W32 = Bits<32>;
type W64 = Bits<64>;

/// The specialised handler of a form, if it has one.
pub(super) fn lookup<M: Machine>(mnemonic: N, op: &Op) -> Option<Body<M>> {
    match op.w {
        64 => wide(mnemonic, op),
        32 => narrow(mnemonic, op),
        _ => None,
    }
}

/// 64-bit forms.
fn wide<M: Machine>(mnemonic: N, op: &Op) -> Option<Body<M>> {
    match mnemonic {
        N::Mov => shapes!(op, transfer::mov<M, W64>),
        N::Add => shapes!(op, arithmetic::add<M, W64>),
        N::Sub => shapes!(op, arithmetic::sub<M, W64, true>),
        N::Cmp => shapes!(op, arithmetic::sub<M, W64, false>),
        N::And => shapes!(op, logic::logic<M, W64, { logic::AND }, true>),
        N::Test => shapes!(op, logic::logic<M, W64, { logic::AND }, false>),
        N::Or => shapes!(op, logic::logic<M, W64, { logic::OR }, true>),
        N::Xor => shapes!(op, logic::logic<M, W64, { logic::XOR }, true>),
        N::Lea => Some(transfer::lea::<M, W64>),
        N::Inc if matches!(op.a, Loc::Reg(_)) => Some(arithmetic::increment::<M, W64, true, Reg<0>>),
        N::Dec if matches!(op.a, Loc::Reg(_)) => Some(arithmetic::increment::<M, W64, false, Reg<0>>),
        N::Shl => shift_by_constant::<M, W64, { shift::LEFT }>(op),
        N::Shr => shift_by_constant::<M, W64, { shift::RIGHT }>(op),
        N::Sar => shift_by_constant::<M, W64, { shift::ARITHMETIC_RIGHT }>(op),
        N::Push if matches!(op.a, Loc::Reg(_)) => Some(stack::push::<M, Reg<0>>),
        N::Pop if matches!(op.a, Loc::Reg(_)) => Some(stack::pop_register::<M>),
        _ => None,
    }
}

/// 32-bit forms.
fn narrow<M: Machine>(mnemonic: N, op: &Op) -> Option<Body<M>> {
    match mnemonic {
        N::Mov => shapes!(op, transfer::mov<M, W32>),
        N::Add => shapes!(op, arithmetic::add<M, W32>),
        N::Sub => shapes!(op, arithmetic::sub<M, W32, true>),
        N::Cmp => shapes!(op, arithmetic::sub<M, W32, false>),
        N::And => shapes!(op, logic::logic<M, W32, { logic::AND }, true>),
        N::Test => shapes!(op, logic::logic<M, W32, { logic::AND }, false>),
        N::Or => shapes!(op, logic::logic<M, W32, { logic::OR }, true>),
        N::Xor => shapes!(op, logic::logic<M, W32, { logic::XOR }, true>),
        N::Lea => Some(transfer::lea::<M, W32>),
        N::Inc if matches!(op.a, Loc::Reg(_)) => Some(arithmetic::increment::<M, W32, true, Reg<0>>),
        N::Dec if matches!(op.a, Loc::Reg(_)) => Some(arithmetic::increment::<M, W32, false, Reg<0>>),
        N::Shl => shift_by_constant::<M, W32, { shift::LEFT }>(op),
        N::Shr => shift_by_constant::<M, W32, { shift::RIGHT }>(op),
        N::Sar => shift_by_constant::<M, W32, { shift::ARITHMETIC_RIGHT }>(op),
        _ => None,
    }
}

/// A shift of a register by an immediate.
fn shift_by_constant<M: Machine, W: Width, const OP: u8>(op: &Op) -> Option<Body<M>> {
    matches!((op.a, op.b), (Loc::Reg(_), Loc::Imm)).then_some(shift::shift::<M, W, OP, Reg<0>, Imm>)
}
