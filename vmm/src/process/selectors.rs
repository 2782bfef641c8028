//! LAR, LSL, VERR and VERW as the personality carries them out: what a program of Linux finds in the descriptor tables.
//!
//! Under KVM the processor would look at the tables of whoever runs it, which are gretel's or the host's. One of the host's
//! descriptors tells the number of the processor by its limit, a different one whenever the host moves the thread. So these
//! instructions are rewritten as machine reads are ([`crate::memory::sites`]); the number is that of the guest's one processor, zero.

use super::exit::vector;
use super::machine_reads::{Read, is_canonical};
use super::{Process, ProcessError, Step};
use crate::memory::access::AccessError;
use crate::memory::space::Access;
use iced_x86::{Mnemonic, OpKind, Register};
use x86::state::Regs;

/// RFLAGS.ZF.
const ZERO: u64 = 1 << 6;
/// Where LAR has the type of a segment.
const WRITABLE_OR_READABLE: u32 = 1 << 9;
const IS_CODE: u32 = 1 << 11;

/// What a selector leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Descriptor {
    /// Its limit in bytes.
    limit: u32,
    /// Its rights, as LAR has them.
    rights: u32,
}

impl Descriptor {
    /// Those that Linux lets programs see (arch/x86/kernel/cpu/common.c, `gdt_page`, and arch/x86/entry/vdso/vma.c): flat code of
    /// 32 bits, data, code of 64 bits, and that with the processor's number.
    fn of(selector: u16) -> Option<Descriptor> {
        let (limit, rights) = match selector & !3 {
            0x20 => (u32::MAX, 0x00cf_fb00),
            0x28 => (u32::MAX, 0x00cf_f300),
            0x30 => (u32::MAX, 0x00af_fb00),
            0x78 => (0, 0x0040_f500),
            _ => return None,
        };
        Some(Descriptor { limit, rights })
    }

    /// What the instruction finds of it; `None` where it clears ZF.
    fn answer(self, mnemonic: Mnemonic) -> Option<u32> {
        let has = |bit: u32| self.rights & bit != 0;
        match mnemonic {
            Mnemonic::Lsl => Some(self.limit),
            Mnemonic::Lar => Some(self.rights),
            Mnemonic::Verr => (!has(IS_CODE) || has(WRITABLE_OR_READABLE)).then_some(0),
            _ => (!has(IS_CODE) && has(WRITABLE_OR_READABLE)).then_some(0),
        }
    }
}

/// Carries out the instruction for a selector.
fn execute(read: &Read, regs: &mut Regs, selector: u16) {
    let mnemonic = read.instruction().mnemonic();
    let answer = Descriptor::of(selector).and_then(|found| found.answer(mnemonic));
    regs.rflags &= !ZERO;
    if let Some(answer) = answer {
        regs.rflags |= ZERO;
        if matches!(mnemonic, Mnemonic::Lsl | Mnemonic::Lar) {
            set(regs, read.instruction().op0_register(), answer);
        }
    }
    read.skip(regs);
}

/// Writes as many bits as a register has.
fn set(regs: &mut Regs, register: Register, value: u32) {
    let slot = &mut regs.gpr[register.full_register().number() & 15];
    let value = u64::from(value);
    *slot = if register.size() == 2 { *slot & !0xffff | value & 0xffff } else { value };
}

/// The register that holds the selector, if it is not in memory.
fn source(read: &Read) -> Option<Register> {
    let instruction = read.instruction();
    let last = instruction.op_count().checked_sub(1)?;
    (instruction.op_kind(last) == OpKind::Register).then(|| instruction.op_register(last))
}

impl Process {
    /// Carries out the LAR, LSL, VERR or VERW at rip.
    pub(super) fn ask_for_selector(&mut self, read: &Read, mut regs: Regs) -> Result<Step, ProcessError> {
        let mut bytes = [0; 2];
        if let Some(register) = source(read) {
            bytes.copy_from_slice(&regs.gpr[register.full_register().number() & 15].to_le_bytes()[..2]);
        } else {
            let address = read.operand(&regs);
            if !is_canonical(address) {
                return self.raise(vector::GENERAL, 0, 0);
            }
            let space = self.spaces.get_mut(self.space);
            match space.read(&self.machine.memory, address, &mut bytes) {
                Ok(()) => {}
                Err(AccessError::Space(error)) => return Err(error.into()),
                Err(AccessError::Bad) => {
                    let there = space.accessible(&self.machine.memory, address, 2, Access::Read).min(1);
                    return self.raise(vector::PAGE, USER, address.saturating_add(there));
                }
            }
        }
        execute(read, &mut regs, u16::from_le_bytes(bytes));
        self.machine.cpu.set_regs(&regs)?;
        self.go_on()
    }
}

/// The bit of a page fault's error code that says that it is the program's.
const USER: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(code: &[u8], selector: u64, flags: u64) -> Regs {
        let mut regs = Regs { gpr: [selector; 16], rflags: flags, ..Regs::default() };
        regs.gpr[0] = u64::MAX;
        let read = Read::decode(0x1000, code).expect("it asks for a selector");
        execute(&read, &mut regs, u16::try_from(selector).expect("a selector"));
        regs
    }

    const LSL_EAX_EDX: &[u8] = &[0x0f, 0x03, 0xc2];
    const LAR_AX_DX: &[u8] = &[0x66, 0x0f, 0x02, 0xc2];
    const VERR_DX: &[u8] = &[0x0f, 0x00, 0xe2];
    const VERW_DX: &[u8] = &[0x0f, 0x00, 0xea];

    #[test]
    fn the_processor_is_the_first() {
        let regs = run(LSL_EAX_EDX, 0x7b, 1);
        assert_eq!((regs.gpr[0], regs.rflags, regs.rip), (0, 1 | ZERO, 0x1003));
    }

    #[test]
    fn what_is_the_kernels_is_not_seen() {
        for selector in [0, 3, 8, 0x10, 0x2f, 0x40, 0x63, 0x80, 0xffff] {
            let regs = run(LSL_EAX_EDX, selector, ZERO);
            assert_eq!((regs.gpr[0], regs.rflags), (u64::MAX, 0), "{selector:x}");
        }
    }

    #[test]
    fn rights_fill_the_register_as_far_as_it_goes() {
        assert_eq!(run(LAR_AX_DX, 0x2b, 0).gpr[0], 0xffff_ffff_ffff_f300);
        assert_eq!(run(&LAR_AX_DX[1..], 0x33, 0).gpr[0], 0x00af_fb00);
    }

    #[test]
    fn data_is_written_and_code_is_read() {
        let can = |code, selector| run(code, selector, 0).rflags & ZERO != 0;
        assert_eq!([0x2b, 0x33, 0x7b].map(|selector| can(VERR_DX, selector)), [true; 3]);
        assert_eq!([0x2b, 0x33, 0x7b].map(|selector| can(VERW_DX, selector)), [true, false, false]);
    }
}
