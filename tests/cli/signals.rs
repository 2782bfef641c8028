//! Signals from outside: they are the program's.

use crate::{Place, engines, finished};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

const GRETEL: &str = env!("CARGO_BIN_EXE_gretel");

/// What a program does about signals from outside it does recorded, too, whatever it is at; and one that ignores them all is
/// left at the third.
#[test]
fn signals_from_outside_reach_the_program() {
    let traps = "trap 'echo one' USR1; trap 'echo done; exit 7' TERM; echo ready;";
    for engine in engines() {
        for at in ["while :; do :; done", "while :; do sleep 0.05; done", "while :; do read -r line; done"] {
            let place = Place::new();
            let start = ["record", "--engine", engine, "-o", "rec", "--", "busybox", "sh", "-c"];
            let mut recorder = place.command(GRETEL, &[&start[..], &[&format!("{traps} {at}")]].concat());
            let mut child =
                recorder.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
            for (line, signal) in [("ready", "-USR1"), ("one", "-USR1"), ("one", "-TERM")] {
                assert_eq!(lines.next().as_deref(), Some(line), "{engine}, {at}");
                let pid = child.id().to_string();
                assert!(place.command("kill", &[signal, &pid]).status().unwrap().success());
            }
            assert_eq!(lines.next().as_deref(), Some("done"), "{engine}, {at}");
            let recorded = finished(&child.wait_with_output().unwrap());
            assert_eq!(recorded.code, 7, "{engine}, {at}: {}", recorded.err);
            for replayer in engines() {
                assert_eq!(place.replay("rec", replayer)["status_or_signal"], 7, "{engine}, {at}");
            }
        }
    }
}

/// As a service manager's watchdog asks for it; and a signal for real time.
#[test]
fn a_program_that_is_told_to_abort_leaves_a_core() {
    for engine in engines() {
        let place = Place::new();
        let script = "trap 'echo again' 40; echo ready; while :; do sleep 0.05; done";
        let start = ["record", "--engine", engine, "-o", "rec", "--", "busybox", "sh", "-c", script];
        let mut recorder = place.command(GRETEL, &start);
        let mut child = recorder.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        for (line, signal) in [("ready", "-40"), ("again", "-ABRT")] {
            assert_eq!(lines.next().as_deref(), Some(line), "{engine}");
            assert!(place.command("kill", &[signal, &child.id().to_string()]).status().unwrap().success());
        }
        let recorded = finished(&child.wait_with_output().unwrap());
        assert_eq!(recorded.code, 134, "{engine}: {}", recorded.err);
        assert!(place.path("rec/core").is_file(), "{engine}: {}", recorded.err);
        for replayer in engines() {
            assert_eq!(place.replay("rec", replayer)["end"], "killed", "{engine}");
        }
    }
}

/// Not at the third that a service gets in a week: one that comes later begins anew.
#[test]
fn a_program_that_ignores_signals_is_left_at_the_third_in_a_row() {
    let place = Place::new();
    let script = "trap '' TERM; trap 'echo again' HUP; echo ready; while :; do sleep 0.05; done";
    let start = ["record", "--engine", "soft", "-o", "rec", "--", "busybox", "sh", "-c", script];
    let mut recorder = place.command(GRETEL, &start);
    let mut child = recorder.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    let kill = |signal: &str, after: u64| {
        assert!(place.command("kill", &[signal, &child.id().to_string()]).status().unwrap().success());
        sleep(Duration::from_millis(after));
    };
    kill("-HUP", 100);
    kill("-HUP", 1200);
    kill("-HUP", 1200);
    (0..3).for_each(|_| kill("-TERM", 100));
    assert!(lines.by_ref().take_while(|line| line == "again").count() >= 2);
    let recorded = finished(&child.wait_with_output().unwrap());
    assert_eq!(recorded.code, 143, "{}", recorded.err);
    assert!(recorded.err.contains("interrupted"), "{}", recorded.err);
    assert_eq!(place.replay("rec", "soft")["end"], "interrupted");
}

#[test]
fn what_the_first_process_left_behind_ends_by_a_signal() {
    for engine in engines() {
        let place = Place::new();
        let start =
            ["record", "--engine", engine, "-o", "rec", "--", "busybox", "sh", "-c", "sleep 100 & exit 3"];
        let mut recorder = place.command(GRETEL, &start);
        let mut child = recorder.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(said.any(|line| line.contains("the first process has ended")), "{engine}");
        assert!(place.command("kill", &["-TERM", &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(3), "{engine}: {:?}", said.collect::<Vec<_>>());
        assert_eq!(place.replay("rec", engine)["status_or_signal"], 3);
    }
}
