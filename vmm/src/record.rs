//! Recording: runs a program, and journals what enters through its gate.

use crate::crumbs::{Keep, Leaver};
use crate::dump::auxv_at_start;
use crate::engine::{Engine, EngineKind};
use crate::gate::{AtExit, Event, Gate, GateError, Input, Time};
use crate::journal::schema::{BEHAVIOUR, Checkpoint, digest_all, digest_executable, digest_fpu, digest_regs};
use crate::journal::{End, Header, Record, Writer};
use crate::patience::Patience;
use crate::process::{Launch, Process, ProcessError, Step};
use crate::recording::{Recording, RecordingError};
use lbr::Armed;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};
use x86::state::Regs;

/// Memory is digested no more often than costs this part of the run time.
const CHECKPOINT_COST: u32 = 100;
/// And no more often than this, since each also grows the journal.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(250);

/// Why a program could not be recorded, or its recording does not have an end in order.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The program cannot be started, or the engine or the gate failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The folder.
    #[error(transparent)]
    Recording(#[from] RecordingError),
}

/// A recording that came to its end.
pub struct Recorded {
    /// How it ended.
    pub end: End,
    /// The number of events.
    pub events: u64,
    /// The size of the journal.
    pub journal_bytes: u64,
    /// Which engine ran it.
    pub engine: EngineKind,
    /// The program as it ended, with its memory.
    pub process: Process,
    /// The auxiliary vector that it was started with.
    pub auxv: Vec<(u64, u64)>,
}

/// What the gate and the driver share.
struct Shared {
    writer: Writer,
    events: Cell<u64>,
    path: String,
}

impl Shared {
    fn failed(&self, error: io::Error) -> GateError {
        GateError::Write { path: self.path.clone(), error }
    }

    fn put(&self, record: &Record) -> Result<(), GateError> {
        self.writer.put(record).map_err(|e| self.failed(e))
    }
}

/// The gate of a recording: the host produces, the journal keeps.
struct RecordingGate {
    shared: Rc<Shared>,
    crumbs: Option<Leaver>,
}

impl Gate for RecordingGate {
    fn exit(&mut self, at: &AtExit<'_>) {
        if let Some(crumbs) = &mut self.crumbs {
            crumbs.leave(at, self.shared.events.get());
        }
    }

    fn begin(&mut self, event: Event, regs: &Regs) -> Result<(), GateError> {
        let shared = &self.shared;
        shared.events.set(shared.events.get() + 1);
        tracing::trace!(event = shared.events.get(), ?event, rip = format_args!("{:#x}", regs.rip));
        shared.put(&Record::Begin { event, regs: digest_regs(regs) })
    }

    fn input(&mut self, produce: &mut dyn FnMut() -> Input) -> Result<Input, GateError> {
        let input = produce();
        self.shared.writer.put_input(&input).map_err(|e| self.shared.failed(e))?;
        Ok(input)
    }

    fn time(&mut self) -> Result<Time, GateError> {
        let time = Time::now();
        self.shared.put(&Record::Time(time))?;
        Ok(time)
    }

    fn output(&mut self, _descriptor: i32, _bytes: &[u8]) {}

    fn replaying(&self) -> bool {
        false
    }
}

/// Runs `launch` on `engine` to its end and records it, with crumbs if they are to be kept, and with the engine's branch
/// records kept to one thread if they are armed.
///
/// # Errors
/// When it cannot be started, the engine fails, or the journal cannot be written. What was recorded before is
/// in the folder and replays.
pub fn record(
    recording: &Recording,
    engine: Box<dyn Engine>,
    launch: &Launch,
    crumbs: Option<Keep>,
    records: Option<Armed>,
) -> Result<Recorded, RecordError> {
    let kind = engine.kind();
    recording.store_programs(launch)?;
    let path = recording.journal();
    let header = Header {
        gretel: env!("CARGO_PKG_VERSION").to_owned(),
        behaviour: BEHAVIOUR,
        model: launch.cpu.name().to_owned(),
        engine: kind.name().to_owned(),
        launch: launch.without_files(),
        executable_digest: digest_executable(&launch.executable),
        interpreter_digest: launch
            .interpreter
            .as_ref()
            .map(|interpreter| digest_executable(&interpreter.executable)),
    };
    let writer = Writer::create(&path, &header)
        .map_err(|error| RecordingError::Write { path: path.clone(), error })?;
    let shared = Rc::new(Shared { writer, events: Cell::new(0), path: path.display().to_string() });
    let crumbs = crumbs.map(|keep| Leaver::create(recording, &launch.executable, keep)).transpose()?;
    let gate = RecordingGate { shared: Rc::clone(&shared), crumbs };
    let mut process = Process::start(engine, Box::new(gate), launch)?;
    records.into_iter().for_each(|records| process.empty_at_switches(records));
    let auxv = auxv_at_start(&process);
    let end = drive(&mut process, &shared)?;
    shared.put(&Record::End(end)).map_err(ProcessError::from)?;
    let journal_bytes = shared.writer.finish().map_err(|e| ProcessError::from(shared.failed(e)))?;
    Ok(Recorded { end, events: shared.events.get(), journal_bytes, engine: kind, process, auxv })
}

/// Steps the program to its end, with a checkpoint now and then and at the end.
fn drive(process: &mut Process, shared: &Shared) -> Result<End, ProcessError> {
    let mut pace = Pace { next: Instant::now() + CHECKPOINT_EVERY };
    let mut patience = Patience::default();
    loop {
        patience.note(process);
        let events_before = shared.events.get();
        let step = process.step()?;
        shared.writer.mark_whole();
        let end = match step {
            Step::Running => {
                // A page fault leaves no record: replay would look for the checkpoint behind the event before it.
                if shared.events.get() > events_before {
                    pace.checkpoint_if_due(process, shared)?;
                }
                continue;
            }
            Step::Exited(status) => End::Exited(status),
            Step::Killed(death) => End::Killed(death),
            // Where exactly the program was interrupted is not known, so there is no state to compare.
            Step::Interrupted | Step::Budget => return Ok(End::Interrupted),
        };
        shared.put(&Record::Checkpoint(checkpoint(process)?))?;
        return Ok(end);
    }
}

/// When the next checkpoint is due.
struct Pace {
    next: Instant,
}

impl Pace {
    fn checkpoint_if_due(&mut self, process: &mut Process, shared: &Shared) -> Result<(), ProcessError> {
        let before = Instant::now();
        if before < self.next {
            return Ok(());
        }
        shared.put(&Record::Checkpoint(checkpoint(process)?))?;
        shared.writer.mark_whole();
        let after = Instant::now();
        self.next = after + CHECKPOINT_EVERY.max((after - before) * CHECKPOINT_COST);
        Ok(())
    }
}

/// Digests of all that a program is: what recording writes and replay compares.
pub(crate) fn checkpoint(process: &mut Process) -> Result<Checkpoint, ProcessError> {
    let state = process.state()?;
    let (mut regs, mut fpu) = (vec![digest_regs(&state.regs)], vec![digest_fpu(&state.fpu)]);
    for (_, state) in process.other_threads() {
        regs.push(digest_regs(&state.regs));
        fpu.push(digest_fpu(&state.fpu));
    }
    Ok(Checkpoint { regs: digest_all(&regs), fpu: digest_all(&fpu), memory: process.memory_digest() })
}
