//! The search for the past: depth first through the predecessors of the oldest instruction, cheap proofs first.
//!
//! Inside the branch records the path is given, up to what the filter hides; past the oldest record each
//! predecessor is tried, the likeliest first ([`candidates`]), and given up as soon as it contradicts the core.
//! The solver is asked only where there was a choice, and only about the constraints that the choice touched.

mod candidates;
mod trail;

pub use trail::{Records, Window};

use crate::past::hypothesis::{Hypothesis, Kernel, PathStep, Refusal};
use crate::past::image::Image;
use crate::past::prepared::Prepared;
use crate::program::Program;
use crate::program::cfg::Cfg;
use crate::smt::{self, Answer, Budget};
use crate::term::{Assignment, Terms};
use candidates::Candidate;
use rustc_hash::FxHashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use x86::state::State;

/// Where to stop.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Instructions of the suffix.
    pub instructions: usize,
    /// Wall-clock time.
    pub time: Duration,
}

/// Why the search stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The suffix is as long as it was allowed to get.
    Instructions,
    /// The time is over.
    Time,
    /// Every way back was tried: either all of them contradict the core, or they end at barriers.
    Exhausted,
    /// The suffix reached the program's first instruction.
    ProgramStart,
}

/// What the search did.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Instructions prepended, over all branches of the search.
    pub prepended: u64,
    /// Candidates that propagation alone refuted.
    pub refuted: u64,
    /// Questions to the solver.
    pub solver_calls: u64,
    /// Choices that the solver refuted.
    pub solver_refuted: u64,
    /// Questions that the solver could not answer within its budget.
    pub solver_unknown: u64,
    /// Something was assumed that may have been otherwise: what contradicts it is not refuted.
    pub assumed: bool,
    /// Barriers met: what it would take to go on, and how often.
    pub barriers: FxHashMap<&'static str, u64>,
}

/// The longest path found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its steps, newest first, with the numbers of the system calls among them.
    pub path: Vec<(PathStep, Option<u64>)>,
    /// How many of the steps the branch records cover.
    pub covered: usize,
    /// Why the search stopped.
    pub stop: Stop,
    /// What it did.
    pub statistics: Statistics,
}

/// A search in progress.
pub struct Search<'p> {
    program: &'p Program,
    cfg: &'p Cfg<'p>,
    records: &'p Records,
    hypothesis: Hypothesis<'p>,
    prepared: FxHashMap<u64, Option<Rc<Prepared>>>,
    /// Whether the second instruction can follow the first within a function.
    loops: FxHashMap<(u64, u64), bool>,
    frames: Vec<Frame>,
    taken: Vec<(PathStep, Option<u64>)>,
    longest: Vec<(PathStep, Option<u64>)>,
    covered: usize,
    statistics: Statistics,
    /// A solution of all constraints of some earlier moment: where it still fits, the solver need not be asked.
    witness: Assignment,
    /// Instructions prepended since the longest path grew, or since the last jump back.
    fruitless: u32,
    /// How far the next jump back goes.
    jump: usize,
}

/// So many instructions may be tried without getting further back before the search jumps.
const MOST_FRUITLESS: u32 = 2048;
/// The first jump back, in instructions; each further one is twice as far.
const FIRST_JUMP: usize = 16;

/// For so many instructions, the search waits for older ones to tell an address; then it chooses one.
const ADDRESS_PATIENCE: usize = 96;

/// So many choices of addresses are tried at one place.
const MOST_CHOICES: usize = 80;

/// The choices at one instruction.
struct Frame {
    candidates: Vec<Candidate>,
    next: usize,
    window: Window,
    /// How many constraints there were when the solver was last asked before this instruction.
    checked: usize,
}

