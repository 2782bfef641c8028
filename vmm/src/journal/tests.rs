use super::schema::Digests;
use super::*;
use crate::cpu_model::Model;
use crate::engine::Exception;
use crate::gate::{Event, Input, MemoryWrite, Time};
use crate::position::{Offset, Target};
use crate::process::{Capabilities, Death, Ids, Launch, Parents};
use crate::program::{Inherited, Limits, OuterTerminal, Signals};
use crate::signal::Arrived;
use proptest::collection::vec;
use proptest::prelude::*;
use std::path::Path;
use x86::state::{MxcsrMask, Regs};

fn header() -> Header {
    let launch = Launch {
        executable: Vec::new(),
        path: "/bin/prog".into(),
        name: b"./prog".to_vec(),
        interpreter: None,
        argv: vec![b"prog".to_vec(), b"\xff".to_vec()],
        envp: vec![b"A=b".to_vec()],
        random: *b"0123456789abcdef",
        cwd: b"/tmp".to_vec(),
        ids: Ids { uid: 1, euid: 2, gid: 3, egid: u32::MAX },
        pid: 7,
        parents: Parents { parent: 1, group: 7, session: 2 },
        terminal: Some(OuterTerminal { index: Some(300), streams: [true, false, true] }),
        inherited: vec![
            Inherited { number: 3, socket: Some([2, u32::MAX]), ..Inherited::default() },
            Inherited { number: 9, copy_of: Some(1), file: Some([u64::MAX, 5]), ..Inherited::default() },
            Inherited { number: 10, terminal: true, ..Inherited::default() },
        ],
        groups: vec![0, u32::MAX],
        capabilities: Capabilities { ambient: 1 << 40, securebits: 0xff, ..Capabilities::usual(true) },
        umask: 0o22,
        signals: Signals { ignored: 1, blocked: u64::MAX },
        limits: Limits(std::array::from_fn(|n| [n as u64, u64::MAX - n as u64])),
        seed: Some(u64::MAX),
        memory: 5 << 30,
        cpu: Model::V3,
        mxcsr_mask: MxcsrMask(u32::MAX),
    };
    let (model, engine) = (Model::V3.name().into(), "soft".into());
    let behaviour = schema::BEHAVIOUR;
    Header {
        gretel: "0.1.0".into(),
        behaviour,
        model,
        engine,
        launch,
        executable_digest: u64::MAX,
        interpreter_digest: None,
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        any::<u64>().prop_map(Event::Syscall),
        any::<u64>().prop_map(Event::Clock),
        Just(Event::MachineRead),
        any::<i32>().prop_map(Event::Signal),
        any::<i32>().prop_map(Event::Exited),
        Just(Event::Wait),
        any::<u64>().prop_map(|count| Event::Preempt(Offset::Retired(count))),
        any::<i32>().prop_map(Event::OutOfMemory),
        any::<(u64, u64, u64, u64, Option<u64>)>().prop_map(|(rip, rax, fpu, memory, branches)| {
            let mut regs = Regs { rip, ..Regs::default() };
            regs.gpr[0] = rax;
            Event::Preempt(Offset::State(Box::new(Target { regs, fpu, memory, branches })))
        }),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    let write =
        (any::<u64>(), vec(any::<u8>(), 0..300)).prop_map(|(address, bytes)| MemoryWrite { address, bytes });
    let input = (any::<i64>(), vec(write, 0..3)).prop_map(|(result, writes)| Input::Bytes { result, writes });
    prop_oneof![
        (event(), 0..i32::MAX, any::<u64>()).prop_map(|(event, task, regs)| Record::Begin {
            event,
            task,
            regs
        }),
        input.prop_map(Record::Input),
        any::<(u64, u64)>().prop_map(|(real, monotonic)| Record::Time(Time { real, monotonic })),
        any::<(u64, u64)>().prop_map(|(first, group)| Record::Signals(Arrived { first, group })),
        any::<(u64, u64, u64)>().prop_map(|(regs, fpu, memory)| Record::Digests(Digests {
            regs,
            fpu,
            memory
        })),
    ]
}

fn end() -> impl Strategy<Value = End> {
    let exception = any::<(u8, u32, u64)>().prop_map(|(vector, error_code, address)| Exception {
        vector,
        error_code,
        address,
    });
    let death = (any::<(i32, i32, u64)>(), proptest::option::of(exception));
    prop_oneof![
        any::<i32>().prop_map(End::Exited),
        proptest::sample::select(vec![End::Interrupted, End::Stopped, End::Full]),
        death.prop_map(|((signal, code, address), exception)| {
            End::Killed(Death { signal, code, address, exception })
        }),
    ]
}

/// Writes a journal with a frame for each of the groups of records.
fn write_groups(path: &Path, groups: &[Vec<Record>], end: End) {
    let mut bytes = frame::preamble();
    bytes.extend(frame::pack(0, &header().encode()).unwrap());
    let last = vec![Record::End(end)];
    for (group, sequence) in groups.iter().chain([&last]).zip(1..) {
        let mut records = Vec::new();
        group.iter().for_each(|r| r.encode(&mut records));
        bytes.extend(frame::pack(sequence, &records).unwrap());
    }
    std::fs::write(path, bytes).unwrap();
}

/// All records that a journal gives, and whether it says that something is missing.
fn read(path: &Path) -> Result<(Vec<Record>, bool), JournalError> {
    let mut reader = Reader::open(path)?;
    assert_eq!(*reader.header(), header());
    let mut records = Vec::new();
    while let Some(record) = reader.take()? {
        records.push(record);
    }
    Ok((records, reader.damage().is_some()))
}

#[derive(Clone, Debug)]
enum Harm {
    Cut(usize),
    Flip(usize, u8),
    Zero(usize, usize),
    Swap(usize, usize),
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        any::<usize>().prop_map(Harm::Cut),
        (any::<usize>(), 0_u8..8).prop_map(|(at, bit)| Harm::Flip(at, bit)),
        (any::<usize>(), 1_usize..64).prop_map(|(at, length)| Harm::Zero(at, length)),
        any::<(usize, usize)>().prop_map(|(a, b)| Harm::Swap(a, b)),
    ]
}

