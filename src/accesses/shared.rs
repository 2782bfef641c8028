//! Accesses to memory that processes share: any of them may have made them.
//!
//! A process sees only that the bytes are others than when it ran last, which is no access of its own. So each store is looked for in
//! the process that made it. Example: a worker stores an index in a board that all map, and the parent crashes over it.

use super::{Found, bytes};
use crate::exit::Failure;
use crate::replay::failure;
use crate::symbols::Symbols;
use std::ops::Range;
use vmm::engine::lookout::{Access, Accessed, Lookout};
use vmm::memory::object::ObjectId;
use vmm::position::Position;
use vmm::process::Process;
use vmm::replay::ReplayError;
use vmm::slice::recorded::Recorded;
use vmm::slice::{Byte, History, Made, Place, shared_at};
use vmm::travel::{Stop, Travel};

/// The memory that the loaded process has at an address and others may have, too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Shared(ObjectId, u64);

impl Shared {
    pub(super) fn of(process: &Process, address: u64) -> Option<Shared> {
        shared_at(process.space(), address).map(|(object, offset)| Shared(object, offset))
    }
}

/// Goes to before the last instruction of the loaded process, from its last moment on.
pub(super) fn to_end_of_loaded(travel: &mut Travel) -> Result<(), ReplayError> {
    let (pid, task) = (travel.process().pid(), travel.process().thread());
    while travel.process().pid() == pid && travel.next_event()? {}
    if travel.process().pid() != pid {
        travel.step_back_of(task)?;
    }
    Ok(())
}

/// The last store of any process before `at`, where the loaded process shares the bytes, with the position before which the next
/// older one is. Afterwards one stands before the store. `None` where nobody wrote.
pub(super) fn last_write(
    travel: &mut Travel,
    symbols: &mut Symbols,
    at: Position,
    range: &Range<u64>,
) -> Result<Option<(Found, Position)>, Failure> {
    let process = travel.process();
    let place = Place { pid: process.pid(), thread: process.thread() };
    let watched: Vec<Byte> = Byte::memory(range.start, range.end - range.start).collect();
    let writer = Recorded::new(travel).writer(at, place, &watched).map_err(failure)?;
    let Some(writer) = writer else { return Ok(None) };
    travel.seek(writer.at).map_err(failure)?;
    let found = match writer.made {
        Made::Instruction(_) => {
            let accessed = Accessed { rip: writer.rip, address: range.start, len: 1, writes: true };
            Found::before(travel, symbols, Stop::Accessed(accessed), range).map_err(failure)?
        }
        Made::Begin(_) | Made::Started | Made::Executed(_) => return Ok(None),
        _ => Found {
            pid: writer.place.pid,
            thread: writer.place.thread,
            ..Found::of_call(travel, symbols, range)
        },
    };
    Ok(Some((found, writer.after.min(writer.at))))
}

/// What is to be stopped for on the way forward, in all processes.
pub(super) struct Wanted {
    range: Range<u64>,
    shared: Shared,
    writes_only: bool,
    /// The bytes behind the last store that was seen: who finds others there has them from a call, and who finds these has come
    /// too late.
    last: Option<Vec<u8>>,
}

impl Wanted {
    pub(super) fn of(shared: Shared, lookout: &Lookout, range: Range<u64>) -> Wanted {
        let writes_only = lookout.data.iter().all(|watch| watch.access == Access::Write);
        Wanted { range, shared, writes_only, last: None }
    }

    /// The next access, of whichever process has the same memory at the address.
    pub(super) fn next(&mut self, travel: &mut Travel, lookout: &Lookout) -> Result<Stop, ReplayError> {
        travel.follow_all();
        travel.forward_where(lookout, None, &mut |process, stop| self.is_one(process, stop))
    }

    fn is_one(&mut self, process: &Process, stop: Stop) -> bool {
        if Shared::of(process, self.range.start) != Some(self.shared) {
            return false;
        }
        let now = bytes(&self.range, process);
        match stop {
            Stop::Accessed(accessed) if !accessed.writes => !self.writes_only,
            Stop::Accessed(_) => {
                self.last = now;
                true
            }
            _ => std::mem::replace(&mut self.last, now.clone()) != now,
        }
    }
}
