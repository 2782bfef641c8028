//! Programs that a PVH loader enters: guest-images/pvh, of 64 and of 32 bits.

use super::{ABORTED, replayed, typed};
use crate::{PROGRAM, Place, Ran};
use serde_json::Value;
use std::fs;
use std::path::Path;

const WIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/guest-images/build/pvh");
const NARROW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/guest-images/build/pvh-32");

fn record(place: &Place, kernel: &str, cmdline: &str, more: &[&str]) -> Ran {
    assert!(Path::new(kernel).exists(), "{kernel} is missing: make guests");
    let arguments = ["record", "--kernel", kernel, "-o", "rec", "--force", "--cmdline", cmdline];
    place.gretel(&[&arguments, more].concat())
}

/// What the ABI promises is there, by the program's own checks, and what was given is what it prints.
#[test]
fn a_program_finds_what_the_abi_promises() {
    let place = Place::new();
    place.write("module", b"of a module");
    for kernel in [WIDE, NARROW] {
        let ran = record(&place, kernel, "a b=c", &["--initrd", "module", "--memory", "32M"]);
        let printed = "magic: ok\r\nversion: ok\r\nstate: ok\r\nrsdp: ok\r\ncommand line: a b=c\r\n\
                       memory: 0x0 0x9f000 0x1\r\nmemory: 0x9f000 0x61000 0x2\r\nmemory: 0x100000 0x1f00000 0x1\r\n\
                       module: 0xb bytes, of a module\r\nEND\r\n";
        assert_eq!((ran.code, ran.out().as_str()), (0, printed), "{kernel}: {}", ran.err);
        assert!(ran.err.contains("switched itself off"), "{}", ran.err);
        let result = replayed(&place);
        assert_eq!((&result["end"], &result["equal"]), (&"power-off".into(), &true.into()));
        assert_eq!(place.gretel(&["replay", "rec", "--output"]).out(), printed);

        let ran = record(&place, kernel, "exit", &[]);
        assert!(ran.code == 7 && !ran.out().contains("module"), "{kernel}: {} {}", ran.code, ran.out());
        assert_eq!(replayed(&place)["equal"], Value::from(true));
    }
}

/// A program that polls COM1 needs no interrupt to be typed to.
#[test]
fn a_program_that_polls_is_typed_to() {
    let place = Place::new();
    for kernel in [WIDE, NARROW] {
        let arguments = ["record", "--kernel", kernel, "-o", "rec", "--force", "--cmdline", "poll"];
        let ran = typed(&place, &arguments, b"some text\r");
        assert_eq!(ran.code, 0, "{kernel}: {}", ran.err);
        assert!(ran.out().ends_with("some text\r\nEND\r\n"), "{}", ran.out());
        let result = replayed(&place);
        assert_eq!((&result["typed"], &result["equal"]), (&10.into(), &true.into()));
        assert_eq!(place.gretel(&["replay", "rec", "--output"]).out(), ran.out());
    }
}

/// A crash without a table of interrupts is a triple fault at the instruction that crashed; the core is of that moment.
#[test]
fn a_crash_is_where_it_was() {
    let place = Place::new();
    let crashed = |kernel: &str, vector: u64| {
        let ran = record(&place, kernel, "crash", &[]);
        assert_eq!(ran.code, ABORTED, "{kernel}: {}", ran.err);
        assert!(ran.err.contains("triple fault at 0x1"), "{}", ran.err);
        assert_eq!(replayed(&place)["end"], Value::from("triple-fault"));
        let ran = place.gretel(&["core", "--json", "rec"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let core: Value = serde_json::from_str(&ran.out()).expect("JSON");
        assert_eq!(core["crash"]["vector"], Value::from(vector), "{core}");
    };
    crashed(WIDE, 14);
    // Not so far that it would come to what was printed, whose length nothing tells.
    let ran = place.gretel(&["synth", "rec", "--json", "--instructions", "300"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let result: Value = serde_json::from_str(&ran.out()).expect("JSON");
    let crash = &result["listing"]["crash"];
    assert!(crash["function"].as_str().is_some_and(|function| function.starts_with("walk")), "{crash}");
    assert_eq!(result["metrics"]["path"]["equal"], true, "{}", result["metrics"]);

    crashed(NARROW, 6);
    let ran = place.gretel(&["synth", "rec"]);
    assert!(ran.code != 0 && ran.err.contains("32-bit code"), "{} {}", ran.code, ran.err);
}

/// A damaged note is reported with the file and the place in it, and leaves no recording.
#[test]
fn a_damaged_note_is_said() {
    let place = Place::new();
    let mut file = fs::read(WIDE).expect("make guests");
    let note = b"\x04\0\0\0\x04\0\0\0\x12\0\0\0Xen\0";
    let at = file.windows(note.len()).position(|bytes| bytes == note).expect("its note");
    for (n, byte, why) in [
        (4, 0xff, format!("its note at offset {at:#x} is damaged")),
        (19, 0x80, "its PVH entry 0x80100000 is not in what the file has loaded".to_owned()),
    ] {
        let old = std::mem::replace(&mut file[at + n], byte);
        place.write("damaged", &file);
        let ran = place.gretel(&["record", "--kernel", "damaged", "-o", "rec"]);
        assert_eq!(ran.code, PROGRAM, "{}", ran.err);
        assert!(ran.err.contains("damaged: ") && ran.err.contains(&why), "{}", ran.err);
        assert!(!place.path("rec").exists(), "nothing is left behind");
        file[at + n] = old;
    }
}
