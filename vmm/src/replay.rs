//! Replay: runs a recorded program from its journal, and compares at every event and every checkpoint.

use crate::crumbs::{Agreement, Check};
use crate::dump::auxv_at_start;
use crate::engine::{Engine, EngineKind, Until};
use crate::gate::{AtExit, Event, Gate, GateError, Input, Time};
use crate::journal::schema::{Checkpoint, digest_regs};
use crate::journal::{Damage, End, JournalError, Reader, Record};
use crate::process::{Launch, Process, ProcessError, Step};
use crate::record::checkpoint;
use crate::recording::{Recording, RecordingError};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use x86::state::Regs;
use xxhash_rust::xxh3::xxh3_64;

/// Why a replay stops before the recording does.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The recording cannot be used at all.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The program diverged ([`GateError::Diverged`]), or the engine failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

impl From<GateError> for ReplayError {
    fn from(error: GateError) -> Self {
        ReplayError::Process(error.into())
    }
}

/// Takes what the program prints: descriptor (1 or 2) and bytes.
pub type Output = Box<dyn FnMut(i32, &[u8])>;

/// A replay that went as far as the recording goes, without a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// How the recording ended; `None` if it has no end, see `damage`.
    pub end: Option<End>,
    /// Events replayed.
    pub events: u64,
    /// Checkpoints compared.
    pub checkpoints: u64,
    /// Which engine ran it.
    pub engine: EngineKind,
    /// The state at the end of the replay.
    pub state: Checkpoint,
    /// What comparing with the recording's crumbs came to.
    pub crumbs: Agreement,
    /// Why the journal has no end, when it has none.
    pub damage: Option<Damage>,
}

impl Replayed {
    /// One number for the whole run: the events, the final registers and the final memory. Equal runs have equal
    /// digests on every engine.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let Checkpoint { regs, fpu, memory } = self.state;
        let bytes: Vec<u8> = [self.events, regs, fpu, memory].iter().flat_map(|v| v.to_le_bytes()).collect();
        xxh3_64(&bytes)
    }
}

/// What the gate and the driver share.
struct Tape {
    reader: RefCell<Reader>,
    events: Cell<u64>,
    check: RefCell<Check>,
}

impl Tape {
    fn peek(&self) -> Result<Option<Record>, GateError> {
        self.reader.borrow_mut().peek().map(|record| record.cloned()).map_err(unreadable)
    }

    fn take(&self) -> Result<Record, GateError> {
        let record = self.reader.borrow_mut().take().map_err(unreadable)?;
        record.ok_or_else(|| GateError::EndOfJournal { event: self.events.get() })
    }

    fn diverged<T>(&self, what: &'static str, expected: String, found: String) -> Result<T, GateError> {
        Err(GateError::Diverged { event: self.events.get(), what, expected, found })
    }
}

fn unreadable(error: JournalError) -> GateError {
    GateError::Read(error.to_string())
}

/// The gate of a replay: the journal gives, the host is not asked.
struct ReplayGate {
    tape: Rc<Tape>,
    output: Option<Output>,
}

impl Gate for ReplayGate {
    fn exit(&mut self, at: &AtExit<'_>) {
        self.tape.check.borrow_mut().compare(at, self.tape.events.get());
    }

    fn begin(&mut self, event: Event, regs: &Regs) -> Result<(), GateError> {
        let tape = &self.tape;
        tape.events.set(tape.events.get() + 1);
        tracing::trace!(event = tape.events.get(), ?event, rip = format_args!("{:#x}", regs.rip));
        let crumb = tape.check.borrow().rip(tape.events.get() - 1);
        let crumb = crumb.map(|rip| format!(", rip {rip:#x} by its crumb")).unwrap_or_default();
        match tape.take()? {
            Record::Begin { event: expected, .. } if expected != event => {
                tape.diverged("the event", describe_event(expected) + &crumb, describe_event(event))
            }
            Record::Begin { regs: expected, .. } if expected != digest_regs(regs) => tape.diverged(
                "the registers",
                format!("digest {expected:#018x} at {}{crumb}", describe_event(event)),
                format!("digest {:#018x}, rip {:#x}", digest_regs(regs), regs.rip),
            ),
            Record::Begin { .. } => Ok(()),
            other => tape.diverged("the event", describe(&other), describe_event(event)),
        }
    }

    fn input(&mut self, _produce: &mut dyn FnMut() -> Input) -> Result<Input, GateError> {
        match self.tape.take()? {
            Record::Input(input) => Ok(input),
            other => self.tape.diverged("an input", describe(&other), "a request for an input".to_owned()),
        }
    }

    fn time(&mut self) -> Result<Time, GateError> {
        match self.tape.take()? {
            Record::Time(time) => Ok(time),
            other => self.tape.diverged("a time", describe(&other), "a request for the time".to_owned()),
        }
    }

    fn output(&mut self, descriptor: i32, bytes: &[u8]) {
        if let (Some(show), 1 | 2) = (&mut self.output, descriptor) {
            show(descriptor, bytes);
        }
    }

    fn replaying(&self) -> bool {
        true
    }
}

fn describe_event(event: Event) -> String {
    match event {
        Event::Syscall(number) => format!("system call {number}"),
        Event::MachineRead => "an instruction that reads the machine".to_owned(),
        Event::Signal(signal) => format!("signal {signal}"),
        Event::Exited(status) => format!("the end with status {status}"),
        Event::Wait => "a wait of all threads".to_owned(),
    }
}

