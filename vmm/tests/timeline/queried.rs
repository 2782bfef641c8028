//! What checkpoints on disk save who goes to the end, or looks back for a store: and that they hide nothing.

use crate::harness::{compiled, engines, machine};
use crate::stored::{ALWAYS, keeping, recorded_with_checkpoints, with_checkpoints};
use std::fs;
use std::thread::available_parallelism;
use std::time::Duration;
use vmm::engine::EngineKind;
use vmm::engine::lookout::{Access, Lookout, Watch};
use vmm::position::Position;
use vmm::ram::Virt;
use vmm::record::Options;
use vmm::recording::Recording;
use vmm::travel::{Stop, Travel};

const PAGES: Virt = 0x1000_0000;
/// Of [`TURNS`] turns with a call each, the first page is stored to in two, to be what it was again, and the second in each: to its
/// first word, and once to its second.
const TURNS: usize = 60;
const STORES: &str = r#"
    #include <sys/mman.h>
    #include <unistd.h>
    int main(int arguments, char **named) {
        long turns = arguments > 1 ? 30000000 : 300000;
        volatile long *pages = mmap((void *)0x10000000, 8192, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        pages[0] = 1;
        for (int turn = 0; turn < 60; turn++) {
            if (turn == 10) pages[0] = 2;
            if (turn == 20) pages[0] = 1;
            pages[512] = turn;
            if (turn == 30) pages[513] = turn;
            for (volatile long n = 0; n < turns; n++) {}
            getppid();
        }
        return pages[0];
    }"#;

fn writes_to(address: Virt) -> Lookout {
    Lookout { at: Vec::new(), data: vec![Watch { range: address..address + 8, access: Access::Write }] }
}

/// Where the stores are, the last one first.
fn writes_backwards(travel: &mut Travel, address: Virt) -> Vec<Position> {
    travel.seek_end().unwrap();
    let mut found = Vec::new();
    while travel.backward(&writes_to(address)).unwrap() != Stop::Begin {
        found.push(travel.position());
    }
    found
}

#[test]
fn a_store_long_ago_is_found_without_what_lies_between() {
    let Some(program) = compiled("seldom", STORES, &[]) else { return };
    for recorder in engines() {
        let recording = recorded_with_checkpoints(&program, recorder, 6);
        for replayer in engines() {
            let mut with = Travel::open(&recording, machine(replayer)).unwrap();
            // Who narrows a stretch keeps checkpoints in it.
            with.narrow_from(Duration::MAX);
            with.seek_end().unwrap();
            let at_end = with.timeline().checkpoints().count();
            assert!(matches!(with.backward(&writes_to(PAGES)).unwrap(), Stop::Accessed(it) if it.writes));
            let last = with.position();
            let in_memory = with.timeline().checkpoints().count();
            assert!(in_memory <= at_end + 4, "{in_memory} after {at_end} were brought into memory");

            let away = recording.dir().join("away");
            let all = |travel: &mut Travel, long| {
                travel.narrow_from(long);
                [PAGES, PAGES + 4096, PAGES + 4104].map(|address| writes_backwards(travel, address))
            };
            let with = all(&mut with, Duration::MAX);
            fs::rename(recording.checkpoints(), &away).unwrap();
            let mut without = Travel::open(&recording, machine(replayer)).unwrap();
            let narrowed = all(&mut without, Duration::ZERO);
            let without = all(&mut without, Duration::MAX);
            assert_eq!(narrowed, without, "recorded on {}, on {}", recorder.name(), replayer.name());
            fs::rename(&away, recording.checkpoints()).unwrap();
            assert_eq!(with, without, "recorded on {}, looked for on {}", recorder.name(), replayer.name());
            // The mapping is one, too.
            assert_eq!((with.each_ref().map(Vec::len), with[0][0]), ([4, TURNS + 1, 2], last));
        }
    }
}

/// Each of sixty turns stores to all of 64 pages but one, which is stored to in one turn alone.
const SURROUNDED: &str = r#"
    #include <sys/mman.h>
    #include <unistd.h>
    int main(void) {
        volatile long *pages = mmap((void *)0x10000000, 64 * 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        for (int turn = 0; turn < 60; turn++) {
            for (int page = 1; page < 64; page++) pages[512 * page] = turn;
            if (turn == 10) pages[0] = 1;
            for (volatile long n = 0; n < 300000; n++) {}
            getppid();
        }
        return 0;
    }"#;

#[test]
fn a_page_among_others_that_are_stored_to_all_the_time_is_known_by_itself() {
    let Some(program) = compiled("surrounded", SURROUNDED, &[]) else { return };
    for engine in engines() {
        let recording = program.record(engine, &[]);
        keeping(&recording, engine, ALWAYS);
        let mut travel = Travel::open(&recording, machine(engine)).unwrap();
        travel.narrow_from(Duration::MAX);
        travel.seek_end().unwrap();
        let at_end = travel.timeline().checkpoints().count();
        assert!(matches!(travel.backward(&writes_to(PAGES)).unwrap(), Stop::Accessed(it) if it.writes));
        let in_memory = travel.timeline().checkpoints().count();
        assert!(
            in_memory <= at_end + 4,
            "{in_memory} after {at_end} were brought into memory, on {}",
            engine.name()
        );
    }
}

/// A word beside one that is stored to in each of sixty turns gets a value, and the same once more.
const AGAIN: &str = r#"
    #include <sys/mman.h>
    #include <unistd.h>
    int main(void) {
        volatile long *words = mmap((void *)0x10000000, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        for (int turn = 0; turn < 60; turn++) {
            words[0] = turn;
            if (turn == 5 || turn == 15) words[1] = 7;
            if (turn == 58) words[2] = 8;
            for (volatile long n = 0; n < 300000; n++) {}
            getppid();
        }
        return words[1];
    }"#;

#[test]
fn a_change_beside_what_is_stored_to_all_the_time_is_found_without_each_store_and_that_is_said() {
    let Some(program) = compiled("again", AGAIN, &[]) else { return };
    let recording = program.record(EngineKind::Soft, &[]);
    for engine in engines() {
        let mut travel = Travel::open(&recording, machine(engine)).unwrap();
        let mut last = |address, by_changes| {
            travel.seek_end().unwrap();
            travel.narrow_from(Duration::ZERO);
            travel.look_for_changes(by_changes);
            assert!(matches!(travel.backward(&writes_to(address)).unwrap(), Stop::Accessed(it) if it.writes));
            (travel.position(), travel.passed_over())
        };
        let (again, exact) = last(PAGES + 8, false);
        let (first, passed_over) = last(PAGES + 8, true);
        assert_eq!(exact, None, "on {}", engine.name());
        // Where no processor is faster than the one that counts, each store is looked at.
        let Some((from, to)) = passed_over else {
            assert_eq!((first, engine), (again, EngineKind::Soft));
            continue;
        };
        assert!(first < from && from <= again && again < to, "{first}, {again}: {from} to {to}");
        assert_eq!(again.event - first.event, 10, "on {}", engine.name());
        // What is near is looked at store by store.
        assert_eq!(last(PAGES + 16, true), last(PAGES + 16, false), "on {}", engine.name());
    }
}

/// In each of sixty turns a word is stored to twice, and is in the end what it was.
const UNDONE: &str = r#"
    #include <sys/mman.h>
    #include <unistd.h>
    int main(void) {
        volatile long *words = mmap((void *)0x10000000, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        for (int turn = 0; turn < 60; turn++) {
            words[0] = 2;
            words[0] = 1;
            for (volatile long n = 0; n < 300000; n++) {}
            getppid();
        }
        return words[0];
    }"#;

#[test]
fn a_store_that_is_undone_is_found_between_checkpoints_that_hold_the_same() {
    let Some(program) = compiled("undone", UNDONE, &[]) else { return };
    for engine in engines() {
        let recording = recorded_with_checkpoints(&program, engine, 6);
        let mut travel = Travel::open(&recording, machine(engine)).unwrap();
        assert_eq!(writes_backwards(&mut travel, PAGES).len(), 121, "on {}, with the mapping", engine.name());
    }
}

/// Two neighbours of a word are stored to in each of three million turns, and loaded; the word itself in thirty, and loaded in six.
const NEIGHBOURS: &str = r#"
    #include <sys/mman.h>
    int main(void) {
        volatile long *words = mmap((void *)0x10000000, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        long seen = 0;
        for (long turn = 1; turn <= 3000000; turn++) {
            words[4] += turn;
            if (turn % 100000 == 0) words[5] = turn;
            if (turn % 500000 == 0) seen += words[5];
            words[6] += turn;
        }
        return seen & 1;
    }"#;

#[test]
fn stores_beside_what_is_watched_hide_none_to_it() {
    let Some(program) = compiled("neighbours", NEIGHBOURS, &["-O1"]) else { return };
    for engine in engines() {
        let recording = program.record(engine, &[]);
        let mut travel = Travel::open(&recording, machine(engine)).unwrap();
        assert_eq!(
            writes_backwards(&mut travel, PAGES + 40).len(),
            31,
            "on {}, with the mapping",
            engine.name()
        );
        let all = Watch { range: PAGES + 40..PAGES + 48, access: Access::Any };
        let all = Lookout { at: Vec::new(), data: vec![all] };
        let mut stops = 0;
        while travel.forward(&all).unwrap() != Stop::End {
            stops += 1;
        }
        assert_eq!(stops, 37, "forward, on {}, with the mapping", engine.name());
    }
}

/// In each of 40 turns a page is mapped, stored to and unmapped; another one shows what is written to a file, in two turns.
const MAPPINGS: &str = r#"
    #define _GNU_SOURCE
    #include <sys/mman.h>
    #include <unistd.h>
    int main(void) {
        int file = memfd_create("file", 0);
        long word = 1;
        ftruncate(file, 4096);
        volatile long *shown = mmap((void *)0x20000000, 4096, 3, MAP_PRIVATE | MAP_FIXED, file, 0);
        for (int turn = 0; turn < 40; turn++) {
            volatile long *page = mmap((void *)0x10000000, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            *page = turn + shown[0];
            munmap((void *)page, 4096);
            if (turn == 10 || turn == 30) pwrite(file, &word, 8, 0), word++;
            for (volatile long n = 0; n < 300000; n++) {}
            getppid();
        }
        return shown[0];
    }"#;

#[test]
fn stores_to_what_is_mapped_for_a_moment_and_to_files_are_found_at_full_speed_too() {
    let Some(program) = compiled("mappings", MAPPINGS, &[]) else { return };
    for recorder in engines() {
        let recording = program.record_with(recorder, &[], Options::default());
        for replayer in engines() {
            let found = |long| {
                let mut travel = Travel::open(&recording, machine(replayer)).unwrap();
                travel.narrow_from(long);
                [PAGES, 0x2000_0000].map(|address| writes_backwards(&mut travel, address))
            };
            let (narrowed, whole) = (found(Duration::ZERO), found(Duration::MAX));
            assert_eq!(narrowed, whole, "recorded on {}, on {}", recorder.name(), replayer.name());
            assert!(whole[0].len() >= 40 && whole[1].len() == 3, "{:?}", whole.map(|found| found.len()));
        }
    }
}

/// In each of eight turns a child stores to what it shares with its parent, which waits until the child has computed, and called.
const SHARED: &str = r#"
    #include <sys/mman.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int main(void) {
        volatile long *word = mmap((void *)0x10000000, 4096, 3, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        for (int turn = 1; turn <= 8; turn++) {
            if (fork() == 0) {
                *word = turn;
                for (int call = 0; call < 4; call++) {
                    for (volatile long n = 0; n < 300000; n++) {}
                    getppid();
                }
                _exit(0);
            }
            wait(0);
        }
        return 0;
    }"#;

#[test]
fn what_another_process_stores_is_found_across_checkpoints_before_its_own_process_runs() {
    let Some(program) = compiled("shared", SHARED, &[]) else { return };
    for engine in engines() {
        let recording = program.record(engine, &[]);
        keeping(&recording, engine, ALWAYS);
        let mut travel = Travel::open(&recording, machine(engine)).unwrap();
        let mut forward = 0;
        while travel.forward(&writes_to(PAGES)).unwrap() != Stop::End {
            forward += 1;
        }
        let back = writes_backwards(&mut travel, PAGES).len();
        assert_eq!((forward, back), (9, 9), "with the mapping, on {}", engine.name());
    }
}

#[test]
fn an_access_long_ago_is_found_by_two_as_by_one() {
    let Some(program) = compiled("seldom", STORES, &[]) else { return };
    let reads =
        Lookout { at: Vec::new(), data: vec![Watch { range: PAGES..PAGES + 8, access: Access::Any }] };
    for recorder in engines() {
        let recording = program.record_with(recorder, &["slowly"], with_checkpoints());
        let back = |travel: &mut Travel| {
            travel.seek_end().unwrap();
            // The last one is near; the one before it, far.
            let stops = [travel.backward(&reads).unwrap(), travel.backward(&reads).unwrap()];
            (stops, travel.position())
        };
        let mut two = Travel::open(&recording, machine(EngineKind::Soft)).unwrap();
        let by_two = back(&mut two);
        fs::remove_file(recording.checkpoints()).unwrap();
        let mut one = Travel::open(&recording, machine(EngineKind::Soft)).unwrap();
        assert_eq!(by_two, back(&mut one), "recorded on {}", recorder.name());
        assert_eq!(one.scouted(), 0);
        let is_alone = available_parallelism().map_or(1, usize::from) < 2;
        assert!(is_alone || two.scouted() > 2, "{} on {}", two.scouted(), recorder.name());
    }
}

#[test]
fn who_goes_to_the_end_passes_over_no_damage() {
    let Some(program) = compiled("seldom", STORES, &[]) else { return };
    for kind in engines() {
        let recording = program.record_with(kind, &[], with_checkpoints());
        let end_of = |recording: &Recording| {
            let mut travel = Travel::open(recording, machine(kind)).unwrap();
            travel.seek_end().unwrap();
            (travel.position(), travel.damage())
        };
        let mut whole = Travel::open(&recording, machine(kind)).unwrap();
        while whole.next_event().unwrap() {}
        let (end, damage) = end_of(&recording);
        assert_eq!((end.event, damage), (whole.position().event, None));

        // One byte of its middle; the checkpoints behind it are whole.
        let mut bytes = fs::read(recording.journal()).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        fs::write(recording.journal(), &bytes).unwrap();
        let (torn, damage) = end_of(&recording);
        assert!(torn < end, "{torn:?} {end:?}");
        let damage = damage.expect("damage is told");
        assert!(damage.offset <= middle as u64, "{damage:?}");
    }
}
