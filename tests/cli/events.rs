//! `gretel events`: what happened in a recording, a line each.

use crate::{DAMAGED, Place, USAGE, engines};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A shell that waits for a child, and is interrupted there.
const SHELL: &str = "trap 'echo trapped' USR1
    (sleep 0.2; kill -USR1 $$) &
    wait
    wait
    ls -d /no-such-folder
    exit 7";

fn image(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("guest-images/build/glibc").join(name)
}

/// Records the shell.
fn record(place: &Place, engine: &str) {
    let recorded =
        place.gretel(&["record", "--engine", engine, "-o", engine, "--", "busybox", "sh", "-c", SHELL]);
    assert_eq!(recorded.code, 7, "{}", recorded.err);
}

fn events(place: &Place, arguments: &[&str]) -> Vec<Value> {
    let listed = place.gretel(&[&["events", "--json"], arguments].concat());
    assert_eq!(listed.code, 0, "{arguments:?}: {}", listed.err);
    listed.out().lines().map(|line| serde_json::from_str(line).expect("a JSON object a line")).collect()
}

fn is(event: &Value, kind: &str) -> bool {
    event["kind"] == kind
}

#[test]
fn every_event_has_a_line_and_it_is_the_same_on_every_engine() {
    let place = Place::new();
    for engine in engines() {
        record(&place, engine);
        let lists: Vec<String> = ["soft", "auto", engine]
            .into_iter()
            .map(|replayer| {
                let listed = place.gretel(&["events", engine, "--engine", replayer]);
                assert_eq!(listed.code, 0, "{}", listed.err);
                listed.out()
            })
            .collect();
        assert!(lists.windows(2).all(|pair| pair[0] == pair[1]), "the list depends on the engine");
        let numbers: BTreeSet<u64> =
            events(&place, &[engine]).iter().map(|event| event["event"].as_u64().unwrap()).collect();
        let all = place.replay(engine, "soft")["events"].as_u64().unwrap();
        let expected: BTreeSet<u64> = (1..=all).collect();
        assert_eq!(numbers, expected);
        assert!(lists[0].contains("exited with status 7"), "{}", lists[0]);
    }
}

#[test]
fn what_happened_is_told_with_its_kind() {
    let place = Place::new();
    record(&place, "soft");
    let all = events(&place, &["soft"]);
    let shell = all[0]["pid"].clone();
    let started: Vec<&Value> = all.iter().filter(|event| is(event, "fork")).collect();
    assert!(started.len() >= 2 && started[0]["pid"] == shell, "{started:?}");
    assert!(all.iter().any(|event| is(event, "switch") && event["from"] == shell));
    let signal = all.iter().find(|event| event["signal"] == "SIGUSR1").expect("the signal of kill");
    assert!(signal["handler"].is_string() || signal["handler"].is_u64(), "{signal}");
    assert!(signal["text"].as_str().unwrap().contains("from process"), "{signal}");
    let interrupted = all.iter().find(|event| event["error"] == "EINTR");
    let begun = interrupted.expect("a call that the signal interrupted");
    assert_eq!((&begun["stage"], &begun["result"]), (&"resumed".into(), &(-4).into()), "{begun}");
    let last = all.last().unwrap();
    assert_eq!((&last["end"], &last["status_or_signal"]), (&"exited".into(), &7.into()));
    let exit = all.iter().rfind(|event| is(event, "exit")).unwrap();
    assert_eq!((&exit["pid"], &exit["status"]), (&shell, &7.into()));
}