impl Harm {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let size = bytes.len();
        match *self {
            Harm::Cut(at) => bytes.truncate(at % size),
            Harm::Flip(at, bit) => bytes[at % size] ^= 1 << bit,
            Harm::Zero(at, length) => {
                let at = at % size;
                bytes[at..(at + length).min(size)].fill(0);
            }
            Harm::Swap(a, b) => bytes.swap(a % size, b % size),
        }
    }
}

proptest! {
    #[test]
    fn records_round_trip(groups in vec(vec(record(), 1..5), 0..5), end in end()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        write_groups(&path, &groups, end);
        let mut expected: Vec<Record> = groups.concat();
        expected.push(Record::End(end));
        prop_assert_eq!(read(&path).unwrap(), (expected, false));
    }

    /// Whatever happens to the file: no panic, no record that was not written there, and never silence about it.
    #[test]
    fn damage_never_changes_what_is_before_it(
        groups in vec(vec(record(), 1..4), 0..4),
        end in end(),
        harms in vec(harm(), 1..4),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        write_groups(&path, &groups, end);
        let mut written: Vec<Record> = groups.concat();
        written.push(Record::End(end));
        let whole = std::fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        harms.iter().for_each(|harm| { if !bytes.is_empty() { harm.apply(&mut bytes); } });
        std::fs::write(&path, &bytes).unwrap();
        let Ok((records, damaged)) = read(&path) else {
            prop_assert_ne!(bytes, whole);
            return Ok(());
        };
        prop_assert!(written.starts_with(&records));
        prop_assert_eq!(damaged, records.len() < written.len());
    }
}

#[test]
fn the_writer_writes_what_it_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let writer = Writer::create(&path, &header(), None).unwrap();
    let mut expected = Vec::new();
    for n in 0..5000 {
        let begin = Record::Begin { event: Event::Syscall(n), task: 7, regs: n };
        let writes = vec![MemoryWrite { address: n, bytes: vec![7; 200] }];
        let input = Input::Bytes { result: -1, writes };
        writer.put(&begin).unwrap();
        writer.put_input(&input).unwrap();
        writer.mark_whole();
        expected.extend([begin, Record::Input(input)]);
    }
    writer.put(&Record::End(End::Interrupted)).unwrap();
    expected.push(Record::End(End::Interrupted));
    let size = writer.finish().unwrap();
    assert_eq!(size, std::fs::metadata(&path).unwrap().len());
    assert_eq!(read(&path).unwrap(), (expected, false));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

