//! A split virtqueue (virtio 1.2, 2.7): three tables in the guest's memory, which a driver and a device take turns in.
//!
//! The guest owns these tables, so every number in them is checked. What is no queue is [`Broken`], and its device wants to be reset.
//! Example: the driver puts descriptors 4 → 5 → 6 at 0x1000, writes 4 to the available ring, and its index is 1 more. [`Queue::pop`]
//! gives the chain; when the device has done it, [`Queue::push`] writes 4 and how many bytes it has stored to the used ring.

use super::dma::Dma;
use super::parts::Part;
use crate::saved::saved;

/// Descriptors at most.
pub(in crate::devices) const MOST: u16 = 256;
const NEXT: u16 = 1;
const WRITABLE: u16 = 2;
const INDIRECT: u16 = 4;

/// What is wrong with a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::devices) struct Broken(pub(in crate::devices) &'static str);

/// A queue as the driver has described it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::devices) struct Queue {
    pub(in crate::devices) size: u16,
    pub(in crate::devices) is_ready: bool,
    /// Physical addresses of the descriptors, of what is available, and of what is used.
    pub(in crate::devices) descriptors: u64,
    pub(in crate::devices) available: u64,
    pub(in crate::devices) used: u64,
    /// How many chains were taken, and given back, modulo 2^16.
    taken: u16,
    given: u16,
}

saved!(struct Queue { size, is_ready, descriptors, available, used, taken, given });

/// What the driver wants to have done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::devices) struct Chain {
    head: u16,
    /// What the device reads.
    pub(in crate::devices) readable: Vec<Part>,
    /// What it stores to; behind all that it reads.
    pub(in crate::devices) writable: Vec<Part>,
}

saved!(struct Chain { head, readable, writable });

impl Queue {
    /// The next chain that is available.
    pub(in crate::devices) fn pop(&mut self, memory: &Dma<'_>) -> Result<Option<Chain>, Broken> {
        if !self.is_ready || self.size == 0 {
            return Ok(None);
        }
        let outside = Broken("what is available is outside of memory");
        let index = memory.half(self.available.wrapping_add(2)).ok_or(outside)?;
        if index == self.taken {
            return Ok(None);
        }
        if index.wrapping_sub(self.taken) > self.size {
            return Err(Broken("more is available than there are descriptors"));
        }
        let slot = u64::from(self.taken % self.size);
        let head = memory.half(self.available.wrapping_add(4 + 2 * slot)).ok_or(outside)?;
        self.taken = self.taken.wrapping_add(1);
        self.chain(memory, head).map(Some)
    }

    fn chain(&self, memory: &Dma<'_>, head: u16) -> Result<Chain, Broken> {
        let mut chain = Chain { head, ..Chain::default() };
        let mut next = head;
        for _ in 0..self.size {
            if next >= self.size {
                return Err(Broken("a descriptor has a number that there is none of"));
            }
            let at = self.descriptors.wrapping_add(16 * u64::from(next));
            let bytes: [u8; 16] = memory.bytes(at).ok_or(Broken("descriptors are outside of memory"))?;
            let [address, rest] = [0, 8].map(|n| u64::from_le_bytes(std::array::from_fn(|k| bytes[n + k])));
            let (length, flags) = ((rest & 0xffff_ffff) as u32, (rest >> 32 & 0xffff) as u16);
            if flags & INDIRECT != 0 {
                return Err(Broken("an indirect descriptor, which was not offered"));
            }
            let part = Part { at: address, length };
            match flags & WRITABLE != 0 {
                true => chain.writable.push(part),
                false if chain.writable.is_empty() => chain.readable.push(part),
                false => return Err(Broken("the device is to read behind what it is to write")),
            }
            if flags & NEXT == 0 {
                return Ok(chain);
            }
            next = (rest >> 48) as u16;
        }
        Err(Broken("a chain without an end"))
    }

