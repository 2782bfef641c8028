//! What the calling contexts of crumbs say: which calls were on the stack at an exit.
//!
//! At an exit that the path has gone back through, the stack is walked in what the path knows of memory. If the walk reaches the
//! outermost function, its word is computed, and has to be the crumb's. If it ends before, at memory that is not known, what it found
//! has to be how the decoded stack begins. And the calls of the decoded stack are those that the path runs under from there on, also
//! where the return addresses were overwritten since.
//!
//! Example: a path goes back through `write`, whose return address a later call has overwritten. Its crumb's context decodes to `log`
//! called by `main`: of the five callers of `write` only that in `log` is tried, and of those of `log` that in `main`.
//!
//! An exit that is yet to come tells where calls through pointers led: if the return address that the path stands at is on the stack
//! there, the next call inwards is in the function that was called. That is likely, and no proof: the call may have been another one.

use super::candidates::Candidate;
use super::context::Context;
use super::rank::Rank;
use super::trail::Window;
use super::{Frame, Search};
use crate::evidence::contexts::{Decoded, word};
use crate::evidence::{Anchors, Contexts};
use crate::past::hypothesis::Hypothesis;
use crate::program::cfg::Cfg;
use lbr::context::Site;
use std::cell::RefCell;
use std::rc::Rc;
use vmm::stack::{MappedFile, Place, Space, Walker};
use x86::op::{BranchKind, Gpr};

/// What a walk and a decoded word take, in units of fuel.
const FUEL: u64 = 500;

/// Walks stacks, and decodes words.
pub(super) struct Stacks<'p> {
    contexts: &'p Contexts,
    walker: Walker,
    decoded: Decoded<'p>,
}

impl<'p> Stacks<'p> {
    /// `None` where there are no contexts.
    pub(super) fn of(anchors: &'p Anchors, cfg: &'p Cfg<'p>) -> Option<Stacks<'p>> {
        let contexts = anchors.contexts()?;
        Some(Stacks { contexts, walker: contexts.walker()?, decoded: Decoded::new(contexts, cfg) })
    }
}

/// The calls on the stack at an exit, by their return addresses.
type Calls = Rc<[u64]>;

impl Frame {
    /// The exit that the candidate which was taken has gone back through.
    fn exit(&self) -> Option<usize> {
        let taken = self.candidates.get(self.next.checked_sub(1)?)?;
        (taken.window.passed > self.window.passed).then_some(self.window.passed)
    }
}

impl Search<'_> {
    /// The calls that were on the stack at an exit, if its context is known and decoded.
    fn calls_at(&mut self, exit: usize) -> Option<Calls> {
        let anchor = *self.hypothesis.image().anchors().get(exit)?;
        let calls = self.stacks.as_mut()?.decoded.calls(anchor.context?, anchor.rip);
        self.hypothesis.terms().fuel().burn(FUEL);
        calls
    }

    /// Whether the stack at the exit that the path has just gone back through, if it has, can be the one that was there.
    pub(super) fn fits_context(&mut self) -> bool {
        let newest = self.frames.len().checked_sub(2).and_then(|frame| self.frames[frame].exit());
        let Some(exit) = newest.filter(|_| self.stacks.is_some()) else { return true };
        let Some(anchor) = self.hypothesis.image().anchors().get(exit).copied() else { return true };
        let Some(expected) = anchor.context else { return true };
        let (is_whole, stack) = self.walk(anchor.rip, anchor.rsp, anchor.call().is_some());
        let fits = match is_whole {
            true => word(&stack) == expected,
            false => self.calls_at(exit).is_none_or(|calls| {
                stack.len() <= calls.len()
                    && stack.iter().zip(calls.iter()).all(|(site, call)| site.address == *call)
            }),
        };
        if !fits {
            self.statistics.refuted += 1;
            self.statistics.refuted_by_contexts += 1;
            // A walk may rest on what was assumed, and without unwind tables it is no proof.
            self.statistics.assumed = true;
        }
        fits
    }

    /// Walks the stack before the newest step as far as memory is known; whether that is to the outermost function.
    fn walk(&mut self, rip: u64, rsp: u64, behind: bool) -> (bool, Vec<Site>) {
        let Search { stacks, hypothesis, .. } = self;
        let Some(Stacks { contexts, walker, .. }) = stacks else { return (false, Vec::new()) };
        let rbp = hypothesis.register(Gpr::RBP);
        let rbp = hypothesis.terms().value(rbp);
        hypothesis.terms().fuel().burn(FUEL);
        let mut stack = Vec::new();
        let known = Known { hypothesis: RefCell::new(hypothesis), contexts };
        let is_whole = walker.walk(Place { rip, rsp, rbp, behind }, &known, &mut stack);
        (is_whole, stack)
    }

    /// The calls that the path runs under once it has gone back through an exit, the innermost first.
    pub(super) fn context_at_exit(&mut self) -> Option<Rc<Context>> {
        let exit = self.frames.last()?.exit()?;
        let calls = self.calls_at(exit)?;
        self.statistics.assumed = true;
        let mut outer = None;
        for back in calls.iter().rev() {
            // A call that the map does not have ends what is known outwards of it.
            outer = self.cfg.call_before(*back).map(|call| Rc::new(Context { call, outer }));
        }
        outer
    }

    /// Of the returns that may have led to `back`, puts those first of the function that is on the stack at the next exit; whether there
    /// are any.
    pub(super) fn prefer_on_stack(&mut self, found: &mut [Candidate], back: u64, window: Window) -> bool {
        let Some(anchor) = self.hypothesis.image().anchors().get(window.passed).copied() else {
            return false;
        };
        let Some(calls) = self.calls_at(window.passed) else { return false };
        // Of recursive calls the outermost is the one that returns here last.
        let Some(at) = calls.iter().rposition(|call| *call == back) else { return false };
        let inner = at.checked_sub(1).map_or(anchor.rip, |inner| calls[inner]);
        let called = self.program.function_at(inner.wrapping_sub(1)).map(|function| function.start);
        let is_it = |candidate: &&mut Candidate| {
            candidate.rank > Rank::Recorded
                && candidate.prepared.branch == Some(BranchKind::Return)
                && called.is_some()
                && self.program.function_at(candidate.prepared.address()).map(|it| it.start) == called
        };
        let mut preferred = found.iter_mut().filter(is_it).peekable();
        let are_any = preferred.peek().is_some();
        preferred.for_each(|candidate| candidate.rank = Rank::OnStack);
        are_any
    }
}

/// Memory as a path knows it.
struct Known<'h, 'p> {
    hypothesis: RefCell<&'h mut Hypothesis<'p>>,
    contexts: &'h Contexts,
}

impl Space for Known<'_, '_> {
    fn word(&self, address: u64) -> Option<u64> {
        let mut hypothesis = self.hypothesis.borrow_mut();
        let word = hypothesis.memory_value(address, 8)?;
        hypothesis.terms().value(word)
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let hypothesis = self.hypothesis.borrow();
        let image = hypothesis.image();
        let mut done = 0;
        while done < bytes.len() {
            let part = image.bytes(address.wrapping_add(done as u64));
            let len = part.len().min(bytes.len() - done);
            if len == 0 {
                return false;
            }
            bytes[done..done + len].copy_from_slice(&part[..len]);
            done += len;
        }
        true
    }

    fn file(&self, address: u64) -> Option<MappedFile<'_>> {
        self.contexts.file(address)
    }

    fn layout(&self) -> u64 {
        0
    }
}
