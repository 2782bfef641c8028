//! The search for the past: depth first through the predecessors of the oldest instruction, cheap proofs first.
//!
//! Inside the branch records the path is given, up to what the filter hides; past the oldest record each
//! predecessor is tried, the likeliest first ([`candidates`]), and given up as soon as it contradicts the core.
//! The solver is asked only where there was a choice, and only about the constraints that the choice touched.

mod anchored;
mod barriers;
mod callee;
mod candidates;
mod forced;
mod found;
mod late;
mod reach;
mod restarts;
mod trail;

pub use barriers::{Met, Place};
pub use found::{Found, Limits, Statistics, Stop};
pub use trail::{Records, Window};

use crate::past::addresses::Patience;
use crate::past::audit::Audit;
use crate::past::deferred::{Choice, Early};
use crate::past::hypothesis::{Hypothesis, Kernel, PathStep, Refusal};
use crate::past::image::Image;
use crate::past::prepared::Prepared;
use crate::program::Program;
use crate::program::cfg::Cfg;
use crate::program::stack::Stack;
use crate::smt::{self, Answer, Budget, Effort};
use crate::term::Terms;
use candidates::Candidate;
use reach::Reach;
use restarts::Restarts;
use rustc_hash::FxHashMap;
use std::rc::Rc;
use std::time::Instant;
use vmm::engine::Interrupter;
use x86::op::BranchKind;
use x86::state::State;

/// A search in progress.
pub struct Search<'p> {
    program: &'p Program,
    cfg: &'p Cfg<'p>,
    stack: Stack<'p>,
    reach: Reach<'p>,
    records: &'p Records,
    hypothesis: Hypothesis<'p>,
    prepared: FxHashMap<u64, Option<Rc<Prepared>>>,
    /// Whether the second instruction can follow the first within a function.
    loops: FxHashMap<(u64, u64), bool>,
    frames: Vec<Frame>,
    taken: Vec<(PathStep, Option<u64>)>,
    longest: Vec<(PathStep, Option<u64>)>,
    /// How many records the longest path uses, how many of its newest steps have all their addresses, and its length.
    best: (usize, usize, usize),
    /// The hypothesis is that of the longest path.
    is_on_longest: bool,
    /// What was assumed on the longest path.
    choices: Vec<Choice>,
    /// What was known early on it.
    early: Vec<Early>,
    covered: usize,
    statistics: Statistics,
    restarts: Restarts,
    /// How often the hypothesis was built again.
    rebuilds: u32,
}

/// For so many instructions, the search waits for older ones to tell an address; then it chooses one.
const ADDRESS_PATIENCE: usize = 96;

/// So many choices of addresses are tried at one place.
const MOST_CHOICES: usize = 80;

/// The choices at one instruction.
struct Frame {
    candidates: Vec<Candidate>,
    next: usize,
    window: Window,
    /// The call that the instruction runs under, if the path has come in by its return.
    context: Option<Rc<Context>>,
    /// How many constraints there were when the solver was last asked before this instruction.
    checked: usize,
    /// How long the path was when it came to the newest record.
    segment: usize,
    /// How long it got behind one of the choices that were left.
    deepest: usize,
}

/// A call whose return the path has gone back through, and not yet the call itself.
struct Context {
    call: u64,
    outer: Option<Rc<Context>>,
}

