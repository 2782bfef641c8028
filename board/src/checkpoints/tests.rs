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

/// A checkpoint that cannot be written leaves the file as it was, and the next one has what it would have had.
#[test]
fn what_could_not_be_written_is_in_the_next_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoints");
    let (mut machine, mut writer) = (machine(), Writer::create(&path).unwrap());
    let mut at = |writer: &mut Writer, stop: u64| {
        assert_eq!(run(&mut machine, stop), Pause::There);
        machine.rest();
        (writer.add(&mut machine, 1), machine.digests_of_all())
    };
    let (added, first) = at(&mut writer, STOPS[0]);
    added.unwrap();
    let size = writer.size();
    // A file that is open for reading alone takes nothing.
    let writable = writer.swap_file(fs::File::open(&path).unwrap());
    assert!(at(&mut writer, STOPS[1]).0.is_err());
    writer.swap_file(writable);
    assert_eq!((writer.count(), writer.last(), writer.size()), (1, STOPS[0], size));
    assert_eq!(fs::metadata(&path).unwrap().len(), size);
    let (added, third) = at(&mut writer, STOPS[2]);
    added.unwrap();
    let shelf = Shelf::open(&path).unwrap();
    assert_eq!((shelf.len(), shelf.damage()), (2, None));
    for (n, digests) in [first, third].into_iter().enumerate() {
        assert_eq!(shelf.machine(n, None).unwrap().digests_of_all(), digests);
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