/// What a recorder that is killed leaves: all whole events but the last moment's, without waiting for more.
#[test]
fn whole_events_reach_the_file_while_the_guest_waits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let writer = Writer::create(&path, &header(), None).unwrap();
    let done = Record::Begin { event: Event::Syscall(1), task: 7, regs: 1 };
    writer.put(&done).unwrap();
    writer.mark_whole();
    writer.put(&Record::Begin { event: Event::Syscall(0), task: 7, regs: 2 }).unwrap();
    let deadline = std::time::Instant::now() + writer::FLUSH_EVERY * 50;
    let mut found = read(&path).unwrap();
    while found.0.is_empty() && std::time::Instant::now() < deadline {
        std::thread::sleep(writer::FLUSH_EVERY);
        found = read(&path).unwrap();
    }
    assert_eq!(found, (vec![done], true), "the whole event, not the one that waits");
}

#[test]
fn a_writer_that_is_dropped_leaves_whole_events() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let writer = Writer::create(&path, &header(), None).unwrap();
    let done = Record::Begin { event: Event::MachineRead, task: 7, regs: 1 };
    writer.put(&done).unwrap();
    // The writing thread waits by now, and is woken to the end of all.
    std::thread::sleep(writer::FLUSH_EVERY / 2);
    writer.mark_whole();
    drop(writer);
    assert_eq!(read(&path).unwrap(), (vec![done], true));
    assert!(Writer::create(&path, &header(), None).is_err(), "never over a journal that exists");
}

#[test]
fn other_files_and_other_versions_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    std::fs::write(&path, "hello\n").unwrap();
    assert!(matches!(Reader::open(&path), Err(JournalError::NotAJournal { .. })));
    let mut bytes = frame::preamble();
    bytes[8] = 99;
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(Reader::open(&path), Err(JournalError::Version { found: 99, gretel: None, .. })));
    // Whatever a header of that version holds, it begins with the recorder's version.
    bytes.extend(frame::pack(0, b"\x050.9.0 and more").unwrap());
    std::fs::write(&path, bytes).unwrap();
    let Err(error) = Reader::open(&path) else { panic!("another version was read") };
    assert!(matches!(&error, JournalError::Version { found: 99, gretel: Some(it), .. } if it == "0.9.0"));
    assert!(error.to_string().contains("the gretel 0.9.0 that recorded it"), "{error}");
    // A recorder that was killed at once leaves any part of the beginning, or nothing of it.
    for size in 0..=frame::PREAMBLE_SIZE {
        std::fs::write(&path, &frame::preamble()[..size]).unwrap();
        let Err(JournalError::NoHeader { offset, .. }) = Reader::open(&path) else {
            panic!("{size} bytes are taken for another file");
        };
        assert_eq!(offset, size as u64);
    }
}

/// A begin of an event, known by its digest.
fn numbered(n: u64) -> Record {
    Record::Begin { event: Event::Syscall(n), task: 7, regs: n }
}

fn file(byte: u8) -> Input {
    let bytes = std::sync::Arc::new(vec![byte; 5000]);
    Input::File(Ok(std::sync::Arc::new(crate::gate::FileContent { name: b"f".to_vec(), bytes })))
}

fn put(writer: &Writer, n: u64, input: &Input) {
    writer.put(&numbered(n)).unwrap();
    writer.put_input(input).unwrap();
    writer.mark_whole();
}

fn rest(reader: &mut Reader) -> Vec<Record> {
    std::iter::from_fn(|| reader.take().unwrap()).collect()
}

#[test]
fn a_cut_is_where_reading_can_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let writer = Writer::create(&path, &header(), None).unwrap();
    put(&writer, 1, &file(1));
    put(&writer, 2, &file(2));
    let cut = writer.cut(None).recv().unwrap();
    put(&writer, 3, &file(1));
    writer.put(&Record::End(End::Exited(0))).unwrap();
    writer.finish().unwrap();
    let place = reader::Place::of_frame(0, cut, 0);
    assert_eq!(place.in_file(), (cut, 0));
    // The content of the first file, which was left out behind the cut, is found before it.
    let mut reader = Reader::open(&path).unwrap();
    reader.seek_to(place).unwrap();
    assert_eq!(rest(&mut reader), [numbered(3), Record::Input(file(1)), Record::End(End::Exited(0))]);
    assert!(reader.damage().is_none());
    let mut whole = Reader::open(&path).unwrap();
    assert_eq!(rest(&mut whole).len(), 7);
    // What refers to nothing is damage wherever one begins.
    let bytes = std::fs::read(&path).unwrap();
    let start = frame::PREAMBLE_SIZE + frame::pack(0, &header().encode()).unwrap().len();
    let mut lost = bytes[..start].to_vec();
    lost.extend(frame::pack(1, &[]).unwrap());
    let offset = lost.len() as u64;
    lost.extend(&bytes[usize::try_from(cut.offset).unwrap()..]);
    std::fs::write(&path, lost).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    reader.seek_to(reader::Place::of_frame(0, Cut { offset, ..cut }, 0)).unwrap();
    assert_eq!(rest(&mut reader), []);
    assert!(reader.damage().unwrap().why.contains("no record"));
}