impl Statistics {
    /// Whether something was given up that no proof excludes.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.assumed || self.solver_unknown > 0 || !self.barriers.is_empty()
    }
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
            records,
            hypothesis: Hypothesis::new(Rc::new(Terms::new()), image, core, kernel),
            prepared: FxHashMap::default(),
            loops: FxHashMap::default(),
            frames: Vec::new(),
            taken: Vec::new(),
            longest: Vec::new(),
            covered: 0,
            statistics: Statistics::default(),
            witness: Assignment::default(),
            fruitless: 0,
            jump: FIRST_JUMP,
        }
    }

    /// Searches until a limit. `progress` is told the present and the longest length from time to time.
    pub fn run(mut self, limits: Limits, progress: &mut dyn FnMut(usize, usize)) -> Found {
        let deadline = Instant::now() + limits.time;
        let stop = loop {
            if self.hypothesis.len() >= limits.instructions {
                break Stop::Instructions;
            }
            if self.hypothesis.start() == self.program.entry() && !self.hypothesis.is_empty() {
                break Stop::ProgramStart;
            }
            if self.statistics.prepended.is_multiple_of(64) {
                if Instant::now() >= deadline {
                    break Stop::Time;
                }
                progress(self.hypothesis.len(), self.longest.len());
            }
            if self.fruitless > MOST_FRUITLESS {
                self.jump_back();
            }
            if self.frames.len() == self.hypothesis.len() {
                self.open_frame();
            }
            if !self.advance() && !self.retreat() {
                break Stop::Exhausted;
            }
        };
        Found { path: self.longest, covered: self.covered, stop, statistics: self.statistics }
    }

    /// Lists the choices at the present start.
    fn open_frame(&mut self) {
        let window = self.frames.last().map_or_else(Window::default, |f| f.candidates[f.next - 1].window);
        let checked = match self.frames.last() {
            Some(f) if f.candidates.len() > 1 => self.hypothesis.facts().constraints(),
            Some(f) => f.checked,
            None => 0,
        };
        let candidates = self.candidates(window);
        if !self.cfg.is_complete(self.hypothesis.start()) {
            *self.statistics.barriers.entry("an instruction that unknown jumps may reach").or_default() += 1;
        }
        self.frames.push(Frame { candidates, next: 0, window, checked });
    }

    /// Prepends the next candidate that does not contradict the core. False: none is left here.
    fn advance(&mut self) -> bool {
        while let Some(frame) = self.frames.last_mut() {
            let Some(candidate) = frame.candidates.get(frame.next).cloned() else { return false };
            frame.next += 1;
            let had_choice = frame.candidates.len() > 1;
            self.statistics.prepended += 1;
            self.fruitless += 1;
            match self.hypothesis.prepend(&candidate.prepared, candidate.call) {
                Ok(()) => {
                    // A step that the records give was taken: it is left only when it is refuted.
                    let given = candidate.window.used < self.records.len();
                    let doubtful = !given && !self.addresses_hold(&candidate);
                    let feasible =
                        if doubtful || !had_choice { Some(!doubtful) } else { self.is_satisfiable() };
                    // A path on which the solver gives up is left too: no suffix could be made of it, and another
                    // may be easier.
                    if feasible == Some(false) || feasible.is_none() && !given {
                        self.hypothesis.pop();
                        continue;
                    }
                    self.note_progress(&candidate);
                    return true;
                }
                Err(refusal) => {
                    let depth = self.hypothesis.len();
                    tracing::trace!(depth, address = candidate.prepared.address(), ?refusal, "refused");
                    match refusal {
                        Refusal::Contradiction => self.statistics.refuted += 1,
                        Refusal::Barrier(why) => *self.statistics.barriers.entry(why).or_default() += 1,
                    }
                }
            }
        }
        false
    }

    /// Takes the oldest instruction back, to try another. False: the search is over.
    fn retreat(&mut self) -> bool {
        self.frames.pop();
        if self.hypothesis.is_empty() {
            return false;
        }
        self.hypothesis.pop();
        self.taken.pop();
        true
    }

    /// Leaves a region that leads nowhere: its first wrong turn lies well after the dead ends it is found by.
    fn jump_back(&mut self) {
        let to = self.hypothesis.len().saturating_sub(self.jump).max(1);
        while self.hypothesis.len() > to {
            self.retreat();
        }
        *self.statistics.barriers.entry("a region that seemed to lead nowhere").or_default() += 1;
        self.fruitless = 0;
        self.jump *= 2;
    }

    fn note_progress(&mut self, candidate: &Candidate) {
        let step = *self.hypothesis.path().last().expect("something was prepended");
        self.taken.push((step, candidate.call));
        if self.taken.len() > self.longest.len() {
            self.longest.clone_from(&self.taken);
            self.fruitless = 0;
            self.jump = FIRST_JUMP;
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
        let waiting = |h: &Hypothesis<'_>| {
            let oldest_allowed = h.len().saturating_sub(ADDRESS_PATIENCE);
            h.newest_unresolved().is_some_and(|step| (step as usize) < oldest_allowed)
        };
        if !waiting(&self.hypothesis) {
            return true;
        }
        self.statistics.assumed = true;
        let chosen = self
            .hypothesis
            .choose_addresses(candidate.skip, self.hypothesis.len().saturating_sub(ADDRESS_PATIENCE / 2));
        if let (Some(number), Some(frame)) = (chosen, self.frames.last_mut())
            && candidate.choices < MOST_CHOICES
        {
            // Should this choice lead nowhere, the next is tried.
            let other = Candidate { skip: number + 1, choices: candidate.choices + 1, ..candidate.clone() };
            frame.candidates.insert(frame.next, other);
        }
        if waiting(&self.hypothesis) {
            *self.statistics.barriers.entry("an address that nothing determines").or_default() += 1;
            return false;
        }
        true
    }

    /// Whether the constraints have a solution. `None`: the solver gave up.
    fn is_satisfiable(&mut self) -> Option<bool> {
        let terms = Rc::clone(self.hypothesis.terms());
        let checked = self.frames.last().map_or(0, |f| f.checked);
        let new = self.hypothesis.facts().unsolved_since(&terms, checked);
        if new.is_empty() {
            return Some(true);
        }
        let unsolved = self.hypothesis.facts().unsolved(&terms);
        let mut memo = FxHashMap::default();
        if unsolved.iter().all(|&c| terms.truth(terms.evaluate(c, &self.witness, &mut memo)) == Some(true)) {
            return Some(true);
        }
        self.statistics.solver_calls += 1;
        let question = smt::connected(self.hypothesis.facts(), &terms, &unsolved, &new);
        match smt::solve(&terms, &question, &[], Budget::SEARCH) {
            Answer::Infeasible => {
                self.statistics.solver_refuted += 1;
                return Some(false);
            }
            Answer::Unknown => {
                self.statistics.solver_unknown += 1;
                return None;
            }
            Answer::Satisfiable(model) => {
                self.witness.extend(&model);
            }
        }
        Some(true)
    }

    fn prepare(&mut self, address: u64) -> Option<Rc<Prepared>> {
        let (program, terms) = (self.program, self.hypothesis.terms());
        self.prepared
            .entry(address)
            .or_insert_with(|| program.instruction_at(address).map(|i| Rc::new(Prepared::new(terms, i))))
            .clone()
    }
}
