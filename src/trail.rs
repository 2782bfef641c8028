//! Branch records of a crash: the options that ask for them, where they come from, and the core that gets them.

use crate::engine::{self, Choice, GUEST_MEMORY};
use crate::exit::{Code, Failure};
use lbr::{Armed, Filter, Provenance};
use std::io::{self, IsTerminal};
use vmm::engine::Engine;
use vmm::engine::kvm::{KvmEngine, Refused};
use vmm::probe::no_guest_stacks;
use vmm::recording::Recording;
use vmm::trail::derive;

/// Which branch records a core is to have.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Wanted {
    /// How many of the last branches a core holds
    #[arg(long, value_name = "0|16|32", default_value = "16", value_parser = parse_records)]
    records: u32,
    /// Which branches are recorded: any, no-jcc, calls, ret-ind, indirect, or a value of LBR_SELECT in hexadecimal
    #[arg(long, value_name = "FILTER", default_value_t = Filter::ANY)]
    filter: Filter,
    /// What records them
    #[arg(long, value_enum, default_value = "auto")]
    branch_records: Source,
}

/// What records branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Source {
    /// The processor, for the virtual machine alone, read through KVM
    Kvm,
    /// Nothing at the time: the crash runs again on the software CPU, which records as the processor would have
    Derived,
    /// The processor, for the host's perf events
    Perf,
    /// The processor through KVM where it can, else derived; the core says which
    Auto,
}

/// Where the branch records of a crash will come from.
pub(crate) enum Branches {
    /// There are to be none.
    None,
    /// The processor records them now.
    Armed(Armed),
    /// They are derived; and why the processor does not record them, if it was to.
    Derived(Option<Refused>),
}

/// Branch records, as a core gets them.
pub(crate) struct Captured {
    /// The bytes of the trail.
    pub(crate) trail: Vec<u8>,
    /// Where they come from, for the core's note.
    pub(crate) origin: &'static str,
}

pub(crate) fn parse_records(text: &str) -> Result<u32, String> {
    match text {
        "0" => Ok(0),
        "16" => Ok(16),
        "32" => Ok(32),
        _ => Err("hardware has 16 or 32 of them; 0 asks for none".to_owned()),
    }
}

impl Wanted {
    /// Makes the engine that was asked for, recording branches if it is to.
    pub(crate) fn open(&self, choice: Choice) -> Result<(Box<dyn Engine>, Branches), Failure> {
        if self.records == 0 {
            return Ok((engine::open(choice)?, Branches::None));
        }
        match (self.branch_records, choice) {
            (Source::Perf, _) => Err(no_perf(choice)),
            (Source::Kvm, Choice::Soft) => {
                Err(Failure::new(Code::Usage, "--branch-records kvm needs --engine kvm"))
            }
            (Source::Derived, _) | (Source::Auto, Choice::Soft) => {
                Ok((engine::open(choice)?, Branches::Derived(None)))
            }
            (Source::Kvm | Source::Auto, _) => self.open_recording(choice),
        }
    }

    fn open_recording(&self, choice: Choice) -> Result<(Box<dyn Engine>, Branches), Failure> {
        let only_kvm = self.branch_records == Source::Kvm;
        let choice = if only_kvm { Choice::Kvm } else { choice };
        match KvmEngine::recording(GUEST_MEMORY, self.filter) {
            Ok((engine, Ok(armed))) => Ok((Box::new(engine), Branches::Armed(armed))),
            Ok((_, Err(why))) if only_kvm => {
                Err(Failure::new(Code::Host, format!("{why} (--branch-records derived does without)")))
            }
            Ok((engine, Err(why))) => Ok((Box::new(engine), Branches::Derived(Some(why)))),
            Err(error) => Ok((engine::without_kvm(choice, &error)?, Branches::Derived(None))),
        }
    }
}

/// Why perf cannot be the source.
fn no_perf(choice: Choice) -> Failure {
    let kvm = if choice == Choice::Soft { None } else { KvmEngine::new(1 << 20).ok() };
    let why = no_guest_stacks(kvm.map(|engine| engine.landing()));
    Failure::new(
        Code::Host,
        format!("perf has no last branches of a guest: {why} (--branch-records derived does without)"),
    )
}

impl Branches {
    /// The records of the processor, if it makes any.
    pub(crate) fn armed(&self) -> Option<Armed> {
        match self {
            Branches::Armed(armed) => Some(*armed),
            _ => None,
        }
    }

    /// Reads what the processor has recorded, right after the crash. If that is not to be had, `self` is what is left: they
    /// are derived, or, where nothing but the processor was asked for, there are none.
    pub(crate) fn capture(&mut self, engine: &mut dyn Engine, wanted: &Wanted) -> Option<Captured> {
        let Branches::Armed(armed) = *self else { return None };
        match armed.capture(engine, Provenance::Hardware) {
            Ok(trail) => {
                *self = Branches::None;
                let trail = trail.newest(wanted.records).to_bytes();
                Some(Captured { trail, origin: "branch records: of the processor, read through KVM\n" })
            }
            Err(why) if wanted.branch_records == Source::Kvm => {
                eprintln!("gretel: the core has no branch records: {why}");
                *self = Branches::None;
                None
            }
            Err(why) => {
                *self = Branches::Derived(Some(why));
                None
            }
        }
    }

    /// If they are derived, runs the crash again on the software CPU, and writes the core anew with the branches that it
    /// recorded. If the crash does not run there, the core stays without them, and stderr says why.
    pub(crate) fn derive(&self, recording: &Recording, wanted: &Wanted, origin: &str) -> Result<(), Failure> {
        let Branches::Derived(instead_of) = self else { return Ok(()) };
        if let Some(why) = instead_of {
            eprintln!("gretel: branch records are derived, not the processor's: {why}");
        }
        if io::stderr().is_terminal() {
            eprintln!("gretel: running the crash again on the software CPU, for its last branches");
        }
        match derive(recording, wanted.records, wanted.filter) {
            Ok(mut derived) => {
                let why = instead_of.as_ref().map(|why| format!(" (not the processor's: {why})"));
                let why = why.unwrap_or_default().replace('\n', " ");
                let origin = format!("{origin}branch records: derived on the software CPU{why}\n");
                derived.write_core(recording, &origin).map_err(|e| Failure::new(Code::Write, e))
            }
            Err(error) => {
                eprintln!("gretel: the core has no branch records: {error}");
                Ok(())
            }
        }
    }
}
