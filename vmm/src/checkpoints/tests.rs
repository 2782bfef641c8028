use super::index::Index;
use super::store::Store;
use super::{About, CheckpointError};
use crate::position::Position;
use crate::process::stored::Image;
use crate::ram::{PAGE, Phys, Ram};
use std::fs;
use std::io;
use std::sync::Arc;

const IDENTITY: u64 = 7;

/// Memory whose pages differ and do not compress.
fn ram() -> Ram {
    let mut ram = Ram::new(64 * PAGE).unwrap();
    let mut x = 0x2545_f491_4f6c_dd1d_u64;
    for word in ram.bytes_mut().chunks_exact_mut(8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        word.copy_from_slice(&x.to_le_bytes());
    }
    ram
}

fn image(frames: impl Iterator<Item = u64>) -> Image {
    let frames: Vec<Phys> = frames.map(|n| n * PAGE).collect();
    Image { head: vec![1, 2, 3], blobs: vec![Arc::new(vec![9_u8; 5000])], frames }
}

fn about(event: u64) -> io::Result<About> {
    let position = Position { event, retired: 0 };
    Ok(About { position, counters: None, spent: 0, comparisons: 0, offset: 12, sequence: 1, record: 0 })
}

#[test]
fn a_page_that_is_stored_is_not_stored_twice() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoints");
    let (mut ram, mut store) = (ram(), Store::create(&path, IDENTITY, u64::MAX).unwrap());
    let mut grown = |ram: &Ram, image: &Image, event| {
        let before = store.size();
        store.add(image, &ram.view(), || about(event)).unwrap();
        store.size() - before
    };
    let first = grown(&ram, &image(1..17), 1);
    assert!((16 * PAGE..18 * PAGE).contains(&first), "{first}");
    // The same frames; other frames with the same bytes; both, in another order.
    assert!(grown(&ram, &image(1..17), 2) < 500);
    (1..17).for_each(|n| ram.copy_frame(n * PAGE, (n + 20) * PAGE));
    assert!(grown(&ram, &image(21..37), 3) < 500);
    assert!(grown(&ram, &image((1..37).rev().filter(|n| !(17..21).contains(n))), 4) < 500);
    // One of them changes, in a frame of its own.
    ram.copy_frame(50 * PAGE, 37 * PAGE);
    let one = grown(&ram, &image((1..16).chain([37])), 5);
    assert!((PAGE..PAGE + 500).contains(&one), "{one}");
    assert_eq!(fs::metadata(&path).unwrap().len(), store.size());
    let index = Index::open(&path, IDENTITY).unwrap();
    let events: Vec<u64> = index.all().map(|about| about.position.event).collect();
    assert_eq!((events, index.damage().is_none()), (vec![1, 2, 3, 4, 5], true));
}

#[test]
fn a_checkpoint_that_is_not_whole_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoints");
    let (ram, mut store) = (ram(), Store::create(&path, IDENTITY, u64::MAX).unwrap());
    store.add(&image(1..9), &ram.view(), || about(1)).unwrap();
    let whole = fs::read(&path).unwrap();
    // The journal is not written any more: the file is as it was.
    assert!(store.add(&image(9..17), &ram.view(), || Err(io::Error::other("gone"))).is_err());
    assert_eq!(fs::read(&path).unwrap(), whole);
    // Wherever the recorder was killed.
    for length in (0..40).chain((0..whole.len()).step_by(97)).chain(whole.len() - 60..whole.len()) {
        fs::write(&path, &whole[..length]).unwrap();
        match Index::open(&path, IDENTITY) {
            Ok(index) => assert_eq!(index.all().len(), 0, "cut at {length}"),
            Err(CheckpointError::Damaged { .. }) => {}
            Err(other) => panic!("cut at {length}: {other}"),
        }
    }
}

#[test]
fn a_checkpoint_that_does_not_fit_is_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoints");
    let (ram, mut store) = (ram(), Store::create(&path, IDENTITY, 14 * PAGE).unwrap());
    store.add(&image(1..9), &ram.view(), || about(1)).unwrap();
    let whole = fs::read(&path).unwrap();
    let error = store.add(&image(9..30), &ram.view(), || about(2)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
    assert_eq!(fs::read(&path).unwrap(), whole);
    assert_eq!(Index::open(&path, IDENTITY).unwrap().all().len(), 1);
}

#[test]
fn what_is_wrong_is_said_with_its_offset() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoints");
    let mut store = Store::create(&path, IDENTITY, u64::MAX).unwrap();
    let ram = ram();
    for event in [3, 8] {
        store.add(&image(event..event + 2), &ram.view(), || about(event)).unwrap();
    }
    let whole = fs::read(&path).unwrap();
    // The last mark: everything before it is used.
    let mut damaged = whole.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let index = Index::open(&path, IDENTITY).unwrap();
    assert_eq!(index.all().len(), 1);
    assert!(index.damage().unwrap().to_string().contains("damaged at offset 0x"));
    // A mark before the one before it.
    store.add(&image(1..2), &ram.view(), || about(5)).unwrap();
    fs::write(&path, [&whole[..], &fs::read(&path).unwrap()[whole.len()..]].concat()).unwrap();
    assert_eq!(Index::open(&path, IDENTITY).unwrap().all().len(), 2);
    fs::write(&path, &whole).unwrap();
    let other = Index::open(&path, IDENTITY + 1).err().expect("another recording");
    assert!(matches!(other, CheckpointError::OtherRecording { .. }), "{other}");
    let mut version = whole;
    version[8] = 9;
    fs::write(&path, version).unwrap();
    assert!(matches!(Index::open(&path, IDENTITY), Err(CheckpointError::Version { found: 9, .. })));
}
