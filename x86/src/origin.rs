//! Where instructions come from: their address, and the frames of RAM that it leads to.
//!
//! The key of a decoded block ([`crate::cache`]). Two processes that map one frame at one address have the block in
//! common; a process that maps another frame there has its own; and so does a second mapping of the frame elsewhere,
//! because a decoded instruction embeds its address.

use crate::bus::{Bus, PAGE_SIZE};
use crate::cpu::{Cpu, index};
use crate::decode::MAX_INSTRUCTION;
use crate::machine::{Exec, Trap};

/// No frame begins here.
const NO_FRAME: u64 = u64::MAX;

/// An address as the page tables of a moment resolve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    rip: u64,
    /// The frame of the first byte, and that of the next page, or [`NO_FRAME`] where no instruction at `rip` is long
    /// enough to reach that page, or where it may not be executed.
    frames: [u64; 2],
}

/// The instruction bytes at an address: the rest of its page, and as much of the next as one instruction needs.
pub(crate) struct Fetched {
    pub(crate) bytes: Vec<u8>,
    /// How many of `bytes` lie in the first page.
    pub(crate) first: usize,
    /// The trap that kept the second page out of `bytes`.
    pub(crate) beyond: Option<Trap>,
}

/// How many bytes there are from `rip` to the end of its page.
const fn rest_of_page(rip: u64) -> usize {
    index(PAGE_SIZE - rip % PAGE_SIZE)
}

/// The page behind that of `rip`, if an instruction at `rip` may reach it.
const fn next_page(rip: u64) -> Option<u64> {
    match rest_of_page(rip) < MAX_INSTRUCTION {
        true => Some((rip | (PAGE_SIZE - 1)).wrapping_add(1)),
        false => None,
    }
}

impl Origin {
    /// The origin of `rip`; the trap of a fetch where the page of `rip` may not be executed.
    pub(crate) fn of<B: Bus>(cpu: &mut Cpu<B>, rip: u64) -> Exec<Origin> {
        let at = cpu.locate_fetch(rip)?;
        let second = next_page(rip).and_then(|next| cpu.locate_fetch(next).ok());
        Ok(Origin { rip, frames: [at - at % PAGE_SIZE, second.unwrap_or(NO_FRAME)] })
    }

    pub(crate) const fn rip(&self) -> u64 {
        self.rip
    }

    /// The frames that a block comes from: twice the first unless its only instruction `crosses` into the next page.
    pub(crate) const fn frames(&self, crosses: bool) -> [u64; 2] {
        let [first, second] = self.frames;
        if crosses { [first, second] } else { [first, first] }
    }

    /// The bytes, for one instruction.
    pub(crate) fn fetch_one<B: Bus>(&self, cpu: &mut Cpu<B>) -> Fetched {
        self.fetch_most(cpu, MAX_INSTRUCTION)
    }

    /// The bytes, for so many instructions at most.
    pub(crate) fn fetch<B: Bus>(&self, cpu: &mut Cpu<B>, instructions: usize) -> Fetched {
        self.fetch_most(cpu, instructions * MAX_INSTRUCTION)
    }

    /// So many bytes of the first page at most.
    fn fetch_most<B: Bus>(&self, cpu: &mut Cpu<B>, most: usize) -> Fetched {
        let [at, second] = [self.frames[0] + self.rip % PAGE_SIZE, self.frames[1]].map(index);
        let first = rest_of_page(self.rip).min(most);
        let mut bytes = cpu.bus().ram()[at..at + first].to_vec();
        let mut beyond = None;
        if self.frames[1] != NO_FRAME {
            bytes.extend_from_slice(&cpu.bus().ram()[second..second + MAX_INSTRUCTION]);
        } else if let Some(next) = next_page(self.rip) {
            beyond = cpu.locate_fetch(next).err();
        }
        Fetched { bytes, first, beyond }
    }
}
