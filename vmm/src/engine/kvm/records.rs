//! The branch records of the vCPU: what [`lbr::capture::kvm`] asks of KVM.
//!
//! The vCPU runs on the thread that made the engine, since [`KvmCpu`] stays on its thread; the kernel wants both to be
//! the same.

use super::{KvmCpu, cpuid, failed, msr_entry};
use crate::engine::{Cpu, EngineError};
use crate::host;
use kvm_bindings::{KVM_CAP_PMU_CAPABILITY, KVM_MAX_CPUID_ENTRIES, Msrs};
use kvm_ioctls::Kvm;
use lbr::{Armed, CaptureError, Filter, MsrAccess, capture, msr};

/// Why a vCPU does not record its branches.
pub type Refused = CaptureError<EngineError>;

/// The device, and a vCPU that has not run yet.
struct Sequence<'a> {
    device: &'a Kvm,
    engine: &'a mut KvmCpu,
}

/// Switches recording on. A vCPU that is refused it is as it was.
pub(super) fn arm(device: &Kvm, engine: &mut KvmCpu, filter: Filter) -> Result<Armed, Refused> {
    let armed = capture::kvm::arm(&mut Sequence { device, engine }, &host::host(), filter);
    if armed.is_err() {
        engine
            .vcpu
            .set_cpuid2(&cpuid::model(engine.components))
            .map_err(failed("KVM_SET_CPUID2"))
            .map_err(CaptureError::Access)?;
    }
    armed
}

/// Whether KVM offers branch records to virtual CPUs, as far as its device tells.
pub(super) fn offered(device: &Kvm) -> Result<(), Refused> {
    let perf_capabilities = feature(device, msr::PERF_CAPABILITIES).map_err(CaptureError::Access)?;
    Ok(capture::kvm::offered(pmu_capability(device), perf_capabilities, &host::host()).map(drop)?)
}

fn pmu_capability(device: &Kvm) -> u32 {
    let answer = device.check_extension_raw(KVM_CAP_PMU_CAPABILITY.into());
    // Kernels that do not know it answer zero; so does an error.
    u32::try_from(answer).unwrap_or(0)
}

fn feature(device: &Kvm, index: u32) -> Result<Option<u64>, EngineError> {
    let mut msrs = Msrs::from_entries(&[msr_entry(index, 0)]).expect("one entry");
    let done = device.get_msrs(&mut msrs).map_err(failed("KVM_GET_MSRS of the device"))?;
    Ok(msrs.as_slice()[..done].first().map(|entry| entry.data))
}

impl MsrAccess for Sequence<'_> {
    type Error = EngineError;

    fn read(&mut self, indices: &[u32]) -> Result<Vec<u64>, EngineError> {
        self.engine.read_msrs(indices)
    }

    fn write(&mut self, entries: &[(u32, u64)]) -> Result<usize, EngineError> {
        self.engine.write_msrs(entries)
    }
}

impl capture::kvm::Kvm for Sequence<'_> {
    fn pmu_capability(&mut self) -> Result<u32, EngineError> {
        Ok(pmu_capability(self.device))
    }

    fn feature(&mut self, index: u32) -> Result<Option<u64>, EngineError> {
        feature(self.device, index)
    }

    fn set_cpuid(&mut self) -> Result<bool, EngineError> {
        let supported = self
            .device
            .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
            .map_err(failed("KVM_GET_SUPPORTED_CPUID"))?;
        let model = cpuid::model_with_pmu(self.engine.components, host::signature(), &supported);
        match self.engine.vcpu.set_cpuid2(&model) {
            Ok(()) => Ok(true),
            Err(error) if error.errno() == libc::EINVAL => Ok(false),
            Err(error) => Err(failed("KVM_SET_CPUID2")(error)),
        }
    }
}
