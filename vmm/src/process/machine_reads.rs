//! Instructions that read the machine, made deterministic: rewritten to UD2 ([`crate::memory::sites`]), served from the CPU
//! model and the gate. Those that store the address of the last x87 instruction are among them
//! ([`super::x87_pointers`]), and those that tell of descriptor tables ([`super::selectors`]).
//!
//! Not every host traps them (kvm_pvm traps none), so they are rewritten wherever the engine may run; both
//! engines see the same memory.

use super::exit::vector;
use super::extended_state::BadImage;
use super::{Process, ProcessError, Step};
use crate::cpu_model::Model;
use crate::engine::linear_address;
use crate::gate::Event;
pub use crate::memory::rewritten::Kind;
use crate::memory::sites::behind_pause;
use crate::ram::Virt;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use x86::machine::MachineRead;
use x86::state::Regs;

/// The longest instruction.
pub const LONGEST: usize = 15;

/// What an instruction on the extended state does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It stores.
    Save,
    /// It loads.
    Restore,
}

/// A machine read at the guest's rip, decoded.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Which.
    pub kind: Kind,
    instruction: Instruction,
}

/// What a machine read needs from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: the model says it all.
    Nothing,
    /// The time stamp counter.
    Tsc,
    /// Random bits.
    Random,
    /// The vector registers and the memory operand: it is XSAVE or XRSTOR.
    ExtendedState,
    /// The x87 registers and the memory operand: it is FNSTENV, FNSAVE or FXSAVE.
    X87State,
    /// The memory operand, or nothing: it is LAR, LSL, VERR or VERW.
    Selector,
}

impl Read {
    /// Decodes the instruction at `rip` from its own bytes, if it is a machine read.
    #[must_use]
    pub fn decode(rip: Virt, bytes: &[u8]) -> Option<Read> {
        let instruction = Decoder::with_ip(64, bytes, rip, DecoderOptions::NONE).decode();
        Some(Read { kind: Kind::of(&instruction)?, instruction })
    }

    /// What it needs; `None` if the model lacks it, and hardware would raise #UD.
    #[must_use]
    pub fn needs(&self, model: Model) -> Option<Needs> {
        let kind = match self.kind {
            Kind::Machine(kind) => kind,
            Kind::X87Pointers => return Some(Needs::X87State),
            Kind::Selector => return Some(Needs::Selector),
            Kind::PortString => return Some(Needs::Nothing),
            Kind::Undefined => return None,
        };
        match kind {
            MachineRead::Cpuid => Some(Needs::Nothing),
            MachineRead::Rdtsc | MachineRead::Rdtscp => Some(Needs::Tsc),
            MachineRead::Rdrand | MachineRead::Rdseed => Some(Needs::Random),
            MachineRead::Xgetbv => model.has_xsave().then_some(Needs::Nothing),
            MachineRead::ExtendedState => {
                (model.has_xsave() && self.direction().is_some()).then_some(Needs::ExtendedState)
            }
            MachineRead::Rdpid | MachineRead::Transaction => None,
        }
    }

    /// The instruction.
    #[must_use]
    pub fn instruction(&self) -> &Instruction {
        &self.instruction
    }

    /// Whether it saves or restores the extended state; `None` for a variant that no model has.
    #[must_use]
    pub fn direction(&self) -> Option<Direction> {
        match self.instruction.mnemonic() {
            Mnemonic::Xsave | Mnemonic::Xsave64 => Some(Direction::Save),
            Mnemonic::Xrstor | Mnemonic::Xrstor64 => Some(Direction::Restore),
            _ => None,
        }
    }

    /// The linear address of its memory operand.
    #[must_use]
    pub fn operand(&self, regs: &Regs) -> Virt {
        let in_memory = |operand: &u32| self.instruction.op_kind(*operand) == OpKind::Memory;
        let operand = (0..self.instruction.op_count()).find(in_memory).unwrap_or(0);
        linear_address(&self.instruction, operand, regs).unwrap_or(0)
    }

    /// Moves rip behind it.
    pub fn skip(&self, regs: &mut Regs) {
        regs.rip = self.instruction.next_ip();
    }

