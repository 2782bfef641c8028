//! Programs that work against their own recording, and recordings that somebody else has altered.

use crate::{DAMAGED, HOST, OTHER, PROGRAM, Place, WRITE, engines, skipped};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::Write;

/// Cuts or removes the files that it is given, then makes system calls.
const ALTERS: &str = r#"
    #include <string.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        for (int i = 2; i < argc; i++)
            if (!strcmp(argv[1], "cut") ? truncate(argv[i], 0) : unlink(argv[i])) return 1;
        for (int i = 0; i < 20000; i++) getppid();
        return 7;
    }"#;

#[test]
fn crumbs_that_the_program_cuts_are_lost_and_the_recording_is_not() {
    let place = Place::new();
    let Some(_) = place.compile("alters", ALTERS) else { return };
    let start = ["record", "--engine", "soft", "--contexts", "-o", "rec", "--", "./alters"];
    let recorded = place.gretel(&[&start[..], &["cut", "rec/crumbs-0", "rec/contexts-0"]].concat());
    assert_eq!(recorded.code, 7, "{}", recorded.err);
    assert!(recorded.err.contains("truncated while they are written"), "{}", recorded.err);
    assert_eq!(place.replay("rec", "soft")["status_or_signal"], 7);
}

#[test]
fn a_journal_that_the_program_takes_away_is_no_recording() {
    let place = Place::new();
    let Some(_) = place.compile("alters", ALTERS) else { return };
    for how in ["cut", "remove"] {
        let start = ["record", "--engine", "soft", "-o", how, "--", "./alters", how];
        let recorded = place.gretel(&[&start[..], &[&format!("{how}/journal")]].concat());
        assert_eq!(recorded.code, WRITE, "{}", recorded.err);
        assert!(recorded.err.contains("journal was removed, replaced or cut"), "{}", recorded.err);
        assert!(!recorded.err.contains("recorded in"), "{}", recorded.err);
    }
}

#[test]
fn bytes_behind_the_end_of_a_journal_are_reported() {
    let place = Place::new();
    assert_eq!(place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "busybox", "true"]).code, 0);
    let mut journal = OpenOptions::new().append(true).open(place.path("rec/journal")).unwrap();
    journal.write_all(b"more").unwrap();
    let replayed = place.gretel(&["replay", "--engine", "soft", "rec"]);
    assert_eq!(replayed.code, DAMAGED, "{}", replayed.err);
    assert!(replayed.err.contains("behind its end record"), "{}", replayed.err);
    assert!(replayed.err.contains("(4 bytes cannot be used)"), "{}", replayed.err);
    assert!(replayed.out().contains("exited 0"), "{}", replayed.out());
}

/// An instruction without semantics: the recorder says so and stops, and the recording has an end that says that.
#[test]
fn a_recorder_that_cannot_go_on_was_not_killed() {
    let place = Place::new();
    let source = "#include <stdio.h>\nint main(void) { unsigned limit = 0; puts(\"before\"); fflush(stdout);\n\
        asm volatile(\"lsl %1, %0\" : \"+r\"(limit) : \"r\"(0x2b)); return 0; }";
    let Some(_) = place.compile("limit", source) else { return };
    let recorded = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./limit"]);
    assert_eq!((recorded.code, recorded.out()), (OTHER, "before\n".to_owned()), "{}", recorded.err);
    for engine in engines() {
        let replayed = place.gretel(&["replay", "--json", "--engine", engine, "rec"]);
        assert_eq!(replayed.code, 0, "{}", replayed.err);
        assert!(
            replayed.err.contains("could not go on") && !replayed.err.contains("killed"),
            "{}",
            replayed.err
        );
        let result: Value = serde_json::from_str(&replayed.out()).unwrap();
        assert_eq!((&result["end"], &result["equal"]), (&"stopped".into(), &true.into()));
    }
}

#[test]
fn a_ring_that_was_removed_is_not_said_to_have_been_left_out() {
    let place = Place::new();
    assert_eq!(place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "busybox", "true"]).code, 0);
    fs::remove_file(place.path("rec/crumbs-0")).unwrap();
    let shown = place.gretel(&["core", "--crumbs", "rec"]);
    assert_eq!(shown.code, DAMAGED);
    assert!(shown.err.contains("or its crumbs-0 was removed"), "{}", shown.err);
}

/// A FIFO that nobody writes to, and a device without an end, in each place where a file is read whole.
#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let place = Place::new();
    assert_eq!(place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "busybox", "true"]).code, 0);
    let refused = |arguments: &[&str], code: i32, what: &str| {
        let ran = place.gretel(arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(what), "{arguments:?}: {}", ran.err);
    };
    let not_regular = "not a regular file";
    refused(&["core", "/dev/zero"], DAMAGED, not_regular);
    refused(&["core", "--exe", "/dev/zero", "/dev/zero"], DAMAGED, not_regular);
    for file in ["crumbs-0", "program", "journal"] {
        let path = place.path(&format!("rec/{file}"));
        let kept = place.path("kept");
        fs::rename(&path, &kept).unwrap();
        for make in [&["mkfifo"][..], &["ln", "-s", "/dev/zero"]] {
            assert!(place.command(make[0], &make[1..]).arg(&path).status().unwrap().success());
            match file {
                "crumbs-0" => refused(&["core", "--crumbs", "rec"], DAMAGED, not_regular),
                "program" => refused(&["replay", "--engine", "soft", "rec"], DAMAGED, not_regular),
                _ => refused(&["replay", "rec"], DAMAGED, "is not a recording"),
            }
            fs::remove_file(&path).unwrap();
        }
        fs::rename(&kept, &path).unwrap();
    }
    place.replay("rec", "soft");
}

