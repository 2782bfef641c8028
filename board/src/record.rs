//! Runs a machine with a terminal, and writes down what is typed.
//!
//! Between two slices of instructions the terminal is asked. A guest that halts waits in real time for as long as somebody may type;
//! else its clock goes to the next timer at once. Example: `sleep 10` in a shell takes ten seconds at a terminal, and none with
//! `</dev/null`; the guest sees ten seconds of its own either way.

use crate::journal::{End, Record, Writer};
use crate::machine::{Machine, Moment, Pause};
use std::io;
use std::time::{Duration, Instant};

/// So many instructions run before the terminal is asked.
const SLICE: u64 = 1 << 20;
/// So many slices run before a digest is written, so that a replay that differs is told soon.
const CHECK: u64 = SLICE << 7;

/// Where bytes are typed and shown.
pub trait Terminal {
    /// What was typed, at most so many bytes.
    fn take(&mut self, most: usize) -> Vec<u8>;
    /// Whether there is any of that.
    fn has_typed(&mut self) -> bool;
    /// Waits until something is typed or an end is wanted, or so long; whether the time is over.
    fn wait(&mut self, at_most: Option<Duration>) -> bool;
    /// Whether nothing will be typed any more.
    fn is_over(&self) -> bool;
    /// Whether the recording is to end.
    fn wants_end(&self) -> bool;
    /// Shows what the guest printed.
    ///
    /// # Errors
    /// When it cannot be written.
    fn show(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// Why a recording could not go on. What is in the journal stays usable.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The journal cannot be written.
    #[error("cannot write the journal: {0}")]
    Journal(io::Error),
    /// What the guest prints cannot be shown.
    #[error("cannot write to stdout: {0}")]
    Shown(io::Error),
}

/// What was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// How it ended.
    pub end: End,
    /// When.
    pub at: Moment,
}

/// Runs a machine to its end. Once the terminal is over, a guest that has waited for so many nanoseconds of its time and printed
/// nothing is at its end, too.
///
/// # Errors
/// When something cannot be written.
pub fn record(
    machine: &mut Machine,
    writer: &mut Writer,
    terminal: &mut impl Terminal,
    patience: u64,
) -> Result<Recorded, RecordError> {
    let mut recorder = Recorder { machine, writer, terminal, patience, active: 0 };
    let ran = recorder.run();
    // What was printed before an error is shown before that is told.
    let shown = recorder.show();
    let end = ran?;
    shown?;
    let at = machine.moment();
    let record = Record::End { at, digests: machine.digests_of_all(), end: end.clone() };
    writer.put(&record).and_then(|()| writer.flush()).map_err(RecordError::Journal)?;
    Ok(Recorded { end, at })
}

struct Recorder<'r, T> {
    machine: &'r mut Machine,
    writer: &'r mut Writer,
    terminal: &'r mut T,
    patience: u64,
    /// When the guest last printed, or was typed to, by its clock.
    active: u64,
}

impl<T: Terminal> Recorder<'_, T> {
    fn run(&mut self) -> Result<End, RecordError> {
        loop {
            let next = (self.machine.moment().retired / SLICE + 1) * SLICE;
            let pause = self.machine.run(next);
            self.show()?;
            match pause {
                Pause::Ended(end) => return Ok(End::Machine(end)),
                _ if self.terminal.wants_end() => return Ok(End::Stopped),
                Pause::There if next.is_multiple_of(CHECK) => self.check()?,
                Pause::There => {}
                Pause::Idle(due) => {
                    if let Some(end) = self.idle(due) {
                        return Ok(end);
                    }
                }
            }
            self.take_typed()?;
            self.writer.tick().map_err(RecordError::Journal)?;
        }
    }

    /// The guest halts: it waits for its timer, or for what is typed before.
    fn idle(&mut self, due: Option<u64>) -> Option<End> {
        let now = self.machine.moment().time;
        if self.terminal.is_over() || self.machine.room() == 0 {
            let is_quiet = due.is_none_or(|due| due.saturating_sub(self.active) > self.patience);
            if self.terminal.is_over() && is_quiet || due.is_none() {
                return Some(End::Idle);
            }
            due.into_iter().for_each(|due| self.machine.wait_until(due));
            return None;
        }
        let began = Instant::now();
        let is_due = self.terminal.wait(due.map(|due| Duration::from_nanos(due.saturating_sub(now))));
        let waited = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        match due {
            Some(due) if is_due => self.machine.wait_until(due),
            // Time passes for what was typed; the event has it. Else the guest has not waited.
            _ if self.terminal.has_typed() => {
                self.machine.wait_until(due.unwrap_or(u64::MAX).min(now.saturating_add(waited)));
            }
            _ => {}
        }
        None
    }

    fn take_typed(&mut self) -> Result<(), RecordError> {
        let room = self.machine.room();
        let bytes = if room > 0 { self.terminal.take(room) } else { Vec::new() };
        if bytes.is_empty() {
            return Ok(());
        }
        let (at, digests) = (self.machine.moment(), self.machine.digests());
        self.active = at.time;
        self.machine.type_bytes(&bytes);
        self.writer.put(&Record::Typed { at, digests, bytes }).map_err(RecordError::Journal)
    }

    fn check(&mut self) -> Result<(), RecordError> {
        let (at, digests) = (self.machine.moment(), self.machine.digests());
        self.writer.put(&Record::Check { at, digests }).map_err(RecordError::Journal)
    }

    fn show(&mut self) -> Result<(), RecordError> {
        if !self.machine.has_printed() {
            return Ok(());
        }
        self.active = self.machine.moment().time;
        let printed = self.machine.take_printed();
        self.terminal.show(&printed).map_err(RecordError::Shown)
    }
}
