//! Why the last instruction did not retire: what the signal says and, where it says nothing, what the instruction and
//! the registers tell.
//!
//! For a page fault the processor reports the address. For a general-protection or stack fault it does not, and the
//! kernel's signal has `SI_KERNEL` and the address 0 (arch/x86/kernel/traps.c): then the operands are looked at.

use super::uses::register_value;
use crate::certificate::forward::decode;
use iced_x86::{
    EncodingKind, FlowControl, Instruction, InstructionInfoFactory, MemorySize, Mnemonic, OpAccess, OpKind,
    Register,
};
use std::fmt::{self, Display, Formatter};
use std::ops::Range;
use vmm::elfcore::Core;
use vmm::signal::SI_KERNEL;
use x86::op::Gpr;

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

/// The bytes below the stack that the crash itself may have stored: an indirect call to an address that is not canonical has
/// stored the return address on Intel's processors and in gretel's recordings, and not on AMD's. A core does not tell which
/// it is of, so what was there before is not known. A machine's is known: the software CPU, which stores nothing there.
pub(crate) fn stored_by_refused_call(core: &Core) -> Option<Range<u64>> {
    if core.machine.is_some() {
        return None;
    }
    let Some(Cause::TargetNotCanonical(_)) = Cause::of(core) else { return None };
    let instruction = decode(core.state.regs.rip, |va, bytes| core.read(va, bytes));
    let rsp = core.state.regs.gpr[usize::from(Gpr::RSP.0)];
    instruction.is_call_near_indirect().then_some(rsp.checked_sub(8)?..rsp)
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
    let misaligned = operands.iter().find(|(at, size)| at % alignment(core, instruction, *size) != 0);
    match misaligned {
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

/// What the address of an operand of `size` bytes must be a multiple of.
fn alignment(core: &Core, instruction: &Instruction, size: usize) -> u64 {
    if core.signal.signo == MEMORY_SIGNALS[0] {
        return checked_alignment(size);
    }
    let mnemonic = instruction.mnemonic();
    let needed = match instruction.encoding() {
        // XSAVE's operand is as long as what the processor has; iced-x86 gives it no size.
        EncodingKind::Legacy if is_xsave(instruction.memory_size()) => 64,
        EncodingKind::Legacy if size == FXSAVE_LEN || size == 16 && !takes_any_alignment(mnemonic) => 16,
        EncodingKind::VEX | EncodingKind::EVEX if is_aligned_move(mnemonic) => size,
        _ => 1,
    };
    needed as u64
}

/// What alignment checking (the flag AC) asks of data of this size (Intel SDM vol. 3, "Alignment Check Exception").
fn checked_alignment(size: usize) -> u64 {
    match size {
        0 | 1 => 1,
        2 | 3 => 2,
        // Doublewords, pointers, and the environment of the x87.
        4..=7 | 17.. => 4,
        // Quadwords, floats of 8 and 10 bytes; vectors, whose instructions either ask for more or for nothing.
        8..=16 => 8,
    }
}

/// What FXSAVE writes.
const FXSAVE_LEN: usize = 512;

fn is_xsave(size: MemorySize) -> bool {
    matches!(size, MemorySize::Xsave | MemorySize::Xsave64)
}

/// The instructions with 16 bytes of memory that need no alignment, encoded without VEX (Intel SDM vol. 1, 10.4.1.1 and
/// the instructions' own pages).
fn takes_any_alignment(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{Lddqu, Movdqu, Movupd, Movups, Pcmpestri, Pcmpestrm, Pcmpistri, Pcmpistrm};
    matches!(mnemonic, Movups | Movupd | Movdqu | Lddqu | Pcmpestri | Pcmpestrm | Pcmpistri | Pcmpistrm)
}

/// The instructions encoded with VEX or EVEX that need the alignment of their whole operand; all others need none
/// (Intel SDM vol. 1, 14.9 and 15.7).
fn is_aligned_move(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Vmovapd, Vmovaps, Vmovdqa, Vmovdqa32, Vmovdqa64, Vmovntdq, Vmovntdqa, Vmovntpd, Vmovntps,
    };
    matches!(
        mnemonic,
        Vmovapd | Vmovaps | Vmovdqa | Vmovdqa32 | Vmovdqa64 | Vmovntdq | Vmovntdqa | Vmovntpd | Vmovntps
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::IcedError;
    use iced_x86::code_asm::*;
    use vmm::elfcore::write::{Area, Contents, write};
    use vmm::elfcore::{Rights, SignalInfo};

    const CODE: u64 = 0x40_0000;
    /// A SIGSEGV for which the processor reported no address.
    const GENERAL_PROTECTION: SignalInfo = SignalInfo { signo: 11, code: SI_KERNEL, address: 0 };
    /// What Linux makes of an access that alignment checking refused.
    const ALIGNMENT_CHECK: SignalInfo = SignalInfo { signo: 7, code: BUS_ADRALN, address: 0 };

    /// The cause of a crash at an instruction that uses the memory at rax.
    fn cause(
        address: u64,
        signal: SignalInfo,
        assemble: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>,
    ) -> Option<Cause> {
        let mut asm = CodeAssembler::new(64).unwrap();
        assemble(&mut asm).unwrap();
        let code = asm.assemble(CODE).unwrap();
        let mut contents = Contents { signal, ..Contents::default() };
        contents.state.regs.rip = CODE;
        contents.state.regs.gpr[0] = address;
        let rights = Rights { read: true, write: false, execute: true };
        let area = Area { start: CODE, end: CODE + 0x1000, rights };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("core");
        write(std::fs::File::create(&path).unwrap(), &contents, &[area], &mut |_, page| {
            page.fill(0);
            page[..code.len()].copy_from_slice(&code);
            true
        })
        .unwrap();
        Cause::of(&Core::open(&path).unwrap())
    }

    #[test]
    fn an_operand_is_misaligned_where_its_instruction_asks_for_more() {
        let general = |at, assemble: fn(&mut CodeAssembler) -> _| cause(at, GENERAL_PROTECTION, assemble);
        let misaligned = |at| Some(Cause::Misaligned(at));
        let anything_else = Some(Cause::NoAddress);
        assert_eq!(general(0x18, |a| a.movaps(xmm0, ptr(rax))), misaligned(0x18));
        assert_eq!(general(0x18, |a| a.paddd(xmm0, ptr(rax))), misaligned(0x18));
        assert_eq!(general(0x10, |a| a.movaps(xmm0, ptr(rax))), anything_else);
        assert_eq!(general(0x18, |a| a.movups(xmm0, ptr(rax))), anything_else);
        assert_eq!(general(0x10, |a| a.vmovaps(ymm0, ptr(rax))), misaligned(0x10));
        assert_eq!(general(0x20, |a| a.vmovdqa64(zmm0, ptr(rax))), misaligned(0x20));
        assert_eq!(general(0x20, |a| a.vmovaps(ymm0, ptr(rax))), anything_else);
        assert_eq!(general(0x18, |a| a.vmovups(ymm0, ptr(rax))), anything_else);
        assert_eq!(general(0x18, |a| a.vpaddd(xmm0, xmm0, xmmword_ptr(rax))), anything_else);
        assert_eq!(general(0x18, |a| a.fxsave(ptr(rax))), misaligned(0x18));
        assert_eq!(general(0x20, |a| a.xsave(ptr(rax))), misaligned(0x20));
        assert_eq!(general(0x18, |a| a.fnsave(ptr(rax))), anything_else);
    }

    #[test]
    fn alignment_checking_asks_for_the_size_of_the_data() {
        let checked = |at, assemble: fn(&mut CodeAssembler) -> _| cause(at, ALIGNMENT_CHECK, assemble);
        assert_eq!(checked(0x12, |a| a.mov(ecx, ptr(rax))), Some(Cause::Misaligned(0x12)));
        assert_eq!(checked(0x13, |a| a.mov(cx, ptr(rax))), Some(Cause::Misaligned(0x13)));
        assert_eq!(checked(0x14, |a| a.fld(tbyte_ptr(rax))), Some(Cause::Misaligned(0x14)));
        assert_eq!(checked(0x18, |a| a.fld(tbyte_ptr(rax))), Some(Cause::NoAddress));
    }
}