    /// Carries it out with what it needed (see [`Read::needs`]).
    ///
    /// # Errors
    /// [`BadImage`], for #GP, where XGETBV is asked for a register that there is not, and always for ports.
    pub fn execute(&self, model: Model, regs: &mut Regs, value: u64) -> Result<(), BadImage> {
        let [rax, rcx, rdx, rbx] = [0_usize, 1, 2, 3];
        let low = |value: u64| value & 0xffff_ffff;
        let Kind::Machine(kind) = self.kind else { return Err(BadImage) };
        match kind {
            MachineRead::Cpuid => {
                let result = model.cpuid(low32(regs.gpr[rax]), low32(regs.gpr[rcx]));
                for (register, value) in
                    [(rax, result.eax), (rbx, result.ebx), (rcx, result.ecx), (rdx, result.edx)]
                {
                    regs.gpr[register] = u64::from(value);
                }
            }
            MachineRead::Rdtsc | MachineRead::Rdtscp => {
                regs.gpr[rax] = low(value);
                regs.gpr[rdx] = value >> 32;
                if kind == MachineRead::Rdtscp {
                    regs.gpr[rcx] = 0;
                }
            }
            MachineRead::Rdrand | MachineRead::Rdseed => self.store_random(regs, value),
            MachineRead::Xgetbv if low(regs.gpr[rcx]) != 0 => return Err(BadImage),
            MachineRead::Xgetbv => {
                regs.gpr[rax] = low(model.components());
                regs.gpr[rdx] = model.components() >> 32;
            }
            MachineRead::Rdpid | MachineRead::Transaction | MachineRead::ExtendedState => {}
        }
        self.skip(regs);
        Ok(())
    }

    /// Writes random bits to the destination; CF says that there were some, the other flags are cleared.
    fn store_random(&self, regs: &mut Regs, value: u64) {
        let register = self.instruction.op0_register();
        let slot = &mut regs.gpr[register.full_register().number()];
        *slot = match register.size() {
            2 => *slot & !0xffff | value & 0xffff,
            4 => value & 0xffff_ffff,
            _ => value,
        };
        regs.rflags = regs.rflags & !0x8d5 | 1;
        debug_assert_ne!(register, Register::None, "RDRAND has a destination");
    }
}

impl Process {
    /// The bytes at `rip`, as many as an instruction may have; zeros where nothing is mapped.
    pub(super) fn instruction_bytes(&self, rip: Virt) -> [u8; LONGEST] {
        let mut bytes = [0; LONGEST];
        if !self.read_memory(rip, &mut bytes) {
            // The instruction may be the last before an unmapped page.
            let within = usize::try_from(crate::ram::PAGE - rip % crate::ram::PAGE).unwrap_or(LONGEST);
            self.read_memory(rip, &mut bytes[..within.min(LONGEST)]);
        }
        bytes
    }

    /// Carries out the machine read at rip.
    pub(super) fn machine_read(&mut self) -> Result<Step, ProcessError> {
        let mut regs = *self.machine.cpu.regs();
        let bytes = self.instruction_bytes(regs.rip);
        if let Some(behind) = behind_pause(regs.rip, &bytes) {
            return self.pause(behind);
        }
        let read = Read::decode(regs.rip, &bytes).and_then(|read| Some((read, read.needs(self.model)?)));
        let Some((read, needs)) = read else { return self.raise(vector::UNDEFINED, 0, 0) };
        if needs == Needs::Tsc && self.kernel.has_no_time_stamps() {
            return self.raise(vector::GENERAL, 0, 0);
        }
        self.begin(Event::MachineRead)?;
        if !matches!(needs, Needs::Tsc | Needs::Random) {
            self.tell_of_read(&read, None);
        }
        let (kernel, mut guest) = self.guest();
        let value = match needs {
            Needs::Nothing => 0,
            Needs::Tsc => kernel.time_stamp(&mut guest)?,
            Needs::Random => kernel.random_word(&mut guest)?,
            Needs::ExtendedState => return self.extended_state(&read, regs),
            Needs::X87State => return self.store_x87_state(&read, regs),
            Needs::Selector => return self.ask_for_selector(&read, regs),
        };
        if matches!(needs, Needs::Tsc | Needs::Random) {
            self.tell_of_read(&read, Some(value));
        }
        if read.execute(self.model, &mut regs, value).is_err() {
            return self.raise(vector::GENERAL, 0, 0);
        }
        self.machine.cpu.set_regs(&regs)?;
        self.go_on()
    }
}

