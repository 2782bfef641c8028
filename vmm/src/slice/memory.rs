//! Who wrote to memory last.

use super::frame;
use super::hidden::shared_at;
use super::moved::{argument_at, take_from_before_move};
use super::recorded::{Recorded, instruction_at};
use super::{Byte, Made, Place, Writer};
use crate::engine::Until;
use crate::engine::lookout::{Access, Lookout, Watch};
use crate::memory::object::ObjectId;
use crate::position::Position;
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

/// Calls that change what is mapped.
const MAPPING: [i64; 10] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mprotect,
    libc::SYS_remap_file_pages,
    libc::SYS_shmat,
    libc::SYS_shmdt,
    libc::SYS_ftruncate,
];

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
        let Some(shared) = self.shared(place, bytes) else {
            return match self.last_of(at, place, bytes, &lookout, None)? {
                Found::Asked => Ok(None),
                Found::Writer(writer) => Ok(Some(*writer)),
                Found::Nobody => self.there_before(place, bytes).map(Some),
            };
        };
        // Any process may have written it. Here those are looked for that have it at the same address; others are hidden writers.
        let first = self.travel.process().first_pid();
        let births = self.survey()?.births.values();
        let others: BTreeSet<i32> = births.map(|birth| birth.pid).chain([first]).collect();
        let mut last: Option<Box<Writer<Position>>> = None;
        for pid in others {
            let place = if pid == place.pid { place } else { Place { pid, thread: pid } };
            match self.last_of(at, place, bytes, &lookout, Some(shared))? {
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

    /// The memory that several processes may share which one of these bytes is in.
    fn shared(&self, place: Place, bytes: &[Byte]) -> Option<Shared> {
        if self.travel.process().pid() != place.pid {
            return None;
        }
        bytes.iter().find_map(|byte| {
            let Byte::Memory(address) = *byte else { return None };
            let (object, offset) = shared_at(self.travel.process().space(), address)?;
            Some(Shared { address, object, offset })
        })
    }

    /// The last thing before `at` that wrote to any of these bytes in one process. What is shared is not written by its becoming another.
    fn last_of(
        &mut self,
        at: Position,
        place: Place,
        bytes: &[Byte],
        lookout: &Lookout,
        shared: Option<Shared>,
    ) -> Result<Found, ReplayError> {
        self.travel.seek(at)?;
        self.travel.follow(place.pid);
        loop {
            let stop = self.travel.backward(lookout)?;
            // A process may have other memory at the same address.
            let own = self.travel.process().space();
            let is_it = |it: Shared| shared_at(own, it.address) == Some((it.object, it.offset));
            let found = match stop {
                Stop::Accessed(_) if shared.is_some_and(|it| !is_it(it)) => None,
                Stop::Accessed(_) => self.writer_here(bytes)?,
                Stop::Changed(_) => self.event_here(place, bytes, shared.is_some())?,
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
        // What no call of this process wrote was written by somebody else until then.
        let changed = |byte: &Byte| given.is_empty() || given.contains_key(byte);
        let unseen: Vec<(Byte, u8)> = seen
            .after
            .iter()
            .filter_map(|(byte, value)| Some((*byte, (*value)?)).filter(|_| changed(byte)))
            .collect();
        if !unseen.is_empty() && !seen.writes_any(bytes) && !changes_mappings(&made) {
            let end = Position { event: start.event + 1, retired: 0 };
            if let Some(writer) = self.made_so(end, place, &unseen)? {
                return Ok(Some(writer));
            }
            self.travel.seek(end)?;
        }
        if given.is_empty() {
            given = bytes.iter().map(|byte| (*byte, (None, Origin::default()))).collect();
        }
        let rip = self.rip_of(who.thread);
        let mut writer =
            Writer { at, after: at, place: who, rip, made, given, from: place, uses: BTreeMap::new() };
        match &writer.made {
            Made::Call { .. } => {
                take_from_before_move(&mut writer, start, &seen.happened);
                self.take_from_stream(&mut writer)?;
            }
            Made::Signal(_) => self.take_from_registers(&mut writer, &seen.happened),
            Made::Executed(_) => self.take_from_old_program(&mut writer, start)?,
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

    /// The frame of a signal handler has the registers of what was interrupted. Where several signals came at once, each frame but the
    /// first has those with which the handler before it was to begin.
    fn take_from_registers(&mut self, writer: &mut Writer<Position>, happened: &[Happening]) {
        if self.place() != writer.place {
            return;
        }
        let signals = happened.iter().filter(|it| {
            it.task == writer.place.thread && matches!(it.what, What::Signal { handler: Some(_), .. })
        });
        let process = self.travel.process();
        // A handler's third argument is the address of the ucontext. The newest frame is that of the signal that came last.
        let mut context = process.cpu().regs().gpr[2];
        let mut contexts = vec![context];
        for _ in 1..signals.count() {
            let mut third = [0; 8];
            if !process.read_memory(frame::saved(context, 2), &mut third) {
                break;
            }
            context = u64::from_le_bytes(third);
            contexts.push(context);
        }
        let oldest = contexts.len() - 1;
        for (byte, (value, origin)) in &mut writer.given {
            let Byte::Memory(address) = *byte else { continue };
            let found = contexts
                .iter()
                .enumerate()
                .find_map(|(n, context)| frame::register_at(*context, address).map(|found| (n, found)));
            let Some((n, (register, part))) = found else { continue };
            // These the kernel gave to the handler before.
            if n < oldest && matches!(register, 0 | 2 | 4 | 6 | 7) {
                continue;
            }
            let saved = Byte::General(register, part);
            writer.uses.extend(value.map(|value| (saved, value)));
            *origin = Origin { copied: true, value: [saved].into(), ..Origin::default() };
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

    /// What the bytes are, `None` for one that is not mapped; empty where the process has no memory any more.
    fn values_at(&self, place: Place, bytes: &[Byte]) -> BTreeMap<Byte, Option<u8>> {
        let process = self.travel.process();
        let Some(space) = process.space_of(place.pid) else { return BTreeMap::new() };
        let value = |byte: &Byte| {
            let Byte::Memory(at) = byte else { return None };
            let mut value = [0];
            space.read_original(process.memory(), *at, &mut value).then_some(value[0])
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
            self.travel.seek(birth.at)?;
            let values = self.values_at(birth.parent, bytes);
            let copy = |byte: &Byte| {
                let origin = Origin { copied: true, value: [*byte].into(), ..Origin::default() };
                (*byte, (values.get(byte).copied().flatten(), origin))
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

    /// Whether it wrote any of them.
    fn writes_any(&self, bytes: &[Byte]) -> bool {
        bytes.iter().any(|byte| self.writes(*byte))
    }
}

/// Memory that processes share: of one address, which object, and where in it.
#[derive(Clone, Copy)]
struct Shared {
    address: u64,
    object: ObjectId,
    offset: u64,
}

/// Whether a call can put other memory in place of what was there, or another program.
fn changes_mappings(made: &Made) -> bool {
    match made {
        Made::Call { number, .. } => MAPPING.contains(&number.cast_signed()),
        Made::Executed(_) => true,
        _ => false,
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
