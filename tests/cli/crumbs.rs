//! Crumbs: left at each exit, shown from the core and from the ring, followed while a program runs, and left behind by a
//! recorder that is killed.

use crate::{DAMAGED, Place, USAGE, engines, finished};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

const CRASHES: &str = r#"
#include <stdio.h>
int main(void) { printf("started\n"); fflush(stdout); return *(volatile int *)8; }
"#;

/// Makes system calls for as long as it lives.
const CALLS: &str = r#"
#include <unistd.h>
#include <sys/syscall.h>
int main(void) { for (;;) syscall(SYS_getppid); }
"#;

/// Reads lines, and so waits for as long as nobody writes or closes.
const WAITS: [&str; 3] = ["--", "busybox", "cat"];

fn crumbs(place: &Place, input: &str) -> Value {
    let shown = place.gretel(&["core", "--crumbs", "--json", input]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    serde_json::from_str(&shown.out()).expect("--json prints JSON")
}

fn numbers(shown: &Value) -> Vec<u64> {
    let entries = shown["crumbs"].as_array().expect("a list");
    entries.iter().map(|entry| entry["number"].as_u64().expect("a number")).collect()
}

/// A recorder whose program has begun to run.
fn recorder(place: &Place, name: &str, arguments: &[&str]) -> Child {
    let mut command =
        place.command(env!("CARGO_BIN_EXE_gretel"), &[&["record", "-o", name], arguments].concat());
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let since = Instant::now();
    loop {
        sleep(Duration::from_millis(50));
        let shown = place.gretel(&["core", "--crumbs", "--json", name]);
        if shown.code == 0 && !shown.out().contains("\"crumbs\":[]") {
            break;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "no crumbs within a minute: {}", shown.err);
    }
    child
}

#[test]
fn every_exit_up_to_the_crash_is_in_the_ring_and_in_the_core() {
    let place = Place::new();
    let Some(_program) = place.compile("crashes", CRASHES) else { return };
    for engine in engines() {
        let recorded = place.gretel(&["record", "--engine", engine, "-o", engine, "--", "./crashes"]);
        assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
        let ring = crumbs(&place, engine);
        let count = u64::try_from(numbers(&ring).len()).unwrap();
        assert_eq!(numbers(&ring), (1..=count).collect::<Vec<_>>(), "from the first exit on");
        let (core, alone) = (format!("{engine}/core"), format!("{engine}.core"));
        fs::copy(place.path(&core), place.path(&alone)).unwrap();
        assert_eq!(crumbs(&place, &core), ring);
        assert_eq!(crumbs(&place, &alone)["crumbs"].as_array().unwrap().len(), numbers(&ring).len());

        let shown = place.gretel(&["core", "--json", engine]);
        let shown: Value = serde_json::from_str(&shown.out()).unwrap();
        assert_eq!(shown["crumbs"], count);
        let entries = ring["crumbs"].as_array().unwrap();
        let last = entries.last().unwrap();
        assert_eq!((&last["exit"], &last["address"]), (&"page-fault".into(), &"0x8".into()));
        assert_eq!(last["rip"], shown["registers"]["rip"]);
        assert_eq!(last["rsp"], shown["registers"]["rsp"]);
        assert_eq!((&last["context"], &last["calls"]), (&Value::Null, &Value::Null), "not asked for");
        assert!(last["place"].as_str().unwrap().starts_with("main+"), "{last}");
        // Where the engine counts, the counts are those of the core; where it does not, they are derived for exits that
        // replay knows again, and no others have any.
        for count in ["instructions", "taken_branches", "conditional_branches"] {
            let expected = if engine == "soft" { &shown["counters"][count] } else { &Value::Null };
            assert_eq!(&last[count], expected, "{count} on {engine}");
            let calls = || entries.iter().filter(|entry| entry["exit"] == "syscall");
            assert!(calls().all(|entry| entry["counts_derived"] == (engine == "kvm")));
            let counts: Vec<_> = calls().map(|entry| entry[count].as_u64().expect("a count")).collect();
            assert!(counts.is_sorted() && counts.last() <= shown["counters"][count].as_u64().as_ref());
        }
        let times: Vec<_> = entries.iter().map(|entry| entry["time"].as_u64().unwrap()).collect();
        assert!(times.is_sorted() && times[0] >= ring["origin"]["monotonic"].as_u64().unwrap());
        assert!(entries.iter().any(|entry| entry["syscall_name"] == "write"));
        let text = place.gretel(&["core", "--crumbs", engine]);
        assert_eq!(text.out().lines().count(), entries.len());
        assert!(text.out().contains("page-fault 0x8"), "{}", text.out());
    }
}

const NESTED: &str = r#"
#include <stdio.h>
#define KEEP __attribute__((noinline))
static volatile int sink;
KEEP static int inner(int n) { printf("%d\n", n); fflush(stdout); sink = n ? 0 : *(volatile int *)8; return n; }
KEEP static int left(int n);
KEEP static int right(int n) { int m = n > 0 ? left(n - 1) : inner(0); return m + sink; }
KEEP static int left(int n) { int m = n > 1 ? right(n - 2) + left(n - 1) : inner(n + 1); return m + sink; }
int main(void) { return left(6) + right(7); }
"#;

/// Contexts that were recorded as one word each are decoded to whole stacks, and that of the crash is the one that the
/// core's own stack shows.
#[test]
fn contexts_are_decoded_to_the_stacks_that_they_were() {
    let place = Place::new();
    let Some(_program) = place.compile("nested", NESTED) else { return };
    for engine in engines() {
        for contexts in ["--contexts", "--contexts=3"] {
            let name = format!("{engine}{contexts}");
            let recorded =
                place.gretel(&["record", contexts, "--engine", engine, "-o", &name, "--", "./nested"]);
            assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
            let ring = crumbs(&place, &name);
            let entries = ring["crumbs"].as_array().unwrap();
            assert!(entries.len() > 20, "{}", entries.len());
            for entry in entries {
                let calls = entry["calls"].as_array().unwrap_or_else(|| panic!("not decoded: {entry}"));
                let outermost = calls.last().map_or(&entry["place"], |call| &call["place"]);
                assert!(outermost.as_str().unwrap().starts_with("_start+"), "{entry}");
            }
            let shown = place.gretel(&["core", "--json", &name]);
            let shown: Value = serde_json::from_str(&shown.out()).unwrap();
            let addresses = |of: &Value| -> Vec<Value> {
                of.as_array().unwrap().iter().map(|frame| frame["rip"].clone()).collect()
            };
            let last = entries.last().unwrap();
            assert_eq!(addresses(&last["calls"])[..], addresses(&shown["stack"])[1..]);
            let text = place.gretel(&["core", "--crumbs", &name]);
            assert!(text.out().contains("called by right < "), "{}", text.out());

            // The core alone holds all that is needed, but for the program.
            let alone = format!("{name}.core");
            fs::copy(place.path(&format!("{name}/core")), place.path(&alone)).unwrap();
            let shown = place.gretel(&["core", "--crumbs", "--json", "--exe", "nested", &alone]);
            let shown: Value = serde_json::from_str(&shown.out()).unwrap();
            assert_eq!(shown["crumbs"].as_array().unwrap(), entries);
            fs::write(place.path(&format!("{name}/contexts-0")), "something else").unwrap();
            assert_eq!(place.gretel(&["core", "--crumbs", &name]).code, DAMAGED);
            assert_eq!(place.gretel(&["replay", &name]).code, 0);
        }
    }
}

#[test]
fn the_ring_is_as_large_as_asked_for() {
    let place = Place::new();
    let start = ["record", "--engine", "soft", "-o"];
    let program = ["--", "busybox", "echo", "x"];
    assert_eq!(place.gretel(&[&start[..], &["few", "--crumbs", "3"], &program].concat()).code, 0);
    let shown = crumbs(&place, "few");
    let found = numbers(&shown);
    assert!(
        found.len() == 3 && found[0] > 3 && found.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{found:?}"
    );
    assert_eq!(place.gretel(&["replay", "few"]).code, 0);

    assert_eq!(place.gretel(&[&start[..], &["none", "--no-crumbs"], &program].concat()).code, 0);
    assert!(!place.path("none/crumbs-0").exists());
    assert_eq!(place.replay("none", "soft")["crumbs_compared"], 0);
    for command in [&["core", "--crumbs", "none"][..], &["watch", "none"]] {
        let shown = place.gretel(command);
        assert_eq!(shown.code, DAMAGED);
        assert!(shown.err.contains("recorded with --no-crumbs"), "{}", shown.err);
    }
    for refused in [&["--crumbs", "0"][..], &["--crumbs", "9999999"], &["--crumbs", "5", "--no-crumbs"]] {
        assert_eq!(place.gretel(&[&start[..], &["refused"], refused, &program].concat()).code, USAGE);
    }
}

/// Killed at any moment, the recorder leaves a ring in order; at most the record that it was writing is lost.
#[test]
fn a_killed_recorder_leaves_its_crumbs() {
    let place = Place::new();
    let Some(_program) = place.compile("calls", CALLS) else { return };
    for engine in engines() {
        let mut child = recorder(&place, engine, &["--crumbs", "100", "--engine", engine, "--", "./calls"]);
        // What the program did before its first call of `main` leaves the ring when this many others have come.
        let since = Instant::now();
        while numbers(&crumbs(&place, engine)).last() < Some(&500) {
            assert!(since.elapsed() < Duration::from_secs(60), "{engine}: the program makes its calls");
            sleep(Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let shown = crumbs(&place, engine);
        let found = numbers(&shown);
        assert!(found.len() >= 99 && found.windows(2).all(|pair| pair[1] == pair[0] + 1), "{found:?}");
        assert!(shown["torn"].as_u64().unwrap() <= 1 && shown["missing"] == 0);
        // Behind a checkpoint of the near past the stack is copied, which is a page fault.
        for entry in shown["crumbs"].as_array().unwrap().iter().filter(|entry| entry["exit"] != "page-fault")
        {
            assert_eq!(entry["syscall_name"], "getppid", "{engine}: {entry}");
        }
        let replayed = place.gretel(&["replay", engine, "--engine", engine]);
        assert_eq!(replayed.code, DAMAGED, "cut, and not different: {}", replayed.err);
        // Between two frames of the journal, or inside one.
        let said = ["the recorder was killed", "ends inside a frame"];
        assert!(said.iter().any(|said| replayed.err.contains(said)), "{}", replayed.err);
    }
}

/// Crumbs come while the program runs, and the end of the recording is the end of watching.
#[test]
fn a_running_recording_can_be_watched() {
    let place = Place::new();
    let mut recorder = recorder(&place, "rec", &WAITS);
    let before = numbers(&crumbs(&place, "rec")).last().copied();
    let mut watch = place.command(env!("CARGO_BIN_EXE_gretel"), &["watch", "--json", "--last", "0", "rec"]);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    // Nobody is told when watching has begun, and what came before is not shown: lines come until one is seen.
    let mut stdin = recorder.stdin.take().unwrap();
    let (seen, is_seen) = mpsc::channel::<()>();
    let writer = thread::spawn(move || {
        while is_seen.recv_timeout(Duration::from_millis(100)) == Err(mpsc::RecvTimeoutError::Timeout) {
            stdin.write_all(b"a line\n").unwrap();
        }
    });
    let (mut calls, mut first) = (Vec::new(), None);
    while !calls.ends_with(&["write".to_owned(), "read".to_owned()]) {
        let line: Value = serde_json::from_str(&lines.next().expect("more crumbs").unwrap()).unwrap();
        first = first.or_else(|| line["number"].as_u64());
        calls.extend(line["syscall_name"].as_str().map(str::to_owned));
    }
    assert!(first > before, "{first:?} was there before, as {before:?} was");
    drop(seen);
    writer.join().unwrap();
    assert_eq!(finished(&recorder.wait_with_output().unwrap()).code, 0);
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    assert!(rest.iter().any(|line| line.contains("exit_group")), "{rest:?}");
    assert_eq!(finished(&watch.wait_with_output().unwrap()).code, 0);
    let after = place.gretel(&["watch", "--last", "2", "rec"]);
    assert_eq!((after.code, after.out().lines().count()), (0, 2), "{}", after.err);
}

/// Who has seen enough closes the pipe, and the watcher goes.
#[test]
fn a_watcher_without_a_reader_ends() {
    let place = Place::new();
    let Some(_program) = place.compile("calls", CALLS) else { return };
    let mut recorder = recorder(&place, "rec", &["--engine", "soft", "--", "./calls"]);
    let mut watch = place.command(env!("CARGO_BIN_EXE_gretel"), &["watch", "rec"]);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut some = [0; 100];
    watch.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let watched = finished(&watch.wait_with_output().unwrap());
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    assert_eq!(watched.code, 0, "{}", watched.err);
}

/// A ring that is damaged, or of another run, is noticed; replay needs only the journal.
#[test]
fn a_ring_that_is_not_this_recordings_is_noticed() {
    let place = Place::new();
    for (name, word) in [("one", "x"), ("two", "longer")] {
        let start = ["record", "--engine", "soft", "-o", name, "--", "busybox"];
        let applet: &[&str] = if word == "x" { &["echo", word] } else { &["cat", "/dev/null"] };
        assert_eq!(place.gretel(&[&start[..], applet].concat()).code, 0);
    }
    let equal = place.replay("one", "soft");
    assert!(equal["crumbs_compared"].as_u64().unwrap() >= 5, "{equal}");
    assert_eq!(equal["crumbs_compared"], equal["events"].as_u64().unwrap() - 1, "all but the end itself");

    let own = fs::read(place.path("one/crumbs-0")).unwrap();
    fs::copy(place.path("two/crumbs-0"), place.path("one/crumbs-0")).unwrap();
    let replayed = place.gretel(&["replay", "one", "--engine", "soft"]);
    assert_eq!(replayed.code, DAMAGED);
    assert!(replayed.err.contains("the ring of crumbs is not"), "{}", replayed.err);

    for damaged in [&own[..40], &b"no ring at all, but some other text of more than forty-eight bytes"[..]] {
        fs::write(place.path("one/crumbs-0"), damaged).unwrap();
        let shown = place.gretel(&["core", "--crumbs", "one"]);
        assert_eq!(shown.code, DAMAGED);
        assert!(shown.err.contains("is not a ring of crumbs"), "{}", shown.err);
        assert_eq!(place.replay("one", "soft")["digest"], equal["digest"]);
    }
}
