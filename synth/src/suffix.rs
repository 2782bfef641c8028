//! The result of a synthesis: where to start, what the kernel answers, and the path from there to the core.
//!
//! As a file it is JSON with a version (docs/suffix.md); addresses, register values and bytes are hexadecimal
//! strings, since most readers of JSON keep only 53 bits of a number.

mod file;

use std::path::Path;
use vmm::elfcore::SignalInfo;
use vmm::memory::layout::TIME_PAGE;
use vmm::signal_frame::Place;
use x86::state::State;

/// Where a value at the start of the suffix comes from.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// It is in the core, or follows from constants of the program.
    #[default]
    Core,
    /// It is not in the core, but no other value leads there.
    Forced,
    /// Others would lead there too: this one was chosen.
    Chosen,
}

/// The origins of the start's registers.
#[derive(Clone, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct RegisterOrigins {
    /// Of the general registers by hardware number.
    pub gpr: [Origin; 16],
    /// Of the arithmetic flags and the direction flag together.
    pub flags: Origin,
    /// Of the vector registers.
    pub vector: [Origin; 32],
    /// Of the opmask registers together.
    pub opmask: Origin,
    /// Of the x87 registers and the control registers together.
    pub fpu: Origin,
    /// Of the bases of FS and GS together, of a kernel both of GS.
    pub bases: Origin,
}

impl RegisterOrigins {
    /// All the same.
    #[must_use]
    pub fn all(origin: Origin) -> RegisterOrigins {
        RegisterOrigins {
            gpr: [origin; 16],
            flags: origin,
            vector: [origin; 32],
            opmask: origin,
            fpu: origin,
            bases: origin,
        }
    }
}

/// Memory at the start that is not simply what the core has there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartMemory {
    /// The first address.
    pub address: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Their origins, one for each.
    pub origins: Vec<Origin>,
}

/// What the kernel did in a system call inside the suffix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuffixInput {
    /// The index in [`Suffix::path`] of the SYSCALL instruction; of a late answer, that of the first one behind it.
    pub step: usize,
    /// The call had waited, and this came when its thread got the processor again.
    pub late: bool,
    /// What it returned in rax.
    pub result: u64,
    /// What it wrote: addresses and bytes, in order.
    pub writes: Vec<(u64, Vec<u8>)>,
    /// Whether these values are forced.
    pub origin: Origin,
    /// What gretel's own kernel left in the clock's page ([`TIME_PAGE`]) behind it, for the vDSO; empty where Linux served it. No
    /// input of the call, and never said to be forced.
    pub clock: Vec<u8>,
}

/// What a kernel was given from outside of its processor: by RDTSC, RDTSCP or IN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuffixAnswer {
    /// The index in [`Suffix::path`] of the instruction.
    pub step: usize,
    /// The time stamp, or what came from the port.
    pub value: u64,
    /// Whether it is forced.
    pub origin: Origin,
}

impl SuffixInput {
    /// All that the kernel stored: the clock's page last.
    pub(crate) fn stores(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let writes = self.writes.iter().map(|(address, bytes)| (*address, bytes.as_slice()));
        writes.chain((!self.clock.is_empty()).then_some((TIME_PAGE, self.clock.as_slice())))
    }
}

/// A signal whose handler was entered inside the suffix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuffixSignal {
    /// The index in [`Suffix::path`] of the handler's first instruction; the path's length if that is the one that crashes.
    pub step: usize,
    /// The thread that got it.
    pub thread: u32,
    /// The instruction that was next raised it, and did not retire; else it came between two.
    pub raised: bool,
    /// The frame: the stack pointer with which the handler begins.
    pub frame: u64,
    /// What the kernel stored: the frame, and the image of the x87 and vector state.
    pub writes: Vec<(u64, Vec<u8>)>,
    /// Whether what no register tells of that (the signal and what is said of it, the mask, the alternate stack) is forced.
    pub origin: Origin,
}

impl SuffixSignal {
    /// Reads what the kernel stored; false, with nothing promised about `bytes`, where it did not.
    #[must_use]
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let piece = self.writes.iter().find_map(|(start, stored)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            stored.get(at..at.checked_add(bytes.len())?)
        });
        piece.map(|piece| bytes.copy_from_slice(piece)).is_some()
    }

    /// What the `siginfo_t` says: number, code, address.
    #[must_use]
    pub fn info(&self) -> SignalInfo {
        let (mut number, mut code, mut address) = ([0; 4], [0; 4], [0; 8]);
        if let Some(at) = Place::of_frame(self.frame).map(Place::info) {
            let _ = self.read(at, &mut number)
                && self.read(at + 8, &mut code)
                && self.read(at + 16, &mut address);
        }
        let [signo, code] = [number, code].map(i32::from_le_bytes);
        SignalInfo { signo, code, address: u64::from_le_bytes(address) }
    }

    /// The number of the signal; zero in a file that was changed.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.info().signo
    }
}

