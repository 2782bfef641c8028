//! The predecessors of an instruction, the likeliest first.

use super::Search;
use super::rank::{Destination, Rank};
use super::reach::Way;
use super::trail::{Verdict, Window};
use crate::past::prepared::{Effect, Prepared};
use crate::program::RT_SIGRETURN;
use crate::program::cfg::{Edge, EdgeKind};
use crate::smt::Effort;
use iced_x86::{Code, FlowControl, Mnemonic, OpKind, Register};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::rc::Rc;
use x86::op::{BranchKind, Gpr, Rep};

/// An instruction that may have run right before.
#[derive(Clone)]
pub(super) struct Candidate {
    /// The instruction.
    pub(super) prepared: Rc<Prepared>,
    /// The number of the system call, if it is one and its number is known.
    pub(super) call: Option<u64>,
    /// The records that are used once it is prepended.
    pub(super) window: Window,
    /// It closes a loop.
    pub(super) goes_round: bool,
    /// How often the path went this way since the newest record.
    pub(super) rounds: usize,
    /// How it can be come to from the next record.
    pub(super) way: Way,
    /// How far to go to find out whether it is possible.
    pub(super) effort: Effort,
    /// A store at an unknown address is placed where memory contradicts it; so many such places have led nowhere.
    pub(super) explained: Option<u32>,
    /// How much the samples speak for it, in bits; 0 if they do not.
    pub(super) habit: u32,
    /// It is an iteration of a repeated string instruction whose count is told.
    pub(super) is_told: bool,
    /// How likely the edge is.
    pub(super) rank: Rank,
}

impl Candidate {
    pub(super) fn new(prepared: Rc<Prepared>, call: Option<u64>, window: Window, rank: Rank) -> Candidate {
        Candidate {
            prepared,
            call,
            window,
            goes_round: false,
            rounds: 0,
            way: Way::Unknown,
            effort: Effort::Plain,
            explained: None,
            habit: 0,
            is_told: false,
            rank,
        }
    }
}

impl Candidate {
    /// Whether a signal came, or its handler returned.
    pub(super) fn is_of_signal(&self) -> bool {
        let is_return = matches!(self.prepared.effect, Effect::Syscall) && self.call == Some(RT_SIGRETURN);
        is_return || matches!(self.prepared.effect, Effect::Signal)
    }
}

/// How many steps of the path count as lately.
const RECENT: usize = 256;

/// The calls that libc makes through wrappers that take the number as an argument: writev, write, read, close,
/// lseek, ioctl, fsync, futex.
const USUAL_CALLS: [u64; 8] = [20, 1, 0, 3, 8, 16, 74, 202];

/// So many steps of the path are looked at for a unit of fuel.
const STEPS_A_UNIT: u64 = 50;

/// What looking at an edge takes: an interpreter's dispatch has thousands.
const FUEL_OF_AN_EDGE: u64 = 8;

/// How far before a SYSCALL its number is looked for, in instructions.
const NUMBER_LOOK_BACK: usize = 16;

