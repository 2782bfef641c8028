//! Any moment of a machine's recording, forwards and backwards.
//!
//! A recording has [`Starts`]: the boot, and checkpoints on disk. From one of them the machine runs, is typed to, and compares digests,
//! as in a replay. Checks of the journal, at which it rests, are where snapshots are kept in memory (`history`). Backwards is forwards
//! from the last snapshot before. `steps` goes through a part of it one instruction after the other, for what a processor records of its
//! branches.
//!
//! Example: one step back from 50,000,000 instructions. The snapshot at 33,554,432 is put back, the machine runs to the check at
//! 50,331,648 if that is before, else to 49,999,999; from there it goes by single steps, and the last position before 50,000,000 is the
//! one that was meant.

mod history;
mod steps;
#[cfg(test)]
mod tests;

pub use steps::BranchError;

use crate::journal::{End, Record};
use crate::machine::{Look, Machine, Pause, Position, Seen};
use crate::record::CHECK;
use crate::replay::{ReplayError, compare, wait};
use history::History;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vmm::engine::lookout::Lookout;

/// Instructions between two looks at whether somebody asks for a stop.
const SLICE: u64 = 1 << 22;
/// Instructions between two snapshots, at first.
const SPACING: u64 = CHECK * 4;

/// Where a machine can begin: the boot or the checkpoint that a recording begins with first, then later ones.
pub trait Starts {
    /// How many instructions have retired at each, and how many records were before. The first is always there.
    fn list(&self) -> &[(u64, u64)];
    /// A machine there.
    ///
    /// # Errors
    /// Why there is none.
    fn machine(&self, start: usize) -> Result<Machine, String>;
}

/// Why one cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum TravelError {
    /// The run is another one than was recorded.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// It cannot be begun.
    #[error("the recording cannot be begun: {0}")]
    Start(String),
    /// A snapshot is not there any more.
    #[error("the machine cannot be put back to {0} instructions")]
    Snapshot(u64),
}

/// Where a run has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Where it was to go.
    There,
    /// At something that was looked for. An access of data has been made; backwards it is to be made next.
    Seen(Seen),
    /// At the end of the recording.
    End,
    /// At its beginning.
    Begin,
    /// Somebody wanted it to stop.
    Asked,
}

/// Whether something that was seen is a reason to stop.
pub type Accept<'a> = &'a mut dyn FnMut(&Machine, Seen) -> bool;

/// A recording at a moment.
pub struct Travel {
    starts: Box<dyn Starts>,
    records: Vec<Record>,
    machine: Machine,
    /// The record that comes next.
    next: usize,
    /// Which start the machine has run from.
    start: usize,
    history: History,
    /// What cannot be used, in words.
    notes: Vec<String>,
    asks: Arc<AtomicBool>,
}

impl Travel {
    /// Goes to a position, or to the end.
    ///
    /// # Errors
    /// When the recording cannot be begun, or the run differs.
    pub fn open(
        starts: Box<dyn Starts>,
        records: Vec<Record>,
        at: Option<u64>,
    ) -> Result<Travel, TravelError> {
        let mut notes = Vec::new();
        let at = at.map_or(Position { retired: u64::MAX, delivered: 0 }, Position::at);
        let (start, mut machine) = begin(&*starts, at.retired, &mut notes)?;
        let next = first_record(&*starts, start);
        let history = History::new(&mut machine, next, SPACING);
        let mut travel =
            Travel { starts, records, machine, next, start, history, notes, asks: Arc::default() };
        travel.run_to(at, &Look::default(), false)?;
        Ok(travel)
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Where it stands.
    #[must_use]
    pub fn position(&self) -> Position {
        self.machine.position()
    }

    /// How it ended, where it stands at its end.
    #[must_use]
    pub fn ended(&self) -> Option<&End> {
        match self.records.get(self.next) {
            Some(Record::End { at, end, .. }) if *at == self.machine.moment() => Some(end),
            _ => None,
        }
    }

    /// What of the recording could not be used, since this was called last.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// What ends a run early when it is set.
    #[must_use]
    pub fn asks(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asks)
    }

    /// Goes to a position, or to the end if that is before.
    ///
    /// # Errors
    /// When the run differs.
    pub fn seek(&mut self, to: Position) -> Result<Stop, TravelError> {
        self.machine.watch(&Look::default());
        self.go_near(to)?;
        self.run_to(to, &Look::default(), true)
    }

