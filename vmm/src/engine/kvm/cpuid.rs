//! The CPUID that the vCPU has: the guest's CPU model, leaf for leaf, where the host traps the instruction.

use crate::cpu_model::LEAVES;
use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2};

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
