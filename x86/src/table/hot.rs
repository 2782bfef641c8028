//! The hot forms as steps of a block: by width and operand shape, since an operand decided at run time costs a tenth of the
//! speed or more; and comparisons together with the branch behind them. Which they are was counted in programs. The same
//! functions as in [`super::integer`], with other parameters.

use iced_x86::{Instruction, Mnemonic as N};

use super::integer::source_bits;
use crate::bus::Bus;
use crate::op::{Condition, Loc, Op, Segment};
use crate::quick::Quick;
use crate::sem::operand::{AnyAddress, AnyCondition, Based, Bits, If, Imm, Indexed, Memory, Reg, Width};
use crate::sem::{arithmetic, control, logic, multiply, shift, stack, transfer};
use crate::step::{self, Run};

type W8 = Bits<8>;
type W16 = Bits<16>;
type W32 = Bits<32>;
type W64 = Bits<64>;
/// The first operand, a register.
type A = Reg<0>;
/// The second.
type B = Reg<1>;
/// Memory at a base.
type AtBase = Memory<Based>;
/// Memory at a base and an index.
type AtIndex = Memory<Indexed>;
/// Memory at any address.
type At = Memory<AnyAddress>;

/// Where the memory operand is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Base,
    Index,
    Any,
}

fn form(op: &Op) -> Form {
    let plain = op.mem.segment == Segment::Flat && !op.mem.addr32 && op.mem.base.is_some();
    match op.mem.index {
        None if plain => Form::Base,
        Some(_) if plain => Form::Index,
        _ => Form::Any,
    }
}

