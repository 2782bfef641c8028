//! The device as a driver sees it: requests in a queue, and what comes back.

use super::*;
use std::collections::BTreeSet;
use std::io::Write;

/// Where the driver has its queue, a request's header, its data and its status.
const DESCRIPTORS: u32 = 0x1000;
const AVAILABLE: u32 = 0x2000;
const RING: u32 = 0x3000;
const HEADER: usize = 0x4000;
const DATA: usize = 0x5000;
const STATUS: usize = 0x7000;

/// What may be written: one block.
const ROOM: u64 = 4096;

struct Driver {
    disk: Disk,
    ram: Vec<u8>,
    asked: u16,
}

impl Driver {
    /// A driver of a disk whose sectors are full of their numbers.
    fn new(sectors: u8, read_only: bool) -> Driver {
        let mut file = tempfile::tempfile().unwrap();
        (0..sectors).for_each(|n| file.write_all(&[n; 512]).unwrap());
        let disk = Disk::new(Image::new(file, read_only, ROOM).unwrap());
        let mut driver = Driver { disk, ram: vec![0; 0x8000], asked: 0 };
        let registers = [
            (0x24, 1),
            (0x20, 1),
            (0x38, 4),
            (0x80, DESCRIPTORS),
            (0x90, AVAILABLE),
            (0xa0, RING),
            (0x44, 1),
            (0x70, 15),
        ];
        registers.into_iter().for_each(|(at, value)| driver.disk.write(at, value, 0));
        driver
    }

    fn serve(&mut self, now: u64) -> BTreeSet<u64> {
        let mut written = BTreeSet::new();
        self.disk.serve(&mut Dma { ram: &mut self.ram, written: &mut written }, now).unwrap();
        written
    }

    /// Asks for something, with data of this length, and waits: the status.
    fn ask(&mut self, kind: u32, sector: u64, length: u32) -> u8 {
        let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        self.ram[HEADER..HEADER + 16].copy_from_slice(&header);
        self.ram[STATUS] = 0xff;
        let data_flags = if kind == request::OUT { 1 } else { 3 };
        let parts = [(HEADER, 16, 1_u64, 1), (DATA, length, data_flags, 2), (STATUS, 1, 2, 0)];
        for (n, (at, length, flags, next)) in parts.into_iter().enumerate() {
            let rest = u64::from(length) | flags << 32 | next << 48;
            let bytes = [(at as u64).to_le_bytes(), rest.to_le_bytes()].concat();
            self.ram[DESCRIPTORS as usize + 16 * n..][..16].copy_from_slice(&bytes);
        }
        self.asked += 1;
        self.ram[AVAILABLE as usize + 2..][..2].copy_from_slice(&self.asked.to_le_bytes());
        self.disk.write(virtio::NOTIFY, 0, 1000);
        assert_eq!(self.disk.due(), Some(1000 + LATENCY));
        self.serve(1000 + LATENCY);
        self.ram[STATUS]
    }
}

#[test]
fn sectors_are_read_and_written_and_the_line_pulses() {
    let mut driver = Driver::new(8, false);
    assert_eq!(driver.ask(request::IN, 2, 1024), 0);
    assert_eq!((driver.ram[DATA], driver.ram[DATA + 512], driver.ram[DATA + 1024]), (2, 3, 0));
    assert!(driver.disk.take_pulse() && !driver.disk.take_pulse());
    assert_eq!(driver.disk.read(0x60), virtio::USED);
    driver.ram[DATA..DATA + 512].fill(9);
    assert_eq!(driver.ask(request::OUT, 7, 512), 0);
    assert_eq!(driver.disk.take_touched(), [0]);
    assert_eq!(driver.ask(request::FLUSH, 0, 0), 0);
    driver.ram[DATA..DATA + 512].fill(0);
    assert_eq!((driver.ask(request::IN, 7, 512), driver.ram[DATA]), (0, 9));
    assert_eq!(driver.ask(request::IDENTITY, 0, 20), 0);
    assert!(driver.ram[DATA..].starts_with(b"gretel\0"));
    let done = |kind, sector, bytes| Request { kind: Some(kind), sector, bytes, status: Status::Done };
    let all = [done(0, 2, 1024), done(1, 7, 512), done(4, 0, 0), done(0, 7, 512), done(8, 0, 20)];
    assert_eq!(driver.disk.take_done(), all);
}

#[test]
fn what_cannot_be_done_is_told() {
    let mut driver = Driver::new(8, false);
    assert_eq!(driver.ask(request::IN, 8, 512), Status::Failed as u8);
    assert_eq!(driver.ask(request::IN, u64::MAX, 512), Status::Failed as u8);
    assert_eq!(driver.ask(request::OUT, 0, 100), Status::Failed as u8, "half a sector");
    assert_eq!(driver.ask(77, 0, 512), Status::Unsupported as u8);
    let mut driver = Driver::new(8, true);
    assert_eq!(driver.ask(request::OUT, 0, 512), Status::Failed as u8);
    assert!(driver.disk.layers().written.is_empty());
}

#[test]
fn a_write_without_room_fails_and_changes_nothing() {
    let mut driver = Driver::new(16, false);
    assert_eq!(driver.ask(request::OUT, 0, 512), 0);
    assert_eq!(
        driver.ask(request::OUT, 7, 1024),
        Status::Failed as u8,
        "one of two sectors is in the second block"
    );
    assert_eq!(driver.ask(request::OUT, 7, 512), 0, "a block that was written is there");
    driver.ask(request::IN, 8, 512);
    assert_eq!((driver.ram[DATA], driver.disk.layers().written.len()), (8, 1));
}

#[test]
fn nothing_is_done_before_its_time_or_behind_a_reset() {
    let mut driver = Driver::new(8, false);
    driver.disk.write(virtio::NOTIFY, 0, 0);
    assert!(driver.serve(LATENCY - 1).is_empty() && driver.disk.due().is_some());
    driver.disk.write(0x70, 0, 0);
    driver.disk.write(virtio::NOTIFY, 0, 0);
    assert_eq!(driver.disk.due(), None);
}

#[test]
fn a_queue_that_is_none_has_the_device_wait_for_a_reset() {
    let mut driver = Driver::new(8, false);
    driver.ram[AVAILABLE as usize + 2] = 200;
    driver.disk.write(virtio::NOTIFY, 0, 0);
    driver.serve(LATENCY);
    assert_eq!((driver.disk.read(0x70) & 64, driver.disk.read(0x60)), (64, virtio::CHANGED));
    driver.disk.write(virtio::NOTIFY, 0, 0);
    assert_eq!(driver.disk.due(), None);
}

#[test]
fn its_state_is_saved() {
    let mut driver = Driver::new(8, false);
    driver.ask(request::IN, 0, 512);
    let mut words = Vec::new();
    driver.disk.put(&mut words);
    let layers = driver.disk.layers().clone();
    let mut from = Words(&words);
    driver.disk = Disk::take(&mut from, layers).expect("it was saved");
    assert!(from.0.is_empty());
    assert_eq!((driver.ask(request::IN, 5, 512), driver.ram[DATA]), (0, 5), "the queue goes on");
}