/// Whether an address is one: bits 63 to 47 are all equal.
pub(super) fn is_canonical(address: Virt) -> bool {
    let upper = address.cast_signed() >> 47;
    upper == 0 || upper == -1
}

/// The low half of a register.
fn low32(value: u64) -> u32 {
    u32::try_from(value & 0xffff_ffff).expect("it was masked to 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_write_what_the_processor_writes() {
        let mut regs = Regs { gpr: [u64::MAX; 16], rip: 0x10, ..Regs::default() };
        regs.gpr[0] = 0xffff_ffff_0000_0000;
        Read::decode(0x10, &[0x0f, 0xa2]).expect("CPUID").execute(Model::V2, &mut regs, 0).expect("no fault");
        assert_eq!((regs.gpr[0], regs.rip), (7, 0x12));
        Read::decode(0x12, &[0x0f, 0x31])
            .expect("RDTSC")
            .execute(Model::V2, &mut regs, 0x1_0000_0002)
            .expect("no fault");
        assert_eq!((regs.gpr[0], regs.gpr[2]), (2, 1));
        let rdrand_r9w = Read::decode(0x14, &[0x66, 0x41, 0x0f, 0xc7, 0xf1]).expect("RDRAND");
        rdrand_r9w.execute(Model::V2, &mut regs, 0x1234_5678).expect("no fault");
        assert_eq!((regs.gpr[9], regs.rflags & 1, regs.rip), (0xffff_ffff_ffff_5678, 1, 0x19));
    }

    #[test]
    fn the_extended_state_is_that_of_the_model() {
        let xgetbv = Read::decode(0x14, &[0x0f, 0x01, 0xd0]).expect("XGETBV");
        assert_eq!(xgetbv.needs(Model::V2), None);
        let mut regs = Regs { gpr: [u64::MAX; 16], ..Regs::default() };
        assert_eq!(xgetbv.execute(Model::V3, &mut regs, 0), Err(BadImage), "ecx is not zero");
        regs.gpr[1] = 0;
        xgetbv.execute(Model::V4, &mut regs, 0).expect("no fault");
        assert_eq!((regs.gpr[0], regs.gpr[2], regs.rip), (0xe7, 0, 0x17));
        let xsave = Read::decode(0, &[0x48, 0x0f, 0xae, 0x64, 0x0b, 0x40]).expect("XSAVE64 [rbx+rcx+40h]");
        assert_eq!(xsave.needs(Model::V3), Some(Needs::ExtendedState));
        regs.gpr[3] = 0x1000;
        assert_eq!((xsave.direction(), xsave.operand(&regs)), (Some(Direction::Save), 0x1040));
        let xsavec = Read::decode(0, &[0x0f, 0xc7, 0x20]).expect("XSAVEC [rax]");
        assert_eq!(xsavec.needs(Model::V4), None);
    }

    #[test]
    fn what_hosts_refuse_in_different_ways_is_refused_in_one() {
        for code in [&[0x0f, 0x01, 0xc8][..], &[0x0f, 0x01, 0xd9], &[0x0f, 0xc7, 0x2e], &[0x0f, 0x01, 0xfb]] {
            assert_eq!(Read::decode(0x1000, code).expect("MONITOR and others").needs(Model::V4), None);
        }
        let rep_outsb = Read::decode(0x1000, &[0xf3, 0x6e]).expect("REP OUTSB");
        assert_eq!(rep_outsb.needs(Model::V2), Some(Needs::Nothing));
        let mut regs = Regs::default();
        assert_eq!(rep_outsb.execute(Model::V2, &mut regs, 0), Err(BadImage));
        assert_eq!(regs, Regs::default());
        assert!(Read::decode(0x1000, &[0x6e]).is_none(), "OUTSB alone is one byte, and refused by all");
    }

    #[test]
    fn no_model_has_transactions() {
        for code in
            [&[0xc7, 0xf8, 0, 0, 0, 0][..], &[0xc6, 0xf8, 1], &[0x0f, 0x01, 0xd5], &[0x0f, 0x01, 0xd6]]
        {
            assert_eq!(
                Read::decode(0x1000, code).expect("XBEGIN, XABORT, XEND, XTEST").needs(Model::V4),
                None
            );
        }
    }
}
