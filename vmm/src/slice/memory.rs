//! Who wrote to memory last.

use super::frame;
use super::recorded::{Recorded, instruction_at};
use super::{Byte, Made, Place, Writer};
use crate::engine::Until;
use crate::engine::lookout::{Access, Lookout, Watch};
use crate::position::Position;
use crate::process::Process;
use crate::process::happening::{Happening, What};
use crate::ram::Written;
use crate::replay::ReplayError;
use crate::travel::Stop;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use x86::decode::stores_x87_pointers;
use x86_provenance::Origin;

/// What is said of what nobody wrote.
pub(super) const BEGINS: &str = "as it was where the recording begins";

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
        let start = self.travel.position();
        let rip = self.travel.process().cpu().regs().rip;
        // Carried out by the kernel, since it asks for more than the state; most of what it stores is of the state.
        if self.place().pid == place.pid && stores_x87_pointers(&instruction_at(self.travel.process(), rip)) {
            let found = self.writer_here(bytes)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        let seen = self.watch_event(start, place, bytes)?;
        let mut given: BTreeMap<Byte, (Option<u8>, Origin)> = BTreeMap::new();
        for (byte, now) in &seen.after {
            let was = seen.before.get(byte);
            if seen.writes(*byte) || !is_shared && was.is_some_and(|was| was != now) {
                given.insert(*byte, (*now, Origin::default()));
            }
        }
        if is_shared && given.is_empty() {
            self.travel.seek(start)?;
            return Ok(None);
        }
        let mut at = Position { event: start.event + 1, retired: 0 };
        let (mut who, mut made) = (place, Made::Unknown("something between two events".to_owned()));
        for happening in seen.happened.iter().filter(|it| it.pid == place.pid) {
            if let Some(what) = made_by(happening) {
                (who, made) = (Place { pid: happening.pid, thread: happening.task }, what);
                at = happening.position;
            }
        }
        if given.is_empty() {
            given = bytes.iter().map(|byte| (*byte, (None, Origin::default()))).collect();
        }
        let rip = self.rip_of(who.thread);
        let mut writer =
            Writer { at, after: at, place: who, rip, made, given, from: place, uses: BTreeMap::new() };
        match &writer.made {
            Made::Call { .. } => self.take_from_stream(&mut writer)?,
            Made::Signal(_) => self.take_from_registers(&mut writer),
            _ => {}
        }
        self.travel.seek(start)?;
        Ok(Some(writer))
    }

    /// Goes over the next event, and says what it did to these bytes.
    fn watch_event(&mut self, start: Position, place: Place, bytes: &[Byte]) -> Result<Seen, ReplayError> {
        let before = self.values_at(place, bytes);
        self.listen(true);
        self.travel.process_mut().note_writes(true);
        while self.travel.position().event == start.event && !self.travel.ended() {
            self.travel.walk(Until::Exit)?;
        }
        let mut written = self.travel.process_mut().take_writes();
        self.travel.process_mut().note_writes(false);
        let happened = self.happened();
        self.listen(false);
        let root = self.travel.process().space().root();
        written.retain(|it| it.root == root);
        Ok(Seen { before, after: self.values_at(place, bytes), written, happened })
    }

    /// The frame of a signal handler has the registers of what was interrupted.
    fn take_from_registers(&mut self, writer: &mut Writer<Position>) {
        if self.place() != writer.place {
            return;
        }
        // A handler's third argument is the address of the ucontext.
        let context = self.travel.process().cpu().regs().gpr[2];
        for (byte, (value, origin)) in &mut writer.given {
            let Byte::Memory(address) = *byte else { continue };
            if let Some((register, n)) = frame::register_at(context, address) {
                let saved = Byte::General(register, n);
                writer.uses.extend(value.map(|value| (saved, value)));
                *origin = Origin { copied: true, value: [saved].into(), ..Origin::default() };
            }
        }
        // Before it, but behind what was served together with it: a handler's return that another signal waited for.
        writer.after = Position { event: writer.at.event.saturating_sub(1), retired: u64::MAX };
        writer.from = writer.place;
    }

    /// What a call has read from a pipe is a copy of what was written to it.
    fn take_from_stream(&mut self, writer: &mut Writer<Position>) -> Result<(), ReplayError> {
        let (at, pid) = (writer.at, writer.from.pid);
        let Some(transfer) = self.survey()?.taken(at, pid) else { return Ok(()) };
        for (byte, (value, origin)) in &mut writer.given {
            let Byte::Memory(address) = *byte else { continue };
            if let Some(number) = transfer.number_of(address) {
                let stream = Byte::Stream(transfer.stream, number);
                writer.uses.extend(value.map(|value| (stream, value)));
                let value = [stream].into();
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
            let given = bytes.iter().map(|byte| (*byte, (None, Origin::default()))).collect();
            return Ok(Writer {
                at,
                after: at,
                place,
                rip: 0,
                made,
                given,
                from: place,
                uses: BTreeMap::new(),
            });
        };
        self.travel.seek(put.at)?;
        let (mut given, mut uses) = (BTreeMap::new(), BTreeMap::new());
        for byte in bytes {
            let Byte::Stream(_, number) = *byte else { continue };
            let Some(address) = put.address_of(number) else { continue };
            let mut value = [0];
            let process = self.travel.process();
            let value = (process.pid() == put.place.pid && process.read_memory(address, &mut value))
                .then_some(value[0]);
            uses.extend(value.map(|value| (Byte::Memory(address), value)));
            let origin = Origin { copied: true, value: [Byte::Memory(address)].into(), ..Origin::default() };
            given.insert(*byte, (value, origin));
        }
        let rip = self.rip_of(put.place.thread);
        let (number, arguments, line) = (put.call.number, put.call.arguments, put.call.line);
        let made = Made::Call { number, arguments, line };
        Ok(Writer { at: put.at, after: put.at, place: put.place, rip, made, given, from: put.place, uses })
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
    fn values_at(&self, place: Place, bytes: &[Byte]) -> BTreeMap<Byte, Option<u8>> {
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
                (*byte, (None, origin))
            };
            let given = bytes.iter().map(copy).collect();
            let (at, from, made) = (birth.at, birth.parent, Made::Started);
            return Ok(Writer { at, after: at, place, rip: 0, made, given, from, uses: BTreeMap::new() });
        }
        let at = self.travel.begin();
        self.travel.seek(at)?;
        let whence = |byte: &Byte| match byte {
            Byte::Memory(at) => self.whence(*at),
            _ => None,
        };
        // Those that come from the same place as the first.
        let first = bytes.first().and_then(whence);
        let same: Vec<Byte> = bytes.iter().copied().filter(|byte| whence(byte) == first).collect();
        let values = self.values_at(place, &same);
        let given = same.iter().map(|byte| (*byte, (values.get(byte).copied().flatten(), Origin::default())));
        let given: BTreeMap<_, _> = given.collect();
        let rip = match bytes.first() {
            Some(Byte::Memory(at)) => *at,
            _ => 0,
        };
        let what = match (first, bytes.first()) {
            (Some((whence, start)), Some(Byte::Memory(at))) => {
                format!("{BEGINS} ({whence}, byte {})", at - start)
            }
            _ => BEGINS.to_owned(),
        };
        Ok(Writer {
            at,
            after: at,
            place,
            rip,
            made: Made::Begin(what),
            given,
            from: place,
            uses: BTreeMap::new(),
        })
    }

    /// What memory is where a recording begins, and where that begins: a part of a file, an argument, a variable of the environment.
    fn whence(&self, address: u64) -> Option<(String, u64)> {
        let process = self.travel.process();
        if self.travel.begin() == Position::default()
            && let Some(found) = argument_at(process, address)
        {
            return Some(found);
        }
        let mappings = process.mappings();
        let mapping = mappings.into_iter().find(|it| (it.start..it.end).contains(&address))?;
        let name = if mapping.name.is_empty() { "memory without a file".to_owned() } else { mapping.name };
        Some((name, mapping.start.saturating_sub(mapping.file_offset)))
    }
}

/// What an event did to some bytes.
struct Seen {
    /// What they were, and are; `None` for one that is not mapped.
    before: BTreeMap<Byte, Option<u8>>,
    after: BTreeMap<Byte, Option<u8>>,
    /// What the kernel wrote for the process.
    written: Vec<Written>,
    happened: Vec<Happening>,
}

impl Seen {
    /// Whether the kernel wrote a byte.
    fn writes(&self, byte: Byte) -> bool {
        let within = |at: u64| self.written.iter().any(|it| (it.address..it.address + it.len).contains(&at));
        matches!(byte, Byte::Memory(at) if within(at))
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
fn argument_at(process: &Process, address: u64) -> Option<(String, u64)> {
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
            found = Some((start, format!("variable {n} of the environment")));
        }
    }
    let (start, name) = found?;
    // It ends with a zero.
    let mut text = vec![0; usize::try_from(address - start).ok().filter(|len| *len < (1 << 17))?];
    let within = process.read_memory(start, &mut text) && !text.contains(&0);
    within.then_some((name, start))
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