fn describe(record: &Record) -> String {
    match record {
        Record::Begin { event, .. } => describe_event(*event),
        Record::Input(input) => format!("an input (result {})", input.result),
        Record::Time(_) => "a time".to_owned(),
        Record::Checkpoint(_) => "a checkpoint".to_owned(),
        Record::End(end) => format!("the recording's end ({end:?})"),
    }
}

/// A recorded program that is being replayed.
pub struct Replay {
    process: Process,
    tape: Rc<Tape>,
    checkpoints: u64,
    launch: Launch,
    auxv: Vec<(u64, u64)>,
}

/// What [`Replay::step`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more.
    Running,
    /// The bound is reached.
    Bound,
    /// The program stands where the recording's last record left it.
    Done,
}

impl Replay {
    /// Loads a recording and stands before its first instruction.
    ///
    /// # Errors
    /// When the recording cannot be used.
    pub fn start(
        recording: &Recording,
        engine: Box<dyn Engine>,
        output: Option<Output>,
    ) -> Result<Replay, ReplayError> {
        let (reader, launch) = recording.load()?;
        let check = RefCell::new(Check::load(recording));
        let tape = Rc::new(Tape { reader: RefCell::new(reader), events: Cell::new(0), check });
        let gate = ReplayGate { tape: Rc::clone(&tape), output };
        let process = Process::start(engine, Box::new(gate), &launch)?;
        let auxv = auxv_at_start(&process);
        Ok(Replay { process, tape, checkpoints: 0, launch, auxv })
    }

    /// What was run.
    #[must_use]
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// The auxiliary vector that the program was started with.
    #[must_use]
    pub fn auxv(&self) -> &[(u64, u64)] {
        &self.auxv
    }

    /// The program.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The program, for those who program the engine.
    pub fn process_mut(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Gives the recording's crumbs that were left without counts those of this replay, if its engine counts.
    pub(crate) fn add_counts(&self, crumbs: &mut lbr::Crumbs) {
        self.tape.check.borrow().add_counts(crumbs);
    }

    /// Events replayed so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.tape.events.get()
    }

    /// Replays to the next exit, and compares.
    ///
    /// # Errors
    /// At the first difference.
    pub fn step(&mut self) -> Result<Progress, ReplayError> {
        self.step_until(Until::Exit)
    }

    /// Replays to the next exit or bound, and compares.
    ///
    /// # Errors
    /// At the first difference, and when the engine does not know the bound.
    pub fn step_until(&mut self, until: Until) -> Result<Progress, ReplayError> {
        match self.tape.peek()? {
            Some(Record::Checkpoint(expected)) => {
                self.tape.take()?;
                self.compare(expected)?;
                Ok(Progress::Running)
            }
            // Behind the last event the program may compute for ever: nothing says where it was stopped.
            None | Some(Record::End(End::Interrupted)) => Ok(Progress::Done),
            // An End is taken when the program ends by itself; one that stands here is a divergence to come.
            Some(_) => self.step_process(until),
        }
    }

    fn step_process(&mut self, until: Until) -> Result<Progress, ReplayError> {
        let found = match self.process.step_until(until)? {
            Step::Running | Step::Interrupted => return Ok(Progress::Running),
            Step::Budget => return Ok(Progress::Bound),
            Step::Exited(status) => End::Exited(status),
            Step::Killed(death) => End::Killed(death),
        };
        while let Some(Record::Checkpoint(expected)) = self.tape.peek()? {
            self.tape.take()?;
            self.compare(expected)?;
        }
        match self.tape.peek()? {
            None => {}
            Some(Record::End(expected)) if expected == found => {}
            Some(other) => self.tape.diverged("the end", describe(&other), format!("{found:?}"))?,
        }
        Ok(Progress::Done)
    }

    /// Compares a checkpoint.
    fn compare(&mut self, expected: Checkpoint) -> Result<(), ReplayError> {
        let found = checkpoint(&mut self.process)?;
        self.checkpoints += 1;
        for (what, expected, found) in [
            ("the registers at a checkpoint", expected.regs, found.regs),
            ("the vector registers at a checkpoint", expected.fpu, found.fpu),
            ("the memory at a checkpoint", expected.memory, found.memory),
        ] {
            if expected != found {
                self.tape.diverged(
                    what,
                    format!("digest {expected:#018x}"),
                    format!("digest {found:#018x}"),
                )?;
            }
        }
        Ok(())
    }

    /// Replays to the end of the recording.
    ///
    /// # Errors
    /// At the first difference.
    pub fn run_to_end(&mut self) -> Result<Replayed, ReplayError> {
        while self.step()? == Progress::Running {}
        self.report()
    }

    /// What there is to say when [`Replay::step`] came to [`Progress::Done`].
    ///
    /// # Errors
    /// When the engine does not give its state.
    pub fn report(&mut self) -> Result<Replayed, ReplayError> {
        let end = match self.tape.peek()? {
            Some(Record::End(end)) => Some(end),
            _ => None,
        };
        Ok(Replayed {
            end,
            events: self.events(),
            checkpoints: self.checkpoints,
            engine: self.process.engine().kind(),
            state: checkpoint(&mut self.process)?,
            crumbs: self.tape.check.borrow().agreement(),
            damage: self.tape.reader.borrow().damage().cloned(),
        })
    }
}
