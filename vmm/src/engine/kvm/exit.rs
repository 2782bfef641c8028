//! What an exit of the vCPU means for the guest.

use super::entry::{Left, Reason};
use super::layout::{self, Door, Frame};
use super::{KvmCpu, Landing};
use crate::engine::code::{GENERAL, LONGEST, decode, fetch, software_interrupt};
use crate::engine::flags::user_rflags;
use crate::engine::{EngineError, Exception, Exit, Virt};
use crate::ram::Memory;
use crate::ram::paging::USER_END;
use iced_x86::{Instruction, Mnemonic};
use x86::decode::machine_read;
use x86::state::{RFLAGS_DF, Regs};

const BREAKPOINT: u8 = 3;
const UNDEFINED: u8 = 6;
const PAGE_FAULT: u8 = 14;
/// The bits of a page fault's error code that exist without protection keys, shadow stacks and SGX.
const PAGE_FAULT_CODE: u64 = 0x1f;

impl KvmCpu {
    /// Runs until something happens that the guest cannot do alone.
    pub(super) fn run_to_exit(&mut self, memory: &mut Memory) -> Result<Exit, EngineError> {
        if let Some(fault) = no_program_there(self.regs.rip) {
            return Ok(fault);
        }
        // SAFETY: the byte is in the vCPU's shared page, which is unmapped when `self.vcpu` is dropped.
        let _inside = unsafe { self.interrupter.enter(self.immediate_exit) };
        if self.interrupter.take() {
            return Ok(Exit::Interrupted);
        }
        if self.interrupter.take_kick() {
            return Ok(Exit::Kicked);
        }
        let mut left = self.enter(memory)?;
        loop {
            match self.meaning(&left, memory)? {
                Some(exit) => return Ok(exit),
                None => left = self.resume()?,
            }
        }
    }

    /// Takes the guest's registers from the vCPU's and says what happened; `None`: nothing did yet, and the guest must
    /// go on.
    fn meaning(&mut self, left: &Left, memory: &Memory) -> Result<Option<Exit>, EngineError> {
        match (left.door(), &left.reason) {
            (Some(Door::Syscall), _)
                if left.level == 3 && !self.is_behind_syscall(memory, left.regs.gpr[1]) =>
            {
                self.finish_io()?;
                self.regs = Regs { rip: layout::LSTAR, rflags: user_rflags(left.regs.rflags), ..left.regs };
                Ok(no_program_there(layout::LSTAR))
            }
            (Some(Door::Syscall), _) => {
                self.regs = after_syscall(&left.regs);
                Ok(Some(Exit::Syscall))
            }
            (Some(Door::Exception(vector)), _) => {
                let [_, _, _, _, rsp, ..] = left.regs.gpr;
                let frame = layout::read_frame(memory.ram(), vector, rsp)
                    .ok_or_else(|| EngineError::UnexpectedExit(format!("{left}, rsp {rsp:#x}")))?;
                self.regs = at_exception(&left.regs, &frame);
                let refined = || self.refine(exception(vector, &frame, left.fault_address), memory);
                Ok(Some(no_program_there(frame.rip).unwrap_or_else(refined)))
            }
            (None, Reason::Signal) => Ok(self.interrupted(left, memory)),
            (None, Reason::Out(_) | Reason::Foreign) if left.level == 3 => {
                self.foreign(left, memory).map(Some)
            }
            (None, _) => Err(EngineError::UnexpectedExit(left.to_string())),
        }
    }

    /// Whether a SYSCALL ends at `rcx`, where it leaves the address behind it: else the program has jumped to where
    /// SYSCALL goes.
    fn is_behind_syscall(&self, memory: &Memory, rcx: Virt) -> bool {
        let at = rcx.wrapping_sub(2);
        at < USER_END && fetch(memory.ram(), self.user.cr3, at).starts_with(&[0x0f, 0x05])
    }

