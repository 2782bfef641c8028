//! The gate of a replay: what enters comes from records, from a journal's or from those that a recorder has kept.
//!
//! A [`Tape`] is the records and how far they were played; it can be wound back to a [`Mark`]. [`ReplayGate`] plays it to a
//! program, and compares at every event.

use crate::crumbs::{Agreement, Check};
use crate::found::Found;
use crate::gate::{AtExit, Event, Gate, GateError, Input, Preemption, Time};
use crate::journal::reader::Place;
use crate::journal::schema::digest_regs;
use crate::journal::{Damage, End, JournalError, Reader, Record};
use crate::position::Offset;
use crate::signal::Arrived;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use x86::state::Regs;

/// Takes what the program prints: descriptor (1 or 2) and bytes.
pub type Output = Box<dyn FnMut(i32, &[u8])>;

/// Where records come from.
enum Source {
    Journal(Box<Reader>),
    /// Those that were kept in memory, and which is next.
    Kept(Rc<[Record]>, usize),
}

/// Records that are played: what the gate and the driver of a replay share.
pub(crate) struct Tape {
    source: RefCell<Source>,
    /// How many events were begun.
    events: Cell<u64>,
    /// The newest event whose output was given away.
    printed: Cell<u64>,
    check: RefCell<Check>,
    found: RefCell<Found>,
}

/// How far a tape was played.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    place: Place,
    events: u64,
    agreement: Agreement,
}

impl Mark {
    /// In front of a record of a list, when so many events have begun.
    pub(crate) fn of_record(record: usize, events: u64) -> Mark {
        Mark::at(Place::of_record(record), events)
    }

    /// At a place, when so many events have begun.
    pub(crate) fn at(place: Place, events: u64) -> Mark {
        Mark { place, events, agreement: Agreement::default() }
    }
}

impl Tape {
    /// A journal from its first event on, whose exits are compared with crumbs, and of whose preemptions some were found.
    pub(crate) fn journal(reader: Reader, check: Check, found: Found) -> Tape {
        Tape {
            source: RefCell::new(Source::Journal(Box::new(reader))),
            events: Cell::new(0),
            printed: Cell::default(),
            check: RefCell::new(check),
            found: RefCell::new(found),
        }
    }

    /// Records that follow `events` others.
    pub(crate) fn kept(records: Rc<[Record]>, events: u64) -> Tape {
        Tape {
            source: RefCell::new(Source::Kept(records, 0)),
            events: Cell::new(events),
            printed: Cell::default(),
            check: RefCell::default(),
            found: RefCell::default(),
        }
    }

    /// The next record, which stays.
    pub(crate) fn peek(&self) -> Result<Option<Record>, GateError> {
        self.look(|record| record.cloned())
    }

    fn look<T>(&self, see: impl FnOnce(Option<&Record>) -> T) -> Result<T, GateError> {
        match &mut *self.source.borrow_mut() {
            Source::Journal(reader) => Ok(see(reader.peek().map_err(unreadable)?)),
            Source::Kept(records, next) => Ok(see(records.get(*next))),
        }
    }

    /// The next record.
    pub(crate) fn take(&self) -> Result<Record, GateError> {
        let record = match &mut *self.source.borrow_mut() {
            Source::Journal(reader) => reader.take().map_err(unreadable)?,
            Source::Kept(records, next) => {
                *next += 1;
                records.get(*next - 1).cloned()
            }
        };
        record.ok_or_else(|| GateError::EndOfJournal { event: self.events.get() })
    }

    /// The preemption that is next, if one is.
    fn preemption(&self) -> Result<Option<Preemption>, GateError> {
        let event = |record: Option<&Record>| match record {
            Some(Record::Begin { event: Event::Preempt(offset), .. }) => Some(offset.clone()),
            _ => None,
        };
        let Some(offset) = self.look(event)? else { return Ok(None) };
        let count = self.found.borrow().count(self.events.get());
        Ok(Some(Preemption { offset, count, time: self.look_behind(time_of) }))
    }

    /// The tick at which the program asks for the time next, if it does.
    fn clock(&self) -> Result<Option<u64>, GateError> {
        self.look(|record| match record {
            Some(Record::Begin { event: Event::Clock(tick), .. }) => Some(*tick),
            _ => None,
        })
    }

