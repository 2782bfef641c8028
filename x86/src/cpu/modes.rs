//! What a CPU with a system has and a program's has not: two sets of cached translations, and code of 32 bits.
//!
//! A page may be open to the kernel and closed to programs, so that a translation says something about one mode only. The
//! set that is not in use is parked, and a change of mode is an exchange of pointers.
//!
//! Code of 32 bits is what boot loaders enter kernels with. It runs one instruction after the other, from no block
//! ([`crate::interpreter::Interpreter::run`]).

use super::Cpu;
use crate::block::instruction_at;
use crate::bus::Bus;
use crate::tlb::Tlb;
use iced_x86::Instruction;

/// The translations of the mode that does not run.
pub(super) struct Parked {
    reads: Tlb,
    writes: Tlb,
    fetches: Tlb,
}

impl Parked {
    pub(super) fn remove(&mut self, va: u64) {
        for tlb in [&mut self.reads, &mut self.writes, &mut self.fetches] {
            tlb.remove(va);
        }
    }

    pub(super) fn clear(&mut self) {
        for tlb in [&mut self.reads, &mut self.writes, &mut self.fetches] {
            tlb.clear();
        }
    }

    pub(super) fn clear_writes(&mut self) {
        self.writes.clear();
    }

    pub(super) fn remove_writes_of(&mut self, frame: u64) {
        self.writes.remove_frame(frame);
    }
}

impl<B: Bus> Cpu<B> {
    /// From now on there are two modes, and the instructions that depend on the system end a run
    /// ([`crate::interpreter::Stop::System`]).
    pub fn give_system(&mut self) {
        self.has_system = true;
        self.parked = Some(Box::new(Parked { reads: Tlb::new(), writes: Tlb::new(), fetches: Tlb::new() }));
        self.flush_tlb();
    }

    /// Whether [`Cpu::give_system`] was called.
    #[must_use]
    pub fn has_system(&self) -> bool {
        self.has_system
    }

    /// From now on code is of 32 bits, or of 64 again. What the eight registers of 32-bit code have above bit 31 is gone, as the
    /// manual allows (Intel SDM vol. 1, 3.4.1.1).
    pub fn set_narrow(&mut self, narrow: bool) {
        if narrow {
            self.gpr[..8].iter_mut().for_each(|r| *r &= 0xffff_ffff);
        }
        self.narrow = narrow;
    }

    /// Whether code is of 32 bits.
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        self.narrow
    }

    /// How many instructions have retired.
    #[must_use]
    pub fn retired(&self) -> u64 {
        self.retired.instructions
    }

    /// Counts instructions that the system side has executed.
    pub fn retire(&mut self, instructions: u64) {
        self.retired.instructions += instructions;
    }

    /// Takes instructions back that were counted and have not happened after all.
    pub fn unretire(&mut self, instructions: u64) {
        self.retired.instructions -= instructions;
    }

    /// The instruction at rip, whatever it does; `None` where none can be fetched and decoded.
    pub fn instruction(&mut self) -> Option<Instruction> {
        instruction_at(self)
    }

    /// Whether the last store failed only because its frame had decoded instructions. They are forgotten now, and the store can
    /// be made again.
    pub fn take_store_to_code(&mut self) -> bool {
        let frame = self.code_store.take();
        if let Some(frame) = frame {
            self.frames.changed(frame);
        }
        frame.is_some()
    }

    /// Goes on with the translations of the other mode. What is decoded is looked up again: the other mode may not be
    /// allowed to run it.
    pub fn exchange_translations(&mut self) {
        let Some(parked) = &mut self.parked else { return };
        std::mem::swap(&mut self.reads, &mut parked.reads);
        std::mem::swap(&mut self.writes, &mut parked.writes);
        std::mem::swap(&mut self.fetches, &mut parked.fetches);
        self.frames.bump_epoch();
    }
}
