//! Branch records of a crash: the options that ask for them, where they come from, and the core that gets them.

use crate::engine::{self, Choice};
use crate::exit::{Code, Failure};
use crate::kernel::{self, Rings};
use crate::log::say;
use lbr::{Armed, Filter, Provenance};
use std::io::{self, IsTerminal};
use std::time::Duration;
use vmm::dump::{self, About};
use vmm::engine::kvm::{KvmCpu, Refused, Waiting};
use vmm::engine::{Counters, Cpu, Machine};
use vmm::probe::no_guest_stacks;
use vmm::process::{Death, Process};
use vmm::ram::for_replay;
use vmm::record::Recorded;
use vmm::recording::Recording;
use vmm::timeline::{LastBranches, Recent, RetraceError};
use vmm::trail::derive;

/// Which branch records a core is to have.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Wanted {
    /// How many of the last branches a core holds (default: 16; of a machine with a kernel 32)
    #[arg(long, value_name = "0|16|32", value_parser = parse_records)]
    records: Option<u32>,
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

/// Says in a core that the processor recorded them.
const BY_PROCESSOR: &str = "branch records: of the processor, read through KVM\n";

/// Branch records, as a core gets them.
pub(crate) struct Captured {
    /// The bytes of the trail.
    pub(crate) trail: Vec<u8>,
    /// Where they come from, for the core's note.
    pub(crate) origin: String,
    /// Exact counts, where they came with them.
    pub(crate) counters: Option<Counters>,
}

pub(crate) fn parse_records(text: &str) -> Result<u32, String> {
    match text {
        "0" => Ok(0),
        "16" => Ok(16),
        "32" => Ok(32),
        _ => Err("hardware has 16 or 32 of them; 0 asks for none".to_owned()),
    }
}

/// Who ran no longer than this runs again on the software CPU as a whole, which counts: the core has counts, then, and its crumbs.
const SHORT: Duration = Duration::from_secs(1);

/// So many branch records a core has if none are asked for: a program's, and a kernel's.
const RECORDS: u32 = 16;
const RECORDS_OF_KERNELS: u32 = 32;

impl Wanted {
    fn records(&self) -> u32 {
        self.records.unwrap_or(RECORDS)
    }

    /// Those of a machine with a kernel, which runs on the software CPU: they are derived.
    pub(crate) fn of_machine(&self, rings: Rings) -> Result<kernel::Wanted, Failure> {
        if matches!(self.branch_records, Source::Kvm | Source::Perf) {
            let why = "a kernel runs on the software CPU, and its branch records are derived: leave --branch-records out";
            return Err(Failure::new(Code::Usage, why));
        }
        if self.filter.is_call_stack() {
            let why = "call-stack records are not in the order of time; take others with --filter";
            return Err(Failure::new(Code::Usage, why));
        }
        let records = self.records.unwrap_or(RECORDS_OF_KERNELS);
        Ok(kernel::Wanted { records, filter: self.filter, rings })
    }

    /// Makes the engine that was asked for, recording branches if it is to.
    pub(crate) fn open(&self, choice: Choice, memory: u64) -> Result<(Machine, Branches), Failure> {
        if self.records() == 0 {
            return Ok((engine::open(choice, memory)?, Branches::None));
        }
        match (self.branch_records, choice) {
            (Source::Perf, _) => Err(no_perf(choice)),
            (Source::Kvm, Choice::Soft) => {
                Err(Failure::new(Code::Usage, "--branch-records kvm needs --engine kvm"))
            }
            (Source::Derived, _) | (Source::Auto, Choice::Soft) => {
                Ok((engine::open(choice, memory)?, Branches::Derived(None)))
            }
            (Source::Kvm | Source::Auto, _) => self.open_recording(choice, memory),
        }
    }

    fn open_recording(&self, choice: Choice, memory: u64) -> Result<(Machine, Branches), Failure> {
        let only_kvm = self.branch_records == Source::Kvm;
        if !only_kvm
            && choice == Choice::Auto
            && let Ok(waiting) = Waiting::open()
            && let Err(why) = waiting.records_branches()
            && !waiting.counts()
        {
            return Ok((engine::both(waiting, memory)?, Branches::Derived(Some(why))));
        }
        let choice = if only_kvm { Choice::Kvm } else { choice };
        match KvmCpu::recording(memory, self.filter) {
            Ok((machine, Ok(armed))) => Ok((machine.any(), Branches::Armed(armed))),
            Ok((_, Err(why))) if only_kvm => {
                Err(Failure::new(Code::Host, format!("{why} (--branch-records derived does without)")))
            }
            Ok((machine, Err(why))) => Ok((machine.any(), Branches::Derived(Some(why)))),
            Err(error) => Ok((engine::without_kvm(choice, memory, &error)?, Branches::Derived(None))),
        }
    }
}

