//! Instructions of extensions that no CPU with a system has, which CPUID says, too: they are #UD.
//!
//! Example: VMCALL is #UD, since there is no VMX. An instruction of an extension that is there, and that has no semantics, ends the
//! machine by name instead: what the guest may count on is never guessed.

use iced_x86::{CpuidFeature as F, Instruction};

/// The extensions that are there, as iced names them.
const PRESENT: &[F] = &[
    F::INTEL8086,
    F::INTEL8086_ONLY,
    F::INTEL186,
    F::INTEL286,
    F::INTEL386,
    F::INTEL486,
    F::X64,
    F::CPUID,
    F::TSC,
    F::MSR,
    F::CX8,
    F::CMPXCHG16B,
    F::CMOV,
    F::FPU,
    F::FPU287,
    F::FPU387,
    F::MMX,
    F::FXSR,
    F::SSE,
    F::SSE2,
    F::SSE3,
    F::SSSE3,
    F::SSE4_1,
    F::SSE4_2,
    F::POPCNT,
    F::MOVBE,
    F::CLFSH,
    F::SYSCALL,
    F::RDTSCP,
    F::FSGSBASE,
    F::MULTIBYTENOP,
    F::PAUSE,
];

/// Whether an instruction is of an extension that is not there.
pub(crate) fn is_absent(i: &Instruction) -> bool {
    !i.cpuid_features().iter().all(|feature| PRESENT.contains(feature))
}
