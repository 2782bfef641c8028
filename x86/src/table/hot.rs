//! The hot forms by width and operand shape, for machines where an operand decided at run time costs a tenth of the
//! speed or more. Which they are was counted in programs. The same functions as in [`super::integer`], with other parameters.

use iced_x86::{ConditionCode, Instruction, Mnemonic as N};

use super::integer::source_bits;
use crate::machine::{Body, Handler, Last, Machine};
use crate::op::{BranchKind, Loc, Op};
use crate::sem::operand::{Bits, Imm, Memory, Reg, Width};
use crate::sem::{arithmetic, control, logic, multiply, shift, stack, transfer};

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

type W8 = Bits<8>;
type W16 = Bits<16>;
type W32 = Bits<32>;
type W64 = Bits<64>;

/// The specialised handler of a form, if it has one.
pub(super) fn lookup<M: Machine>(i: &Instruction, op: &Op) -> Option<Handler<M>> {
    if i.is_jcc_short_or_near() {
        return branch(op).map(|run| Handler::Last(run, Some(BranchKind::Conditional)));
    }
    let body: Option<Body<M>> = match op.w {
        64 => wide(i, op),
        32 => narrow(i, op),
        16 if i.mnemonic() == N::Mov => shapes!(op, transfer::mov<M, W16>),
        8 => byte(i, op),
        _ => None,
    };
    body.map(Handler::Body)
}

/// A conditional branch by its condition.
fn branch<M: Machine>(op: &Op) -> Option<Last<M>> {
    macro_rules! by_condition {
        ($($cc:literal)*) => {
            match op.cc.0 {
                $($cc => Some(control::jcc_if::<M, $cc>),)*
                _ => None,
            }
        };
    }
    by_condition!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
}

/// 64-bit forms.
fn wide<M: Machine>(i: &Instruction, op: &Op) -> Option<Body<M>> {
    match i.mnemonic() {
        N::Mov => shapes!(op, transfer::mov<M, W64>),
        N::Add => shapes!(op, arithmetic::add<M, W64>),
        N::Sub => shapes!(op, arithmetic::sub<M, W64, true>),
        N::Cmp => shapes!(op, arithmetic::sub<M, W64, false>),
        N::And => shapes!(op, logic::logic<M, W64, { logic::AND }, true>),
        N::Test => shapes!(op, logic::logic<M, W64, { logic::AND }, false>),
        N::Or => shapes!(op, logic::logic<M, W64, { logic::OR }, true>),
        N::Xor => shapes!(op, logic::logic<M, W64, { logic::XOR }, true>),
        N::Lea => Some(transfer::lea::<M, W64, Reg<0>>),
        N::Movzx => extend::<M, W64, false>(i, op),
        N::Movsx | N::Movsxd => extend::<M, W64, true>(i, op),
        N::Inc if matches!(op.a, Loc::Reg(_)) => Some(arithmetic::increment::<M, W64, true, Reg<0>>),
        N::Dec if matches!(op.a, Loc::Reg(_)) => Some(arithmetic::increment::<M, W64, false, Reg<0>>),
        N::Shl => shift_by_constant::<M, W64, { shift::LEFT }>(op),
        N::Shr => shift_by_constant::<M, W64, { shift::RIGHT }>(op),
        N::Sar => shift_by_constant::<M, W64, { shift::ARITHMETIC_RIGHT }>(op),
        N::Adc => shapes!(op, arithmetic::adc<M, W64>),
        N::Sbb => shapes!(op, arithmetic::sbb<M, W64>),
        N::Neg if matches!(op.a, Loc::Reg(_)) => Some(arithmetic::neg::<M, W64, Reg<0>>),
        N::Imul => product::<M, W64>(op),
        _ if has_condition(i) => conditional_move::<M, W64>(op),
        N::Push if matches!(op.a, Loc::Reg(_)) => Some(stack::push::<M, Reg<0>>),
        N::Pop if matches!(op.a, Loc::Reg(_)) => Some(stack::pop_register::<M>),
        _ => None,
    }
}

