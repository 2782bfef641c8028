//! What can happen to a program: plain data for those who list a recording, or print system calls while it is made.
//!
//! [`super::trace`] makes these as they happen. Example: a shell starts `ls`. That is a [`What::Call`] (`vfork`, which
//! waits), a [`What::Started`], a [`What::Switched`] to the new task, its `execve`, and a [`What::Executed`].

use crate::gate::Time;
use crate::position::{Offset, Position};
use crate::ram::Virt;
use crate::signal::{Death, Raised};

/// Something that happened to a task.
#[derive(Clone, Debug)]
pub struct Happening {
    /// Where: at this event. What the kernel does of its own accord (switches) stands at the event before it.
    pub position: Position,
    /// The task's process.
    pub pid: i32,
    /// The task; of a switch, the one that has the processor now.
    pub task: i32,
    /// The time that the program was shown last.
    pub time: Time,
    /// How many instructions had retired since the program's start, on a processor that counts.
    pub instructions: Option<u64>,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum What {
    /// A system call came to something.
    Call(Call),
    /// An instruction that reads the machine was carried out.
    MachineRead {
        /// The instruction.
        instruction: String,
        /// What it was told from outside: a time stamp, random bits.
        value: Option<u64>,
    },
    /// A signal was delivered.
    Signal {
        /// Which, and why.
        raised: Raised,
        /// Where its handler begins; `None` where it ends the process.
        handler: Option<Virt>,
    },
    /// The task was interrupted between two instructions.
    Preempted(Offset),
    /// All tasks waited, until the host had something for one of them.
    Waited,
    /// Memory was used up, and this process is killed for it.
    OutOfMemory(i32),
    /// The task got the processor, which another one had.
    Switched {
        /// That one.
        from: i32,
    },
    /// The task's call has started another one.
    Started {
        /// That one.
        task: i32,
        /// Its process: the task's own for a thread, else a new one.
        pid: i32,
    },
    /// The task's process runs another program from here on.
    Executed {
        /// Its path.
        path: Vec<u8>,
        /// Its arguments, the first included.
        arguments: Vec<Vec<u8>>,
    },
    /// The task ended, and others of its process did not.
    TaskEnded,
    /// The task's process ended with this status.
    Exited(i32),
    /// A signal ended the task's process.
    Died(Death),
}

/// A system call at one of its stages.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its number.
    pub number: u64,
    /// What was in the six registers of arguments.
    pub arguments: [u64; 6],
    /// How far it has come.
    pub stage: Stage,
    /// The stage as strace prints it.
    pub line: String,
}

/// How far a system call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It returned this, and did not wait.
    Whole(u64),
    /// It began, and waits.
    Begun,
    /// It was served again, and waits on.
    Again,
    /// It waited, and returned this now.
    Resumed(u64),
    /// It does not return: the task or its process ends.
    Never,
}

impl Stage {
    /// What the call returned, if it has.
    #[must_use]
    pub fn result(self) -> Option<u64> {
        match self {
            Stage::Whole(result) | Stage::Resumed(result) => Some(result),
            Stage::Begun | Stage::Again | Stage::Never => None,
        }
    }
}
