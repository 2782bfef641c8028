//! What this host offers: found out by trying, not by names. Nothing here fails; what is missing is part of the report,
//! with the reason.

mod kvm;
mod perf;

pub use kvm::{ExitCost, Kvm, probe_kvm};
pub use perf::{Perf, probe_perf};

use crate::engine::EngineKind;

/// Everything that was tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What KVM offers, or why it cannot be used.
    pub kvm: Result<Kvm, String>,
    /// What the kernel's perf events offer.
    pub perf: Perf,
}

impl Report {
    /// Tries everything; takes some tenths of a second.
    #[must_use]
    pub fn new() -> Report {
        Report { kvm: probe_kvm().map_err(|error| error.to_string()), perf: probe_perf() }
    }

    /// The engine that is used unless another is asked for.
    #[must_use]
    pub fn engine(&self) -> EngineKind {
        if self.kvm.is_ok() { EngineKind::Kvm } else { EngineKind::Soft }
    }
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}
