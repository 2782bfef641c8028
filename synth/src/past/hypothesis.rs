//! A path that ends in the core, grown backwards one instruction at a time, and all that it implies.

use super::asked::Answer;
use super::audit::Audit;
use super::choosing::Farthest;
use super::contents::Contents;
use super::deferred::{AccessNumber, Deferred, Early};
use super::history::{self, History, Step};
use super::image::Image;
use super::kernel::Remapped;
use super::machine::Access;
use super::pointers::Pointers;
use super::prepared::{Effect, Prepared};
use super::signals::Delivered;
use super::snapshot::Snapshot;
use super::turns::{Left, Standing};
use crate::facts::{self, Contradiction, Facts};
use crate::fuel::Until;
use crate::program::stack::Relation;
use crate::smt::{Effort, Witness};
use crate::term::{self, Term, Terms};
use std::rc::Rc;
use x86::domain::Bin;
use x86::op::Gpr;
use x86::state::State;

/// Why an instruction cannot be prepended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It contradicts the core: a sound proof.
    Contradiction,
    /// The search does not go past it, though the program may have.
    Barrier(&'static str),
    /// It tells where an access went, after an older one had been answered without that: the hypothesis has to be built again
    /// with this known from the start.
    Late(AccessNumber, u64),
}

impl From<Contradiction> for Refusal {
    fn from(_: Contradiction) -> Refusal {
        Refusal::Contradiction
    }
}

/// A step of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStep {
    /// The instruction.
    pub address: u64,
    /// Where it went.
    pub next: u64,
    /// It is a repeated string instruction that found its count to be zero.
    pub skips: bool,
    /// The thread that ran it.
    pub thread: u32,
    /// It is no instruction but a switch of threads: going forward from `thread`, which stands before `address`, to this one,
    /// which goes on at `next`.
    pub left: Option<u32>,
    /// It is no instruction but the delivery of a signal: going forward, it came where `address` was next, and the handler begins at
    /// `next`.
    pub signal: bool,
}

impl PathStep {
    /// Whether it is an instruction.
    #[must_use]
    pub fn is_instruction(&self) -> bool {
        self.left.is_none() && !self.signal
    }
}

/// A system call inside the path.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its step.
    pub step: Step,
    /// Its number.
    pub number: u64,
    /// What it returned.
    pub result: Term,
    /// What the kernel wrote.
    pub writes: Vec<Access>,
    /// Its step is the switch behind which the thread went on: the kernel answered then.
    pub late: bool,
}

/// A point to go back to.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    terms: term::Mark,
    facts: facts::Mark,
    memory: history::Mark,
    deferred: usize,
    settled: usize,
    calls: usize,
    answers: usize,
    remapped: usize,
    chosen: usize,
    left: usize,
    delivered: usize,
    place: Place,
}

/// Where a path is in the crumbs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The thread of the oldest step.
    pub(super) thread: u32,
    /// How many anchors it has passed.
    pub(super) passed: usize,
    /// It has gone over to the thread of the next one.
    pub(super) switched: bool,
    /// How that thread stands there.
    pub(super) standing: Standing,
}

/// Who serves the system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Linux: the flags stay as they were, and r11 holds them.
    Linux,
    /// Gretel's own personality, which clears the arithmetic flags, and r11's copy of them.
    Gretel,
}

