//! The device as a driver sees it: buffers that are filled with bytes from outside.

use super::*;
use crate::devices::virtio::driver::{Driver, random};
use crate::saved::{Saved, Words};

fn driver() -> Driver<Rng> {
    Driver::new(Rng::default(), 1, 0)
}

fn serve(driver: &mut Driver<Rng>, now: u64) {
    driver.serve(|rng, memory| rng.serve(memory, now));
}

#[test]
fn a_buffer_waits_for_bytes_from_outside() {
    let mut driver = driver();
    assert_eq!((driver.device.read(8), driver.device.wanted()), (4, 0));
    driver.give(0, 64, true, 3);
    assert_eq!((driver.device.due(), driver.device.wanted()), (Some(3), 0), "it has not looked yet");
    serve(&mut driver, 3);
    assert_eq!((driver.device.wanted(), driver.used(0).0, driver.device.take_pulse()), (64, 0, false));
    driver.device.give(&[7; 100], 9);
    assert_eq!((driver.device.wanted(), driver.device.due()), (0, Some(9)));
    serve(&mut driver, 9);
    assert_eq!((driver.used(0), driver.device.read(0x60), driver.device.take_pulse()), ((1, 64), USED, true));
    let at = driver.buffer(0, 0);
    assert_eq!(driver.ram[at..at + 65], [&[7; 64][..], &[0]].concat());
}

#[test]
fn fewer_bytes_than_the_buffer_has_are_an_answer_and_none_are_not() {
    let mut driver = driver();
    driver.device.give(&[1; 8], 0);
    driver.give(0, 64, true, 0);
    driver.give(0, 32, true, 0);
    serve(&mut driver, 0);
    driver.device.give(&[], 0);
    assert_eq!((driver.device.wanted(), driver.device.due()), (64, None), "what nobody wanted is not kept");
    driver.device.give(&[1; 8], 0);
    serve(&mut driver, 0);
    assert_eq!((driver.used(0), driver.device.wanted()), ((1, 8), 32), "the next buffer waits");
    // One without room is given back, and asks for nothing.
    driver.device.give(&[1; 32], 0);
    driver.give(0, 64, false, 0);
    serve(&mut driver, 0);
    assert_eq!((driver.used(0), driver.device.wanted()), ((3, 0), 0));
}

#[test]
fn a_reset_forgets_the_buffer_that_waits() {
    let mut driver = driver();
    driver.give(0, 64, true, 0);
    serve(&mut driver, 0);
    driver.device.write(0x70, 0, 0);
    assert_eq!((driver.device.wanted(), driver.device.due()), (0, None));
    driver.device.give(&[1; 64], 0);
    assert_eq!(driver.device, Rng::default());
}

#[test]
fn its_state_is_saved_with_the_buffer_that_waits() {
    let mut driver = driver();
    driver.give(0, 64, true, 0);
    serve(&mut driver, 0);
    let mut words = Vec::new();
    driver.device.put(&mut words);
    let mut from = Words(&words);
    let copy = Rng::take(&mut from).expect("it was saved");
    assert_eq!((&copy, from.0.len()), (&driver.device, 0));
    driver.device = copy;
    driver.device.give(&[5; 64], 1);
    serve(&mut driver, 1);
    assert_eq!(driver.used(0), (1, 64));
}

/// Whatever the guest has in its queue, and while a buffer waits in its registers, the device does something with it.
#[test]
fn no_queue_ends_gretel() {
    let (mut random, mut answered) = (random(11), 0);
    for _ in 0..3000 {
        let mut driver = driver();
        driver.give(0, 64, true, 0);
        if random() % 2 == 0 {
            driver.spoil(1, &mut random);
        }
        serve(&mut driver, 0);
        driver.spoil(1, &mut random);
        let wanted = driver.device.wanted();
        assert!(wanted <= MOST);
        driver.device.give(&vec![1; wanted], 0);
        serve(&mut driver, 0);
        answered += u32::from(driver.used(0).0 == 1);
    }
    assert!(answered > 100, "{answered} buffers were filled");
}