    /// Goes to the beginning.
    ///
    /// # Errors
    /// As [`Travel::seek`].
    pub fn seek_begin(&mut self) -> Result<(), TravelError> {
        self.go_near(Position::default())
    }

    /// Goes on to what is looked for and accepted, or to the end.
    ///
    /// # Errors
    /// As [`Travel::seek`].
    pub fn forward(&mut self, lookout: &Lookout, accept: Accept) -> Result<Stop, TravelError> {
        let end = Position { retired: u64::MAX, delivered: 0 };
        self.until(end, lookout, accept)
    }

    /// One instruction, or one delivery of an exception or interrupt. An access that is looked for is told.
    ///
    /// # Errors
    /// As [`Travel::seek`].
    pub fn step(&mut self, lookout: &Lookout, accept: Accept) -> Result<Stop, TravelError> {
        let here = self.position();
        self.until(Position { delivered: here.delivered + 1, ..here }, lookout, accept)
    }

    fn until(&mut self, to: Position, lookout: &Lookout, accept: Accept) -> Result<Stop, TravelError> {
        let look = Look::of(lookout);
        self.machine.watch(&look);
        loop {
            match self.run_to(to, &look, true)? {
                Stop::Seen(seen) if accept(&self.machine, seen) => return Ok(Stop::Seen(seen)),
                Stop::Seen(_) => {}
                stop => return Ok(stop),
            }
        }
    }

    /// Goes back one step.
    ///
    /// # Errors
    /// As [`Travel::seek`].
    pub fn step_back(&mut self) -> Result<Stop, TravelError> {
        let here = self.position();
        self.seek(Position::at(here.retired.saturating_sub(1)))?;
        if self.position() >= here {
            return Ok(Stop::Begin);
        }
        let mut last = self.position();
        while self.position() < here {
            last = self.position();
            let next = Position { delivered: last.delivered + 1, ..last };
            if self.run_to(next, &Look::default(), false)? != Stop::There {
                break;
            }
        }
        self.seek(last)
    }

    /// Goes back to the last moment before this one where there is what is looked for and accepted, or to the beginning.
    ///
    /// # Errors
    /// As [`Travel::seek`].
    pub fn backward(&mut self, lookout: &Lookout, accept: Accept) -> Result<Stop, TravelError> {
        let (here, look) = (self.position(), Look::of(lookout));
        let mut end = here;
        loop {
            self.go_before(end)?;
            let begin = self.position();
            if begin >= end {
                return Ok(Stop::Begin);
            }
            self.machine.watch(&look);
            let mut last = None;
            loop {
                match self.run_to(end, &look, true)? {
                    Stop::Seen(seen) => {
                        let at = match seen {
                            Seen::Code(_) => self.position(),
                            Seen::Data { before, .. } => before,
                        };
                        if at < here && accept(&self.machine, seen) {
                            last = Some((at, seen));
                        }
                    }
                    Stop::Asked => {
                        self.seek(here)?;
                        return Ok(Stop::Asked);
                    }
                    _ => break,
                }
            }
            if let Some((at, seen)) = last {
                self.seek(at)?;
                return Ok(Stop::Seen(seen));
            }
            end = begin;
        }
    }

    /// Goes to a start or a snapshot up to a position, unless the machine is between that and the position already.
    fn go_near(&mut self, to: Position) -> Result<(), TravelError> {
        let snapshot = self.history.before(to);
        let start = best(self.starts.list(), to.retired);
        let start_at = self.starts.list().get(start).map_or(0, |(retired, _)| *retired);
        let here = self.position();
        if here <= to && here.retired >= start_at && snapshot.is_none_or(|at| at <= here) {
            return Ok(());
        }
        match snapshot {
            Some(at) if at.retired >= start_at => self.restore(at),
            _ => self.begin_at(to.retired),
        }
    }

    /// Goes to the last start or snapshot that is before a position; to the first start if there is none.
    fn go_before(&mut self, position: Position) -> Result<(), TravelError> {
        if position <= self.history.begin() && self.start > 0 {
            // What is before is another start's.
            return self.begin_at(position.retired.saturating_sub(1));
        }
        let before = Position { retired: position.retired, delivered: position.delivered.saturating_sub(1) };
        let strictly = if position.delivered > 0 { before } else { earlier(position) };
        let at = self.history.before(strictly).unwrap_or_else(|| self.history.begin());
        self.restore(at)
    }