    /// A signal came. Unless it is the interrupter's, the guest goes on: a process that is stopped and continued, or
    /// watched by a debugger, comes out of KVM_RUN as well.
    fn interrupted(&mut self, left: &Left, memory: &Memory) -> Option<Exit> {
        // Lowered first: an interrupt from here on is seen below, or raises it again.
        self.vcpu.set_kvm_immediate_exit(0);
        let in_stub = layout::in_stub(left.regs.rip);
        // In front of an IRETQ nothing of the guest has run; in front of an OUT something has happened.
        let not_started = left.regs.rip == layout::IRETQ && self.landing == Landing::Ring0;
        if in_stub && !not_started || self.has_pending_event(left, memory) {
            return None;
        }
        let exit = match () {
            () if self.interrupter.take() => Exit::Interrupted,
            () if self.interrupter.take_kick() => Exit::Kicked,
            () => return None,
        };
        if !in_stub {
            self.regs = Regs { rflags: user_rflags(left.regs.rflags), ..left.regs };
        }
        Some(exit)
    }

    /// Whether KVM is about to deliver an exception: another task that was loaded now would get it. What interrupts stays
    /// raised, and comes behind the exception.
    fn has_pending_event(&self, left: &Left, memory: &Memory) -> bool {
        self.vcpu.get_vcpu_events().is_ok_and(|events| {
            let exception = events.exception;
            exception.injected != 0
                || exception.pending != 0
                || events.interrupt.injected != 0
                || exception.nr == BREAKPOINT && self.is_behind_int3(left, memory)
        })
    }

    /// Whether an INT3 may have run whose exception is on its way. KVM does not tell of those that an instruction raises by
    /// intent, but for their vector: on VMX and SVM rip is still at the instruction, which runs again; where ring 0 is emulated it is
    /// behind it (Linux, arch/x86/kvm/x86.c, `kvm_vcpu_ioctl_x86_get_vcpu_events`). If none has run after all, the kick comes
    /// again a little later.
    fn is_behind_int3(&self, left: &Left, memory: &Memory) -> bool {
        let rip = left.regs.rip;
        let before = |len: u64| fetch(memory.ram(), self.user.cr3, rip.wrapping_sub(len));
        rip < USER_END && (before(1).starts_with(&[0xcc]) || before(2).starts_with(&[0xcd, BREAKPOINT]))
    }

    /// The guest's own I/O instruction, or HLT: some hosts let ring 3 execute it. It must be the #GP that the
    /// manual says, with the instruction's address and nothing of it done.
    fn foreign(&mut self, left: &Left, memory: &Memory) -> Result<Exit, EngineError> {
        let after = self.finish_io()?;
        let mut before = left.regs;
        if after.rip == left.regs.rip {
            // The host had moved on before the exit.
            let bytes = |at| fetch(memory.ram(), self.user.cr3, at);
            let start = start_of_privileged(left.regs.rip, &left.reason, left.regs.gpr[2], bytes);
            before.rip = start.unwrap_or(left.regs.rip);
            let instruction = decode(&bytes(before.rip));
            put_back_source(&mut before, &instruction);
        }
        self.regs = Regs { rflags: user_rflags(before.rflags), ..before };
        Ok(Exit::Exception(Exception { vector: GENERAL, error_code: 0, address: 0 }))
    }

    /// #UD and #GP at an instruction that reads the machine are that read, trapped by this CPU model; at INT n they are
    /// what the manual says (kvm_pvm raises #UD).
    fn refine(&self, exception: Exception, memory: &Memory) -> Exit {
        if !matches!(exception.vector, UNDEFINED | GENERAL) {
            return Exit::Exception(exception);
        }
        let bytes = fetch(memory.ram(), self.user.cr3, self.regs.rip);
        match (machine_read(&decode(&bytes)), software_interrupt(&bytes)) {
            (Some(read), _) => Exit::MachineRead(read),
            (None, Some((refused, 0))) => Exit::Exception(refused),
            (None, _) => Exit::Exception(exception),
        }
    }
}

/// The fault of executing at `rip` where no program can be: a general protection fault where there are no addresses, else
/// a page fault, since what is there is the engine's.
fn no_program_there(rip: Virt) -> Option<Exit> {
    const USER_FETCH: u32 = 0x15;
    let upper_half = USER_END.wrapping_neg();
    let fault = match rip {
        _ if rip < USER_END => return None,
        _ if rip < upper_half => Exception { vector: GENERAL, error_code: 0, address: 0 },
        _ => Exception { vector: PAGE_FAULT, error_code: USER_FETCH, address: rip },
    };
    Some(Exit::Exception(fault))
}

