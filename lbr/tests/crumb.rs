//! Rings of crumbs: what is written is read, whatever is cut, torn, overwritten or made up is noticed.

use lbr::crumb::record::{RECORD, WORDS};
use lbr::crumb::{Counts, Crumb, Crumbs, CrumbsError, Entry, Exit, Origin, Reader, RingError, Writer};
use proptest::prelude::*;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Where the slots of a ring begin.
const SLOTS_AT: usize = 4096;
const ORIGIN: Origin = Origin { vcpu: 3, real: 1_700_000_000_000_000_000, monotonic: 5_000_000_000 };

fn any_exit() -> impl Strategy<Value = Exit> {
    let page_fault = any::<(u64, u32)>();
    let exception = any::<(u8, u32)>();
    prop_oneof![
        any::<u64>().prop_map(|number| Exit::Syscall { number }),
        page_fault.prop_map(|(address, error_code)| Exit::PageFault { address, error_code }),
        exception.prop_map(|(vector, error_code)| Exit::Exception { vector, error_code }),
        Just(Exit::MachineRead),
        Just(Exit::Interrupted),
        Just(Exit::NoSemantics),
        Just(Exit::Preempted),
        any::<u8>().prop_map(|vector| Exit::Interrupt { vector }),
    ]
}

fn any_counts() -> impl Strategy<Value = Counts> {
    any::<([Option<u64>; 3], bool)>().prop_map(
        |([instructions, taken_branches, conditional_branches], derived)| Counts {
            instructions,
            taken_branches,
            conditional_branches,
            derived,
        },
    )
}

prop_compose! {
    fn any_crumb()(
        exit in any_exit(),
        counts in any_counts(),
        thread in any::<u32>(),
        [event, rip, rsp] in any::<[u64; 3]>(),
        [time, context] in any::<[Option<u64>; 2]>(),
    ) -> Crumb {
        Crumb { exit, event, thread, rip, rsp, time, counts, context }
    }
}

fn plain(rip: u64) -> Crumb {
    Crumb {
        exit: Exit::Syscall { number: 1 },
        event: rip,
        thread: 1000,
        rip,
        rsp: 0x7fff_0000,
        time: Some(7),
        counts: Counts::default(),
        context: None,
    }
}

struct Ring {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Ring {
    fn new() -> Ring {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("crumbs-0");
        Ring { _dir: dir, path }
    }

    fn writer(&self, slots: u32) -> Writer {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&self.path);
        Writer::create(file.expect("a new file"), slots, ORIGIN).expect("a ring")
    }

    fn reader(&self) -> Reader {
        Reader::open(&self.path).expect("a ring in order")
    }
}

fn numbers(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.number).collect()
}

#[test]
fn a_ring_keeps_the_newest() {
    let ring = Ring::new();
    let mut writer = ring.writer(5);
    let empty = ring.reader().snapshot().unwrap();
    assert_eq!((empty.entries.len(), empty.missing, empty.torn), (0, 0, 0));
    for rip in 1..=12 {
        writer.put(&plain(rip));
    }
    let snapshot = ring.reader().snapshot().unwrap();
    assert_eq!(numbers(&snapshot.entries), [8, 9, 10, 11, 12]);
    assert!(snapshot.entries.iter().all(|entry| entry.crumb == plain(entry.number)));
    assert_eq!((snapshot.missing, snapshot.torn, writer.written()), (0, 0, 12));
    assert_eq!((ring.reader().origin(), ring.reader().slots()), (ORIGIN, 5));
}

#[test]
fn the_lock_tells_whether_the_writer_lives() {
    let ring = Ring::new();
    let writer = ring.writer(1);
    assert!(ring.reader().is_written().unwrap());
    drop(writer);
    assert!(!ring.reader().is_written().unwrap());
}

