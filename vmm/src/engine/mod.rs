//! What executes the guest's instructions: one interface, [`Cpu`], for KVM and for the software CPU.
//!
//! A processor holds registers, the root of the page tables, model-specific registers and counts. Memory is not its own: it
//! is handed a `&mut Memory` to run against, until an exit, a retired count or a given instruction. So one processor can go
//! on where another one stopped, with its state. Everything that the program cannot do alone comes back as an [`Exit`]. The
//! personality, the journal and the tests never ask which processor runs.
//!
//! Example: `mov [rdi], al` to a page that is not there leaves the guest as
//! `Exit::Exception { vector: 14, error_code: 6, address: rdi }`, with rip at the instruction and nothing of it done.
//!
//! The map: [`kvm`] and [`soft`] are the two processors. [`interrupt`] makes a running one come back, [`lookout`] is what
//! it is asked to come back for while a recording is looked at ([`accessed`]: what an instruction is about to access),
//! [`runs`] is which instructions ran, [`code`] and [`flags`] are the instruction at an exception, and what RFLAGS may be
//! in ring 3.

pub mod accessed;
mod code;
mod flags;
mod interrupt;
pub mod kvm;
pub mod lookout;
mod runs;
pub mod soft;

pub(crate) use code::linear_address;
pub use interrupt::Interrupter;
pub(crate) use interrupt::kick_signal;
pub use runs::Run;

use crate::cpu_model::Model;
use crate::plain::plain;
use crate::ram::{Memory, NoMemory};
pub use crate::ram::{Phys, StalePage, Virt};
use lbr::crumb::Counts;
use lookout::{Accessed, Lookout};
use std::time::{Duration, Instant};
use x86::machine::MachineRead;
use x86::state::{Fpu, MxcsrMask, Regs};

/// Which engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineKind {
    /// Hardware, through /dev/kvm.
    Kvm,
    /// The software CPU.
    Soft,
}

impl EngineKind {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Kvm => "kvm",
            EngineKind::Soft => "soft",
        }
    }
}

/// Memory, and the processor that runs against it.
pub struct Machine<C: Cpu + ?Sized = dyn Cpu> {
    /// The guest's memory.
    pub memory: Memory,
    /// The processor.
    pub cpu: Box<C>,
    /// KVM, if it may take turns with the software CPU, which begins.
    pub kvm: Option<kvm::Waiting>,
}

impl<C: Cpu + 'static> Machine<C> {
    /// The same, whatever its processor is.
    #[must_use]
    pub fn any(self) -> Machine {
        Machine { memory: self.memory, cpu: self.cpu, kvm: self.kvm }
    }
}

impl<C: Cpu + ?Sized> Machine<C> {
    /// Runs the guest.
    ///
    /// # Errors
    /// As [`Cpu::run`].
    pub fn run(&mut self, until: Until) -> Result<Exit, EngineError> {
        self.cpu.run(&mut self.memory, until)
    }
}

/// Makes a machine with `bytes` of guest memory.
///
/// # Errors
/// When the host does not give the memory, or the virtual machine.
pub fn open(kind: EngineKind, bytes: u64) -> Result<Machine, EngineError> {
    Ok(match kind {
        EngineKind::Kvm => kvm::KvmCpu::machine(bytes)?.any(),
        EngineKind::Soft => soft::SoftCpu::machine(bytes)?.any(),
    })
}

/// Makes a machine on which the software CPU begins, and `kvm` takes turns with it where that pays
/// ([`crate::process::Process::suit_processor`]).
///
/// # Errors
/// When the host does not give the memory.
pub fn open_both(kvm: kvm::Waiting, bytes: u64) -> Result<Machine, EngineError> {
    let memory = kvm::Waiting::memory(bytes)?;
    Ok(Machine { memory, cpu: Box::new(soft::SoftCpu::new()?), kvm: Some(kvm) })
}

/// When to come back even though the guest asks for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Only at an exit.
    Exit,
    /// When exactly this many instructions have retired since the processor was made ([`Counters::instructions`]).
    /// Processors that do not count refuse it with [`EngineError::CannotCount`].
    Retired(u64),
    /// Before the instruction at this address; the one at which the guest stands is executed first. Processors that do not
    /// count refuse it likewise.
    At(Virt),
    /// Whichever of the two is first. Processors that do not count refuse it likewise.
    AtOrRetired(Virt, u64),
    /// The same, but the guest may pass the address while its general registers are not these, in the order of their encoding.
    StateOrRetired(Virt, [u64; 16], u64),
}

