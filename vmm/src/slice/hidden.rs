//! Who wrote memory that nobody is seen to have written.
//!
//! Watchpoints are on addresses of one process ([`super::memory`]). The same bytes can be stored to under another address of theirs, by a
//! task of another process in the same memory (vfork, CLONE_VM), by `process_vm_writev`, by `pwrite` to their file, or by an instruction
//! whose operands do not tell where it stores (a scatter). Then what was found last wrote another value than the one that was used. So
//! what is looked for here is no access but the moment when the bytes became what they were: at each event, whoever runs, they are read
//! from the memory of their own process; between two events the search halves the instructions.
//!
//! Example: `v` was stored to by this process, which then waits for a child. At the event where the child ends it holds the value that was
//! used, at the one before it does not; of the 40 instructions between them the 33rd made it so, which is the child's.
//!
//! A store of the value that was there already is none of this sort: nothing became anything by it.

use super::memory::made_by;
use super::recorded::{Recorded, instruction_at};
use super::{Byte, Made, Place, Writer};
use crate::engine::Until;
use crate::memory::AddressSpace;
use crate::memory::object::ObjectId;
use crate::position::Position;
use crate::process::happening::Happening;
use crate::replay::ReplayError;
use std::collections::BTreeMap;
use x86_provenance::Origin;

/// Between which positions bytes became what they were.
struct Became {
    /// They were not yet.
    before: Position,
    /// They were; `None`: at the next event, behind `before`, which is the last position before it.
    after: Option<Position>,
}

impl Recorded<'_> {
    /// What made bytes of a process's memory what they were at a moment. `None` if they were so from the beginning, or somebody wants
    /// it to stop.
    pub(super) fn made_so(
        &mut self,
        at: Position,
        place: Place,
        bytes: &[(Byte, u8)],
    ) -> Result<Option<Writer<Position>>, ReplayError> {
        let Some(Became { before, after }) = self.became(at, place.pid, bytes)? else { return Ok(None) };
        self.travel.seek(before)?;
        let different: Vec<(Byte, u8)> =
            bytes.iter().copied().filter(|byte| !self.is_so(place.pid, &[*byte])).collect();
        match after {
            Some(_) => self.made_so_here(place, &different),
            None => self.made_so_at_event(before, place, &different),
        }
    }

    /// When the bytes became what they were.
    fn became(
        &mut self,
        at: Position,
        pid: i32,
        bytes: &[(Byte, u8)],
    ) -> Result<Option<Became>, ReplayError> {
        let mut end = at;
        while let Some(start) = self.travel.checkpoint_before(end) {
            self.travel.seek(start)?;
            let mut last = None;
            while self.travel.position() < end && !self.travel.ended() {
                if !self.is_so(pid, bytes) {
                    last = Some(self.travel.position());
                }
                self.travel.next_event()?;
                if self.travel.is_asked() {
                    return Ok(None);
                }
            }
            if let Some(last) = last {
                return self.narrowed(last, at, pid, bytes).map(Some);
            }
            end = start;
        }
        Ok(None)
    }

    /// The same within one segment, at whose beginning, or later, the bytes were not so.
    fn narrowed(
        &mut self,
        mut before: Position,
        at: Position,
        pid: i32,
        bytes: &[(Byte, u8)],
    ) -> Result<Became, ReplayError> {
        let mut after = at;
        if at.event != before.event {
            self.travel.seek(before)?;
            after.event = before.event;
            after.retired = before.retired + self.travel.length(before.event)?;
            // The event may be served at its instruction, which did not retire.
            while after > before && self.travel.seek(after)? != after {
                after.retired -= 1;
            }
            if after == before || !self.is_so(pid, bytes) {
                return Ok(Became { before: after, after: None });
            }
        }
        while after.retired - before.retired > 1 {
            let middle = before.retired + (after.retired - before.retired) / 2;
            let middle = self.travel.seek(Position { retired: middle, ..before })?;
            if middle >= after || middle <= before {
                break;
            }
            *(if self.is_so(pid, bytes) { &mut after } else { &mut before }) = middle;
        }
        Ok(Became { before, after: Some(after) })
    }

    /// Whether these bytes of a process's memory are that, whichever process is loaded.
    fn is_so(&self, pid: i32, bytes: &[(Byte, u8)]) -> bool {
        let process = self.travel.process();
        let Some(space) = process.space_of(pid) else { return false };
        let mut value = [0];
        bytes.iter().all(|(byte, wanted)| match byte {
            Byte::Memory(at) => space.read_original(process.memory(), *at, &mut value) && value[0] == *wanted,
            _ => false,
        })
    }

    /// The instruction here made them so, under whatever address.
    fn made_so_here(
        &mut self,
        place: Place,
        bytes: &[(Byte, u8)],
    ) -> Result<Option<Writer<Position>>, ReplayError> {
        let names = self.names_here(place.pid, bytes);
        let here: Vec<Byte> = names.keys().copied().collect();
        let Some(mut writer) = self.writer_here(&here)? else {
            let (at, who) = (self.travel.position(), self.place());
            let rip = self.travel.process().cpu().regs().rip;
            let instruction = instruction_at(self.travel.process(), rip);
            let made = Made::Unknown(format!("`{instruction}` wrote it, and does not tell from what"));
            return Ok(Some(hidden(at, who, rip, made, bytes)));
        };
        let given = std::mem::take(&mut writer.given);
        writer.given = given.into_iter().filter_map(|(byte, of)| Some((*names.get(&byte)?, of))).collect();
        Ok(Some(writer))
    }

    /// By the addresses under which the process that is loaded has them, the bytes of another one.
    fn names_here(&self, pid: i32, bytes: &[(Byte, u8)]) -> BTreeMap<Byte, Byte> {
        let process = self.travel.process();
        let own = process.space();
        let Some(space) = process.space_of(pid) else { return BTreeMap::new() };
        let mut names = BTreeMap::new();
        for (byte, _) in bytes {
            let Byte::Memory(address) = *byte else { continue };
            names.extend(views(own, space, address).into_iter().map(|view| (Byte::Memory(view), *byte)));
        }
        names
    }

    /// The event behind a position made them so.
    fn made_so_at_event(
        &mut self,
        before: Position,
        place: Place,
        bytes: &[(Byte, u8)],
    ) -> Result<Option<Writer<Position>>, ReplayError> {
        self.travel.seek(before)?;
        self.listen(true);
        while self.travel.position().event == before.event && !self.travel.ended() {
            self.travel.walk(Until::Exit)?;
        }
        let happened: Vec<Happening> = self.happened();
        self.listen(false);
        let after = self.travel.position();
        let found = happened.iter().rev().find_map(|it| Some((it, made_by(it)?)));
        let Some((happening, made)) = found else {
            let made = Made::Unknown("something between two events".to_owned());
            return Ok(Some(hidden(after, place, 0, made, bytes)));
        };
        let who = Place { pid: happening.pid, thread: happening.task };
        let rip = self.rip_of(who.thread);
        let mut writer = hidden(happening.position, who, rip, made, bytes);
        self.take_from_caller(&mut writer, before, happening, place)?;
        Ok(Some(writer))
    }
}