    /// The process that is killed next for want of memory, if one is.
    fn victim(&self) -> Result<Option<i32>, GateError> {
        self.look(|record| match record {
            Some(Record::Begin { event: Event::OutOfMemory(pid), .. }) => Some(*pid),
            _ => None,
        })
    }

    /// Whether the program ends behind the next record.
    pub(crate) fn ends_behind_next(&self) -> bool {
        self.look_behind(|record| matches!(record, Some(Record::End(End::Exited(_) | End::Killed(_)))))
    }

    /// The record behind the next one, if it is of the same event.
    fn look_behind<T>(&self, see: impl FnOnce(Option<&Record>) -> T) -> T {
        match &*self.source.borrow() {
            Source::Journal(reader) => see(reader.second()),
            Source::Kept(records, next) => see(records.get(*next + 1)),
        }
    }

    /// The system calls of these numbers among the records that are left: each one's event, and its task. Takes all of them.
    pub(crate) fn calls_from_here(&self, numbers: &[i64]) -> Result<Vec<(u64, i32)>, GateError> {
        let (mut event, mut calls) = (self.events(), Vec::new());
        while self.look(|record| record.is_some())? {
            let Record::Begin { event: begun, task, .. } = self.take()? else { continue };
            event += 1;
            if matches!(begun, Event::Syscall(number) if numbers.contains(&number.cast_signed())) {
                calls.push((event, task));
            }
        }
        Ok(calls)
    }

    /// How many events were begun.
    pub(crate) fn events(&self) -> u64 {
        self.events.get()
    }

    /// Where it is.
    pub(crate) fn mark(&self) -> Mark {
        let place = match &*self.source.borrow() {
            Source::Journal(reader) => reader.tell(),
            Source::Kept(_, next) => Place::of_record(*next),
        };
        Mark { place, events: self.events.get(), agreement: self.check.borrow().agreement() }
    }

    /// Where it is in its journal.
    pub(crate) fn place(&self) -> Place {
        self.mark().place
    }

    /// Winds it to where it was. What the program prints on the way back to here was printed already.
    pub(crate) fn wind(&self, mark: &Mark) -> Result<(), GateError> {
        self.printed.set(self.printed.get().max(self.events.get()));
        match &mut *self.source.borrow_mut() {
            Source::Journal(reader) => reader.seek_to(mark.place).map_err(unreadable)?,
            Source::Kept(_, next) => *next = mark.place.record(),
        }
        self.events.set(mark.events);
        self.check.borrow_mut().set_agreement(mark.agreement.clone());
        Ok(())
    }

    /// What comparing with crumbs came to.
    pub(crate) fn agreement(&self) -> Agreement {
        self.check.borrow().agreement()
    }

    /// Gives crumbs without counts those of this replay.
    pub(crate) fn add_counts(&self, crumbs: &mut lbr::Crumbs) {
        self.check.borrow().add_counts(crumbs);
    }

    /// Why the records end early, if they do and all were taken.
    pub(crate) fn damage(&self) -> Option<Damage> {
        match &*self.source.borrow() {
            Source::Journal(reader) => reader.damage().cloned(),
            Source::Kept(..) => None,
        }
    }

    /// The error of a difference.
    pub(crate) fn diverged<T>(
        &self,
        what: &'static str,
        expected: String,
        found: String,
    ) -> Result<T, GateError> {
        Err(GateError::Diverged { event: self.events.get(), what, expected, found })
    }
}

fn time_of(record: Option<&Record>) -> Option<Time> {
    match record {
        Some(Record::Time(time)) => Some(*time),
        _ => None,
    }
}

fn signals_of(record: Option<&Record>) -> Option<Arrived> {
    match record {
        Some(Record::Signals(arrived)) => Some(*arrived),
        _ => None,
    }
}

fn unreadable(error: JournalError) -> GateError {
    GateError::Read(error.to_string())
}

/// The gate of a replay: the tape gives, the host is not asked.
pub(crate) struct ReplayGate {
    tape: Rc<Tape>,
    output: Option<Output>,
    arrived: Arrived,
}

