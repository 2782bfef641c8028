//! What an exit means: the match, apart from the loop and from the effects, so that it is tested without a
//! virtual machine.

use super::{Death, Step};
use crate::engine::{Exception, Exit, Virt};
use crate::memory::layout::USER_END;
use crate::memory::space::{Access, Refusal};
pub use crate::signal::SI_KERNEL;
use lbr::crumb;
use x86::state::{Fpu, Regs};

/// What is to be done about an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Serve a system call.
    Syscall,
    /// Make the page resident, or tell the program that it cannot be.
    Touch {
        /// The address.
        address: Virt,
        /// How it was accessed.
        access: Access,
        /// The page fault.
        exception: Exception,
    },
    /// Carry out the machine read at rip; if there is none after all, it is an undefined instruction.
    MachineRead,
    /// A synchronous signal for the program.
    Signal(Death),
    /// A floating-point exception: which one, the status words tell (see [`floating_point`]).
    FloatingPoint(Exception),
    /// The caller's turn.
    Stop(Step),
    /// The software CPU cannot go on.
    NoSemantics {
        /// The instruction's bytes.
        bytes: [u8; 15],
        /// How many there are.
        len: u8,
    },
}

/// Values of `si_code` (asm-generic/siginfo.h).
mod code {
    pub(super) const FPE_INTDIV: i32 = 1;
    pub(super) const FPE_FLTDIV: i32 = 3;
    pub(super) const FPE_FLTOVF: i32 = 4;
    pub(super) const FPE_FLTUND: i32 = 5;
    pub(super) const FPE_FLTRES: i32 = 6;
    pub(super) const FPE_FLTINV: i32 = 7;
    pub(super) const ILL_ILLOPN: i32 = 2;
    pub(super) const TRAP_BRKPT: i32 = 1;
    pub(super) const BUS_ADRALN: i32 = 1;
    pub(super) const BUS_ADRERR: i32 = 2;
    pub(super) const SEGV_MAPERR: i32 = 1;
    pub(super) const SEGV_ACCERR: i32 = 2;
}
/// Exceptions by vector.
pub(super) mod vector {
    pub(in super::super) const DIVIDE: u8 = 0;
    pub(in super::super) const DEBUG: u8 = 1;
    pub(in super::super) const BREAKPOINT: u8 = 3;
    pub(in super::super) const OVERFLOW: u8 = 4;
    pub(in super::super) const UNDEFINED: u8 = 6;
    pub(in super::super) const NOT_PRESENT: u8 = 11;
    pub(in super::super) const STACK: u8 = 12;
    pub(in super::super) const GENERAL: u8 = 13;
    pub(in super::super) const PAGE: u8 = 14;
    pub(in super::super) const X87: u8 = 16;
    pub(in super::super) const ALIGNMENT: u8 = 17;
    pub(in super::super) const SIMD: u8 = 19;
}

impl Action {
    /// The exit as a crumb has it: the same on every engine. `None` for a bound, which is no exit of the program's.
    #[must_use]
    pub fn crumb(&self, regs: &Regs) -> Option<crumb::Exit> {
        let of = |Exception { vector, error_code, .. }| crumb::Exit::Exception { vector, error_code };
        Some(match *self {
            Action::Syscall => crumb::Exit::Syscall { number: regs.gpr[0] },
            Action::Touch { address, exception, .. } => {
                crumb::Exit::PageFault { address, error_code: exception.error_code }
            }
            Action::MachineRead => crumb::Exit::MachineRead,
            Action::Signal(Death { exception, .. }) => of(exception?),
            Action::FloatingPoint(exception) => of(exception),
            Action::Stop(Step::Interrupted) => crumb::Exit::Interrupted,
            Action::Stop(_) => return None,
            Action::NoSemantics { .. } => crumb::Exit::NoSemantics,
        })
    }
}

