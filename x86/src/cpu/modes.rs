//! What a CPU with a system has and a program's has not: three sets of cached translations, and code of 32 bits.
//!
//! A page may be open to the kernel and closed to programs, so that a translation says something about one mode only. The
//! sets that are not in use are parked, and a change of mode is an exchange of pointers. The third set is the kernel's while it has
//! lifted the protection of programs' pages (SMAP): it has loads and stores alone, since what may be fetched is the same.
//!
//! Code of 32 bits is what boot loaders enter kernels with. It runs one instruction after the other, from no block
//! ([`crate::interpreter::Interpreter::run`]).

use super::Cpu;
use crate::block::instruction_at;
use crate::bus::Bus;
use crate::tlb::Tlb;
use iced_x86::Instruction;

/// The translations of the modes that do not run.
pub(super) struct Parked {
    reads: Tlb,
    writes: Tlb,
    fetches: Tlb,
    /// Of the kernel with SMAP lifted; or, while that runs, of the kernel without.
    lifted_reads: Tlb,
    lifted_writes: Tlb,
}

impl Parked {
    fn new() -> Parked {
        let [reads, writes, fetches, lifted_reads, lifted_writes] = std::array::from_fn(|_| Tlb::new());
        Parked { reads, writes, fetches, lifted_reads, lifted_writes }
    }

    fn all(&mut self) -> [&mut Tlb; 5] {
        let Parked { reads, writes, fetches, lifted_reads, lifted_writes } = self;
        [reads, writes, fetches, lifted_reads, lifted_writes]
    }

    fn all_writes(&mut self) -> [&mut Tlb; 2] {
        [&mut self.writes, &mut self.lifted_writes]
    }

    pub(super) fn remove(&mut self, va: u64) {
        self.all().into_iter().for_each(|tlb| tlb.remove(va));
    }

    pub(super) fn clear(&mut self) {
        self.all().into_iter().for_each(Tlb::clear);
    }

    pub(super) fn clear_writes(&mut self) {
        self.all_writes().into_iter().for_each(Tlb::clear);
    }

    pub(super) fn remove_writes_of(&mut self, frame: u64) {
        self.all_writes().into_iter().for_each(|tlb| tlb.remove_frame(frame));
    }
}

impl<B: Bus> Cpu<B> {
    /// From now on there are modes, and the instructions that depend on the system end a run
    /// ([`crate::interpreter::Stop::System`]).
    pub fn give_system(&mut self) {
        self.has_system = true;
        self.parked = Some(Box::new(Parked::new()));
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

    /// Goes on with the translations of the kernel that has lifted SMAP, or of the one that has not, for loads and stores. Only the
    /// kernel's mode does: whoever leaves it while SMAP is lifted exchanges these first.
    pub fn exchange_lifted_translations(&mut self) {
        let Some(parked) = &mut self.parked else { return };
        std::mem::swap(&mut self.reads, &mut parked.lifted_reads);
        std::mem::swap(&mut self.writes, &mut parked.lifted_writes);
    }
}