impl ReplayGate {
    /// Plays `tape`, and gives what the program prints to `output`.
    pub(crate) fn new(tape: Rc<Tape>, output: Option<Output>) -> ReplayGate {
        ReplayGate { tape, output, arrived: Arrived::default() }
    }
}

impl Gate for ReplayGate {
    fn exit(&mut self, at: &AtExit<'_>) {
        self.tape.check.borrow_mut().compare(at, self.tape.events.get());
    }

    fn begin(&mut self, event: Event, task: i32, regs: &Regs) -> Result<(), GateError> {
        let tape = &self.tape;
        tape.events.set(tape.events.get() + 1);
        tracing::trace!(event = tape.events.get(), ?event, rip = format_args!("{:#x}", regs.rip));
        let crumb = tape.check.borrow().rip(tape.events.get() - 1);
        let crumb = crumb.map(|rip| format!(", rip {rip:#x} by its crumb")).unwrap_or_default();
        match tape.take()? {
            Record::Begin { event: expected, .. } if expected != event => {
                tape.diverged("the event", describe_event(&expected) + &crumb, describe_event(&event))
            }
            Record::Begin { task: expected, .. } if expected != task => tape.diverged(
                "the task",
                format!("{expected} at {}{crumb}", describe_event(&event)),
                task.to_string(),
            ),
            Record::Begin { regs: expected, .. } if expected != digest_regs(regs) => tape.diverged(
                "the registers",
                format!("digest {expected:#018x} at {}{crumb}", describe_event(&event)),
                format!("digest {:#018x}, rip {:#x}", digest_regs(regs), regs.rip),
            ),
            Record::Begin { .. } => Ok(()),
            other => tape.diverged("the event", describe(&other), describe_event(&event)),
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
            Record::Time(time) => {
                if let Some(arrived) = self.tape.look(signals_of)? {
                    self.tape.take()?;
                    self.arrived = arrived;
                }
                Ok(time)
            }
            other => self.tape.diverged("a time", describe(&other), "a request for the time".to_owned()),
        }
    }

    fn arrived(&mut self) -> Arrived {
        std::mem::take(&mut self.arrived)
    }

    fn output(&mut self, descriptor: i32, bytes: &[u8]) {
        let is_new = self.tape.events.get() > self.tape.printed.get();
        if let (Some(show), 1 | 2, true) = (&mut self.output, descriptor, is_new) {
            show(descriptor, bytes);
        }
    }

    fn replaying(&self) -> bool {
        true
    }

    fn preemption(&mut self) -> Result<Option<Preemption>, GateError> {
        self.tape.preemption()
    }

    fn clock(&mut self) -> Result<Option<u64>, GateError> {
        self.tape.clock()
    }

    fn victim(&mut self, _worst: Option<i32>) -> Result<Option<i32>, GateError> {
        self.tape.victim()
    }

    fn found(&mut self, count: u64) {
        self.tape.found.borrow_mut().put(self.tape.events.get(), count);
    }
}

fn describe_event(event: &Event) -> String {
    match event {
        Event::Syscall(number) => format!("system call {number}"),
        Event::Clock(tick) => format!("the vDSO's call {tick} for the time"),
        Event::MachineRead => "an instruction that reads the machine".to_owned(),
        Event::Signal(signal) => format!("signal {signal}"),
        Event::Exited(status) => format!("the end with status {status}"),
        Event::Wait => "a wait of all tasks".to_owned(),
        Event::Preempt(Offset::Retired(count)) => format!("a preemption after {count} instructions"),
        Event::Preempt(Offset::State(target)) => format!("a preemption at {:#x}", target.regs.rip),
        Event::OutOfMemory(pid) => format!("the end of process {pid} for want of memory"),
    }
}

/// A record in a message.
pub(crate) fn describe(record: &Record) -> String {
    match record {
        Record::Begin { event, .. } => describe_event(event),
        Record::Input(input) => format!("an input ({})", input.kind()),
        Record::Time(_) => "a time".to_owned(),
        Record::Signals(_) => "signals from outside".to_owned(),
        Record::Digests(_) => "a checkpoint".to_owned(),
        Record::End(end) => format!("the recording's end ({end:?})"),
    }
}
