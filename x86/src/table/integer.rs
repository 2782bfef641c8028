//! The integer instruction set.

use iced_x86::{Code, EncodingKind, Instruction, Mnemonic as N, Register};

use super::privileged;
use crate::decode;
use crate::machine::{Handler, Machine, MachineRead, Trap};
use crate::op::{BranchKind, Condition, Loc, Op};
use crate::sem::operand::{Any, AnyAddress, AnyCondition, AnyWidth};
use crate::sem::{
    arithmetic, bits, control, exchange, flag, logic, multiply, shift, stack, string, system, transfer,
};

type A = Any<0>;
type B = Any<1>;
type C = Any<2>;
type W = AnyWidth;

/// The handler and operands of `i`, if it is an integer instruction that 64-bit user mode has.
pub(super) fn lookup<M: Machine>(i: &Instruction) -> Option<(Handler<M>, Op)> {
    if writes_segment_register(i) {
        return None;
    }
    let mut op = decode::op(i);
    adjust(i, &mut op);
    let handler = body(i, &op).map(Handler::Body).or_else(|| last(i))?;
    Some((handler, op))
}

/// MOV and POP to a segment register, which Linux programs have no use for.
fn writes_segment_register(i: &Instruction) -> bool {
    i.op_count() > 0 && i.op0_register().is_segment_register() && i.mnemonic() != N::Push
}

/// What the operands do not say: the width of instructions with implied operands, and selectors in `cc`.
fn adjust(i: &Instruction, op: &mut Op) {
    match i.mnemonic() {
        N::Push | N::Pop | N::Pushf | N::Pushfd | N::Pushfq | N::Popf | N::Popfq | N::Enter | N::Leave => {
            op.w = stack_width(i);
        }
        N::Cbw | N::Cwd => op.w = 16,
        N::Cwde | N::Cdq => op.w = 32,
        N::Cdqe | N::Cqo => op.w = 64,
        N::Clc | N::Cld | N::Loop => op.cc = Condition(0),
        N::Stc | N::Std | N::Loope => op.cc = Condition(1),
        N::Cmc | N::Loopne => op.cc = Condition(2),
        N::Movsb | N::Movsw | N::Movsd | N::Movsq => op.cc = string::MOVS,
        N::Stosb | N::Stosw | N::Stosd | N::Stosq => op.cc = string::STOS,
        N::Cmpsb | N::Cmpsw | N::Cmpsd | N::Cmpsq => op.cc = string::CMPS,
        N::Scasb | N::Scasw | N::Scasd | N::Scasq => op.cc = string::SCAS,
        _ => {}
    }
    op.mem.addr32 |= matches!(
        i.code(),
        Code::Jecxz_rel8_64
            | Code::Jecxz_rel8_32
            | Code::Loop_rel8_64_ECX
            | Code::Loop_rel8_32_ECX
            | Code::Loope_rel8_64_ECX
            | Code::Loope_rel8_32_ECX
            | Code::Loopne_rel8_64_ECX
            | Code::Loopne_rel8_32_ECX
    );
}

/// The width of a push or pop, from how far it moves rsp.
fn stack_width(i: &Instruction) -> u8 {
    match i.code() {
        Code::Leavew | Code::Enterw_imm16_imm8 => 16,
        Code::Leaveq | Code::Enterq_imm16_imm8 => 64,
        Code::Leaved | Code::Enterd_imm16_imm8 => 32,
        _ => match i.stack_pointer_increment().abs() {
            2 => 16,
            // Of 32-bit code alone.
            4 => 32,
            _ => 64,
        },
    }
}

/// Instructions that fall through.
fn body<M: Machine>(i: &Instruction, op: &Op) -> Option<crate::machine::Body<M>> {
    arithmetic_body(i).or_else(|| bit_body(i)).or_else(|| move_body(i, op)).or_else(|| other_body(i))
}

