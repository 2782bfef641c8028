//! The families of the instruction set, and why some instructions have no semantics.

use iced_x86::{Code, CpuidFeature as F, Mnemonic as M};

/// Instructions that came together.
#[derive(Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    features: &'static [F],
    /// Why it has no semantics, if that is so of purpose.
    pub left_out: Option<&'static str>,
}

const fn family(name: &'static str, features: &'static [F]) -> Family {
    Family { name, features, left_out: None }
}

const fn left_out(name: &'static str, features: &'static [F], reason: &'static str) -> Family {
    Family { name, features, left_out: Some(reason) }
}

/// Instructions of ring 0, whatever their feature is.
static PRIVILEGED: Family = family("Privileged", &[]);

/// An encoding that needs several features is in the last family that has one of them.
static FAMILIES: &[Family] = &[
    family(
        "Integer",
        &[
            F::INTEL8086,
            F::INTEL186,
            F::INTEL286,
            F::INTEL386,
            F::INTEL486,
            F::X64,
            F::CMOV,
            F::CX8,
            F::CMPXCHG16B,
            F::MULTIBYTENOP,
            F::SYSCALL,
            F::SEP,
        ],
    ),
    family("Bits", &[F::POPCNT, F::LZCNT, F::BMI1, F::BMI2, F::ADX, F::MOVBE]),
    family(
        "Hints and caches",
        &[
            F::PAUSE,
            F::CLFSH,
            F::CLFLUSHOPT,
            F::CLWB,
            F::CLDEMOTE,
            F::PREFETCHW,
            F::PREFETCHWT1,
            F::PREFETCHITI,
            F::SERIALIZE,
            F::CET_IBT,
        ],
    ),
    family(
        "Reads of the machine",
        &[F::CPUID, F::TSC, F::RDTSCP, F::RDPID, F::RDRAND, F::RDSEED, F::RTM, F::HLE_or_RTM],
    ),
    family("FSGSBASE", &[F::FSGSBASE]),
    family("FXSAVE and XSAVE", &[F::FXSR, F::XSAVE, F::XSAVEOPT, F::XSAVEC]),
    family("x87", &[F::FPU, F::FPU287, F::FPU387]),
    family("MMX", &[F::MMX]),
    family("SSE", &[F::SSE]),
    family("SSE2", &[F::SSE2]),
    family("SSE3", &[F::SSE3]),
    family("SSSE3", &[F::SSSE3]),
    family("SSE4.1", &[F::SSE4_1]),
    family("SSE4.2", &[F::SSE4_2]),
    family("AVX", &[F::AVX]),
    family("AVX2", &[F::AVX2]),
    family("F16C", &[F::F16C]),
    family("FMA", &[F::FMA]),
    family("AVX-512 F and VL", &[F::AVX512VL, F::AVX512F]),
    family("AVX-512 BW", &[F::AVX512BW]),
    family("AVX-512 DQ", &[F::AVX512DQ]),
    family("AVX-512 CD", &[F::AVX512CD]),
    family("AVX-512 IFMA", &[F::AVX512_IFMA]),
    family("AVX-512 VBMI", &[F::AVX512_VBMI]),
    family("AVX-512 VBMI2", &[F::AVX512_VBMI2]),
    family("AVX-512 VNNI", &[F::AVX512_VNNI]),
    family("AVX-512 BITALG", &[F::AVX512_BITALG]),
    family("AVX-512 VPOPCNTDQ", &[F::AVX512_VPOPCNTDQ]),
    left_out("AVX-512 BF16", &[F::AVX512_BF16], NOT_ANNOUNCED),
    left_out("AVX-512 FP16", &[F::AVX512_FP16], NOT_ANNOUNCED),
    left_out("AVX-512 VP2INTERSECT", &[F::AVX512_VP2INTERSECT], NOT_ANNOUNCED),
    family("AES", &[F::AES, F::VAES]),
    family("PCLMULQDQ", &[F::PCLMULQDQ, F::VPCLMULQDQ]),
    family("SHA", &[F::SHA]),
    family("GFNI", &[F::GFNI]),
    left_out(
        "AVX-VNNI, AVX-IFMA, AVX-NE-CONVERT",
        &[F::AVX_VNNI, F::AVX_IFMA, F::AVX_NE_CONVERT, F::AVX_VNNI_INT8, F::AVX_VNNI_INT16],
        NOT_ANNOUNCED,
    ),
    left_out("SHA-512, SM3, SM4", &[F::SHA512, F::SM3, F::SM4], NOT_ANNOUNCED),
    left_out("CMPccXADD, RAO-INT", &[F::CMPCCXADD, F::RAO_INT], NOT_ANNOUNCED),
    left_out("MOVDIRI, MOVDIR64B, ENQCMD", &[F::MOVDIRI, F::MOVDIR64B, F::ENQCMD], NOT_ANNOUNCED),
    left_out("WAITPKG, MONITORX, TSXLDTRK", &[F::WAITPKG, F::MONITORX, F::TSXLDTRK], NOT_ANNOUNCED),
    left_out("PTWRITE, UINTR, UDBG", &[F::PTWRITE, F::UINTR, F::UDBG], NOT_ANNOUNCED),
    left_out("Protection keys", &[F::PKU], NOT_ANNOUNCED),
    left_out("Key Locker", &[F::KL, F::AESKLE, F::WIDE_KL], NOT_ANNOUNCED),
    left_out(
        "AMX",
        &[F::AMX_TILE, F::AMX_INT8, F::AMX_BF16, F::AMX_FP16, F::AMX_COMPLEX],
        "no CPU model announces it, and Linux gives it only to programs that ask",
    ),
    left_out(
        "Shadow stacks",
        &[F::CET_SS],
        "Linux switches them on only for programs that ask; no CPU model announces them",
    ),
    left_out("RDPMC, RDPRU", &[F::RDPMC, F::RDPRU], "counters of the processor: no value would replay"),
    left_out("MPX", &[F::MPX], "withdrawn: Linux has dropped it, and new processors have not got it"),
    left_out("3DNow!", &[F::D3NOW, F::D3NOWEXT], "withdrawn by AMD"),
    left_out("XOP, FMA4, TBM, LWP", &[F::XOP, F::FMA4, F::TBM, F::LWP], "withdrawn by AMD"),
    left_out("SSE4a", &[F::SSE4A], "AMD only, and no CPU model announces it"),
    left_out("CLZERO, MCOMMIT, PCOMMIT", &[F::CLZERO, F::MCOMMIT, F::PCOMMIT], NOT_ANNOUNCED),
    left_out(
        "Xeon Phi",
        &[F::KNC, F::AVX512ER, F::AVX512PF, F::AVX512_4FMAPS, F::AVX512_4VNNIW],
        "Xeon Phi only: withdrawn",
    ),
    left_out(
        "PadLock",
        &[F::PADLOCK_ACE, F::PADLOCK_GMI, F::PADLOCK_PHE, F::PADLOCK_PMM, F::PADLOCK_RNG, F::PADLOCK_UNDOC],
        "VIA and Zhaoxin only",
    ),
    left_out(
        "Virtual machines and enclaves",
        &[F::VMX, F::SVM, F::SEV_ES, F::SEV_SNP, F::SGX1, F::OSS, F::SMX, F::SMM, F::TDX],
        "for hypervisors, enclaves and firmware",
    ),
];