impl Search<'_> {
    /// The candidates at the present start that neither the records nor the crumbs exclude, and that the next record can have led to.
    pub(super) fn candidates(&mut self, window: Window) -> Vec<Candidate> {
        if !self.fits_context() {
            return Vec::new();
        }
        let (start, anchors) = (self.hypothesis.start(), self.hypothesis.image().anchors());
        let mut found = self.predecessors(window);
        found.extend(self.switch(window));
        found.extend(self.delivery(window));
        found.extend(self.handler_return(window));
        let listed = found.len();
        found.retain_mut(|candidate| match anchors.pass(candidate, start) {
            Some(window) => {
                candidate.window = window;
                true
            }
            None => false,
        });
        let (reach, records, fuel) = (&mut self.reach, self.records, self.hypothesis.terms().fuel());
        found.retain_mut(|candidate| {
            let Some((_, to)) = records.next(candidate.window) else { return true };
            candidate.way = reach.way(to, candidate.prepared.address(), fuel);
            candidate.way != Way::None
        });
        self.statistics.refuted += (listed - found.len()) as u64;
        self.weigh_habits(&mut found);
        self.sort(&mut found);
        self.prefer_told_count(&mut found);
        found
    }

    fn predecessors(&mut self, window: Window) -> Vec<Candidate> {
        let start = self.hypothesis.start();
        let next_record = self.records.next(window);
        let mut found = Vec::new();
        if let Some((from, to)) = next_record
            && to == start
        {
            found.extend(self.taken_branch(from, start, window, Rank::Recorded));
            if self.records.compels(window, start) {
                return found;
            }
        }
        let return_address = self.return_address();
        let edges: Vec<_> = self.cfg.predecessors(start).collect();
        self.hypothesis.terms().fuel().burn(edges.len() as u64 * FUEL_OF_AN_EDGE);
        let destination = self.destination(start, &edges);
        let is_entry = edges.iter().any(|e| matches!(e.kind, EdgeKind::Call | EdgeKind::IndirectCall));
        let called_by = match &self.context() {
            Some(context) => Some(context.call),
            None if is_entry => return_address.and_then(|back| self.cfg.call_before(back)),
            None => None,
        };
        for edge in edges {
            if next_record == Some((edge.from, start)) || !self.is_in_context(&edge, called_by) {
                continue;
            }
            let rank = self.rank(&edge, &destination);
            match edge.kind {
                EdgeKind::Fallthrough | EdgeKind::AfterSyscall | EdgeKind::RepIteration => {
                    found.extend(self.straight(edge.from, window, rank))
                }
                EdgeKind::Call | EdgeKind::IndirectCall
                    if return_address.is_some_and(|back| self.next_of(edge.from) != Some(back)) => {}
                _ => found.extend(self.taken_branch(edge.from, start, window, rank)),
            }
        }
        if found.is_empty() && !is_entry {
            self.statistics.assumed = true;
            found.extend(self.call_through_wild_pointer(start, window));
        }
        // Going round a loop once more is tried after the way out of it: where the loop really ran on, what it
        // computed refutes the way out.
        if found.len() > 1 {
            for candidate in found.iter_mut().filter(|c| c.rank > Rank::Recorded) {
                candidate.goes_round = self.leads_to(&destination, candidate.prepared.address());
            }
        }
        self.prefer_likely_way(&mut found, called_by, window);
        found
    }

    /// Puts the likeliest first.
    fn sort(&self, found: &mut [Candidate]) {
        let start = self.hypothesis.start();
        let last = self.last_way_to(start);
        if last.is_some() {
            let rounds = self.rounds_to(start);
            let of = |c: &Candidate| rounds.get(&c.prepared.address()).copied().unwrap_or(0);
            found.iter_mut().for_each(|c| c.rounds = of(c));
        }
        let visits_of = self.recent_visits();
        found.sort_by_cached_key(|c| {
            // Of many functions that a pointer may have led to, one of the same source is likeliest.
            let distance = c.prepared.address().abs_diff(start);
            let returns = c.prepared.branch == Some(BranchKind::Return);
            let visits = visits_of.get(&c.prepared.address()).copied().filter(|_| !returns).unwrap_or(0);
            let is_other = last != Some(c.prepared.address());
            let rounds = self.restarts.are_many_rounds(c.rounds);
            let is_wild = c.rank == Rank::Wild;
            let kind = (c.goes_round, visits, c.rank, distance);
            let evidence = (c.rank > Rank::Recorded, rounds, c.rank > Rank::OnStack, Reverse(c.habit));
            (evidence, is_other, is_wild, c.way.steps(), kind)
        });
    }

    /// The instruction that ran before the one at `start` when the path came by there last.
    fn last_way_to(&self, start: u64) -> Option<u64> {
        let step = self.hypothesis.path().iter().rev().find(|step| step.next == start)?;
        Some(step.address)
    }

    /// Of the returns of many functions, those of the one that was most likely called are tried first, and at its entry the
    /// branch by which it was most likely reached.
    fn prefer_likely_way(&mut self, found: &mut [Candidate], called_by: Option<u64>, window: Window) {
        let is_open = |c: &Candidate, kinds: &[BranchKind]| {
            c.rank > Rank::Recorded && c.prepared.branch.is_some_and(|kind| kinds.contains(&kind))
        };
        let returns = |c: &Candidate| is_open(c, &[BranchKind::Return]);
        let arrives = |c: &Candidate| is_open(c, &[BranchKind::IndirectJump]);
        let several = |is: &dyn Fn(&Candidate) -> bool| found.iter().filter(|c| is(c)).nth(1).is_some();
        let start = self.hypothesis.start();
        if several(&returns) {
            if self.prefer_on_stack(found, start, window) {
                return;
            }
            let Some(way) = self.likely_way(start) else { return self.prefer_left_below(found) };
            let program = self.program;
            let of_callee = |c: &&mut Candidate| {
                returns(c) && program.function_at(c.prepared.address()).is_some_and(|f| f.start == way.callee)
            };
            found.iter_mut().filter(of_callee).for_each(|c| c.rank = Rank::Told);
        } else if several(&arrives) {
            let back = called_by.and_then(|call| self.next_of(call));
            let Some(way) = back.and_then(|back| self.likely_way(back)) else { return };
            let is_way = |c: &&mut Candidate| way.callee == start && c.prepared.address() == way.branch;
            found.iter_mut().filter(is_way).for_each(|c| c.rank = Rank::Told);
        }
    }

    /// From where the path went to `to` since the newest record, and how often.
    fn rounds_to(&self, to: u64) -> FxHashMap<u64, usize> {
        let since = self.frames.last().map_or(0, |frame| frame.segment);
        let path = &self.hypothesis.path()[since..];
        self.hypothesis.terms().fuel().burn(path.len() as u64 / STEPS_A_UNIT);
        counted(path.iter().filter(|step| step.next == to).map(|step| step.address))
    }

    /// Whether the program can get from there to `end` without leaving the function: then an edge from `end` closes a loop.
    fn leads_to(&mut self, from: &Destination, end: u64) -> bool {
        let (start, Some(function)) = (from.address, from.function.as_ref()) else { return false };
        if !function.contains(&end) {
            return false;
        }
        if let Some(&known) = self.loops.get(&(start, end)) {
            return known;
        }
        let (mut todo, mut seen) = (vec![start], FxHashSet::default());
        let mut found = false;
        while let Some(at) = todo.pop() {
            if !function.contains(&at) || !seen.insert(at) {
                continue;
            }
            if at == end {
                found = true;
                break;
            }
            let Some(i) = self.program.instruction_at(at) else { continue };
            if matches!(i.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch) {
                todo.push(i.near_branch_target());
            }
            if !matches!(
                i.flow_control(),
                FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return
            ) {
                todo.push(i.next_ip());
            }
        }
        self.hypothesis.terms().fuel().burn(seen.len() as u64);
        self.loops.insert((start, end), found);
        found
    }

    /// Whether control can arrive by `edge` in a function that was entered by the call at `called_by`.
    fn is_in_context(&self, edge: &Edge, called_by: Option<u64>) -> bool {
        let Some(call) = called_by else { return true };
        match edge.kind {
            EdgeKind::Call | EdgeKind::IndirectCall => edge.from == call,
            EdgeKind::Return => true,
            _ => self.cfg.is_inside(edge.from, call),
        }
    }

    /// Which instructions ran lately, and how often.
    fn recent_visits(&self) -> FxHashMap<u64, usize> {
        let path = self.hypothesis.path();
        counted(path[path.len().saturating_sub(RECENT)..].iter().map(|step| step.address))
    }

    /// An instruction that falls through to the present start; a system call whose number its surroundings do not
    /// tell is tried with each of the usual ones, which older instructions then confirm or refute.
    fn straight(&mut self, from: u64, window: Window, rank: Rank) -> Vec<Candidate> {
        let Some(prepared) = self.prepare(from) else { return Vec::new() };
        let calls: Vec<Option<u64>> = match prepared.effect {
            Effect::Syscall if let Some(anchor) = self.hypothesis.image().anchors().get(window.passed) => {
                // Where the crumbs have another exit there, none of this call's is among them.
                vec![Some(anchor.call().unwrap_or(u64::MAX))]
            }
            Effect::Syscall => {
                // The number is that of the straight line before it, or one of the usual ones: not a proof.
                self.statistics.assumed = true;
                match self.syscall_number(from) {
                    Some(number) => vec![Some(number)],
                    None => USUAL_CALLS.map(Some).to_vec(),
                }
            }
            _ => vec![None],
        };
        let mut found: Vec<Candidate> =
            calls.into_iter().map(|call| Candidate::new(Rc::clone(&prepared), call, window, rank)).collect();
        if prepared.op.rep != Rep::None && self.hypothesis.start() != from {
            // Its count may have been zero.
            found.push(Candidate::new(Rc::new(prepared.skipping()), None, window, Rank::Repeated));
        }
        found
    }

    /// A branch that was taken from `from` to `to`, unless the records exclude it.
    fn taken_branch(&mut self, from: u64, to: u64, window: Window, rank: Rank) -> Option<Candidate> {
        let Some(prepared) = self.prepare(from) else {
            self.meet_here("code that is in no file of the program");
            return None;
        };
        let kind = prepared.branch?;
        let window = match self.records.judge(window, kind, from, to) {
            Verdict::Recorded => Window { used: window.used + 1, ..window },
            Verdict::Open => window,
            Verdict::Excluded => return None,
        };
        Some(Candidate::new(prepared, None, window, rank))
    }

    /// The return address on top of the stack, if it is known.
    pub(super) fn return_address(&mut self) -> Option<u64> {
        let rsp = self.hypothesis.register(Gpr::RSP);
        let rsp = self.hypothesis.terms().value(rsp)?;
        let top = self.hypothesis.memory_value(rsp, 8)?;
        self.hypothesis.terms().value(top)
    }

    pub(super) fn next_of(&mut self, address: u64) -> Option<u64> {
        self.prepare(address).map(|p| p.op.next)
    }

    /// The start is no instruction of the program: whoever called it left its return address.
    fn call_through_wild_pointer(&mut self, start: u64, window: Window) -> Option<Candidate> {
        let back = self.return_address()?;
        // An indirect call is 2 to 8 bytes long.
        (2..=8).find_map(|len| {
            let call = self.prepare(back.checked_sub(len)?)?;
            let indirect = call.op.next == back && call.branch == Some(BranchKind::IndirectCall);
            if indirect { self.taken_branch(back - len, start, window, Rank::Elsewhere) } else { None }
        })
    }

    /// The number of the system call at `syscall`: the constant that straight-line code before it put into eax.
    fn syscall_number(&mut self, syscall: u64) -> Option<u64> {
        let mut at = syscall;
        for _ in 0..NUMBER_LOOK_BACK {
            at = self.cfg.predecessors(at).find(|e| e.kind == EdgeKind::Fallthrough)?.from;
            let i = self.program.instruction_at(at)?;
            let writes_eax = i.op_count() > 0
                && i.op0_kind() == OpKind::Register
                && i.op0_register().full_register() == Register::RAX;
            match i.code() {
                Code::Mov_r32_imm32 if writes_eax => return Some(u64::from(i.immediate32())),
                _ if i.mnemonic() == Mnemonic::Xor
                    && writes_eax
                    && i.op1_kind() == OpKind::Register
                    && i.op1_register() == i.op0_register() =>
                {
                    return Some(0);
                }
                _ if writes_eax && !matches!(i.mnemonic(), Mnemonic::Cmp | Mnemonic::Test) => return None,
                _ => {}
            }
        }
        None
    }
}

/// How often each of these comes.
fn counted(addresses: impl Iterator<Item = u64>) -> FxHashMap<u64, usize> {
    let mut counts = FxHashMap::default();
    addresses.for_each(|address| *counts.entry(address).or_default() += 1);
    counts
}
