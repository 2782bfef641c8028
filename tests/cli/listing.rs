//! `gretel ls` and `gretel rm`.

use crate::{DAMAGED, Place, USAGE};
use serde_json::Value;
use std::fs;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

fn record(place: &Place, name: &str, program: &[&str]) {
    place.gretel(&[&["record", "--engine", "soft", "-o", name, "--"], program].concat());
    assert!(place.path(name).join("journal").exists(), "{name}");
}

/// What `ls --json` says of these folders.
fn listed(place: &Place, dirs: &[&str]) -> Vec<Value> {
    let ran = place.gretel(&[&["ls", "--json"], dirs].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let all: Value = serde_json::from_str(&ran.out()).expect("--json prints JSON");
    all["recordings"].as_array().expect("a list").clone()
}

fn names(place: &Place) -> Vec<String> {
    listed(place, &[]).iter().map(|one| one["dir"].as_str().expect("a folder").to_owned()).collect()
}

/// Starts a recorder, and waits until there are events.
fn recorder(place: &Place, name: &str) -> Child {
    let mut command =
        place.command(env!("CARGO_BIN_EXE_gretel"), &["record", "--engine", "soft", "-o", name]);
    command.args(["--", "busybox", "sleep", "100"]).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("the recorder starts");
    let since = Instant::now();
    while !place.path(name).join("journal").exists() || listed(place, &[name])[0]["events"].as_u64() < Some(1)
    {
        assert!(since.elapsed() < Duration::from_secs(60), "{name} begins");
        sleep(Duration::from_millis(10));
    }
    child
}

#[test]
fn recordings_are_listed_in_the_order_of_their_times() {
    let place = Place::new();
    let nothing = place.gretel(&["ls"]);
    assert_eq!((nothing.code, nothing.out()), (0, String::new()), "{}", nothing.err);
    assert!(nothing.err.contains("no recordings"), "{}", nothing.err);
    record(&place, "z", &["busybox", "sh", "-c", "exit 3"]);
    record(&place, "a", &["busybox", "sh", "-c", "kill -11 $$"]);
    record(&place, "m", &["busybox", "echo", "two words", "\u{1b}[31m"]);
    // Folders that are no recordings, and what is in them.
    record(&place, "a/not-looked-at", &["busybox", "true"]);
    fs::create_dir(place.path("empty")).unwrap();
    place.write("file", "x");
    assert_eq!(names(&place), ["z", "a", "m"]);
    let all = listed(&place, &["."]);
    let text = |n: usize, key: &str| all[n][key].as_str().unwrap_or_default().to_owned();
    assert_eq!((text(0, "end"), all[0]["status_or_signal"].as_i64()), ("exited".into(), Some(3)));
    assert_eq!((text(1, "end"), all[1]["status_or_signal"].as_i64()), ("killed".into(), Some(11)));
    assert_eq!(all[1]["cores"][0], "core");
    assert_eq!(all[2]["argv"][2], "two words");
    for (n, name) in ["z", "a", "m"].into_iter().enumerate() {
        assert_eq!(all[n]["events"], place.replay(name, "soft")["events"], "{name}");
        assert_eq!(listed(&place, &[name])[0]["dir"], name);
    }
    let shown = place.gretel(&["ls"]).out();
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("z  20") && lines[0].contains("exited 3"), "{shown}");
    assert!(lines[1].contains("ended by SIGSEGV, core"), "{shown}");
    assert!(lines[2].contains("'two words'") && !shown.contains('\u{1b}'), "{shown}");
    assert!(lines[3].starts_with("3 recordings, "), "{shown}");
    assert_eq!(place.gretel(&["ls", "there-is-none"]).code, DAMAGED);
}

#[test]
fn what_cannot_be_read_is_listed_all_the_same() {
    let place = Place::new();
    record(&place, "cut", &["busybox", "true"]);
    let journal = fs::read(place.path("cut/journal")).unwrap();
    fs::write(place.path("cut/journal"), &journal[..journal.len() - 1]).unwrap();
    record(&place, "old", &["busybox", "true"]);
    let mut old = journal.clone();
    old[8] = 1;
    fs::write(place.path("old/journal"), old).unwrap();
    let all = listed(&place, &[]);
    assert_eq!((&all[0]["end"], &all[1]["end"]), (&"incomplete".into(), &"unreadable".into()));
    assert!(all[1]["why"].as_str().is_some_and(|why| why.contains("has format 1")), "{}", all[1]);
    let shown = place.gretel(&["ls"]);
    assert_eq!(shown.code, 0);
    assert!(shown.out().contains("no end") && shown.out().contains("unreadable"), "{}", shown.out());
    assert!(shown.err.contains("old/journal has format 1"), "{}", shown.err);
    // And removed.
    assert_eq!(place.gretel(&["rm", "old", "cut"]).code, 0);
    assert_eq!(names(&place), [] as [&str; 0]);
}

