//! The decoded blocks by what they were decoded from.
//!
//! A block is keyed by its address and the frames that the address leads to ([`Origin`]), so that processes take turns
//! on one CPU and none of them loses its blocks. Example: two processes run different programs at 0x401000. The switch
//! to the second begins a new epoch; its first look-up of 0x401000 finds another frame behind the address, and so
//! another block; after the switch back the first block is found again.
//!
//! A small direct-mapped front, by address alone, answers most questions with two compares: the address, and the epoch
//! in which the place was last checked. In a new epoch a place is checked once, against its frames and their
//! generations. Behind the front a map holds every block, so that two hot blocks that share a place in the front cost
//! a look-up each time, not a decoding.
//!
//! A block also has a reserve: so often may it run before whoever compiles is asked for it ([`Cache::spend`]).

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::block::{Block, Ender, NoBlock, decode_block};
use crate::bus::Bus;
use crate::cpu::Cpu;
use crate::frames::Frames;
use crate::origin::Origin;
use crate::step::Step;

/// Places in the front; a power of two.
const PLACES: usize = 1 << 12;
/// Blocks at most, about a hundred megabytes.
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
    /// Its reserve, while it is here.
    reserve: u32,
}

impl<B: Bus> Clone for Place<B> {
    fn clone(&self) -> Place<B> {
        Place { steps: Arc::clone(&self.steps), ..*self }
    }
}

impl<B: Bus> Place<B> {
    /// No epoch is so late, and no index so high.
    fn empty() -> Place<B> {
        Place { start: 0, steps: Arc::new([]), epoch: u64::MAX, block: usize::MAX, reserve: 0 }
    }
}

