//! Which guest code is compiled together: what a hot block leads to by direct branches, calls and the returns from them.
//!
//! A region is cut into runs. Control enters a run at its first instruction only, and may leave it at any conditional branch;
//! a run goes on behind one, as blocks of the interpreter do. Example: a loop with a test in its middle that is seldom true is one
//! run with two ways out, and the second of them leads to its start.
//!
//! Where a state is searched for ([`Sought`]), a run of its own begins there: it compares the registers each time round.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use iced_x86::{Decoder, DecoderError, DecoderOptions, FlowControl, Instruction};
use rustc_hash::FxHashMap;
use std::ops::Range;
use x86::bus::PAGE_SIZE;

use crate::spans::Reach;

/// Instructions of a region at most: what is compiled in some milliseconds.
const MAX_REGION: usize = 200;
/// Instructions of a run at most. Where less than a whole run may still run, the interpreter does it.
pub(crate) const MAX_RUN: usize = 48;

/// Of so many instructions at most one is a call out of the code: it costs what the interpreter takes for two.
const MOST_OUTCALLS: usize = 3;

/// How one instruction is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// By its description.
    Inline,
    /// As a call of the [`crate::outcall`] of this number ([`Region::number_outcalls`]): the description runs on the CPU itself.
    Outcall(u32),
}

/// An instruction of a region.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) instruction: Instruction,
    pub(crate) how: How,
    /// How close together what it reaches for is looked up.
    pub(crate) reach: Reach,
    /// Whether it looks around bytes that are watched.
    pub(crate) looks_around: bool,
}

/// Instructions that run one after the other.
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) steps: Vec<Step>,
    /// Where control goes on behind the last step, if that is no jump.
    pub(crate) next: u64,
}

/// A state that is searched for: a run that stops at `rip` need not where the general registers are not these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought {
    /// Where it stands.
    pub rip: u64,
    /// In the order of their encoding.
    pub gpr: [u64; 16],
}

/// What is compiled as one function.
pub(crate) struct Region {
    /// In order of their addresses; never empty.
    pub(crate) runs: Vec<Run>,
    /// By address.
    pub(crate) by_start: FxHashMap<u64, usize>,
    /// Where control enters it.
    pub(crate) head: u64,
    /// Where the calls in it return to.
    pub(crate) returns: Vec<u64>,
    /// A run begins there, and its code is left before it in this state.
    pub(crate) sought: Option<Sought>,
}

/// What a region is found in.
pub(crate) trait Code {
    /// The bytes from `rip` to the end of its page.
    fn bytes(&mut self, rip: u64) -> Option<Vec<u8>>;
    /// Whether control has often been at `rip` by a branch.
    fn is_warm(&mut self, rip: u64) -> bool;
    /// How the instruction is compiled, if it is.
    fn how(&mut self, i: &Instruction) -> Option<How>;
    /// How close together what the instruction at `rip` reaches for is looked up.
    fn reach(&self, rip: u64) -> Reach;
    /// Whether the instruction at `rip` looks around bytes that are watched.
    fn looks_around(&self, rip: u64) -> bool;
}

/// The instructions of a region as they are found.
struct Finder<'c, C> {
    code: &'c mut C,
    found: BTreeMap<u64, Step>,
    /// Where runs begin.
    starts: BTreeSet<u64>,
    todo: VecDeque<u64>,
    returns: BTreeSet<u64>,
}

impl Region {
    /// The region of the block at `head`; `None` where its first instruction is not compiled, or so little that the interpreter
    /// is as fast.
    pub(crate) fn find<C: Code>(head: u64, code: &mut C, sought: Option<Sought>) -> Option<Region> {
        let mut finder = Finder {
            code,
            found: BTreeMap::new(),
            starts: BTreeSet::new(),
            todo: VecDeque::new(),
            returns: BTreeSet::new(),
        };
        finder.add_start(head);
        while let Some(start) = finder.todo.pop_front() {
            finder.follow(start);
        }
        let outcalls = finder.found.values().filter(|step| step.how != How::Inline).count();
        if outcalls * MOST_OUTCALLS > finder.found.len() {
            return None;
        }
        let sought = sought.filter(|sought| finder.found.contains_key(&sought.rip));
        finder.starts.extend(sought.map(|sought| sought.rip));
        let runs: Vec<Run> = finder.starts.iter().filter_map(|start| finder.run(*start)).collect();
        let by_start: FxHashMap<u64, usize> =
            runs.iter().enumerate().map(|(n, run)| (run.start, n)).collect();
        let returns = finder.returns.into_iter().filter(|to| by_start.contains_key(to)).collect();
        by_start.contains_key(&head).then_some(Region { runs, by_start, head, returns, sought })
    }

    /// How many instructions there are, those of two runs twice.
    pub(crate) fn len(&self) -> u64 {
        self.runs.iter().map(|run| run.steps.len() as u64).sum()
    }

