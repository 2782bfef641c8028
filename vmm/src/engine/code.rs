//! The instruction at which an exception happened, where the exception alone does not say enough.

use super::{Exception, Phys, Virt};
use crate::ram::paging::{Reach, USER_END, translate_user};
use crate::ram::{PAGE, Ram};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, Register};
use x86::state::Regs;

/// The longest instruction.
pub(super) const LONGEST: u64 = 15;
/// #GP.
pub(super) const GENERAL: u8 = 13;

/// The code bytes at `rip` that ring 3 can fetch, as many as one instruction may have.
pub(super) fn fetch(ram: &Ram, root: Phys, rip: Virt) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut at = rip;
    let end = rip.saturating_add(LONGEST);
    while at < end.min(USER_END)
        && let Reach::Page(frame, rights) = translate_user(ram, root, at)
        && rights.execute
    {
        let page_end = (at | (PAGE - 1)).saturating_add(1).min(end);
        let page = ram.frame(frame);
        let offset = |va: Virt| usize::try_from(va % PAGE).expect("inside a page");
        bytes.extend_from_slice(&page[offset(at)..=offset(page_end - 1)]);
        at = page_end;
    }
    bytes
}

pub(super) fn decode(bytes: &[u8]) -> Instruction {
    Decoder::new(64, bytes, DecoderOptions::NONE).decode()
}

/// The same with its address.
pub(super) fn decode_at(bytes: &[u8], rip: Virt) -> Instruction {
    Decoder::with_ip(64, bytes, rip, DecoderOptions::NONE).decode()
}

/// The linear address of an operand in memory; `None` if it is not in memory.
pub(crate) fn linear_address(instruction: &Instruction, operand: u32, regs: &Regs) -> Option<Virt> {
    instruction.virtual_address(operand, 0, |register, _, _| match register {
        Register::FS => Some(regs.fs_base),
        Register::GS => Some(regs.gs_base),
        _ if register.is_segment_register() => Some(0),
        _ => {
            let value = regs.gpr[register.full_register().number() & 15];
            Some(if register.size() == 4 { value & 0xffff_ffff } else { value })
        }
    })
}

/// What INT n does in ring 3, if these bytes are one: its exception, and how far rip moves. INT 3 and INT 4 may be
/// used; all others are a #GP with the gate's number in the error code (Intel SDM vol. 3, 6.12.1.2 and 6.13).
/// Hosts and the software CPU each get some of that wrong.
pub(super) fn software_interrupt(bytes: &[u8]) -> Option<(Exception, u64)> {
    let instruction = decode(bytes);
    if instruction.mnemonic() != Mnemonic::Int {
        return None;
    }
    let number = instruction.immediate8();
    Some(match number {
        3 | 4 => (Exception { vector: number, error_code: 0, address: 0 }, instruction.len() as u64),
        _ => {
            let error_code = u32::from(number) << 3 | 2;
            (Exception { vector: GENERAL, error_code, address: 0 }, 0)
        }
    })
}
