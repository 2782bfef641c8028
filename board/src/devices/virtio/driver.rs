//! A driver for the tests of devices: queues of four descriptors in a memory of its own, and a buffer for each descriptor.
#![expect(clippy::cast_possible_truncation, reason = "random numbers are cut to what is wanted of them")]

use super::{Device, Dma, NOTIFY};
use std::collections::BTreeSet;

/// The descriptors of a queue.
const SIZE: u16 = 4;
/// Where the tables of a queue are, from where its first is: what is available, what is used, the buffers.
const AVAILABLE: u32 = 0x1000;
const USED: u32 = 0x2000;
const BUFFERS: u32 = 0x3000;
/// The bytes of a buffer.
const BUFFER: u32 = 0x400;
const WRITABLE: u64 = 2;

const fn queue_at(queue: u32) -> u32 {
    0x1000 + 0x4000 * queue
}

pub(in crate::devices) struct Driver<D> {
    pub(in crate::devices) device: D,
    pub(in crate::devices) ram: Vec<u8>,
    /// How many buffers each queue was given.
    given: [u16; 3],
}

impl<D: Device> Driver<D> {
    /// A driver that has set the device up, and takes these of its low features.
    pub(in crate::devices) fn new(mut device: D, queues: u32, features: u32) -> Driver<D> {
        let mut write = |at, value| device.write(at, value, 0);
        write(0x20, features);
        write(0x24, 1);
        write(0x20, 1);
        for queue in 0..queues {
            let at = queue_at(queue);
            let registers =
                [(0x30, queue), (0x38, 4), (0x80, at), (0x90, at + AVAILABLE), (0xa0, at + USED), (0x44, 1)];
            registers.into_iter().for_each(|(at, value)| write(at, value));
        }
        write(0x70, 15);
        Driver { device, ram: vec![0; 0xd000], given: [0; 3] }
    }

    /// Where the buffer is that a queue was given last, or as the n-th before that.
    pub(in crate::devices) fn buffer(&self, queue: usize, before: u16) -> usize {
        let descriptor = u32::from((self.given[queue] - 1 - before) % SIZE);
        (queue_at(queue as u32) + BUFFERS + BUFFER * descriptor) as usize
    }

    /// Gives a queue a buffer of so many bytes, and tells of it.
    pub(in crate::devices) fn give(&mut self, queue: usize, length: u32, is_writable: bool, now: u64) {
        let number = self.given[queue] % SIZE;
        self.given[queue] += 1;
        let base = queue_at(queue as u32) as usize;
        let address = self.buffer(queue, 0) as u64;
        let flags = if is_writable { WRITABLE << 32 } else { 0 };
        let descriptor = [address.to_le_bytes(), (u64::from(length) | flags).to_le_bytes()].concat();
        self.put(base + 16 * usize::from(number), &descriptor);
        let available = base + AVAILABLE as usize;
        self.put(available + 4 + 2 * usize::from(number), &number.to_le_bytes());
        let given = self.given[queue];
        self.put(available + 2, &given.to_le_bytes());
        self.device.write(NOTIFY, queue as u32, now);
    }

    /// Gives a queue a buffer with this in it.
    pub(in crate::devices) fn send(&mut self, queue: usize, bytes: &[u8], now: u64) {
        self.give(queue, bytes.len() as u32, false, now);
        let at = self.buffer(queue, 0);
        self.put(at, bytes);
    }

    pub(in crate::devices) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.ram[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Has the device reach memory.
    pub(in crate::devices) fn serve<T>(&mut self, serve: impl FnOnce(&mut D, &mut Dma<'_>) -> T) -> T {
        serve(&mut self.device, &mut Dma { ram: &mut self.ram, written: &mut BTreeSet::new() })
    }

    /// How many buffers of a queue were used, and how many bytes the last has.
    pub(in crate::devices) fn used(&self, queue: usize) -> (u16, u32) {
        let ring = (queue_at(queue as u32) + USED) as usize;
        let index = u16::from_le_bytes([self.ram[ring + 2], self.ram[ring + 3]]);
        let last = ring + 8 + 8 * usize::from(index.wrapping_sub(1) % SIZE);
        (index, u32::from_le_bytes(std::array::from_fn(|n| self.ram[last + n])))
    }

    /// Spoils what a hostile guest may: descriptors, rings, and registers of queues.
    pub(in crate::devices) fn spoil(&mut self, queues: u32, random: &mut impl FnMut() -> u64) {
        for _ in 0..1 + random() % 4 {
            let base = queue_at(random() as u32 % queues) as usize;
            let at = base + [0, AVAILABLE, USED][random() as usize % 3] as usize + random() as usize % 48;
            self.ram[at] = random() as u8;
        }
        match random() % 8 {
            // A length of nearly 4 GiB, an address outside of memory, a chain that goes round.
            0 => self.put(queue_at(random() as u32 % queues) as usize + 8, &[0xff; 4]),
            1 => self.put(queue_at(random() as u32 % queues) as usize, &[0xff; 8]),
            2 => self.put(queue_at(random() as u32 % queues) as usize + 12, &[1, 0, 0, 0]),
            3 => {
                self.device.write(0x30, random() as u32 % 4, 0);
                let register = [0x38, 0x44, 0x80, 0x84, 0x90, 0x94, 0xa0, 0xa4][random() as usize % 8];
                self.device.write(register, random() as u32 >> (random() % 32), 0);
            }
            _ => {}
        }
    }
}

/// Random numbers that are the same each time.
pub(in crate::devices) fn random(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        seed ^ seed >> 29
    }
}
