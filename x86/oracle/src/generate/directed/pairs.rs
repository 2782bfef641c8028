//! All pairs of edges as the first two operands of an instruction; further operands take others of the list.

use super::super::operands::gpr;
use super::{SLOT, plain_state};
use crate::edges::{DOUBLES, EXTENDED, INTEGERS, SINGLES};
use crate::layout::{DATA, WRITABLE};
use crate::random::Random;
use crate::values;
use iced_x86::{Instruction, MemorySize, Mnemonic, OpKind, Register};
use x86::op::Gpr;
use x86::state::State;

/// Registers that may be the base of a memory operand: instructions do not imply them, and some can be encoded
/// together with AH.
pub(super) const BASES: [Register; 4] = [Register::R13, Register::R12, Register::R9, Register::RBP];

/// How often each pair of floating-point numbers occurs, in other modes.
const MODES: u64 = 2;
const STACK: u64 = DATA + WRITABLE as u64 - 0x100;

/// What the lanes of an operand hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lanes {
    Integers,
    Singles,
    Doubles,
}

impl Lanes {
    /// Different values.
    const fn count(self) -> u64 {
        match self {
            Lanes::Integers => INTEGERS.len() as u64,
            Lanes::Singles => 2 * SINGLES.len() as u64,
            Lanes::Doubles => 2 * DOUBLES.len() as u64,
        }
    }

    /// Pairs in 128 bits.
    const fn in_block(self) -> u64 {
        if matches!(self, Lanes::Singles) { 4 } else { 2 }
    }

    /// Cases that have all pairs.
    const fn cases(self) -> u64 {
        (self.count() * self.count()).div_ceil(self.in_block())
    }

    /// 64 bits of operand `operand`, the first of them with pair `pair`.
    fn part(self, operand: usize, pair: u64) -> u64 {
        let at = |pair| index(self.count(), operand, pair);
        let sign = |index: usize, bit: u32| (index as u64 & 1) << bit;
        match self {
            Lanes::Integers => INTEGERS[at(pair)],
            Lanes::Doubles => DOUBLES[at(pair) / 2] | sign(at(pair), 63),
            Lanes::Singles => {
                let lane = |pair| u64::from(SINGLES[at(pair) / 2]) | sign(at(pair), 31);
                lane(pair) | lane(pair + 1) << 32
            }
        }
    }

    /// How many pairs 64 bits take.
    const fn in_part(self) -> u64 {
        self.in_block() / 2
    }
}

/// Which of `count` values operand `operand` has in pair number `pair`.
fn index(count: u64, operand: usize, pair: u64) -> usize {
    let n = match operand {
        0 => pair,
        1 => pair / count,
        2 => pair.wrapping_mul(7) + pair / count,
        _ => pair.wrapping_mul(13) + operand as u64,
    };
    usize::try_from(n % count).unwrap_or(0)
}

const EXTENDED_COUNT: u64 = 2 * EXTENDED.len() as u64;

fn extended(operand: usize, pair: u64) -> (u64, u16) {
    let n = index(EXTENDED_COUNT, operand, pair);
    let (significand, exponent) = EXTENDED[n / 2];
    (significand, exponent | if n & 1 == 0 { 0 } else { 0x8000 })
}

fn has_vectors(i: &Instruction) -> bool {
    (0..i.op_count()).any(|n| i.op_register(n).is_vector_register() || i.op_register(n).is_mm())
}

fn is_x87(i: &Instruction) -> bool {
    format!("{:?}", i.code()).starts_with('F') && !has_vectors(i)
}

/// How many cases an instruction has.
pub(super) fn count(i: &Instruction) -> u64 {
    if has_vectors(i) {
        MODES * (Lanes::Singles.cases() + Lanes::Doubles.cases()) + Lanes::Integers.cases()
    } else if is_x87(i) {
        MODES * EXTENDED_COUNT * EXTENDED_COUNT
    } else {
        MODES * Lanes::Integers.count() * Lanes::Integers.count()
    }
}

/// What the vectors of case `number` hold, and its first pair.
fn lanes(i: &Instruction, number: u64) -> (Lanes, u64) {
    if !has_vectors(i) {
        return (Lanes::Integers, number);
    }
    let (singles, doubles) = (Lanes::Singles.cases(), Lanes::Doubles.cases());
    let (lanes, nth) = match number.checked_sub(MODES * (singles + doubles)) {
        Some(nth) => (Lanes::Integers, nth),
        None if number % (singles + doubles) < singles => (Lanes::Singles, number % (singles + doubles)),
        None => (Lanes::Doubles, number % (singles + doubles) - singles),
    };
    (lanes, nth * lanes.in_block())
}