/// A path and what it implies.
pub struct Hypothesis<'i> {
    pub(super) terms: Rc<Terms>,
    pub(super) facts: Facts,
    pub(super) image: &'i dyn Image,
    pub(super) memory: History,
    /// `snapshots[n]` is the state before step n; `snapshots[0]` is the core.
    pub(super) snapshots: Vec<Snapshot>,
    pub(super) path: Vec<PathStep>,
    marks: Vec<Mark>,
    pub(super) deferred: Vec<Deferred>,
    /// Indices of deferred accesses that were settled, in order, for undoing.
    pub(super) settled: Vec<usize>,
    pub(super) calls: Vec<Call>,
    pub(super) answers: Vec<Answer>,
    /// What the calls mapped and unmapped.
    pub(super) remapped: Vec<Remapped>,
    /// Where it is in the crumbs.
    pub(super) place: Place,
    /// The threads that it has left, and how they stood.
    pub(super) left: Vec<Left>,
    /// The signals that were delivered.
    pub(super) delivered: Vec<Delivered>,
    /// What older steps tell of the addresses of newer ones.
    pub(super) early: Vec<Early>,
    /// The addresses that were chosen since.
    pub(super) chosen: Vec<Early>,
    /// The registers of the core.
    pub(super) core: State,
    pub(super) kernel: Kernel,
    /// Found when they are first asked for.
    pub(super) pointers: Option<Rc<Pointers>>,
    pub(super) contents: Rc<Contents>,
    /// How long addresses are looked for.
    pub(super) until: Until,
    /// The last access that no address was found for.
    pub(super) stuck: Option<AccessNumber>,
    /// No address was found for it although none had been chosen for any other.
    pub(super) has_stuck: bool,
    /// What was refused since the last round of choices since it would have been known too late.
    pub(super) late: Vec<Early>,
    /// The addresses of the accesses that the step which was prepended last made or told, and how many bytes they have.
    pub(super) accessed: Vec<(u64, u32)>,
    /// How many assumptions propagation did not refute at once.
    pub(super) asked: usize,
    /// The access that could not be where the last assumption put it.
    pub(super) blamed: Option<AccessNumber>,
    /// The best of the choices of addresses that did not suit all.
    pub(super) farthest: Farthest,
    pub(super) witness: Witness,
    /// Is told what is refuted.
    pub(super) audit: Option<Rc<dyn Audit + 'i>>,
}

impl<'i> Hypothesis<'i> {
    /// The empty path: the core itself.
    #[must_use]
    pub fn new(terms: Rc<Terms>, image: &'i dyn Image, core: &State, kernel: Kernel) -> Hypothesis<'i> {
        let mut memory = History::default();
        let stored = image.stored_by_crash();
        let bytes = u32::try_from(stored.end - stored.start).unwrap_or(0);
        if bytes > 0 {
            // The crash is step 0. Nothing was read before it, so that no read can have missed this.
            let _never_stale = memory.note_write(&terms, stored.start, bytes, 0);
        }
        Hypothesis {
            snapshots: vec![match image.is_kernel() {
                true => Snapshot::of_kernel(&terms, core, image.inactive_gs()),
                false => Snapshot::of_state(&terms, core),
            }],
            core: *core,
            terms,
            facts: Facts::default(),
            image,
            memory,
            path: Vec::new(),
            marks: Vec::new(),
            deferred: Vec::new(),
            settled: Vec::new(),
            calls: Vec::new(),
            answers: Vec::new(),
            remapped: Vec::new(),
            place: Place { thread: image.crashed(), passed: 0, switched: false, standing: Standing::Behind },
            left: Vec::new(),
            delivered: Vec::new(),
            early: Vec::new(),
            chosen: Vec::new(),
            kernel,
            pointers: None,
            contents: Rc::default(),
            until: Until::default(),
            stuck: None,
            has_stuck: false,
            late: Vec::new(),
            accessed: Vec::new(),
            asked: 0,
            blamed: None,
            farthest: Farthest::default(),
            witness: Witness::default(),
            audit: None,
        }
    }

    /// The arena of terms.
    #[must_use]
    pub fn terms(&self) -> &Rc<Terms> {
        &self.terms
    }

    /// What is known.
    pub fn facts(&mut self) -> &mut Facts {
        &mut self.facts
    }

    /// Whether the last solution of the constraints, changed a little if need be, solves those that came since `place`, too.
    ///
    /// # Errors
    /// With the question for the solver, if not.
    pub fn fit_witness(&mut self, place: usize, effort: Effort) -> Result<(), Vec<Term>> {
        self.witness.fit(&mut self.facts, &self.terms, place, effort)
    }

    /// The last solution of the constraints.
    pub fn witness(&mut self) -> &mut Witness {
        &mut self.witness
    }

    /// The history of memory.
    #[must_use]
    pub fn memory(&self) -> &History {
        &self.memory
    }

    /// The core's memory.
    #[must_use]
    pub fn image(&self) -> &'i dyn Image {
        self.image
    }

