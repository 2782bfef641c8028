//! Which engine: the option that several subcommands share.

use crate::exit::{Code, Failure};
use vmm::engine::{self, Engine, EngineKind};

/// Guest memory in bytes; the host gives a page when the guest first touches it.
const GUEST_MEMORY: u64 = 4 << 30;

/// What runs the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Choice {
    /// Hardware, through /dev/kvm (or the device that GRETEL_KVM_DEVICE names)
    Kvm,
    /// The software CPU: needs no /dev/kvm, and is slower
    Soft,
    /// KVM where it can be used, else the software CPU
    Auto,
}

/// Makes the engine that was asked for, and says on stderr where `auto` has to do without KVM.
pub(crate) fn open(choice: Choice) -> Result<Box<dyn Engine>, Failure> {
    let make = |kind| engine::open(kind, GUEST_MEMORY).map_err(|e| Failure::new(Code::Host, e));
    match choice {
        Choice::Kvm => make(EngineKind::Kvm),
        Choice::Soft => make(EngineKind::Soft),
        Choice::Auto => engine::open(EngineKind::Kvm, GUEST_MEMORY).or_else(|error| {
            eprintln!("gretel: {error}");
            eprintln!("gretel: using the software CPU instead");
            make(EngineKind::Soft)
        }),
    }
}
