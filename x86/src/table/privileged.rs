//! Instructions that a program may not use, and the exception that it gets.

use crate::decode;
use crate::machine::Trap;
use iced_x86::{Instruction, Mnemonic as N};

/// The exception that a program gets of an instruction of ring 0, or of one that nobody has switched on for it; none if it may use the
/// instruction.
///
/// #GP where the processor checks the privilege level, #UD where it looks first for a mode or a feature that no program
/// finds switched on: virtual machines, their guests' memory, system management, enclaves, shadow stacks of the kernel.
#[must_use]
pub fn fault(i: &Instruction) -> Option<Trap> {
    if is_port(i) || checks_the_level(i) {
        Some(Trap::General)
    } else if i.is_privileged() || is_switched_off(i) {
        Some(Trap::Undefined)
    } else {
        None
    }
}

/// What Linux keeps from programs though it is not an instruction of ring 0 alone: port I/O (IOPL is 0), and software
/// interrupts other than INT3, for which process guests have no gate.
fn is_port(i: &Instruction) -> bool {
    decode::is_port_string(i) || matches!(i.mnemonic(), N::Cli | N::Sti | N::In | N::Out | N::Int)
}

/// What the processor of a guest does not have, or Linux has not switched on: protection keys, the trace of writes, safer mode.
fn is_switched_off(i: &Instruction) -> bool {
    matches!(i.mnemonic(), N::Monitor | N::Mwait | N::Rdpkru | N::Wrpkru | N::Ptwrite | N::Getsec)
}

/// Those with #GP(0) for the privilege level alone in the manual (volume 2).
fn checks_the_level(i: &Instruction) -> bool {
    match i.mnemonic() {
        // To and from control and debug registers.
        N::Mov => i.is_privileged(),
        N::Clts
        | N::Hlt
        | N::Invd
        | N::Invlpg
        | N::Invpcid
        | N::Lgdt
        | N::Lidt
        | N::Lldt
        | N::Lmsw
        | N::Ltr
        | N::Rdmsr
        // Linux sets CR4.PCE for nobody who has not opened an event, and no entry for SYSENTER in 64-bit mode.
        | N::Rdpmc
        | N::Sysenter
        | N::Swapgs
        | N::Sysexit
        | N::Sysexitq
        | N::Sysret
        | N::Sysretq
        | N::Wbinvd
        | N::Wbnoinvd
        | N::Wrmsr
        | N::Xrstors
        | N::Xrstors64
        | N::Xsaves
        | N::Xsaves64
        | N::Xsetbv => true,
        _ => false,
    }
}
