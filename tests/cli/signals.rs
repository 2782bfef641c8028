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

#[test]
fn a_program_that_ignores_signals_is_left_at_the_third() {
    let place = Place::new();
    let script = "trap '' TERM; echo ready; while :; do sleep 0.05; done";
    let start = ["record", "--engine", "soft", "-o", "rec", "--", "busybox", "sh", "-c", script];
    let mut recorder = place.command(GRETEL, &start);
    let mut child = recorder.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    for _ in 0..3 {
        assert!(place.command("kill", &["-TERM", &child.id().to_string()]).status().unwrap().success());
        sleep(Duration::from_millis(100));
    }
    let recorded = finished(&child.wait_with_output().unwrap());
    assert_eq!(recorded.code, 143, "{}", recorded.err);
    assert!(recorded.err.contains("interrupted"), "{}", recorded.err);
    assert_eq!(place.replay("rec", "soft")["end"], "interrupted");
}
