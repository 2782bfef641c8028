//! A certified suffix to walk about in: its state before each of its instructions, in any order.
//!
//! Going back is going forward from the start, as the path is short and its instructions run in microseconds. Of a suffix with switches
//! of threads the registers are those of the thread that has the processor.
//!
//! Example: a suffix of 40 instructions. `seek(40)` is the crash; `seek(39)` runs 39 instructions from the start, and `accesses` says
//! what the last one is about to load and store.

use super::CertificateError;
use super::forward::{Forward, Outcome};
use crate::report::uses::{Used, Uses};
use crate::suffix::{Suffix, SuffixInput};
use iced_x86::InstructionInfoFactory;
use std::ops::Range;
use vmm::elfcore::Core;
use x86::state::{Regs, State};

/// A suffix at one of its instructions.
pub struct Walk<'a> {
    core: &'a Core,
    suffix: &'a Suffix,
    forward: Forward<'a>,
    at: usize,
    /// A repeated string instruction at the end of the path was interrupted by the crash.
    crashed: bool,
    factory: InstructionInfoFactory,
}

/// Memory that an instruction loads or stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its addresses.
    pub range: Range<u64>,
    /// It is stored to; else it is loaded.
    pub writes: bool,
}

impl<'a> Walk<'a> {
    /// At the start.
    ///
    /// # Errors
    /// When the engine cannot be had, or the suffix contradicts the core.
    pub fn new(core: &'a Core, suffix: &'a Suffix) -> Result<Walk<'a>, CertificateError> {
        let (forward, factory) = (Forward::new(core, suffix)?, InstructionInfoFactory::new());
        Ok(Walk { core, suffix, forward, at: 0, crashed: false, factory })
    }

    /// How many entries of the path lie before here; all at the crash. A repeated string instruction is one for each iteration, and
    /// is walked over at once.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Whether it stands at the crash.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.crashed || self.at >= self.suffix.len()
    }

    /// Runs one instruction; false at the crash.
    ///
    /// # Errors
    /// When the engine fails, or the suffix was not certified and leaves its path.
    pub fn step(&mut self) -> Result<bool, CertificateError> {
        let Some(ahead) = self.forward.ahead().filter(|_| !self.crashed) else { return Ok(false) };
        match self.forward.run(&ahead)? {
            Outcome::Stopped(_) => self.crashed = true,
            Outcome::Retired | Outcome::Answered(_) | Outcome::Waits(_) => {}
        }
        self.at = ahead.index + ahead.span;
        Ok(true)
    }

    /// Goes to the last place where it can stand with at most so many entries of the path before it.
    ///
    /// # Errors
    /// As [`Walk::step`].
    pub fn seek(&mut self, goal: usize) -> Result<(), CertificateError> {
        if goal < self.at {
            self.forward = Forward::new(self.core, self.suffix)?;
            (self.at, self.crashed) = (0, false);
        }
        while self.forward.ahead().is_some_and(|ahead| ahead.index + ahead.span <= goal) && self.step()? {}
        Ok(())
    }

    /// What the instruction that is next loads and stores; what the kernel stores in a system call is among it.
    ///
    /// # Errors
    /// When the engine does not give its state.
    pub fn accesses(&mut self) -> Result<Vec<Access>, CertificateError> {
        let Some(ahead) = self.forward.ahead().filter(|_| !self.crashed) else { return Ok(Vec::new()) };
        let state = self.forward.stage().state()?;
        let uses = Uses::of(&mut self.factory, &ahead.instruction, &state, ahead.iterations);
        let of = |used: &Used, writes| match *used {
            Used::Memory { address, len } => {
                Some(Access { range: address..address.saturating_add(len as u64), writes })
            }
            Used::Register(_) => None,
        };
        let stores = uses.writes.iter().filter_map(|used| of(used, true));
        let loads = uses.reads.iter().filter_map(|used| of(used, false));
        let input = self.suffix.inputs.iter().filter(|input| input.step == ahead.index);
        let kernel = input.flat_map(SuffixInput::stores).map(|(address, bytes)| Access {
            range: address..address.saturating_add(bytes.len() as u64),
            writes: true,
        });
        Ok(stores.chain(loads).chain(kernel).collect())
    }

    /// The general registers.
    #[must_use]
    pub fn regs(&self) -> &Regs {
        self.forward.regs()
    }

    /// All registers.
    ///
    /// # Errors
    /// When the engine does not give them.
    pub fn state(&mut self) -> Result<State, CertificateError> {
        self.forward.stage().state()
    }

    /// Reads memory; false, with nothing promised about `bytes`, if any is neither in the core nor in the suffix.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.forward.read(address, bytes)
    }
}