/// A writer that gives these values, made of nothing that is known.
fn hidden(at: Position, place: Place, rip: u64, made: Made, bytes: &[(Byte, u8)]) -> Writer<Position> {
    let given = bytes.iter().map(|(byte, value)| (*byte, (Some(*value), Origin::default()))).collect();
    Writer { at, after: at, place, rip, made, given, from: place, uses: BTreeMap::new() }
}

/// The addresses of an address space under which it has the byte at an address of another one, or of itself.
fn views(own: &AddressSpace, other: &AddressSpace, address: u64) -> Vec<u64> {
    let mut found = Vec::new();
    if own.root() == other.root() {
        found.push(address);
    }
    if let Some((object, offset)) = shared_at(other, address) {
        let shared = own.mappings().iter().filter(|(_, mapping)| mapping.backing.is_shared());
        found.extend(shared.filter_map(|(start, mapping)| {
            let (id, begin) = mapping.backing.object().map(|(object, begin)| (object.id, begin))?;
            let view = start.checked_add(offset.checked_sub(begin)?)?;
            (id == object && view < mapping.end && view != address).then_some(view)
        }));
        found.extend((shared_at(own, address) == Some((object, offset))).then_some(address));
    }
    found
}

/// The object that is mapped shared at an address, and which byte of it is there.
#[must_use]
pub fn shared_at(space: &AddressSpace, address: u64) -> Option<(ObjectId, u64)> {
    let (start, mapping) = space.mappings().find(address)?;
    let (object, offset) = mapping.backing.object().filter(|_| mapping.backing.is_shared())?;
    Some((object.id, offset + (address - start)))
}
