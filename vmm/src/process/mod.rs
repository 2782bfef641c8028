//! A Linux program as a guest: its memory, its engine, and the loop that serves it.
//!
//! [`Process::step`] runs the engine to its next exit, [`exit::decide`] says what the exit means, and the
//! process carries that out. Where things are: [`launch`] (what is started), [`elf`] (what a program file says),
//! [`layout`] (where things go in the address space), [`load`] (segments, vDSO and the first stack), [`vma`] and
//! [`space`] (the address space: what is mapped, and what is resident), [`access`] (how the personality reads and
//! writes it), [`machine_reads`] (CPUID, RDTSC and their like, made deterministic) and [`sites`] (where they are),
//! [`extended_state`] (XSAVE and XRSTOR), [`vdso`] (the clock without an exit). [`schedule`] is what happens before
//! the engine runs again. System calls, signals and threads are [`crate::linux`].

pub mod access;
pub mod elf;
pub mod exit;
pub mod extended_state;
mod functions;
mod launch;
pub mod layout;
mod load;
pub mod machine_reads;
mod ordinary;
mod schedule;
pub mod sites;
pub mod space;
pub mod vdso;
pub mod vma;

use crate::cpu_model::Model;
use crate::engine::{Engine, EngineError, Exception, Until, Virt};
use crate::gate::{AtExit, Event, Gate, GateError};
use crate::linux::{Delivery, Guest, Linux, deliver};
use crate::paging::PagingError;
use exit::{Action, decide, vector};
use iced_x86::{Decoder, DecoderOptions};
pub use launch::{Ids, Interpreter, Launch, Streams};
use lbr::Armed;
use machine_reads::{LONGEST, Needs, Read};
use sites::behind_pause;
use space::AddressSpace;
use std::cell::Cell;
use x86::state::{Regs, State};

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

/// CF, PF, AF, ZF, SF and OF.
const ARITHMETIC_FLAGS: u64 = 0x8d5;

/// The registers as far as two processors that run the same program agree on them: without the arithmetic
/// flags, which some instructions leave undefined. This is what recordings digest and compare.
#[must_use]
pub fn comparable(regs: &Regs) -> Regs {
    Regs { rflags: regs.rflags & !ARITHMETIC_FLAGS, ..*regs }
}

/// A running program.
pub struct Process {
    engine: Box<dyn Engine>,
    gate: Box<dyn Gate>,
    space: AddressSpace,
    linux: Linux,
    cpu: Model,
    /// The page fault that was served last, if nothing else happened since, and how often.
    faults: Option<(Exception, Regs, u32)>,
    /// The branch records of the engine, if they are to be of one thread.
    records: Option<Armed>,
    /// How it ended.
    end: Option<Step>,
}

/// A page fault that is served as often as this, and comes again with nothing changed, would come for ever. Once is
/// enough for every engine; the rest is for those that fault without need.
const SAME_FAULTS: u32 = 100;

impl Process {
    /// Loads the program and stands at its first instruction.
    pub fn start(
        engine: Box<dyn Engine>,
        gate: Box<dyn Gate>,
        launch: &Launch,
    ) -> Result<Process, ProcessError> {
        Process::start_with(engine, gate, launch, Streams::Inherited)
    }

    /// Loads the program with these standard streams; at replay there are none.
    pub fn start_with(
        mut engine: Box<dyn Engine>,
        gate: Box<dyn Gate>,
        launch: &Launch,
        streams: Streams,
    ) -> Result<Process, ProcessError> {
        engine.require(launch.cpu)?;
        let linux = Linux::new(launch, streams, gate.replaying(), engine.interrupter())?;
        let space = load::load(&mut *engine, launch)?;
        Ok(Process { engine, gate, space, linux, cpu: launch.cpu, faults: None, records: None, end: None })
    }

    /// Runs to the next exit, and serves it.
    pub fn step(&mut self) -> Result<Step, ProcessError> {
        self.step_until(Until::Exit)
    }

    /// Runs to the next exit or bound, and serves it. A program that has ended stays as it is.
    pub fn step_until(&mut self, until: Until) -> Result<Step, ProcessError> {
        if let Some(end) = self.end {
            return Ok(end);
        }
        let step = if self.waits() { self.wait()? } else { self.run(until)? };
        if matches!(step, Step::Exited(_) | Step::Killed(_)) {
            self.end = Some(step);
        }
        Ok(step)
    }

