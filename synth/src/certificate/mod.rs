//! The proof of a suffix: run forward from its start image, it must end in the core.
//!
//! Example: a suffix has 86 instructions, and the core 16 branch records. [`stage`] maps the core's memory with the
//! suffix's own bytes over it. [`forward`] runs 86 instructions on the software CPU and compares each address with the path
//! and the taken branches with the 14 records that it covers; then `add rsi, [rax+0x10]` faults as the program did.
//! [`compare`] finds 2,514,944 bytes and all registers equal, and lists what it left out, such as AF behind `test`.
//! [`native`] runs the same whole under KVM.
//!
//! | part | module |
//! | --- | --- |
//! | the start image on an engine | [`stage`] |
//! | instruction by instruction on the software CPU; along the path, the branch records and the crumbs | [`forward`]; [`stepped`] |
//! | which thread has the processor, and where the others stand; signals | [`threads`]; [`signals`] |
//! | the exits and switches, against the crumbs; their stacks, against the contexts | [`exits`]; [`contexts`] |
//! | how the program died | [`ending`] |
//! | whole under KVM | [`native`] |
//! | a kernel's suffix, on the machine's software CPU | [`ring0`] |
//! | the end: every dumped byte and every register of every thread that took part, but for an explicit list | [`compare`] |
//! | a certified suffix to walk about in | [`walk`] |
//!
//! The search and the software CPU share one semantics of instructions; KVM runs on the processor itself, and so is the
//! independent witness where there is one.

mod compare;
mod contexts;
mod ending;
mod exits;
pub(crate) mod forward;
mod native;
mod ring0;
pub(crate) mod signals;
pub(crate) mod stage;
mod stepped;
pub(crate) mod threads;
pub mod walk;

use crate::evidence::Anchors;
use crate::suffix::Suffix;
use std::path::PathBuf;
use std::time::Duration;
use stepped::Stepped;
use vmm::elfcore::Core;
use vmm::engine::{EngineError, EngineKind, Exit};
use vmm::sandbox::SandboxError;
use x86::op::BranchKind;

/// The length of SYSCALL in bytes: at its exit rip is behind it.
const SYSCALL_LENGTH: u64 = 2;

/// What to certify against what.
pub struct Request<'a> {
    /// Where the suffix must end.
    pub core: &'a Core,
    /// The suffix.
    pub suffix: &'a Suffix,
    /// The branch records, (from, to), newest first.
    pub records: &'a [(u64, u64)],
    /// The kinds of branches that the records' filter lets through.
    pub recorded: &'a [BranchKind],
    /// The exits of the thread that crashed.
    pub anchors: &'a Anchors,
    /// How long the run under KVM may take.
    pub time: Duration,
    /// Whether KVM may be used.
    pub kvm: bool,
}

/// Something that was not compared.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DontCare {
    /// What.
    pub what: String,
    /// Why not.
    pub why: String,
}

/// Where a run first left the path, or how its end differs from the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The engine that ran it.
    pub engine: EngineKind,
    /// The index in the path; `None` at the end.
    pub step: Option<usize>,
    /// What differs.
    pub what: String,
    /// What it should have been.
    pub expected: String,
    /// What it was.
    pub found: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.step {
            Some(step) => write!(f, "at instruction {step} on {}: ", self.engine.name())?,
            None => write!(f, "at the end on {}: ", self.engine.name())?,
        }
        write!(f, "{}: expected {}, found {}", self.what, self.expected, self.found)
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The suffix ends in the core.
    Certified(Box<Certificate>),
    /// It does not.
    Rejected(Difference),
    /// It cannot be judged: the path has an instruction that is not a function of the start image.
    Refused {
        /// The index in the path of that instruction; the path's length for the one that crashed.
        step: usize,
        /// Why.
        reason: String,
    },
}

