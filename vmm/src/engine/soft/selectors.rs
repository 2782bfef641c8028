//! Loads of segment registers with what they hold anyway.
//!
//! They have no semantics, since selectors are constants there. Under Linux DS, ES, FS and GS hold zero and SS 0x2b, and a
//! program that loads just these changes nothing but the base of FS or GS, which a null selector makes zero (on AMD's
//! processors since Zen 2, and on Intel's). Such loads are carried out here, and count as one instruction. Others stay without
//! semantics: what they load could be read back.

use super::PagedRam;
use crate::engine::code;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use x86::cpu::Cpu;
use x86::machine::{Machine, Trap};
use x86::state::Regs;

/// SS in programs.
const USER_DATA: u64 = 0x2b;

/// Carries out the instruction at rip, which has no semantics, if it is such a load. `None`: it is not; else what it raised.
pub(super) fn load(cpu: &mut Cpu<PagedRam>, bytes: &[u8]) -> Option<Result<(), Trap>> {
    let mut regs = cpu.regs();
    let instruction = code::decode_at(bytes, regs.rip);
    let to = instruction.op0_register();
    if !to.is_segment_register() || !matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Pop) {
        return None;
    }
    let selector = match source(cpu, &instruction, &mut regs)? {
        Ok(selector) => selector & 0xffff,
        Err(trap) => return Some(Err(trap)),
    };
    match (to, selector) {
        (Register::DS | Register::ES, 0) | (Register::SS, USER_DATA) => {}
        (Register::FS, 0) => regs.fs_base = 0,
        (Register::GS, 0) => regs.gs_base = 0,
        _ => return None,
    }
    regs.rip = instruction.next_ip();
    cpu.set_regs(&regs);
    Some(Ok(()))
}

/// What is loaded. POP moves rsp in `regs`.
fn source(cpu: &mut Cpu<PagedRam>, i: &Instruction, regs: &mut Regs) -> Option<Result<u64, Trap>> {
    let stack = |trap| if trap == Trap::General { Trap::Stack } else { trap };
    if i.mnemonic() == Mnemonic::Pop {
        let [_, _, _, _, rsp, ..] = regs.gpr;
        regs.gpr[4] = rsp.wrapping_add(i.stack_pointer_increment().unsigned_abs().into());
        return Some(cpu.load(16, rsp).map_err(stack));
    }
    if i.op1_kind() == OpKind::Register {
        return Some(Ok(regs.gpr[i.op1_register().full_register().number() & 15]));
    }
    let address = code::linear_address(i, 1, regs)?;
    let on_stack = matches!(i.memory_base(), Register::RSP | Register::RBP | Register::ESP | Register::EBP);
    Some(cpu.load(16, address).map_err(|trap| if on_stack { stack(trap) } else { trap }))
}
