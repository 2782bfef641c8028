//! The search for the past: depth first through the predecessors of the oldest instruction, cheap proofs first.
//!
//! Inside the branch records the path is given, up to what the filter hides; past the oldest record each predecessor is
//! tried, the likeliest first ([`candidates`]), and given up as soon as it contradicts the core. The solver is asked only
//! where there was a choice, and only about the constraints that the choice touched.
//!
//! Example: 0x40101c is reached by falling through from `mov eax, 1` and by a jump from 0x401050. If the next record is a
//! branch from 0x401050 to 0x40101c, only the jump is tried. Without records the `mov` is tried as well: the core has 2 in
//! eax, which nothing changed since, so that way contradicts the core at once, and the jump is what is left.
//!
//! | part | modules |
//! | --- | --- |
//! | what can come before | [`candidates`], [`rank`] (how likely each kind of edge is), [`repeated`] (how often a string instruction ran), [`callee`] (a call through a pointer), [`context`] (the call that all runs under), [`trail`] (what the records say), [`anchored`] and [`stacks`] (what the crumbs and their contexts say), [`turns`] (another thread), [`signals`] (handlers) |
//! | between two records | [`reach`] (how far the next one is), [`restarts`] (when to leave a region) |
//! | which of several ways | [`weigh`] (what the core speaks for), [`below`] (what calls left below the stack), [`habits`] (what samples of branches speak for) |
//! | accesses without an address | [`placing`] (whether they could have one), [`late`] (one that became known), [`anew`] (one that was chosen badly), [`explained`] (what a store may have overwritten) |
//! | what propagation leaves over | [`asking`] (the solver) |
//! | what came of it | [`found`], [`barriers`], [`length`] (against the most that it may have), [`forced`] (which steps are) |

mod anchored;
mod anew;
mod asking;
mod barriers;
mod below;
mod callee;
mod candidates;
mod context;
mod explained;
mod forced;
mod found;
mod habits;
mod late;
mod length;
mod placing;
mod rank;
mod reach;
mod repeated;
mod restarts;
mod signals;
mod stacks;
mod trail;
mod turns;
mod weigh;

pub use barriers::{Met, Place};
pub use found::{Found, Limits, Statistics, Stop};
pub use trail::{Records, Window};

use crate::evidence::Samples;
use crate::fuel::{Fuel, Until};
use crate::past::audit::Audit;
use crate::past::deferred::{AccessNumber, Early};
use crate::past::hypothesis::{Hypothesis, Kernel, PathStep, Refusal};
use crate::past::image::Image;
use crate::past::prepared::Prepared;
use crate::program::Program;
use crate::program::cfg::Cfg;
use crate::program::stack::Stack;
use crate::smt::Effort;
use crate::term::Terms;
use candidates::Candidate;
use context::Context;
use explained::OVERWRITTEN;
use length::Iterations;
use reach::Reach;
use restarts::Restarts;
use rustc_hash::FxHashMap;
use stacks::Stacks;
use std::rc::Rc;
use x86::state::State;

/// A search in progress.
pub struct Search<'p> {
    program: &'p Program,
    cfg: &'p Cfg<'p>,
    stack: Stack<'p>,
    /// What the contexts of crumbs are read by, where there are some.
    stacks: Option<Stacks<'p>>,
    reach: Reach<'p>,
    records: &'p Records,
    samples: Option<&'p Samples>,
    hypothesis: Hypothesis<'p>,
    prepared: FxHashMap<u64, Option<Rc<Prepared>>>,
    /// Whether the second instruction can follow the first within a function.
    loops: FxHashMap<(u64, u64), bool>,
    /// The counts of repeated string instructions, by the call that they run under.
    counts: FxHashMap<(u64, Option<u64>), Option<u64>>,
    frames: Vec<Frame>,
    taken: Vec<(PathStep, Option<u64>)>,
    longest: Vec<(PathStep, Option<u64>)>,
    /// How many records the longest path's newest steps use that have all their addresses, how much agrees with them, how many they
    /// are, and its length.
    best: (usize, u64, usize, usize),
    /// How many records any path used.
    most_used: usize,
    /// The hypothesis is that of the longest path.
    is_on_longest: bool,
    /// What was known early on the longest path.
    early: Vec<Early>,
    covered: usize,
    statistics: Statistics,
    restarts: Restarts,
    /// The access that made the last step impossible, since it has no address.
    stuck: Option<AccessNumber>,
    /// The last of those that have one if nothing is chosen for others.
    helpable: Option<AccessNumber>,
    /// How often the hypothesis was built again.
    rebuilds: u32,
    /// The fuel that went into choosing addresses anew.
    spent_anew: u64,
    /// The fuel that went into following ways.
    spent_weighing: u64,
    /// The fuel that went into questions with a larger budget.
    spent_insisting: u64,
    /// How much fuel there was, when the search began.
    whole_fuel: u64,
    /// Handlers of signals may have run.
    signals: bool,
}

