//! The decoded blocks by address.
//!
//! A small direct-mapped front answers most questions with one compare; behind it a map holds every block, so
//! that two hot blocks that share a place in the front cost a look-up each time, not a decoding.

use std::collections::HashMap;
use std::sync::Arc;

use crate::block::{Block, Ender, NoBlock, decode_block};
use crate::bus::{Bus, PAGE_SIZE};
use crate::cpu::Cpu;
use crate::machine::Exec;
use crate::step::Step;

/// Places in the front; a power of two.
const PLACES: usize = 1 << 12;
/// Blocks at most, about a hundred megabytes; then all are forgotten and decoding begins anew.
const MAX_BLOCKS: usize = 1 << 18;

/// A block that may be run as it is.
struct Place<B: Bus> {
    /// Its address.
    start: u64,
    /// Its steps, so that nothing else need be read to run it.
    steps: Arc<[Step<B>]>,
    /// The epoch in which it was last seen to be what its address leads to.
    epoch: u64,
    /// Its index.
    block: usize,
}

impl<B: Bus> Clone for Place<B> {
    fn clone(&self) -> Place<B> {
        Place { steps: Arc::clone(&self.steps), ..*self }
    }
}

impl<B: Bus> Place<B> {
    /// No epoch is so late.
    fn empty() -> Place<B> {
        Place { start: 0, steps: Arc::new([]), epoch: u64::MAX, block: 0 }
    }
}

/// Decoded blocks.
pub(crate) struct Cache<B: Bus> {
    front: Box<[Place<B>; PLACES]>,
    blocks: Vec<Block<B>>,
    by_address: HashMap<u64, usize>,
}

/// Where the front has a block that may be run now.
#[derive(Clone, Copy)]
pub(crate) struct Found(usize);

/// Where the front keeps the block at `rip`: neighbouring addresses in neighbouring places.
#[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
#[inline(always)]
const fn place(rip: u64) -> usize {
    (rip ^ rip >> 12) as usize % PLACES
}

impl<B: Bus> Cache<B> {
    pub(crate) fn new() -> Cache<B> {
        let empty = Place::empty();
        let front = Box::new(std::array::from_fn(|_| empty.clone()));
        Cache { front, blocks: Vec::new(), by_address: HashMap::new() }
    }

    /// The address and the steps of a block.
    #[inline(always)]
    pub(crate) fn steps(&self, found: Found) -> (u64, &[Step<B>]) {
        let place = &self.front[found.0 % PLACES];
        (place.start, &place.steps)
    }

    /// How a block ends.
    #[inline(always)]
    pub(crate) fn last(&self, found: Found) -> Option<&Ender<Cpu<B>>> {
        self.blocks.get(self.front[found.0 % PLACES].block)?.last.as_ref()
    }

    /// The block at rip, decoded now if need be.
    #[inline(always)]
    pub(crate) fn find(&mut self, cpu: &mut Cpu<B>) -> Result<Found, NoBlock> {
        let n = place(cpu.rip);
        let place = &self.front[n];
        if place.start == cpu.rip && place.epoch == cpu.code.epoch() {
            return Ok(Found(n));
        }
        self.search(cpu)
    }

    #[cold]
    #[inline(never)]
    fn search(&mut self, cpu: &mut Cpu<B>) -> Result<Found, NoBlock> {
        let start = cpu.rip;
        let block = match self.by_address.get(&start) {
            Some(&n) if is_current(cpu, start, &self.blocks[n]).map_err(NoBlock::Trap)? => n,
            Some(&n) => {
                self.blocks[n] = decode_block(cpu, start)?;
                n
            }
            None => {
                let block = decode_block(cpu, start)?;
                self.add(start, block)
            }
        };
        let n = place(start);
        let steps = Arc::clone(&self.blocks[block].steps);
        self.front[n] = Place { start, steps, epoch: cpu.code.epoch(), block };
        Ok(Found(n))
    }

    fn add(&mut self, start: u64, block: Block<B>) -> usize {
        if self.blocks.len() == MAX_BLOCKS {
            self.blocks.clear();
            self.by_address.clear();
            self.front.fill(Place::empty());
        }
        self.blocks.push(block);
        self.by_address.insert(start, self.blocks.len() - 1);
        self.blocks.len() - 1
    }
}

/// Whether `block` is still what the page tables of now and the bytes of now make of `start`.
fn is_current<B: Bus>(cpu: &mut Cpu<B>, start: u64, block: &Block<B>) -> Exec<bool> {
    let first = cpu.locate_fetch(start)?;
    let second = if block.stamps[0] == block.stamps[1] {
        first
    } else {
        cpu.locate_fetch((start | (PAGE_SIZE - 1)).wrapping_add(1))?
    };
    let frames = [first, second].map(|at| at - at % PAGE_SIZE);
    Ok(block.stamps.iter().zip(frames).all(|(s, frame)| s.frame == frame && cpu.code.is_current(*s)))
}
