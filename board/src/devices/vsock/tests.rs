//! The device as a driver sees it: packets in two queues, and an event in the third.

use super::*;
use crate::devices::virtio::driver::{Driver, random};
use crate::devices::virtio::pipe::{LATENCY, RECEIVE, SEND, WAITING};
use crate::devices::virtio::{CHANGED, USED};
use crate::saved::{Saved, Words};

fn driver() -> Driver<Vsock> {
    Driver::new(Vsock::default(), 3, 0)
}

fn serve(driver: &mut Driver<Vsock>, now: u64) -> Vec<Vec<u8>> {
    driver.serve(|vsock, memory| vsock.serve(memory, now))
}

fn data(bytes: &[u8]) -> Vec<u8> {
    let header = Header {
        from: 2,
        to: GUEST,
        from_port: 52,
        to_port: 1025,
        op: op::DATA,
        kind: STREAM,
        ..Header::default()
    };
    header.packet(bytes)
}

#[test]
fn a_header_is_read_as_it_is_written() {
    let header = Header {
        from: 1 << 40,
        to: 2,
        from_port: 3,
        to_port: 4,
        length: 3,
        kind: 5,
        op: 6,
        flags: 7,
        room: 8,
        taken: u32::MAX,
    };
    let packet = header.packet(b"abc");
    assert_eq!((Header::of(&packet), packet.len()), (Some(header), HEADER + 3));
    assert_eq!(Header::of(&packet[..HEADER - 1]), None);
}

#[test]
fn a_packet_waits_for_a_buffer_and_is_split_where_that_is_small() {
    let mut driver = driver();
    assert_eq!([8, 0x100, 0x104].map(|at| driver.device.read(at)), [19, 3, 0]);
    driver.device.receive(&data(b"0123456789"), 5);
    serve(&mut driver, 5);
    assert_eq!((driver.used(RECEIVE).0, driver.device.room()), (0, WAITING - 1));
    for (length, stored) in [(43, 0), (44, 0), (48, 48), (1000, 50)] {
        driver.give(RECEIVE, length, true, 6);
        serve(&mut driver, 6);
        assert_eq!(driver.used(RECEIVE).1, stored, "a buffer of {length} bytes");
    }
    let part = |before: u16, length: usize| {
        let at = driver.buffer(RECEIVE, before);
        let packet = &driver.ram[at..at + HEADER + length];
        (Header::of(packet).unwrap().length, packet[HEADER..].to_vec())
    };
    assert_eq!((part(1, 4), part(0, 6)), ((4, b"0123".to_vec()), (6, b"456789".to_vec())));
    assert_eq!((driver.device.room(), driver.device.read(0x60)), (WAITING, USED));
}

#[test]
fn what_is_no_packet_is_lost() {
    let mut driver = driver();
    let mut wrong = data(b"text");
    wrong.pop();
    for packet in [&wrong[..], &data(b"")[..HEADER - 1], &data(&vec![0; MOST_DATA + 1])] {
        driver.device.receive(packet, 0);
        assert_eq!(driver.device.room(), WAITING);
    }
    driver.send(SEND, &[1; HEADER - 1], 0);
    driver.send(SEND, &data(b"text"), 0);
    assert_eq!(serve(&mut driver, LATENCY - 1), Vec::<Vec<u8>>::new());
    assert_eq!((serve(&mut driver, LATENCY), driver.used(SEND).0), (vec![data(b"text")], 2));
}

#[test]
fn the_guest_is_told_that_all_connections_are_gone() {
    let mut driver = driver();
    driver.device.receive(&data(b"text"), 0);
    driver.device.sever(1);
    serve(&mut driver, 1);
    assert_eq!((driver.device.room(), driver.used(EVENT).0), (WAITING, 0), "what waited is forgotten");
    driver.give(EVENT, 4, true, 2);
    let at = driver.buffer(EVENT, 0);
    driver.put(at, &[9; 4]);
    serve(&mut driver, 2);
    assert_eq!((driver.used(EVENT), &driver.ram[at..at + 4]), ((1, 4), &[0; 4][..]));
    driver.give(EVENT, 4, true, 3);
    serve(&mut driver, 3);
    assert_eq!(driver.used(EVENT).0, 1, "once");
    let mut down = Vsock::default();
    down.sever(0);
    assert_eq!(down, Vsock::default());
}

#[test]
fn a_queue_that_is_none_has_it_wait_for_a_reset() {
    let mut driver = driver();
    driver.device.receive(&data(b"text"), 0);
    driver.give(RECEIVE, 100, true, 0);
    // Indirect, which was not offered.
    driver.put(0x1000 + 12, &[4]);
    serve(&mut driver, 0);
    assert_eq!((driver.device.read(0x70) & 64, driver.device.read(0x60)), (64, CHANGED));
    assert!(!driver.device.is_up() && driver.device.take_pulse());
}

#[test]
fn its_state_is_saved_with_packets_that_wait() {
    let mut driver = driver();
    driver.device.sever(3);
    driver.device.receive(&data(b"text"), 3);
    let mut words = Vec::new();
    driver.device.put(&mut words);
    let mut from = Words(&words);
    let copy = Vsock::take(&mut from).expect("it was saved");
    assert_eq!((&copy, from.0.len()), (&driver.device, 0));
    driver.device = copy;
    driver.give(RECEIVE, 1000, true, 3);
    serve(&mut driver, 3);
    assert_eq!(driver.used(RECEIVE), (1, 48));
}

/// Whatever the guest has in its queues, the device does something with it.
#[test]
fn no_queue_ends_gretel() {
    let (mut random, mut sent) = (random(7), 0);
    for _ in 0..3000 {
        let mut driver = driver();
        driver.send(SEND, &data(b"text"), 0);
        driver.give(RECEIVE, 50, true, 0);
        driver.give(EVENT, 4, true, 0);
        driver.spoil(3, &mut random);
        driver.device.sever(0);
        driver.device.receive(&data(&[1; 200]), 0);
        sent += serve(&mut driver, LATENCY).len();
        serve(&mut driver, u64::MAX);
    }
    assert!(sent > 100, "{sent} packets were sent");
}
