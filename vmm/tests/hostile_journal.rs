//! A journal whose checksums are right and whose content is not: someone made it so. Replay may say anything about it,
//! but it does not panic, and it does not run on past a difference.

#[path = "support/journals.rs"]
mod journals;

use journals::{all_records, write_records};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use vmm::cpu_model::Model;
use vmm::engine::{self, EngineKind, Machine, Until};
use vmm::gate::{Event, Input, MemoryWrite};
use vmm::journal::{Header, Record};
use vmm::launch::launch_here;
use vmm::recording::Recording;
use vmm::replay::{Progress, Replay};

const MEMORY: u64 = 1 << 30;
/// Replays of a journal that was changed stop here at the latest: it may make the program loop.
const BOUND: u64 = 3_000_000;

/// Splitmix64: the changes are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("below a usize")
    }

    /// A number that is likely to be a special case of something.
    fn nasty(&mut self) -> u64 {
        match self.below(6) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << self.below(64),
            3 => 0x7fff_ffff_f000 + (self.next() & 0x1fff),
            4 => self.next() & 0xffff,
            _ => self.next(),
        }
    }
}

fn soft() -> Machine {
    engine::open(EngineKind::Soft, MEMORY).unwrap()
}

/// A recording of busybox, in a folder in `dir`; `None`, and a word on why, where there is none.
fn recorded(dir: &Path, arguments: &[OsString]) -> Option<Recording> {
    let Ok(launch) = launch_here(OsStr::new("busybox"), arguments, Model::V2) else {
        eprintln!("skipped: there is no busybox here");
        return None;
    };
    let recording = Recording::create(&dir.join("rec"), false).unwrap();
    vmm::record::record(&recording, soft(), &launch, vmm::record::Options::default(), &mut |_, _, _| {})
        .unwrap();
    Some(recording)
}

fn change(records: &mut Vec<Record>, random: &mut Random) {
    let at = random.below(records.len());
    match (&mut records[at], random.below(4)) {
        (Record::Input(Input::Bytes { result, .. }), 0) => *result = random.nasty().cast_signed(),
        (Record::Input(Input::Bytes { writes, .. }), 1) => {
            let bytes = vec![0xa5; random.below(9000)];
            writes.push(MemoryWrite { address: random.nasty(), bytes });
        }
        (Record::Input(Input::Bytes { writes, .. }), 2) if !writes.is_empty() => {
            let at = random.below(writes.len());
            writes[at].address = random.nasty();
        }
        (Record::Input(input), 3) => *input = Input::Result(random.nasty().cast_signed()),
        (Record::Input(input), _) => {
            *input = Input::Bytes { result: random.nasty().cast_signed(), writes: Vec::new() };
        }
        (Record::Time(time), _) => (time.real, time.monotonic) = (random.nasty(), random.nasty()),
        (Record::Begin { event, .. }, 0) => *event = Event::Syscall(random.nasty()),
        (Record::Begin { event, .. }, 1) => *event = Event::Clock(random.nasty()),
        _ => {
            records.remove(at);
        }
    }
}

/// What replay computes by itself must be what the recorder computed.
#[test]
fn a_recording_of_another_behaviour_or_cpu_model_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let Some(recording) = recorded(dir.path(), &["true".into()]) else { return };
    let (header, records) = all_records(&recording.journal());
    let behaviour = Header { behaviour: header.behaviour + 1, gretel: "0.9.0".into(), ..header.clone() };
    let model = Header { model: "x86-64-v9".into(), gretel: "0.9.0".into(), ..header.clone() };
    let other = format!("guest behaviour {}", behaviour.behaviour);
    for (changed, what) in [(behaviour, other.as_str()), (model, "CPU model x86-64-v9")] {
        write_records(&recording.journal(), &changed, &records);
        let Err(error) = Replay::start(&recording, soft(), None) else { panic!("{what} was replayed") };
        let text = error.to_string();
        assert!(text.contains(what) && text.contains("the gretel 0.9.0 that recorded it"), "{text}");
    }
    write_records(&recording.journal(), &header, &records);
    assert!(Replay::start(&recording, soft(), None).is_ok());
}

#[test]
fn a_forged_journal_does_not_bring_replay_down() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    std::fs::write(&text, "b\na\n").unwrap();
    let Some(recording) = recorded(dir.path(), &["sort".into(), text.into()]) else { return };
    let (header, records) = all_records(&recording.journal());
    let mut random = Random(1);
    let (mut stopped, mut unnoticed) = (0, 0);
    for _ in 0..60 {
        let mut changed = records.clone();
        change(&mut changed, &mut random);
        write_records(&recording.journal(), &header, &changed);
        let mut replay = Replay::start(&recording, soft(), None).unwrap();
        let end = loop {
            match replay.step_until(Until::Retired(BOUND)) {
                Ok(Progress::Running) => {}
                other => break other,
            }
        };
        if end.is_err() { stopped += 1 } else { unnoticed += 1 }
    }
    // Some changes make no difference to this program, such as the time; most must be noticed.
    assert!(stopped > 20, "{stopped} of 60 changed journals were refused, {unnoticed} ran to the end");
}
