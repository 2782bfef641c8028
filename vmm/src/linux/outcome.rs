//! What comes of a system call, for the program and for its kernel; and numbers as arguments and results have them.

use super::wait::Wait;
use crate::engine::EngineError;
use crate::failure::ProcessError;
use crate::gate::GateError;
use crate::memory::access::AccessError;
use crate::memory::space::SpaceError;

/// What a system call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This goes into rax.
    Return(u64),
    /// The registers are what they shall be (rt_sigreturn).
    Resumed,
    /// The process ends with this status.
    Exit(i32),
    /// The call waits: it is served again when its task goes on.
    Waits,
    /// The task has ended, and others of its process have not.
    TaskEnded,
}

/// Why a system call did not succeed.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The program gets this error number, positive.
    Errno(i32),
    /// The call waits, and is served again.
    Wait(Wait),
    /// The process cannot go on.
    Fatal(ProcessError),
}

/// The result of a system call for the program.
pub(crate) type Served<T = u64> = Result<T, Stop>;

impl From<AccessError> for Stop {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Bad => Stop::Errno(libc::EFAULT),
            AccessError::Space(error) => error.into(),
        }
    }
}

impl From<SpaceError> for Stop {
    fn from(error: SpaceError) -> Self {
        Stop::Fatal(error.into())
    }
}

impl From<GateError> for Stop {
    fn from(error: GateError) -> Self {
        Stop::Fatal(error.into())
    }
}

impl From<EngineError> for Stop {
    fn from(error: EngineError) -> Self {
        Stop::Fatal(error.into())
    }
}

/// An error for the program.
pub(crate) fn errno<T>(number: i32) -> Served<T> {
    Err(Stop::Errno(number))
}

/// The kernel's convention: -4095 to -1 are errors, everything else is a value.
pub(super) fn result(value: i64) -> Served {
    match i32::try_from(value) {
        Ok(error @ -4095..=-1) => errno(-error),
        _ => Ok(word(value)),
    }
}

/// The low half of an argument, as the kernel takes an `int`.
pub(crate) fn int(argument: u64) -> i32 {
    let [a, b, c, d, ..] = argument.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// An argument as the kernel takes a `long`.
pub(crate) fn long(argument: u64) -> i64 {
    i64::from_le_bytes(argument.to_le_bytes())
}

/// A number for the host's `long` arguments, bit for bit.
pub(crate) fn word(number: i64) -> u64 {
    u64::from_le_bytes(number.to_le_bytes())
}
