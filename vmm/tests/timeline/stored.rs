//! Checkpoints on disk: a replay that begins at one is, bit for bit, what one from the start is.

use crate::harness::{Compiled, compiled, engines, machine};
use crate::seeking::{LONG, OFTEN, busy, state};
use std::cell::RefCell;
use std::fs;
use std::rc::Rc;
use std::time::{Duration, Instant};
use vmm::checkpoints::{Rate, Shelf};
use vmm::engine::EngineKind;
use vmm::position::Position;
use vmm::record::Options;
use vmm::recording::Recording;
use vmm::replay::{Output, Replay, Replayed};
use vmm::timeline::{Pace, Timeline};

/// As often as they can be written.
pub(crate) const ALWAYS: Rate = Rate { every: Duration::ZERO, share: 0, most: u64::MAX, room: u64::MAX };
/// Computes for some tenths of a second between two calls. Each product waits for the one before it: additions to a number in memory
/// take some processors a third of that.
const COMPUTES: &str = r#"
    #include <unistd.h>
    int main(void) {
        volatile long sum = 0;
        write(1, "before\n", 7);
        for (long n = 0; n < 150000000; n++) sum = sum * 6364136223846793005 + n;
        write(1, "behind\n", 7);
        return sum & 1;
    }"#;
/// Has a megabyte of pages of its own, and stores to one of them before each call.
const PAGES: &str = r#"
    #include <string.h>
    #include <unistd.h>
    static char pages[256][4096];
    int main(void) {
        for (int n = 0; n < 256; n++) memset(pages[n], n + 1, 4096);
        for (int n = 0; n < 40; n++) {
            pages[n * 37 % 256][n]++;
            for (volatile long turn = 0; turn < 300000; turn++) {}
            write(1, ".", 1);
        }
        return 0;
    }"#;
/// No checkpoint is kept in memory.
const NEVER: Pace = Pace { nearest: Duration::from_micros(1), share: u32::MAX };

pub(crate) fn with_checkpoints() -> Options {
    Options { checkpoints: Some(ALWAYS), ..Options::default() }
}

/// Records the program with checkpoints until there are at least so many: how many a recording gets hangs on how fast they are written.
pub(crate) fn recorded_with_checkpoints(program: &Compiled, engine: EngineKind, least: usize) -> Recording {
    let mut recordings = (0..20).map(|_| program.record_with(engine, &[], with_checkpoints()));
    let Some(recording) = recordings.find(|recording| stored(recording).len() >= least) else {
        panic!("none of twenty recordings on {} has {least} checkpoints", engine.name())
    };
    recording
}

pub(crate) fn stored(recording: &Recording) -> Vec<Position> {
    let shelf = Shelf::open(recording).unwrap();
    assert!(shelf.notes().is_empty(), "{:?}", shelf.notes());
    shelf.newest_first().map(|(_, about)| about.position).collect()
}

#[test]
fn a_replay_from_disk_is_the_same_at_every_position() {
    let Some(program) = busy() else { return };
    for recorder in engines() {
        let recording = recorded_with_checkpoints(&program, recorder, 6);
        for replayer in engines() {
            let mut forward = Timeline::with_pace(&recording, machine(replayer), OFTEN).unwrap();
            let mut states = Vec::new();
            while !forward.ended() {
                let next = forward.position().event + 11;
                // One event after the other is nearer than what is on disk.
                forward.seek(Position { event: next, retired: 0 }).unwrap();
                states.push(state(&forward));
            }
            let end = forward.run_to_end().unwrap();
            assert!(end.end.is_some() && end.damage.is_none());
            states.pop();
            for n in (0..states.len()).step_by(states.len() / 12 + 1) {
                let mut from_disk = Timeline::with_pace(&recording, machine(replayer), NEVER).unwrap();
                from_disk.seek(states[n].0).unwrap();
                let names = (recorder.name(), replayer.name());
                assert_eq!(state(&from_disk), states[n], "recorded and replayed on {names:?}");
                let again = from_disk.run_to_end().unwrap();
                assert_eq!((again.digest(), again.events), (end.digest(), end.events), "on {names:?}");
                assert_eq!(again.comparisons, end.comparisons);
            }
        }
    }
}

