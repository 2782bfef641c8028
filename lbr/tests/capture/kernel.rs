//! A virtual CPU's registers as the kernel keeps them: what arch/x86/kvm/vmx does in the ioctls that a capture makes, with
//! the model of a processor behind it, and with one fault.

use lbr::capture::host::Host;
use lbr::capture::kvm::Kvm;
use lbr::model::{Model, Processor, Transfer};
use lbr::perf::retired::{Cpu, Vendor};
use lbr::{MsrAccess, msr};

/// What goes wrong, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Guests have no PMU (enable_pmu=N).
    NoPmu,
    /// KVM does not know the feature register, or offers nothing in it.
    NoFormat(bool),
    /// It offers a format that nobody knows.
    OtherFormat(u8),
    /// KVM_SET_CPUID2 is refused.
    CpuidRefused,
    /// The model in CPUID is not the host's after all.
    OtherModel,
    /// Another task's pinned event has the hardware from the start: accesses succeed and do nothing.
    NeverActive,
    /// The LBR bit of IA32_DEBUGCTL is dropped, with success.
    DebugctlDropped,
    /// The n-th register of all ioctls is refused, which makes a short count.
    RegisterRefused(usize),
    /// The n-th ioctl fails.
    IoctlFails(usize),
    /// Before the n-th branch, or when the program has ended, the event loses the hardware for good.
    EvictedAt(usize),
    /// Then the event is made anew, with reset registers.
    RecreatedAt(usize),
    /// Then recording is switched off.
    StoppedAt(usize),
    /// While the records are read, after so many registers, the event loses the hardware.
    EvictedWhileReading(usize),
    /// The records are read on another thread than the one that ran.
    OtherThread,
}

/// An ioctl that failed.
#[derive(Debug, thiserror::Error)]
#[error("EIO")]
pub(crate) struct Io;

/// What became of the kernel's event, which has the hardware for the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hardware {
    /// None was made.
    Absent,
    /// The thread has it.
    Active,
    /// Someone else has it.
    Inactive,
}

pub(crate) struct Kernel {
    fault: Fault,
    processor: Processor,
    model: Model,
    cpuid: bool,
    capabilities: u64,
    debugctl: u64,
    hardware: Hardware,
    has_run: bool,
    ioctls: usize,
    registers: usize,
    /// Registers read since the program ended.
    read_behind: Option<usize>,
}

impl Kernel {
    pub(crate) fn new(processor: Processor, fault: Fault) -> Kernel {
        Kernel {
            fault,
            processor,
            model: Model::new(processor),
            cpuid: false,
            capabilities: offered(processor, fault),
            debugctl: 0,
            hardware: Hardware::Absent,
            has_run: false,
            ioctls: 0,
            registers: 0,
            read_behind: None,
        }
    }

    /// The host: nothing about it explains a refusal.
    pub(crate) fn host() -> Host {
        Host {
            cpu: Cpu { vendor: Vendor::Intel, family: 6, model: 0x55 },
            hybrid: false,
            architectural: false,
            transactions: true,
            hypervisor: false,
            mediated: None,
        }
    }

    /// KVM_RUN: the guest executes these branches. Outside, the processor records nothing.
    pub(crate) fn run(&mut self, branches: &[Transfer]) {
        self.has_run = true;
        for n in 0..=branches.len() {
            match self.fault {
                Fault::EvictedAt(at) if at == n => self.hardware = Hardware::Inactive,
                Fault::RecreatedAt(at) if at == n => self.model = Model::new(self.processor),
                Fault::StoppedAt(at) if at == n => self.debugctl = 0,
                _ => {}
            }
            if let Some(branch) = branches.get(n)
                && self.hardware == Hardware::Active
            {
                assert!(self.model.write(msr::DEBUGCTL, self.debugctl));
                self.model.branch(branch);
                assert!(self.model.write(msr::DEBUGCTL, 0));
            }
        }
        self.read_behind = Some(0);
        if self.fault == Fault::OtherThread {
            self.hardware = Hardware::Inactive;
        }
    }

    fn ioctl(&mut self) -> Result<(), Io> {
        self.ioctls += 1;
        if self.fault == Fault::IoctlFails(self.ioctls) { Err(Io) } else { Ok(()) }
    }

