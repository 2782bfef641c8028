//! The CPUID that the vCPU has: the guest's CPU model, leaf for leaf, where the host traps the instruction.

use crate::cpu_model::LEAVES;
use core::arch::x86_64::__cpuid_count;
use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2};
use x86::xsave::Layout;

/// The model as KVM takes it.
pub(super) fn model() -> CpuId {
    CpuId::from_entries(&entries()).expect("fewer leaves than KVM takes")
}

/// The leaf that describes counters.
const COUNTERS: u32 = 0xa;
/// PDCM, in leaf 1 ECX: there is IA32_PERF_CAPABILITIES.
const PDCM: u32 = 1 << 15;

/// The model with what KVM compares before it gives a vCPU branch records: the host's family and model, PDCM, and the
/// counters that KVM supports. The program sees none of it: its CPUID instructions are rewritten, but for code that it
/// makes at run time.
pub(super) fn model_with_pmu(signature: u32, supported: &CpuId) -> CpuId {
    let mut entries = entries();
    for entry in entries.iter_mut().filter(|entry| entry.function == 1) {
        entry.eax = signature;
        entry.ecx |= PDCM;
    }
    entries.extend(supported.as_slice().iter().filter(|entry| entry.function == COUNTERS));
    CpuId::from_entries(&entries).expect("fewer leaves than KVM takes")
}

fn entries() -> Vec<kvm_cpuid_entry2> {
    LEAVES
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

/// Where this host's processor, and KVM with it, has the components of an XSAVE image: CPUID leaf 0xD.
pub(super) fn host_layout() -> Layout {
    let at = |subleaf, otherwise| match __cpuid_count(0xd, subleaf).ebx {
        0 => otherwise,
        offset => usize::try_from(offset).unwrap_or(otherwise),
    };
    let Layout { avx, opmask, zmm_hi256, hi16_zmm } = Layout::MODEL;
    Layout { avx: at(2, avx), opmask: at(5, opmask), zmm_hi256: at(6, zmm_hi256), hi16_zmm: at(7, hi16_zmm) }
}