fn arithmetic_body<M: Machine>(i: &Instruction) -> Option<crate::machine::Body<M>> {
    Some(match i.mnemonic() {
        N::Add => arithmetic::add::<M, W, A, B>,
        N::Adc => arithmetic::adc::<M, W, A, B>,
        N::Sub => arithmetic::sub::<M, W, true, A, B>,
        N::Sbb => arithmetic::sbb::<M, W, A, B>,
        N::Cmp => arithmetic::sub::<M, W, false, A, B>,
        N::Inc => arithmetic::increment::<M, W, true, A>,
        N::Dec => arithmetic::increment::<M, W, false, A>,
        N::Neg => arithmetic::neg::<M, W, A>,
        N::Adcx => arithmetic::add_with::<M, false>,
        N::Adox => arithmetic::add_with::<M, true>,
        N::And => logic::logic::<M, W, { logic::AND }, true, A, B>,
        N::Test => logic::logic::<M, W, { logic::AND }, false, A, B>,
        N::Or => logic::logic::<M, W, { logic::OR }, true, A, B>,
        N::Xor => logic::logic::<M, W, { logic::XOR }, true, A, B>,
        N::Not => logic::not::<M, W, A>,
        N::Andn => logic::andn::<M>,
        N::Mul => multiply::multiply_accumulator::<M, false>,
        N::Imul if i.op_count() == 1 => multiply::multiply_accumulator::<M, true>,
        N::Imul if i.op_count() == 2 => multiply::multiply::<M, W, A, A, B>,
        N::Imul => multiply::multiply::<M, W, A, B, C>,
        N::Mulx => multiply::mulx::<M>,
        N::Div => multiply::divide::<M, false>,
        N::Idiv => multiply::divide::<M, true>,
        N::Xadd => exchange::xadd::<M>,
        N::Cmpxchg => exchange::cmpxchg::<M>,
        N::Cmpxchg8b => exchange::cmpxchg8b::<M>,
        N::Cmpxchg16b => exchange::cmpxchg16b::<M>,
        _ => return None,
    })
}

fn bit_body<M: Machine>(i: &Instruction) -> Option<crate::machine::Body<M>> {
    Some(match i.mnemonic() {
        N::Shl | N::Sal => shift::shift::<M, W, { shift::LEFT }, A, B>,
        N::Shr => shift::shift::<M, W, { shift::RIGHT }, A, B>,
        N::Sar => shift::shift::<M, W, { shift::ARITHMETIC_RIGHT }, A, B>,
        N::Rol => shift::rotate::<M, W, false, A, B>,
        N::Ror => shift::rotate::<M, W, true, A, B>,
        N::Rcl => shift::rotate_through_carry::<M, false>,
        N::Rcr => shift::rotate_through_carry::<M, true>,
        N::Shld => shift::double_shift::<M, false>,
        N::Shrd => shift::double_shift::<M, true>,
        N::Shlx => shift::shift_flagless::<M, { shift::LEFT }>,
        N::Shrx => shift::shift_flagless::<M, { shift::RIGHT }>,
        N::Sarx => shift::shift_flagless::<M, { shift::ARITHMETIC_RIGHT }>,
        N::Rorx => shift::rorx::<M>,
        N::Bt => bits::bit_test::<M, { bits::TEST }>,
        N::Bts => bits::bit_test::<M, { bits::SET }>,
        N::Btr => bits::bit_test::<M, { bits::RESET }>,
        N::Btc => bits::bit_test::<M, { bits::COMPLEMENT }>,
        N::Bsf => bits::scan::<M, false>,
        N::Bsr => bits::scan::<M, true>,
        N::Tzcnt => bits::count_zeros::<M, false>,
        N::Lzcnt => bits::count_zeros::<M, true>,
        N::Popcnt => bits::popcnt::<M>,
        N::Blsr => bits::lowest_bit::<M, { bits::BLSR }>,
        N::Blsi => bits::lowest_bit::<M, { bits::BLSI }>,
        N::Blsmsk => bits::lowest_bit::<M, { bits::BLSMSK }>,
        // The XOP form, with an immediate, is another instruction.
        N::Bextr if i.encoding() == EncodingKind::VEX => bits::bextr::<M>,
        N::Bzhi => bits::bzhi::<M>,
        N::Pdep => bits::pdep::<M>,
        N::Pext => bits::pext::<M>,
        _ => return None,
    })
}