/// What a step takes beside the terms that it makes.
const FUEL_OF_A_STEP: u64 = 50;

/// The choices at one instruction.
struct Frame {
    candidates: Vec<Candidate>,
    next: usize,
    window: Window,
    /// The call that the instruction runs under, if the path has come in by its return.
    context: Option<Rc<Context>>,
    /// How much agreed before this instruction.
    agreed: u64,
    /// How many constraints there were when the solver was last asked before this instruction.
    checked: usize,
    /// How long the path was when it came to the newest record.
    segment: usize,
    /// How long it got behind one of the choices that were left.
    deepest: usize,
    /// How long the path was when all its accesses had addresses last, before this instruction and with the candidate that was
    /// taken.
    placed_before: usize,
    placed: usize,
    /// What of the path up to this instruction is not counted.
    iterations: Iterations,
}

impl<'p> Search<'p> {
    /// A search from the core, whose work is counted by `fuel`.
    #[must_use]
    pub fn new(
        program: &'p Program,
        cfg: &'p Cfg<'p>,
        image: &'p dyn Image,
        core: &State,
        records: &'p Records,
        kernel: Kernel,
        fuel: &Fuel,
    ) -> Search<'p> {
        Search {
            program,
            cfg,
            stack: Stack::new(program),
            stacks: Stacks::of(image.anchors(), cfg),
            reach: Reach::new(program, records.recorded()),
            records,
            samples: None,
            hypothesis: Hypothesis::new(Rc::new(Terms::with_fuel(fuel.clone())), image, core, kernel),
            prepared: FxHashMap::default(),
            loops: FxHashMap::default(),
            counts: FxHashMap::default(),
            frames: Vec::new(),
            taken: Vec::new(),
            longest: Vec::new(),
            best: (0, 0, 0, 0),
            most_used: 0,
            is_on_longest: false,
            early: Vec::new(),
            covered: 0,
            statistics: Statistics::default(),
            restarts: Restarts::new(),
            stuck: None,
            helpable: None,
            rebuilds: 0,
            spent_anew: 0,
            spent_weighing: 0,
            spent_insisting: 0,
            whole_fuel: 0,
            signals: false,
        }
    }

    /// Says that there may be edges that the map does not have, so that what contradicts it is not refuted.
    #[must_use]
    pub fn with_partial_map(mut self) -> Search<'p> {
        self.statistics.assumed = true;
        self
    }

    /// Goes first where samples of the program's branches say that it mostly went.
    #[must_use]
    pub fn with_samples(self, samples: &'p Samples) -> Search<'p> {
        Search { samples: (!samples.is_empty()).then_some(samples), ..self }
    }

    /// Has each refutation told.
    #[must_use]
    pub fn with_audit(mut self, audit: Rc<dyn Audit + 'p>) -> Search<'p> {
        self.hypothesis.set_audit(audit);
        self
    }

    /// Searches until a path has so many instructions, or until it is time to end. `progress` is told the present and the
    /// longest length from time to time.
    pub fn run(
        mut self,
        instructions: usize,
        until: &Until,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Found {
        self.hypothesis.stop_at(until.clone());
        self.whole_fuel = until.left();
        let stop = loop {
            if self.length() >= instructions && !self.leave_segment() {
                break Stop::Instructions;
            }
            if self.hypothesis.start() == self.program.entry() && !self.hypothesis.is_empty() {
                break Stop::ProgramStart;
            }
            if let Some(end) = until.end() {
                break end.into();
            }
            if self.statistics.prepended.is_multiple_of(64) {
                progress(self.hypothesis.len(), self.longest.len());
            }
            if self.frames.len() == self.hypothesis.len() {
                if self.restarts.are_due() {
                    self.jump_back();
                } else {
                    self.open_frame();
                    self.weigh();
                }
            }
            if !self.advance() && !self.retreat() && !self.start_over() {
                break Stop::Exhausted;
            }
        };
        self.keep_early();
        Found {
            path: self.longest,
            early: self.early,
            covered: self.covered,
            touched: self.hypothesis.memory().touched(),
            stop,
            statistics: self.statistics,
        }
    }

    /// Begins again with more patience, or with stores where they explain what memory holds. False: nothing is left to try.
    fn start_over(&mut self) -> bool {
        let doubted = self.statistics.barriers.contains_key(OVERWRITTEN);
        self.restarts.start_over(self.statistics.solver_unknown > 0)
            || doubted && self.restarts.place_stores()
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
        let placed_before = self.frames.last().map_or(0, |frame| frame.placed);
        let (agreed, iterations) = (self.hypothesis.facts().agreed(), self.iterations());
        self.frames.push(Frame {
            candidates: Vec::new(),
            next: 0,
            window,
            agreed,
            checked,
            context,
            segment,
            deepest: len,
            placed_before,
            placed: placed_before,
            iterations,
        });
        if let Some(why) = self.entered_by(window) {
            // The processor has come here; what lies in front of it in memory has not run.
            self.statistics.assumed = true;
            self.meet_here(why);
            return;
        }
        let candidates = self.candidates(window);
        if let Some(frame) = self.frames.last_mut() {
            frame.candidates = candidates;
        }
        if !self.cfg.is_complete(self.hypothesis.start()) {
            self.meet_here("an instruction that unknown jumps may reach");
        }
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
            if candidate.explained.is_some() && other_ways > restarts::SHALLOW {
                continue;
            }
            let (had_choice, before) = (frame.candidates.len() > 1, frame.window);
            self.statistics.prepended += 1;
            self.hypothesis.terms().fuel().burn(FUEL_OF_A_STEP);
            self.statistics.assumed |= candidate.prepared.assumes_top || candidate.is_of_signal();
            let prepended = match candidate.explained {
                Some(before) => self.prepend_explained(&candidate, before),
                None => self.prepend(&candidate),
            };
            match prepended {
                Ok(()) => {
                    // A step that the records alone give was taken: it is left only when it is refuted.
                    let is_inside = before.used < self.records.len();
                    let given = is_inside && !had_choice;
                    let doubtful = !given && !self.addresses_hold();
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
                        if self.stuck.is_some() {
                            self.leave_stuck();
                            return true;
                        }
                        if self.hypothesis.is_over() {
                            // Of thousands of candidates each may take the solver seconds.
                            return true;
                        }
                        continue;
                    }
                    self.note_progress(&candidate);
                    return true;
                }
                Err(refusal) => {
                    self.restarts.note_refusal();
                    self.forget_late();
                    let depth = self.hypothesis.instructions();
                    tracing::trace!(depth, address = candidate.prepared.address(), ?refusal, "refused");
                    match refusal {
                        Refusal::Contradiction => {
                            self.statistics.refuted += 1;
                            self.doubt_refutation();
                            self.explain_later(&candidate);
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
                other => {
                    self.doubt_clock(candidate.prepared.address());
                    return other;
                }
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
        self.keep_early();
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

    /// Keeps the early addresses of the longest path, before it is left.
    fn keep_early(&mut self) {
        if std::mem::take(&mut self.is_on_longest) {
            self.early = self.hypothesis.early_and_chosen();
        }
    }

    /// Leaves a region that leads nowhere: its first wrong turn lies well after the dead ends it is found by.
    fn jump_back(&mut self) {
        let to = self.hypothesis.len().saturating_sub(self.restarts.jump()).max(1);
        // The oldest instruction's own choices are not listed yet: it is left as the last of those before it.
        self.keep_early();
        self.hypothesis.pop();
        self.taken.pop();
        while self.hypothesis.len() > to && self.retreat() {}
        self.meet_here("a region that seemed to lead nowhere");
    }

    /// A path that is as long as it may be, and still has records to come to, went round some loop for too long: it is left near
    /// where that began, each time a little nearer. False: it is no such path, or this did not help.
    fn leave_segment(&mut self) -> bool {
        let Some(frame) = self.frames.last() else { return false };
        let (segment, used) = (frame.segment, frame.window.used);
        if used >= self.records.len() {
            return false;
        }
        let Some(beyond) = self.restarts.leave_segment() else { return false };
        self.keep_early();
        self.hypothesis.pop();
        self.taken.pop();
        while self.hypothesis.len() > segment + beyond && self.retreat() {}
        self.meet_here("a region that seemed to lead nowhere");
        true
    }

    fn note_progress(&mut self, candidate: &Candidate) {
        let step = *self.hypothesis.path().last().expect("something was prepended");
        self.taken.push((step, candidate.call));
        // Of two paths the one that used more of the records is nearer to the truth; a suffix begins behind the newest access
        // that has no address.
        let length = self.taken.len();
        let placed = self.hypothesis.newest_unresolved().map_or(length, |step| step as usize - 1);
        let used = candidate.window.used;
        let certain = self.frames.get(placed).map_or(used, |frame| frame.window.used);
        let present = self.hypothesis.facts().agreed();
        let agreed = self.frames.get(placed).map_or(present, |frame| frame.agreed);
        let reached = (certain, agreed, placed, length);
        // Going round a loop is no progress while there are records to come to.
        let is_further = used > self.most_used || used == self.records.len() && length > self.longest.len();
        self.most_used = self.most_used.max(used);
        if is_further {
            self.restarts.note_progress();
        }
        if reached > self.best {
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

    fn prepare(&mut self, address: u64) -> Option<Rc<Prepared>> {
        let (program, terms) = (self.program, self.hypothesis.terms());
        self.prepared
            .entry(address)
            .or_insert_with(|| {
                program.instruction_at(address).map(|i| Rc::new(Prepared::of_program(program, terms, i)))
            })
            .clone()
    }
}
