//! FNSTENV, FNSAVE and FXSAVE as the personality carries them out.
//!
//! They store the address, the operand and the opcode of the last x87 instruction. Intel's processors keep these always,
//! AMD's only after an exception, and AMD's FXSAVE leaves their place in memory as it was. A recording made on one
//! replays on another, so these instructions are rewritten as machine reads are ([`crate::memory::sites`]), and the three fields
//! are zero. The rest is the instruction's description in [`x86::sem`], which the software CPU runs as well.
//!
//! The dynamic linker's resolver is the usual case: it saves the vector registers by FXSAVE at each first call of a
//! function.

use super::exit::vector;
use super::machine_reads::Read;
use super::{Process, ProcessError, Step};
use crate::memory::access::AccessError;
use crate::memory::space::Access;
use crate::memory::vma::page_of;
use crate::ram::Virt;
use iced_x86::Code;
use x86::cpu::Cpu;
use x86::flat::{Flat, Protection};
use x86::machine::Trap;
use x86::op::Op;
use x86::state::{Fpu, Regs};
use x86::table::x87_pointers;

/// How many bytes the instruction must be able to write, and how many of them it does write.
fn sizes(code: Code) -> (u64, usize) {
    match code {
        Code::Fnstenv_m14byte => (14, 14),
        Code::Fnstenv_m28byte => (28, 28),
        Code::Fnsave_m94byte => (94, 94),
        Code::Fnsave_m108byte => (108, 108),
        _ => (512, 416),
    }
}

/// A CPU for it, once there was such an instruction: its caches of translations are 400 KB, which take longer to make than all else here.
pub(super) type Room = Option<Box<Cpu<Flat>>>;

/// The instruction's description on a CPU of its own, whose memory is what the operand may touch.
struct Alone<'r> {
    cpu: &'r mut Cpu<Flat>,
    body: fn(&mut Cpu<Flat>, &Op) -> Result<(), Trap>,
    op: Op,
}

impl Alone<'_> {
    /// `pages` are those of the operand, each with what the guest may do there.
    fn new<'r>(
        room: &'r mut Room,
        read: &Read,
        regs: &Regs,
        fpu: &Fpu,
        pages: impl Iterator<Item = (Virt, Protection)>,
    ) -> Option<Alone<'r>> {
        let (body, op) = x87_pointers(read.instruction())?;
        let mut memory = Flat::new();
        pages.for_each(|(page, protection)| memory.map(page, &[0], protection));
        let cpu = room.get_or_insert_with(|| Box::new(Cpu::new(Flat::new())));
        *cpu.bus_mut() = memory;
        cpu.flush_tlb();
        cpu.set_regs(regs);
        cpu.set_fpu(fpu);
        Some(Alone { cpu, body, op })
    }

    fn run(&mut self) -> Result<(), Trap> {
        (self.body)(self.cpu, &self.op)
    }

    /// What it wrote at `address`.
    fn written(&self, address: Virt, length: usize) -> Vec<u8> {
        let byte = |distance| self.cpu.bus().byte(address.wrapping_add(distance)).unwrap_or(0);
        (0..).take(length).map(byte).collect()
    }
}

impl Process {
    /// Carries out the FNSTENV, FNSAVE or FXSAVE at rip.
    pub(super) fn store_x87_state(&mut self, read: &Read, mut regs: Regs) -> Result<Step, ProcessError> {
        let address = read.operand(&regs);
        let (reach, length) = sizes(read.instruction().code());
        let pages: Vec<_> = self.writable(address, reach).collect();
        let before = self.machine.cpu.fpu()?;
        let Some(mut alone) = Alone::new(&mut self.room, read, &regs, &before, pages.into_iter()) else {
            return self.raise(vector::UNDEFINED, 0, 0);
        };
        match alone.run() {
            Ok(()) => {}
            Err(Trap::Page) => {
                let fault = alone.cpu.last_page_fault();
                return fault
                    .map_or(Ok(Step::Running), |f| self.raise(vector::PAGE, f.error_code, f.address));
            }
            Err(Trap::Stack) => return self.raise(vector::STACK, 0, 0),
            Err(_) => return self.raise(vector::GENERAL, 0, 0),
        }
        let space = self.spaces.get_mut(self.space);
        match space.write(&mut self.machine.memory, address, &alone.written(address, length)) {
            Ok(()) => {}
            Err(AccessError::Space(error)) => return Err(error.into()),
            Err(AccessError::Bad) => return self.raise(vector::PAGE, 0, address),
        }
        // FXSAVE leaves it as it was.
        let after = alone.cpu.fpu();
        if after != before {
            self.machine.cpu.set_fpu(&after)?;
        }
        read.skip(&mut regs);
        self.machine.cpu.set_regs(&regs)?;
        Ok(Step::Running)
    }

    /// The pages that `length` bytes at `address` touch, as far as the guest may read them, with what it may do there.
    fn writable(&mut self, address: Virt, length: u64) -> impl Iterator<Item = (Virt, Protection)> {
        let first = page_of(address);
        let pages = [first, page_of(address.saturating_add(length - 1))];
        let count = if pages[0] == pages[1] { 1 } else { 2 };
        pages.into_iter().take(count).filter_map(move |page| {
            let (space, memory) = (self.spaces.get_mut(self.space), &self.machine.memory);
            let mut may = |access| space.accessible(memory, page.max(address), 1, access) == 1;
            match (may(Access::Write), may(Access::Read)) {
                (true, _) => Some((page, Protection::DATA)),
                (false, true) => Some((page, Protection::READ)),
                (false, false) => None,
            }
        })
    }
}