/// The registers of case `number`, whose memory is at `slot` in the data pages.
pub(super) fn state(random: &mut Random, i: &Instruction, number: u64, slot: usize) -> State {
    let mut state = plain_state(random);
    any_modes(random, &mut state);
    let (lanes, pair) = lanes(i, number);
    imply(random, i, number, slot, &mut state);
    for n in 0..usize::try_from(i.op_count()).unwrap_or(0) {
        let r = i.op_register(u32::try_from(n).unwrap_or(0));
        if r.is_gpr() {
            let (high, shift) = (matches!(r, Register::AH | Register::CH | Register::DH | Register::BH), 8);
            let value = Lanes::Integers.part(n, pair);
            state.regs.gpr[usize::from(gpr(r).0)] = if high { value << shift } else { value };
        } else if r.is_k() {
            state.fpu.opmask[r.number()] = Lanes::Integers.part(n, pair);
        } else if r.is_vector_register() {
            let (_, parts) = values::vector_registers();
            for (at, part) in (0..).zip(&mut state.fpu.vector[r.number()][..parts]) {
                *part = lanes.part(n, pair + at * lanes.in_part());
            }
        }
    }
    if i.memory_base() != Register::None {
        state.regs.gpr[usize::from(gpr(i.memory_base()).0)] = DATA + slot as u64;
    }
    if is_x87(i) {
        x87(random, number, &mut state);
    }
    state
}

/// At times any MXCSR and any x87 control word: rounding, precision, denormals as zeros, masks.
fn any_modes(random: &mut Random, state: &mut State) {
    const MXCSR: u64 = 0xffff;
    const CONTROL: u64 = 0x0f3f;
    let bits = |random: &mut Random, mask| random.next() & mask;
    if random.percent(40) {
        state.fpu.mxcsr = u32::try_from(bits(random, MXCSR)).unwrap_or(0);
    }
    if random.percent(40) {
        state.fpu.control = 0x40 | u16::try_from(bits(random, CONTROL)).unwrap_or(0);
        state.fpu.status &= 0x7f00;
    }
}

/// Registers that an instruction uses without naming them.
fn imply(random: &mut Random, i: &Instruction, number: u64, slot: usize, state: &mut State) {
    let gpr = &mut state.regs.gpr;
    let mut set = |r: Gpr, value| gpr[usize::from(r.0)] = value;
    set(Gpr::RSP, STACK);
    set(Gpr::RBP, STACK);
    set(Gpr::RAX, Lanes::Integers.part(1, number));
    set(Gpr::RDX, if random.percent(50) { 0 } else { Lanes::Integers.part(2, number) });
    if i.mnemonic() == Mnemonic::Cmpxchg && random.percent(50) {
        set(Gpr::RAX, Lanes::Integers.part(0, number));
    }
    if i.is_string_instruction() {
        set(Gpr::RCX, number % 7);
        set(Gpr::RSI, DATA + slot as u64);
        set(Gpr::RDI, DATA + (slot + SLOT) as u64);
    }
}

fn x87(random: &mut Random, number: u64, state: &mut State) {
    let fpu = &mut state.fpu;
    let top = usize::from(fpu.status >> 11 & 7);
    for n in 0..8 {
        fpu.st[(top + n) & 7] = extended(n.min(1), number);
    }
    if random.percent(80) {
        fpu.tag = 0xff;
    } else if random.percent(50) {
        // Room for one more.
        fpu.tag = !(1 << ((top + 7) & 7));
    }
    if random.percent(90) {
        const EXCEPTIONS_AND_SUMMARY: u16 = 0x80ff;
        fpu.status &= !EXCEPTIONS_AND_SUMMARY;
    }
}

/// Fills the memory of case `number`.
pub(super) fn fill(i: &Instruction, number: u64, slot: &mut [u8]) {
    let operand = (0..i.op_count()).position(|n| i.op_kind(n) == OpKind::Memory).unwrap_or(1);
    let (of_vectors, pair) = lanes(i, number);
    // x87: the first operand is in a register, whichever the instruction names first.
    let (operand, pair) = if is_x87(i) { (1, number) } else { (operand, pair) };
    let lanes = match i.memory_size() {
        MemorySize::Float80 | MemorySize::Bcd => {
            let (significand, sign_exponent) = extended(operand, number);
            slot[..8].copy_from_slice(&significand.to_le_bytes());
            slot[8..10].copy_from_slice(&sign_exponent.to_le_bytes());
            return;
        }
        MemorySize::Float32 if is_x87(i) => Lanes::Singles,
        MemorySize::Float64 if is_x87(i) => Lanes::Doubles,
        _ => of_vectors,
    };
    let pair = match lanes {
        // The list of the register is another than that of memory.
        _ if is_x87(i) => pair / EXTENDED_COUNT * lanes.count(),
        _ => pair,
    };
    for (at, part) in (0..).zip(slot.chunks_exact_mut(8)) {
        part.copy_from_slice(&lanes.part(operand, pair + at * lanes.in_part()).to_le_bytes());
    }
}
