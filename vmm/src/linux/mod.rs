//! The Linux personality: serves system calls and signals for one program.
//!
//! Memory, time, signals, identity and descriptor numbers are its own structures, computed again at replay.
//! Files, terminals and the like are the host's: every effect on the host, and all that comes from it, passes
//! through [`Guest::input`], so that a replay touches nothing outside. [`table`] is the one list of calls;
//! [`passthrough`] serves those that only translate their arguments, the other modules the rest: [`files`],
//! [`transfer`] (reading and writing), [`terminal`], [`memory`], [`time`], [`identity`], [`signals`], [`polling`], [`epoll`].
//! [`threads`] says which thread runs, [`clone`] begins and ends them, [`futex`] and [`wait`] are how they wait.
//! [`host`] is the only one with unsafe code.

mod clone;
mod descriptors;
mod epoll;
mod files;
mod futex;
mod host;
mod identity;
mod memory;
mod names;
mod own;
mod passthrough;
mod polling;
mod sigframe;
mod signals;
mod table;
mod terminal;
mod threads;
mod time;
mod transfer;
mod wait;

use crate::cpu_model::Model;
use crate::engine::{Engine, EngineError, Interrupter, Virt};
use crate::gate::{Gate, GateError, Input, MemoryWrite, Time};
use crate::process::access::AccessError;
use crate::process::space::{AddressSpace, SpaceError};
use crate::process::{Death, Launch, ProcessError, Streams};
use descriptors::Descriptors;
use std::collections::BTreeSet;
use threads::Threads;

pub use names::call_name;
pub use signals::{Delivery, Signals};
pub(crate) use signals::{deliver, interrupt};
pub(crate) use threads::Next;
pub(crate) use wait::{Again, Wait, Waited};

/// The guest's process id (and its first thread's; the others follow). Fixed, so that it is the same on replay.
pub const PID: i32 = 1000;
/// Its parent's.
pub const PARENT_PID: i32 = 999;

/// What a system call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This goes into rax.
    Return(u64),
    /// The registers are what they shall be (rt_sigreturn).
    Resumed,
    /// The program ends with this status.
    Exit(i32),
    /// The call waits: it is served again when its thread goes on.
    Waits,
    /// The thread has ended, and others have not.
    ThreadEnded,
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

/// What the personality works on.
pub(crate) struct Guest<'a> {
    /// Registers and memory.
    pub(crate) engine: &'a mut dyn Engine,
    /// What is mapped.
    pub(crate) space: &'a mut AddressSpace,
    /// Where inputs come from.
    pub(crate) gate: &'a mut dyn Gate,
    /// The processor that the program sees.
    pub(crate) cpu: Model,
}

impl Guest<'_> {
    /// Reads guest memory.
    pub(crate) fn read(&mut self, address: Virt, bytes: &mut [u8]) -> Served<()> {
        Ok(self.space.read(self.engine.ram(), address, bytes)?)
    }

    /// Reads `N` bytes of guest memory.
    pub(crate) fn read_array<const N: usize>(&mut self, address: Virt) -> Served<[u8; N]> {
        let mut bytes = [0; N];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a vector of 64-bit words.
    pub(crate) fn read_words<const N: usize>(&mut self, address: Virt) -> Served<[u64; N]> {
        let mut words = [[0; 8]; N];
        self.read(address, words.as_flattened_mut())?;
        Ok(words.map(u64::from_le_bytes))
    }

    /// Writes guest memory.
    pub(crate) fn write(&mut self, address: Virt, bytes: &[u8]) -> Served<()> {
        Ok(self.space.write(self.engine, address, bytes)?)
    }

    /// Writes 64-bit words.
    pub(crate) fn write_words(&mut self, address: Virt, words: &[u64]) -> Served<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(address, &bytes)
    }

    /// Reads a path.
    pub(crate) fn path(&mut self, address: Virt) -> Served<Vec<u8>> {
        let limit = usize::try_from(libc::PATH_MAX).expect("a small constant");
        match self.space.read_string(self.engine.ram(), address, limit)? {
            Some(path) => Ok(path),
            None => errno(libc::ENAMETOOLONG),
        }
    }

    /// Asks the host through the gate: its result, or its error; what it wrote is in guest memory then.
    pub(crate) fn input(&mut self, produce: &mut dyn FnMut() -> Input) -> Served {
        let input = self.gate.input(produce)?;
        for MemoryWrite { address, bytes } in &input.writes {
            self.write(*address, bytes)?;
        }
        result(input.result)
    }

    /// Asks the host for a number through the gate.
    pub(crate) fn input_number(&mut self, mut produce: impl FnMut() -> i64) -> Served {
        self.input(&mut || Input { result: produce(), writes: Vec::new() })
    }
}