#[test]
fn a_recording_in_the_making_is_told_and_not_removed() {
    let place = Place::new();
    record(&place, "done", &["busybox", "true"]);
    let mut child = recorder(&place, "running");
    assert_eq!(listed(&place, &["running"])[0]["end"], "recording");
    assert!(place.gretel(&["ls"]).out().contains("being recorded"));
    for refused in
        [&["rm", "running"][..], &["pack", "running"], &["record", "--force", "-o", "running", "--", "true"]]
    {
        let ran = place.gretel(refused);
        assert_eq!(ran.code, USAGE, "{refused:?}: {}", ran.err);
        assert!(ran.err.contains("still being recorded"), "{refused:?}: {}", ran.err);
    }
    let removed = place.gretel(&["rm", "--all"]);
    assert_eq!(removed.code, 0, "{}", removed.err);
    assert!(removed.err.contains("running is still being recorded"), "{}", removed.err);
    assert_eq!(names(&place), ["running"]);
    // The kernel gives the lock back, however the recorder ends.
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(listed(&place, &["running"])[0]["end"], "incomplete");
    assert_eq!(place.gretel(&["rm", "running"]).code, 0);
    assert!(!place.path("running").exists());
}

#[test]
fn only_what_is_a_recording_is_removed() {
    let place = Place::new();
    record(&place, "rec", &["busybox", "true"]);
    fs::create_dir(place.path("folder")).unwrap();
    for (dir, code) in [("folder", DAMAGED), (".", DAMAGED), ("there-is-none", DAMAGED)] {
        let refused = place.gretel(&["rm", dir]);
        assert_eq!(refused.code, code, "{}", refused.err);
    }
    assert_eq!(place.gretel(&["rm"]).code, USAGE);
    place.write("rec/notes.txt", "mine");
    let refused = place.gretel(&["rm", "rec"]);
    assert_eq!(refused.code, USAGE, "{}", refused.err);
    assert!(refused.err.contains("notes.txt"), "{}", refused.err);
    let left = place.gretel(&["rm", "--all"]);
    assert_eq!(left.code, 0, "{}", left.err);
    place.replay("rec", "soft");
    fs::remove_file(place.path("rec/notes.txt")).unwrap();
    let removed = place.gretel(&["rm", "rec"]);
    assert!(
        removed.out().starts_with("removed rec, ") && removed.out().contains("freed"),
        "{}",
        removed.out()
    );
    assert!(place.path("folder").is_dir() && !place.path("rec").exists());
    // Nobody has the program any more.
    assert_eq!(fs::read_dir(place.store()).unwrap().count(), 0);
}

#[test]
fn the_newest_are_kept_and_the_old_ones_go() {
    let place = Place::new();
    (1..=4).for_each(|n| record(&place, &format!("rec-{n}"), &["busybox", "true"]));
    assert_eq!(place.gretel(&["rm", "--keep", "9"]).code, 0);
    assert_eq!(place.gretel(&["rm", "--keep", "3"]).code, 0);
    assert_eq!(names(&place), ["rec-2", "rec-3", "rec-4"]);
    // A file that others have too stays in the store.
    assert_eq!(fs::read_dir(place.store()).unwrap().count(), 1);
    assert!(place.sh("touch -d '8 days ago' rec-3/journal").code == 0);
    assert_eq!(place.gretel(&["rm", "--older", "9d"]).code, 0);
    assert_eq!(names(&place).len(), 3);
    assert_eq!(place.gretel(&["rm", "--older", "7d", "."]).code, 0);
    assert_eq!(names(&place), ["rec-2", "rec-4"]);
    for wrong in [&["rm", "--older", "soon"][..], &["rm", "--all", "--keep", "1"], &["rm", "--keep", "-1"]] {
        assert_eq!(place.gretel(wrong).code, USAGE, "{wrong:?}");
    }
    assert_eq!(place.gretel(&["rm", "--all"]).code, 0);
    assert_eq!(names(&place), [] as [&str; 0]);
}
