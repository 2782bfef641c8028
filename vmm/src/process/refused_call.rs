//! An indirect call to an address that is not canonical: a function pointer that was overwritten, as a rule.
//!
//! It is #GP at the call. Intel's processors have stored the return address by then, AMD's have not; rsp stays on both. The
//! memory of the two would differ from then on, and so would a handler's or a core's. Here it is stored on every engine, since
//! what a processor has overwritten cannot be put back ([decision 46](../../../docs/decisions/0046-a-refused-call-has-pushed.md)).

use super::machine_reads::is_canonical;
use super::{Process, ProcessError};
use crate::engine::linear_address;
use crate::memory::access::AccessError;
use crate::ram::Virt;
use iced_x86::{Decoder, DecoderOptions, OpKind};
use x86::state::Regs;

/// What the call at rip has stored when it raised #GP: where, and the return address. `None` if the instruction is none, or was
/// refused before it had a target: its operand's own address is not canonical.
fn pushed(bytes: &[u8], regs: &Regs) -> Option<(Virt, u64)> {
    let call = Decoder::with_ip(64, bytes, regs.rip, DecoderOptions::NONE).decode();
    if !call.is_call_near_indirect() {
        return None;
    }
    if call.op0_kind() == OpKind::Memory {
        let address = linear_address(&call, 0, regs)?;
        if !is_canonical(address) || !is_canonical(address.wrapping_add(7)) {
            return None;
        }
    }
    let [_, _, _, _, rsp, ..] = regs.gpr;
    Some((rsp.wrapping_sub(8), call.next_ip()))
}

impl Process {
    /// Stores what the instruction at rip, which raised #GP, has pushed if it is such a call. Where it cannot be stored, the
    /// call would have been a page fault.
    pub(super) fn store_refused_call(&mut self) -> Result<(), ProcessError> {
        let regs = *self.machine.cpu.regs();
        let bytes = self.instruction_bytes(regs.rip);
        let Some((at, back)) = pushed(&bytes, &regs) else { return Ok(()) };
        let space = self.spaces.get_mut(self.space);
        match space.write(&mut self.machine.memory, at, &back.to_le_bytes()) {
            Ok(()) | Err(AccessError::Bad) => Ok(()),
            Err(AccessError::Space(error)) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD: u64 = 0x4141_4141_4141_4141;

    fn at(bytes: &[u8], rax: u64) -> Option<(Virt, u64)> {
        let mut regs = Regs { rip: 0x1000, ..Regs::default() };
        (regs.gpr[0], regs.gpr[4]) = (rax, 0x8000);
        pushed(bytes, &regs)
    }

    #[test]
    fn a_call_stores_the_address_behind_it() {
        assert_eq!(at(&[0xff, 0xd0], BAD), Some((0x7ff8, 0x1002)), "call rax");
        assert_eq!(at(&[0xff, 0x50, 0x08], 0x5000), Some((0x7ff8, 0x1003)), "call [rax+8]");
    }

    #[test]
    fn others_store_nothing() {
        assert_eq!(at(&[0xff, 0x10], BAD), None, "call [rax], which has no target");
        assert_eq!(at(&[0xff, 0x10], 0x7fff_ffff_fffc), None, "the same at the end of what is canonical");
        assert_eq!(at(&[0xff, 0xe0], BAD), None, "jmp rax");
        assert_eq!(at(&[0xff, 0x18], 0x5000), None, "call far [rax]");
        assert_eq!(at(&[0xc3], BAD), None, "ret");
    }
}
