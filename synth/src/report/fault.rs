//! Why the last instruction did not retire: what the signal says and, where it says nothing, what the instruction and
//! the registers tell.
//!
//! For a page fault the processor reports the address. For a general-protection or stack fault it does not, and the
//! kernel's signal has `SI_KERNEL` and the address 0 (arch/x86/kernel/traps.c): then the operands are looked at.

use super::uses::register_value;
use crate::certificate::forward::decode;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use std::fmt::{self, Display, Formatter};
use vmm::elfcore::Core;
use vmm::process::exit::SI_KERNEL;

/// SIGBUS and SIGSEGV.
const MEMORY_SIGNALS: [i32; 2] = [7, 11];
/// `si_code` of a SIGBUS for an access that is not aligned (asm-generic/siginfo.h).
const BUS_ADRALN: i32 = 1;

/// What is known of a memory fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A page fault: this address is not mapped, or not for this.
    Unusable(u64),
    /// An operand's address is not canonical: bits 63 to 47 are not all equal (Intel SDM vol. 1, 3.3.7.1).
    NotCanonical(u64),
    /// The instruction would go on at an address that is not canonical.
    TargetNotCanonical(u64),
    /// An operand at this address is not aligned as the instruction needs it.
    Misaligned(u64),
    /// The instruction is not for programs.
    Privileged,
    /// A fault that has no address.
    NoAddress,
}

impl Cause {
    /// The cause of a crash; `None` if it is not a memory fault.
    #[must_use]
    pub fn of(core: &Core) -> Option<Cause> {
        let signal = &core.signal;
        if signal.code <= 0 || !MEMORY_SIGNALS.contains(&signal.signo) {
            return None;
        }
        let aligned = (signal.signo, signal.code) != (MEMORY_SIGNALS[0], BUS_ADRALN);
        if signal.code != SI_KERNEL && (aligned || signal.address != 0) {
            return Some(Cause::Unusable(signal.address));
        }
        let instruction = decode(core.state.regs.rip, |va, bytes| core.read(va, bytes));
        Some(without_address(core, &instruction))
    }

    /// The address that could not be used, where it is known.
    #[must_use]
    pub fn address(self) -> Option<u64> {
        match self {
            Cause::Unusable(address)
            | Cause::NotCanonical(address)
            | Cause::TargetNotCanonical(address)
            | Cause::Misaligned(address) => Some(address),
            Cause::Privileged | Cause::NoAddress => None,
        }
    }
}

impl Display for Cause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Unusable(at) => write!(f, "cannot use the memory at {at:#x}"),
            Cause::NotCanonical(at) => {
                write!(f, "general-protection fault: the operand's address {at:#x} is not canonical")
            }
            Cause::TargetNotCanonical(at) => {
                write!(f, "general-protection fault: it goes to {at:#x}, which is not canonical")
            }
            Cause::Misaligned(at) => write!(f, "the operand at {at:#x} is not aligned for this instruction"),
            Cause::Privileged => f.write_str("general-protection fault: the instruction is privileged"),
            Cause::NoAddress => f.write_str(
                "general-protection fault, or one whose handler could not be entered: no address is reported",
            ),
        }
    }
}

/// The cause by the instruction and the registers.
fn without_address(core: &Core, instruction: &Instruction) -> Cause {
    if let Some(target) = target(core, instruction).filter(|at| !is_canonical(*at)) {
        return Cause::TargetNotCanonical(target);
    }
    let mut factory = InstructionInfoFactory::new();
    let accesses = factory.info(instruction).used_memory().iter();
    let accesses = accesses.filter(|used| !matches!(used.access(), OpAccess::NoMemAccess | OpAccess::None));
    let operands: Vec<(u64, usize)> = accesses
        .filter_map(|used| {
            let address = used.virtual_address(0, |r, _, _| Some(register_value(r, &core.state)))?;
            Some((address, used.memory_size().size()))
        })
        .collect();
    let ends = operands.iter().flat_map(|&(at, size)| [at, at.wrapping_add(size.max(1) as u64 - 1)]);
    if let Some(at) = ends.filter(|at| !is_canonical(*at)).min_by_key(|at| at.leading_ones()) {
        return Cause::NotCanonical(at);
    }
    let misaligned = operands.iter().find(|(at, size)| *size >= 16 && at % 16 != 0);
    match misaligned.filter(|_| !takes_any_alignment(instruction.mnemonic())) {
        Some((at, _)) => Cause::Misaligned(*at),
        None if instruction.is_privileged() => Cause::Privileged,
        None => Cause::NoAddress,
    }
}

/// Where a return or an indirect branch goes.
fn target(core: &Core, instruction: &Instruction) -> Option<u64> {
    let state = &core.state;
    match instruction.flow_control() {
        FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => {
            core.word(register_value(Register::RSP, state))
        }
        FlowControl::IndirectBranch | FlowControl::IndirectCall => match instruction.op0_kind() {
            OpKind::Register => Some(register_value(instruction.op0_register(), state)),
            _ => core.word(instruction.virtual_address(0, 0, |r, _, _| Some(register_value(r, state)))?),
        },
        _ => None,
    }
}

fn is_canonical(address: u64) -> bool {
    let upper = address.cast_signed() >> 47;
    upper == 0 || upper == -1
}

/// The instructions with 16 bytes of memory that need no alignment without VEX (Intel SDM vol. 1, 10.4.1.1 and the
/// instructions' own pages).
fn takes_any_alignment(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{Lddqu, Movdqu, Movupd, Movups, Pcmpestri, Pcmpestrm, Pcmpistri, Pcmpistrm};
    matches!(mnemonic, Movups | Movupd | Movdqu | Lddqu | Pcmpestri | Pcmpestrm | Pcmpistri | Pcmpistrm)
}