#[test]
fn a_crash_is_at_its_event() {
    let place = Place::new();
    let image = image("second-thread");
    let image = image.to_str().unwrap();
    assert_eq!(place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", image]).code, 139);
    let crash = &events(&place, &["rec", "--kind", "crash"])[..];
    assert_eq!((crash.len(), &crash[0]["signal"]), (1, &"SIGSEGV".into()), "{crash:?}");
    assert_ne!(crash[0]["pid"], crash[0]["task"], "it is the second thread's");
    let list = place.gretel(&["events", "rec", "--kind", "signal,crash,end"]).out();
    let kinds: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert_eq!(kinds[..2], ["signal", "crash"], "{list}");
    assert!(list.contains("SIGSEGV (address 0x0), not handled"), "{list}");
    let thread = events(&place, &["rec", "--kind", "fork"]);
    assert!(thread[0]["text"].as_str().unwrap().starts_with("thread "), "{thread:?}");
}

#[test]
fn filters_keep_what_they_name() {
    let place = Place::new();
    record(&place, "soft");
    let all = events(&place, &["soft"]);
    let select = |keep: &dyn Fn(&Value) -> bool| -> Vec<Value> {
        all.iter().filter(|event| keep(event)).cloned().collect()
    };
    let names = |event: &Value| ["openat", "open", "execve"].contains(&event["name"].as_str().unwrap_or(""));
    let failed = |event: &Value| event["error"].is_string() && event["error"] != "ERESTARTSYS";
    let shell = all[0]["task"].to_string();
    let child_id = all.iter().find(|event| is(event, "fork")).unwrap()["started"].clone();
    let child = child_id.to_string();
    let number = |event: &Value| event["event"].as_u64().unwrap();
    let (filters, expected): (Vec<Vec<&str>>, Vec<Vec<Value>>) = [
        (vec!["--kind", "fork,exec"], select(&|event| is(event, "fork") || is(event, "exec"))),
        (vec!["--call", "openat,open,execve"], select(&names)),
        (vec!["--failed"], select(&failed)),
        (vec!["--failed", "--kind", "syscall,signal"], select(&|it| failed(it) || is(it, "signal"))),
        (vec!["--call", "open", "--kind", "exit"], select(&|event| is(event, "exit"))),
        (vec!["--task", &child], select(&|event| event["task"] == child_id)),
        (
            vec!["--task", &shell, "--task", &child, "--failed"],
            select(&|event| failed(event) && [&shell, &child].contains(&&event["task"].to_string())),
        ),
        (vec!["--from", "20", "--to", "30"], select(&|event| (20..=30).contains(&number(event)))),
        (vec!["--from", "20+1", "--to", "30"], select(&|event| (21..=30).contains(&number(event)))),
    ]
    .into_iter()
    .unzip();
    for (filter, expected) in filters.iter().zip(expected) {
        for engine in ["soft", "auto"] {
            let found = events(&place, &[&["soft", "--engine", engine], &filter[..]].concat());
            let numbers =
                |list: &[Value]| list.iter().map(|it| (number(it), it["text"].clone())).collect::<Vec<_>>();
            assert_eq!(numbers(&found), numbers(&expected), "{filter:?} on {engine}");
            assert!(!found.is_empty(), "{filter:?}");
        }
    }
}

#[test]
fn a_filter_that_cannot_be_is_refused() {
    let place = Place::new();
    record(&place, "soft");
    for (filter, message) in [
        (&["--call", "opennat"][..], "no system call is called opennat"),
        (&["--kind", "system-call"], "possible values"),
        (&["--from", "9", "--to", "8"], "--from 9 is behind --to 8"),
        (&["--from", "x"], "a position is EVENT or EVENT+INSTRUCTIONS"),
    ] {
        let refused = place.gretel(&[&["events", "soft"], filter].concat());
        assert_eq!((refused.code, refused.out().as_str()), (USAGE, ""), "{filter:?}");
        assert!(refused.err.contains(message), "{filter:?}: {}", refused.err);
    }
    let behind = place.gretel(&["events", "soft", "--from", "1000000"]);
    assert_eq!((behind.code, behind.out().as_str()), (DAMAGED, ""));
    assert!(behind.err.contains("before 1000000"), "{}", behind.err);
}

#[test]
fn a_torn_journal_is_listed_up_to_the_tear() {
    let place = Place::new();
    place.write("text", "some words\n".repeat(20_000));
    assert_eq!(place.gretel(&["record", "-o", "rec", "--", "busybox", "sort", "text"]).code, 0);
    let whole = place.gretel(&["events", "rec"]).out();
    let journal = fs::read(place.path("rec/journal")).unwrap();
    fs::write(place.path("rec/journal"), &journal[..journal.len() - 5]).unwrap();
    let torn = place.gretel(&["events", "rec"]);
    assert_eq!(torn.code, DAMAGED, "{}", torn.err);
    assert!(whole.starts_with(&torn.out()) && whole.len() > torn.out().len(), "{}", torn.out());
    assert!(torn.err.contains("journal rec/journal is used up to offset"), "{}", torn.err);
    assert!(torn.err.contains("events before it are as recorded"), "{}", torn.err);
}

#[test]
fn a_closed_pipe_behind_events_is_no_failure() {
    let place = Place::new();
    record(&place, "soft");
    let gretel = env!("CARGO_BIN_EXE_gretel");
    let ran = place.sh(&format!("{{ {gretel} events soft; echo $? >code; }} | head -n 2 | wc -l"));
    assert_eq!((ran.out().trim(), ran.err.as_str()), ("2", ""));
    assert_eq!(fs::read_to_string(place.path("code")).unwrap(), "0\n");
    let full = place.sh(&format!("{gretel} events soft >/dev/full"));
    assert_eq!(full.code, crate::WRITE, "{}", full.err);
}

/// A call that a signal interrupts comes to its own result, not to that of the next one; and what runs again for a crash's branch
/// records is not printed again.
#[test]
fn a_trace_has_each_call_once_and_with_its_own_result() {
    let place = Place::new();
    let run = ["record", "--trace", "--engine", "soft", "-o", "a", "--", "busybox", "sh", "-c", SHELL];
    let traced = place.gretel(&run).err;
    assert!(traced.contains("= -1 EINTR (Interrupted system call)"), "{traced}");
    let image = image("second-thread");
    let crashing = place.gretel(&["record", "--trace", "-o", "b", "--", image.to_str().unwrap()]).err;
    assert_eq!(crashing.matches("write(1, \"filling").count(), 1, "{crashing}");
}

/// Which of the two runs is chosen anew at each segment, so that neither may be bound to a count of the other's.
#[test]
fn a_replay_on_both_engines_goes_to_any_position() {
    let place = Place::new();
    record(&place, "soft");
    for position in ["30", "31", "32", "33"] {
        let there = place.gretel(&["replay", "soft", "--engine", "auto", "--to", position]);
        assert_eq!(there.code, 0, "{position}: {}", there.err);
    }
}