/// Any number of words of a record may have reached the file when its writer was killed.
#[test]
fn a_record_that_was_torn_is_left_out_and_counted() {
    let ring = Ring::new();
    let mut writer = ring.writer(4);
    for rip in 1..=6 {
        writer.put(&plain(rip));
    }
    drop(writer);
    let whole = fs::read(&ring.path).unwrap();
    // Number 7 would go over number 3, into slot 2.
    let at = SLOTS_AT + 2 * RECORD;
    let words = plain(7).to_words(7);
    for reached in 0..WORDS {
        let mut bytes = whole.clone();
        bytes[at..at + 8].fill(0);
        for (n, word) in words.iter().enumerate().skip(1).take(reached) {
            bytes[at + 8 * n..at + 8 * n + 8].copy_from_slice(&word.to_le_bytes());
        }
        fs::write(&ring.path, &bytes).unwrap();
        let snapshot = ring.reader().snapshot().unwrap();
        assert_eq!(numbers(&snapshot.entries), [4, 5, 6], "{reached} words");
        assert_eq!((snapshot.missing, snapshot.torn), (0, 1), "{reached} words");
    }
    let last = fs::OpenOptions::new().write(true).open(&ring.path).unwrap();
    last.write_all_at(&words[0].to_le_bytes(), at as u64).unwrap();
    assert_eq!(numbers(&ring.reader().snapshot().unwrap().entries), [4, 5, 6, 7]);
}

#[test]
fn a_flipped_bit_is_never_another_crumb() {
    let entry = Entry { number: 9, crumb: plain(0x40_1000) };
    let bytes = entry.to_bytes();
    assert_eq!(Entry::from_bytes(&bytes), Some(entry));
    for bit in 0..RECORD * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Entry::from_bytes(&flipped), None, "bit {bit}");
    }
}