    /// The address of the oldest instruction of the path (of the core's, while the path is empty).
    #[must_use]
    pub fn start(&self) -> u64 {
        self.path.last().map_or(self.core.regs.rip, |s| s.address)
    }

    /// The number of steps.
    #[must_use]
    pub fn len(&self) -> usize {
        self.path.len()
    }

    /// Whether the path is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.path.is_empty()
    }

    /// The steps, newest first: step n is at index n - 1.
    #[must_use]
    pub fn path(&self) -> &[PathStep] {
        &self.path
    }

    /// The state before step `step`.
    #[must_use]
    pub fn snapshot(&self, step: usize) -> &Snapshot {
        &self.snapshots[step]
    }

    /// The system calls of the path, newest first.
    #[must_use]
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// A general register before the oldest step, resolved.
    pub fn register(&mut self, r: Gpr) -> Term {
        let t = self.snapshots.last().expect("the core's snapshot").gpr[usize::from(r.0)];
        self.facts.resolve(&self.terms, t)
    }

    /// The memory before the oldest step.
    pub fn memory_value(&mut self, va: u64, bytes: u32) -> Option<Term> {
        let step = self.step();
        let value = self.memory.value(&self.terms, self.image, va, bytes, step)?;
        Some(self.facts.resolve(&self.terms, value))
    }

    pub(super) fn step(&self) -> Step {
        Step::try_from(self.path.len()).expect("paths are shorter than 2^32")
    }

    /// Prepends `prepared`, which goes on to the present start. `call` is the number of the system call, if it
    /// is one. On refusal nothing has changed.
    pub fn prepend(&mut self, prepared: &Prepared, call: Option<u64>) -> Result<(), Refusal> {
        let mark = self.mark();
        self.accessed.clear();
        let next = self.start();
        self.facts.begin_step(prepared.address());
        let left = matches!(prepared.effect, Effect::Switch).then_some(self.place.thread);
        let tried = match prepared.effect {
            _ if prepared.yields && self.unknown_behind(prepared).is_some() => {
                Err(Refusal::Barrier(self.unknown_behind(prepared).unwrap_or_default()))
            }
            Effect::Barrier(why) => Err(Refusal::Barrier(why)),
            Effect::Switch => self.prepend_switch(prepared),
            Effect::Signal => self.prepend_delivery(prepared),
            Effect::Syscall => match call {
                Some(number) => self.prepend_syscall(prepared, number, next),
                None => Err(Refusal::Barrier("a system call whose number is not known")),
            },
            Effect::Body(_) | Effect::Last(_) => self.prepend_instruction(prepared, next),
            Effect::Skip => self.prepend_skip(prepared, next),
            Effect::Asks => self.prepend_asking(prepared, next),
        };
        let tried = tried.and_then(|()| self.settle_deferred());
        match tried {
            Ok(()) => {
                let (address, skips, thread) = (prepared.address(), prepared.skips(), self.place.thread);
                let signal = matches!(prepared.effect, Effect::Signal);
                self.path.push(PathStep { address, next, skips, thread, left, signal });
                self.pass_exit(prepared);
                self.marks.push(mark);
                Ok(())
            }
            Err(refusal) => {
                self.tell_refusal(refusal);
                self.undo(mark);
                self.snapshots.truncate(self.path.len() + 1);
                Err(refusal)
            }
        }
    }

    /// Whether it is time to end.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.until.is_over()
    }

    /// Learns where the stack pointer was before the oldest step.
    ///
    /// # Errors
    /// When that contradicts the core; then the hypothesis is of no use but to be taken back.
    pub fn relate_stack(&mut self, relation: &Relation) -> Result<(), Refusal> {
        let terms = Rc::clone(&self.terms);
        let (stack, frame) = (self.register(Gpr::RSP), self.register(relation.frame));
        let plus = |t, by: i64| terms.build_bin(Bin::Add, t, terms.lit_term(64, by.cast_unsigned()));
        let mut place = plus(frame, relation.above);
        if let Some(aligned) = relation.aligned {
            let mask = terms.lit_term(64, aligned.multiple.wrapping_neg());
            place = plus(terms.build_bin(Bin::And, place, mask), aligned.offset);
        }
        let related = self.facts.equate(&terms, stack, place).map_err(Refusal::from);
        let related = related.and_then(|()| self.settle_deferred());
        related.inspect_err(|refusal| self.tell_refusal(*refusal))
    }

    /// Takes the oldest step back.
    pub fn pop(&mut self) {
        if let Some(mark) = self.marks.pop() {
            self.undo(mark);
            self.path.pop();
            self.snapshots.truncate(self.path.len() + 1);
        }
    }

    pub(super) fn mark(&self) -> Mark {
        Mark {
            terms: self.terms.mark(),
            facts: self.facts.mark(),
            memory: self.memory.mark(),
            deferred: self.deferred.len(),
            settled: self.settled.len(),
            calls: self.calls.len(),
            answers: self.answers.len(),
            remapped: self.remapped.len(),
            chosen: self.chosen.len(),
            left: self.left.len(),
            delivered: self.delivered.len(),
            place: self.place,
        }
    }

    pub(super) fn undo(&mut self, mark: Mark) {
        self.facts.undo(mark.facts);
        self.terms.forget(mark.terms);
        self.witness.forget_from(self.terms.variables());
        self.memory.undo(mark.memory);
        for n in self.settled.drain(mark.settled..) {
            self.deferred[n].done = false;
        }
        self.deferred.truncate(mark.deferred);
        self.calls.truncate(mark.calls);
        self.answers.truncate(mark.answers);
        self.remapped.truncate(mark.remapped);
        self.chosen.truncate(mark.chosen);
        self.left.truncate(mark.left);
        self.delivered.truncate(mark.delivered);
        self.place = mark.place;
    }

    /// Matches an access with the history of memory, or keeps it until its address is known.
    pub(super) fn access(&mut self, step: Step, number: u16, access: Access) -> Result<(), Refusal> {
        let address = self.facts.resolve(&self.terms, access.address);
        let known = self.terms.value(address);
        let known = match self.early.iter().find(|early| early.access == AccessNumber { step, number }) {
            Some(early) if known.is_none() => {
                self.facts.equate(&self.terms, address, self.terms.lit_term(64, early.address))?;
                Some(early.address)
            }
            _ => known,
        };
        match known {
            Some(va) => self.access_at(step, access, va),
            None => {
                self.deferred.push(Deferred {
                    step,
                    number: AccessNumber { step, number },
                    access,
                    done: false,
                });
                Ok(())
            }
        }
    }

    pub(super) fn access_at(&mut self, step: Step, access: Access, va: u64) -> Result<(), Refusal> {
        let terms = Rc::clone(&self.terms);
        self.memory.note_access(va, access.bytes);
        self.accessed.push((va, access.bytes));
        self.facts.rest_on(&terms, access.address, va);
        let Some(last) = va.checked_add(u64::from(access.bytes) - 1) else {
            return Err(self.facts.impossible("an access beyond the last address").into());
        };
        if !access.by_kernel {
            self.was_mapped(step, va)?;
            self.require_access(step, va)?;
        }
        if access.store {
            if !self.image.is_writable(va) || !self.image.is_writable(last) {
                return match access.by_kernel {
                    true => Ok(()),
                    false => Err(self.facts.impossible("a store to memory that is not writable").into()),
                };
            }
            let after = self.memory.value(&terms, self.image, va, access.bytes, step - 1);
            let after = after.ok_or(Refusal::Barrier("memory that the core does not hold"))?;
            self.facts.equate(&terms, access.value, after)?;
            self.memory.note_write(&terms, va, access.bytes, step).map_err(|_| STALE)?;
        } else {
            if !self.image.is_mapped(va) || !self.image.is_mapped(last) {
                return Err(self.facts.impossible("a load from memory that is not mapped").into());
            }
            let before = self.memory.value(&terms, self.image, va, access.bytes, step);
            let before = before.ok_or(Refusal::Barrier("memory that the core does not hold"))?;
            self.memory.note_read(va, access.bytes, step);
            self.facts.equate(&terms, access.value, before)?;
        }
        Ok(())
    }
}

/// A store at an address that became known late, and that an earlier answer did not reckon with.
pub const STALE: Refusal = Refusal::Barrier("a store whose address became known too late");
