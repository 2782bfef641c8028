//! What happened to the memory at an address: allocated, freed, and accessed in between.
//!
//! Only the outermost call of a thread counts: what `realloc` or `operator new` call is their own affair. While the memory is free it is
//! watched, and the first access that is not made inside the allocator is the use after free.

use super::allocators::{self, Does, Request};
use crate::called::{Call, Called, Ended, Entries, Happened};
use crate::symbols::{Loaded, Place, Symbols};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use vmm::engine::lookout::{Access, Watch};
use vmm::position::Position;
use vmm::replay::ReplayError;
use vmm::travel::Travel;
use x86::op::Gpr;

/// So many callers are shown.
const FRAMES: usize = 6;
/// An allocation that ends so many bytes before an address may be what is meant.
pub(super) const NEAR: u64 = 4096;

/// Something that happened to the memory.
pub(super) struct Event {
    pub(super) position: Position,
    pub(super) thread: i32,
    pub(super) what: What,
    /// The callers, the innermost first.
    pub(super) stack: Vec<Place>,
    /// Why there are no more of them, if there may be.
    pub(super) stopped: Option<String>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The call gave these bytes.
    Allocated(Request, Range<u64>),
    /// The call took them back.
    Freed(Request),
    /// The call gave as much there as it was asked for, and took the allocation back.
    Moved(Request, u64),
    /// The call made the allocation smaller where it is, and took these bytes of it back.
    CutOff(Request),
    /// The allocation has another size now, and is where it was.
    Resized(Request, Range<u64>),
    /// The call was given memory that was free already.
    FreedAgain(Request),
    /// The call was given an address inside the allocation.
    FreedInside(Request),
    /// They were accessed while they were free.
    Accessed { writes: bool, address: u64 },
    /// A system call changed them while they were free.
    Changed,
    /// The program died of an access to them while they were free.
    Crashed { address: u64 },
}

impl What {
    /// Whether the bytes are free from here on.
    pub(super) fn takes_back(&self) -> bool {
        matches!(self, What::Freed(_) | What::Moved(..) | What::CutOff(_))
    }
}

/// The history of an address.
pub(super) struct History {
    pub(super) events: Vec<Event>,
    /// How many calls were looked at.
    pub(super) calls: u64,
    /// The allocations that end nearest before the address: of all, and of those that are live at the end where that is another.
    pub(super) before: Vec<Near>,
    /// Where the recording begins, if that is not where the program does.
    pub(super) window: Option<Position>,
}

/// An allocation near before the address, which may be what is meant: an overrun goes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Near {
    pub(super) range: Range<u64>,
    pub(super) allocated: Position,
    /// Where it was taken back, if it was.
    pub(super) freed: Option<Position>,
}

/// The allocation that covers the address.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Block {
    None,
    Live(Range<u64>),
    Free(Range<u64>),
}

/// Who writes a history.
struct Writer<'a> {
    address: u64,
    travel: &'a mut Travel,
    symbols: &'a mut Symbols,
    called: Called,
    /// The allocator's functions: where they begin, and each by its number.
    entries: Entries,
    functions: Vec<(String, Does)>,
    /// The outermost calls that are open, by number.
    open: HashMap<u64, Request>,
    block: Block,
    /// Allocations that end near before the address, by where they begin; of those that overlap, the newest.
    near: BTreeMap<u64, Near>,
    events: Vec<Event>,
}

/// The history of an address, from where the recording begins to `end`. One stands where the process that is followed has its allocator
/// mapped. `None` where there is none.
pub(super) fn of(
    travel: &mut Travel,
    symbols: &mut Symbols,
    address: u64,
    end: Option<Position>,
) -> Result<Option<History>, ReplayError> {
    let all = allocators::all();
    let mut entries = Entries::default();
    let mut functions = Vec::new();
    let mut named = symbols.named(|name| all.get(name).cloned());
    named.sort_by_key(|(at, (number, ..))| (*at, *number));
    for (at, (_, called, does)) in named {
        if entries.add(travel.process(), at, functions.len()) == functions.len() {
            functions.push((called, does));
        }
    }
    if functions.is_empty() {
        return Ok(None);
    }
    let called = Called::of(entries.clone());
    travel.seek(travel.begin())?;
    let mut writer = Writer {
        address,
        travel,
        symbols,
        called,
        entries,
        functions,
        open: HashMap::new(),
        block: Block::None,
        near: BTreeMap::new(),
        events: Vec::new(),
    };
    while let Some(happened) = writer.called.next(writer.travel, end)? {
        match happened {
            Happened::Entered(call) => writer.enter(call),
            Happened::Ended(call, ended) => writer.end(call, ended),
            Happened::Accessed(accessed) => {
                let what = What::Accessed { writes: accessed.writes, address: accessed.address };
                writer.access(what, accessed.rip);
            }
            Happened::Changed => writer.access(What::Changed, writer.travel.process().cpu().regs().rip),
        }
    }
    writer.travel.look_away()?;
    writer.crash();
    let Writer { called, events, near, .. } = writer;
    let before = nearest(near.into_values().collect());
    let window = travel.timeline().replay().window_begins();
    Ok(Some(History { events, calls: called.entered(), before, window }))
}

