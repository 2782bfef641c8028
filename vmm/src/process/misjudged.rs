//! A general-protection fault that KVM has made an undefined instruction of.
//!
//! Some KVMs (kvm_pvm, and those that look at #GP for VMware's ports or an erratum of AMD's) emulate the instruction that raised
//! #GP. Their emulators do not know SSE, AVX or the x87, and raise #UD then. A program that follows an overwritten pointer by
//! `movsd xmm0, [rbx]` would die of SIGILL, and of SIGSEGV everywhere else. So where the operand may be what is refused, the
//! software CPU is asked: it executes that one instruction, and its exception is the program's.

use super::exit::vector;
use super::machine_reads::is_canonical;
use super::{Process, ProcessError};
use crate::engine::{EngineKind, Exception, Exit, Until, linear_address};
use iced_x86::{Decoder, DecoderOptions, OpKind};
use x86::state::Regs;

/// The least operand that has to be aligned.
const ALIGNED: u64 = 16;

/// Whether the instruction has an operand in memory that a processor may refuse by #GP or #SS: it is nowhere, or not aligned.
fn may_be_refused(bytes: &[u8], regs: &Regs) -> bool {
    let instruction = Decoder::with_ip(64, bytes, regs.rip, DecoderOptions::NONE).decode();
    let in_memory = (0..instruction.op_count()).filter(|n| instruction.op_kind(*n) == OpKind::Memory);
    let size = instruction.memory_size().size() as u64;
    in_memory.filter_map(|n| linear_address(&instruction, n, regs)).any(|address| {
        let last = address.wrapping_add(size.max(1) - 1);
        !is_canonical(address) || !is_canonical(last) || size >= ALIGNED && !address.is_multiple_of(size)
    })
}

impl Process {
    /// The exit as a processor makes it: what KVM tells of an undefined instruction is asked of the software CPU where it may be
    /// another exception.
    pub(super) fn judged(&mut self, exit: Exit) -> Result<Exit, ProcessError> {
        let is_undefined = matches!(exit, Exit::Exception(Exception { vector: vector::UNDEFINED, .. }));
        if !is_undefined || self.machine.cpu.kind() != EngineKind::Kvm {
            return Ok(exit);
        }
        let regs = *self.machine.cpu.regs();
        if self.space().sites().contains(regs.rip)
            || !may_be_refused(&self.instruction_bytes(regs.rip), &regs)
        {
            return Ok(exit);
        }
        let fpu = self.machine.cpu.fpu()?;
        self.exchange()?;
        let next = self.retired() + 1;
        let said = self.machine.run(Until::Retired(next));
        self.exchange()?;
        match said? {
            Exit::Budget => {
                self.machine.cpu.set_regs(&regs)?;
                self.machine.cpu.set_fpu(&fpu)?;
                Ok(exit)
            }
            Exit::NoSemantics { .. } => Ok(exit),
            other => Ok(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_that_are_nowhere_or_askew_are_asked_about() {
        let at = |bytes: &[u8], rbx: u64| {
            let mut regs = Regs { rip: 0x1000, ..Regs::default() };
            regs.gpr[3] = rbx;
            may_be_refused(bytes, &regs)
        };
        let movsd = [0xf2, 0x0f, 0x10, 0x03]; // movsd xmm0, [rbx]
        let addps = [0x0f, 0x58, 0x03]; // addps xmm0, [rbx]
        assert!(at(&movsd, 0x4141_4141_4141_4141) && at(&movsd, 0x7fff_ffff_fffc));
        assert!(!at(&movsd, 0x2004) && !at(&addps, 0x2010));
        assert!(at(&addps, 0x2004));
        assert!(!at(&[0x0f, 0x0b], 0x4141_4141_4141_4141), "UD2");
    }
}
