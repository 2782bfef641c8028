//! What must go before on KVM: a virtual CPU has branch records only if its CPUID, its IA32_PERF_CAPABILITIES and the
//! host agree, and the order counts.
//!
//! Linux, arch/x86/kvm/vmx/pmu_intel.c (`intel_pmu_refresh`, `intel_pmu_handle_lbr_msrs_access`) and vmx.c
//! (`vmx_set_msr`). No other hypervisor module gives guests the stack.

use super::host::Host;
use super::{Armed, CaptureError, MsrAccess, Unavailable, announced, read, write};
use crate::filter::Filter;
use crate::msr;

/// What is asked of KVM, a method for each ioctl; the registers are those of a virtual CPU that has not run yet.
pub trait Kvm: MsrAccess {
    /// KVM_CHECK_EXTENSION of KVM_CAP_PMU_CAPABILITY, on the device.
    fn pmu_capability(&mut self) -> Result<u32, Self::Error>;
    /// KVM_GET_MSRS on the device: what KVM can offer in a feature register; `None`: it refuses it.
    fn feature(&mut self, index: u32) -> Result<Option<u64>, Self::Error>;
    /// KVM_SET_CPUID2: the guest's model, but with the host's family and model, PDCM, and the PMU that KVM supports.
    /// False: refused.
    fn set_cpuid(&mut self) -> Result<bool, Self::Error>;
}

/// KVM_PMU_CAP_DISABLE: that the PMU can be switched off says that there is one.
const CAN_DISABLE: u32 = 1;
/// Full-width writes of counters, in IA32_PERF_CAPABILITIES.
const FULL_WIDTH_WRITES: u64 = 1 << 13;

/// What KVM offers of IA32_PERF_CAPABILITIES for branch records, as its device tells: by [`Kvm::pmu_capability`] and
/// [`Kvm::feature`] of that register.
///
/// # Errors
/// When it offers none.
pub fn offered(pmu_capability: u32, perf_capabilities: Option<u64>, host: &Host) -> Result<u64, Unavailable> {
    let not_offered = |pmu: bool| Unavailable::NotOffered(host.why_not(pmu));
    if pmu_capability & CAN_DISABLE == 0 {
        return Err(not_offered(false));
    }
    let offered = perf_capabilities.unwrap_or(0);
    announced(offered).map_err(|why| if why == Unavailable::NoFormat { not_offered(true) } else { why })?;
    Ok(offered)
}

/// Switches recording on in a virtual CPU that has not run yet.
///
/// # Errors
/// At the first step that is refused, or that is taken and does not read back.
pub fn arm<K: Kvm + ?Sized>(
    kvm: &mut K,
    host: &Host,
    filter: Filter,
) -> Result<Armed, CaptureError<K::Error>> {
    let pmu_capability = kvm.pmu_capability().map_err(CaptureError::Access)?;
    let perf_capabilities = kvm.feature(msr::PERF_CAPABILITIES).map_err(CaptureError::Access)?;
    let offered = offered(pmu_capability, perf_capabilities, host)?;
    if !kvm.set_cpuid().map_err(CaptureError::Access)? {
        return Err(Unavailable::CpuidRefused.into());
    }
    // Not more than is needed: with bits of PEBS in it the kernel asks for more of CPUID.
    let wanted = offered & (msr::FORMAT_MASK | FULL_WIDTH_WRITES);
    let taken = write(kvm, &[(msr::PERF_CAPABILITIES, wanted)])? == 1;
    if !taken || read(kvm, &[msr::PERF_CAPABILITIES])? != [wanted] {
        return Err(Unavailable::FormatRefused.into());
    }
    let armed = Armed::arm(kvm, filter)?;
    Ok(Armed { transactions: Some(host.transactions), ..armed })
}
