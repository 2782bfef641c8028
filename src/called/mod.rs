//! Calls of some functions as they happen: each entry, and each return. `gretel calls` and `gretel heap` are made of it.
//!
//! [`Called::next`] stops where one of the functions begins, and at the return address of each call that is open. Return addresses stay
//! looked for when their calls are over, since what a processor looks for is dear to change.
//!
//! A call is open from its entry until the stack pointer is above the word with its return address:
//!
//! | what happens | what is told |
//! | --- | --- |
//! | it returns | [`Ended::Returned`], at its return address with the stack pointer right above |
//! | `longjmp`, an exception | [`Ended::Left`], when the next stop of the thread on that stack shows it |
//! | it ends in a jump to another of the functions | both return there, with the same result |
//! | it jumps to its own beginning, or is left and called again from the same place | [`Ended::Again`]: these two look the same |
//! | `longjmp` to right behind the call | it is told as a return: nothing tells the two apart |
//! | recursion, threads | each call has its own stack pointer, and belongs to its thread |
//! | the thread, the process or the recording ends | it stays open ([`Called::open`]) |
//!
//! Example: of `fib(2)`, which calls `fib(1)` and `fib(0)`, there are three entries; the two inner ones return to different addresses in
//! `fib`, and the outer one is open meanwhile.

pub(crate) mod prototypes;
pub(crate) mod value;

use std::collections::{HashMap, VecDeque};
use vmm::engine::lookout::{Accessed, Lookout, Watch};
use vmm::position::Position;
use vmm::process::Process;
use vmm::ram::Virt;
use vmm::replay::ReplayError;
use vmm::travel::{Stop, Travel};
use x86::op::Gpr;

/// So many bytes of a function's code tell whether it is there: another program may run at these addresses earlier.
const CODE: usize = 32;

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// Its number, from zero, among all that were made.
    pub(crate) number: u64,
    /// Where the function begins, and its number in [`Entries`].
    pub(crate) entry: Virt,
    pub(crate) function: usize,
    pub(crate) position: Position,
    pub(crate) thread: i32,
    /// The word with the return address.
    pub(crate) rsp: Virt,
    pub(crate) returns_to: Virt,
    /// How many calls of the thread were open when it began.
    pub(crate) depth: usize,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The program stands behind it.
    Returned,
    /// Its frame was given up.
    Left,
    /// Its function began anew in its place.
    Again,
}

/// What happened where the program stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    Entered(Call),
    Ended(Call, Ended),
    /// Data that is watched was accessed by an instruction.
    Accessed(Accessed),
    /// A system call changed it.
    Changed,
}

/// Where functions begin. Programs that run one after the other have different ones at one address, which their code tells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries(HashMap<Virt, Vec<([u8; CODE], usize)>>);

impl Entries {
    /// Adds a function that begins at this address in the program as it stands, unless it is known; gives its number.
    pub(crate) fn add(&mut self, process: &Process, at: Virt, number: usize) -> usize {
        let (code, known) = (code(process, at), self.0.entry(at).or_default());
        match known.iter().find(|(of, _)| *of == code) {
            Some((_, number)) => *number,
            None => {
                known.push((code, number));
                number
            }
        }
    }

    /// Where they begin.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = Virt> {
        self.0.keys().copied()
    }

    /// The number of the function that begins there in the program as it stands.
    pub(crate) fn find(&self, process: &Process, at: Virt) -> Option<usize> {
        let known = self.0.get(&at)?;
        let code = code(process, at);
        known.iter().find(|(of, _)| *of == code).map(|(_, number)| *number)
    }
}

/// The calls of some functions, of the processes that are followed.
pub(crate) struct Called {
    entries: Entries,
    lookout: Lookout,
    open: Vec<Call>,
    entered: u64,
    /// Where each thread was stopped last: instruction and stack pointer.
    last: HashMap<i32, (Virt, Virt)>,
    /// What happened at this stop and was not given yet.
    happened: VecDeque<Happened>,
    /// Whether it was asked what happens next.
    begun: bool,
}

impl Called {
    /// Those of these functions.
    pub(crate) fn of(entries: Entries) -> Called {
        let mut at: Vec<Virt> = entries.0.keys().copied().collect();
        at.sort_unstable();
        Called {
            entries,
            lookout: Lookout { at, data: Vec::new() },
            open: Vec::new(),
            entered: 0,
            last: HashMap::new(),
            happened: VecDeque::new(),
            begun: false,
        }
    }

    /// What is open, the oldest first.
    pub(crate) fn open(&self) -> &[Call] {
        &self.open
    }