/// 32-bit forms.
fn narrow<M: Machine>(i: &Instruction, op: &Op) -> Option<Body<M>> {
    match i.mnemonic() {
        N::Mov => shapes!(op, transfer::mov<M, W32>),
        N::Add => shapes!(op, arithmetic::add<M, W32>),
        N::Sub => shapes!(op, arithmetic::sub<M, W32, true>),
        N::Cmp => shapes!(op, arithmetic::sub<M, W32, false>),
        N::And => shapes!(op, logic::logic<M, W32, { logic::AND }, true>),
        N::Test => shapes!(op, logic::logic<M, W32, { logic::AND }, false>),
        N::Or => shapes!(op, logic::logic<M, W32, { logic::OR }, true>),
        N::Xor => shapes!(op, logic::logic<M, W32, { logic::XOR }, true>),
        N::Lea => Some(transfer::lea::<M, W32, Reg<0>>),
        N::Movzx => extend::<M, W32, false>(i, op),
        N::Movsx | N::Movsxd => extend::<M, W32, true>(i, op),
        N::Inc if matches!(op.a, Loc::Reg(_)) => Some(arithmetic::increment::<M, W32, true, Reg<0>>),
        N::Dec if matches!(op.a, Loc::Reg(_)) => Some(arithmetic::increment::<M, W32, false, Reg<0>>),
        N::Shl => shift_by_constant::<M, W32, { shift::LEFT }>(op),
        N::Shr => shift_by_constant::<M, W32, { shift::RIGHT }>(op),
        N::Sar => shift_by_constant::<M, W32, { shift::ARITHMETIC_RIGHT }>(op),
        N::Adc => shapes!(op, arithmetic::adc<M, W32>),
        N::Sbb => shapes!(op, arithmetic::sbb<M, W32>),
        N::Neg if matches!(op.a, Loc::Reg(_)) => Some(arithmetic::neg::<M, W32, Reg<0>>),
        N::Imul => product::<M, W32>(op),
        _ if has_condition(i) => conditional_move::<M, W32>(op),
        _ => None,
    }
}

/// 8-bit forms; those of ah, ch, dh and bh are none of them.
fn byte<M: Machine>(i: &Instruction, op: &Op) -> Option<Body<M>> {
    match i.mnemonic() {
        N::Mov => shapes!(op, transfer::mov<M, W8>),
        N::Add => shapes!(op, arithmetic::add<M, W8>),
        N::Cmp => shapes!(op, arithmetic::sub<M, W8, false>),
        N::And => shapes!(op, logic::logic<M, W8, { logic::AND }, true>),
        N::Test => shapes!(op, logic::logic<M, W8, { logic::AND }, false>),
        N::Or => shapes!(op, logic::logic<M, W8, { logic::OR }, true>),
        N::Xor => shapes!(op, logic::logic<M, W8, { logic::XOR }, true>),
        _ if has_condition(i) && matches!(op.a, Loc::Reg(_)) => Some(transfer::setcc::<M, Reg<0>>),
        _ => None,
    }
}

/// IMUL of a register by a register or memory, or by an immediate into another.
fn product<M: Machine, W: Width>(op: &Op) -> Option<Body<M>> {
    Some(match (op.b, op.c) {
        (Loc::Reg(_), Loc::None) => multiply::multiply::<M, W, Reg<0>, Reg<1>>,
        (Loc::Mem, Loc::None) => multiply::multiply::<M, W, Reg<0>, Memory>,
        (Loc::Reg(_), Loc::Imm) => multiply::multiply::<M, W, Reg<1>, Imm>,
        _ => return None,
    })
}

/// Of a register: CMOVcc, or SETcc where it has 8 bits. Jcc is another matter.
fn has_condition(i: &Instruction) -> bool {
    i.condition_code() != ConditionCode::None
}

/// CMOVcc.
fn conditional_move<M: Machine, W: Width>(op: &Op) -> Option<Body<M>> {
    Some(match (op.a, op.b) {
        (Loc::Reg(_), Loc::Reg(_)) => transfer::cmov::<M, W, Reg<0>, Reg<1>>,
        (Loc::Reg(_), Loc::Mem) => transfer::cmov::<M, W, Reg<0>, Memory>,
        _ => return None,
    })
}

/// MOVZX, MOVSX and MOVSXD from memory or from the low bits of a register.
fn extend<M: Machine, W: Width, const SIGNED: bool>(i: &Instruction, op: &Op) -> Option<Body<M>> {
    Some(match (op.b, source_bits(i)) {
        (Loc::Reg(_), 8) => transfer::extend::<M, W, 8, SIGNED, Reg<0>, Reg<1>>,
        (Loc::Reg(_), 16) => transfer::extend::<M, W, 16, SIGNED, Reg<0>, Reg<1>>,
        (Loc::Reg(_), 32) => transfer::extend::<M, W, 32, SIGNED, Reg<0>, Reg<1>>,
        (Loc::Mem, 8) => transfer::extend::<M, W, 8, SIGNED, Reg<0>, Memory>,
        (Loc::Mem, 16) => transfer::extend::<M, W, 16, SIGNED, Reg<0>, Memory>,
        (Loc::Mem, 32) => transfer::extend::<M, W, 32, SIGNED, Reg<0>, Memory>,
        _ => return None,
    })
}

/// A shift of a register by an immediate.
fn shift_by_constant<M: Machine, W: Width, const OP: u8>(op: &Op) -> Option<Body<M>> {
    matches!((op.a, op.b), (Loc::Reg(_), Loc::Imm)).then_some(shift::shift::<M, W, OP, Reg<0>, Imm>)
}
