//! The devices of virtio beside disk and network card, with drivers of our own: each input is recorded, and comes again without what it
//! came from.

use super::{ABORTED, KERNEL, record, replayed, typed};
use crate::gdb::in_order;
use crate::{DAMAGED, HOST, Place, USAGE, finished};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;

/// A replay prints the same, up to where the journal is torn.
fn comes_again(place: &Place, printed: &str) {
    let whole = replayed(place);
    assert_eq!(whole["equal"], Value::from(true));
    assert_eq!(place.gretel(&["replay", "rec", "--output"]).out(), printed);
    // At the end by the newest checkpoint, or from the start without it.
    let at_end = place.gretel(&["replay", "rec", "--to", &whole["instructions"].to_string()]);
    assert_eq!(at_end.code, 0, "{}", at_end.err);
    let whole = fs::read(place.path("rec/journal")).expect("a journal");
    let step = whole.len() / 12;
    for length in (1..12).map(|n| n * step) {
        place.replace("rec/journal", &whole[..length]);
        let torn = place.gretel(&["replay", "rec", "--output"]);
        assert_eq!(torn.code, DAMAGED, "cut at {length}: {}", torn.err);
        assert!(printed.starts_with(&torn.out()), "cut at {length}: {}", torn.out());
    }
    place.replace("rec/journal", &whole);
}

/// Random bytes of two recordings differ, and those of a replay are the recording's.
#[test]
fn random_bytes_are_recorded() {
    let place = Place::new();
    let printed = || {
        let ran = place.gretel(&record("random", &["--rng", "--clock", "instructions"]));
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.out().contains("random: ok\r\n") && ran.out().ends_with("PASS\r\n"), "{}", ran.out());
        ran.out()
    };
    let first = printed();
    let second = printed();
    assert_ne!(first, second);
    comes_again(&place, &second);
    let listed = place.gretel(&["events", "rec", "--kind", "random"]);
    assert!(listed.out().contains("16 random bytes"), "{}", listed.out());
    // Without the device the driver finds nothing there.
    let ran = place.gretel(&record("random", &[]));
    assert!(!ran.out().contains("random: ok"), "{}", ran.out());
}

/// What is typed goes to the console, what both consoles print is shown, and a recording that begins at a checkpoint goes on there.
#[test]
fn a_console_is_typed_to_and_shown() {
    let place = Place::new();
    let ran = typed(&place, &record("hvc wait", &["--console", "virtio"]), b"some text\r");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        ran.out().ends_with("console: ok\r\ncolumns: 0\r\na console of virtio\r\nsome text\r\nPASS\r\n"),
        "{}",
        ran.out()
    );
    comes_again(&place, &ran.out());
    let next = typed(&place, &["record", "--from", "rec@0", "-o", "next"], b"other\r");
    assert_eq!(next.code, 0, "{}", next.err);
    assert_eq!(next.out(), "other\r\nPASS\r\n");
    let shown = place.gretel(&["replay", "next", "--output"]);
    assert_eq!((shown.code, shown.out()), (0, next.out()));
}

/// A panic is read from the console as it is from COM1.
#[test]
fn a_panic_on_a_console_is_found() {
    let place = Place::new();
    let ran = typed(&place, &record("hvc dies", &["--console", "virtio"]), b"\r");
    assert_eq!(ran.code, ABORTED, "{}", ran.err);
    assert!(ran.err.contains("kernel panic: by virtio"), "{}", ran.err);
    assert_eq!(replayed(&place)["end"], Value::from("panic"));
}

/// The guest asks a program of the host; where nobody listens it is refused. A replay needs neither.
#[test]
fn a_program_of_the_host_is_asked() {
    let place = Place::new();
    let ran = place.gretel(&record("vsock", &["--vsock", "v"]));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out().ends_with("vsock: ok\r\nrefused\r\nPASS\r\n"), "{}", ran.out());
    assert!(!place.path("v").exists(), "its socket is left");
    comes_again(&place, &ran.out());

    let listener = UnixListener::bind(place.path("v_7000")).expect("a socket");
    let mut command = place.command(env!("CARGO_BIN_EXE_gretel"), &record("vsock", &["--vsock", "v"]));
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = piped.spawn().expect("gretel runs");
    let (mut stream, _) = listener.accept().expect("the guest");
    let mut question = [0; 8];
    stream.read_exact(&mut question).expect("a question");
    assert_eq!(&question, b"question");
    stream.write_all(b"an answer").expect("it is read");
    drop(stream);
    let ran = finished(&child.wait_with_output().expect("it ends"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out().ends_with("vsock: ok\r\nanswer: an answer\r\nPASS\r\n"), "{}", ran.out());
    drop(listener);
    fs::remove_file(place.path("v_7000")).expect("the socket");
    comes_again(&place, &ran.out());
    let listed = place.gretel(&["events", "rec", "--kind", "vsock"]);
    in_order(
        &listed,
        &[
            "sends request, port 1025 to 7000",
            "receives response, port 7000 to 1025",
            "sends data, 8 bytes, port 1025 to 7000",
            "receives data, 9 bytes, port 7000 to 1025",
            "receives shutdown",
            "sends reset",
        ],
    );
}

#[test]
fn what_cannot_be_there_is_refused_by_name() {
    let place = Place::new();
    let refused = |arguments: &[&str], code: i32, said: &str| {
        let ran = place.gretel(arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(said), "{arguments:?}: {}", ran.err);
    };
    let boot = |path: &'static str| ["record", "--kernel", KERNEL, "-o", "new", "--vsock", path];
    place.write("file", "");
    refused(&boot("file"), HOST, "something is there that is no socket");
    refused(&boot("none/v"), HOST, "there is no folder none: make it first");
    let listener = UnixListener::bind(place.path("used")).expect("a socket");
    refused(&boot("used"), HOST, "another program listens there");
    drop(listener);
    refused(&boot("used"), HOST, "nobody listens there any more: `rm used`");
    assert!(UnixStream::connect(place.path("used")).is_err() && !place.path("new").exists());
    refused(&["record", "--rng", "--", "true"], USAGE, "--rng");
    refused(&["record", "--kernel", KERNEL, "-o", "new", "--console", "none"], USAGE, "serial");
    assert_eq!(typed(&place, &record("echo wait", &[]), b"x\r").code, 0);
    refused(
        &["record", "--from", "rec", "-o", "new", "--vsock", "v"],
        USAGE,
        "has no vsock: leave --vsock out",
    );
    refused(&["record", "--from", "rec", "-o", "new", "--rng"], USAGE, "cannot be used with");
    assert!(!place.path("new").exists() && !place.path("v").exists());
}
