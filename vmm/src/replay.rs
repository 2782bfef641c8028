//! Replay: runs a recorded program from its journal, and compares at every event, and the memory where the journal has digests of it.

use crate::checkpoints::keeper::{Journal, Keeper};
use crate::checkpoints::loaded::Loaded;
use crate::checkpoints::shelf::At;
use crate::checkpoints::{About, CheckpointError, Rate, Shelf};
use crate::crumbs::{Agreement, Check};
use crate::engine::{Machine, Until};
use crate::found::Found;
use crate::gate::GateError;
use crate::journal::schema::Digests;
use crate::journal::{Damage, End, Header, Record};
use crate::position::Position;
use crate::process::{Checkpoint, Launch, Process, ProcessError, Step};
use crate::recording::{Recording, RecordingError};
pub use crate::tape::Output;
use crate::tape::{Mark, ReplayGate, Tape, describe};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// Why a replay stops before the recording does.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The recording cannot be used at all.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The checkpoint that it begins with cannot be used.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The program diverged ([`GateError::Diverged`]), or the engine failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

impl From<GateError> for ReplayError {
    fn from(error: GateError) -> Self {
        ReplayError::Process(error.into())
    }
}

/// A replay that went as far as the recording goes, without a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// How the recording ended; `None` if it has no end, see `damage`.
    pub end: Option<End>,
    /// Events replayed.
    pub events: u64,
    /// How often digests of the whole program were compared.
    pub comparisons: u64,
    /// The name of what ran it ([`Process::ran_on`]).
    pub engine: &'static str,
    /// The state at the end of the replay.
    pub state: Digests,
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
        let Digests { regs, fpu, memory } = self.state;
        let bytes: Vec<u8> = [self.events, regs, fpu, memory].iter().flat_map(|v| v.to_le_bytes()).collect();
        xxh3_64(&bytes)
    }
}

/// A recorded program that is being replayed.
pub struct Replay {
    process: Process,
    tape: Rc<Tape>,
    comparisons: u64,
    launch: Launch,
    header: Header,
    shelf: Shelf,
    /// What is known of the checkpoint that the recording begins with, if that is not the program's start.
    beginning: Option<About>,
}

/// A replay at a position.
pub(crate) struct Kept {
    pub(crate) checkpoint: Checkpoint,
    /// Its pages, if it came from disk.
    pub(crate) loaded: Loaded,
    mark: Mark,
    comparisons: u64,
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
    /// Loads a recording and stands before its first instruction, or where its window begins.
    ///
    /// # Errors
    /// When the recording cannot be used.
    pub fn start(
        recording: &Recording,
        machine: Machine,
        output: Option<Output>,
    ) -> Result<Replay, ReplayError> {
        let shelf = Shelf::open(recording)?;
        let (reader, launch) = recording.load(shelf.journals())?;
        let header = reader.header().clone();
        let found = Found::load(recording, launch.random);
        let tape = Rc::new(Tape::journal(reader, Check::load(recording), found));
        let gate = ReplayGate::new(Rc::clone(&tape), output);
        let process = Process::start(machine, Box::new(gate), &launch)?;
        let first = shelf.beginning();
        let beginning = first.and_then(|at| shelf.about(at));
        let mut replay = Replay { process, tape, comparisons: 0, launch, header, shelf, beginning };
        if let Some(at) = first {
            let mut kept = replay.fetch(at, &[])?;
            replay.go_back(&mut kept)?;
            replay.release(kept);
        }
        Ok(replay)
    }

    /// Brings a checkpoint from disk into the program's memory, where frames that others have from there are shared with them.
    ///
    /// # Errors
    /// When it is damaged, and when the frames of guest memory are used up.
    pub(crate) fn fetch(&mut self, at: At, there: &[&Loaded]) -> Result<Kept, CheckpointError> {
        let (checkpoint, loaded, place, about) = self.shelf.load(at, &mut self.process, there)?;
        let mark = Mark::at(place, about.position.event);
        Ok(Kept { checkpoint, loaded, mark, comparisons: about.comparisons })
    }

    /// Gives back what was kept.
    pub(crate) fn release(&mut self, kept: Kept) {
        self.process.release(kept.checkpoint);
        kept.loaded.release(self.process.memory_mut());
    }

    /// What there is on disk.
    #[must_use]
    pub fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// Where the recording begins, if that is not the program's start: it is the window of a flight recorder.
    #[must_use]
    pub fn window_begins(&self) -> Option<Position> {
        self.beginning.map(|about| about.position)
    }

    /// How much processor time it takes to run to where the recording begins.
    pub(crate) fn spent_before(&self) -> Duration {
        self.beginning.map_or(Duration::ZERO, |about| Duration::from_nanos(about.spent))
    }