    /// How many calls have begun.
    pub(crate) fn entered(&self) -> u64 {
        self.entered
    }

    /// Watches these data besides, in place of those before.
    pub(crate) fn watch(&mut self, data: Vec<Watch>) {
        self.lookout.data = data;
    }

    /// Looks for no more entries, but for the returns of what is open.
    pub(crate) fn enter_no_more(&mut self) {
        self.entries = Entries::default();
        self.lookout.at = self.open.iter().map(|call| call.returns_to).collect();
        self.lookout.at.sort_unstable();
        self.lookout.at.dedup();
    }

    /// Runs on to what happens next, at most to `end`; `None` when that is reached, or somebody asks for a stop. Who has enough calls
    /// [`Travel::look_away`].
    pub(crate) fn next(
        &mut self,
        travel: &mut Travel,
        end: Option<Position>,
    ) -> Result<Option<Happened>, ReplayError> {
        // A processor does not come back for where a run begins.
        let at = travel.process().cpu().regs().rip;
        let is_at = !std::mem::replace(&mut self.begun, true) && self.lookout.at.binary_search(&at).is_ok();
        if is_at && travel.follows_loaded() {
            self.arrive(travel.process(), travel.position());
        }
        loop {
            if let Some(happened) = self.happened.pop_front() {
                return Ok(Some(happened));
            }
            match travel.next(&self.lookout, end)? {
                None => return Ok(None),
                Some(Stop::Accessed(accessed)) => {
                    self.happened.push_back(Happened::Accessed(accessed));
                    // A processor that comes back for an access does not for the instruction behind it.
                    let (process, position) = (travel.process(), travel.position());
                    if self.lookout.at.binary_search(&process.cpu().regs().rip).is_ok() {
                        self.arrive(process, position);
                    }
                }
                Some(Stop::Changed(_)) => self.happened.push_back(Happened::Changed),
                Some(_) => self.arrive(travel.process(), travel.position()),
            }
        }
    }

    /// Takes what the stop here is for.
    fn arrive(&mut self, process: &Process, position: Position) {
        let regs = process.cpu().regs();
        let (rip, rsp, thread) = (regs.rip, regs.gpr[usize::from(Gpr::RSP.0)], process.thread());
        let before = self.last.insert(thread, (rip, rsp));
        // It was preempted where it was stopped, and goes on.
        if position.retired == 0 && before == Some((rip, rsp)) {
            return;
        }
        self.end(process, thread, rip, rsp);
        if let Some(function) = self.entries.find(process, rip) {
            self.enter(process, position, function, (rip, rsp));
        }
    }

    /// Ends the calls of a thread whose frames are gone, the innermost first.
    fn end(&mut self, process: &Process, thread: i32, rip: Virt, rsp: Virt) {
        let mappings = process.space().mappings();
        let stack = |address| mappings.find(address).map(|(start, _)| start);
        for n in (0..self.open.len()).rev() {
            let call = self.open[n];
            // A coroutine has a stack of its own.
            if call.thread != thread || call.rsp >= rsp || stack(call.rsp) != stack(rsp) {
                continue;
            }
            self.open.remove(n);
            let returned = rip == call.returns_to && rsp == call.rsp.wrapping_add(8);
            let ended = if returned { Ended::Returned } else { Ended::Left };
            self.happened.push_back(Happened::Ended(call, ended));
        }
    }

    fn enter(&mut self, process: &Process, position: Position, function: usize, (entry, rsp): (Virt, Virt)) {
        let thread = process.thread();
        let mut word = [0; 8];
        process.read_memory(rsp, &mut word);
        let returns_to = u64::from_le_bytes(word);
        let is_same = |it: &Call| it.thread == thread && (it.entry, it.rsp) == (entry, rsp);
        if let Some(n) = self.open.iter().position(is_same) {
            let call = self.open.remove(n);
            self.happened.push_back(Happened::Ended(call, Ended::Again));
        }
        let depth = self.open.iter().filter(|it| it.thread == thread).count();
        let call = Call { number: self.entered, entry, function, position, thread, rsp, returns_to, depth };
        self.entered += 1;
        if let Err(at) = self.lookout.at.binary_search(&returns_to) {
            self.lookout.at.insert(at, returns_to);
        }
        self.open.push(call);
        self.happened.push_back(Happened::Entered(call));
    }
}

fn code(process: &Process, address: Virt) -> [u8; CODE] {
    let mut code = [0; CODE];
    process.read_memory(address, &mut code);
    code
}
