//! What an instruction reads and writes: registers and memory, at the state in which it runs.

use super::origins::is_zeroing;
use crate::suffix::Origin;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register};
use x86::state::{RFLAGS_DF, State};

/// A register or a piece of memory that an instruction uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Used {
    /// A register, or the part of it that is used.
    Register(Register),
    /// Memory.
    Memory {
        /// The first address.
        address: u64,
        /// Bytes.
        len: usize,
    },
}

/// What an instruction uses.
#[derive(Default)]
pub(crate) struct Uses {
    pub(crate) reads: Vec<Used>,
    pub(crate) writes: Vec<Used>,
}

/// A value that an instruction of a suffix used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Where it was.
    pub used: Used,
    /// The value, its lowest byte first.
    pub bytes: Vec<u8>,
    /// Where it came from.
    pub origin: Origin,
}

impl Uses {
    /// What `instruction` uses when it runs at `before`, registers before memory; a repeated one with this many
    /// iterations.
    pub(crate) fn of(
        factory: &mut InstructionInfoFactory,
        instruction: &Instruction,
        before: &State,
        iterations: usize,
    ) -> Uses {
        let info = factory.info(instruction);
        let mut uses = Uses::default();
        for used in info.used_registers() {
            uses.add(Used::Register(used.register()), used.access());
        }
        for used in info.used_memory() {
            let address = used.virtual_address(0, |register, _, _| Some(register_value(register, before)));
            let size = used.memory_size().size();
            let len = size.saturating_mul(iterations);
            let down = before.regs.rflags & RFLAGS_DF != 0 && iterations > 1;
            let lower = if down { (len - size) as u64 } else { 0 };
            if let Some(address) = address.filter(|_| len > 0 && used.access() != OpAccess::NoMemAccess) {
                uses.add(Used::Memory { address: address.wrapping_sub(lower), len }, used.access());
            }
        }
        uses
    }

    fn add(&mut self, place: Used, access: OpAccess) {
        use OpAccess::{CondRead, CondWrite, Read, ReadCondWrite, ReadWrite, Write};
        if matches!(access, Read | CondRead | ReadWrite | ReadCondWrite) && !self.reads.contains(&place) {
            self.reads.push(place);
        }
        if matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite) && !self.writes.contains(&place) {
            self.writes.push(place);
        }
    }
}

/// The stack pointer and segments: their values are part of every push and say nothing about it.
pub(super) fn keeps_origin(register: Register) -> bool {
    register.full_register() == Register::RSP || register.is_segment_register()
}

/// Whether an instruction reads the base of FS or GS as a value.
pub(super) fn base_read(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Rdfsbase | Mnemonic::Rdgsbase)
}

/// Whether an instruction writes one. SWAPGS exchanges two, which are as sure together as before.
pub(super) fn base_written(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Wrfsbase | Mnemonic::Wrgsbase)
}

/// Leaves out what only repeats the operands: the stack pointer, segments, and what a zeroing idiom "reads".
pub(super) fn is_shown(instruction: &Instruction, place: &Used) -> bool {
    match place {
        Used::Register(register) => {
            let implied =
                is_zeroing(instruction) || instruction.is_call_near() || instruction.is_call_near_indirect();
            let hidden = implied && instruction.op0_register() != *register;
            !hidden && !keeps_origin(*register)
        }
        Used::Memory { .. } => true,
    }
}

/// A register's value as an address needs it: of FS and GS, the base.
pub(super) fn register_value(register: Register, state: &State) -> u64 {
    let full = register.full_register();
    match register {
        Register::FS => state.regs.fs_base,
        Register::GS => state.regs.gs_base,
        _ if full.is_gpr64() => {
            let value = state.regs.gpr[full.number()];
            let high = matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
            let shifted = if high { value >> 8 } else { value };
            match register.size() {
                1 => shifted & 0xff,
                2 => shifted & 0xffff,
                4 => shifted & 0xffff_ffff,
                _ => shifted,
            }
        }
        _ => 0,
    }
}

/// The bytes of a register or of memory, which `read` reads if it is there.
pub(super) fn bytes_of(used: Used, state: &State, read: &dyn Fn(u64, &mut [u8]) -> bool) -> Option<Vec<u8>> {
    match used {
        Used::Register(register) => Some(register_bytes(register, state)),
        Used::Memory { address, len } => {
            let mut bytes = vec![0; len];
            read(address, &mut bytes).then_some(bytes)
        }
    }
}

fn register_bytes(register: Register, state: &State) -> Vec<u8> {
    if register.is_vector_register() {
        return state.fpu.vector[register.number() & 31][..register.size() / 8]
            .iter()
            .flat_map(|part| part.to_le_bytes())
            .collect();
    }
    if register.is_st() {
        let top = usize::from(state.fpu.status >> 11 & 7);
        let (significand, sign_exponent) = state.fpu.st[(top + register.number()) & 7];
        return [&significand.to_le_bytes()[..], &sign_exponent.to_le_bytes()].concat();
    }
    register_value(register, state).to_le_bytes()[..register.size().clamp(1, 8)].to_vec()
}