    /// Runs the engine, and serves its exit.
    fn run(&mut self, until: Until) -> Result<Step, ProcessError> {
        let exit = self.engine.run(until)?;
        let rip = self.engine.regs().rip;
        let action = decide(exit, rip, self.space.sites().contains(rip));
        self.tell(&action);
        self.perform(action)
    }

    /// Tells the gate of an exit.
    fn tell(&mut self, action: &Action) {
        let (regs, counts) = (self.engine.regs(), self.engine.counts());
        if let Some(exit) = action.crumb(regs) {
            let resident = Cell::new(None);
            let word = |address| self.space.word(self.engine.ram(), address, &resident);
            self.gate.exit(&AtExit {
                exit,
                thread: self.linux.threads.id().unsigned_abs(),
                regs,
                counts,
                word: &word,
            });
        }
    }

    /// Carries out what an exit asks for.
    fn perform(&mut self, action: Action) -> Result<Step, ProcessError> {
        let faults = self.faults.take();
        match action {
            Action::Syscall => self.syscall(),
            Action::Touch { address, access, exception } => {
                match self.space.touch(&mut *self.engine, address, access)? {
                    Ok(()) => self.fault_served(exception, faults),
                    Err(refusal) => self.signal(exit::refused(refusal, exception), true),
                }
            }
            Action::MachineRead => self.machine_read(),
            Action::Signal(death) => {
                if exit::is_32_bit_call(&death) {
                    self.linux.report_32_bit_call();
                }
                self.signal(death, true)
            }
            Action::FloatingPoint(exception) => {
                let fpu = self.engine.fpu()?;
                let death = exit::floating_point(exception, self.engine.regs().rip, &fpu);
                self.signal(death, true)
            }
            Action::Stop(step) => Ok(step),
            Action::NoSemantics { bytes, len } => {
                let bytes = bytes[..usize::from(len).min(bytes.len())].iter();
                let bytes: Vec<String> = bytes.map(|byte| format!("{byte:02x}")).collect();
                Err(ProcessError::NoSemantics { rip: self.engine.regs().rip, bytes: bytes.join(" ") })
            }
        }
    }

    /// Sees to it that the program gets on behind a page fault that was served.
    fn fault_served(
        &mut self,
        exception: Exception,
        before: Option<(Exception, Regs, u32)>,
    ) -> Result<Step, ProcessError> {
        let regs = *self.engine.regs();
        let same = before.filter(|(fault, at, _)| (fault, at) == (&exception, &regs));
        let times = same.map_or(1, |(_, _, times)| times + 1);
        if times > SAME_FAULTS {
            let engine = self.engine.kind().name();
            return Err(ProcessError::NoProgress {
                engine,
                rip: regs.rip,
                address: exception.address,
                times,
            });
        }
        self.faults = Some((exception, regs, times));
        Ok(Step::Running)
    }

    /// The registers at a system call, with the arithmetic flags cleared for good. Multiplications and shifts
    /// leave some of them undefined, which processors fill differently, and SYSCALL copies them to r11; to a
    /// program both are scratch, so clearing them is what keeps engines and hosts equal.
    fn defined_regs(&mut self) -> Result<(), EngineError> {
        let mut regs = comparable(self.engine.regs());
        regs.gpr[11] &= !ARITHMETIC_FLAGS;
        self.engine.set_regs(&regs)
    }

    /// Carries out the machine read at rip.
    fn machine_read(&mut self) -> Result<Step, ProcessError> {
        let mut regs = *self.engine.regs();
        let mut bytes = [0; LONGEST];
        let within = usize::try_from(crate::ram::PAGE - regs.rip % crate::ram::PAGE).unwrap_or(LONGEST);
        if !self.space.read_original(self.engine.ram(), regs.rip, &mut bytes) {
            // The instruction may be the last before an unmapped page.
            let end = within.min(LONGEST);
            self.space.read_original(self.engine.ram(), regs.rip, &mut bytes[..end]);
        }
        if let Some(behind) = behind_pause(regs.rip, &bytes) {
            return self.pause(behind);
        }
        let read = Read::decode(regs.rip, &bytes).and_then(|read| Some((read, read.needs(self.cpu)?)));
        let Some((read, needs)) = read else { return self.raise(vector::UNDEFINED, 0, 0) };
        self.gate.begin(Event::MachineRead, &regs)?;
        let (linux, mut guest) = self.guest();
        let value = match needs {
            Needs::Nothing => 0,
            Needs::Tsc => linux.time_stamp(&mut guest)?,
            Needs::Random => linux.random_word(&mut guest)?,
            Needs::ExtendedState => return self.extended_state(&read, regs),
        };
        if read.execute(self.cpu, &mut regs, value).is_err() {
            return self.raise(vector::GENERAL, 0, 0);
        }
        self.engine.set_regs(&regs)?;
        self.go_on()
    }

