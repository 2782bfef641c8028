//! Who wrote to memory last.

use super::recorded::Recorded;
use super::{Byte, Made, Place, Writer};
use crate::engine::Until;
use crate::engine::lookout::{Access, Lookout, Watch};
use crate::position::Position;
use crate::process::Process;
use crate::process::happening::{Happening, What};
use crate::replay::ReplayError;
use crate::travel::Stop;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use x86_provenance::Origin;

/// What going back has come to.
enum Found {
    Writer(Box<Writer<Position>>),
    /// Nobody has written since the beginning.
    Nobody,
    /// Somebody wants it to stop.
    Asked,
}

impl Recorded<'_> {
    /// The last thing before `at` that wrote to any of these bytes of a process's memory.
    pub(super) fn writer_of_memory(
        &mut self,
        at: Position,
        place: Place,
        bytes: &[Byte],
    ) -> Result<Option<Writer<Position>>, ReplayError> {
        let watch = |range| Watch { range, access: Access::Write };
        let lookout = Lookout { at: Vec::new(), data: ranges(bytes).into_iter().map(watch).collect() };
        self.travel.seek(at)?;
        let is_shared = self.is_shared(place, bytes);
        if !is_shared {
            return match self.last_of(at, place, bytes, &lookout, is_shared)? {
                Found::Asked => Ok(None),
                Found::Writer(writer) => Ok(Some(*writer)),
                Found::Nobody => self.there_before(place, bytes).map(Some),
            };
        }
        // Any process may have written it; it is taken for granted that they have it at the same address.
        let first = self.travel.process().first_pid();
        let births = self.survey()?.births.values();
        let others: BTreeSet<i32> = births.map(|birth| birth.pid).chain([first]).collect();
        let mut last: Option<Box<Writer<Position>>> = None;
        for pid in others {
            let place = if pid == place.pid { place } else { Place { pid, thread: pid } };
            match self.last_of(at, place, bytes, &lookout, is_shared)? {
                Found::Asked => return Ok(None),
                Found::Nobody => {}
                Found::Writer(writer) => {
                    last = [last, Some(writer)].into_iter().flatten().max_by_key(|it| it.at);
                }
            }
        }
        match last {
            Some(last) => Ok(Some(*last)),
            None => self.there_before(place, bytes).map(Some),
        }
    }

    fn is_shared(&self, place: Place, bytes: &[Byte]) -> bool {
        let process = self.travel.process();
        let shared = |byte: &Byte| matches!(byte, Byte::Memory(at) if process.space().is_shared(*at));
        process.pid() == place.pid && bytes.iter().any(shared)
    }

    /// The last thing before `at` that wrote to any of these bytes in one process. What is shared is not written by its becoming another.
    fn last_of(
        &mut self,
        at: Position,
        place: Place,
        bytes: &[Byte],
        lookout: &Lookout,
        is_shared: bool,
    ) -> Result<Found, ReplayError> {
        self.travel.seek(at)?;
        self.travel.follow(place.pid);
        loop {
            let found = match self.travel.backward(lookout)? {
                Stop::Accessed(_) => self.writer_here(bytes)?,
                Stop::Changed(_) => self.event_here(place, bytes, is_shared)?,
                Stop::Asked => return Ok(Found::Asked),
                _ => return Ok(Found::Nobody),
            };
            // A store under a mask may leave out what was asked for.
            if let Some(writer) = found {
                return Ok(Found::Writer(Box::new(writer)));
            }
        }
    }

    /// The event that comes next, which wrote some of these bytes.
    fn event_here(
        &mut self,
        place: Place,
        bytes: &[Byte],
        is_shared: bool,
    ) -> Result<Option<Writer<Position>>, ReplayError> {
        let (start, before) = (self.travel.position(), self.values(place, bytes));
        self.listen(true);
        self.travel.process_mut().note_writes(true);
        while self.travel.position().event == start.event && !self.travel.ended() {
            self.travel.walk(Until::Exit)?;
        }
        let writes = self.travel.process_mut().take_writes();
        self.travel.process_mut().note_writes(false);
        let happened = self.happened();
        self.listen(false);
        let after = self.values(place, bytes);
        let root = self.travel.process().space().root();
        let is_written = |byte: Byte| match byte {
            Byte::Memory(at) => {
                writes.iter().any(|it| it.root == root && (it.address..it.address + it.len).contains(&at))
            }
            _ => false,
        };
        let mut given = BTreeMap::new();
        for (byte, now) in &after {
            let was = before.get(byte);
            if is_written(*byte) || !is_shared && was.is_some_and(|was| was != now) {
                given.insert(*byte, (now.unwrap_or(0), Origin::default()));
            }
        }
        let mut at = Position { event: start.event + 1, retired: 0 };
        let (mut who, mut made) = (place, Made::Unknown("something between two events".to_owned()));
        for happening in happened.iter().filter(|it| it.pid == place.pid) {
            if let Some(what) = made_by(happening) {
                (who, made) = (Place { pid: happening.pid, thread: happening.task }, what);
                at = happening.position;
            }
        }
        if is_shared && given.is_empty() {
            self.travel.seek(start)?;
            return Ok(None);
        }
        if given.is_empty() {
            given = bytes.iter().map(|byte| (*byte, (0, Origin::default()))).collect();
        }
        let rip = self.rip_of(who.thread);
        let mut writer = Writer { at, place: who, rip, made, given, from: place };
        self.take_from_stream(&mut writer)?;
        self.travel.seek(start)?;
        Ok(Some(writer))
    }

    /// What a call has read from a pipe is a copy of what was written to it.
    fn take_from_stream(&mut self, writer: &mut Writer<Position>) -> Result<(), ReplayError> {
        let several = self.travel.process().threads_started() > 1;
        if !several || !matches!(writer.made, Made::Call { .. }) {
            return Ok(());
        }
        let (at, pid) = (writer.at, writer.from.pid);
        let Some(transfer) = self.survey()?.taken(at, pid) else { return Ok(()) };
        for (byte, (_, origin)) in &mut writer.given {
            let Byte::Memory(address) = *byte else { continue };
            if let Some(number) = transfer.number_of(address) {
                let value = [Byte::Stream(transfer.stream, number)].into();
                *origin = Origin { copied: true, value, ..Origin::default() };
            }
        }
        Ok(())
    }

    /// Who wrote to a stream.
    pub(super) fn writer_of_stream(
        &mut self,
        stream: u32,
        number: u64,
        bytes: &[Byte],
    ) -> Result<Writer<Position>, ReplayError> {
        let Some(put) = self.survey()?.put(stream, number).cloned() else {
            let at = self.travel.begin();
            let (place, made) = (self.place(), Made::Unknown("nobody in the recording wrote it".to_owned()));
            let given = bytes.iter().map(|byte| (*byte, (0, Origin::default()))).collect();
            return Ok(Writer { at, place, rip: 0, made, given, from: place });
        };
        self.travel.seek(put.at)?;
        let mut given = BTreeMap::new();
        for byte in bytes {
            let Byte::Stream(_, number) = *byte else { continue };
            let Some(address) = put.address_of(number) else { continue };
            let mut value = [0];
            if self.travel.process().pid() == put.place.pid {
                self.travel.process().read_memory(address, &mut value);
            }
            let origin = Origin { copied: true, value: [Byte::Memory(address)].into(), ..Origin::default() };
            given.insert(*byte, (value[0], origin));
        }
        let rip = self.rip_of(put.place.thread);
        let (number, arguments, line) = (put.call.number, put.call.arguments, put.call.line);
        let made = Made::Call { number, arguments, line };
        Ok(Writer { at: put.at, place: put.place, rip, made, given, from: put.place })
    }

    /// The address where a task stands.
    pub(super) fn rip_of(&self, thread: i32) -> u64 {
        let process = self.travel.process();
        if process.thread() == thread {
            return process.cpu().regs().rip;
        }
        let mut others = process.other_tasks();
        others.find(|(id, _)| *id == thread).map_or(0, |(_, state)| state.regs.rip)
    }

    /// What the bytes are, `None` for one that is not mapped; empty if another process is loaded.
    fn values(&self, place: Place, bytes: &[Byte]) -> BTreeMap<Byte, Option<u8>> {
        let process = self.travel.process();
        if process.pid() != place.pid {
            return BTreeMap::new();
        }
        let value = |byte: &Byte| {
            let Byte::Memory(at) = byte else { return None };
            let mut value = [0];
            process.read_memory(*at, &mut value).then_some(value[0])
        };
        bytes.iter().map(|byte| (*byte, value(byte))).collect()
    }

    /// Nobody in this process wrote it: whoever started it may have, or it is there from the beginning.
    fn there_before(&mut self, place: Place, bytes: &[Byte]) -> Result<Writer<Position>, ReplayError> {
        let birth = match place.pid == self.travel.process().first_pid() {
            true => None,
            false => self.birth(place.pid)?,
        };
        if let Some(birth) = birth {
            let copy = |byte: &Byte| {
                let origin = Origin { copied: true, value: [*byte].into(), ..Origin::default() };
                (*byte, (0, origin))
            };
            let given = bytes.iter().map(copy).collect();
            return Ok(Writer {
                at: birth.at,
                place,
                rip: 0,
                made: Made::Started,
                given,
                from: birth.parent,
            });
        }
        let at = self.travel.begin();
        self.travel.seek(at)?;
        let first = match bytes.first() {
            Some(Byte::Memory(at)) => *at,
            _ => 0,
        };
        let process = self.travel.process();
        let mappings = process.mappings();
        let mapping = mappings.iter().find(|it| (it.start..it.end).contains(&first));
        let from = mapping.map(|it| format!("{}+{:#x}", it.name, first - it.start + it.file_offset));
        let from = argument_at(process, first).or(from);
        let values = self.values(place, bytes);
        let given = bytes
            .iter()
            .map(|byte| (*byte, (values.get(byte).copied().flatten().unwrap_or(0), Origin::default())))
            .collect();
        Ok(Writer { at, place, rip: 0, made: Made::Begin(from), given, from: place })
    }
}