#[test]
fn checkpoints_from_disk_share_the_pages_that_they_have_in_common() {
    let Some(program) = compiled("pages", PAGES, &[]) else { return };
    for engine in engines() {
        let recording = recorded_with_checkpoints(&program, engine, 6);
        let goals = stored(&recording);
        let alone = |goal: &Position| {
            let mut timeline = Timeline::with_pace(&recording, machine(engine), NEVER).unwrap();
            timeline.seek(*goal).unwrap();
            state(&timeline)
        };
        let expected: Vec<_> = goals.iter().map(alone).collect();
        let mut timeline = Timeline::with_pace(&recording, machine(engine), NEVER).unwrap();
        let used = |timeline: &Timeline| timeline.replay().process().memory().frames().used();
        timeline.seek(goals[0]).unwrap();
        let first = used(&timeline);
        // Back, and forward again through the same frames.
        for n in (1..goals.len()).chain((0..goals.len()).rev()) {
            timeline.seek(goals[n]).unwrap();
            assert_eq!(state(&timeline), expected[n], "on {}", engine.name());
        }
        let (more, others) = (used(&timeline) - first, goals.len() as u64 - 1);
        assert!(more < others * 128, "{more} frames more, on {}, for {others} of 256 pages", engine.name());
    }
}

#[test]
fn an_offset_behind_a_stored_checkpoint_is_exact() {
    let Some(program) = busy() else { return };
    for recorder in engines() {
        let recording = recorded_with_checkpoints(&program, recorder, 2);
        let middle = stored(&recording)[stored(&recording).len() / 2];
        let goal = Position { event: middle.event, retired: middle.retired + 3 };
        let copy = without_checkpoints(&recording);
        let mut expected = None;
        for replayer in engines() {
            for recording in [&copy, &recording] {
                let mut timeline = Timeline::with_pace(recording, machine(replayer), NEVER).unwrap();
                timeline.seek(goal).unwrap();
                let state = state(&timeline);
                let names = (recorder.name(), replayer.name());
                assert_eq!(*expected.get_or_insert(state), state, "recorded and replayed on {names:?}");
            }
        }
    }
}

/// A copy of a recording, without its checkpoints.
fn without_checkpoints(recording: &Recording) -> Recording {
    let dir = recording.dir().with_extension("copy");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir).unwrap();
    for name in ["journal", "program"] {
        fs::copy(recording.dir().join(name), dir.join(name)).unwrap();
    }
    Recording::open(&dir).unwrap()
}

#[test]
fn damage_costs_checkpoints_and_never_more() {
    let Some(program) = compiled("long", LONG, &[]) else { return };
    let recording = recorded_with_checkpoints(&program, EngineKind::Soft, 2);
    let whole = fs::read(recording.checkpoints()).unwrap();
    let goal = *stored(&recording).first().unwrap();
    let expected = {
        let mut timeline = Timeline::with_pace(&recording, machine(EngineKind::Soft), NEVER).unwrap();
        timeline.seek(goal).unwrap();
        state(&timeline)
    };
    // The last checkpoint's frame, in front of its mark, and places all over the file.
    for n in 0..10 {
        let at = if n < 4 { n * 7 } else { whole.len() / 10 * n + n };
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        if n % 4 == 3 {
            damaged.truncate(at);
        }
        fs::write(recording.checkpoints(), &damaged).unwrap();
        let mut timeline = Timeline::with_pace(&recording, machine(EngineKind::Soft), NEVER).unwrap();
        timeline.seek(goal).unwrap();
        assert_eq!(state(&timeline), expected, "byte {at} was changed");
    }
}

/// Checkpoints of another recording are not used.
#[test]
fn checkpoints_are_of_one_recording() {
    let Some(program) = busy() else { return };
    let one = program.record_with(EngineKind::Soft, &["one"], with_checkpoints());
    let kept = fs::read(one.checkpoints()).unwrap();
    let other = program.record_with(EngineKind::Soft, &["other"], with_checkpoints());
    fs::write(other.checkpoints(), kept).unwrap();
    let shelf = Shelf::open(&other).unwrap();
    assert_eq!(shelf.newest_first().count(), 0);
    assert!(shelf.notes()[0].contains("of another recording"), "{:?}", shelf.notes());
    Timeline::open(&other, machine(EngineKind::Soft)).unwrap().run_to_end().unwrap();
}

#[test]
fn seeking_from_disk_costs_a_part_of_the_way() {
    let Some(program) = compiled("long", LONG, &[]) else { return };
    let rate = Some(Rate::every(Duration::from_millis(100)));
    let options = Options { checkpoints: rate, ..Options::default() };
    let recording = program.record_with(EngineKind::Soft, &[], options);
    let goal = Position { event: 150, retired: 1000 };
    let copy = without_checkpoints(&recording);
    let timed = |recording| {
        let before = Instant::now();
        let mut timeline = Timeline::open(recording, machine(EngineKind::Soft)).unwrap();
        assert_eq!(timeline.seek(goal).unwrap(), goal);
        before.elapsed()
    };
    let (with, without) = (timed(&recording), timed(&copy));
    println!("to the middle: {with:.2?} with checkpoints on disk, {without:.2?} without");
    assert!(with * 2 < without, "{with:?} of {without:?}");
}