/// The step that a description is: `$f`, and its parameters behind the machine.
macro_rules! hot {
    ($($f:ident)::+ <$($p:tt),*>) => {{
        let run: Run<T> = |cpu, steps| {
            step::fall_through(cpu, steps, |m, op| $($f)::+::<Quick<'_, T>, $($p),*>(m, op))
        };
        run
    }};
}

/// The same for one that jumps.
macro_rules! jump {
    ($($f:ident)::+) => {{
        let run: Run<T> = |cpu, steps| step::jump(cpu, steps, |m, op| $($f)::+(m, op));
        run
    }};
}

/// A step whose last parameter is memory.
macro_rules! from_memory {
    ($op:expr, $($f:ident)::+ <$($p:tt),*>) => {
        match form($op) {
            Form::Base => hot!($($f)::+ <$($p),*, AtBase>),
            Form::Index => hot!($($f)::+ <$($p),*, AtIndex>),
            Form::Any => hot!($($f)::+ <$($p),*, At>),
        }
    };
}

/// A description with the shapes of its last two parameters: register or memory, with register, memory or immediate.
macro_rules! shapes {
    ($op:expr, $($f:ident)::+ <$($p:tt),*>) => {
        match ($op.a, $op.b, form($op)) {
            (Loc::Reg(_), Loc::Reg(_), _) => Some(hot!($($f)::+ <$($p),*, A, B>)),
            (Loc::Reg(_), Loc::Imm, _) => Some(hot!($($f)::+ <$($p),*, A, Imm>)),
            (Loc::Reg(_), Loc::Mem, _) => Some(from_memory!($op, $($f)::+ <$($p),*, A>)),
            (Loc::Mem, Loc::Reg(_), Form::Base) => Some(hot!($($f)::+ <$($p),*, AtBase, B>)),
            (Loc::Mem, Loc::Reg(_), Form::Index) => Some(hot!($($f)::+ <$($p),*, AtIndex, B>)),
            (Loc::Mem, Loc::Reg(_), Form::Any) => Some(hot!($($f)::+ <$($p),*, At, B>)),
            (Loc::Mem, Loc::Imm, Form::Base) => Some(hot!($($f)::+ <$($p),*, AtBase, Imm>)),
            (Loc::Mem, Loc::Imm, Form::Index) => Some(hot!($($f)::+ <$($p),*, AtIndex, Imm>)),
            (Loc::Mem, Loc::Imm, Form::Any) => Some(hot!($($f)::+ <$($p),*, At, Imm>)),
            _ => None,
        }
    };
}

/// The step of a form, if it is a hot one.
pub(crate) fn lookup<T: Bus>(i: &Instruction, op: &Op) -> Option<Run<T>> {
    if i.is_jcc_short_or_near() {
        return branch(op);
    }
    match (i.mnemonic(), op.w) {
        (N::Jmp, _) if i.is_jmp_short_or_near() => Some(jump!(control::jmp)),
        (N::Jmp, _) if i.is_jmp_near_indirect() => Some(jump!(control::jmp_indirect)),
        (N::Call, _) if i.is_call_near() => Some(jump!(control::call)),
        (N::Call, _) if i.is_call_near_indirect() => Some(jump!(control::call_indirect)),
        (N::Ret, _) => Some(jump!(control::ret)),
        (N::Push, 64) if matches!(op.a, Loc::Reg(_)) => Some(hot!(stack::push<A>)),
        (N::Pop, 64) if matches!(op.a, Loc::Reg(_)) => Some(pop()),
        (_, 64) => word::<T, W64>(i, op),
        (_, 32) => word::<T, W32>(i, op),
        (N::Mov, 16) => shapes!(op, transfer::mov<W16>),
        (N::Shr, 16) => shift_of_register::<T, W16, { shift::RIGHT }>(op),
        (_, 8) => byte(i, op),
        _ => None,
    }
}

/// POP of a register.
fn pop<T: Bus>() -> Run<T> {
    |cpu, steps| step::fall_through(cpu, steps, |m, op| stack::pop_register(m, op))
}

/// The instance of `$step` for the condition of `$op`.
macro_rules! by_condition {
    ($op:expr, $cc:ident => $step:expr) => {
        by_condition!($op, $cc => $step, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    ($op:expr, $cc:ident => $step:expr, $($n:literal)*) => {
        match $op.cc.0 {
            $($n => {
                type $cc = If<$n>;
                let run: Run<T> = $step;
                Some(run)
            })*
            _ => None,
        }
    };
}

/// A conditional branch.
fn branch<T: Bus>(op: &Op) -> Option<Run<T>> {
    by_condition!(op, Cc => |cpu, steps| step::branch(cpu, steps, |m, op| control::jcc::<_, Cc>(m, op)))
}

/// SETcc of a register.
fn set_by_condition<T: Bus>(op: &Op) -> Option<Run<T>> {
    by_condition!(op, Cc => hot!(transfer::setcc<Cc, A>))
}

/// CMOVcc between registers.
fn move_by_condition<T: Bus, W: Width>(op: &Op) -> Option<Run<T>> {
    by_condition!(op, Cc => hot!(transfer::cmov<W, Cc, A, B>))
}

/// Forms of 32 and 64 bits.
fn word<T: Bus, W: Width>(i: &Instruction, op: &Op) -> Option<Run<T>> {
    let of_register = matches!(op.a, Loc::Reg(_));
    match i.mnemonic() {
        N::Mov => shapes!(op, transfer::mov<W>),
        N::Add => shapes!(op, arithmetic::add<W>),
        N::Sub => shapes!(op, arithmetic::sub<W, true>),
        N::Cmp => shapes!(op, arithmetic::sub<W, false>),
        N::And => shapes!(op, logic::logic<W, { logic::AND }, true>),
        N::Test => shapes!(op, logic::logic<W, { logic::AND }, false>),
        N::Or => shapes!(op, logic::logic<W, { logic::OR }, true>),
        N::Xor => shapes!(op, logic::logic<W, { logic::XOR }, true>),
        N::Lea => Some(match form(op) {
            Form::Base => hot!(transfer::lea<W, A, Based>),
            Form::Index => hot!(transfer::lea<W, A, Indexed>),
            Form::Any => hot!(transfer::lea<W, A, AnyAddress>),
        }),
        N::Movzx => extend::<T, W, false>(i, op),
        N::Movsx | N::Movsxd => extend::<T, W, true>(i, op),
        N::Inc if of_register => Some(hot!(arithmetic::increment<W, true, A>)),
        N::Dec if of_register => Some(hot!(arithmetic::increment<W, false, A>)),
        N::Not if of_register => Some(hot!(logic::not<W, A>)),
        N::Neg if of_register => Some(hot!(arithmetic::neg<W, A>)),
        N::Shl => shift_of_register::<T, W, { shift::LEFT }>(op),
        N::Shr => shift_of_register::<T, W, { shift::RIGHT }>(op),
        N::Sar => shift_of_register::<T, W, { shift::ARITHMETIC_RIGHT }>(op),
        N::Rol => rotate_of_register::<T, W, false>(op),
        N::Ror => rotate_of_register::<T, W, true>(op),
        N::Adc => shapes!(op, arithmetic::adc<W>),
        N::Sbb => shapes!(op, arithmetic::sbb<W>),
        N::Imul => product::<T, W>(op),
        _ if has_condition(i) => match (op.a, op.b) {
            (Loc::Reg(_), Loc::Reg(_)) => move_by_condition::<T, W>(op),
            (Loc::Reg(_), Loc::Mem) => Some(from_memory!(op, transfer::cmov<W, AnyCondition, A>)),
            _ => None,
        },
        _ => None,
    }
}

/// Forms of 8 bits; those of ah, ch, dh and bh are none of them.
fn byte<T: Bus>(i: &Instruction, op: &Op) -> Option<Run<T>> {
    match i.mnemonic() {
        N::Mov => shapes!(op, transfer::mov<W8>),
        N::Add => shapes!(op, arithmetic::add<W8>),
        N::Cmp => shapes!(op, arithmetic::sub<W8, false>),
        N::And => shapes!(op, logic::logic<W8, { logic::AND }, true>),
        N::Test => shapes!(op, logic::logic<W8, { logic::AND }, false>),
        N::Or => shapes!(op, logic::logic<W8, { logic::OR }, true>),
        N::Xor => shapes!(op, logic::logic<W8, { logic::XOR }, true>),
        N::Shr => shift_of_register::<T, W8, { shift::RIGHT }>(op),
        _ if has_condition(i) && matches!(op.a, Loc::Reg(_)) => set_by_condition(op),
        _ => None,
    }
}

/// IMUL of a register by a register or memory, or by an immediate into another.
fn product<T: Bus, W: Width>(op: &Op) -> Option<Run<T>> {
    Some(match (op.b, op.c) {
        (Loc::Reg(_), Loc::None) => hot!(multiply::multiply<W, A, A, B>),
        (Loc::Mem, Loc::None) => from_memory!(op, multiply::multiply<W, A, A>),
        (Loc::Reg(_), Loc::Imm) => hot!(multiply::multiply<W, A, B, Imm>),
        _ => return None,
    })
}

/// Of a register: CMOVcc, or SETcc where it has 8 bits. Jcc is another matter.
fn has_condition(i: &Instruction) -> bool {
    i.condition_code() != iced_x86::ConditionCode::None
}

/// MOVZX, MOVSX and MOVSXD from memory or from the low bits of a register.
fn extend<T: Bus, W: Width, const SIGNED: bool>(i: &Instruction, op: &Op) -> Option<Run<T>> {
    Some(match (op.b, source_bits(i)) {
        (Loc::Reg(_), 8) => hot!(transfer::extend<W, 8, SIGNED, A, B>),
        (Loc::Reg(_), 16) => hot!(transfer::extend<W, 16, SIGNED, A, B>),
        (Loc::Reg(_), 32) => hot!(transfer::extend<W, 32, SIGNED, A, B>),
        (Loc::Mem, 8) => from_memory!(op, transfer::extend<W, 8, SIGNED, A>),
        (Loc::Mem, 16) => from_memory!(op, transfer::extend<W, 16, SIGNED, A>),
        (Loc::Mem, 32) => from_memory!(op, transfer::extend<W, 32, SIGNED, A>),
        _ => return None,
    })
}

/// A shift of a register by an immediate or by cl.
fn shift_of_register<T: Bus, W: Width, const OP: u8>(op: &Op) -> Option<Run<T>> {
    match (op.a, op.b) {
        (Loc::Reg(_), Loc::Imm) => Some(hot!(shift::shift<W, OP, A, Imm>)),
        (Loc::Reg(_), Loc::Reg(_)) => Some(hot!(shift::shift<W, OP, A, B>)),
        _ => None,
    }
}

/// A rotation of a register by an immediate or by cl.
fn rotate_of_register<T: Bus, W: Width, const TO_RIGHT: bool>(op: &Op) -> Option<Run<T>> {
    match (op.a, op.b) {
        (Loc::Reg(_), Loc::Imm) => Some(hot!(shift::rotate<W, TO_RIGHT, A, Imm>)),
        (Loc::Reg(_), Loc::Reg(_)) => Some(hot!(shift::rotate<W, TO_RIGHT, A, B>)),
        _ => None,
    }
}

/// The step of an instruction and of the conditional branch on `cc` behind it, if the two are often met.
pub(crate) fn with_branch<T: Bus>(i: &Instruction, op: &Op, cc: Condition) -> Option<Run<T>> {
    match op.w {
        64 => with_branch_of::<T, W64>(i, op, cc),
        32 => with_branch_of::<T, W32>(i, op, cc),
        8 => with_branch_of::<T, W8>(i, op, cc),
        _ => None,
    }
}

/// The same for one width.
fn with_branch_of<T: Bus, W: Width>(i: &Instruction, op: &Op, cc: Condition) -> Option<Run<T>> {
    macro_rules! on {
        ([$($cc:literal)*], $first:expr) => {
            match cc.0 {
                $($cc => {
                    let run: Run<T> = |cpu, steps| {
                        step::then_branch(cpu, steps, |m, op| $first(m, op), |m, op| control::jcc::<_, If<$cc>>(m, op))
                    };
                    Some(run)
                })*
                _ => None,
            }
        };
    }
    let wide = op.w > 8;
    match (i.mnemonic(), op.a, op.b) {
        (N::Cmp, Loc::Reg(_), Loc::Reg(_)) => {
            on!([2 3 4 5 6 7 12 13 14 15], arithmetic::sub::<_, W, false, A, B>)
        }
        (N::Cmp, Loc::Reg(_), Loc::Imm) => {
            on!([2 3 4 5 6 7 12 13 14 15], arithmetic::sub::<_, W, false, A, Imm>)
        }
        (N::Cmp, Loc::Mem, Loc::Imm) if form(op) == Form::Base => {
            on!([4 5], arithmetic::sub::<_, W, false, AtBase, Imm>)
        }
        (N::Cmp, Loc::Mem, Loc::Reg(_)) if form(op) == Form::Base => {
            on!([4 5], arithmetic::sub::<_, W, false, AtBase, B>)
        }
        (N::Cmp, Loc::Mem, Loc::Reg(_)) if form(op) == Form::Index => {
            on!([4 5], arithmetic::sub::<_, W, false, AtIndex, B>)
        }
        (N::Cmp, Loc::Reg(_), Loc::Mem) if form(op) == Form::Base => {
            on!([4 5], arithmetic::sub::<_, W, false, A, AtBase>)
        }
        (N::Test, Loc::Reg(_), Loc::Reg(_)) => {
            on!([4 5 8 9], logic::logic::<_, W, { logic::AND }, false, A, B>)
        }
        (N::Test, Loc::Reg(_), Loc::Imm) => on!([4 5], logic::logic::<_, W, { logic::AND }, false, A, Imm>),
        (N::And, Loc::Reg(_), Loc::Imm) if wide => {
            on!([4 5], logic::logic::<_, W, { logic::AND }, true, A, Imm>)
        }
        (N::Sub, Loc::Reg(_), Loc::Imm) if wide => on!([2 3 4 5], arithmetic::sub::<_, W, true, A, Imm>),
        (N::Add, Loc::Reg(_), Loc::Imm) if wide => on!([4 5], arithmetic::add::<_, W, A, Imm>),
        (N::Dec, Loc::Reg(_), _) if wide => on!([4 5], arithmetic::increment::<_, W, false, A>),
        _ => None,
    }
}
