//! The flight recorder: the newest window, bounded, that replays on every engine.

use crate::harness::{Compiled, compiled, engines, machine};
use std::fs;
use vmm::checkpoints::Shelf;
use vmm::journal::End;
use vmm::position::Position;
use vmm::record::Options;
use vmm::recording::Recording;
use vmm::replay::Replay;
use vmm::timeline::Timeline;

/// Asks for so many kilobytes of random bytes, which no compression makes fewer, and keeps their sum.
const READER: &str = r"
    #include <stdlib.h>
    #include <sys/random.h>
    static unsigned char bytes[16384];
    static unsigned table[50000];
    int main(int argc, char **argv) {
        unsigned sum = 0;
        for (long n = 0; n < atol(argv[1]); n += 16) {
            getrandom(bytes, sizeof bytes, 0);
            for (int k = 0; k < sizeof bytes; k++) table[sum % 50000] += sum = sum * 31 + bytes[k];
        }
        return argc > 2 ? *(volatile int *)8 : sum % 100;
    }";

const ROOM: u64 = 4 << 20;

fn reader() -> Option<Compiled> {
    compiled("reader", READER, &[])
}

fn flight() -> Options {
    Options { flight: Some(ROOM), ..Options::default() }
}

fn size(recording: &Recording) -> u64 {
    recording.segments().unwrap().iter().map(|segment| segment.size()).sum()
}

#[test]
fn the_window_is_bounded_and_replays_to_the_same_end() {
    let Some(program) = reader() else { return };
    for recorder in engines() {
        let recording = program.record_with(recorder, &["20000"], flight());
        assert!(size(&recording) <= ROOM, "{} bytes on {}", size(&recording), recorder.name());
        let segments = recording.segments().unwrap();
        assert!(segments[0].number > 10 && segments.len() > 1, "{segments:?}");
        let mut ends = Vec::new();
        for replayer in engines() {
            let mut replay = Replay::start(&recording, machine(replayer), None).unwrap();
            let begins = replay.window_begins().expect("a window");
            assert!(begins.event > 500, "{begins}");
            let end = replay.run_to_end().unwrap();
            assert!(matches!(end.end, Some(End::Exited(_))) && end.damage.is_none(), "{end:?}");
            ends.push((begins, end.digest(), end.events));
            let mut timeline = Timeline::open(&recording, machine(replayer)).unwrap();
            let middle = Position { event: begins.event.midpoint(end.events), retired: 0 };
            assert_eq!(timeline.seek(middle).unwrap(), middle);
            // What is before the window is not there: it stands at the beginning.
            assert_eq!(timeline.seek(Position { event: 3, retired: 0 }).unwrap(), begins);
            assert_eq!(timeline.run_to_end().unwrap().digest(), end.digest());
        }
        assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "{ends:?}");
    }
}

#[test]
fn a_window_that_never_filled_begins_with_the_program() {
    let Some(program) = reader() else { return };
    for recorder in engines() {
        let recording = program.record_with(recorder, &["64"], flight());
        let mut replay = Replay::start(&recording, machine(recorder), None).unwrap();
        assert_eq!(replay.window_begins(), None);
        assert!(replay.run_to_end().unwrap().end.is_some());
    }
}

#[test]
fn a_segment_without_a_whole_checkpoint_is_not_begun_with() {
    let Some(program) = reader() else { return };
    let kind = engines()[0];
    let recording = program.record_with(kind, &["20000"], flight());
    let segments = recording.segments().unwrap();
    let expected = Replay::start(&recording, machine(kind), None).unwrap().run_to_end().unwrap();
    let first = segments[0].checkpoints();
    let whole = fs::read(&first).unwrap();
    // Cut short: the next segment is where it begins.
    fs::write(&first, &whole[..whole.len() / 2]).unwrap();
    let shelf = Shelf::open(&recording).unwrap();
    assert_eq!(shelf.journals()[0], segments[1].journal());
    assert!(shelf.notes()[0].contains("first checkpoint is not whole"), "{:?}", shelf.notes());
    let again = Replay::start(&recording, machine(kind), None).unwrap().run_to_end().unwrap();
    assert_eq!(again.digest(), expected.digest());
    // Damaged inside: that is said, with file and offset.
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&first, damaged).unwrap();
    let error = Replay::start(&recording, machine(kind), None).err().expect("damage").to_string();
    assert!(error.contains("damaged at offset 0x") && error.contains("flight"), "{error}");
    // Another journal's file where the next segment should be.
    fs::write(&first, whole).unwrap();
    fs::write(segments[1].journal(), b"").unwrap();
    let cut = Replay::start(&recording, machine(kind), None).unwrap().run_to_end().unwrap();
    assert!(cut.end.is_none() && cut.damage.is_some());
}

#[test]
fn a_crash_in_a_window_has_its_last_branches() {
    let Some(program) = reader() else { return };
    for recorder in engines() {
        let options = Options { near_past: true, ..flight() };
        let recording = program.record_with(recorder, &["8000", "crash"], options);
        let derived = vmm::trail::derive(&recording, machine(recorder), 32, lbr::Filter::ANY).unwrap();
        assert_eq!(derived.trail.records.len(), 32, "on {}", recorder.name());
    }
}
