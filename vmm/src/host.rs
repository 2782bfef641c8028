//! The host's processor and KVM modules, as far as branch records and counters depend on them.

use lbr::capture::host::Host;
use lbr::perf::retired::{Cpu, Vendor};
use std::arch::x86_64::{__cpuid, __cpuid_count};

/// Looks at CPUID and at the parameters of the modules.
#[must_use]
pub fn host() -> Host {
    let (vendor, features, extended) = (__cpuid(0), __cpuid(1), __cpuid_count(7, 0));
    let extended = (vendor.eax >= 7).then_some(extended);
    let edx = |bit: u32| extended.is_some_and(|leaf| leaf.edx >> bit & 1 != 0);
    let ebx = |bit: u32| extended.is_some_and(|leaf| leaf.ebx >> bit & 1 != 0);
    let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat();
    let vendor = match name.as_slice() {
        b"GenuineIntel" => Vendor::Intel,
        b"AuthenticAMD" => Vendor::Amd,
        _ => Vendor::Other,
    };
    Host {
        cpu: Cpu::from_signature(vendor, features.eax),
        hybrid: edx(15),
        architectural: edx(19),
        transactions: ebx(4) || ebx(11),
        hypervisor: features.ecx >> 31 & 1 != 0,
        mediated: ["kvm_intel", "kvm_amd"].iter().find_map(|module| parameter(module, "enable_mediated_pmu")),
    }
}

/// CPUID leaf 1 EAX: family, model and stepping.
pub(crate) fn signature() -> u32 {
    __cpuid(1).eax
}

/// A parameter of a kernel module that is yes or no.
fn parameter(module: &str, name: &str) -> Option<bool> {
    let text = std::fs::read_to_string(format!("/sys/module/{module}/parameters/{name}")).ok()?;
    match text.trim() {
        "Y" | "1" => Some(true),
        "N" | "0" => Some(false),
        _ => None,
    }
}