/// The guest's registers behind a SYSCALL: rip was put in rcx and rflags in r11.
fn after_syscall(stub: &Regs) -> Regs {
    let mut regs = *stub;
    let [_, rcx, ..] = stub.gpr;
    regs.gpr[11] = user_rflags(stub.gpr[11]);
    regs.rip = rcx;
    regs.rflags = regs.gpr[11];
    regs
}

/// The guest's registers at an exception, from the frame that the processor pushed.
fn at_exception(stub: &Regs, frame: &Frame) -> Regs {
    let mut regs = *stub;
    regs.gpr[4] = frame.rsp;
    regs.rip = frame.rip;
    regs.rflags = user_rflags(frame.rflags);
    regs
}

fn exception(vector: u8, frame: &Frame, fault_address: Virt) -> Exception {
    let page_fault = vector == PAGE_FAULT;
    let code = if page_fault { frame.error_code & PAGE_FAULT_CODE } else { frame.error_code & 0xffff };
    Exception {
        vector,
        error_code: u32::try_from(code).expect("sixteen bits"),
        address: if page_fault { fault_address } else { 0 },
    }
}

/// What OUTS without a count has done to rsi, undone.
fn put_back_source(regs: &mut Regs, instruction: &Instruction) {
    let size = match instruction.mnemonic() {
        Mnemonic::Outsb => 1_u64,
        Mnemonic::Outsw => 2,
        Mnemonic::Outsd => 4,
        _ => return,
    };
    if !instruction.has_rep_prefix() && !instruction.has_repne_prefix() {
        let backwards = regs.rflags & RFLAGS_DF != 0;
        regs.gpr[6] = if backwards { regs.gpr[6].wrapping_add(size) } else { regs.gpr[6].wrapping_sub(size) };
    }
}

/// Where the privileged instruction that ends at `end` begins: the shortest that does what was seen.
fn start_of_privileged(end: Virt, reason: &Reason, rdx: u64, code: impl Fn(Virt) -> Vec<u8>) -> Option<Virt> {
    (1..=LONGEST).filter_map(|len| Some((len, end.checked_sub(len)?))).find_map(|(len, start)| {
        let instruction = decode(&code(start));
        let whole = instruction.len() as u64 == len;
        let does_it = match (instruction.mnemonic(), reason) {
            (Mnemonic::Out, Reason::Out(port)) => match instruction.op0_kind() {
                iced_x86::OpKind::Immediate8 => u16::from(instruction.immediate8()) == *port,
                _ => rdx & 0xffff == u64::from(*port),
            },
            (Mnemonic::Outsb | Mnemonic::Outsw | Mnemonic::Outsd, Reason::Out(_))
            | (Mnemonic::Hlt, Reason::Foreign) => true,
            _ => false,
        };
        (whole && does_it).then_some(start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_an_out_is_found_from_its_end() {
        let code = [0x90, 0xe6, 0x55, 0xee, 0x90];
        let at = |va: Virt| code[usize::try_from(va).unwrap()..].to_vec();
        assert_eq!(start_of_privileged(3, &Reason::Out(0x55), 0, at), Some(1));
        assert_eq!(start_of_privileged(3, &Reason::Out(0x56), 0, at), None, "another port");
        assert_eq!(start_of_privileged(4, &Reason::Out(0x1234), 0xffff_1234, at), Some(3), "port in dx");
    }

    #[test]
    fn a_syscall_leaves_rcx_and_r11_as_the_processor_wrote_them() {
        let mut stub = Regs { rip: layout::LSTAR, rflags: 2, ..Regs::default() };
        stub.gpr[1] = 0x40_1002;
        stub.gpr[11] = 0x1_0346;
        let regs = after_syscall(&stub);
        assert_eq!((regs.rip, regs.rflags, regs.gpr[1], regs.gpr[11]), (0x40_1002, 0x346, 0x40_1002, 0x346));
    }

    #[test]
    fn only_page_faults_have_an_address() {
        let frame = Frame { error_code: 0x8007, rip: 1, rflags: 2, rsp: 3 };
        assert_eq!(exception(14, &frame, 9), Exception { vector: 14, error_code: 7, address: 9 });
        assert_eq!(exception(13, &frame, 9), Exception { vector: 13, error_code: 0x8007, address: 0 });
    }
}
