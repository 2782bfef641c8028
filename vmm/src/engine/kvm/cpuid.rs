//! The CPUID that the vCPU has: that of the least CPU model, with the state components of this host. Programs do not see
//! it, since CPUID is trapped or rewritten; KVM lets a vCPU have in XCR0 what its CPUID has.

use crate::cpu_model::{Model, xsave_leaves};
use crate::engine::EngineError;
use core::arch::x86_64::__cpuid_count;
use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2};
use std::arch::is_x86_feature_detected;
use std::sync::LazyLock;
use x86::xsave::{Layout, component};

/// The leaves as KVM takes them, for these components of XCR0.
pub(super) fn model(components: u64) -> CpuId {
    CpuId::from_entries(&entries(components)).expect("fewer leaves than KVM takes")
}

/// The leaf that describes counters.
const COUNTERS: u32 = 0xa;
/// PDCM, in leaf 1 ECX: there is IA32_PERF_CAPABILITIES.
const PDCM: u32 = 1 << 15;

/// The same with what KVM compares before it gives a vCPU branch records: the host's family and model, PDCM, and the
/// counters that KVM supports. The program sees none of it: its CPUID instructions are rewritten, but for code that it
/// makes at run time.
pub(super) fn model_with_pmu(components: u64, signature: u32, supported: &CpuId) -> CpuId {
    let mut entries = entries(components);
    for entry in entries.iter_mut().filter(|entry| entry.function == 1) {
        entry.eax = signature;
        entry.ecx |= PDCM;
    }
    entries.extend(supported.as_slice().iter().filter(|entry| entry.function == COUNTERS));
    CpuId::from_entries(&entries).expect("fewer leaves than KVM takes")
}

fn entries(components: u64) -> Vec<kvm_cpuid_entry2> {
    let mut leaves = Model::V2.leaves();
    if components != component::LEGACY {
        const XSAVE: u32 = 1 << 26;
        leaves.iter_mut().filter(|leaf| leaf.leaf == 1).for_each(|leaf| leaf.result.ecx |= XSAVE);
        leaves.extend(xsave_leaves(components, host_layout()));
    }
    leaves
        .iter()
        .map(|leaf| kvm_cpuid_entry2 {
            function: leaf.leaf,
            index: leaf.subleaf.unwrap_or(0),
            flags: if leaf.subleaf.is_some() { KVM_CPUID_FLAG_SIGNIFCANT_INDEX } else { 0 },
            eax: leaf.result.eax,
            ebx: leaf.result.ebx,
            ecx: leaf.result.ecx,
            edx: leaf.result.edx,
            ..kvm_cpuid_entry2::default()
        })
        .collect()
}

/// Where this host's processor, and KVM with it, has the components of an XSAVE image: CPUID leaf 0xD, which is asked once, since in a
/// virtual machine that is an exit.
pub(super) fn host_layout() -> &'static Layout {
    static HOST: LazyLock<Layout> = LazyLock::new(read_host_layout);
    &HOST
}

fn read_host_layout() -> Layout {
    let at = |subleaf, otherwise| match __cpuid_count(0xd, subleaf).ebx {
        0 => otherwise,
        offset => usize::try_from(offset).unwrap_or(otherwise),
    };
    let Layout { avx, opmask, zmm_hi256, hi16_zmm } = Layout::MODEL;
    Layout { avx: at(2, avx), opmask: at(5, opmask), zmm_hi256: at(6, zmm_hi256), hi16_zmm: at(7, hi16_zmm) }
}

/// The state components that this host has for programs, of those that gretel knows.
pub(super) fn host_components() -> u64 {
    let of = |present: bool, components: u64| if present { components } else { 0 };
    component::LEGACY
        | of(is_x86_feature_detected!("avx"), component::AVX)
        | of(is_x86_feature_detected!("avx512f"), component::AVX512)
}

/// Whether this host's processor has what `model` announces.
///
/// # Errors
/// The first thing that it lacks.
pub(super) fn require(model: Model) -> Result<(), EngineError> {
    let v3 = [
        ("AVX", is_x86_feature_detected!("avx")),
        ("AVX2", is_x86_feature_detected!("avx2")),
        ("FMA", is_x86_feature_detected!("fma")),
        ("F16C", is_x86_feature_detected!("f16c")),
        ("BMI1", is_x86_feature_detected!("bmi1")),
        ("BMI2", is_x86_feature_detected!("bmi2")),
        ("LZCNT", is_x86_feature_detected!("lzcnt")),
        ("MOVBE", is_x86_feature_detected!("movbe")),
    ];
    let v4 = [
        ("AVX512F", is_x86_feature_detected!("avx512f")),
        ("AVX512BW", is_x86_feature_detected!("avx512bw")),
        ("AVX512CD", is_x86_feature_detected!("avx512cd")),
        ("AVX512DQ", is_x86_feature_detected!("avx512dq")),
        ("AVX512VL", is_x86_feature_detected!("avx512vl")),
    ];
    let needed: Vec<(&'static str, bool)> = match model {
        Model::V2 => Vec::new(),
        Model::V3 => v3.to_vec(),
        Model::V4 => [&v3[..], &v4].concat(),
    };
    match needed.into_iter().find(|(_, present)| !present) {
        Some((what, _)) => Err(EngineError::Lacks { model, what }),
        None => Ok(()),
    }
}