#[test]
fn a_journal_may_go_on_in_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..3).map(|n| dir.path().join(n.to_string())).collect();
    let writer = Writer::create(&paths[0], &header(), None).unwrap();
    put(&writer, 0, &file(5));
    let mut cuts = Vec::new();
    for n in [1, 2] {
        cuts.push(writer.cut(Some(paths[n].clone())));
        put(&writer, n as u64, &file(5));
    }
    writer.put(&Record::End(End::Exited(0))).unwrap();
    let written = writer.finish().unwrap();
    assert_eq!(written, paths.iter().map(|path| std::fs::metadata(path).unwrap().len()).sum::<u64>());
    assert!(writer.is_in_place());
    let cuts: Vec<Cut> = cuts.into_iter().map(|cut| cut.recv().unwrap()).collect();
    assert!(cuts.iter().all(|cut| cut.sequence == 1 && *cut == cuts[0]), "{cuts:?}");
    let all = rest(&mut Reader::open_all(paths.clone()).unwrap());
    let event = |n| [numbered(n), Record::Input(file(5))];
    let expected: Vec<Record> = (0..3).flat_map(event).chain([Record::End(End::Exited(0))]).collect();
    assert_eq!(all, expected);
    // Each file can be begun with.
    let mut reader = Reader::open_all(paths[1..].to_vec()).unwrap();
    assert_eq!(rest(&mut reader), expected[2..]);
    reader.seek_to(reader::Place::of_frame(1, cuts[1], 0)).unwrap();
    assert_eq!(rest(&mut reader), expected[4..]);
    // One that is missing ends it.
    std::fs::write(&paths[1], b"").unwrap();
    let mut reader = Reader::open_all(paths).unwrap();
    assert_eq!(rest(&mut reader), expected[..2]);
    assert!(reader.damage().is_some());
}

/// A file's input, of so many bytes that follow one another.
fn large(name: &str, bytes: std::ops::Range<usize>) -> Input {
    let bytes = bytes.map(|n| (n * n / 7).to_le_bytes()[0]).collect::<Vec<u8>>();
    let name = name.as_bytes().to_vec();
    Input::File(Ok(std::sync::Arc::new(crate::gate::FileContent { name, bytes: std::sync::Arc::new(bytes) })))
}

fn contents_in(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.join("files")).into_iter().flatten();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

#[test]
fn large_contents_are_files_and_parts_of_them_are_told_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let writer = Writer::create(&path, &header(), None).unwrap();
    let inputs = [
        large("lib", 0..200_000),
        large("lib", 4096..150_000),
        large("other", 0..150_000),
        large("lib", 1..90_000),
    ];
    for (n, input) in (0..).zip(inputs.iter().chain(&inputs)) {
        put(&writer, n, input);
    }
    writer.put(&Record::End(End::Exited(0))).unwrap();
    let written = writer.finish().unwrap();
    assert!(written < 2000, "{written} bytes of journal");
    // The second is a part of the first; the last begins at no page.
    assert_eq!(contents_in(dir.path()).len(), 3);
    let mut reader = Reader::open(&path).unwrap();
    let all = rest(&mut reader);
    assert!(reader.damage().is_none());
    let expected =
        (0..).zip(inputs.iter().chain(&inputs)).flat_map(|(n, i)| [numbered(n), Record::Input(i.clone())]);
    assert_eq!(all, expected.chain([Record::End(End::Exited(0))]).collect::<Vec<_>>());
    // Who only counts needs none of them.
    std::fs::remove_dir_all(dir.path().join("files")).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    reader.leave_files();
    assert_eq!(rest(&mut reader).len(), all.len());
}

