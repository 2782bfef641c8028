//! The device as a driver sees it: what is printed, what is typed, and the size of the terminal.

use super::*;
use crate::devices::virtio::driver::{Driver, random};
use crate::saved::{Saved, Words};

fn driver() -> Driver<Console> {
    Driver::new(Console::default(), 2, 1)
}

fn serve(driver: &mut Driver<Console>, now: u64) {
    driver.serve(|console, memory| console.serve(memory, now));
}

#[test]
fn what_is_printed_is_taken_at_once() {
    let mut driver = driver();
    assert_eq!([8, 0x10].map(|at| driver.device.read(at)), [3, 1]);
    driver.send(SEND, b"Kernel panic - not syncing: why\r\n", 5);
    assert_eq!(driver.device.due(), Some(5));
    serve(&mut driver, 5);
    assert_eq!((driver.used(SEND).0, driver.device.take_pulse()), (1, true));
    assert_eq!(driver.device.screen().panic(), Some("why"));
    assert!(driver.device.screen_mut().take_printed().starts_with(b"Kernel panic"));
}

#[test]
fn what_is_typed_waits_for_buffers() {
    let mut driver = driver();
    assert_eq!(Console::default().room(), 0, "there is no driver");
    assert_eq!(driver.device.room(), WAITING);
    driver.device.type_bytes(b"some text", 1);
    serve(&mut driver, 1);
    assert_eq!((driver.used(RECEIVE).0, driver.device.room()), (0, WAITING - 9));
    driver.give(RECEIVE, 4, true, 2);
    serve(&mut driver, 2);
    assert_eq!((driver.used(RECEIVE), driver.device.take_pulse()), ((1, 4), true));
    driver.give(RECEIVE, 100, true, 3);
    serve(&mut driver, 3);
    assert_eq!((driver.used(RECEIVE), driver.device.room()), ((2, 5), WAITING));
    let (first, second) = (driver.buffer(RECEIVE, 1), driver.buffer(RECEIVE, 0));
    assert_eq!([&driver.ram[first..first + 4], &driver.ram[second..second + 5]].concat(), b"some text");
    driver.device.type_bytes(&[b'x'; 1000], 4);
    assert_eq!(driver.device.room(), 0);
    driver.device.write(0x70, 0, 0);
    assert_eq!((driver.device.room(), driver.device.due()), (0, None));
}

#[test]
fn its_size_is_in_its_configuration_and_a_change_interrupts() {
    let mut driver = driver();
    assert_eq!(driver.device.read(0x100), 0);
    driver.device.resize(Size { columns: 132, rows: 50 });
    assert_eq!((driver.device.read(0x100), driver.device.take_pulse()), (132 | 50 << 16, true));
    assert_eq!(driver.device.read(0x60), CHANGED);
    let mut quiet = Console::default();
    quiet.resize(Size { columns: 80, rows: 25 });
    assert!(!quiet.take_pulse(), "without a driver nobody is interrupted");
}

#[test]
fn much_that_is_printed_takes_its_time() {
    let mut driver = driver();
    for _ in 0..4 {
        driver.give(SEND, 0xd000 - 0x9000, false, 10);
        // As long as all buffers, and what is behind them.
        let last = 0x5000 + 16 * ((driver.buffer(SEND, 0) - 0x8000) / 0x400);
        driver.put(last, &0x9000_u64.to_le_bytes());
    }
    serve(&mut driver, 10);
    assert_eq!((driver.used(SEND).0, driver.device.due()), (1, Some(10 + 0x4000)));
    serve(&mut driver, 10 + 0x4000);
    assert_eq!(driver.used(SEND).0, 2);
}

#[test]
fn its_state_is_saved_with_what_waits() {
    let mut driver = driver();
    driver.device.type_bytes(b"abc", 1);
    driver.device.resize(Size { columns: 80, rows: 25 });
    let mut words = Vec::new();
    driver.device.put(&mut words);
    let mut from = Words(&words);
    let copy = Console::take(&mut from).expect("it was saved");
    assert_eq!((&copy, from.0.len()), (&driver.device, 0));
    driver.device = copy;
    driver.give(RECEIVE, 100, true, 3);
    serve(&mut driver, 3);
    assert_eq!(driver.used(RECEIVE), (1, 3));
}

/// Whatever the guest has in its queues, the console does something with it.
#[test]
fn no_queue_ends_gretel() {
    let (mut random, mut shown) = (random(3), 0);
    for _ in 0..3000 {
        let mut driver = driver();
        driver.send(SEND, b"text", 0);
        driver.give(RECEIVE, 64, true, 0);
        driver.spoil(2, &mut random);
        driver.device.type_bytes(b"typed", 0);
        serve(&mut driver, 0);
        serve(&mut driver, u64::MAX);
        shown += usize::from(driver.device.screen_mut().take_printed() == b"text");
    }
    assert!(shown > 100, "{shown} were printed");
}