/// Why the engine came back. In every case [`Cpu::regs`] is the guest's user-mode state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// SYSCALL retired: rip is the next instruction, rcx = rip and r11 = rflags as the processor writes them.
    Syscall,
    /// An exception; rip is the instruction that faulted (for #BP: the next one, as on hardware).
    Exception(Exception),
    /// An instruction that reads the machine; rip is that instruction, nothing of it has happened yet.
    MachineRead(MachineRead),
    /// The bound of [`Until::Retired`] or [`Until::At`] is reached.
    Budget,
    /// Something is there that was looked for ([`Cpu::look_out`]): rip is the instruction, which has not run, or
    /// [`Cpu::seen`] says what the one before it accessed.
    Seen,
    /// [`Interrupter::interrupt`] was called, or a signal arrived on the thread.
    Interrupted,
    /// [`Interrupter::kick`] was called, between two instructions (or inside one that repeats).
    Kicked,
    /// The instruction at rip gives another result on other processors, one of which is to execute it
    /// ([`Cpu::leave_differing`]).
    Differing,
    /// The software CPU has no semantics for the instruction at rip.
    NoSemantics {
        /// Its bytes; those after `len` are zero.
        bytes: [u8; 15],
        /// How many of them are the instruction.
        len: u8,
    },
}

/// A processor exception in ring 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The vector: 0 #DE, 1 #DB, 3 #BP, 4 #OF, 6 #UD, 11 #NP, 12 #SS, 13 #GP, 14 #PF, 16 #MF, 17 #AC, 19 #XM.
    pub vector: u8,
    /// The error code; zero for vectors that have none. For #PF: bit 0 present, 1 write, 2 user, 4 fetch.
    pub error_code: u32,
    /// CR2, for #PF; else zero.
    pub address: Virt,
}
plain!(struct Exception { vector, error_code, address });

/// Exact counts of what the guest's user mode has retired since the engine was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counters {
    /// Instructions; a whole REP string instruction counts as one.
    pub instructions: u64,
    /// Taken branches.
    pub taken_branches: u64,
    /// Conditional branches, taken or not.
    pub conditional_branches: u64,
}
plain!(struct Counters { instructions, taken_branches, conditional_branches });

impl From<Counters> for Counts {
    fn from(counters: Counters) -> Counts {
        Counts {
            instructions: Some(counters.instructions),
            taken_branches: Some(counters.taken_branches),
            conditional_branches: Some(counters.conditional_branches),
            derived: false,
        }
    }
}

