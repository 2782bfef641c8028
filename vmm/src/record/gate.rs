//! What a recording keeps of each event: the gate, by which the host's answers come, and the journal behind it.

use super::room::Room;
use super::times::Stopwatch;
use crate::checkpoints::keeper::Keeper;
use crate::crumbs::Leaver;
use crate::gate::{AtExit, Event, Gate, GateError, Input, Time};
use crate::interrupt;
use crate::journal::schema::digest_regs;
use crate::journal::{End, Record, Writer};
use crate::process::{Process, ProcessError};
use crate::signal::Arrived;
use crate::timeline::Recent;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use x86::state::Regs;

/// What the gate and the driver share.
pub(super) struct Shared {
    pub(super) writer: Writer,
    pub(super) recent: RefCell<Recent>,
    pub(super) events: Cell<u64>,
    /// So many of them are complete.
    whole_events: Cell<u64>,
    /// The room on disk, if it is bounded.
    room: Option<Room>,
    /// How many digests of the whole program were journaled.
    pub(super) digests: Cell<u64>,
    /// The recording has ended behind so many events, and the program goes on without.
    pub(super) full_at: Cell<Option<u64>>,
    /// Where time goes, if that is measured.
    pub(super) times: Stopwatch,
}

impl Shared {
    pub(super) fn new(writer: Writer, room: Option<Room>, near_past: bool, profile: bool) -> Shared {
        let recent = RefCell::new(Recent::new(near_past));
        let (events, whole_events, digests, full_at) =
            (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(None));
        Shared {
            writer,
            recent,
            events,
            whole_events,
            room,
            digests,
            full_at,
            times: Stopwatch::new(profile),
        }
    }

    pub(super) fn failed(&self, error: io::Error) -> GateError {
        let (path, offset) = self.writer.place();
        GateError::Write { path, offset, error }
    }

    /// Journals a record of an event, and keeps it for the near past.
    fn put_event(&self, record: &Record) -> Result<(), GateError> {
        self.times.of(
            |times| &mut times.journal,
            || {
                self.put(record)?;
                self.recent.borrow_mut().put(record);
                Ok(())
            },
        )
    }

    /// Journals digests of all that the program is now.
    pub(super) fn put_digests(&self, process: &mut Process) -> Result<(), ProcessError> {
        if self.is_full() {
            return Ok(());
        }
        self.put(&Record::Digests(process.digests()?))?;
        self.digests.set(self.digests.get() + 1);
        Ok(())
    }

    pub(super) fn put(&self, record: &Record) -> Result<(), GateError> {
        if self.is_full() {
            return Ok(());
        }
        self.writer.put(record).map_err(|e| self.failed(e))
    }

    /// Journals an input of an event, and keeps it for the near past.
    fn put_input(&self, input: &Input) -> Result<(), GateError> {
        self.times.of(
            |times| &mut times.journal,
            || {
                if !self.is_full()
                    && self.room.as_ref().is_some_and(|room| !room.has_room_for(&self.writer, input))
                {
                    self.end_before()?;
                }
                if !self.is_full() {
                    self.writer.put_input(input).map_err(|e| self.failed(e))?;
                }
                self.recent.borrow_mut().put_input(input);
                Ok(())
            },
        )
    }

    /// Whether the recording has ended and the program goes on.
    pub(super) fn is_full(&self) -> bool {
        self.full_at.get().is_some()
    }

    /// Ends the recording behind the event that is complete.
    pub(super) fn end_here(&self, process: &mut Process) -> Result<(), ProcessError> {
        self.put_digests(process)?;
        self.put(&Record::End(End::Full))?;
        self.full_at.set(Some(self.events.get()));
        self.writer.finish().map_err(|e| self.failed(e))?;
        Ok(())
    }

    /// Ends the recording in front of the event that is going on: one of its inputs has no room.
    fn end_before(&self) -> Result<(), GateError> {
        self.writer.drop_unfinished();
        self.put(&Record::End(End::Full))?;
        self.full_at.set(Some(self.whole_events.get()));
        self.writer.finish().map_err(|e| self.failed(e))?;
        Ok(())
    }

    /// What was put so far is whole: an event is complete.
    pub(super) fn mark_whole(&self) {
        self.writer.mark_whole();
        self.whole_events.set(self.events.get());
    }

    /// Behind an event: whether the recording has ended, by one of the event's inputs or now, as its room on disk is used up.
    pub(super) fn ends_at_room(
        &self,
        process: &mut Process,
        keeper: Option<&mut Keeper>,
    ) -> Result<bool, ProcessError> {
        let Some(room) = &self.room else { return Ok(false) };
        if !self.is_full() && room.is_used_up(&self.writer, keeper, process) {
            self.end_here(process)?;
        }
        Ok(self.is_full())
    }
}

/// The gate of a recording: the host produces, the journal keeps.
pub(super) struct RecordingGate {
    pub(super) shared: Rc<Shared>,
    pub(super) crumbs: Option<Leaver>,
    /// Whether signals to this process are for the program.
    pub(super) takes_signals: bool,
    /// Those of the last time.
    pub(super) arrived: Arrived,
}

impl Gate for RecordingGate {
    fn exit(&mut self, at: &AtExit<'_>) {
        if let Some(crumbs) = &mut self.crumbs {
            crumbs.leave(at, self.shared.events.get());
        }
    }

    fn begin(&mut self, event: Event, task: i32, regs: &Regs) -> Result<(), GateError> {
        let shared = &self.shared;
        shared.events.set(shared.events.get() + 1);
        tracing::trace!(event = shared.events.get(), ?event, rip = format_args!("{:#x}", regs.rip));
        shared.put_event(&Record::Begin { event, task, regs: digest_regs(regs) })
    }

    fn input(&mut self, produce: &mut dyn FnMut() -> Input) -> Result<Input, GateError> {
        let input = produce();
        self.shared.put_input(&input)?;
        Ok(input)
    }

    fn time(&mut self) -> Result<Time, GateError> {
        let time = Time::now();
        self.shared.put_event(&Record::Time(time))?;
        if self.takes_signals {
            let arrived = interrupt::take_for_program();
            if !arrived.is_empty() {
                self.shared.put_event(&Record::Signals(arrived))?;
                self.arrived = arrived;
            }
        }
        Ok(time)
    }

    fn arrived(&mut self) -> Arrived {
        std::mem::take(&mut self.arrived)
    }

    fn is_signalled(&self) -> bool {
        self.takes_signals && interrupt::is_any_for_program()
    }

    fn output(&mut self, _descriptor: i32, _bytes: &[u8]) {}

    fn replaying(&self) -> bool {
        false
    }
}
