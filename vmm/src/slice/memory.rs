//! Who wrote to memory last.

use super::recorded::Recorded;
use super::{Byte, Made, Place, Writer};
use crate::engine::Until;
use crate::engine::lookout::{Access, Lookout, Watch};
use crate::position::Position;
use crate::process::happening::{Happening, What};
use crate::replay::ReplayError;
use crate::travel::Stop;
use std::collections::BTreeMap;
use std::ops::Range;
use x86_provenance::Origin;

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
        self.travel.follow(place.pid);
        loop {
            let found = match self.travel.backward(&lookout)? {
                Stop::Accessed(_) => self.writer_here(bytes)?,
                Stop::Changed(_) => Some(self.event_here(place, bytes)?),
                Stop::Asked => return Ok(None),
                _ => return self.from_before(place, bytes).map(Some),
            };
            // A store under a mask may leave out what was asked for.
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// The event that comes next, which wrote some of these bytes.
    fn event_here(&mut self, place: Place, bytes: &[Byte]) -> Result<Writer<Position>, ReplayError> {
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
            if is_written(*byte) || was.is_some_and(|was| was != now) {
                given.insert(*byte, (now.unwrap_or(0), Origin::default()));
            }
        }
        let (mut who, mut made) = (place, Made::Unknown("something between two events".to_owned()));
        for happening in happened.iter().filter(|it| it.pid == place.pid) {
            if let Some(what) = made_by(happening) {
                (who, made) = (Place { pid: happening.pid, thread: happening.task }, what);
            }
        }
        if given.is_empty() {
            given = bytes.iter().map(|byte| (*byte, (0, Origin::default()))).collect();
        }
        let rip = self.rip_of(who.thread);
        let at = Position { event: start.event + 1, retired: 0 };
        self.travel.seek(start)?;
        Ok(Writer { at, place: who, rip, made, given, from: place })
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
    fn from_before(&mut self, place: Place, bytes: &[Byte]) -> Result<Writer<Position>, ReplayError> {
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