/// One virtual processor.
pub trait Cpu {
    /// Which kind it is.
    fn kind(&self) -> EngineKind;
    /// Uses the page tables whose top level is at `root` from now on.
    fn set_page_table(&mut self, root: Phys);
    /// The integer registers.
    fn regs(&self) -> &Regs;
    /// Sets the integer registers.
    fn set_regs(&mut self, regs: &Regs) -> Result<(), EngineError>;
    /// The x87 and vector registers (slow on KVM: not for every exit).
    fn fpu(&mut self) -> Result<Fpu, EngineError>;
    /// Whether a program that is told of this processor finds all of it here.
    ///
    /// # Errors
    /// [`EngineError::Lacks`] where it would not.
    fn require(&self, model: Model) -> Result<(), EngineError>;
    /// Sets the x87 and vector registers.
    fn set_fpu(&mut self, fpu: &Fpu) -> Result<(), EngineError>;
    /// Runs the guest, after forgetting what [`Memory::invalidate`] says.
    ///
    /// # Errors
    /// When the processor fails, and for a bound that it does not know.
    fn run(&mut self, memory: &mut Memory, until: Until) -> Result<Exit, EngineError>;
    /// How long a system call takes that leaves the virtual machine, out and in again: measured when that was made. Nothing
    /// where there is none to leave.
    fn exit_cost(&self) -> Duration {
        Duration::ZERO
    }
    /// Exact counts, where the engine has them; never an estimate.
    fn counters(&self) -> Option<Counters>;
    /// Goes on counting from these, on a processor that counts exactly: its counts are then those of the state that it was
    /// given.
    fn set_counters(&mut self, _counters: Counters) {}
    /// What has retired, as far as something counts it: exactly on the software CPU; on KVM by the processor's counters,
    /// which have errors of their own ([`lbr::perf::retired::Events`]). What nothing counts is absent.
    fn counts(&self) -> Counts {
        self.counters().map(Counts::from).unwrap_or_default()
    }
    /// Counts no longer by the processor's counters; what is counted exactly still is.
    fn stop_counting(&mut self) {}
    /// Reads model-specific registers (branch records and their controls) as KVM_GET_MSRS does: stops at the
    /// first that it refuses, and gives those before it.
    fn read_msrs(&mut self, indices: &[u32]) -> Result<Vec<u64>, EngineError>;
    /// Writes model-specific registers as KVM_SET_MSRS does: gives the number written before the first refusal.
    fn write_msrs(&mut self, entries: &[(u32, u64)]) -> Result<usize, EngineError>;
    /// The frames that the guest has written since the last call, or ever, where the processor knows them.
    fn take_written(&mut self) -> Option<Vec<Phys>> {
        None
    }
    /// From now on the software CPU's FXSAVE stores this as MXCSR_MASK; other processors store their own.
    fn set_mxcsr_mask(&mut self, _mask: MxcsrMask) {}
    /// Says which program will run, by a digest, before anything has: the software CPU takes the code that an earlier run has
    /// compiled of it, and keeps what this one compiles, if that is wanted ([`soft::kept::keep_in`]).
    fn expect_program(&mut self, _digest: u64) {}
    /// From now on the software CPU does not execute what differs between processors, but comes back with
    /// [`Exit::Differing`]; or it does.
    fn leave_differing(&mut self, _leave: bool) {}
    /// From now on [`Cpu::run`] comes back for these with [`Exit::Seen`], too, until told otherwise.
    ///
    /// # Errors
    /// Where the processor cannot see them, unless there is nothing to look for.
    fn look_out(&mut self, lookout: &Lookout) -> Result<(), EngineError> {
        if lookout.is_empty() { Ok(()) } else { Err(EngineError::CannotCount(self.kind().name())) }
    }
    /// What the last instruction accessed, if the last run came back for that.
    fn seen(&self) -> Option<Accessed> {
        None
    }
    /// From now on it notes which instructions run; or no longer.
    ///
    /// # Errors
    /// Where the processor cannot, unless it is not to.
    fn note_runs(&mut self, note: bool) -> Result<(), EngineError> {
        if note { Err(EngineError::CannotCount(self.kind().name())) } else { Ok(()) }
    }
    /// What has run since the last call, each with a number: the higher, the later it ran last.
    fn take_runs(&mut self) -> Vec<(Run, u64)> {
        Vec::new()
    }
    /// Has the next runs come back with [`Exit::Kicked`] once, soon behind this time, on a processor that counts: the others are
    /// kicked.
    fn come_back_by(&mut self, _time: Option<Instant>) {}
    /// A handle by which another thread, or a signal handler, makes [`Cpu::run`] come back.
    fn interrupter(&self) -> Interrupter;
    /// From now on that handle does, which another processor had before.
    fn set_interrupter(&mut self, interrupter: Interrupter);
}

/// Branch records are armed and captured through the registers of any engine.
impl lbr::MsrAccess for dyn Cpu + '_ {
    type Error = EngineError;

    fn read(&mut self, indices: &[u32]) -> Result<Vec<u64>, EngineError> {
        self.read_msrs(indices)
    }

    fn write(&mut self, entries: &[(u32, u64)]) -> Result<usize, EngineError> {
        self.write_msrs(entries)
    }
}

/// What helps where KVM cannot be used.
fn remedy(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "join the group that it belongs to, as by `sudo usermod -aG kvm $USER`, and log in again"
        }
        std::io::ErrorKind::NotFound => {
            "load the module kvm_intel or kvm_amd, and in a container or a virtual machine, have it passed on"
        }
        _ => "see `gretel doctor`",
    }
}

/// What goes wrong in an engine (never a trap of the guest, which is an [`Exit`]).
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The KVM device cannot be used.
    #[error("cannot use {}: {error} ({}, or do without: --engine soft)", device.display(), remedy(error))]
    KvmUnavailable {
        /// What was tried: /dev/kvm, or what GRETEL_KVM_DEVICE names.
        device: std::path::PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// A KVM call failed.
    #[error("{call} failed: {error}")]
    Kvm {
        /// The ioctl.
        call: &'static str,
        /// Its error.
        error: std::io::Error,
    },
    /// KVM gave an exit that the process guest cannot have.
    #[error("unexpected exit from KVM: {0}")]
    UnexpectedExit(String),
    /// The engine does not count instructions.
    #[error("engine {0} cannot stop at an instruction count")]
    CannotCount(&'static str),
    /// The host has less than the CPU model.
    #[error(
        "CPU model {} has {what}, which this host does not give to a virtual machine: use --engine soft, or \
         record with --cpu {}",
        model.name(),
        Model::V2.name()
    )]
    Lacks {
        /// The model.
        model: Model,
        /// What is missing.
        what: &'static str,
    },
    /// Guest memory could not be had.
    #[error(transparent)]
    Memory(#[from] NoMemory),
}