/// What was proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The engines on which the suffix ended in the core.
    pub engines: Vec<EngineKind>,
    /// Why KVM is not among them.
    pub without_kvm: Option<String>,
    /// How many branch records the run reproduced.
    pub records: usize,
    /// How many exits it made as the crumbs have them, and between how many of them as much retired as was counted.
    pub crumbs: [usize; 2],
    /// Between how many of them as many branches were taken as was counted.
    pub taken_branches: usize,
    /// At how many of them the stack was the one of their calling context.
    pub contexts: usize,
    /// How many switches of threads it made as the crumbs have them.
    pub switches: usize,
    /// How many signals were delivered as their frames say.
    pub signals: usize,
    /// How many bytes of memory are equal.
    pub compared_bytes: u64,
    /// What was not compared.
    pub dont_care: Vec<DontCare>,
}

/// Why no verdict could be reached.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The engine, or its memory.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The suffix starts with other code or constants than the core.
    #[error("the suffix changes memory at {address:#x}, where the program cannot write")]
    ConstantMemory {
        /// Where.
        address: u64,
    },
    /// The core is no longer what it was.
    #[error("{} was truncated while it was read: nothing can be said of it", .0.display())]
    CutCore(PathBuf),
    /// A system call without an answer.
    #[error("the suffix has no result for the system call at instruction {step}")]
    NoInput {
        /// The index in the path.
        step: usize,
    },
    /// A turn of a thread that has none.
    #[error("the suffix does not say how the thread stands that runs from instruction {step} on")]
    NoThread {
        /// The index in the path.
        step: usize,
    },
}

/// Runs the suffix on the software CPU, and under KVM where that is possible, and compares.
///
/// # Errors
/// When an engine fails, or the suffix contradicts itself. A suffix that merely does not end in the core is
/// no error but [`Verdict::Rejected`].
pub fn certify(request: &Request<'_>) -> Result<Verdict, CertificateError> {
    let mut run = match Stepped::run(request)? {
        Ok(run) => run,
        Err(verdict) => return Ok(verdict),
    };
    let undefined = run.undefined().clone();
    let compared = compare::with_core(EngineKind::Soft, run.forward.stage(), request.core, &undefined)?;
    let compared_bytes = match compared {
        Ok(bytes) => bytes,
        Err(difference) => return Ok(Verdict::Rejected(difference)),
    };
    let mut parked = run.forward.parked();
    let differs = parked.find_map(|(thread, found)| {
        compare::parked(EngineKind::Soft, (thread, found), request.core, run.undefined_of(thread))
    });
    if let Some(difference) = differs {
        return Ok(Verdict::Rejected(difference));
    }
    let mut engines = vec![EngineKind::Soft];
    let without_kvm = match native::run(request, &run)? {
        native::Native::Same => {
            engines.push(EngineKind::Kvm);
            None
        }
        native::Native::Different(difference) => return Ok(Verdict::Rejected(difference)),
        native::Native::Unavailable(reason) => Some(reason),
    };
    if request.core.was_cut() {
        return Err(CertificateError::CutCore(request.core.path.clone()));
    }
    let has_signals = !request.suffix.signals.is_empty();
    let mut dont_care =
        compare::dont_care(request.core, compared_bytes, run.undefined(), has_signals, run.records);
    dont_care.extend(compare::not_of_crumbs(request, &run.compared));
    Ok(Verdict::Certified(Box::new(Certificate {
        engines,
        without_kvm,
        records: run.records,
        crumbs: run.compared.crumbs,
        taken_branches: run.compared.taken,
        contexts: run.compared.contexts,
        switches: run.compared.switches,
        signals: request.suffix.signals.len(),
        compared_bytes,
        dont_care,
    })))
}

fn rejected(step: usize, what: &str, expected: String, found: String) -> Verdict {
    let what = what.to_owned();
    Verdict::Rejected(Difference { engine: EngineKind::Soft, step: Some(step), what, expected, found })
}

/// An exit in a message.
fn name(exit: &Exit) -> String {
    match exit {
        Exit::Exception(e) if e.vector == 14 => format!("a page fault at {:#x}", e.address),
        Exit::Exception(e) => format!("exception {}", e.vector),
        Exit::Syscall => "a system call".to_owned(),
        Exit::Budget => "an instruction that retires".to_owned(),
        Exit::Interrupted => "no end in the time allowed".to_owned(),
        other => format!("{other:?}"),
    }
}
