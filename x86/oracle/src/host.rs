//! What this host's processor has.

use iced_x86::{Code, CpuidFeature};
use serde::{Deserialize, Serialize};
use x86::xsave::{Layout, component};

/// Whether this host knows the encoding: outside of ring 0 a privileged one faults. Where it does not, the host's
/// answer is #UD whatever the operands, and says nothing about the semantics.
#[must_use]
pub fn runs(code: Code) -> bool {
    code.cpuid_features().iter().all(|feature| has(*feature))
}

/// A processor model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Processor {
    /// Who makes it, as CPUID spells it: "GenuineIntel", "AuthenticAMD".
    pub vendor: String,
    /// Its family, with the extended one added.
    pub family: u32,
    /// Its model, with the extended one.
    pub model: u32,
    /// The name that it gives itself; hypervisors often shorten it.
    pub name: String,
}

/// This host's.
#[cfg(target_arch = "x86_64")]
#[must_use]
pub fn processor() -> Processor {
    use core::arch::x86_64::__cpuid;
    let text = |registers: &[u32]| {
        let bytes: Vec<u8> = registers.iter().flat_map(|register| register.to_le_bytes()).collect();
        String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ']).to_owned()
    };
    let (leaf, signature) = (__cpuid(0), __cpuid(1).eax);
    let (family, extended) = (signature >> 8 & 15, signature >> 20 & 0xff);
    let names = (0x8000_0002..=0x8000_0004).map(__cpuid);
    let names: Vec<u32> = names.flat_map(|leaf| [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx]).collect();
    Processor {
        vendor: text(&[leaf.ebx, leaf.edx, leaf.ecx]),
        family: family + if family == 15 { extended } else { 0 },
        model: signature >> 4 & 15 | signature >> 12 & 0xf0,
        name: text(&names),
    }
}

/// A host of another architecture, where nothing runs.
#[cfg(not(target_arch = "x86_64"))]
#[must_use]
pub fn processor() -> Processor {
    Processor { vendor: String::new(), family: 0, model: 0, name: String::new() }
}

/// Whether the processor is AMD's, or Hygon's, which are the same.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_amd() -> bool {
    static IS_AMD: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        let vendor = core::arch::x86_64::__cpuid(0);
        let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
        [*b"AuthenticAMD", *b"HygonGenuine"].iter().any(|amd| name.as_flattened() == amd)
    });
    *IS_AMD
}

/// A host of another architecture has no such quirks.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn is_amd() -> bool {
    false
}

/// Read once: in a virtual machine, CPUID is slow.
#[cfg(target_arch = "x86_64")]
static LEAF_7_EBX: std::sync::LazyLock<u32> =
    std::sync::LazyLock::new(|| core::arch::x86_64::__cpuid_count(7, 0).ebx);

