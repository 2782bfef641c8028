//! The card as a driver sees it: buffers in two queues, and frames.
#![expect(clippy::cast_possible_truncation, reason = "random numbers are cut to what is wanted of them")]

use super::*;
use crate::devices::virtio::pipe::{LATENCY, RECEIVE, SEND, WAITING};
use crate::devices::virtio::{CHANGED, NOTIFY, USED};
use crate::saved::{Saved, Words};
use std::collections::BTreeSet;

/// Where the driver has its two queues (descriptors, available, used, a page apart), and a buffer of each.
const QUEUES: [u32; 2] = [0x1000, 0x5000];
const AVAILABLE: u32 = 0x1000;
const GIVEN_BACK: u32 = 0x2000;
const BUFFERS: [usize; 2] = [0x9000, 0xb000];

struct Driver {
    net: Net,
    ram: Vec<u8>,
    given: [u16; 2],
}

impl Driver {
    fn new() -> Driver {
        let mut driver = Driver { net: Net::new([2, 0, 0, 0, 0, 9]), ram: vec![0; 0x1_0000], given: [0; 2] };
        let mut write = |at, value| driver.net.write(at, value, 0);
        write(0x24, 1);
        write(0x20, 1);
        for (number, at) in (0..).zip(QUEUES) {
            let registers = [
                (0x30, number),
                (0x38, 4),
                (0x80, at),
                (0x90, at + AVAILABLE),
                (0xa0, at + GIVEN_BACK),
                (0x44, 1),
            ];
            registers.into_iter().for_each(|(at, value)| write(at, value));
        }
        write(0x70, 15);
        driver
    }

    /// Gives a buffer of so many bytes to a queue, and tells of it.
    fn give(&mut self, queue: usize, length: u32, now: u64) {
        let descriptor = QUEUES[queue] as usize;
        let flags = if queue == RECEIVE { 2_u64 } else { 0 };
        let bytes =
            [(BUFFERS[queue] as u64).to_le_bytes(), (u64::from(length) | flags << 32).to_le_bytes()].concat();
        self.ram[descriptor..descriptor + 16].copy_from_slice(&bytes);
        self.given[queue] += 1;
        let index = (QUEUES[queue] + AVAILABLE) as usize + 2;
        self.ram[index..index + 2].copy_from_slice(&self.given[queue].to_le_bytes());
        self.net.write(NOTIFY, u32::try_from(queue).unwrap(), now);
    }

    fn serve(&mut self, now: u64) -> Vec<Vec<u8>> {
        self.net.serve(&mut Dma { ram: &mut self.ram, written: &mut BTreeSet::new() }, now)
    }

    /// How many buffers of a queue were used, and how many bytes the first of its ring has.
    fn used(&self, queue: usize) -> (u8, u8) {
        let ring = (QUEUES[queue] + GIVEN_BACK) as usize;
        (self.ram[ring + 2], self.ram[ring + 8])
    }
}

#[test]
fn a_frame_waits_for_room_and_is_behind_a_header() {
    let mut driver = Driver::new();
    assert_eq!([0x100, 0x104].map(|at| driver.net.read(at)), [2, 0x0900]);
    assert_eq!((driver.net.read(8), driver.net.read(0x10), driver.net.room()), (1, 1 << 5, WAITING));
    driver.net.receive(&[7; 60], 5);
    assert_eq!(driver.net.due(), Some(5));
    driver.serve(5);
    assert_eq!((driver.used(RECEIVE).0, driver.net.take_pulse()), (0, false), "there is no buffer yet");
    driver.give(RECEIVE, 1526, 6);
    driver.serve(6);
    assert_eq!((driver.used(RECEIVE), driver.net.read(0x60), driver.net.take_pulse()), ((1, 72), USED, true));
    let expected = [&[0; 10][..], &[1, 0], &[7; 60], &[0]].concat();
    assert_eq!(driver.ram[BUFFERS[0]..BUFFERS[0] + 73], expected);
}

#[test]
fn what_is_sent_is_the_frame_without_its_header() {
    let mut driver = Driver::new();
    driver.ram[BUFFERS[1] + HEADER..][..20].fill(3);
    driver.give(SEND, 32, 100);
    assert!(driver.serve(99 + LATENCY).is_empty());
    assert_eq!(driver.serve(100 + LATENCY), [[3; 20]]);
    assert_eq!((driver.used(SEND).0, driver.net.take_pulse()), (1, true));
}

#[test]
fn what_is_no_frame_is_lost() {
    let mut driver = Driver::new();
    for length in [0, 12, 25, 70_000] {
        driver.give(SEND, length, 0);
        assert!(driver.serve(LATENCY).is_empty(), "{length} bytes");
    }
    driver.net.receive(&[1; 13], 0);
    driver.net.receive(&[1; 70_000], 0);
    assert_eq!(driver.net.room(), WAITING);
    // One that the buffer is too small for comes back as nothing.
    driver.net.receive(&[1; 60], 0);
    driver.give(RECEIVE, 71, 0);
    driver.serve(0);
    assert_eq!((driver.used(RECEIVE), driver.net.room()), ((1, 0), WAITING));
    (0..100).for_each(|_| driver.net.receive(&[1; 60], 0));
    assert_eq!(driver.net.room(), 0);
    driver.net.write(0x70, 0, 0);
    assert_eq!((driver.net.room(), driver.net.due(), driver.net.is_up()), (0, None, false));
}

#[test]
fn a_queue_that_is_none_has_the_card_wait_for_a_reset() {
    for queue in [RECEIVE, SEND] {
        let mut driver = Driver::new();
        driver.net.receive(&[1; 60], 0);
        driver.given[queue] = 200;
        driver.give(queue, 100, 0);
        driver.serve(LATENCY);
        assert_eq!((driver.net.read(0x70) & 64, driver.net.read(0x60)), (64, CHANGED), "queue {queue}");
        assert!(!driver.net.is_up() && driver.net.take_pulse());
    }
}

#[test]
fn its_state_is_saved_with_frames_that_wait() {
    let mut driver = Driver::new();
    driver.net.receive(&[5; 60], 3);
    let mut words = Vec::new();
    driver.net.put(&mut words);
    let mut from = Words(&words);
    let copy = Net::take(&mut from).expect("it was saved");
    assert_eq!((&copy, from.0.len()), (&driver.net, 0));
    driver.net = copy;
    driver.give(RECEIVE, 1526, 3);
    driver.serve(3);
    assert_eq!(driver.used(RECEIVE), (1, 72));
}

/// Whatever the guest has in its queues, the card does something with it.
#[test]
fn no_queue_ends_gretel() {
    let mut seed = 5_u64;
    let mut random = || {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        seed ^ seed >> 29
    };
    let mut sent = 0;
    for _ in 0..3000 {
        let mut driver = Driver::new();
        driver.give(SEND, 100, 0);
        driver.give(RECEIVE, 1526, 0);
        for _ in 0..1 + random() % 4 {
            let at = [0x1000, 0x2000, 0x5000, 0x6000][random() as usize % 4] + random() as usize % 24;
            driver.ram[at] = random() as u8;
        }
        driver.net.receive(&[1; 60], 0);
        sent += driver.serve(LATENCY).len();
        driver.net.take_pulse();
    }
    assert!(sent > 100, "{sent} frames were sent");
}