/// The nearest of all, and the nearest that is live.
fn nearest(mut near: Vec<Near>) -> Vec<Near> {
    near.sort_by_key(|near| std::cmp::Reverse(near.range.end));
    let live = near.iter().position(|near| near.freed.is_none());
    let kept = [Some(0), live.filter(|live| *live > 0)];
    kept.into_iter().flatten().filter_map(|n| near.get(n).cloned()).collect()
}

impl Writer<'_> {
    fn enter(&mut self, call: Call) {
        let Some((function, does)) = self.functions.get(call.function).filter(|_| call.depth == 0) else {
            return;
        };
        let request = Request::of(self.travel.process(), function, *does);
        let what = match (&self.block, request.gives_back()) {
            (Block::Free(block), Some(given)) if given == block.start => {
                Some(What::FreedAgain(request.clone()))
            }
            (Block::Live(block), Some(given)) if given != block.start && block.contains(&given) => {
                Some(What::FreedInside(request.clone()))
            }
            (Block::Live(block), Some(given)) if given == block.start && request.does == Does::Free => {
                self.block = Block::Free(block.clone());
                Some(What::Freed(request.clone()))
            }
            _ => None,
        };
        // What glibc keeps for a thread looks free, and is given back when that ends.
        let is_given_back =
            matches!(what, Some(What::FreedAgain(_))) && self.is_of_allocator(call.returns_to, true);
        if let Some(what) = what.filter(|_| !is_given_back) {
            self.tell(call, what, call.returns_to);
        }
        if let Some(near) = request.gives_back().and_then(|given| self.near.get_mut(&given)) {
            near.freed = near.freed.or(Some(call.position));
        }
        self.open.insert(call.number, request);
    }

    fn end(&mut self, call: Call, ended: Ended) {
        let Some(request) = self.open.remove(&call.number) else { return };
        if ended != Ended::Returned {
            return;
        }
        let given = request.given_at_return(self.travel.process());
        match (&self.block, request.does) {
            (Block::Live(block), Does::Reallocate(_)) if request.given == block.start => {
                self.reallocate(call, request, given);
            }
            _ => {
                if let Some(start) = given {
                    self.allocate(call, request, start);
                }
            }
        }
        self.watch();
    }

    /// A call that was to give the allocation another size.
    fn reallocate(&mut self, call: Call, request: Request, given: Option<u64>) {
        let Block::Live(block) = self.block.clone() else { return };
        match given.map(|start| request.covers(start)) {
            Some(range) if range.start == block.start && range.contains(&self.address) => {
                self.block = Block::Live(range.clone());
                self.tell(call, What::Resized(request, range), call.returns_to);
            }
            Some(range) if range.start == block.start => {
                self.block = Block::Free(range.end..block.end);
                self.tell(call, What::CutOff(request), call.returns_to);
            }
            Some(range) => {
                self.block = Block::Free(block);
                self.tell(call, What::Moved(request.clone(), range.start), call.returns_to);
                self.allocate(call, request, range.start);
            }
            None if request.size == 0 => {
                self.block = Block::Free(block);
                self.tell(call, What::Freed(request), call.returns_to);
            }
            // What could not be moved stays where it is.
            None => {}
        }
    }

    fn allocate(&mut self, call: Call, request: Request, start: u64) {
        let range = request.covers(start);
        if range.contains(&self.address) {
            self.block = Block::Live(range.clone());
            self.tell(call, What::Allocated(request, range), call.returns_to);
            return;
        }
        if range.end <= self.address && self.address - range.end < NEAR {
            self.near.retain(|_, near| near.range.end <= start || range.end <= near.range.start);
            self.near.insert(start, Near { range: range.clone(), allocated: call.position, freed: None });
        }
        // A part of what is free is in use again.
        if let Block::Free(block) = &mut self.block {
            match range.end <= self.address {
                true => block.start = block.start.max(range.end.min(block.end)),
                false => block.end = block.end.min(range.start.max(block.start)),
            }
        }
    }

    /// Watches what is free, up to the first access.
    fn watch(&mut self) {
        let data = match &self.block {
            Block::Free(block) if !block.is_empty() && !self.was_accessed() => {
                vec![Watch { range: block.clone(), access: Access::Any }]
            }
            _ => Vec::new(),
        };
        self.called.watch(data);
    }

    /// Whether the memory was accessed since it was freed.
    fn was_accessed(&self) -> bool {
        let since = self.events.iter().rev().take_while(|event| !event.what.takes_back());
        since.into_iter().any(|event| matches!(event.what, What::Accessed { .. } | What::Changed))
    }

    /// An access to what is free, unless it is the allocator's.
    fn access(&mut self, what: What, rip: u64) {
        let thread = self.travel.process().thread();
        let is_inside = self.called.open().iter().any(|call| call.thread == thread);
        let place = self.place(rip);
        if is_inside || self.is_of_allocator(rip, false) || !matches!(self.block, Block::Free(_)) {
            return;
        }
        let here = self.travel.position();
        // One stands behind the instruction; what a system call changes has none.
        let retired = here.retired.saturating_sub(u64::from(what != What::Changed));
        self.push(Position { retired, ..here }, thread, what, place);
        self.watch();
    }

    fn place(&mut self, address: u64) -> Option<Place> {
        self.symbols.look(self.travel.process());
        self.symbols.place(address)
    }

    /// Whether code is the allocator's own. Where its names were stripped, what calls it in its library counts as such, if
    /// `unnamed`.
    fn is_of_allocator(&mut self, rip: u64, unnamed: bool) -> bool {
        let Some(place) = self.place(rip) else { return false };
        let module = |address: u64| self.symbols.module_at(address).map(Loaded::path);
        let own = module(rip);
        if own.is_none() || !self.entries.addresses().any(|entry| module(entry) == own) {
            return false;
        }
        place.function().map_or(unnamed, allocators::is_inside)
    }

    /// Whether the program died of an access to what is free.
    fn crash(&mut self) {
        let process = self.travel.process();
        let Some(death) = process.death().filter(|death| death.exception.is_some()) else { return };
        let is_it = matches!(&self.block, Block::Free(block) if block.contains(&death.address));
        if is_it && process.pid() == self.travel.followed() {
            let (position, thread, rip) =
                (self.travel.position(), process.thread(), process.cpu().regs().rip);
            let place = self.place(rip);
            self.push(position, thread, What::Crashed { address: death.address }, place);
        }
    }

    /// Something that a call did.
    fn tell(&mut self, call: Call, what: What, returns_to: u64) {
        self.symbols.look(self.travel.process());
        let caller = self.symbols.place_of_call(returns_to);
        self.push(call.position, call.thread, what, caller);
    }

    /// Something that happens in the function `innermost`, which is where one stands, or whose call one stands in or behind.
    fn push(&mut self, position: Position, thread: i32, what: What, innermost: Option<Place>) {
        let process = self.travel.process();
        let mut regs = *process.cpu().regs();
        if self.entries.find(process, regs.rip).is_some() {
            // Where a function begins the caller is known without tables, which C libraries need not have.
            let rsp = &mut regs.gpr[usize::from(Gpr::RSP.0)];
            let mut word = [0; 8];
            process.read_memory(*rsp, &mut word);
            (regs.rip, *rsp) = (u64::from_le_bytes(word), rsp.wrapping_add(8));
        }
        let mut trace = self.symbols.backtrace_from(process, &regs, FRAMES);
        if let (Some((_, first)), Some(innermost)) = (trace.frames.first_mut(), innermost) {
            *first = innermost;
        }
        let trace = trace.up_to_main();
        let stack = trace.frames.into_iter().map(|(_, place)| place).collect();
        self.events.push(Event { position, thread, what, stack, stopped: trace.stopped });
    }
}
