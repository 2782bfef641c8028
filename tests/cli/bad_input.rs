//! What is not as it should be: a clear message, the documented exit code, nothing left behind.

use crate::{DAMAGED, HOST, PROGRAM, Place, USAGE, WRITE, ran};
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn executable(place: &Place, name: &str, bytes: &[u8]) {
    let path = place.write(name, bytes);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_is_no_program_is_refused_by_name() {
    let place = Place::new();
    let mut other_machine = fs::read("/proc/self/exe").unwrap();
    other_machine[18..20].copy_from_slice(&183_u16.to_le_bytes());
    executable(&place, "text", b"hello\n");
    executable(&place, "script", b"#!\n");
    executable(&place, "arm", &other_machine);
    executable(&place, "cut", &other_machine[..40]);
    executable(&place, "empty", b"");
    place.write("plain", "hello\n");
    for (program, message) in [
        ("./text", "is not an ELF program"),
        ("./script", "names no interpreter"),
        ("./arm", "for another machine"),
        ("./cut", "cut is"),
        ("./empty", "is not an ELF program"),
        ("./plain", "not executable"),
        ("./missing", "No such file"),
        ("no-such-program", "in PATH"),
        ("./", "not a file"),
    ] {
        let ran = place.gretel(&["record", "-o", "rec", "--", program]);
        assert_eq!(ran.code, PROGRAM, "{program}: {}", ran.err);
        assert!(ran.err.contains(message), "{program}: {}", ran.err);
        assert!(!place.path("rec").exists(), "{program} leaves a folder behind");
    }
}

#[test]
fn a_wrong_command_line_has_its_own_code() {
    let place = Place::new();
    for arguments in [
        &["record"][..],
        &["replay"],
        &["record", "--records", "17", "--", "busybox", "true"],
        &["record", "--filter", "some", "--", "busybox", "true"],
        &["nothing"],
    ] {
        assert_eq!(place.gretel(arguments).code, USAGE, "{arguments:?}");
    }
    let without_dashes = place.gretel(&["record", "./prog", "-x"]);
    let hint = "gretel: put -- before the program: gretel record -- ./prog";
    assert!(without_dashes.err.contains(hint), "{}", without_dashes.err);
    let help = place.gretel(&["--help"]);
    assert_eq!(help.code, 0);
    assert!(help.out().contains("Exit codes:"), "{}", help.out());
}

#[test]
fn a_host_without_kvm_is_told_apart() {
    let place = Place::new();
    let record = |engine: &str| {
        let arguments = ["record", "--engine", engine, "-o", engine, "--", "busybox", "echo", "ok"];
        let mut command = place.command(env!("CARGO_BIN_EXE_gretel"), &arguments);
        crate::ran(command.env("GRETEL_KVM_DEVICE", "/nonexistent"))
    };
    let refused = record("kvm");
    assert_eq!(refused.code, HOST);
    assert!(refused.err.contains("cannot use /nonexistent:"), "{}", refused.err);
    assert!(refused.err.contains("--engine soft"), "{}", refused.err);
    assert!(!place.path("kvm").exists());
    let other = record("auto");
    assert_eq!((other.code, other.out()), (0, "ok\n".to_owned()));
    assert!(other.err.contains("using the software CPU instead"), "{}", other.err);
}

#[test]
fn a_folder_in_use_is_kept() {
    let place = Place::new();
    let record =
        |more: &[&str]| place.gretel(&[&["record", "-o", "rec"], more, &["--", "busybox", "true"]].concat());
    assert_eq!(record(&[]).code, 0);
    let refused = record(&[]);
    assert_eq!(refused.code, USAGE);
    assert!(refused.err.contains("--force"), "{}", refused.err);
    assert_eq!(record(&["--force"]).code, 0);
    place.write("precious", "x");
    let refused = place.gretel(&["record", "--force", "-o", ".", "--", "busybox", "true"]);
    assert_eq!(refused.code, USAGE);
    assert!(place.path("precious").exists());
}

/// Wherever a journal is cut or a bit of it flips: never success, never a panic, and the message says where.
#[test]
fn a_damaged_journal_is_replayed_up_to_the_damage() {
    let place = Place::new();
    place.write("text", "some words\n".repeat(20_000));
    assert_eq!(place.gretel(&["record", "-o", "rec", "--", "busybox", "sort", "text"]).code, 0);
    let whole = fs::read(place.path("rec/journal")).unwrap();
    let damaged = |bytes: &[u8], what: &str| {
        fs::write(place.path("rec/journal"), bytes).unwrap();
        let ran = place.gretel(&["replay", "rec", "--engine", "soft"]);
        assert_eq!(ran.code, DAMAGED, "{what}: {}{}", ran.out(), ran.err);
        assert!(ran.err.contains("journal"), "{what}: {}", ran.err);
    };
    for step in 0..12 {
        let at = whole.len() * step / 12;
        damaged(&whole[..at], &format!("cut at {at}"));
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (step % 8);
        damaged(&bytes, &format!("bit {} of byte {at}", step % 8));
    }
    fs::write(place.path("rec/journal"), &whole).unwrap();
    place.replay("rec", "soft");
}

/// A recording of another format is refused, with the version to use, and its core can be used all the same.
#[test]
fn a_recording_of_another_version_is_refused_by_name() {
    let place = Place::new();
    assert_eq!(place.gretel(&["record", "-o", "rec", "--", "busybox", "true"]).code, 0);
    let mut journal = fs::read(place.path("rec/journal")).unwrap();
    journal[8] = 1;
    fs::write(place.path("rec/journal"), &journal).unwrap();
    for arguments in [&["replay", "rec"][..], &["replay", "rec", "--json"]] {
        let ran = place.gretel(arguments);
        assert_eq!((ran.code, ran.out().as_str()), (DAMAGED, ""), "{}", ran.err);
        let wanted = format!("the gretel {} that recorded it", env!("CARGO_PKG_VERSION"));
        for part in ["rec/journal has format 1", wanted.as_str(), "record again"] {
            assert!(ran.err.contains(part), "no `{part}` in: {}", ran.err);
        }
    }
    let versions = place.gretel(&["--version"]).out();
    assert!(versions.contains("recordings: format "), "{versions}");
}

#[test]
fn what_is_no_recording_is_said_to_be_none() {
    let place = Place::new();
    fs::create_dir(place.path("empty")).unwrap();
    for (dir, message) in [("empty", "is not a recording"), ("missing", "there is no recording missing")] {
        let ran = place.gretel(&["replay", dir]);
        assert_eq!(ran.code, DAMAGED);
        assert!(ran.err.contains(message), "{}", ran.err);
    }
    place.write("empty/journal", "not a journal\n");
    let ran = place.gretel(&["replay", "empty"]);
    assert_eq!(ran.code, DAMAGED);
    assert!(ran.err.contains("is not a gretel journal"), "{}", ran.err);
}

/// A limit on the size of files is an error with its remedy, not an end without a word.
#[test]
fn a_limit_on_file_sizes_is_named() {
    let place = Place::new();
    let script = format!("ulimit -f 1; exec {} record -o rec -- busybox true", env!("CARGO_BIN_EXE_gretel"));
    let limited = ran(&mut place.command("sh", &["-c", &script]));
    assert!([HOST, WRITE].contains(&limited.code), "{} {}", limited.code, limited.err);
    assert!(limited.err.contains("ulimit -f"), "{}", limited.err);
}

#[test]
fn why_ends_as_the_search_of_a_suffix_does() {
    let place = Place::new();
    place.write("notes.txt", "no core at all");
    let ran = place.gretel(&["why", "notes.txt"]);
    assert_eq!((ran.code, ran.err.lines().count()), (DAMAGED, 1), "{}", ran.err);
    assert!(ran.err.contains("is not an x86-64 ELF core"), "{}", ran.err);
}