#[test]
fn a_file_that_is_cut_gives_what_is_before_the_cut() {
    let ring = Ring::new();
    let mut writer = ring.writer(8);
    (1..=8).for_each(|rip| writer.put(&plain(rip)));
    drop(writer);
    let whole = fs::read(&ring.path).unwrap();
    for len in (0..whole.len()).step_by(7) {
        fs::write(&ring.path, &whole[..len]).unwrap();
        match Reader::open(&ring.path) {
            Ok(reader) => {
                let records = len.saturating_sub(SLOTS_AT) / RECORD;
                assert_eq!(reader.snapshot().unwrap().entries.len(), records, "{len} bytes");
            }
            Err(RingError::Header { .. }) => assert!(len < 48, "{len} bytes"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_reader_follows_a_writer_on_another_thread() {
    const CRUMBS: u64 = 200_000;
    let ring = Ring::new();
    let mut writer = ring.writer(64);
    let mut reader = ring.reader();
    let (mut seen, mut lost, mut next) = (0, 0, 1);
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || (1..=CRUMBS).for_each(|rip| writer.put(&plain(rip))));
        loop {
            let done = writing.is_finished();
            let (entries, overwritten) = reader.follow().unwrap();
            for entry in &entries {
                assert!(entry.number >= next, "{} after {next}", entry.number);
                assert_eq!(entry.crumb, plain(entry.number), "a crumb that nobody wrote");
                next = entry.number + 1;
            }
            seen += entries.len() as u64;
            lost += overwritten;
            if done && entries.is_empty() {
                break;
            }
        }
    });
    assert_eq!((next, seen + lost), (CRUMBS + 1, CRUMBS), "{seen} seen, {lost} lost");
    assert!(seen >= 64, "the last lap stays: {seen}");
}

/// Behind the last number there is no next one: a reader would wait for it for ever, or give it again and again.
#[test]
fn the_last_number_of_all_is_nobodys() {
    let ring = Ring::new();
    drop(ring.writer(1));
    let mut bytes = fs::read(&ring.path).unwrap();
    bytes[SLOTS_AT..].copy_from_slice(&Entry { number: u64::MAX, crumb: plain(1) }.to_bytes());
    fs::write(&ring.path, &bytes).unwrap();
    let mut reader = ring.reader();
    assert_eq!((reader.snapshot().unwrap().entries.len(), reader.snapshot().unwrap().torn), (0, 1));
    for _ in 0..3 {
        assert_eq!(reader.follow().unwrap(), (Vec::new(), 0));
    }
}

#[test]
fn sizes_that_a_ring_cannot_have_are_refused() {
    for slots in [0, lbr::crumb::ring::MAX_SLOTS + 1] {
        let ring = Ring::new();
        let file = File::create_new(&ring.path).unwrap();
        assert!(Writer::create(file, slots, ORIGIN).is_err(), "{slots}");
    }
    assert!(matches!(Reader::open(Path::new("/nonexistent")), Err(RingError::Read { .. })));
}

#[test]
fn crumbs_of_a_core_survive_their_bytes_and_nothing_else_does() {
    let entries: Vec<Entry> =
        [4, 5, 9].iter().map(|number| Entry { number: *number, crumb: plain(*number) }).collect();
    let crumbs = Crumbs { origin: ORIGIN, entries, preemptions: true };
    let bytes = crumbs.to_bytes();
    assert_eq!(bytes.len(), 40 + 3 * RECORD);
    assert_eq!(Crumbs::from_bytes(&bytes).as_ref(), Ok(&crumbs));
    for len in 0..bytes.len() {
        let cut = Crumbs::from_bytes(&bytes[..len]);
        assert!(len >= 40 && (len - 40) % RECORD == 0 || cut.is_err(), "{len} bytes");
    }
    // Of the version before: nothing is said of preemptions.
    let mut older = bytes.clone();
    older[8] = 1;
    assert_eq!(Crumbs::from_bytes(&older), Ok(Crumbs { preemptions: false, ..crumbs }));
    older[8] = 3;
    assert_eq!(Crumbs::from_bytes(&older), Err(CrumbsError::Version(3)));
    let mut swapped = bytes.clone();
    swapped[40..40 + 2 * RECORD].rotate_left(RECORD);
    assert_eq!(Crumbs::from_bytes(&swapped), Err(CrumbsError::Record(40 + RECORD)));
}

proptest! {
    #[test]
    fn a_crumb_survives_its_bytes(number in 1_u64.., crumb in any_crumb()) {
        let entry = Entry { number, crumb };
        prop_assert_eq!(Entry::from_bytes(&entry.to_bytes()), Some(entry));
    }

    /// Arbitrary bytes in the place of a ring, of its slots, and of a core's crumbs: never a panic, never more
    /// crumbs than slots.
    #[test]
    fn arbitrary_bytes_are_no_ring(
        noise in prop::collection::vec(any::<u8>(), 0..3 * RECORD),
        forged in prop::collection::vec((any::<u64>(), any_crumb(), 0_usize..4), 0..6),
    ) {
        let ring = Ring::new();
        fs::write(&ring.path, &noise).unwrap();
        prop_assert!(Reader::open(&ring.path).is_err());
        prop_assert!(Crumbs::from_bytes(&noise).is_err());

        fs::remove_file(&ring.path).unwrap();
        drop(ring.writer(4));
        let mut bytes = fs::read(&ring.path).unwrap();
        bytes[SLOTS_AT..SLOTS_AT + noise.len()].copy_from_slice(&noise);
        // Numbers that no writer would have come to, with checksums in order.
        for (number, crumb, slot) in forged {
            let at = SLOTS_AT + slot * RECORD;
            bytes[at..at + RECORD].copy_from_slice(&Entry { number, crumb }.to_bytes());
        }
        fs::write(&ring.path, &bytes).unwrap();
        let mut reader = ring.reader();
        let snapshot = reader.snapshot().unwrap();
        prop_assert!(snapshot.entries.len() <= 4);
        prop_assert!(snapshot.entries.windows(2).all(|pair| pair[0].number < pair[1].number));
        for _ in 0..3 {
            prop_assert!(reader.follow().unwrap().0.len() <= 4);
        }
        let crumbs = Crumbs::newest(reader.origin(), snapshot, 2);
        prop_assert!(crumbs.entries.len() <= 2);
        prop_assert_eq!(Crumbs::from_bytes(&crumbs.to_bytes()), Ok(crumbs));
    }
}

/// The file is the user's, and so the recorded program's: what is cut off is lost, and the writer goes on.
#[test]
fn a_ring_that_is_cut_while_it_is_written_loses_crumbs_and_not_the_writer() {
    let ring = Ring::new();
    let mut writer = ring.writer(200);
    let cut = |size| File::options().write(true).open(&ring.path).unwrap().set_len(size).unwrap();
    writer.put(&plain(1));
    assert!(!writer.is_cut());
    cut(4096 + 96);
    (2..=500).for_each(|n| writer.put(&plain(n)));
    assert!(writer.is_cut());
    let left = ring.reader().snapshot().unwrap().entries;
    assert_eq!(left.iter().map(|entry| entry.number).collect::<Vec<_>>(), [401]);
    cut(0);
    (501..=900).for_each(|n| writer.put(&plain(n)));
    assert!(matches!(Reader::open(&ring.path), Err(RingError::Header { .. })));
    assert_eq!(writer.written(), 900);
}