/// Says what an exit means. `rip` is where the guest stands, `rewritten` whether the instruction there is a
/// machine read that was rewritten to UD2.
#[must_use]
pub fn decide(exit: Exit, rip: Virt, rewritten: bool) -> Action {
    match exit {
        Exit::Syscall => Action::Syscall,
        Exit::MachineRead(_) => Action::MachineRead,
        Exit::Exception(Exception { vector: vector::UNDEFINED, .. }) if rewritten => Action::MachineRead,
        Exit::Exception(exception) => decide_exception(exception, rip),
        Exit::Budget | Exit::Seen => Action::Stop(Step::Budget),
        Exit::Interrupted => Action::Stop(Step::Interrupted),
        // A kick at a time when nothing is due.
        Exit::Kicked => Action::Stop(Step::Running),
        // The other processor goes on.
        Exit::Differing => Action::Stop(Step::Running),
        Exit::NoSemantics { bytes, len } => Action::NoSemantics { bytes, len },
    }
}

/// The signal for an exception, as arch/x86/kernel/traps.c and mm/fault.c choose it.
fn decide_exception(exception: Exception, rip: Virt) -> Action {
    let exception = as_linux_tells(exception);
    let signal =
        |signal, code, address| Action::Signal(Death { signal, code, address, exception: Some(exception) });
    match exception.vector {
        vector::PAGE => {
            let access = match (exception.error_code >> 4 & 1, exception.error_code >> 1 & 1) {
                (1, _) => Access::Execute,
                (_, 1) => Access::Write,
                _ => Access::Read,
            };
            Action::Touch { address: exception.address, access, exception }
        }
        vector::DIVIDE => signal(libc::SIGFPE, code::FPE_INTDIV, rip),
        vector::DEBUG => signal(libc::SIGTRAP, code::TRAP_BRKPT, rip),
        vector::BREAKPOINT => signal(libc::SIGTRAP, SI_KERNEL, 0),
        vector::UNDEFINED => signal(libc::SIGILL, code::ILL_ILLOPN, rip),
        vector::X87 | vector::SIMD => Action::FloatingPoint(exception),
        vector::NOT_PRESENT | vector::STACK => signal(libc::SIGBUS, SI_KERNEL, 0),
        vector::ALIGNMENT => signal(libc::SIGBUS, code::BUS_ADRALN, 0),
        vector::OVERFLOW => signal(libc::SIGSEGV, SI_KERNEL, 0),
        _ => signal(libc::SIGSEGV, SI_KERNEL, 0),
    }
}

/// A page fault above the program's part of the address space is one of protection, whatever is there: Linux hides what
/// it has mapped (arch/x86/mm/fault.c, `sanitize_error_code`), and so must engines, which differ in it.
fn as_linux_tells(exception: Exception) -> Exception {
    const PRESENT: u32 = 1;
    let hidden = exception.vector == vector::PAGE && exception.address >= USER_END;
    Exception { error_code: exception.error_code | if hidden { PRESENT } else { 0 }, ..exception }
}

/// Whether this is what becomes of INT 0x80, by which 32-bit programs call the system: a descriptor table that process
/// guests have no gate in, by its selector's error code.
#[must_use]
pub fn is_32_bit_call(death: &Death) -> bool {
    const INT_80: u32 = 0x80 << 3 | 2;
    death
        .exception
        .is_some_and(|exception| (exception.vector, exception.error_code) == (vector::GENERAL, INT_80))
}

/// The signal for an access that the address space refuses.
#[must_use]
pub fn refused(refusal: Refusal, exception: Exception) -> Death {
    let (signal, code) = match refusal {
        Refusal::NotMapped => (libc::SIGSEGV, code::SEGV_MAPERR),
        Refusal::Forbidden => (libc::SIGSEGV, code::SEGV_ACCERR),
        Refusal::BehindFile => (libc::SIGBUS, code::BUS_ADRERR),
    };
    Death { signal, code, address: exception.address, exception: Some(exception) }
}