    /// Gives a chain back, in which so many bytes were stored.
    pub(in crate::devices) fn push(
        &mut self,
        memory: &mut Dma<'_>,
        chain: &Chain,
        stored: u32,
    ) -> Result<(), Broken> {
        let outside = Broken("what is used is outside of memory");
        // A chain may be kept for a while, in which the driver writes to the registers of its queue.
        let slot =
            self.given.checked_rem(self.size).map(u64::from).ok_or(Broken("it has no size any more"))?;
        let entry = u64::from(chain.head) | u64::from(stored) << 32;
        memory.put(self.used.wrapping_add(4 + 8 * slot), &entry.to_le_bytes()).ok_or(outside)?;
        self.given = self.given.wrapping_add(1);
        memory.put(self.used.wrapping_add(2), &self.given.to_le_bytes()).ok_or(outside)
    }

    /// Whether the driver wants to be interrupted for what is used.
    pub(in crate::devices) fn wants_interrupt(&self, memory: &Dma<'_>) -> bool {
        const NO_INTERRUPT: u16 = 1;
        memory.half(self.available).is_some_and(|flags| flags & NO_INTERRUPT == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const QUEUE: Queue = Queue {
        size: 4,
        is_ready: true,
        descriptors: 0x100,
        available: 0x200,
        used: 0x300,
        taken: 0,
        given: 0,
    };

    /// Memory with these descriptors (address, length, flags, next), of which the first is available.
    fn memory(descriptors: &[(u64, u32, u16, u16)]) -> Vec<u8> {
        let mut ram = vec![0; 0x1000];
        for (n, (at, length, flags, next)) in descriptors.iter().enumerate() {
            let rest = u64::from(*length) | u64::from(*flags) << 32 | u64::from(*next) << 48;
            let bytes = [at.to_le_bytes(), rest.to_le_bytes()].concat();
            ram[0x100 + 16 * n..0x110 + 16 * n].copy_from_slice(&bytes);
        }
        ram[0x202] = 1;
        ram
    }

    fn pop(ram: &mut [u8], queue: &mut Queue) -> Result<Option<Chain>, Broken> {
        queue.pop(&Dma { ram, written: &mut BTreeSet::new() })
    }

    #[test]
    fn a_chain_is_taken_once_and_given_back() {
        let mut ram = memory(&[(0x800, 16, NEXT, 2), (0, 0, 0, 0), (0x900, 8, WRITABLE, 0)]);
        let mut queue = QUEUE;
        let chain = pop(&mut ram, &mut queue).unwrap().unwrap();
        assert_eq!(chain.readable, [Part { at: 0x800, length: 16 }]);
        assert_eq!(chain.writable, [Part { at: 0x900, length: 8 }]);
        assert_eq!(pop(&mut ram, &mut queue), Ok(None));
        let mut written = BTreeSet::new();
        let mut memory = Dma { ram: &mut ram, written: &mut written };
        queue.push(&mut memory, &chain, 8).unwrap();
        assert!(queue.wants_interrupt(&memory));
        assert_eq!((&ram[0x302..0x30c], written), ([1, 0, 0, 0, 0, 0, 8, 0, 0, 0].as_slice(), [0].into()));
    }

    #[test]
    fn what_is_no_queue_is_told() {
        let why = |ram: &mut [u8], mut queue: Queue| pop(ram, &mut queue).unwrap_err().0;
        let loops = &mut memory(&[(0, 0, NEXT, 1), (0, 0, NEXT, 0)]);
        assert_eq!(why(loops, QUEUE), "a chain without an end");
        assert!(why(&mut memory(&[(0, 0, NEXT, 4)]), QUEUE).contains("a number that there is none of"));
        assert!(why(&mut memory(&[(0, 0, INDIRECT, 0)]), QUEUE).contains("indirect"));
        assert!(why(&mut memory(&[(0, 0, WRITABLE | NEXT, 1)]), QUEUE).contains("read behind"));
        assert!(why(&mut memory(&[]), Queue { available: 0x1_0000, ..QUEUE }).contains("outside"));
        assert!(why(&mut memory(&[]), Queue { descriptors: 0x1000, ..QUEUE }).contains("outside"));
        let mut ram = memory(&[]);
        ram[0x202] = 5;
        assert!(why(&mut ram, QUEUE).contains("more is available"));
    }
}