/// The kernel's convention: -4095 to -1 are errors, everything else is a value.
fn result(value: i64) -> Served {
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

/// The state that Linux keeps for a process, as far as it is ours.
pub struct Linux {
    pub(crate) files: Descriptors,
    /// Signal handlers, and what is pending for the process.
    pub signals: Signals,
    pub(crate) threads: Threads,
    /// What the call that is being served has to know of its wait.
    again: Again,
    identity: identity::Identity,
    clock: time::Clock,
    interrupter: Interrupter,
    /// The unknown calls that were already reported.
    reported: BTreeSet<u64>,
    /// Whether a call of a 32-bit program was reported.
    reported_32_bit: bool,
}

impl Linux {
    /// The state of a process that begins. Opens the working directory unless this is a replay.
    pub fn new(
        launch: &Launch,
        streams: Streams,
        replaying: bool,
        interrupter: Interrupter,
    ) -> Result<Linux, ProcessError> {
        Ok(Linux {
            files: Descriptors::new(&launch.cwd, streams, replaying)?,
            signals: Signals::default(),
            threads: Threads::new(identity::name_of(&launch.path)),
            again: Again::default(),
            identity: identity::Identity::new(launch),
            clock: time::Clock::default(),
            interrupter,
            reported: BTreeSet::new(),
            reported_32_bit: false,
        })
    }

    /// Serves a system call that was begun at the gate, for the first time or `again`; then shows the new time.
    pub(crate) fn syscall(
        &mut self,
        guest: &mut Guest<'_>,
        number: u64,
        arguments: [u64; 6],
        again: Again,
    ) -> Result<Outcome, ProcessError> {
        self.again = again;
        let served = table::serve(self, guest, number, arguments);
        let outcome = match served {
            Ok(outcome) => outcome,
            Err(Stop::Wait(wait)) => {
                self.threads.park(wait);
                Outcome::Waits
            }
            Err(Stop::Errno(error)) => Outcome::Return(word(-i64::from(error))),
            Err(Stop::Fatal(error)) => return Err(error),
        };
        tracing::trace!(call = call_name(number), ?arguments, ?outcome);
        if !matches!(outcome, Outcome::Exit(_)) {
            self.clock.show(guest)?;
        }
        Ok(outcome)
    }

    /// The time stamp counter at a machine read that was begun at the gate.
    pub(crate) fn time_stamp(&mut self, guest: &mut Guest<'_>) -> Result<u64, ProcessError> {
        self.clock.time_stamp(guest)
    }

    /// The thread that runs has nothing to do until another one has done something: it yields, and time passes.
    pub(crate) fn pause(&mut self, guest: &mut Guest<'_>) -> Result<(), ProcessError> {
        if !self.threads.alone() {
            self.clock.show(guest)?;
            self.threads.yield_now();
        }
        Ok(())
    }

    /// Random bits for a machine read that was begun at the gate.
    pub(crate) fn random_word(&mut self, guest: &mut Guest<'_>) -> Result<u64, ProcessError> {
        let input = guest.gate.input(&mut || {
            let mut bytes = [0; 8];
            host::random(&mut bytes);
            Input { result: i64::from_le_bytes(bytes), writes: Vec::new() }
        })?;
        Ok(word(input.result))
    }

    /// The time that the program was shown last.
    pub(crate) fn now(&self) -> Time {
        self.clock.shown()
    }

    /// Takes the next signal that is to be delivered to the thread that runs.
    pub(crate) fn take_signal(&mut self) -> Option<Death> {
        self.signals.take(&mut self.threads)
    }

    /// Makes a signal pending for the thread that runs.
    fn raise_here(&mut self, signal: i32, code: i32) {
        let id = self.threads.id();
        self.signals.raise_to(&mut self.threads, id, signal, code);
    }

    /// Reports a system call that is not served, once.
    fn unknown(&mut self, number: u64) -> Served<Outcome> {
        if self.reported.insert(number) {
            tracing::warn!("system call {} ({number}) is not supported: ENOSYS", call_name(number));
        }
        errno(libc::ENOSYS)
    }
}

impl Linux {
    /// Says, the first time, why INT 0x80 is a fault.
    pub(crate) fn report_32_bit_call(&mut self) {
        if !std::mem::replace(&mut self.reported_32_bit, true) {
            tracing::warn!("INT 0x80, the system call of 32-bit programs, is not supported: SIGSEGV");
        }
    }
}

/// Repeats a call of the host that a signal interrupted, unless the signal is there to stop us.
fn retry(interrupter: &Interrupter, mut call: impl FnMut() -> i64) -> i64 {
    loop {
        let result = call();
        if result != -i64::from(libc::EINTR) || is_raised(interrupter) {
            return result;
        }
    }
}

/// Whether we were asked to stop; the engine will be told as well.
fn is_raised(interrupter: &Interrupter) -> bool {
    let raised = interrupter.take();
    if raised {
        interrupter.interrupt();
    }
    raised
}