/// The signal for a floating-point exception: the first unmasked one, in the order of `fpu__exception_code`.
#[must_use]
pub fn floating_point(exception: Exception, rip: Virt, fpu: &Fpu) -> Death {
    let raised = if exception.vector == vector::SIMD {
        fpu.mxcsr & !(fpu.mxcsr >> 7)
    } else {
        u32::from(fpu.status & !fpu.control)
    };
    let codes = [
        (0x01, code::FPE_FLTINV),
        (0x04, code::FPE_FLTDIV),
        (0x08, code::FPE_FLTOVF),
        (0x12, code::FPE_FLTUND),
        (0x20, code::FPE_FLTRES),
    ];
    let code = codes.into_iter().find(|(bits, _)| raised & bits != 0).map_or(0, |(_, code)| code);
    Death { signal: libc::SIGFPE, code, address: rip, exception: Some(exception) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exception(vector: u8, error_code: u32, address: Virt) -> Exit {
        Exit::Exception(Exception { vector, error_code, address })
    }

    #[test]
    fn undefined_instructions_are_machine_reads_only_where_they_were_rewritten() {
        assert_eq!(decide(exception(6, 0, 0), 0x1000, true), Action::MachineRead);
        let Action::Signal(death) = decide(exception(6, 0, 0), 0x1000, false) else { panic!("a signal") };
        assert_eq!((death.signal, death.code, death.address), (libc::SIGILL, code::ILL_ILLOPN, 0x1000));
    }

    #[test]
    fn other_exceptions_at_a_rewritten_instruction_stay_what_they_are() {
        let Action::Touch { access, address, .. } = decide(exception(14, 0x14, 0x1000), 0x1000, true) else {
            panic!("a page fault")
        };
        assert_eq!((access, address), (Access::Execute, 0x1000));
    }

    #[test]
    fn a_page_fault_tells_how_memory_was_accessed() {
        let access = |code| match decide(exception(14, code, 8), 0, false) {
            Action::Touch { access, .. } => access,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            [access(0x4), access(0x6), access(0x7), access(0x15)],
            [Access::Read, Access::Write, Access::Write, Access::Execute]
        );
    }

    #[test]
    fn division_and_alignment_are_told_as_linux_tells_them() {
        let told = |vector| match decide(exception(vector, 0, 0), 0x42, false) {
            Action::Signal(death) => (death.signal, death.code, death.address),
            other => panic!("{other:?}"),
        };
        assert_eq!(told(0), (libc::SIGFPE, code::FPE_INTDIV, 0x42));
        assert_eq!(told(3), (libc::SIGTRAP, SI_KERNEL, 0));
        assert_eq!(told(13), (libc::SIGSEGV, SI_KERNEL, 0));
        assert_eq!(told(17), (libc::SIGBUS, code::BUS_ADRALN, 0));
    }

    #[test]
    fn the_call_of_32_bit_programs_is_known_by_its_selector() {
        let is_call = |error_code| match decide(exception(13, error_code, 0), 0x42, false) {
            Action::Signal(death) => is_32_bit_call(&death),
            other => panic!("{other:?}"),
        };
        assert_eq!([is_call(0x402), is_call(0), is_call(0x22)], [true, false, false]);
    }

    #[test]
    fn only_unmasked_floating_point_exceptions_count() {
        let simd = Exception { vector: 19, error_code: 0, address: 0 };
        // Inexact and divide-by-zero are raised; divide-by-zero alone is unmasked.
        let fpu = Fpu { mxcsr: 0x1f80 & !(1 << 9) | 0x24, ..Fpu::default() };
        assert_eq!(floating_point(simd, 7, &fpu).code, code::FPE_FLTDIV);
        let x87 = Exception { vector: 16, error_code: 0, address: 0 };
        let fpu = Fpu { control: 0x37e, status: 0x21, ..Fpu::default() };
        assert_eq!(floating_point(x87, 7, &fpu).code, code::FPE_FLTINV);
    }

    #[test]
    fn the_rest_is_the_callers() {
        assert_eq!(decide(Exit::Budget, 0, false), Action::Stop(Step::Budget));
        assert_eq!(decide(Exit::Interrupted, 0, false), Action::Stop(Step::Interrupted));
        assert_eq!(decide(Exit::Syscall, 0, false), Action::Syscall);
    }
}
