//! Which engine: the option that several subcommands share.

use crate::exit::{Code, Failure};
use crate::keeping;
use crate::log::say;
use vmm::engine::kvm::Waiting;
use vmm::engine::soft::kept;
use vmm::engine::{self, EngineError, EngineKind, Machine};

/// What runs the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Choice {
    /// Hardware, through /dev/kvm (or the device that GRETEL_KVM_DEVICE names)
    Kvm,
    /// The software CPU: needs no /dev/kvm, and is slower
    Soft,
    /// KVM and the software CPU in turns, each task on the one that costs less; the software CPU alone where there is no KVM
    Auto,
}

impl Choice {
    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Choice::Kvm => "kvm",
            Choice::Soft => "soft",
            Choice::Auto => "auto",
        }
    }
}

/// Makes the engine that was asked for, with so much guest memory (the host gives a page when the guest first touches it), and says
/// on stderr where `auto` has to do without KVM.
pub(crate) fn open(choice: Choice, memory: u64) -> Result<Machine, Failure> {
    match choice {
        Choice::Soft => soft(memory),
        Choice::Kvm => kvm(choice, memory),
        Choice::Auto => match Waiting::open() {
            // What the processor counts of a guest is worth more than the turns.
            Ok(waiting) if waiting.counts() => kvm(choice, memory),
            Ok(waiting) => both(waiting, memory),
            Err(error) => without_kvm(choice, memory, &error),
        },
    }
}

/// As [`open`], and without a word where there is no KVM: for what a command does beside what it was asked for.
pub(crate) fn open_quietly(choice: Choice, memory: u64) -> Result<Machine, Failure> {
    let is_there = choice != Choice::Auto || Waiting::open().is_ok();
    open(if is_there { choice } else { Choice::Soft }, memory)
}

/// KVM alone.
fn kvm(choice: Choice, memory: u64) -> Result<Machine, Failure> {
    engine::open(EngineKind::Kvm, memory).or_else(|error| without_kvm(choice, memory, &error))
}

/// KVM and the software CPU in turns.
pub(crate) fn both(waiting: Waiting, memory: u64) -> Result<Machine, Failure> {
    keep_code();
    engine::open_both(waiting, memory).map_err(|error| Failure::new(Code::Host, error))
}

/// What follows where KVM cannot be used.
pub(crate) fn without_kvm(choice: Choice, memory: u64, error: &EngineError) -> Result<Machine, Failure> {
    if choice != Choice::Auto {
        return Err(Failure::new(Code::Host, error));
    }
    say!("gretel: {error}");
    say!("gretel: using the software CPU instead");
    soft(memory)
}

fn soft(memory: u64) -> Result<Machine, Failure> {
    keep_code();
    engine::open(EngineKind::Soft, memory).map_err(|error| Failure::new(Code::Host, error))
}

/// Has the software CPU keep the code that it compiles.
pub(crate) fn keep_code() {
    keeping::folder_of_code().into_iter().for_each(kept::keep_in);
}
