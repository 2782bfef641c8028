//! The CPUID that the vCPU has: the guest's CPU model, leaf for leaf, where the host traps the instruction.

use crate::cpu_model::LEAVES;
use core::arch::x86_64::__cpuid_count;
use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2};
use x86::xsave::Layout;

/// The model as KVM takes it.
pub(super) fn model() -> CpuId {
    let entries: Vec<kvm_cpuid_entry2> = LEAVES
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
        .collect();
    CpuId::from_entries(&entries).expect("fewer leaves than KVM takes")
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