#[cfg(target_arch = "x86_64")]
fn has(feature: CpuidFeature) -> bool {
    use CpuidFeature as F;
    match feature {
        F::INTEL8086 | F::INTEL186 | F::INTEL286 | F::INTEL386 | F::INTEL486 | F::X64 | F::CMOV | F::CX8 => {
            true
        }
        F::FPU | F::FPU287 | F::FPU387 | F::MMX | F::FXSR | F::SSE | F::SSE2 | F::CLFSH | F::PAUSE => true,
        F::SYSCALL | F::SEP | F::MSR | F::MULTIBYTENOP | F::CET_IBT => true,
        F::SMAP => *LEAF_7_EBX & 1 << 20 != 0,
        F::INVPCID => *LEAF_7_EBX & 1 << 10 != 0,
        F::SSE3 => std::is_x86_feature_detected!("sse3"),
        F::SSSE3 => std::is_x86_feature_detected!("ssse3"),
        F::SSE4_1 => std::is_x86_feature_detected!("sse4.1"),
        F::SSE4_2 => std::is_x86_feature_detected!("sse4.2"),
        F::POPCNT => std::is_x86_feature_detected!("popcnt"),
        F::CMPXCHG16B => std::is_x86_feature_detected!("cmpxchg16b"),
        F::MOVBE => std::is_x86_feature_detected!("movbe"),
        F::LZCNT => std::is_x86_feature_detected!("lzcnt"),
        F::BMI1 => std::is_x86_feature_detected!("bmi1"),
        F::BMI2 => std::is_x86_feature_detected!("bmi2"),
        F::ADX => std::is_x86_feature_detected!("adx"),
        F::XSAVE => has_xsave(),
        F::AVX => std::is_x86_feature_detected!("avx"),
        F::AVX2 => std::is_x86_feature_detected!("avx2"),
        F::FMA => std::is_x86_feature_detected!("fma"),
        F::F16C => std::is_x86_feature_detected!("f16c"),
        F::GFNI => std::is_x86_feature_detected!("gfni"),
        F::VAES => std::is_x86_feature_detected!("vaes"),
        F::VPCLMULQDQ => std::is_x86_feature_detected!("vpclmulqdq"),
        F::AVX512F => std::is_x86_feature_detected!("avx512f"),
        F::AVX512VL => std::is_x86_feature_detected!("avx512vl"),
        F::AVX512BW => std::is_x86_feature_detected!("avx512bw"),
        F::AVX512DQ => std::is_x86_feature_detected!("avx512dq"),
        F::AVX512CD => std::is_x86_feature_detected!("avx512cd"),
        F::AVX512_IFMA => std::is_x86_feature_detected!("avx512ifma"),
        F::AVX512_VBMI => std::is_x86_feature_detected!("avx512vbmi"),
        F::AVX512_VBMI2 => std::is_x86_feature_detected!("avx512vbmi2"),
        F::AVX512_VNNI => std::is_x86_feature_detected!("avx512vnni"),
        F::AVX512_BITALG => std::is_x86_feature_detected!("avx512bitalg"),
        F::AVX512_VPOPCNTDQ => std::is_x86_feature_detected!("avx512vpopcntdq"),
        F::AVX_VNNI => std::is_x86_feature_detected!("avxvnni"),
        F::AVX_IFMA => std::is_x86_feature_detected!("avxifma"),
        F::AES => std::is_x86_feature_detected!("aes"),
        F::PCLMULQDQ => std::is_x86_feature_detected!("pclmulqdq"),
        F::SHA => std::is_x86_feature_detected!("sha"),
        // The worker needs it, and refuses to start without.
        F::FSGSBASE => true,
        // CPUID leaf 7, EBX: not in std's list.
        F::CLFLUSHOPT => *LEAF_7_EBX & 1 << 23 != 0,
        F::CLWB => *LEAF_7_EBX & 1 << 24 != 0,
        // Where it is not known, it is a NOP.
        F::PREFETCHW => true,
        _ => false,
    }
}

/// Whether the system lets programs use XSAVE: CPUID leaf 1, ECX bit 27.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_xsave() -> bool {
    core::arch::x86_64::__cpuid(1).ecx & 1 << 27 != 0
}

/// The state components that the system has enabled, of those that a [`x86::state::State`] has.
#[must_use]
pub fn components() -> u64 {
    let of = |present: bool, components: u64| if present { components } else { 0 };
    component::LEGACY
        | of(has(CpuidFeature::AVX), component::AVX)
        | of(has(CpuidFeature::AVX512F), component::AVX512)
}

/// Where this processor puts the components of an XSAVE image; [`Layout::MODEL`] for those that it lacks.
#[cfg(target_arch = "x86_64")]
pub(crate) fn layout() -> Layout {
    let at = |subleaf, component: u64, otherwise| match components() & component {
        0 => otherwise,
        _ => usize::try_from(core::arch::x86_64::__cpuid_count(0xd, subleaf).ebx).unwrap_or(otherwise),
    };
    let model = Layout::MODEL;
    Layout {
        avx: at(2, component::AVX, model.avx),
        opmask: at(5, component::OPMASK, model.opmask),
        zmm_hi256: at(6, component::ZMM_HI256, model.zmm_hi256),
        hi16_zmm: at(7, component::HI16_ZMM, model.hi16_zmm),
    }
}

/// A host of another architecture runs nothing natively.
#[cfg(not(target_arch = "x86_64"))]
fn has(_: CpuidFeature) -> bool {
    false
}