/// Decoded blocks.
pub(crate) struct Cache<B: Bus> {
    front: Box<[Place<B>; PLACES]>,
    blocks: Vec<Block<B>>,
    by_origin: FxHashMap<Origin, usize>,
    /// Room for the steps of a block while it is decoded.
    steps: Vec<Step<B>>,
    /// Blocks at most.
    room: usize,
    /// How often a new block may run before it is hot.
    patience: u32,
    /// Where blocks begin that are hot sooner, and how often they may run.
    eager: FxHashSet<u64>,
    eager_patience: u32,
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
        Cache::with_room(MAX_BLOCKS)
    }

    fn with_room(room: usize) -> Cache<B> {
        let empty = Place::empty();
        let front = Box::new(std::array::from_fn(|_| empty.clone()));
        Cache {
            front,
            blocks: Vec::new(),
            by_origin: FxHashMap::default(),
            steps: Vec::new(),
            room,
            patience: u32::MAX,
            eager: FxHashSet::default(),
            eager_patience: 0,
        }
    }

    /// The address and the steps of a block.
    #[inline(always)]
    pub(crate) fn steps(&self, found: Found) -> (u64, &[Step<B>]) {
        let place = &self.front[found.0 % PLACES];
        (place.start, &place.steps)
    }

    /// How often blocks that are decoded from now on may run before they are hot.
    pub(crate) fn set_patience(&mut self, runs: u32) {
        self.patience = runs;
    }

    /// Blocks at these addresses may run less often.
    pub(crate) fn set_eager(&mut self, starts: FxHashSet<u64>, runs: u32) {
        (self.eager, self.eager_patience) = (starts, runs);
    }

    /// Takes a run out of the reserve of a block; false where that is spent.
    #[inline(always)]
    pub(crate) fn spend(&mut self, found: Found) -> bool {
        let place = &mut self.front[found.0 % PLACES];
        match place.reserve.checked_sub(1) {
            Some(left) => {
                place.reserve = left;
                true
            }
            None => false,
        }
    }

    /// Whether the block at `rip` has spent a good part of the reserve that blocks begin with.
    pub(crate) fn is_warm(&self, cpu: &mut Cpu<B>, rip: u64) -> bool {
        let place = &self.front[place(rip)];
        let left = if place.start == rip {
            place.reserve
        } else {
            let Ok(origin) = Origin::of(cpu, rip) else { return false };
            let Some(&n) = self.by_origin.get(&origin) else { return false };
            self.blocks[n].reserve
        };
        left <= self.patience - self.patience / 8
    }

    /// Takes so many runs more out of the reserve of the block at `rip`, if the front has it.
    pub(crate) fn hasten(&mut self, rip: u64, runs: u32) {
        let place = &mut self.front[place(rip)];
        if place.start == rip {
            place.reserve = place.reserve.saturating_sub(runs);
        }
    }

    /// Gives a block a reserve for so many runs.
    pub(crate) fn refill(&mut self, found: Found, runs: u32) {
        self.front[found.0 % PLACES].reserve = runs;
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
        if place.start == cpu.rip && place.epoch == cpu.frames.epoch() {
            return Ok(Found(n));
        }
        self.search(cpu)
    }

    #[cold]
    #[inline(never)]
    fn search(&mut self, cpu: &mut Cpu<B>) -> Result<Found, NoBlock> {
        let origin = Origin::of(cpu, cpu.rip).map_err(NoBlock::Trap)?;
        let n = place(origin.rip());
        let epoch = cpu.frames.epoch();
        if self.blocks.get(self.front[n].block).is_some_and(|block| block.is(&origin, &cpu.frames)) {
            self.front[n].epoch = epoch;
        } else {
            let Place { block, reserve, .. } = self.front[n];
            if let Some(block) = self.blocks.get_mut(block) {
                block.reserve = reserve;
            }
            let block = self.block(cpu, origin)?;
            let Block { ref steps, reserve, .. } = self.blocks[block];
            self.front[n] = Place { start: origin.rip(), steps: Arc::clone(steps), epoch, block, reserve };
        }
        Ok(Found(n))
    }

    /// The index of the block of `origin`, decoded now if it is new or has changed.
    fn block(&mut self, cpu: &mut Cpu<B>, origin: Origin) -> Result<usize, NoBlock> {
        match self.by_origin.get(&origin) {
            Some(&n) if self.blocks[n].is(&origin, &cpu.frames) => Ok(n),
            Some(&n) => {
                self.blocks[n] = self.decode(cpu, origin)?;
                Ok(n)
            }
            None => {
                let block = self.decode(cpu, origin)?;
                Ok(self.add(block, &cpu.frames))
            }
        }
    }

    fn decode(&mut self, cpu: &mut Cpu<B>, origin: Origin) -> Result<Block<B>, NoBlock> {
        let mut block = decode_block(cpu, origin, &mut self.steps)?;
        let is_eager = !self.eager.is_empty() && self.eager.contains(&block.origin.rip());
        block.reserve = if is_eager { self.eager_patience } else { self.patience };
        Ok(block)
    }

    fn add(&mut self, block: Block<B>, frames: &Frames) -> usize {
        if self.blocks.len() >= self.room {
            self.make_room(frames);
        }
        self.by_origin.insert(block.origin, self.blocks.len());
        self.blocks.push(block);
        self.blocks.len() - 1
    }

    /// Forgets the blocks of content that is gone; all of them if that does not free half of the room.
    fn make_room(&mut self, frames: &Frames) {
        self.blocks.retain(|block| block.is_current(frames));
        if self.blocks.len() > self.room / 2 {
            self.blocks.clear();
        }
        self.by_origin = self.blocks.iter().enumerate().map(|(n, block)| (block.origin, n)).collect();
        self.front.fill(Place::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::PAGE_SIZE;
    use crate::flat::{Flat, Protection};

    const CODE: u64 = 0x40_0000;
    /// A page with one block at each multiple of four bytes: XOR EAX, EAX; RET; NOP.
    fn page() -> Vec<u8> {
        [0x31, 0xc0, 0xc3, 0x90].repeat(1024)
    }

    /// Two frames of code, the first of them mapped.
    fn cpu() -> Cpu<Flat> {
        let mut memory = Flat::new();
        memory.map(CODE, &page(), Protection::CODE);
        memory.map(CODE + PAGE_SIZE, &page(), Protection::CODE);
        Cpu::new(memory)
    }

    /// Another process: its page of code is in this frame.
    fn switch(cpu: &mut Cpu<Flat>, frame: u64) {
        cpu.bus_mut().alias(CODE, frame, Protection::CODE);
        cpu.flush_tlb();
    }

    /// The steps of the block at `rip`.
    fn steps(cache: &mut Cache<Flat>, cpu: &mut Cpu<Flat>, rip: u64) -> Arc<[Step<Flat>]> {
        cpu.set_rip(rip);
        let Ok(found) = cache.find(cpu) else { panic!("no block at {rip:x}") };
        Arc::clone(&cache.front[found.0].steps)
    }

    #[test]
    fn blocks_outlive_the_process_that_had_them_decoded() {
        let (mut cache, mut cpu) = (Cache::new(), cpu());
        let first = steps(&mut cache, &mut cpu, CODE);
        switch(&mut cpu, PAGE_SIZE);
        let second = steps(&mut cache, &mut cpu, CODE);
        assert!(!Arc::ptr_eq(&first, &second), "another frame is another block");
        for _ in 0..3 {
            for (frame, block) in [(0, &first), (PAGE_SIZE, &second), (PAGE_SIZE, &second)] {
                switch(&mut cpu, frame);
                assert!(Arc::ptr_eq(&steps(&mut cache, &mut cpu, CODE), block));
            }
        }
        assert_eq!(cache.blocks.len(), 2);
    }

    #[test]
    fn a_write_drops_the_blocks_of_its_frame_alone() {
        let (mut cache, mut cpu) = (Cache::new(), cpu());
        let places = [CODE, CODE + 4, CODE + PAGE_SIZE, CODE + PAGE_SIZE + 4];
        let before = places.map(|rip| steps(&mut cache, &mut cpu, rip));
        cpu.written(PAGE_SIZE + 100, 1);
        let after = places.map(|rip| steps(&mut cache, &mut cpu, rip));
        let same: Vec<_> = before.iter().zip(&after).map(|(a, b)| Arc::ptr_eq(a, b)).collect();
        assert_eq!(same, [true, true, false, false]);
        assert_eq!(cache.blocks.len(), 4, "the new blocks are in the places of the old ones");
    }

    #[test]
    fn of_frames_that_may_have_changed_unseen_those_that_have_are_decoded_again() {
        let (mut cache, mut cpu) = (Cache::new(), cpu());
        let places = [CODE, CODE + PAGE_SIZE];
        let before = places.map(|rip| steps(&mut cache, &mut cpu, rip));
        for turn in 0..3 {
            let end = cpu.bus().ram().len();
            cpu.bus_mut().ram_mut()[end - 1] ^= 1;
            let ram = cpu.bus().ram().to_vec();
            cpu.compare_code(&ram);
            let after = places.map(|rip| steps(&mut cache, &mut cpu, rip));
            assert!(Arc::ptr_eq(&before[0], &after[0]));
            assert!(!Arc::ptr_eq(&before[1], &after[1]), "turn {turn}");
        }
        assert_eq!(cache.blocks.len(), 2);
    }

    #[test]
    fn a_full_cache_forgets_what_is_gone_first() {
        let (mut cache, mut cpu) = (Cache::with_room(16), cpu());
        let kept = steps(&mut cache, &mut cpu, CODE + PAGE_SIZE);
        for n in 0..15 {
            steps(&mut cache, &mut cpu, CODE + 4 * n);
        }
        cpu.written(0, 1);
        steps(&mut cache, &mut cpu, CODE + 400);
        assert_eq!(cache.blocks.len(), 2);
        assert!(Arc::ptr_eq(&kept, &steps(&mut cache, &mut cpu, CODE + PAGE_SIZE)));
        for n in 0..15 {
            steps(&mut cache, &mut cpu, CODE + 4 * n);
        }
        assert_eq!(cache.blocks.len(), 1, "all were in use, and all are forgotten");
        assert!(!Arc::ptr_eq(&kept, &steps(&mut cache, &mut cpu, CODE + PAGE_SIZE)));
    }
}