    /// Where its instructions begin, in order.
    pub(crate) fn addresses(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.steps().map(|step| step.instruction.ip()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Numbers the instructions that the CPU runs, and gives them in that order.
    pub(crate) fn number_outcalls(&mut self) -> Vec<Instruction> {
        let mut numbers = BTreeMap::new();
        let mut all = Vec::new();
        for step in self.runs.iter_mut().flat_map(|run| &mut run.steps) {
            if let How::Outcall(number) = &mut step.how {
                *number = *numbers.entry(step.instruction.ip()).or_insert_with(|| {
                    all.push(step.instruction);
                    u32::try_from(all.len() - 1).expect("a region is small")
                });
            }
        }
        all
    }

    /// Where its instructions are, in order and without what is between them; each part is in one page.
    pub(crate) fn parts(&self) -> Vec<Range<u64>> {
        let ends: BTreeMap<u64, u64> = self.steps().flat_map(|step| by_page(&step.instruction)).collect();
        let mut parts: Vec<Range<u64>> = Vec::new();
        for (start, end) in ends {
            match parts.last_mut() {
                Some(last) if last.end >= start && start % PAGE_SIZE != 0 => last.end = last.end.max(end),
                _ => parts.push(start..end),
            }
        }
        parts
    }

    fn steps(&self) -> impl Iterator<Item = &Step> {
        self.runs.iter().flat_map(|run| &run.steps)
    }
}

/// Where the bytes of an instruction begin and end in each page.
fn by_page(i: &Instruction) -> impl Iterator<Item = (u64, u64)> {
    let (start, end) = (i.ip(), i.next_ip());
    let last_page = end.wrapping_sub(1) / PAGE_SIZE;
    let next = last_page * PAGE_SIZE;
    let parts = match last_page > start / PAGE_SIZE {
        true => [Some((start, next)), Some((next, end))],
        false => [Some((start, end)), None],
    };
    parts.into_iter().flatten()
}

impl<C: Code> Finder<'_, C> {
    fn add_start(&mut self, at: u64) {
        if self.starts.insert(at) {
            self.todo.push_back(at);
        }
    }

    /// Decodes from `start` to a jump, or to what is known.
    fn follow(&mut self, start: u64) {
        let mut rip = start;
        while let Some(bytes) = self.code.bytes(rip) {
            let mut decoder = Decoder::with_ip(64, &bytes, rip, DecoderOptions::NONE);
            while decoder.can_decode() {
                let rest = &bytes[decoder.position()..];
                let mut i = decoder.decode();
                if decoder.last_error() == DecoderError::NoMoreBytes {
                    i = self.across_pages(rip, rest);
                }
                if i.is_invalid() || self.found.contains_key(&i.ip()) || self.found.len() >= MAX_REGION {
                    return;
                }
                let Some(how) = self.code.how(&i) else { return };
                let (reach, looks_around) = (self.code.reach(i.ip()), self.code.looks_around(i.ip()));
                self.found.insert(i.ip(), Step { instruction: i, how, reach, looks_around });
                if !self.goes_on(&i) {
                    return;
                }
                rip = i.next_ip();
                if rip / PAGE_SIZE != i.ip() / PAGE_SIZE {
                    break;
                }
            }
        }
    }

    /// The instruction at `rip`, of which only its `beginning` is in that page; an invalid one if the next page has no more of it.
    fn across_pages(&mut self, rip: u64, beginning: &[u8]) -> Instruction {
        let next = rip.wrapping_add(beginning.len() as u64);
        let bytes = [beginning, &self.code.bytes(next).unwrap_or_default()].concat();
        Decoder::with_ip(64, &bytes, rip, DecoderOptions::NONE).decode()
    }

    /// Notes where `i` leads to; whether its run goes on behind it.
    fn goes_on(&mut self, i: &Instruction) -> bool {
        let to = i.near_branch_target();
        match i.flow_control() {
            FlowControl::Next => true,
            FlowControl::ConditionalBranch => {
                let is_warm = self.starts.contains(&to) || self.code.is_warm(to);
                if is_warm {
                    self.add_start(to);
                }
                // Behind a loop begins what is run less often than the loop.
                !(is_warm && to <= i.ip())
            }
            FlowControl::UnconditionalBranch => {
                self.add_start(to);
                false
            }
            FlowControl::Call => {
                self.add_start(to);
                self.add_start(i.next_ip());
                self.returns.insert(i.next_ip());
                false
            }
            _ => false,
        }
    }

    /// The run at `start`, if there is one.
    fn run(&self, start: u64) -> Option<Run> {
        let mut steps = Vec::new();
        let mut next = start;
        while let Some(step) = self.found.get(&next) {
            if steps.len() == MAX_RUN || next != start && self.starts.contains(&next) {
                break;
            }
            steps.push(*step);
            next = step.instruction.next_ip();
            if !matches!(step.instruction.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch)
            {
                break;
            }
        }
        (!steps.is_empty()).then_some(Run { start, steps, next })
    }
}
