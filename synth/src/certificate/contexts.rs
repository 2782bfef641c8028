//! The stacks of a run against the calling contexts of the crumbs.
//!
//! At each exit the stack is walked as the recorder walked it, and made a word as it made one. Where the words differ, the stack is
//! another one, and the run is not what happened. One thing is excepted: a word of memory on which the walk rests may be overwritten
//! later, before anything reads it. Then neither the core nor the path tells what it held, and its value in the suffix is any.

use super::forward::Forward;
use crate::evidence::contexts::word;
use crate::evidence::{Anchors, Contexts};
use iced_x86::{Instruction, Mnemonic};
use lbr::context::Site;
use std::cell::RefCell;
use vmm::stack::{MappedFile, Place, Space, Walker};
use x86::op::Gpr;
use x86::state::Regs;

/// A stack that was walked.
pub(super) struct Walked {
    /// Its word, or the address from which no call was found to go on.
    pub(super) word: Result<u64, u64>,
    /// The memory that the walk rests on, each word by its address.
    rests_on: Vec<(u64, u64)>,
}

/// Walks the stacks of a run.
pub(super) struct Stacks<'a> {
    contexts: &'a Contexts,
    walker: Walker,
    stack: Vec<Site>,
    /// What was taken from the stack: at which step, where, and what.
    popped: Vec<(usize, u64, u64)>,
}

impl<'a> Stacks<'a> {
    /// `None` if there are no contexts to compare with.
    pub(super) fn of(anchors: &'a Anchors) -> Option<Stacks<'a>> {
        let contexts = anchors.contexts()?;
        Some(Stacks { contexts, walker: contexts.walker()?, stack: Vec::new(), popped: Vec::new() })
    }

    /// Walks the stack of a thread that stands so.
    pub(super) fn walk(&mut self, run: &Forward<'_>, place: Place) -> Walked {
        let seen = Seen { run, contexts: self.contexts, read: RefCell::default() };
        let whole = self.walker.walk(place, &seen, &mut self.stack);
        let last = self.stack.last().map_or(place.rip, |site| site.address);
        let word = if whole { Ok(word(&self.stack)) } else { Err(last) };
        Walked { word, rests_on: seen.read.into_inner() }
    }

    /// Notes what an instruction is about to take from the stack.
    pub(super) fn note(&mut self, run: &Forward<'_>, step: usize, instruction: &Instruction, regs: &Regs) {
        let from = match instruction.mnemonic() {
            Mnemonic::Ret | Mnemonic::Pop => Gpr::RSP,
            Mnemonic::Leave => Gpr::RBP,
            _ => return,
        };
        let address = regs.gpr[usize::from(from.0)];
        self.popped.extend(word_at(run, address).map(|value| (step, address, value)));
    }

    /// Where a stack that was walked at `step` rests on memory that nothing tells; `run` stands at its end.
    pub(super) fn untold(&self, run: &Forward<'_>, step: usize, walked: &Walked) -> Option<u64> {
        let is_told = |&(address, value): &(u64, u64)| {
            let mut popped = self.popped.iter().filter(|(at, _, _)| *at > step);
            word_at(run, address) == Some(value)
                || popped.any(|(_, from, taken)| (*from, *taken) == (address, value))
        };
        walked.rests_on.iter().find(|it| !is_told(it)).map(|(address, _)| *address)
    }
}

fn word_at(run: &Forward<'_>, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    run.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
}

/// The memory of a run, which notes the words that are read.
struct Seen<'a> {
    run: &'a Forward<'a>,
    contexts: &'a Contexts,
    read: RefCell<Vec<(u64, u64)>>,
}

impl Space for Seen<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let word = word_at(self.run, address)?;
        self.read.borrow_mut().push((address, word));
        Some(word)
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.run.read(address, bytes)
    }

    fn file(&self, address: u64) -> Option<MappedFile<'_>> {
        self.contexts.file(address)
    }

    fn layout(&self) -> u64 {
        0
    }
}
