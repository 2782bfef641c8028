//! Why a program cannot be run, or cannot go on: what stops the personality and the driver alike.

use crate::elf::ElfError;
use crate::engine::EngineError;
use crate::gate::GateError;
use crate::memory::space::SpaceError;
use crate::ram::Virt;

/// Why a program cannot be run, or go on.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The file cannot be run.
    #[error("{path} {error}")]
    Program {
        /// The file.
        path: String,
        /// Why not.
        error: ElfError,
    },
    /// The arguments or the working directory cannot be given to a program.
    #[error("the program cannot be started: {0}")]
    Launch(String),
    /// The program asked for what is not served, and was to get everything or nothing.
    #[error("the recording ends here, by --strict: {what} is not supported; first at {first}")]
    NotServed {
        /// What.
        what: String,
        /// The call.
        first: String,
    },
    /// The vDSO cannot be assembled.
    #[error("the vDSO cannot be assembled: {0}")]
    Vdso(String),
    /// The program is a user that gretel may not be.
    #[error("files cannot be opened as user {uid} and group {gid}, which the program has become")]
    User {
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
    },
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Another thread got the processor, and its branches would be taken for those of the one before.
    #[error("the branch records cannot be emptied for another thread: {0}")]
    Records(String),
    /// The guest's memory is used up.
    #[error(transparent)]
    Memory(#[from] SpaceError),
    /// The journal, or the replay, ends or fails here.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// An engine faults for memory that is there.
    #[error(
        "engine {engine} does not get past the instruction at {rip:#x}: it faulted {times} times for the memory at \
         {address:#x}, which is mapped for it; another --engine may go on"
    )]
    NoProgress {
        /// The engine's name.
        engine: &'static str,
        /// Where.
        rip: Virt,
        /// What it cannot use.
        address: Virt,
        /// How often it was served.
        times: u32,
    },
    /// The software CPU has no semantics for an instruction.
    #[error("the software CPU has no semantics for the instruction {bytes} at {rip:#x}")]
    NoSemantics {
        /// Where.
        rip: Virt,
        /// Its bytes in hexadecimal.
        bytes: String,
    },
}
