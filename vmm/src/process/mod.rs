//! A Linux program as a guest: its memory, its engine, and the loop that serves it.
//!
//! [`Process::step`] runs the engine to its next exit, [`exit::decide`] says what the exit means, and the
//! process carries that out. Where things are: [`elf`] (what a program file says), [`layout`] (where things go in the address
//! space, and the first stack), [`space`] (the address space: what is mapped, and what is resident), [`machine_reads`] (CPUID, RDTSC and
//! their like, made deterministic), [`vdso`] (the clock without an exit). System calls and signals are
//! [`crate::linux`].

use crate::engine::{Engine, EngineError, Exception, Virt};
use crate::gate::{Gate, GateError};
use x86::state::State;

/// What to run, and all that it can see of the one who runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The program file's bytes.
    pub executable: Vec<u8>,
    /// Its absolute path, as the guest sees it (AT_EXECFN, /proc/self/exe).
    pub path: String,
    /// The arguments, the program's name first; none may contain a zero byte.
    pub argv: Vec<Vec<u8>>,
    /// The environment, each as NAME=value.
    pub envp: Vec<Vec<u8>>,
    /// The bytes at AT_RANDOM.
    pub random: [u8; 16],
    /// The working directory's path.
    pub cwd: Vec<u8>,
    /// Who runs it.
    pub ids: Ids,
}

/// User and group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Real user.
    pub uid: u32,
    /// Effective user.
    pub euid: u32,
    /// Real group.
    pub gid: u32,
    /// Effective group.
    pub egid: u32,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An exit was served; there is more to run.
    Running,
    /// The program ended with this status (0 to 255).
    Exited(i32),
    /// A signal ended it; the registers and the memory are those of that moment.
    Killed(Death),
    /// The engine was interrupted from outside.
    Interrupted,
    /// The bound of [`crate::engine::Until::Retired`] is reached.
    Budget,
}

/// How a signal ended the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// The signal's number.
    pub signal: i32,
    /// `si_code`.
    pub code: i32,
    /// `si_addr`; zero for a signal that has none.
    pub address: Virt,
    /// The exception that raised it, if it was one.
    pub exception: Option<Exception>,
}

/// A part of the address space with the same rights and the same backing, as /proc/PID/maps shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingInfo {
    /// First address.
    pub start: Virt,
    /// First address after it.
    pub end: Virt,
    /// What the guest may do.
    pub rights: Rights,
    /// The file's path, `[stack]`, `[heap]`, `[vdso]`, `[vvar]`, or empty.
    pub name: String,
    /// Where in the file it begins.
    pub file_offset: u64,
}

/// What the guest may do with memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights {
    /// Load from it.
    pub read: bool,
    /// Store to it.
    pub write: bool,
    /// Execute it.
    pub execute: bool,
}

/// A running program.
pub struct Process {
    engine: Box<dyn Engine>,
    gate: Box<dyn Gate>,
}

impl Process {
    /// Loads the program and stands at its first instruction.
    pub fn start(
        engine: Box<dyn Engine>,
        gate: Box<dyn Gate>,
        launch: &Launch,
    ) -> Result<Process, ProcessError> {
        let _ = launch;
        Ok(Process { engine, gate })
    }

    /// Runs to the next exit, and serves it.
    pub fn step(&mut self) -> Result<Step, ProcessError> {
        todo!()
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// The engine, writable.
    pub fn engine_mut(&mut self) -> &mut dyn Engine {
        &mut *self.engine
    }

    /// The gate.
    #[must_use]
    pub fn gate(&self) -> &dyn Gate {
        &*self.gate
    }

    /// The gate, writable.
    pub fn gate_mut(&mut self) -> &mut dyn Gate {
        &mut *self.gate
    }

    /// Integer, x87 and vector registers.
    pub fn state(&mut self) -> Result<State, ProcessError> {
        Ok(State { regs: *self.engine.regs(), fpu: self.engine.fpu()? })
    }

    /// A digest of the memory: the same on every engine for the same execution.
    #[must_use]
    pub fn memory_digest(&self) -> u64 {
        todo!()
    }

    /// The address space's parts, in address order.
    #[must_use]
    pub fn mappings(&self) -> Vec<MappingInfo> {
        todo!()
    }

    /// Reads guest memory whatever its rights are, with the program's own code bytes (without the rewriting of
    /// machine reads). False if a byte is not mapped.
    pub fn read_memory(&self, address: Virt, bytes: &mut [u8]) -> bool {
        let _ = (address, bytes);
        todo!()
    }
}

/// Why a program cannot be run, or go on.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The journal, or the replay, ends or fails here.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The software CPU has no semantics for an instruction.
    #[error("no semantics for the instruction {bytes} at {rip:#x}")]
    NoSemantics {
        /// Where.
        rip: Virt,
        /// Its bytes in hexadecimal.
        bytes: String,
    },
}