#[test]
fn a_program_whose_linker_is_a_device_is_refused() {
    let place = Place::new();
    let file = place.write("empty.c", "int main(void) { return 0; }\n");
    let file = file.to_str().expect("temporary directories have plain names");
    let made = place.command("gcc", &["-o", "lost", "-Wl,--dynamic-linker=/dev/zero", file]).status();
    if !made.is_ok_and(|status| status.success()) {
        return skipped("a program with another linker", "gcc cannot make it");
    }
    let refused = place.gretel(&["record", "-o", "rec", "--", "./lost"]);
    assert_eq!(refused.code, PROGRAM, "{}", refused.err);
    assert!(
        refused.err.contains("/dev/zero") && refused.err.contains("not a regular file"),
        "{}",
        refused.err
    );
}

/// Uses 40 MiB, and crashes.
const LARGE: &str = "#include <stdlib.h>\n#include <string.h>\n\
    int main(void) { memset(malloc(40 << 20), 7, 40 << 20); *(volatile int *)8 = 1; }";

#[test]
fn too_little_memory_for_a_core_is_an_error_and_no_abort() {
    let place = Place::new();
    let Some(_) = place.compile("large", LARGE) else { return };
    assert_eq!(place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./large"]).code, 128 + 11);
    let gretel = env!("CARGO_BIN_EXE_gretel");
    for mib in (80..400).step_by(20) {
        let shown = place.sh(&format!("ulimit -v {}; {gretel} core rec", mib << 10));
        assert!([0, HOST, DAMAGED].contains(&shown.code), "{mib} MiB: {} {}", shown.code, shown.err);
        assert!(shown.code == 0 || shown.err.contains("memory"), "{mib} MiB: {}", shown.err);
    }
}

/// A terabyte of which three pages are touched.
const SPARSE: &str = "#include <sys/mman.h>\nchar *volatile p;\nint main(void) {\n\
    p = mmap(0, 1UL << 40, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);\n\
    p[5] = 1; p[1UL << 39] = 2; p[(1UL << 39) + 90000] = 3;\n    *(volatile int *)8 = 1; }";

#[test]
fn the_core_of_a_program_with_a_terabyte_is_as_large_as_what_it_touched() {
    let place = Place::new();
    let Some(_) = place.compile("sparse", SPARSE) else { return };
    for engine in engines() {
        let recorded = place.gretel(&["record", "--engine", engine, "-o", engine, "--", "./sparse"]);
        assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
        let core = place.path(&format!("{engine}/core"));
        assert!(fs::metadata(&core).unwrap().len() < 64 << 20);
        let shown = place.gretel(&["core", engine]);
        assert!(shown.code == 0 && shown.out().contains("(not in the core)"), "{}{}", shown.out(), shown.err);
        let values = ["-batch", "-ex", "p p[5] + p[1UL << 39] * 10 + p[(1UL << 39) + 90000] * 100", "sparse"];
        match place.command("gdb", &values).arg(&core).output() {
            Err(error) => skipped("gdb", &error.to_string()),
            Ok(shown) => assert!(String::from_utf8_lossy(&shown.stdout).contains("= 321"), "{shown:?}"),
        }
    }
}

/// An overflow that the sanitizer finds; it aborts, with shadow memory of terabytes.
const OVERFLOW: &str = "#include <stdlib.h>\nconst char *__asan_default_options(void) { return \"abort_on_error=1\"; }\n\
    int main(int argc, char **argv) { volatile int *p = malloc(40); return p[10 * argc]; }";

#[test]
fn a_program_under_address_sanitizer_leaves_a_core() {
    let place = Place::new();
    let file = place.write("sanitized.c", OVERFLOW);
    let file = file.to_str().expect("temporary directories have plain names");
    let made = place.command("gcc", &["-g", "-fsanitize=address", "-o", "sanitized", file]).status();
    if !made.is_ok_and(|status| status.success()) {
        return skipped("a program under AddressSanitizer", "gcc cannot make it (is libasan installed?)");
    }
    for engine in engines() {
        let recorded = place.gretel(&["record", "--engine", engine, "-o", engine, "--", "./sanitized"]);
        assert_eq!(recorded.code, 128 + 6, "{}", recorded.err);
        assert!(recorded.err.contains("heap-buffer-overflow"), "{}", recorded.err);
        let shown = place.gretel(&["core", engine]);
        assert!(shown.code == 0 && shown.out().contains("main+"), "{}{}", shown.out(), shown.err);
    }
}