impl<'p> Search<'p> {
    /// A search from the core.
    #[must_use]
    pub fn new(
        program: &'p Program,
        cfg: &'p Cfg<'p>,
        image: &'p dyn Image,
        core: &State,
        records: &'p Records,
        kernel: Kernel,
    ) -> Search<'p> {
        Search {
            program,
            cfg,
            stack: Stack::new(program),
            reach: Reach::new(program, records.recorded()),
            records,
            hypothesis: Hypothesis::new(Rc::new(Terms::new()), image, core, kernel),
            prepared: FxHashMap::default(),
            loops: FxHashMap::default(),
            frames: Vec::new(),
            taken: Vec::new(),
            longest: Vec::new(),
            best: (0, 0, 0),
            is_on_longest: false,
            choices: Vec::new(),
            early: Vec::new(),
            covered: 0,
            statistics: Statistics::default(),
            restarts: Restarts::new(),
            rebuilds: 0,
        }
    }

    /// Says that there may be edges that the map does not have, so that what contradicts it is not refuted.
    #[must_use]
    pub fn with_partial_map(mut self) -> Search<'p> {
        self.statistics.assumed = true;
        self
    }

    /// Has each refutation told.
    #[must_use]
    pub fn with_audit(mut self, audit: Rc<dyn Audit + 'p>) -> Search<'p> {
        self.hypothesis.set_audit(audit);
        self
    }

    /// Searches until a limit, or until it is interrupted; then the interrupter is lowered. `progress` is told the present and the
    /// longest length from time to time.
    pub fn run(
        mut self,
        limits: Limits,
        interrupter: &Interrupter,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Found {
        let deadline = Instant::now() + limits.time;
        self.hypothesis.set_deadline(deadline);
        self.hypothesis.stop_on(interrupter.clone());
        let stop = loop {
            if self.hypothesis.len() >= limits.instructions {
                break Stop::Instructions;
            }
            if self.hypothesis.start() == self.program.entry() && !self.hypothesis.is_empty() {
                break Stop::ProgramStart;
            }
            // One question to the solver can take longer than a thousand steps.
            if Instant::now() >= deadline {
                break Stop::Time;
            }
            if interrupter.take() {
                break Stop::Interrupted;
            }
            if self.statistics.prepended.is_multiple_of(64) {
                progress(self.hypothesis.len(), self.longest.len());
            }
            if self.frames.len() == self.hypothesis.len() {
                if self.restarts.are_due() {
                    self.jump_back();
                } else {
                    self.open_frame();
                }
            }
            if !self.advance()
                && !self.retreat()
                && !self.restarts.start_over(self.statistics.solver_unknown > 0)
            {
                break Stop::Exhausted;
            }
        };
        self.keep_choices();
        Found {
            path: self.longest,
            choices: self.choices,
            early: self.early,
            covered: self.covered,
            touched: self.hypothesis.memory().touched(),
            stop,
            statistics: self.statistics,
        }
    }

    /// Lists the choices at the present start.
    fn open_frame(&mut self) {
        let window = self.frames.last().map_or_else(Window::default, |f| f.candidates[f.next - 1].window);
        let checked = match self.frames.last() {
            Some(f) if f.candidates.len() > 1 => self.hypothesis.facts().constraints(),
            Some(f) => f.checked,
            None => 0,
        };
        let context = self.next_context();
        let len = self.hypothesis.len();
        let same = self.frames.last().filter(|frame| frame.window.used == window.used);
        let segment = same.map_or(len, |frame| frame.segment);
        self.frames.push(Frame {
            candidates: Vec::new(),
            next: 0,
            window,
            checked,
            context,
            segment,
            deepest: len,
        });
        let candidates = self.candidates(window);
        if let Some(frame) = self.frames.last_mut() {
            frame.candidates = candidates;
        }
        if !self.cfg.is_complete(self.hypothesis.start()) {
            self.meet_here("an instruction that unknown jumps may reach");
        }
    }

    /// The call that the present start runs under: found at its return, left at the call.
    fn next_context(&self) -> Option<Rc<Context>> {
        let frame = self.frames.last()?;
        let newest = &frame.candidates[frame.next - 1].prepared;
        let next = self.hypothesis.path().last()?.next;
        match newest.branch {
            Some(BranchKind::Return) => {
                let call = self.cfg.call_before(next)?;
                Some(Rc::new(Context { call, outer: frame.context.clone() }))
            }
            Some(BranchKind::RelativeCall | BranchKind::IndirectCall) => {
                frame.context.as_ref()?.outer.clone()
            }
            // longjmp leaves any number of calls at once.
            Some(BranchKind::IndirectJump) if self.cfg.call_before(next).is_some() => None,
            // Records lead out of what the map has of the called function: through the dynamic linker to one that is called
            // for the first time.
            _ => frame.context.clone().filter(|context| self.cfg.is_inside(newest.address(), context.call)),
        }
    }

    /// The call that the present start runs under, if that is known.
    fn context(&self) -> Option<Rc<Context>> {
        self.frames.last()?.context.clone()
    }

    /// Prepends the next candidate that does not contradict the core. False: none is left here.
    fn advance(&mut self) -> bool {
        while let Some(frame) = self.frames.last_mut() {
            let Some(candidate) = frame.candidates.get(frame.next).cloned() else { return false };
            frame.next += 1;
            let other_ways = frame.deepest - self.hypothesis.len();
            if self.restarts.leave_loop(candidate.rounds, other_ways) {
                continue;
            }
            let (had_choice, before) = (frame.candidates.len() > 1, frame.window);
            self.statistics.prepended += 1;
            self.statistics.assumed |= candidate.prepared.assumes_top;
            match self.prepend(&candidate) {
                Ok(()) => {
                    // A step that the records alone give was taken: it is left only when it is refuted.
                    let is_inside = before.used < self.records.len();
                    let given = is_inside && !had_choice;
                    let doubtful = !given && !self.addresses_hold(&candidate);
                    let feasible = if doubtful || !had_choice {
                        Some(!doubtful)
                    } else {
                        self.is_satisfiable(candidate.effort)
                    };
                    if feasible.is_none() && self.restarts.insists() && candidate.effort == Effort::Plain {
                        // What is hard to solve comes after what is not.
                        let again = Candidate { effort: Effort::Persistent, ..candidate.clone() };
                        self.frames.last_mut().expect("its frame").candidates.push(again);
                    }
                    // A path on which the solver gives up is left too: no suffix could be made of it, and another
                    // may be easier.
                    if feasible == Some(false) || feasible.is_none() && !is_inside {
                        self.restarts.note_refusal();
                        self.hypothesis.pop();
                        self.forget_late();
                        continue;
                    }
                    self.note_progress(&candidate);
                    return true;
                }
                Err(refusal) => {
                    self.restarts.note_refusal();
                    self.forget_late();
                    let depth = self.hypothesis.len();
                    tracing::trace!(depth, address = candidate.prepared.address(), ?refusal, "refused");
                    match refusal {
                        Refusal::Contradiction => {
                            self.statistics.refuted += 1;
                            self.doubt_refutation();
                        }
                        Refusal::Late(..) => unreachable!("it was learned"),
                        Refusal::Barrier(why) => {
                            self.statistics.meet(why, candidate.prepared.address(), depth)
                        }
                    }
                }
            }
        }
        false
    }

    /// Prepends a candidate; if it tells an address late, to a hypothesis that knew it.
    fn prepend(&mut self, candidate: &Candidate) -> Result<(), Refusal> {
        loop {
            let prepended = self.hypothesis.prepend(&candidate.prepared, candidate.call);
            match prepended.and_then(|()| self.relate_stack()) {
                Err(Refusal::Late(access, address)) => self.learn_late(access, address)?,
                other => return other,
            }
        }
    }

    /// An epilogue that takes the stack pointer from another register does not say how deep the stack was; the rest of
    /// its function does. On refusal the instruction is taken back.
    fn relate_stack(&mut self) -> Result<(), Refusal> {
        let relation = self.stack.before_epilogue(self.hypothesis.start());
        let related = relation.map_or(Ok(()), |relation| self.hypothesis.relate_stack(&relation));
        related.inspect_err(|_| self.hypothesis.pop())
    }

    /// Takes the oldest instruction back, to try another. False: the search is over.
    fn retreat(&mut self) -> bool {
        self.keep_choices();
        let left = self.frames.pop();
        if self.hypothesis.is_empty() {
            return false;
        }
        if let (Some(left), Some(frame)) = (left, self.frames.last_mut()) {
            frame.deepest = frame.deepest.max(left.deepest);
        }
        self.restarts.note_refusal();
        self.hypothesis.pop();
        self.taken.pop();
        self.forget_late();
        true
    }

    /// Keeps the choices of the longest path, before it is left.
    fn keep_choices(&mut self) {
        if std::mem::take(&mut self.is_on_longest) {
            self.choices = self.hypothesis.choices().to_vec();
            self.early = self.hypothesis.early().to_vec();
        }
    }

    /// Leaves a region that leads nowhere: its first wrong turn lies well after the dead ends it is found by.
    fn jump_back(&mut self) {
        let to = self.hypothesis.len().saturating_sub(self.restarts.jump()).max(1);
        // The oldest instruction's own choices are not listed yet: it is left as the last of those before it.
        self.keep_choices();
        self.hypothesis.pop();
        self.taken.pop();
        while self.hypothesis.len() > to && self.retreat() {}
        self.meet_here("a region that seemed to lead nowhere");
    }

    fn note_progress(&mut self, candidate: &Candidate) {
        let step = *self.hypothesis.path().last().expect("something was prepended");
        self.taken.push((step, candidate.call));
        // Of two paths the one that used more of the records is nearer to the truth; a suffix begins behind the newest access
        // that has no address.
        let length = self.taken.len();
        let placed = self.hypothesis.newest_unresolved().map_or(length, |step| step as usize - 1);
        let reached = (candidate.window.used, placed, length);
        if reached > self.best {
            // Going round a loop is no progress while there are records to come to.
            if reached.0 > self.best.0 || reached.0 == self.records.len() {
                self.restarts.note_progress();
            }
            self.longest.clone_from(&self.taken);
            self.best = reached;
            self.is_on_longest = true;
        }
        if candidate.window.used > 0 && candidate.window.used == self.records.len() {
            let entered = self.frames.last().is_some_and(|f| f.window.used < self.records.len());
            if entered {
                self.covered = self.taken.len();
            }
        }
    }

    /// Whether every access that lies well behind has an address, or could be given one. An address that the
    /// program computed from what it still had would have been found by now.
    fn addresses_hold(&mut self, candidate: &Candidate) -> bool {
        // What the records alone give was not chosen, so the wait of what lies there begins at their end.
        if self.hypothesis.lost_a_pointer() {
            self.meet_here("a pointer that lies nowhere any more");
            return false;
        }
        if self.hypothesis.len() < self.covered + ADDRESS_PATIENCE {
            return true;
        }
        let waiting = |h: &Hypothesis<'_>| {
            let oldest_allowed = h.len().saturating_sub(ADDRESS_PATIENCE);
            h.newest_unresolved().is_some_and(|step| (step as usize) < oldest_allowed)
        };
        if !waiting(&self.hypothesis) {
            return true;
        }
        self.statistics.assumed = true;
        let upto = self.hypothesis.len().saturating_sub(ADDRESS_PATIENCE / 2);
        let chosen = self.hypothesis.choose_addresses(candidate.skip, upto, Patience::SEARCH);
        if let (Some(number), Some(frame)) = (chosen, self.frames.last_mut())
            && candidate.choices < MOST_CHOICES
        {
            // Should this choice lead nowhere, the next is tried.
            let other = Candidate { skip: number + 1, choices: candidate.choices + 1, ..candidate.clone() };
            frame.candidates.insert(frame.next, other);
        }
        if waiting(&self.hypothesis) {
            self.meet_unknown_address();
            return false;
        }
        true
    }

    /// Whether the constraints have a solution. `None`: the solver gave up.
    fn is_satisfiable(&mut self, effort: Effort) -> Option<bool> {
        let terms = Rc::clone(self.hypothesis.terms());
        let checked = self.frames.last().map_or(0, |f| f.checked);
        let Err(question) = self.hypothesis.fit_witness(checked, Effort::Plain) else { return Some(true) };
        self.statistics.solver_calls += 1;
        match smt::solve(&terms, &question, &[], Budget::SEARCH, effort) {
            Answer::Infeasible => {
                self.statistics.solver_refuted += 1;
                self.doubt_refutation();
                self.hypothesis.tell_refuted_by_solver();
                return Some(false);
            }
            Answer::Unknown => {
                self.statistics.solver_unknown += 1;
                return None;
            }
            Answer::Satisfiable(model) => {
                self.hypothesis.witness().learn(&model);
            }
        }
        Some(true)
    }

    /// The instruction of a step that was taken.
    fn prepare_again(&mut self, step: PathStep) -> Rc<Prepared> {
        let prepared = self.prepare(step.address).expect("the search went through it");
        if step.skips { Rc::new(prepared.skipping()) } else { prepared }
    }

    fn prepare(&mut self, address: u64) -> Option<Rc<Prepared>> {
        let (program, terms) = (self.program, self.hypothesis.terms());
        self.prepared
            .entry(address)
            .or_insert_with(|| program.instruction_at(address).map(|i| Rc::new(Prepared::new(terms, i))))
            .clone()
    }
}
