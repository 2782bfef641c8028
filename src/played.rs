//! A recording that is replayed for what happens in it: `gretel events`, `gretel export`.
//!
//! [`Played::next`] runs to the next exit, and gives what has happened there. Example: at the exit of a `write` that wakes a
//! reader, that is the call, the switch to the reader, and the reader's `read`, which returns.

use crate::engine::{self, Choice};
use crate::exit::{Code, Failure};
use crate::log::say;
use crate::replay::failure;
use crate::sandbox;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use vmm::engine::Until;
use vmm::position::Position;
use vmm::process::Process;
use vmm::process::happening::Happening;
use vmm::ram::for_replay;
use vmm::recording::Recording;
use vmm::replay::{Progress, Replayed};
use vmm::timeline::Timeline;

/// A recording that is being replayed.
pub(crate) struct Played {
    timeline: Timeline,
    /// What has happened and was not asked for yet.
    happened: Rc<RefCell<Vec<Happening>>>,
    /// Why the replay cannot go on: said when all that happened before is out.
    failed: Option<Failure>,
}

impl Played {
    /// Opens a recording before its first instruction, or where its window begins, and confines gretel.
    pub(crate) fn open(dir: &Path, choice: Choice) -> Result<Played, Failure> {
        let recording = Recording::open(dir).map_err(|error| Failure::new(Code::Damaged, error))?;
        let engine = engine::open(choice, for_replay())?;
        sandbox::enter();
        let mut timeline = Timeline::open(&recording, engine).map_err(failure)?;
        timeline.replay().shelf().notes().iter().for_each(|note| say!("gretel: {note}"));
        let happened: Rc<RefCell<Vec<Happening>>> = Rc::default();
        let told = Rc::clone(&happened);
        let tell = move |happening: &Happening| told.borrow_mut().push(happening.clone());
        timeline.replay_mut().process_mut().trace(Box::new(tell));
        Ok(Played { timeline, happened, failed: None })
    }

    /// Goes to right before a position, from the nearest checkpoint, and forgets what happened before it.
    pub(crate) fn skip_to(&mut self, from: Position) -> Result<(), Failure> {
        let before = Position { event: from.event.saturating_sub(1), retired: 0 };
        let arrived = self.timeline.seek(before);
        self.happened.borrow_mut().retain(|happening| happening.position >= from);
        arrived.map(drop).map_err(failure)
    }

    /// Runs to the next exit and gives what happened; `None` behind the recording's end.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<Happening>>, Failure> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        if self.timeline.ended() {
            return Ok(self.taken());
        }
        match self.timeline.step_until(Until::Exit) {
            Ok(Progress::Running | Progress::Bound) => Ok(Some(self.happened.take())),
            Ok(Progress::Done) => Ok(self.taken()),
            Err(error) => {
                self.failed = Some(failure(error));
                Ok(Some(self.happened.take()))
            }
        }
    }

    /// What is left.
    fn taken(&self) -> Option<Vec<Happening>> {
        Some(self.happened.take()).filter(|left| !left.is_empty())
    }

    /// The program as it stands.
    pub(crate) fn process(&self) -> &Process {
        self.timeline.replay().process()
    }

    /// Where the recording begins, if that is not the program's start.
    pub(crate) fn window_begins(&self) -> Option<Position> {
        self.timeline.replay().window_begins()
    }

    /// Where it stands.
    pub(crate) fn position(&self) -> Position {
        self.timeline.position()
    }

    /// How the recording ended, at its end.
    pub(crate) fn report(&mut self) -> Result<Replayed, Failure> {
        self.timeline.replay_mut().report().map_err(failure)
    }
}