/// A thread gets the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// The index in [`Suffix::path`] of the first instruction that it runs; the path's length if it only crashes.
    pub step: usize,
    /// Its id.
    pub thread: u32,
}

/// A thread that takes part, and has not the processor at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherThread {
    /// Its id.
    pub thread: u32,
    /// Its registers at the start.
    pub start: State,
    /// Their origins.
    pub registers: RegisterOrigins,
    /// It is in a system call, which is answered at its first turn.
    pub waits: bool,
}

/// The branch records that the path was checked against.
#[derive(Clone, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Coverage {
    /// How many records there were.
    pub records: usize,
    /// How many instructions at the end of the path they cover; zero without records.
    pub instructions: usize,
}

/// An execution that ends in the core.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Suffix {
    /// The registers at the start.
    pub start: State,
    /// Of a kernel: the base of GS that SWAPGS brings there.
    pub inactive_gs: Option<u64>,
    /// The origins of those registers.
    pub registers: RegisterOrigins,
    /// Memory at the start, where it differs from the core or was not simply taken from it.
    pub memory: Vec<StartMemory>,
    /// The address of each instruction that retires, oldest first. A repeated string instruction appears once
    /// for each iteration. The instruction that faults at the end is not in it.
    pub path: Vec<u64>,
    /// The system calls inside, by step.
    pub inputs: Vec<SuffixInput>,
    /// What a kernel was given from outside, by step.
    pub answers: Vec<SuffixAnswer>,
    /// The signals that were delivered inside, by step.
    pub signals: Vec<SuffixSignal>,
    /// What the branch records cover.
    pub coverage: Coverage,
    /// The end of the path that nothing was chosen for.
    pub forced: Forced,
    /// Which thread runs when, from step 0 on; none where all is of the thread that crashed.
    pub turns: Vec<Turn>,
    /// The threads that have not the first turn, by id.
    pub others: Vec<OtherThread>,
}

/// The end of a path in which each step, and each address that was stored to, is forced. What lies before it is one
/// possibility of several, and so are all values there.
#[derive(Clone, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forced {
    /// How many instructions.
    pub steps: usize,
    /// The origins of the registers where it begins, of the thread that has the processor there.
    pub registers: RegisterOrigins,
    /// Of the other threads that it comes to.
    pub others: Vec<(u32, RegisterOrigins)>,
    /// Pieces of memory there that are not simply the core's: the first address, and an origin for each byte.
    pub memory: Vec<(u64, Vec<Origin>)>,
}

impl Suffix {
    /// What is given at this step.
    #[must_use]
    pub fn answer_at(&self, step: usize) -> Option<&SuffixAnswer> {
        let found = self.answers.binary_search_by_key(&step, |read| read.step);
        found.ok().map(|n| &self.answers[n])
    }

    /// The number of instructions that retire.
    #[must_use]
    pub fn len(&self) -> usize {
        self.path.len()
    }

    /// Whether no instruction was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.path.is_empty()
    }

    /// The steps at which another thread gets the processor.
    pub fn switches(&self) -> impl Iterator<Item = &Turn> {
        self.turns.iter().skip(1)
    }

    /// The length in multiples of what the branch records cover; `None` without records.
    #[must_use]
    pub fn reach(&self) -> Option<f64> {
        let count = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        (self.coverage.instructions > 0).then(|| count(self.len()) / count(self.coverage.instructions))
    }

    /// How many of the general registers and listed memory bytes have each origin, core, forced and chosen, where the
    /// forced part begins: before it all are chosen.
    #[must_use]
    pub fn origins(&self) -> [usize; 3] {
        let whole = self.forced.steps == self.len();
        let registers = if whole { &self.registers } else { &self.forced.registers };
        let pieces: Vec<&Vec<Origin>> = match whole {
            true => self.memory.iter().map(|piece| &piece.origins).collect(),
            false => self.forced.memory.iter().map(|(_, origins)| origins).collect(),
        };
        let mut counts = [0; 3];
        for origin in registers.gpr.iter().chain(pieces.into_iter().flatten()) {
            counts[*origin as usize] += 1;
        }
        counts
    }

    /// Writes the suffix to a file that only its owner can read: it holds the program's memory.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), SuffixError> {
        file::save(self, path)
    }

    /// Reads a suffix.
    ///
    /// # Errors
    /// When the file cannot be read, is not a suffix, or is of another version.
    pub fn load(path: &Path) -> Result<Suffix, SuffixError> {
        file::load(path)
    }
}

/// Why a suffix cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SuffixError {
    /// The file system refuses.
    #[error("cannot {action} {path}: {error}")]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: String,
        /// Why not.
        error: std::io::Error,
    },
    /// It is not a suffix, or is damaged.
    #[error("{path} is not a usable suffix: {what} (make it again with `gretel synth -o`)")]
    Content {
        /// The file.
        path: String,
        /// What is wrong.
        what: String,
    },
}