    /// Whether all counts begin with the window, since the recorder of what is before it did not count.
    #[must_use]
    pub fn window_counts_late(&self) -> bool {
        self.beginning.is_some_and(|about| about.counters.is_none())
    }

    /// What was run.
    #[must_use]
    pub fn launch(&self) -> &Launch {
        &self.launch
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
        self.tape.add_counts(crumbs);
    }

    /// Why the journal has no end, as far as it was read, when it has none.
    #[must_use]
    pub fn damage(&self) -> Option<Damage> {
        self.tape.damage()
    }

    /// Events replayed so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.tape.events()
    }

    /// Keeps the program and how far the recording was played.
    ///
    /// # Errors
    /// As [`Process::checkpoint`].
    pub(crate) fn keep(&mut self) -> Result<Kept, ReplayError> {
        let checkpoint = self.process.checkpoint()?;
        let loaded = Loaded::default();
        Ok(Kept { checkpoint, loaded, mark: self.tape.mark(), comparisons: self.comparisons })
    }

    /// Goes back to what was kept.
    ///
    /// # Errors
    /// As [`Process::restore`], and when the journal cannot be read.
    pub(crate) fn go_back(&mut self, kept: &mut Kept) -> Result<(), ReplayError> {
        self.process.restore(&mut kept.checkpoint)?;
        self.tape.wind(&kept.mark)?;
        self.comparisons = kept.comparisons;
        Ok(())
    }

    /// The system calls of these numbers that the journal has behind what was kept: each one's event, and its task.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub(crate) fn calls_behind(&self, kept: &Kept, numbers: &[i64]) -> Result<Vec<(u64, i32)>, ReplayError> {
        let here = self.tape.mark();
        self.tape.wind(&kept.mark)?;
        let found = self.tape.calls_from_here(numbers);
        self.tape.wind(&here)?;
        Ok(found?)
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
            // Those of the program's end are compared there: its last tasks may end behind the last event.
            Some(Record::Digests(expected)) if !self.tape.ends_behind_next() => {
                self.tape.take()?;
                self.compare(expected)?;
                Ok(Progress::Running)
            }
            // Behind the last event the program may compute for ever: nothing says where it was stopped.
            None | Some(Record::End(End::Interrupted | End::Stopped | End::Full | End::Kept)) => {
                Ok(Progress::Done)
            }
            // An End is taken when the program ends by itself; one that stands here is a divergence to come.
            Some(_) => self.step_process(until),
        }
    }

    fn step_process(&mut self, until: Until) -> Result<Progress, ReplayError> {
        let found = match self.process.step_until(until)? {
            Step::Running | Step::Died(_) | Step::Interrupted => return Ok(Progress::Running),
            Step::Budget => return Ok(Progress::Bound),
            Step::Exited(status) => End::Exited(status),
            Step::Killed(death) => End::Killed(death),
        };
        while let Some(Record::Digests(expected)) = self.tape.peek()? {
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

    /// Compares all that the program is.
    fn compare(&mut self, expected: Digests) -> Result<(), ReplayError> {
        let found = self.process.digests()?;
        self.comparisons += 1;
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

    /// Who writes checkpoints of this replay to `path`, which must not exist.
    pub(crate) fn keeper(&self, path: PathBuf, rate: Rate) -> Result<Keeper, ReplayError> {
        let unwritable = |error| RecordingError::Write { path: path.clone(), error };
        Ok(Keeper::new(path.clone(), &self.header, rate, true).map_err(unwritable)?)
    }

    /// Has a checkpoint written if one is due, where so many events had been replayed before the last step.
    pub(crate) fn keep_on_disk(&mut self, keeper: &mut Keeper, before: u64) -> Result<(), ReplayError> {
        let (behind_event, journal) = (self.events() > before, Journal::Played(self.tape.place()));
        Ok(keeper.keep_if_due(&mut self.process, journal, behind_event, self.comparisons, Instant::now())?)
    }

    /// Has the last checkpoint written, here.
    pub(crate) fn keep_last_on_disk(&mut self, keeper: &mut Keeper) -> Result<(), ReplayError> {
        Ok(keeper.keep_last(&mut self.process, self.tape.place(), self.comparisons)?)
    }

    /// Takes checkpoints into account that were written since it began; those that it has brought into memory stay.
    pub(crate) fn look_at_shelf(&mut self, recording: &Recording) -> Result<(), ReplayError> {
        self.shelf = Shelf::open(recording)?;
        Ok(())
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
            comparisons: self.comparisons,
            engine: self.process.ran_on(),
            state: self.process.digests()?,
            crumbs: self.tape.agreement(),
            damage: self.tape.damage(),
        })
    }
}