/// Replays to the end, and leaves checkpoints.
pub(crate) fn keeping(recording: &Recording, kind: EngineKind, rate: Rate) -> Replayed {
    let mut timeline = Timeline::open(recording, machine(kind)).unwrap();
    let mut told = Vec::new();
    let mut tell = |at: Position| {
        told.push(at);
        true
    };
    let kept = timeline.run_to_end_keeping(recording.checkpoints(), rate, &mut tell).unwrap().unwrap();
    assert!(!told.is_empty());
    let on_disk = fs::metadata(recording.checkpoints()).map_or(0, |file| file.len());
    assert_eq!((kept.checkpoints, kept.bytes), (stored(recording).len() as u64, on_disk));
    kept.replayed
}

#[test]
fn a_replay_that_leaves_checkpoints_ends_where_nobody_wants_more() {
    let Some(program) = compiled("computes", COMPUTES, &[]) else { return };
    for kind in engines() {
        let recording = program.record(kind, &[]);
        let mut timeline = Timeline::open(&recording, machine(kind)).unwrap();
        let rate = Rate::every(Duration::from_millis(40));
        // In the computation, at events before it, and in each part of it.
        let mut inside = 0;
        let mut tell = |at: Position| {
            inside += u64::from(at.retired > 0);
            inside < 3
        };
        let kept = timeline.run_to_end_keeping(recording.checkpoints(), rate, &mut tell).unwrap();
        assert!(kept.is_none() && !timeline.ended(), "{}", kind.name());
    }
}

#[test]
fn a_replay_leaves_checkpoints_in_a_computation_without_events() {
    let Some(program) = compiled("computes", COMPUTES, &[]) else { return };
    for recorder in engines() {
        let recording = program.record(recorder, &[]);
        let printed = Rc::new(RefCell::new(Vec::new()));
        let show = Rc::clone(&printed);
        let output: Output = Box::new(move |_, bytes: &[u8]| show.borrow_mut().extend_from_slice(bytes));
        let replay = Replay::start(&recording, machine(recorder), Some(output)).unwrap();
        let mut timeline = Timeline::of(replay, NEVER).unwrap();
        let rate = Rate::every(Duration::from_millis(40));
        let kept = timeline.run_to_end_keeping(recording.checkpoints(), rate, &mut |_| true).unwrap();
        let kept = kept.unwrap().replayed;
        // Going back to count is not seen: neither in what is printed nor in what is compared.
        assert_eq!(*printed.borrow(), b"before\nbehind\n", "{}", recorder.name());
        let plain = Replay::start(&recording, machine(recorder), None).unwrap().run_to_end().unwrap();
        assert_eq!((kept.digest(), kept.comparisons), (plain.digest(), plain.comparisons));
        let inside: Vec<Position> = stored(&recording).into_iter().filter(|at| at.retired > 0).collect();
        // How many hangs on how fast they are written.
        assert!(!inside.is_empty(), "none on {}", recorder.name());
        // What is there is where the next replay begins.
        let goal = inside[inside.len() / 2];
        let mut from_disk = Timeline::with_pace(&recording, machine(recorder), NEVER).unwrap();
        from_disk.seek(goal).unwrap();
        let mut from_start =
            Timeline::with_pace(&without_checkpoints(&recording), machine(recorder), NEVER).unwrap();
        from_start.seek(goal).unwrap();
        assert_eq!(state(&from_disk), state(&from_start));
        assert_eq!(from_disk.run_to_end().unwrap().digest(), plain.digest());
    }
}

#[test]
fn a_replay_leaves_checkpoints_for_the_next() {
    let Some(program) = busy() else { return };
    for recorder in engines() {
        let recording = program.record(recorder, &[]);
        let plain = Replay::start(&recording, machine(recorder), None).unwrap().run_to_end().unwrap();
        let goal = Position { event: plain.events / 2, retired: 0 };
        for replayer in engines() {
            let _ = fs::remove_file(recording.checkpoints());
            let mut timeline = Timeline::with_pace(&recording, machine(replayer), NEVER).unwrap();
            timeline.seek(goal).unwrap();
            let expected = state(&timeline);
            let kept = keeping(&recording, replayer, ALWAYS);
            assert_eq!((kept.digest(), kept.comparisons), (plain.digest(), plain.comparisons));
            // How many there are hangs on how fast they are written.
            assert!(!stored(&recording).is_empty());
            let mut timeline = Timeline::with_pace(&recording, machine(replayer), NEVER).unwrap();
            timeline.seek(goal).unwrap();
            assert_eq!(state(&timeline), expected, "on {}", replayer.name());
            assert_eq!(timeline.run_to_end().unwrap().digest(), plain.digest());
        }
    }
}
