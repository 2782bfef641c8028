//! What this host offers: found out by trying, not by names. Nothing here fails; what is missing is part of the report,
//! with the reason.

mod kvm;
mod perf;

pub use crate::host::host;
pub use kvm::{ExitCost, Kvm, probe_kvm};
pub use perf::{NoGuestStacks, Perf, no_guest_stacks, probe_perf};

use crate::engine::EngineKind;
use lbr::Provenance;

/// Everything that was tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What KVM offers, or why it cannot be used.
    pub kvm: Result<Kvm, String>,
    /// What the kernel's perf events offer.
    pub perf: Perf,
    /// Why the last branches of a program do not come from these.
    pub guest_stacks: NoGuestStacks,
}

impl Report {
    /// Tries everything; takes some tenths of a second.
    #[must_use]
    pub fn new() -> Report {
        let kvm = probe_kvm().map_err(|error| error.to_string());
        let guest_stacks = no_guest_stacks(kvm.as_ref().ok().map(|kvm| kvm.landing));
        Report { kvm, perf: probe_perf(), guest_stacks }
    }

    /// Where branch records come from unless another source is asked for.
    #[must_use]
    pub fn branch_records(&self) -> Provenance {
        let recorded = self.kvm.as_ref().is_ok_and(|kvm| kvm.branch_records.is_ok());
        if recorded { Provenance::Hardware } else { Provenance::Derived }
    }

    /// The faster engine of those that can be used alone.
    #[must_use]
    pub fn engine(&self) -> EngineKind {
        if self.kvm.is_ok() { EngineKind::Kvm } else { EngineKind::Soft }
    }

    /// The name of what is used unless an engine is asked for: `kvm` where its processor counts what a guest executes or records its
    /// branches, `both` where it does neither, `soft` where there is none.
    #[must_use]
    pub fn engines(&self) -> &'static str {
        match &self.kvm {
            Ok(kvm) if kvm.counters.is_err() && kvm.branch_records.is_err() => "both",
            _ => self.engine().name(),
        }
    }
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}