    fn restore(&mut self, at: Position) -> Result<(), TravelError> {
        let next = self.history.restore(&mut self.machine, at);
        self.next = next.ok_or(TravelError::Snapshot(at.retired))?;
        Ok(())
    }

    fn begin_at(&mut self, retired: u64) -> Result<(), TravelError> {
        let (start, mut machine) = begin(&*self.starts, retired, &mut self.notes)?;
        self.next = first_record(&*self.starts, start);
        self.history = History::new(&mut machine, self.next, SPACING);
        (self.start, self.machine) = (start, machine);
        Ok(())
    }

    /// Runs to a position, or to what is looked for. Snapshots are kept on the way, where `keep`, or where they are far apart.
    fn run_to(&mut self, to: Position, look: &Look, keep: bool) -> Result<Stop, TravelError> {
        loop {
            if self.asks.swap(false, Ordering::Relaxed) {
                return Ok(Stop::Asked);
            }
            let here = self.position();
            if here >= to {
                return Ok(Stop::There);
            }
            let Some(record) = self.records.get(self.next) else { return Ok(Stop::End) };
            let (at, now) = (record.at(), self.machine.moment());
            if now == at {
                if matches!(record, Record::End { end: End::Stopped | End::Idle, .. }) {
                    return Ok(Stop::End);
                }
                if !matches!(record, Record::End { .. }) {
                    self.apply(to, keep)?;
                    continue;
                }
            }
            if now.retired > at.retired || now.time > at.time {
                return Err(elsewhere(record, format!("is at {} and {} ns", now.retired, now.time)).into());
            }
            // At the instruction, but not at the time: it halts, or ends.
            let bound = if now.retired == at.retired { now.retired + 1 } else { at.retired };
            let bound = Position::at(bound.min(now.retired + SLICE)).min(to);
            let pause = self.machine.run_looking(bound, look);
            self.machine.take_printed();
            match pause {
                Pause::There => {}
                Pause::Seen(seen) => return Ok(Stop::Seen(seen)),
                Pause::Idle(due) => {
                    wait(&mut self.machine, due, at)
                        .ok_or_else(|| elsewhere(record, "halts for ever".to_owned()))?;
                }
                Pause::Ended(end) => match record {
                    Record::End { end: End::Machine(expected), .. } if *expected == end => {
                        return Ok(Stop::End);
                    }
                    _ => return Err(elsewhere(record, format!("has ended: {end:?}")).into()),
                },
            }
        }
    }

    /// Does what the next record says, at whose moment it is.
    fn apply(&mut self, to: Position, keep: bool) -> Result<(), TravelError> {
        let record = &self.records[self.next];
        compare(&mut self.machine, record)?;
        self.next += 1;
        match record {
            Record::Input { input, .. } => self.machine.take_in(input),
            Record::Check { .. } => {
                let here = self.position();
                let is_last = keep && to.retired.saturating_sub(here.retired) <= CHECK;
                if is_last || self.history.wants(here) {
                    self.history.add(&mut self.machine, self.next);
                }
            }
            Record::End { .. } => {}
        }
        Ok(())
    }
}

/// A position that is before this one, and not before any other that is.
fn earlier(position: Position) -> Position {
    match position.retired.checked_sub(1) {
        Some(retired) => Position { retired, delivered: u64::MAX },
        None => Position::default(),
    }
}

fn elsewhere(record: &Record, found: String) -> ReplayError {
    let at = record.at();
    ReplayError::Elsewhere { expected: at.retired, expected_time: at.time, found }
}

fn first_record(starts: &dyn Starts, start: usize) -> usize {
    let records = starts.list().get(start).map_or(0, |(_, records)| *records);
    usize::try_from(records).unwrap_or(usize::MAX)
}

/// The last start before an instruction.
fn best(starts: &[(u64, u64)], retired: u64) -> usize {
    starts.partition_point(|(at, _)| *at < retired).saturating_sub(1)
}

/// A machine at the last start before an instruction that can be used.
fn begin(
    starts: &dyn Starts,
    retired: u64,
    notes: &mut Vec<String>,
) -> Result<(usize, Machine), TravelError> {
    let mut start = best(starts.list(), retired);
    loop {
        match starts.machine(start) {
            Ok(machine) => return Ok((start, machine)),
            Err(why) if start == 0 => return Err(TravelError::Start(why)),
            Err(why) => notes.push(format!("{why}; an earlier start is used")),
        }
        start -= 1;
    }
}
