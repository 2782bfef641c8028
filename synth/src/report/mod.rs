//! What people and scripts see of a suffix: every instruction, oldest first, with its function, source line and the values
//! that it read and wrote.
//!
//! Example: the fourth instruction before a crash is this line for people, and an object with the same data for scripts
//! (docs/suffix.md):
//!
//! ```text
//!      -4  55555555525b  add rsi, [rax+0x10]                      rsi=0x7  rax=0x55555555a2b0
//!                         [0x55555555a2c0]=0x2d6e612d726f662d  -> rsi=0x2d6e612d726f6634
//! ```
//!
//! | part | modules |
//! | --- | --- |
//! | the suffix run again, and the values that it read and wrote | [`trace`], [`uses`], [`origins`] (how uncertain they are), [`signals`], [`fault`] (why the last instruction did not retire) |
//! | laid out for people; `serde` gives the same data to scripts | [`text`], [`style`] |
//! | a suffix against the truth, where there is one | [`metrics`] |
//! | why it goes no further back | [`explain`] |
//! | what input has come to | [`exploitability`] |
//! | its history, for the slice of a value | [`mod@slice`] |

pub mod explain;
pub mod exploitability;
pub mod fault;
pub mod metrics;
mod origins;
mod signals;
pub mod slice;
mod style;
mod text;
pub(crate) mod trace;
pub(crate) mod uses;

use crate::certificate::{Certificate, CertificateError, DontCare};
use crate::program::Program;
use crate::suffix::{Origin, Suffix};
use serde::{Serialize, Serializer};
pub use signals::Came;
pub use trace::written;
pub use uses::{Use, Used};
use vmm::elfcore::Core;

/// No line of the text is longer, unless its width is given: `{listing:80}`. With `{listing:#}` it has colours.
pub const COLUMNS: usize = 110;

/// A certified suffix with all its values.
#[derive(Clone, Debug, Serialize)]
pub struct Listing {
    /// What was proved.
    pub summary: Summary,
    /// The instructions, oldest first.
    pub steps: Vec<Step>,
    /// The crash.
    pub crash: Crash,
}

/// What was proved.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Always "certified": an uncertified suffix has no listing.
    pub verdict: &'static str,
    /// The engines that ran it.
    pub engines: Vec<&'static str>,
    /// Why KVM is not among them.
    pub without_kvm: Option<String>,
    /// Instructions.
    pub instructions: usize,
    /// How many of the last of them are forced: nothing else leads to the core.
    pub forced: usize,
    /// Branch records that it reproduces.
    pub records: usize,
    /// Branch records that there were to reproduce: more than `records` if the suffix ends before the oldest.
    pub given: usize,
    /// Exits that it makes as the crumbs have them, and between how many of them as much retires as was counted.
    pub crumbs: [usize; 2],
    /// Between how many of them as many branches are taken as was counted.
    pub taken_branches: usize,
    /// At how many of them the stack is the one of their calling context.
    pub contexts: usize,
    /// Switches of threads that it makes as the crumbs have them.
    pub switches: usize,
    /// Signals that are delivered in it as their frames say.
    pub signals: usize,
    /// Instructions that the branch records cover.
    pub covered: usize,
    /// Length in multiples of that; absent without records.
    pub reach: Option<f64>,
    /// Bytes of memory that were compared with the core.
    pub compared_bytes: u64,
    /// What was not compared.
    pub dont_care: Vec<DontCare>,
    /// Values where the forced part begins (general registers and listed bytes) that are in the core, inferred, chosen.
    pub origins: [usize; 3],
}

/// One instruction.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// How many instructions before the crash: from the length of the suffix down to 1.
    pub before_crash: usize,
    /// The thread that ran it.
    pub task: u32,
    /// Its address.
    #[serde(serialize_with = "hex")]
    pub address: u64,
    /// Where that is.
    #[serde(flatten)]
    pub place: Place,
    /// The instruction.
    pub text: String,
    /// Iterations, for a repeated string instruction; else 1.
    pub iterations: usize,
    /// Whether the branch records cover it.
    pub covered: bool,
    /// Whether it, and all that follows, is forced: else it is one possibility of several.
    pub forced: bool,
    /// Whether a conditional branch was taken.
    pub taken: Option<bool>,
    /// What it read.
    pub reads: Vec<Value>,
    /// The same as bytes, to compare with.
    #[serde(skip)]
    pub uses: Vec<Use>,
    /// Whether it retired: all do but a repeated string instruction that crashes.
    #[serde(skip)]
    pub retired: bool,
    /// What it wrote.
    pub writes: Vec<Value>,
    /// What the kernel did, for a system call.
    pub call: Option<Call>,
    /// The signals that came right before it: it is the first instruction of the last one's handler.
    pub came: Vec<Came>,
}

/// Where an instruction is in the program and its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The function that it is in.
    pub function: Option<String>,
    /// The functions that were inlined there, the innermost first.
    pub inlined: Vec<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
}

/// A value in a register or in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Value {
    /// The register's name, or the address in brackets.
    pub place: String,
    /// The value as a hexadecimal number.
    pub value: String,
    /// Where it comes from: the worst of what it was computed from.
    pub origin: Origin,
}

/// A system call.
#[derive(Clone, Debug, Serialize)]
pub struct Call {
    /// Its number.
    pub number: u64,
    /// Its result in rax; null if it waits in the core.
    pub result: Option<Value>,
    /// It waited, and other threads ran before the kernel answered.
    pub late: bool,
    /// How many bytes the kernel wrote.
    pub written: usize,
}

/// How it ends.
#[derive(Clone, Debug, Serialize)]
pub struct Crash {
    /// The thread that crashed.
    pub task: u32,
    /// The signal's name.
    pub signal: String,
    /// The instruction pointer.
    #[serde(serialize_with = "hex")]
    pub address: u64,
    /// The address that could not be used, for memory faults where it is known.
    #[serde(serialize_with = "hex_if_known")]
    pub accessed: Option<u64>,
    /// What is known of a memory fault, in words.
    pub cause: Option<String>,
    /// Where that is.
    #[serde(flatten)]
    pub place: Place,
    /// The signals that came right before it.
    pub came: Vec<Came>,
    /// The instruction that did not retire; absent when the signal was sent.
    pub text: Option<String>,
}

impl Listing {
    /// Runs the suffix again, and collects what it does.
    ///
    /// # Errors
    /// When the run fails, which a certificate for the same suffix excludes.
    pub fn new(
        program: &Program,
        core: &Core,
        suffix: &Suffix,
        certificate: &Certificate,
    ) -> Result<Listing, CertificateError> {
        let (steps, crash) = trace::collect(program, core, suffix)?;
        let summary = Summary {
            verdict: "certified",
            engines: certificate.engines.iter().map(|engine| engine.name()).collect(),
            without_kvm: certificate.without_kvm.clone(),
            instructions: suffix.len(),
            forced: suffix.forced.steps,
            records: certificate.records,
            given: suffix.coverage.records,
            crumbs: certificate.crumbs,
            taken_branches: certificate.taken_branches,
            contexts: certificate.contexts,
            switches: certificate.switches,
            signals: certificate.signals,
            covered: suffix.coverage.instructions,
            reach: suffix.reach(),
            compared_bytes: certificate.compared_bytes,
            dont_care: certificate.dont_care.clone(),
            origins: suffix.origins(),
        };
        Ok(Listing { summary, steps, crash })
    }
}

/// Most readers of JSON keep only 53 bits of a number.
fn hex<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:#x}"))
}

fn hex_if_known<S: Serializer>(number: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => hex(number, serializer),
        None => serializer.serialize_none(),
    }
}