    /// Counts a register; false: it is the one that is refused.
    fn register(&mut self) -> bool {
        self.registers += 1;
        if let Some(read) = &mut self.read_behind {
            *read += 1;
            if self.fault == Fault::EvictedWhileReading(*read) {
                self.hardware = Hardware::Inactive;
            }
        }
        self.fault != Fault::RegisterRefused(self.registers)
    }

    /// `intel_pmu_lbr_is_enabled`.
    fn has_records(&self) -> bool {
        self.cpuid && self.fault != Fault::OtherModel && self.capabilities & 0x3f != 0
    }

    /// `intel_pmu_create_guest_lbr_event`.
    fn take_hardware(&mut self) {
        if self.hardware == Hardware::Absent {
            let lost = self.fault == Fault::NeverActive;
            self.hardware = if lost { Hardware::Inactive } else { Hardware::Active };
        }
    }

    /// `vmx_get_msr`, from the host's side.
    fn get(&mut self, index: u32) -> Option<u64> {
        match index {
            msr::PERF_CAPABILITIES => Some(if self.cpuid { self.capabilities } else { 0 }),
            msr::DEBUGCTL => Some(self.debugctl),
            _ if !self.has_records() => None,
            _ => {
                let value = self.model.read(index)?;
                self.take_hardware();
                Some(if self.hardware == Hardware::Active { value } else { 0 })
            }
        }
    }

    /// `vmx_set_msr`, from the host's side.
    fn set(&mut self, index: u32, value: u64) -> bool {
        match index {
            msr::PERF_CAPABILITIES => {
                let supported = offered(self.processor, self.fault);
                let agrees = value & 0x3f == supported & 0x3f && self.has_records();
                let taken =
                    agrees && value & !supported == 0 && (!self.has_run || value == self.capabilities);
                if taken {
                    self.capabilities = value;
                }
                taken
            }
            msr::DEBUGCTL => {
                let dropped = self.fault == Fault::DebugctlDropped || !self.has_records();
                self.debugctl = if dropped { value & !1 } else { value };
                if self.debugctl & 1 != 0 {
                    self.take_hardware();
                }
                value & !0x801 == 0
            }
            _ if !self.has_records() || self.model.read(index).is_none() => false,
            _ => {
                self.take_hardware();
                self.hardware != Hardware::Active || self.model.write(index, value)
            }
        }
    }
}

/// `vmx_get_perf_capabilities`: format, and PEBS and full-width writes beside it.
fn offered(processor: Processor, fault: Fault) -> u64 {
    let format = match (fault, processor) {
        (Fault::NoFormat(_), _) => 0,
        (Fault::OtherFormat(format), _) => format,
        (_, Processor::Haswell) => 4,
        (_, Processor::Skylake) => 5,
        (_, Processor::Goldmont) => 6,
        _ => 7,
    };
    0x2300 | u64::from(format)
}

impl MsrAccess for Kernel {
    type Error = Io;

    fn read(&mut self, indices: &[u32]) -> Result<Vec<u64>, Io> {
        assert!(indices.len() < 256, "E2BIG");
        self.ioctl()?;
        let mut values = Vec::new();
        for index in indices {
            match self.register().then(|| self.get(*index)).flatten() {
                Some(value) => values.push(value),
                None => break,
            }
        }
        Ok(values)
    }

    fn write(&mut self, entries: &[(u32, u64)]) -> Result<usize, Io> {
        assert!(entries.len() < 256, "E2BIG");
        self.ioctl()?;
        for (done, (index, value)) in entries.iter().enumerate() {
            if !self.register() || !self.set(*index, *value) {
                return Ok(done);
            }
        }
        Ok(entries.len())
    }
}

impl Kvm for Kernel {
    fn pmu_capability(&mut self) -> Result<u32, Io> {
        self.ioctl()?;
        Ok(if self.fault == Fault::NoPmu { 0 } else { 1 })
    }

    fn feature(&mut self, index: u32) -> Result<Option<u64>, Io> {
        self.ioctl()?;
        let known = index == msr::PERF_CAPABILITIES && self.fault != Fault::NoFormat(false);
        Ok(known.then_some(offered(self.processor, self.fault)))
    }

    fn set_cpuid(&mut self) -> Result<bool, Io> {
        self.ioctl()?;
        assert!(!self.has_run, "the kernel refuses a change after KVM_RUN");
        self.cpuid = self.fault != Fault::CpuidRefused;
        Ok(self.cpuid)
    }
}