    /// An exception of the instruction at rip.
    fn raise(&mut self, vector: u8, error_code: u32, address: Virt) -> Result<Step, ProcessError> {
        let exception = Exception { vector, error_code, address };
        let rip = self.engine.regs().rip;
        self.perform(decide(crate::engine::Exit::Exception(exception), rip, false))
    }

    /// Delivers a signal.
    fn signal(&mut self, death: Death, synchronous: bool) -> Result<Step, ProcessError> {
        let regs = *self.engine.regs();
        self.gate.begin(Event::Signal(death.signal), &regs)?;
        let (linux, mut guest) = self.guest();
        Ok(match deliver(linux, &mut guest, death, synchronous)? {
            Delivery::Handled => Step::Running,
            Delivery::Fatal(death) => Step::Killed(death),
        })
    }

    /// The personality, and what it works on.
    fn guest(&mut self) -> (&mut Linux, Guest<'_>) {
        let guest =
            Guest { engine: &mut *self.engine, space: &mut self.space, gate: &mut *self.gate, cpu: self.cpu };
        (&mut self.linux, guest)
    }

    /// The least CPU model that has the instruction at rip, if the program is shown a lesser one.
    #[must_use]
    pub fn needs_model(&self) -> Option<Model> {
        let (rip, mut bytes) = (self.engine.regs().rip, [0; LONGEST]);
        self.space.read_original(self.engine.ram(), rip, &mut bytes);
        let instruction = Decoder::with_ip(64, &bytes, rip, DecoderOptions::NONE).decode();
        Model::for_instruction(&instruction).filter(|needed| *needed > self.cpu && !instruction.is_invalid())
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

    /// Empties the branch records whenever another thread gets the processor, as Linux does: those of two threads are no
    /// path of either.
    pub fn empty_at_switches(&mut self, records: Armed) {
        self.records = Some(records);
    }

    /// The address space.
    #[must_use]
    pub fn space(&self) -> &AddressSpace {
        &self.space
    }

    /// Ends the guest; gives back what it ran on.
    #[must_use]
    pub fn into_parts(self) -> (Box<dyn Engine>, Box<dyn Gate>) {
        (self.engine, self.gate)
    }

    /// Integer, x87 and vector registers.
    pub fn state(&mut self) -> Result<State, ProcessError> {
        Ok(State { regs: *self.engine.regs(), fpu: self.engine.fpu()? })
    }

    /// The other threads by id, with their registers: where their calls wait, or where they go on.
    pub fn other_threads(&self) -> impl Iterator<Item = (i32, &State)> {
        self.linux.threads.others()
    }

    /// The thread that runs, or ran last.
    #[must_use]
    pub fn thread(&self) -> i32 {
        self.linux.threads.id()
    }

    /// How many threads were ever started, the first included.
    #[must_use]
    pub fn threads_started(&self) -> u64 {
        self.linux.threads.started()
    }

    /// A digest of the memory: the same on every engine for the same execution (see [`AddressSpace::digest`]).
    #[must_use]
    pub fn memory_digest(&self) -> u64 {
        self.space.digest(self.engine.ram())
    }

    /// The address space's parts, in address order.
    #[must_use]
    pub fn mappings(&self) -> Vec<MappingInfo> {
        self.space.describe()
    }

    /// Reads guest memory whatever its rights are, with the program's own code bytes (without the rewriting of
    /// machine reads). False if a byte is not mapped, or its file has ended.
    pub fn read_memory(&self, address: Virt, bytes: &mut [u8]) -> bool {
        self.space.read_original(self.engine.ram(), address, bytes)
    }
}

/// Why a program cannot be run, or go on.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The file cannot be run.
    #[error("{path} {error}")]
    Program {
        /// The file.
        path: String,
        /// Why not.
        error: elf::ElfError,
    },
    /// The arguments or the working directory cannot be given to a program.
    #[error("the program cannot be started: {0}")]
    Launch(String),
    /// The vDSO cannot be assembled.
    #[error("the vDSO cannot be assembled: {0}")]
    Vdso(String),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Another thread got the processor, and its branches would be taken for those of the one before.
    #[error("the branch records cannot be emptied for another thread: {0}")]
    Records(String),
    /// The guest's memory is used up.
    #[error(transparent)]
    Memory(PagingError),
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
