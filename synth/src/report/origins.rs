//! Where each value comes from, followed forward: the result of an instruction is as uncertain as the most
//! uncertain value that it was computed from.

use super::signals::kept;
use crate::suffix::{Forced, Origin, RegisterOrigins, SuffixSignal};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use std::collections::HashMap;
use vmm::signal_frame::Place;
use x86::state::Fpu;

/// The origin of every register and byte at a point of the run.
pub(super) struct Origins {
    /// Of the thread that has the processor.
    registers: RegisterOrigins,
    /// Of the others, where they are not all [`Origin::Core`].
    parked: HashMap<u32, RegisterOrigins>,
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
        let bytes = forced.memory.iter().flat_map(|(at, origins)| (*at..).zip(origins.iter().copied()));
        Origins {
            registers: forced.registers.clone(),
            parked: forced.others.iter().cloned().collect(),
            memory: bytes.collect(),
            least: Origin::Core,
        }
    }

    /// Another thread gets the processor.
    pub(super) fn switch(&mut self, from: u32, to: u32) {
        let next = self.parked.remove(&to).unwrap_or_default();
        self.parked.insert(from, std::mem::replace(&mut self.registers, next));
    }

    /// A handler is entered: the frame holds what is known of the registers, and those that it begins with are the kernel's.
    pub(super) fn enter_handler(&mut self, signal: &SuffixSignal) {
        for (address, bytes) in &signal.writes {
            self.set_memory(*address, bytes.len(), signal.origin);
        }
        if let Some(place) = signal.place() {
            let rest = [self.registers.fpu, self.registers.opmask];
            let image = self.registers.vector.iter().chain(&rest).copied().fold(signal.origin, Origin::max);
            let stored = signal.writes.iter().find(|(at, _)| *at == place.image);
            self.set_memory(place.image, stored.map_or(0, |(_, bytes)| bytes.len()), image);
            for (register, at, len) in kept(place) {
                self.set_memory(at, len, self.register(register).max(signal.origin));
            }
            self.set_memory(place.flags(), 8, self.registers.flags.max(signal.origin));
        }
        for register in [Register::RAX, Register::RDX, Register::RSI, Register::RSP] {
            self.set_register(register, Origin::Core);
        }
        self.set_register(Register::RDI, signal.origin);
        self.registers = RegisterOrigins {
            gpr: self.registers.gpr,
            flags: self.registers.flags,
            bases: self.registers.bases,
            ..RegisterOrigins::default()
        };
    }

    /// A handler is left: the registers are as sure as what the frame at `place` holds.
    pub(super) fn leave_handler(&mut self, place: Place) {
        for (register, at, len) in kept(place) {
            self.set_register(register, self.memory(at, len));
        }
        self.registers.flags = self.memory(place.flags(), 8);
        let image = self.memory(place.image, Fpu::FXSAVE_SIZE);
        (self.registers.fpu, self.registers.opmask) = (image, image);
    }

    /// Of a register.
    pub(super) fn register(&self, register: Register) -> Origin {
        let full = register.full_register();
        let origin = match () {
            () if full.is_gpr64() => self.registers.gpr[full.number()],
            () if register.is_vector_register() => self.registers.vector[register.number() & 31],
            () if register.is_k() => self.registers.opmask,
            () if register.is_st() || register.is_mm() => self.registers.fpu,
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
        self.registers.flags.max(self.least)
    }

    /// Of the bases of FS and GS.
    pub(super) fn bases(&self) -> Origin {
        self.registers.bases.max(self.least)
    }

    /// Writes the base of FS or GS, and keeps the other.
    pub(super) fn set_base(&mut self, origin: Origin) {
        self.registers.bases = origin.max(self.registers.bases);
    }

    /// Writes a register; a part of one keeps the rest.
    pub(super) fn set_register(&mut self, register: Register, origin: Origin) {
        let full = register.full_register();
        if full.is_gpr64() {
            let old = &mut self.registers.gpr[full.number()];
            *old = if register.size() >= 4 { origin } else { origin.max(*old) };
        } else if register.is_vector_register() {
            self.registers.vector[register.number() & 31] = origin;
        } else if register.is_k() {
            self.registers.opmask = origin.max(self.registers.opmask);
        } else if register.is_st() || register.is_mm() {
            self.registers.fpu = origin.max(self.registers.fpu);
        }
    }

    /// Writes memory.
    pub(super) fn set_memory(&mut self, address: u64, len: usize, origin: Origin) {
        self.memory.extend((address..).take(len).map(|at| (at, origin)));
    }

    /// Writes the flags.
    pub(super) fn set_flags(&mut self, origin: Origin) {
        self.registers.flags = origin;
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
