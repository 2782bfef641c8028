//! A recording's room on disk: it ends there, and the program goes on.

use crate::{Place, USAGE, engines};
use serde_json::Value;
use std::fs;

/// Asks so many times for 16 kB of random bytes, and ends with status 5 or, with a second argument, crashes.
const READER: &str = r"
    #include <stdlib.h>
    #include <sys/random.h>
    static unsigned char bytes[16384];
    static int crash(volatile int *at) { return *at + 1; }
    int main(int argc, char **argv) {
        volatile unsigned sum = 0;
        for (long n = 0; n < atol(argv[1]); n++) {
            getrandom(bytes, sizeof bytes, 0);
            for (int k = 0; k < sizeof bytes; k++) sum = sum * 31 + bytes[k];
        }
        return argc > 2 ? crash((int *)8) : 5;
    }";

/// The room: about a hundred of the program's reads.
const ROOM: u64 = 3 << 20;

/// How many bytes a recording has, but for its core.
fn size(place: &Place, recording: &str) -> u64 {
    let files = ["", "files"].map(|folder| fs::read_dir(place.path(recording).join(folder)));
    let files = files.into_iter().flatten().flatten().flatten();
    let counted = files.filter(|file| file.file_name() != "core").filter_map(|file| file.metadata().ok());
    counted.filter(fs::Metadata::is_file).map(|found| found.len()).sum()
}

#[test]
fn a_recording_ends_at_its_room_and_the_program_goes_on() {
    let place = Place::new();
    let Some(_) = place.compile("reader", READER) else { return };
    for engine in engines() {
        let line = [
            "record", "--engine", engine, "--disk", "3M", "-o", engine, "--json", "json", "--", "./reader",
            "600",
        ];
        let recorded = place.gretel(&line);
        assert_eq!(recorded.code, 5, "{}", recorded.err);
        assert!(recorded.err.contains("the program goes on"), "{}", recorded.err);
        assert!(recorded.err.contains("(--disk) was used up"), "{}", recorded.err);
        let summary: Value = serde_json::from_slice(&fs::read(place.path("json")).unwrap()).unwrap();
        assert_eq!((&summary["ends_before_program"], &summary["status"]), (&true.into(), &5.into()));
        let bytes = size(&place, engine);
        assert!((ROOM / 2..ROOM + (64 << 10)).contains(&bytes), "{bytes} bytes");
        for other in engines() {
            let replayed = place.replay(engine, other);
            assert_eq!((&replayed["end"], &replayed["events"]), (&"full".into(), &summary["events"]));
        }
    }
}

#[test]
fn a_crash_behind_the_recordings_end_leaves_a_core_with_its_branches() {
    let place = Place::new();
    let Some(_) = place.compile("reader", READER) else { return };
    let recorded = place
        .gretel(&["record", "--engine", "soft", "--disk", "3M", "-o", "rec", "--", "./reader", "600", "x"]);
    assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
    let shown = place.gretel(&["core", "rec"]);
    assert!(shown.code == 0 && shown.out().contains("crash"), "{}{}", shown.out(), shown.err);
    assert_eq!(place.replay("rec", "soft")["end"], "full");
}

/// Reads a file of 8 MB at once, and maps it.
const GULPER: &str = r"
    #include <fcntl.h>
    #include <sys/mman.h>
    #include <unistd.h>
    static unsigned char bytes[8 << 20];
    int main(int argc, char **argv) {
        int fd = open(argv[1], O_RDONLY);
        if (argc > 2) return *(char *)mmap(0, sizeof bytes, PROT_READ, MAP_PRIVATE, fd, 0) == 1;
        long count = 0, got;
        while ((got = read(fd, bytes, sizeof bytes)) > 0) count += got;
        return count != sizeof bytes;
    }";

/// One input that is larger than the room, and that no compression makes less, is not in the recording; one of zeroes is.
#[test]
fn a_recording_ends_in_front_of_an_input_that_has_no_room() {
    let place = Place::new();
    let Some(_) = place.compile("gulper", GULPER) else { return };
    let mut state = 1_u64;
    let random: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    })
    .take(8 << 20)
    .collect();
    place.write("random", &random);
    place.write("zeroes", vec![0; 8 << 20]);
    for engine in engines() {
        for (file, mapped, end) in
            [("random", false, "full"), ("random", true, "full"), ("zeroes", false, "exited")]
        {
            let mut line = vec![
                "record", "--engine", engine, "--force", "--disk", "3M", "-o", "rec", "--", "./gulper", file,
            ];
            line.extend(mapped.then_some("mapped"));
            let recorded = place.gretel(&line);
            assert_eq!(recorded.code, 0, "{file}: {}", recorded.err);
            assert_eq!(
                recorded.err.contains("the program goes on"),
                end == "full",
                "{file}: {}",
                recorded.err
            );
            let bytes = size(&place, "rec");
            assert!(bytes < ROOM + (64 << 10), "{file}: {bytes} bytes");
            for other in engines() {
                assert_eq!(place.replay("rec", other)["end"], end, "{file}");
            }
        }
    }
}

#[test]
fn a_recording_that_fits_has_its_end() {
    let place = Place::new();
    let Some(_) = place.compile("reader", READER) else { return };
    let recorded =
        place.gretel(&["record", "--engine", "soft", "--disk", "50M", "-o", "rec", "--", "./reader", "100"]);
    assert!(recorded.code == 5 && !recorded.err.contains("room"), "{}", recorded.err);
    assert_eq!(place.replay("rec", "soft")["end"], "exited");
}

#[test]
fn a_flight_recorder_has_its_room_already() {
    let place = Place::new();
    let refused = place.gretel(&["record", "--disk", "3M", "--flight", "3M", "--", "true"]);
    assert_eq!(refused.code, USAGE, "{}", refused.err);
    assert!(refused.err.contains("--flight"), "{}", refused.err);
}
