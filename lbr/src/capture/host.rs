//! Why a host offers guests no branch records: what the kernel looks at, asked of the processor and of the kernel's
//! modules (Linux, arch/x86/kvm/vmx/vmx.c, `vmx_get_perf_capabilities`; arch/x86/kvm/pmu.h, `kvm_init_pmu_capability`).

use crate::perf::retired::{Cpu, Vendor};

/// A host, as far as branch records of guests depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its processor.
    pub cpu: Cpu,
    /// It has two sorts of cores (CPUID.7.0:EDX bit 15).
    pub hybrid: bool,
    /// Its branch records are the architectural ones (CPUID.7.0:EDX bit 19).
    pub architectural: bool,
    /// It has transactions (HLE or RTM, CPUID.7.0:EBX bits 4 and 11).
    pub transactions: bool,
    /// It is itself a virtual machine (CPUID.1:ECX bit 31).
    pub hypervisor: bool,
    /// The parameter `enable_mediated_pmu` of kvm_intel or kvm_amd, if there is one.
    pub mediated: Option<bool>,
}

/// Why KVM offers guests no branch records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOffered {
    /// The vPMU is given to guests whole.
    #[error(
        "kvm's enable_mediated_pmu is on, and a mediated vPMU has none; load kvm_intel with enable_mediated_pmu=N"
    )]
    Mediated,
    /// Hosts with two sorts of cores have no vPMU.
    #[error("this processor has two sorts of cores, for which KVM has no vPMU")]
    Hybrid,
    /// Architectural records are not virtualized.
    #[error("this processor has architectural branch records, which KVM does not virtualize")]
    Architectural,
    /// AMD's stack is not virtualized.
    #[error("KVM does not virtualize the branch record stack of AMD processors")]
    Amd,
    /// The host does not see a PMU itself.
    #[error("this machine is virtual itself, and its hypervisor shows it no PMU")]
    Nested,
    /// The processor is too old.
    #[error("KVM needs a processor with call-stack mode: Haswell or Goldmont and later")]
    TooOld,
    /// The module was told not to.
    #[error("KVM gives guests no PMU; load kvm with enable_pmu=Y")]
    Disabled,
    /// None of this.
    #[error("it gives no reason; a PMU driver that failed on the host may be one (dmesg)")]
    Unknown,
}

impl Host {
    /// Why there are none, given that there are none; `pmu`: whether guests have a PMU at all.
    #[must_use]
    pub fn why_not(&self, pmu: bool) -> NotOffered {
        // The first models with call-stack mode are in every list of events behind these.
        let old = matches!(
            self.cpu.events().map(|events| events.name),
            Some("Nehalem" | "Sandy Bridge" | "Ivy Bridge" | "Silvermont")
        );
        match () {
            () if self.mediated == Some(true) => NotOffered::Mediated,
            () if self.hybrid => NotOffered::Hybrid,
            () if self.architectural => NotOffered::Architectural,
            () if self.cpu.vendor == Vendor::Amd => NotOffered::Amd,
            () if self.hypervisor => NotOffered::Nested,
            () if old => NotOffered::TooOld,
            () if !pmu => NotOffered::Disabled,
            () => NotOffered::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_that_holds_is_given() {
        let cpu = |signature| Cpu::from_signature(Vendor::Intel, signature);
        let ice_lake = Host {
            cpu: cpu(0x0006_06a6),
            hybrid: false,
            architectural: false,
            transactions: true,
            hypervisor: false,
            mediated: None,
        };
        assert_eq!(ice_lake.why_not(true), NotOffered::Unknown);
        assert_eq!(ice_lake.why_not(false), NotOffered::Disabled);
        let nested = Host { hypervisor: true, mediated: Some(false), ..ice_lake };
        assert_eq!(nested.why_not(false), NotOffered::Nested);
        assert_eq!(Host { mediated: Some(true), ..nested }.why_not(true), NotOffered::Mediated);
        let sapphire_rapids = Host { cpu: cpu(0x0008_06f8), architectural: true, ..ice_lake };
        assert_eq!(sapphire_rapids.why_not(true), NotOffered::Architectural);
        assert_eq!(Host { hybrid: true, ..sapphire_rapids }.why_not(false), NotOffered::Hybrid);
        assert_eq!(Host { cpu: cpu(0x0003_06a9), ..ice_lake }.why_not(true), NotOffered::TooOld);
        let zen = Host { cpu: Cpu::from_signature(Vendor::Amd, 0x00a2_0f12), ..ice_lake };
        assert_eq!(zen.why_not(true), NotOffered::Amd);
    }
}