fn move_body<M: Machine>(i: &Instruction, op: &Op) -> Option<crate::machine::Body<M>> {
    Some(match i.mnemonic() {
        N::Mov if op.a == Loc::None || op.b == Loc::None => return None,
        N::Mov => transfer::mov::<M, W, A, B>,
        N::Movzx if source_bits(i) == 8 => transfer::extend::<M, W, 8, false, A, B>,
        N::Movzx => transfer::extend::<M, W, 16, false, A, B>,
        N::Movsx | N::Movsxd => match source_bits(i) {
            8 => transfer::extend::<M, W, 8, true, A, B>,
            16 => transfer::extend::<M, W, 16, true, A, B>,
            _ => transfer::extend::<M, W, 32, true, A, B>,
        },
        N::Cbw | N::Cwde | N::Cdqe => transfer::extend_accumulator::<M>,
        N::Cwd | N::Cdq | N::Cqo => transfer::spread_sign::<M>,
        N::Lea => transfer::lea::<M, W, A, AnyAddress>,
        N::Xchg => transfer::xchg::<M>,
        N::Bswap => transfer::bswap::<M>,
        N::Movbe => transfer::movbe::<M>,
        N::Xlatb => transfer::xlat::<M>,
        // iced gives a condition code to these, and to Jcc, which is in `last`.
        N::Cmova
        | N::Cmovae
        | N::Cmovb
        | N::Cmovbe
        | N::Cmove
        | N::Cmovg
        | N::Cmovge
        | N::Cmovl
        | N::Cmovle
        | N::Cmovne
        | N::Cmovno
        | N::Cmovnp
        | N::Cmovns
        | N::Cmovo
        | N::Cmovp
        | N::Cmovs => transfer::cmov::<M, W, AnyCondition, A, B>,
        N::Seta
        | N::Setae
        | N::Setb
        | N::Setbe
        | N::Sete
        | N::Setg
        | N::Setge
        | N::Setl
        | N::Setle
        | N::Setne
        | N::Setno
        | N::Setnp
        | N::Setns
        | N::Seto
        | N::Setp
        | N::Sets => transfer::setcc::<M, AnyCondition, A>,
        N::Push => stack::push::<M, A>,
        N::Pop => stack::pop::<M>,
        N::Pushf | N::Pushfd | N::Pushfq => stack::pushf::<M>,
        N::Popf | N::Popfq => stack::popf::<M>,
        N::Enter => stack::enter::<M>,
        N::Leave => stack::leave::<M>,
        _ => return None,
    })
}

/// Width in bits of the second operand.
pub(super) fn source_bits(i: &Instruction) -> usize {
    match i.op1_register() {
        Register::None => i.memory_size().size() * 8,
        r => r.size() * 8,
    }
}

fn other_body<M: Machine>(i: &Instruction) -> Option<crate::machine::Body<M>> {
    Some(match i.mnemonic() {
        N::Lahf => flag::lahf::<M>,
        N::Sahf => flag::sahf::<M>,
        N::Clc | N::Stc | N::Cmc => flag::carry::<M>,
        N::Cld | N::Std => flag::direction::<M>,
        N::Rdfsbase => system::read_base::<M, false>,
        N::Rdgsbase => system::read_base::<M, true>,
        N::Wrfsbase => system::write_base::<M, false>,
        N::Wrgsbase => system::write_base::<M, true>,
        N::Clflush | N::Clflushopt | N::Clwb => system::touch::<M>,
        N::Nop
        | N::Endbr64
        | N::Endbr32
        | N::Pause
        | N::Lfence
        | N::Mfence
        | N::Sfence
        | N::Prefetchnta
        | N::Prefetcht0
        | N::Prefetcht1
        | N::Prefetcht2
        | N::Prefetch
        | N::Prefetchw
        | N::Prefetchwt1
        | N::Prefetchit0
        | N::Prefetchit1
        | N::Cldemote
        | N::Serialize
        | N::Reservednop
        | N::Rdsspd
        | N::Rdsspq => system::nop::<M>,
        _ => return None,
    })
}