/// Why perf cannot be the source.
fn no_perf(choice: Choice) -> Failure {
    let kvm = if choice == Choice::Soft { None } else { KvmCpu::machine(1 << 20).ok() };
    let why = no_guest_stacks(kvm.map(|machine| machine.cpu.landing()));
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
    pub(crate) fn capture(&mut self, cpu: &mut dyn Cpu, wanted: &Wanted) -> Option<Captured> {
        let Branches::Armed(armed) = *self else { return None };
        match armed.capture(cpu, Provenance::Hardware) {
            Ok(trail) => {
                *self = Branches::None;
                let trail = trail.newest(wanted.records()).to_bytes();
                Some(Captured { trail, origin: BY_PROCESSOR.to_owned(), counters: None })
            }
            Err(why) if wanted.branch_records == Source::Kvm => {
                say!("gretel: the core has no branch records: {why}");
                *self = Branches::None;
                None
            }
            Err(why) => {
                *self = Branches::Derived(Some(why));
                None
            }
        }
    }

    /// Whether they are derived.
    pub(crate) fn are_derived(&self) -> bool {
        matches!(self, Branches::Derived(_))
    }

    /// The branch records of a process that died while others go on. Where there are none, stderr says why.
    pub(crate) fn of_other(
        &self,
        process: &mut Process,
        death: Death,
        recent: &mut Recent,
        wanted: &Wanted,
    ) -> Option<Captured> {
        let captured = match self {
            Branches::None => return None,
            Branches::Armed(armed) => armed
                .capture(process.cpu_mut(), Provenance::Hardware)
                .map(|trail| {
                    let trail = trail.newest(wanted.records()).to_bytes();
                    Captured { trail, origin: BY_PROCESSOR.to_owned(), counters: None }
                })
                .map_err(|why| why.to_string()),
            Branches::Derived(instead_of) => recent
                .last_branches(process, death, wanted.records(), wanted.filter)
                .map(|last| of_near_past(&last, instead_of.as_ref()))
                .map_err(|why| why.to_string()),
        };
        let said =
            |why: &String| say!("gretel: the core of process {} has no branch records: {why}", process.pid());
        captured.inspect_err(said).ok()
    }

    /// If they are derived, runs the crash again, its end on the software CPU, and writes the core anew with the branches that it
    /// recorded: from a checkpoint shortly before the crash, else from the program's start, on the engine of this choice. If the crash does not run
    /// there, the core stays without them, and stderr says why.
    pub(crate) fn derive(
        &self,
        recording: &Recording,
        recorded: &mut Recorded,
        wanted: &Wanted,
        about: About,
        choice: Choice,
    ) -> Result<(), Failure> {
        let Branches::Derived(instead_of) = self else { return Ok(()) };
        if let Some(why) = instead_of {
            say!("gretel: branch records are derived, not the processor's: {why}");
        }
        let ran = recorded.ran();
        // A call stack begins with the program.
        let near = if wanted.filter.is_call_stack() {
            Err(RetraceError::NoCheckpoint)
        } else {
            recorded.last_branches(wanted.records(), wanted.filter)
        };
        match near {
            Ok(last) => {
                let Captured { trail, origin, counters } = of_near_past(&last, instead_of.as_ref());
                let about = About { trail: Some(trail), counters, origin: about.origin + &origin, ..about };
                return dump::write_core(&recording.core(), &mut recorded.process, &about)
                    .map_err(|e| Failure::new(Code::Write, e));
            }
            // A program that has only begun.
            Err(RetraceError::NoCheckpoint) => {}
            Err(why) => say!("gretel: the crash runs again from the program's start: {why}"),
        }
        if io::stderr().is_terminal() {
            say!("gretel: running the crash again, for its last branches");
        }
        let choice = if ran < SHORT { Choice::Soft } else { choice };
        let machine = engine::open_quietly(choice, for_replay())?;
        match derive(recording, machine, wanted.records(), wanted.filter) {
            Ok(mut derived) => {
                let origin = format!(
                    "{}branch records: derived on the software CPU{}\n",
                    about.origin,
                    not_the(instead_of.as_ref())
                );
                derived.write_core(recording, &origin).map_err(|e| Failure::new(Code::Write, e))
            }
            Err(error) => {
                say!("gretel: the core has no branch records: {error}");
                Ok(())
            }
        }
    }
}

/// Branch records that were derived from a checkpoint shortly before the crash.
fn of_near_past(last: &LastBranches, instead_of: Option<&Refused>) -> Captured {
    let origin = format!(
        "branch records: derived on the software CPU, from a checkpoint shortly before the crash{}\n",
        not_the(instead_of)
    );
    Captured { trail: last.trail.to_bytes(), origin, counters: last.counters }
}

/// Why they are not the processor's, for the core's note.
fn not_the(refused: Option<&Refused>) -> String {
    let why = refused.map(|why| format!(" (not the processor's: {why})"));
    why.unwrap_or_default().replace('\n', " ")
}
