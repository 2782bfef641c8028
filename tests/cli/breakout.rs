//! Programs that try to get out of gretel, or at their recording; what gretel may do itself; the commands that it runs at a crash.

use crate::{Place, USAGE, engines, skipped};
use std::fs;

/// The tries: prints each that did what it must not do.
const BREAKOUT: &str = include_str!("breakout.c");

/// More of them, each kind by its name.
const ESCAPES: &str = include_str!("escapes.c");

/// Crashes.
const CRASHES: &str = "int main(void) { *(volatile int *)8 = 1; }";

#[test]
fn no_try_to_get_out_or_at_the_recording_does_anything() {
    for engine in engines() {
        // A folder for each: what is made in one would be found in the other.
        let place = Place::new();
        let Some(_) = place.compile("breakout", BREAKOUT) else { return };
        let rec = place.path("rec");
        let rec = rec.to_str().expect("temporary directories have plain names");
        let gretel = env!("CARGO_BIN_EXE_gretel");
        let line = format!("exec {gretel} record --engine {engine} -o {rec} -- ./breakout {rec}");
        let recorded = place.sh_with_streams_alone(&line);
        assert_eq!((recorded.out().as_str(), recorded.code), ("all tried\n", 0), "{}", recorded.err);
        let made: Vec<_> = fs::read_dir(rec).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(made.iter().all(|name| *name != "new" && *name != "made"), "{made:?}");
        for replayer in engines() {
            assert_eq!(place.replay("rec", replayer)["status_or_signal"], 0);
        }
    }
}

/// Records one kind of the tries of [`ESCAPES`], which must do nothing, and replays it there, or on each engine.
fn no_escape(kind: &str, recorders: &[&str], everywhere: bool) {
    for &engine in recorders {
        let place = Place::new();
        let Some(_) = place.compile("escapes", ESCAPES) else { return };
        let rec = place.path("rec");
        let rec = rec.to_str().expect("temporary directories have plain names");
        let gretel = env!("CARGO_BIN_EXE_gretel");
        let line = format!("exec {gretel} record --engine {engine} -o {rec} -- ./escapes {rec} {kind}");
        let recorded = place.sh_with_streams_alone(&line);
        assert_eq!(
            (recorded.out().as_str(), recorded.code),
            ("all tried\n", 0),
            "{engine}: {}",
            recorded.err
        );
        for replayer in engines().into_iter().filter(|replayer| everywhere || *replayer == engine) {
            assert_eq!(place.replay("rec", replayer)["status_or_signal"], 0, "{engine}, {replayer}");
        }
    }
}

#[test]
fn no_call_by_path_nor_loader_leads_to_the_recording() {
    no_escape("paths", &engines(), true);
}

#[test]
fn no_frame_of_a_signal_leads_to_ring_0_or_to_ports() {
    no_escape("frames", &engines(), true);
}

#[test]
fn no_instruction_of_ring_0_interrupt_or_port_does_anything() {
    no_escape("instructions", &engines(), false);
}

/// The software CPU has no semantics for them, and stops there.
#[test]
fn no_far_branch_leads_to_ring_0() {
    let recorders: Vec<_> = engines().into_iter().filter(|engine| *engine != "soft").collect();
    no_escape("far", &recorders, false);
}

#[test]
fn what_the_kernel_does_later_is_done_to_nobody_else() {
    no_escape("later", &engines(), true);
}

#[test]
fn a_recording_may_not_be_where_the_program_begins() {
    let place = Place::new();
    fs::create_dir(place.path("rec")).unwrap();
    let gretel = env!("CARGO_BIN_EXE_gretel");
    for line in ["cd rec && $G record -o . -- busybox true", "$G record -o rec -- busybox true < rec"] {
        let refused = place.sh(&line.replace("$G", gretel));
        assert_eq!(refused.code, USAGE, "{}", refused.err);
        assert!(refused.err.contains("of the program, which is kept from its recording"), "{}", refused.err);
    }
}

/// A program that walks the folder in which its recording is made sees none, and fails at nothing.
#[test]
fn a_recording_is_not_listed() {
    let place = Place::new();
    for n in 0..50 {
        place.write(&format!("file{n}"), "");
    }
    let listed = place.gretel(&["record", "--engine", "soft", "--", "busybox", "ls", "-l"]);
    assert_eq!((listed.code, listed.out().lines().count()), (0, 51), "{}", listed.err);
    assert!(!listed.out().contains("gretel-busybox-1"), "{}", listed.out());
}

/// The filters of a process as its status tells them.
#[test]
fn gretel_runs_programs_in_a_sandbox() {
    let place = Place::new();
    let gretel = env!("CARGO_BIN_EXE_gretel");
    let doctor = place.gretel(&["doctor", "--json"]);
    let doctor: serde_json::Value = serde_json::from_str(&doctor.out()).unwrap();
    if doctor["sandbox"]["seccomp"]["available"] != true {
        return skipped("the sandbox", &doctor["sandbox"]["seccomp"]["reason"].to_string());
    }
    let line = format!(
        "{gretel} record --engine soft -o rec -- busybox sleep 2 & sleep 1; cat /proc/$!/status; wait $!"
    );
    let status = place.sh(&line);
    for expected in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.out().contains(expected), "{}{}", status.out(), status.err);
    }
    assert!(!status.err.contains("sandbox"), "{}", status.err);
}

#[test]
fn a_command_is_run_for_each_process_that_leaves_a_core() {
    let place = Place::new();
    let Some(_) = place.compile("crashes", CRASHES) else { return };
    let line = "test -s $GRETEL_CORE && echo $1 $GRETEL_RECORDING $GRETEL_CORE $GRETEL_PID $GRETEL_SIGNAL";
    let record = |name: &str, command: &str, program: &[&str]| {
        let start = ["record", "--engine", "soft", "-o", name, "--attach-on-crash", command, "--"];
        place.gretel(&[&start[..], program].concat())
    };
    let dir = place.path("").canonicalize().unwrap();
    let dir = dir.display();
    let first = record("one", line, &["./crashes"]);
    assert_eq!((first.code, first.out().as_str()), (139, ""), "{}", first.err);
    assert!(first.err.contains(&format!("{dir}/one {dir}/one {dir}/one/core ")), "{}", first.err);
    assert!(first.err.contains(" 11\n"), "{}", first.err);
    let others = record("two", line, &["sh", "-c", "./crashes; ./crashes; exit 3"]);
    assert_eq!(others.code, 3, "{}", others.err);
    assert_eq!(others.err.matches(&format!("{dir}/two/core.")).count(), 2, "{}", others.err);
    let fails = record("three", "exit 9", &["./crashes"]);
    assert_eq!(fails.code, 139);
    assert!(fails.err.contains("--attach-on-crash exited with status 9"), "{}", fails.err);
    let none = record("four", "echo never", &["busybox", "true"]);
    assert!(none.code == 0 && !none.err.contains("never"), "{}", none.err);
    // The command may be gretel, which is not in the sandbox of this one.
    let gretel = env!("CARGO_BIN_EXE_gretel");
    let shows = record("five", &format!("{gretel} core $1"), &["./crashes"]);
    assert!(shows.err.contains("main+"), "{}", shows.err);
}