#[test]
fn a_content_that_is_missing_or_altered_is_an_error_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let writer = Writer::create(&path, &header(), None).unwrap();
    put(&writer, 0, &file(1));
    let cut = writer.cut(None).recv().unwrap();
    put(&writer, 1, &large("lib", 0..50_000));
    writer.finish().unwrap();
    let content = contents_in(dir.path()).pop().unwrap();
    let whole = std::fs::read(&content).unwrap();
    let error = || {
        let mut reader = Reader::open(&path).unwrap();
        assert_eq!(reader.take().unwrap(), Some(numbered(0)));
        reader.take().unwrap();
        let error = reader.take().expect_err("no content").to_string();
        // And when it is begun with.
        let mut reader = Reader::open(&path).unwrap();
        reader.seek_to(reader::Place::of_frame(0, cut, 0)).unwrap();
        assert_eq!(reader.take().expect_err("no content").to_string(), error);
        error
    };
    let name = content.file_name().unwrap().to_str().unwrap();
    std::fs::remove_file(&content).unwrap();
    assert!(error().contains(name) && error().contains("put back"), "{}", error());
    std::fs::write(&content, &whole[1..]).unwrap();
    assert!(error().contains(name) && error().contains("is not what was recorded"), "{}", error());
    std::fs::write(&content, &whole).unwrap();
    assert_eq!(rest(&mut Reader::open(&path).unwrap()).len(), 4);
}

#[test]
fn each_file_of_a_journal_has_its_contents_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let folders = ["0", "1"].map(|name| dir.path().join(name));
    folders.iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    let paths = folders.clone().map(|folder| folder.join("journal"));
    let writer = Writer::create(&paths[0], &header(), None).unwrap();
    put(&writer, 0, &large("lib", 0..50_000));
    assert!(writer.size() >= 50_000, "contents count");
    let cut = writer.cut(Some(paths[1].clone()));
    put(&writer, 1, &large("lib", 4096..50_000));
    writer.put(&Record::End(End::Exited(0))).unwrap();
    writer.finish().unwrap();
    cut.recv().unwrap();
    assert!(folders.iter().all(|folder| contents_in(folder).len() == 1));
    assert_eq!(rest(&mut Reader::open_all(paths.to_vec()).unwrap()).len(), 5);
    std::fs::remove_dir_all(&folders[0]).unwrap();
    assert_eq!(rest(&mut Reader::open(&paths[1]).unwrap()).len(), 3);
}

#[test]
fn contents_stay_in_the_journal_where_no_file_can_be_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    std::fs::write(dir.path().join("files"), "no folder").unwrap();
    let writer = Writer::create(&path, &header(), None).unwrap();
    (0..2).for_each(|n| put(&writer, n, &large("lib", 0..50_000)));
    writer.finish().unwrap();
    let expected = (0..2).flat_map(|n| [numbered(n), Record::Input(large("lib", 0..50_000))]);
    assert_eq!(rest(&mut Reader::open(&path).unwrap()), expected.collect::<Vec<_>>());
}

/// What is no content of a digest, and parts that are none, do not decode and do not panic.
#[test]
fn forged_parts_are_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let whole = vec![5; 20_000];
    let digest = xxhash_rust::xxh3::xxh3_64(&whole);
    std::fs::create_dir(dir.path().join("files")).unwrap();
    std::fs::write(dir.path().join("files").join(crate::contents::name(digest)), &whole).unwrap();
    let read = |of_part: u64, offset: u64, length: u64| {
        let mut records = vec![7];
        crate::plain::numbers::put_bytes(&mut records, b"name");
        crate::plain::numbers::put_digest(&mut records, of_part);
        records.push(3);
        crate::plain::numbers::put_digest(&mut records, digest);
        crate::plain::numbers::put_u64(&mut records, offset);
        crate::plain::numbers::put_u64(&mut records, length);
        let frames = [frame::pack(0, &header().encode()).unwrap(), frame::pack(1, &records).unwrap()];
        std::fs::write(&path, [frame::preamble(), frames.concat()].concat()).unwrap();
        Reader::open(&path).unwrap().take().unwrap()
    };
    let right = xxhash_rust::xxh3::xxh3_64(&whole[..100]);
    assert!(read(right, 19_900, 100).is_some());
    for (offset, length) in [(19_901, 100), (u64::MAX, 100), (1, u64::MAX), (0, 101)] {
        assert_eq!(read(right, offset, length), None, "{offset} {length}");
    }
    assert_eq!(read(right + 1, 0, 100), None);
}