/// Instructions that end a block.
fn last<M: Machine>(i: &Instruction) -> Option<Handler<M>> {
    use BranchKind::{Conditional, IndirectCall, IndirectJump, RelativeCall, RelativeJump, Return};
    match privileged::fault(i) {
        Some(Trap::General) => return Some(Handler::Last(control::privileged::<M>, None)),
        Some(_) => return Some(Handler::Last(control::undefined::<M>, None)),
        None => {}
    }
    let (run, kind): (crate::machine::Last<M>, _) = match i.mnemonic() {
        _ if i.is_jcc_short_or_near() => (control::jcc::<M, AnyCondition>, Some(Conditional)),
        N::Jmp if i.is_jmp_short_or_near() => (control::jmp::<M>, Some(RelativeJump)),
        N::Jmp if i.is_jmp_near_indirect() => (control::jmp_indirect::<M>, Some(IndirectJump)),
        N::Call if i.is_call_near() => (control::call::<M>, Some(RelativeCall)),
        N::Call if i.is_call_near_indirect() => (control::call_indirect::<M>, Some(IndirectCall)),
        N::Ret if matches!(i.code(), Code::Retnq | Code::Retnq_imm16) => (control::ret::<M>, Some(Return)),
        N::Jrcxz | N::Jecxz => (control::jrcxz::<M>, Some(Conditional)),
        N::Loop | N::Loope | N::Loopne => (control::loop_while::<M>, Some(Conditional)),
        N::Syscall => (control::syscall::<M>, None),
        N::Int3 => (control::breakpoint::<M>, None),
        N::Int1 => (control::debug_trap::<M>, None),
        N::Ud0 | N::Ud1 | N::Ud2 => (control::undefined::<M>, None),
        _ => (string_last(i).or_else(|| machine_read(i))?, None),
    };
    Some(Handler::Last(run, kind))
}

fn string_last<M: Machine>(i: &Instruction) -> Option<crate::machine::Last<M>> {
    if !i.is_string_instruction() {
        return None;
    }
    Some(match i.mnemonic() {
        N::Movsb | N::Movsw | N::Movsd | N::Movsq => string::movs::<M>,
        N::Stosb | N::Stosw | N::Stosd | N::Stosq => string::stos::<M>,
        N::Lodsb | N::Lodsw | N::Lodsd | N::Lodsq => string::lods::<M>,
        N::Cmpsb | N::Cmpsw | N::Cmpsd | N::Cmpsq => string::cmps::<M>,
        N::Scasb | N::Scasw | N::Scasd | N::Scasq => string::scas::<M>,
        _ => return None,
    })
}

fn machine_read<M: Machine>(i: &Instruction) -> Option<crate::machine::Last<M>> {
    Some(match decode::machine_read(i)? {
        MachineRead::Cpuid => system::read_machine::<M, 0>,
        MachineRead::Rdtsc => system::read_machine::<M, 1>,
        MachineRead::Rdtscp => system::read_machine::<M, 2>,
        MachineRead::Rdpid => system::read_machine::<M, 3>,
        MachineRead::Rdrand => system::read_machine::<M, 4>,
        MachineRead::Rdseed => system::read_machine::<M, 5>,
        MachineRead::Xgetbv => system::read_machine::<M, 6>,
        MachineRead::Transaction => system::read_machine::<M, 7>,
        MachineRead::ExtendedState => system::read_machine::<M, 8>,
    })
}
