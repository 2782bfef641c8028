//! `gretel record --kernel`: a kernel of our own is recorded and replayed, and bad ones are refused. What is made of a
//! recording is in `looked_at`, of its crash in `taken_back`, of its core alone in `alone`; programs
//! that PVH enters are in `pvh`, devices beside disk and network card in `virtio`, and a disk that gets full is in `room`.

mod alone;
mod looked_at;
mod pvh;
mod room;
mod taken_back;
mod virtio;

use crate::gdb::{has_gdb, in_order};
use crate::{DAMAGED, HOST, OTHER, PROGRAM, Place, USAGE, finished};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

/// The kernel of guest-images/kernel.
const KERNEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/guest-images/build/bare-kernel");
/// A kernel that crashed.
const ABORTED: i32 = 134;

fn record<'a>(cmdline: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    assert!(Path::new(KERNEL).exists(), "{KERNEL} is missing: make guests");
    [&["record", "--kernel", KERNEL, "-o", "rec", "--force", "--cmdline", cmdline], more].concat()
}

fn replayed(place: &Place) -> Value {
    let ran = place.gretel(&["replay", "rec", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    serde_json::from_str(&ran.out()).expect("--json prints JSON")
}

/// Rings, SYSCALL, a page fault and the timer work; each end is told, and is that of the replay.
#[test]
fn each_end_is_told_and_replayed() {
    let place = Place::new();
    let cases = [
        ("", 0, "power-off", "switched itself off"),
        ("reset", 0, "reset", "reset itself"),
        ("halt", 0, "halted", "halted with interrupts off"),
        ("wait", 0, "idle", "nothing will be typed"),
        ("panic", ABORTED, "panic", "kernel panic: asked for"),
        ("triple", ABORTED, "triple-fault", "triple fault at 0x2"),
        ("storm", OTHER, "refused", "exceptions one after another"),
    ];
    for (cmdline, code, end, said) in cases {
        let ran = place.gretel(&record(cmdline, &[]));
        assert_eq!(ran.code, code, "{cmdline}: {}", ran.err);
        assert!(
            ran.out().starts_with("page fault: ok\r\nring 3: ok\r\ntimer: ok\r\nPASS\r\n"),
            "{}",
            ran.out()
        );
        assert!(ran.err.contains(said), "{cmdline}: {}", ran.err);
        let result = replayed(&place);
        assert_eq!((&result["end"], &result["equal"]), (&Value::from(end), &Value::from(true)));
        let shown = place.gretel(&["replay", "rec", "--output"]);
        assert_eq!((shown.code, shown.out()), (0, ran.out()));
    }
}

/// Where the guest's output and gretel's messages go to one place, these begin on a line of their own, and nothing is added elsewhere.
#[test]
fn what_gretel_says_begins_on_a_line_of_its_own() {
    let place = Place::new();
    let both = |arguments: &[&str], input: &[u8]| {
        let log = fs::File::create(place.path("log")).expect("a log");
        let mut command = place.command(env!("CARGO_BIN_EXE_gretel"), arguments);
        let (out, err) = (log.try_clone().expect("a log"), log);
        let mut child = command.stdin(Stdio::piped()).stdout(out).stderr(err).spawn().expect("gretel runs");
        child.stdin.take().expect("a pipe").write_all(input).expect("it is read");
        assert!(child.wait().expect("it ends").success());
        String::from_utf8_lossy(&fs::read(place.path("log")).expect("a log")).into_owned()
    };
    // It waits for the end of the line, which does not come.
    let recorded = both(&record("echo", &[]), b"text");
    assert!(recorded.contains("type: text\ngretel: the guest waits"), "{recorded}");
    let replayed = both(&["replay", "rec", "--output"], b"");
    assert!(replayed.contains("type: text\nreplayed on soft: "), "{replayed}");
    let apart = place.gretel(&["replay", "rec", "--output"]);
    assert!(
        apart.out().ends_with("type: text") && apart.err.starts_with("replayed on soft: "),
        "{}",
        apart.err
    );
    let whole = both(&record("", &[]), b"");
    assert!(whole.contains("PASS\r\ngretel: the machine switched itself off"), "{whole}");
}

#[test]
fn what_is_typed_is_recorded_and_comes_again() {
    let place = Place::new();
    let mut command = place.command(env!("CARGO_BIN_EXE_gretel"), &record("echo spin", &[]));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gretel runs");
    child.stdin.take().expect("a pipe").write_all(b"some text\r").expect("it is read");
    let ran = finished(&child.wait_with_output().expect("it ends"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out().contains("type: some text\r\nreceived: 10\r\nPASS"), "{}", ran.out());
    let result = replayed(&place);
    assert_eq!((&result["typed"], &result["end"]), (&Value::from(10), &Value::from("power-off")));
    assert_eq!(place.gretel(&["replay", "rec", "--output"]).out(), ran.out());
}

/// Time is made of instructions: without input two runs have the same state at their end.
#[test]
fn two_runs_without_input_are_one() {
    let place = Place::new();
    let spun = || {
        let ran = place.gretel(&record("spin", &[]));
        let result = replayed(&place);
        (ran.out(), result["instructions"].clone(), result["nanoseconds"].clone())
    };
    assert_eq!(spun(), spun());
}

/// With `--clock instructions` nothing of the host's is in a recording: two have the same journal, made at different times.
#[test]
fn a_clock_of_instructions_makes_one_journal() {
    let place = Place::new();
    let journal = |clock: &str| {
        assert_eq!(place.gretel(&record("spin", &["--clock", clock])).code, 0);
        fs::read(place.path("rec/journal")).expect("a journal")
    };
    let (first, of_host) = (journal("instructions"), journal("host"));
    assert!(first != of_host, "the time of day is the host's");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert!(journal("host") != of_host, "it is another one now");
    assert!(journal("instructions") == first, "two runs differ");
    let listed = place.gretel(&["ls", "rec"]);
    assert!(!listed.out().contains("2000-01-01"), "it was recorded today: {}", listed.out());
    let ran = place.gretel(&record("", &["--clock", "sun"]));
    assert!(ran.code == USAGE && ran.err.contains("give host or instructions"), "{}", ran.err);
}

/// A disk is read and written; its image stays as it is, and the recording needs it no more.
#[test]
fn a_disk_is_kept_and_never_written_to() {
    let place = Place::new();
    let mut image = vec![0; 64 << 10];
    image[512..528].copy_from_slice(b"written by hand.");
    for (option, written, read) in
        [("image", "write: ok", "as written"), ("image,ro", "write: refused", "as before")]
    {
        place.write("image", &image);
        let ran = place.gretel(&record("disk", &["--disk", option]));
        assert_eq!(ran.code, 0, "{}", ran.err);
        let shown = format!("sector 1: written by hand.\r\n{written}\r\nsector 2: {read}\r\nPASS\r\n");
        assert!(ran.out().ends_with(&shown), "{}", ran.out());
        assert!(fs::read(place.path("image")).expect("the image") == image, "the image was written to");
        fs::remove_file(place.path("image")).expect("the image");
        assert_eq!(replayed(&place)["equal"], Value::from(true));
        assert_eq!(place.gretel(&["replay", "rec", "--output"]).out(), ran.out());
    }
    // Without room for a block the write fails, in a replay, too.
    place.write("image", &image);
    for (size, written) in [("4096", "write: ok"), ("4095", "write: refused")] {
        let ran = place.gretel(&record("disk", &["--disk", "image", "--disk-writes", size]));
        assert!(ran.out().contains(written), "{size}: {} {}", ran.out(), ran.err);
        assert_eq!(replayed(&place)["equal"], Value::from(true));
    }
    place.write("short", [0; 100]);
    let refused = |arguments: &[&str], code: i32, said: &str| {
        let ran = place.gretel(arguments);
        assert_eq!(ran.code, code, "{}", ran.err);
        assert!(ran.err.contains(said), "{}", ran.err);
    };
    refused(&record("", &["--disk", "none"]), PROGRAM, "the disk none");
    refused(&record("", &["--disk", "short"]), PROGRAM, "whole sectors");
    refused(&["record", "--disk", "image", "--", "true"], USAGE, "--disk without --kernel");
}

/// Records, and types this.
fn typed(place: &Place, arguments: &[&str], text: &[u8]) -> crate::Ran {
    let mut command = place.command(env!("CARGO_BIN_EXE_gretel"), arguments);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("gretel runs");
    child.stdin.take().expect("a pipe").write_all(text).expect("it is read");
    finished(&child.wait_with_output().expect("it ends"))
}

/// A guest that takes none of what is typed is at its end when it has only waited for a minute of its time, and that is said.
#[test]
fn a_guest_that_takes_nothing_ends() {
    let place = Place::new();
    let ran = typed(&place, &record("idle", &["--idle", "1"]), b"some text\r");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let said = "10 bytes that were typed were never taken: the guest has neither switched the receive interrupt of COM1 on";
    assert!(ran.err.contains(said), "{}", ran.err);
    let result = replayed(&place);
    assert_eq!((&result["end"], &result["typed"]), (&Value::from("idle"), &Value::from(0)));
    let waited = result["nanoseconds"].as_u64().expect("a time");
    assert!((60_000_000_000..70_000_000_000).contains(&waited), "{waited}");
}

/// Checkpoints are before the first key and at the end; a recording that begins at one needs the other recording no more.
#[test]
fn a_recording_begins_behind_the_boot_of_another() {
    let place = Place::new();
    let image = vec![7; 64 << 10];
    place.write("image", &image);
    let first = typed(&place, &record("echo disk wait", &["--disk", "image"]), b"some text\r");
    assert_eq!(first.code, 0, "{}", first.err);
    let ran = typed(&place, &["record", "--from", "rec@0", "-o", "next"], b"other\r");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out().starts_with("other\r\nreceived: 6\r\ndisk: ok\r\n"), "{}", ran.out());
    assert!(ran.out().ends_with("sector 2: as written\r\nPASS\r\n"), "{}", ran.out());
    assert_eq!(place.gretel(&["rm", "rec"]).code, 0);
    let shown = place.gretel(&["replay", "next", "--output"]);
    assert_eq!((shown.code, shown.out()), (0, ran.out()));
    // The newest one is the end, where nothing is left to do; a recording goes on from one that went on, too.
    let ran = place.gretel(&["record", "--from", "next", "-o", "last"]);
    assert_eq!((ran.code, ran.out()), (0, String::new()), "{}", ran.err);
    assert_eq!(place.gretel(&["replay", "last"]).code, 0);
    assert_eq!(place.gretel(&["pack", "last", "-o", "last.tar.zst"]).code, 0);
    assert_eq!(place.gretel(&["rm", "last"]).code, 0);
    assert_eq!(place.gretel(&["unpack", "last.tar.zst"]).code, 0);
    assert_eq!(place.gretel(&["replay", "last"]).code, 0);
    for (arguments, code, said) in [
        (&["record", "--from", "none", "-o", "new"][..], DAMAGED, "none"),
        (&["record", "--from", "next@9", "-o", "new"], DAMAGED, "no checkpoint 9"),
        (&["record", "--from", "next", "--memory", "64M", "-o", "new"], USAGE, "leave --memory"),
        (&["record", "--from", "next", "--kernel", KERNEL, "-o", "new"], USAGE, "cannot be used with"),
        (&["record", "--from", "next", "-o", "new", "--", "true"], USAGE, "cannot be used with"),
    ] {
        let ran = place.gretel(arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(said), "{arguments:?}: {}", ran.err);
        assert!(!place.path("new").exists(), "{arguments:?} left a folder");
    }
}

#[test]
fn a_damaged_checkpoint_is_told_and_an_older_one_is_used() {
    let place = Place::new();
    assert_eq!(typed(&place, &record("echo wait", &[]), b"some text\r").code, 0);
    let whole = fs::read(place.path("rec/checkpoints")).expect("checkpoints");
    let mut flipped = whole.clone();
    *flipped.last_mut().expect("bytes") ^= 1;
    place.replace("rec/checkpoints", &flipped);
    let ran = typed(&place, &["record", "--from", "rec", "-o", "next"], b"x\r");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("checkpoint 1 of rec/checkpoints is damaged"), "{}", ran.err);
    assert!(ran.out().starts_with("x\r\nreceived: 2\r\n"), "{}", ran.out());
    // A replay does without any.
    for bytes in [&whole[..whole.len() / 2], &whole[..3], &[]] {
        place.replace("rec/checkpoints", bytes);
        assert_eq!(place.gretel(&["replay", "rec"]).code, 0);
    }
    let ran = place.gretel(&["record", "--from", "rec", "-o", "new"]);
    assert_eq!(ran.code, DAMAGED, "{}", ran.err);
    assert!(ran.err.contains("has no checkpoints of a machine"), "{}", ran.err);
    assert!(!place.path("new").exists());
}

/// gdb on a kernel: breakpoints, watched data and steps in both directions, over a page fault and interrupts.
#[test]
fn gdb_goes_through_a_kernel_in_both_directions() {
    let place = Place::new();
    if !has_gdb("gdb on a kernel") {
        return;
    }
    assert_eq!(typed(&place, &record("echo wait", &[]), b"some text\r").code, 0);
    let gdb = |at: &str, commands: &str| {
        place.write("commands", commands);
        let ran = place.gretel(&["gdb", "rec", "--at", at, "--", "-batch", "-nx", "-x", "commands", KERNEL]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran
    };
    let ran = gdb(
        "start",
        "break on_timer\ncontinue\nprint ticks\nwatch ticks\ncontinue\ncontinue\nprint ticks\n\
         reverse-continue\nprint ticks\ndelete\nbreak on_page_fault\nreverse-continue\nprint/x $cs\n\
         reverse-stepi\nx/i $pc\nstepi\ninfo symbol $pc\nmonitor when\nmonitor registers\n",
    );
    in_order(
        &ran,
        &[
            "Breakpoint 1, on_timer",
            "$1 = 0",
            "Old value = 0\nNew value = 1",
            "Breakpoint 1, on_timer",
            "$2 = 1",
            "Old value = 1\nNew value = 0",
            "$3 = 0",
            "Breakpoint 3, on_page_fault",
            "$4 = 0x10",
            "movq   $0x7,0xa00008",
            "on_page_fault in section .text",
        ],
    );
    assert!(
        ran.err.contains("1 exceptions and interrupts") && ran.err.contains("ring 0, cr3 0x9000"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("cr2 0xa00008"), "{}", ran.err);
    // From the end, by the checkpoint there; where that is damaged, by an older one, which is said.
    let mut checkpoints = fs::read(place.path("rec/checkpoints")).expect("checkpoints");
    *checkpoints.last_mut().expect("bytes") ^= 1;
    place.replace("rec/checkpoints", checkpoints);
    let ran = gdb("end", "print received\nbreak echo\nreverse-continue\nprint received\n");
    assert!(ran.out().contains("$1 = 10"), "{}", ran.out());
    assert!(ran.err.contains("checkpoint 1 of rec/checkpoints is damaged"), "{}", ran.err);
}

#[test]
fn a_torn_journal_is_replayed_up_to_the_tear() {
    let place = Place::new();
    assert_eq!(place.gretel(&record("spin", &[])).code, 0);
    let whole = fs::read(place.path("rec/journal")).expect("a journal");
    place.replace("rec/journal", &whole[..whole.len() - 1]);
    let torn = place.gretel(&["replay", "rec"]);
    assert_eq!(torn.code, DAMAGED, "{}", torn.err);
    assert!(torn.err.contains("is used up to offset") && torn.out().contains("incomplete"), "{}", torn.err);
    place.replace("rec/journal", &whole[..20]);
    let cut = place.gretel(&["replay", "rec"]);
    assert_eq!(cut.code, DAMAGED);
    assert!(cut.err.contains("damaged before its first record"), "{}", cut.err);
    place.replace("rec/journal", [&whole[..8], &[9, 0, 0, 0], &whole[12..]].concat());
    assert!(place.gretel(&["replay", "rec"]).err.contains("format 9"));
}

#[test]
fn bad_kernels_and_options_are_refused_by_name() {
    let place = Place::new();
    let refused = |arguments: &[&str], code: i32, said: &str| {
        let ran = place.gretel(&[&["record", "-o", "rec"], arguments].concat());
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(said), "{arguments:?}: {}", ran.err);
        assert!(!place.path("rec").exists(), "{arguments:?} left a folder");
    };
    place.write("text", "#!/bin/sh\n");
    place.write("cut", [vec![0; 0x202], b"HdrS".to_vec()].concat());
    refused(&["--kernel", "none"], PROGRAM, "cannot read none");
    refused(&["--kernel", "text"], PROGRAM, "neither an ELF file nor a bzImage");
    refused(&["--kernel", "cut"], PROGRAM, "it is cut");
    refused(&["--kernel", "/bin/true"], PROGRAM, "below 1 MiB");
    refused(&["--kernel", KERNEL, "--initrd", "none"], PROGRAM, "cannot read none");
    refused(&["--kernel", KERNEL, "--memory", "8G"], USAGE, "--memory: a machine has 16M to 3G");
    refused(
        &["--kernel", KERNEL, "--cmdline", &"a".repeat(2048)],
        USAGE,
        "--cmdline: the command line has 2048",
    );
    fs::File::create(place.path("large")).and_then(|it| it.set_len(32 << 20)).expect("a large file");
    let no_room = "the initrd does not fit into 32 MiB of memory: give it more with --memory";
    refused(&["--kernel", KERNEL, "--memory", "32M", "--initrd", "large"], PROGRAM, no_room);
    refused(&["--kernel", KERNEL, "--memory", "8M"], USAGE, "16M is the least");
    refused(&["--kernel", KERNEL, "--engine", "kvm"], HOST, "software CPU");
    refused(&["--kernel", KERNEL, "--", "true"], USAGE, "cannot be used with");
    refused(&["--initrd", "text", "--", "true"], USAGE, "cannot be used with");
    refused(&["--initrd", "text"], USAGE, "--kernel");
}

/// What cannot be done with such a recording is refused with a word; what can, works.
#[test]
fn other_commands_know_what_it_is() {
    let place = Place::new();
    assert_eq!(place.gretel(&record("", &[])).code, 0);
    let refusing = [
        &["why", "rec"][..],
        &["calls", "rec", "main"],
        &["core", "rec"],
        &["core", "--log", "rec"],
        &["core", "--crumbs", "rec"],
        &["synth", "rec"],
        &["watch", "rec"],
    ];
    for arguments in refusing {
        let ran = place.gretel(arguments);
        assert!(ran.code >= USAGE, "{arguments:?}");
        assert!(ran.err.contains("a machine with a kernel"), "{arguments:?}: {}", ran.err);
    }
    for option in [&["--engine", "kvm"][..], &["--pid", "1"], &["--follow"], &["--at", "3+1"]] {
        let ran = place.gretel(&[&["gdb", "rec", "--stdio"], option].concat());
        assert_eq!(ran.code, USAGE, "{option:?}: {}", ran.err);
        assert!(ran.err.contains("is not for it"), "{option:?}: {}", ran.err);
    }
    let listed = place.gretel(&["ls", "rec"]);
    assert!(listed.out().contains("the machine switched itself off  0 events"), "{}", listed.out());
    assert_eq!(place.gretel(&["pack", "rec", "-o", "rec.tar.zst"]).code, 0);
    assert_eq!(place.gretel(&["rm", "rec"]).code, 0);
    assert_eq!(place.gretel(&["unpack", "rec.tar.zst"]).code, 0);
    assert_eq!(replayed(&place)["end"], "power-off");
}
