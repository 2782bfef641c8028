use super::*;
use crate::{Machine, Pause, Setup};
use std::fs;

const IMAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../guest-images/build/bare-kernel");

/// A machine that is busy for some ten million instructions.
fn machine() -> Machine {
    let kernel = fs::read(IMAGE).unwrap_or_else(|error| panic!("{IMAGE}: {error}: make guests"));
    Machine::boot(&Setup { kernel, command_line: "spin".to_owned(), memory: 16 << 20, ..Setup::default() })
        .unwrap()
}

fn run(machine: &mut Machine, until: u64) -> Pause {
    loop {
        match machine.run(until) {
            Pause::Idle(Some(due)) => machine.wait_until(due),
            pause => return pause,
        }
    }
}

const STOPS: [u64; 3] = [2_000, 1_000_000, 5_000_000];

/// A file with checkpoints at [`STOPS`], and the digests of all there and at the end.
fn written(path: &std::path::Path) -> Vec<crate::machine::Digests> {
    let (mut machine, mut writer) = (machine(), Writer::create(path).unwrap());
    let mut digests = Vec::new();
    for (records, stop) in (1..).zip(STOPS) {
        assert_eq!(run(&mut machine, stop), Pause::There);
        machine.rest();
        writer.add(&mut machine, records).unwrap();
        digests.push(machine.digests_of_all());
    }
    assert!(matches!(run(&mut machine, u64::MAX >> 2), Pause::Ended(_)));
    digests.push(machine.digests_of_all());
    digests
}

#[test]
fn a_machine_goes_on_from_each_checkpoint_as_the_first_one_did() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoints");
    let digests = written(&path);
    let shelf = Shelf::open(&path).unwrap();
    assert_eq!((shelf.len(), shelf.damage()), (3, None));
    for n in 0..3 {
        assert_eq!(shelf.about(n).unwrap().1, n as u64 + 1);
        let mut machine = shelf.machine(n, None).unwrap();
        assert_eq!((machine.moment().retired, machine.digests_of_all()), (STOPS[n], digests[n]));
        run(&mut machine, u64::MAX >> 2);
        assert_eq!(machine.digests_of_all(), digests[3]);
    }
}

#[test]
fn a_file_that_goes_on_from_a_checkpoint_has_it_and_what_was_before() {
    let dir = tempfile::tempdir().unwrap();
    let [path, other] = ["checkpoints", "other"].map(|name| dir.path().join(name));
    let digests = written(&path);
    let shelf = Shelf::open(&path).unwrap();
    let mut writer = Writer::go_on(&other, &shelf, 1).unwrap();
    assert_eq!((writer.count(), writer.last()), (2, STOPS[1]));
    let mut machine = shelf.machine(1, None).unwrap();
    run(&mut machine, STOPS[2]);
    machine.rest();
    writer.add(&mut machine, 0).unwrap();
    let other = Shelf::open(&other).unwrap();
    assert_eq!(other.len(), 3);
    for (n, digests) in digests.iter().take(3).enumerate() {
        assert_eq!(other.machine(n, None).unwrap().digests_of_all(), *digests);
    }
}

#[test]
fn damage_is_told_and_what_is_before_it_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoints");
    written(&path);
    let whole = fs::read(&path).unwrap();
    let usable = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let shelf = Shelf::open(&path).ok()?;
        Some((0..3).filter(|n| shelf.machine(*n, None).is_ok()).collect::<Vec<usize>>())
    };
    assert_eq!(usable(&whole), Some(vec![0, 1, 2]));
    let step = whole.len() / 150 + 1;
    for at in (0..whole.len()).step_by(step) {
        let cut = usable(&whole[..at]).unwrap_or_default();
        assert!(cut.len() < 3 && cut.iter().copied().eq(0..cut.len()), "cut at {at}: {cut:?}");
        let mut flipped = whole.clone();
        flipped[at] ^= 0x40;
        let left = usable(&flipped).unwrap_or_default();
        assert!(left.len() < 3, "a flipped bit at {at} was not seen");
    }
}

#[test]
fn heads_are_read_as_they_are_written() {
    let head = Head {
        retired: 5,
        time: 6,
        records: 7,
        memory: LEAST_MEMORY,
        state: vec![1, u64::MAX],
        frames: [(0, 4), (1, 5), (2, 7), (900, 8)].into(),
        blocks: [(1 << 40, 0)].into(),
    };
    let bytes = head.encode();
    assert_eq!(Head::decode(&bytes, 9), Some(head.clone()));
    assert_eq!(Head::decode(&bytes, 8), None, "there are fewer pages");
    for cut in 0..bytes.len() {
        assert_eq!(Head::decode(&bytes[..cut], 9), None);
    }
    let outside = Head { frames: [(LEAST_MEMORY / 4096, 0)].into(), ..head };
    assert_eq!(Head::decode(&outside.encode(), 9), None);
}