/// What a happening is to the memory and the registers of its task, if it can write there.
pub(super) fn made_by(happening: &Happening) -> Option<Made> {
    match &happening.what {
        What::Call(call) => {
            call.stage.result()?;
            let (number, arguments, line) = (call.number, call.arguments, call.line.clone());
            Some(Made::Call { number, arguments, line })
        }
        What::MachineRead { instruction, .. } => Some(Made::Machine(instruction.clone())),
        What::Signal { raised, handler: Some(_) } => Some(Made::Signal(raised.death.signal)),
        What::Executed { path, .. } => Some(Made::Executed(String::from_utf8_lossy(path).into_owned())),
        _ => None,
    }
}

/// Which argument or environment variable a byte is in of a program that has not begun: Linux puts their number and their addresses where
/// the stack begins (System V ABI for x86-64, 3.4.1).
fn argument_at(process: &Process, address: u64) -> Option<String> {
    let stack = process.cpu().regs().gpr[4];
    let word = |at: u64| {
        let mut word = [0; 8];
        process.read_memory(at, &mut word).then(|| u64::from_le_bytes(word))
    };
    let count = word(stack)?;
    let mut found = None;
    for n in 0..count.min(MOST_TEXTS) {
        let start = word(stack.wrapping_add(8 + 8 * n))?;
        if start <= address {
            found = Some((start, format!("argument {n}")));
        }
    }
    for n in 0..MOST_TEXTS {
        let start = word(stack.wrapping_add(16 + 8 * (count + n)))?;
        if start == 0 {
            break;
        }
        if start <= address {
            found = Some((start, "the environment".to_owned()));
        }
    }
    let (start, name) = found?;
    // It ends with a zero.
    let mut text = vec![0; usize::try_from(address - start).ok().filter(|len| *len < (1 << 17))?];
    let within = process.read_memory(start, &mut text) && !text.contains(&0);
    within.then(|| format!("{name}, byte {}", address - start))
}

/// More arguments and variables than these are not looked through.
const MOST_TEXTS: u64 = 4096;

/// Bytes of memory as ranges of addresses, in order.
fn ranges(bytes: &[Byte]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for byte in bytes {
        let Byte::Memory(at) = *byte else { continue };
        match ranges.last_mut() {
            Some(last) if last.end == at => last.end += 1,
            _ => ranges.push(at..at.saturating_add(1)),
        }
    }
    ranges
}
