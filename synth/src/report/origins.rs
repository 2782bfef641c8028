//! Where each value comes from, followed forward: the result of an instruction is as uncertain as the most
//! uncertain value that it was computed from.

use crate::suffix::{Forced, Origin};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use std::collections::HashMap;

/// The origin of every register and byte at a point of the run.
pub(super) struct Origins {
    gpr: [Origin; 16],
    vector: [Origin; 32],
    opmask: Origin,
    flags: Origin,
    fpu: Origin,
    /// Bytes of memory that are not [`Origin::Core`], or were overwritten.
    memory: HashMap<u64, Origin>,
    /// Nothing is surer than this.
    least: Origin,
}

impl Origins {
    /// Before the forced end: all is chosen.
    pub(super) fn chosen() -> Origins {
        Origins { least: Origin::Chosen, ..Origins::of(&Forced::default()) }
    }

    /// Where the forced end begins.
    pub(super) fn of(forced: &Forced) -> Origins {
        let registers = &forced.registers;
        let bytes = forced.memory.iter().flat_map(|(at, origins)| (*at..).zip(origins.iter().copied()));
        Origins {
            gpr: registers.gpr,
            vector: registers.vector,
            opmask: registers.opmask,
            flags: registers.flags,
            fpu: registers.fpu,
            memory: bytes.collect(),
            least: Origin::Core,
        }
    }

    /// Of a register.
    pub(super) fn register(&self, register: Register) -> Origin {
        let full = register.full_register();
        let origin = match () {
            () if full.is_gpr64() => self.gpr[full.number()],
            () if register.is_vector_register() => self.vector[register.number() & 31],
            () if register.is_k() => self.opmask,
            () if register.is_st() || register.is_mm() => self.fpu,
            () => Origin::Core,
        };
        origin.max(self.least)
    }

    /// Of memory.
    pub(super) fn memory(&self, address: u64, len: usize) -> Origin {
        let bytes = (address..).take(len).filter_map(|at| self.memory.get(&at));
        bytes.max().copied().unwrap_or(Origin::Core).max(self.least)
    }

    /// Of the flags.
    pub(super) fn flags(&self) -> Origin {
        self.flags.max(self.least)
    }

    /// Writes a register; a part of one keeps the rest.
    pub(super) fn set_register(&mut self, register: Register, origin: Origin) {
        let full = register.full_register();
        if full.is_gpr64() {
            let old = &mut self.gpr[full.number()];
            *old = if register.size() >= 4 { origin } else { origin.max(*old) };
        } else if register.is_vector_register() {
            self.vector[register.number() & 31] = origin;
        } else if register.is_k() {
            self.opmask = origin.max(self.opmask);
        } else if register.is_st() || register.is_mm() {
            self.fpu = origin.max(self.fpu);
        }
    }

    /// Writes memory.
    pub(super) fn set_memory(&mut self, address: u64, len: usize, origin: Origin) {
        self.memory.extend((address..).take(len).map(|at| (at, origin)));
    }

    /// Writes the flags.
    pub(super) fn set_flags(&mut self, origin: Origin) {
        self.flags = origin;
    }
}

/// Whether the result does not depend on the operands: `xor eax, eax` and its like.
pub(super) fn is_zeroing(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    let (first, second) = match instruction.mnemonic() {
        M::Xor | M::Sub | M::Pxor | M::Xorps | M::Xorpd => (0, 1),
        M::Vpxor | M::Vpxord | M::Vpxorq | M::Vxorps | M::Vxorpd => (1, 2),
        _ => return false,
    };
    instruction.op_kind(first) == OpKind::Register
        && instruction.op_kind(second) == OpKind::Register
        && instruction.op_register(first) == instruction.op_register(second)
}
