//! A kernel that was recorded is looked at: its core, any moment, its events, its frames.

use super::{ABORTED, KERNEL, record, replayed, typed};
use crate::gdb::in_order;
use crate::{DAMAGED, HOST, Place, USAGE, finished};
use serde_json::Value;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// A core of a kernel that is no Linux has registers and its end; what it has not is said. Others refuse it.
#[test]
fn a_core_is_shown_as_far_as_it_says_what_it_is() {
    let place = Place::new();
    assert_eq!(place.gretel(&record("triple", &[])).code, ABORTED);
    let shown = place.gretel(&["core", "rec"]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    assert!(shown.out().starts_with("triple fault at 0x2"), "{}", shown.out());
    assert!(
        shown.out().contains("the core has no VMCOREINFO") && shown.out().contains("cr3 0x9000"),
        "{}",
        shown.out()
    );
    let ran = place.gretel(&["core", "--json", "rec/core"]);
    let result: Value = serde_json::from_str(&ran.out()).expect("--json prints JSON");
    let processor = &result["processors"][0];
    assert_eq!(result["instructions"], replayed(&place)["instructions"]);
    assert_eq!(processor["stack"][0]["rip"], processor["registers"]["rip"]);
    assert!(shown.out().contains(processor["registers"]["rip"].as_str().expect("hexadecimal")));
    assert!(
        result["log"].is_null() && result["log_unknown"].as_str().is_some_and(|why| why.contains("no Linux"))
    );
    let ran = place.gretel(&["core", "--log", "rec"]);
    assert_eq!(ran.code, DAMAGED, "{}", ran.err);
    assert!(ran.err.contains("there is no log"), "{}", ran.err);
    for (arguments, said) in [
        (&["core", "--exe", KERNEL, "rec"][..], "--exe is not for it"),
        (&["core", "--crumbs", "--format", "perf-script", "rec"], "no form for crumbs"),
        (&["why", "--at", "5", "rec/core"], "leave --at, --pid and --thread out"),
    ] {
        let ran = place.gretel(arguments);
        assert_eq!(ran.code, USAGE, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(said), "{arguments:?}: {}", ran.err);
    }
    let whole = fs::read(place.path("rec/core")).expect("a core");
    place.replace("rec/core", &whole[..whole.len() / 2]);
    let cut = place.gretel(&["core", "rec"]);
    assert_eq!(cut.code, DAMAGED);
    assert!(cut.err.contains("is damaged") && cut.out().contains("triple fault"), "{}", cut.err);
    fs::remove_file(place.path("rec/core")).expect("a core");
    let ran = place.gretel(&["core", "rec"]);
    assert_eq!(ran.code, DAMAGED);
    assert!(ran.err.contains("its core was not written, or is lost"), "{}", ran.err);
}

/// A kernel is shown at any moment of its recording, as it was there, without a core.
#[test]
fn a_kernel_is_shown_at_a_moment() {
    let place = Place::new();
    assert_eq!(place.gretel(&record("triple", &[])).code, ABORTED);
    let json = |arguments: &[&str]| -> Value {
        let ran = place.gretel(&[&["core", "--json"], arguments].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        serde_json::from_str(&ran.out()).expect("--json prints JSON")
    };
    let (mut core, mut end) = (json(&["rec"]), json(&["rec", "--at", "end"]));
    for key in ["path", "crash", "trail", "crumbs"] {
        // What a core has of the crash is its own.
        (core[key], end[key]) = (Value::Null, Value::Null);
    }
    assert_eq!(core, end, "the core is of the end");
    let there = json(&["rec", "--at", "500"]);
    assert_eq!(
        (&there["instructions"], &there["end"]),
        (&Value::from(500), &Value::from("at 500 instructions of its recording"))
    );
    assert_eq!(place.gretel(&record("wait", &[])).code, 0);
    let ran = place.gretel(&["core", "rec"]);
    assert_eq!(ran.code, USAGE);
    assert!(ran.err.contains("--at end shows it at its end"), "{}", ran.err);
    assert_eq!(
        json(&["rec", "--at", "end"])["end"],
        Value::from("the guest waits, and nothing will be typed")
    );
    for arguments in [&["rec", "--at", "x"][..], &["rec/journal", "--at", "end"]] {
        assert_eq!(place.gretel(&[&["core"], arguments].concat()).code, USAGE, "{arguments:?}");
    }
}

/// Events are what was typed, requests to the disk, interrupts and the end, each with its position.
#[test]
fn events_of_a_machine_are_listed_with_their_positions() {
    let place = Place::new();
    place.write("image", vec![7; 64 << 10]);
    let recorded = typed(&place, &record("echo disk", &["--disk", "image"]), b"some text\r");
    assert_eq!(recorded.code, 0, "{}", recorded.err);
    let listed = place.gretel(&["events", "rec"]);
    assert_eq!(listed.code, 0, "{}", listed.err);
    in_order(
        &listed,
        &[
            "typed     \"some text\\r\"",
            "disk      reads 512 bytes from sector 1",
            "disk      writes 512 bytes to sector 2",
            "disk      reads 512 bytes from sector 2",
            "end       the machine switched itself off",
            "interrupts taken, by vector:",
            "3  0x42",
            "2  exceptions and software interrupts",
        ],
    );
    let json = |arguments: &[&str]| -> Vec<Value> {
        let ran = place.gretel(&[&["events", "rec", "--json"], arguments].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let all = json(&[]);
    let [end, counts] = &all[all.len() - 2..] else { panic!("{all:?}") };
    assert_eq!(end["instructions"], replayed(&place)["instructions"]);
    let vectors: i64 =
        ["64", "65", "66"].iter().filter_map(|vector| counts["interrupts"][vector].as_i64()).sum();
    let interrupts = json(&["--kind", "interrupt"]);
    assert_eq!(i64::try_from(interrupts.len()), Ok(vectors), "{counts}");
    let at: Vec<u64> = interrupts.iter().filter_map(|it| it["instructions"].as_u64()).collect();
    assert!(at.is_sorted() && at.len() == interrupts.len());
    let (third, fourth) = (at[2].to_string(), at[3].to_string());
    let some = json(&["--kind", "interrupt", "--from", &third, "--to", &fourth]);
    assert_eq!(some, interrupts[2..4]);
    for arguments in [&["--failed"][..], &["--call", "read"], &["--task", "1"], &["--from", "3+1"]] {
        let ran = place.gretel(&[&["events", "rec"], arguments].concat());
        assert_eq!(ran.code, USAGE, "{arguments:?}: {}", ran.err);
    }
    let whole = fs::read(place.path("rec/journal")).expect("a journal");
    place.replace("rec/journal", &whole[..whole.len() - 1]);
    let torn = place.gretel(&["events", "rec"]);
    assert_eq!(torn.code, DAMAGED);
    assert!(torn.err.contains("is used up to offset"), "{}", torn.err);
}

/// Frames come and go by a socket; a replay has them from the journal, and needs no network.
#[test]
fn frames_are_recorded_and_come_again() {
    let place = Place::new();
    let other = UnixDatagram::bind(place.path("host")).expect("a socket");
    other.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
    let arguments = record("net", &["--net", "unix=guest,host"]);
    let mut command = place.command(env!("CARGO_BIN_EXE_gretel"), &arguments);
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = piped.spawn().expect("gretel runs");
    let mut frame = [0; 2000];
    let mut receive = || {
        let length = other.recv(&mut frame).expect("a frame");
        assert_eq!(
            (&frame[..6], &frame[6..9], &frame[12..14]),
            (&[0xff; 6][..], &[0x52, 0x54, 0][..], &[0x88, 0xb5][..])
        );
        String::from_utf8_lossy(&frame[14..length]).trim_end_matches('\0').to_owned()
    };
    assert_eq!(receive(), "hello");
    for text in ["one", "a longer one", "end"] {
        other.send_to(b"too short", place.path("guest")).expect("it is sent");
        other.send_to(&[&[0; 14], text.as_bytes()].concat(), place.path("guest")).expect("it is sent");
        assert_eq!(receive(), text);
    }
    let ran = finished(&child.wait_with_output().expect("it ends"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let shown = "received: one\r\nreceived: a longer one\r\nreceived: end\r\nPASS\r\n";
    assert!(ran.out().ends_with(shown), "{}", ran.out());
    assert!(
        ran.err.contains("3 events") && ran.err.contains("3 frames were lost on their way"),
        "{}",
        ran.err
    );
    assert!(!place.path("guest").exists(), "its socket is left");
    drop(other);
    assert_eq!(replayed(&place)["equal"], Value::from(true));
    assert_eq!(place.gretel(&["replay", "rec", "--output"]).out(), ran.out());
    let listed = place.gretel(&["events", "rec", "--kind", "frame"]);
    let lines =
        ["sends 20 bytes", "receives 17 bytes", "sends 18 bytes", "receives 26 bytes", "sends 27 bytes"];
    in_order(&listed, &lines);
    // Where nothing comes, the guest waits as long as it is told to.
    let _other = UnixDatagram::bind(place.path("silent")).expect("a socket");
    let ran = place.gretel(&record("net", &["--net", "unix=guest,silent", "--idle", "1"]));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("the guest waits, and nothing will be typed"), "{}", ran.err);
    assert_eq!(replayed(&place)["end"], Value::from("idle"));
    // Also where standard input is over only when the guest waits already.
    let arguments = record("net", &["--net", "unix=guest,silent", "--idle", "1"]);
    let mut command = place.command(env!("CARGO_BIN_EXE_gretel"), &arguments);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = piped.spawn().expect("gretel runs");
    thread::sleep(Duration::from_secs(1));
    drop(child.stdin.take());
    let by = Instant::now() + Duration::from_secs(60);
    while child.try_wait().expect("it can be asked").is_none() {
        if Instant::now() > by {
            child.kill().expect("it can be ended");
            panic!("it waits on, though nothing will come");
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(replayed(&place)["end"], Value::from("idle"));
    for (option, code, said) in [
        ("unix=guest,none", HOST, "the other end is started first"),
        ("unix=silent,silent", HOST, "remove it if nobody uses it"),
        ("tap=sixteen-bytes-xx", HOST, "1 to 15 bytes"),
        ("tap=gretel-no-such", HOST, "`sudo ip tuntap add dev gretel-no-such mode tap user $USER`"),
        ("user", USAGE, "it is none, tap=NAME or unix=LOCAL,REMOTE"),
    ] {
        let ran = place.gretel(&["record", "--kernel", KERNEL, "-o", "new", "--net", option]);
        assert_eq!(ran.code, code, "{option}: {}", ran.err);
        assert!(ran.err.contains(said), "{option}: {}", ran.err);
        assert!(!place.path("new").exists() && !place.path("guest").exists(), "{option} left something");
    }
}

/// Any moment is shown: where it is, the registers, and those of the system.
#[test]
fn a_machine_is_shown_at_a_position() {
    let place = Place::new();
    assert_eq!(place.gretel(&record("spin", &[])).code, 0);
    let all = replayed(&place)["instructions"].as_u64().expect("a count");
    let shown = |position: u64, code: i32| -> Value {
        let ran = place.gretel(&["replay", "rec", "--json", "--to", &position.to_string()]);
        assert_eq!(ran.code, code, "{}", ran.err);
        serde_json::from_str(&ran.out()).expect("--json prints JSON")
    };
    let start = shown(0, 0);
    assert_eq!(
        (&start["ring"], &start["delivered"], &start["nanoseconds"], &start["ended"]),
        (&Value::from(0), &Value::from(0), &Value::from(0), &Value::from(false))
    );
    assert_eq!(start["control"]["cr3"], "0x9000");
    assert_eq!(shown(1, 0)["instructions"], 1);
    // As `core` shows it, which goes there, too.
    let middle = shown(all / 2, 0);
    let core = place.gretel(&["core", "rec", "--json", "--at", &(all / 2).to_string()]);
    let core: Value = serde_json::from_str(&core.out()).expect("--json prints JSON");
    assert_eq!(middle["registers"], core["processors"][0]["registers"]);
    assert_eq!(middle["nanoseconds"], core["nanoseconds"]);
    let end = shown(all, 0);
    assert_eq!((&end["ended"], &end["function"]), (&Value::from(true), &Value::Null));
    assert_eq!(shown(all + 1, DAMAGED)["instructions"], all);
    let text = place.gretel(&["replay", "rec", "--to", &all.to_string()]);
    let first = format!("position {all}: ring 0, ");
    assert!(text.out().starts_with(&first), "{}", text.out());
    assert!(
        text.out().contains(", at the recording's end: the machine switched itself off\n"),
        "{}",
        text.out()
    );
    let odd = place.gretel(&["replay", "rec", "--to", "5+1"]);
    assert!(odd.code == USAGE && odd.err.contains("a count of instructions, not `5+1`"), "{}", odd.err);
}