const NOT_ANNOUNCED: &str = "no CPU model announces it";

/// The families, in the order of the page.
pub fn all() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().chain([&PRIVILEGED])
}

/// Whether an encoding is of ring 0, as MONITOR and MWAIT are, too, unless the system allows them.
pub(super) fn is_privileged(code: Code) -> bool {
    !code.op_code().cpl3() || code.cpuid_features().contains(&F::MONITOR)
}

/// The family of an encoding; none if it needs nothing that is known here.
#[must_use]
pub fn family_of(code: Code) -> Option<&'static Family> {
    if is_privileged(code) {
        return Some(&PRIVILEGED);
    }
    let features = code.cpuid_features();
    FAMILIES.iter().rev().find(|family| family.features.iter().any(|feature| features.contains(feature)))
}

/// Some encodings, and why they have no semantics.
struct Reason {
    concerns: fn(Code) -> bool,
    text: &'static str,
}

/// For families that have some semantics; the first row that fits.
const REASONS: &[Reason] = &[
    Reason {
        concerns: |code| {
            matches!(code.mnemonic(), M::Call | M::Jmp | M::Retf | M::Iret | M::Iretd | M::Iretq)
        },
        text: "far transfers: 64-bit Linux programs have one code segment",
    },
    Reason {
        concerns: |code| matches!(code.mnemonic(), M::Mov | M::Pop | M::Lss | M::Lfs | M::Lgs),
        text: "segment registers keep what Linux gives them, and the bases of FS and GS have other instructions",
    },
    Reason {
        concerns: |code| {
            let is_selector = matches!(code.mnemonic(), M::Lar | M::Lsl | M::Verr | M::Verw);
            is_selector || matches!(code.mnemonic(), M::Sgdt | M::Sidt | M::Sldt | M::Str | M::Smsw)
        },
        text: "the system's descriptors and control registers: Linux answers for the processor where that has UMIP",
    },
    Reason { concerns: |code| code.mnemonic() == M::Vmcall, text: "calls of hypervisors" },
    Reason { concerns: |code| code.mnemonic() == M::Fstpnce, text: "not documented" },
];

/// Why an encoding has no semantics, if that is known.
pub(super) fn reason(code: Code) -> Option<&'static str> {
    REASONS.iter().find(|reason| (reason.concerns)(code)).map(|reason| reason.text)
}
