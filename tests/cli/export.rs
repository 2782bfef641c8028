//! `gretel export`: a trace that other tools open.

use crate::{DAMAGED, Place, USAGE, engines};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Two processes that wait for one another, and a signal.
const SHELL: &str = "trap 'echo trapped' USR1; (sleep 0.1; kill -USR1 $$) & wait; ls / | wc -l; wait";

type Lane = (u64, u64);

fn lane(event: &Value) -> Lane {
    (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap())
}

fn record(place: &Place, engine: &str) {
    let shell = ["busybox", "sh", "-c", SHELL];
    let recorded = place.gretel(&[&["record", "--engine", engine, "-o", engine, "--"], &shell[..]].concat());
    assert_eq!(recorded.code, 0, "{}", recorded.err);
}

fn trace(place: &Place, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(place.path(name)).unwrap();
    let trace: Value = serde_json::from_str(&text).expect("JSON");
    assert!(trace["otherData"]["axis"].is_string(), "the axis is named");
    assert_eq!(trace["displayTimeUnit"], "ns", "one of the two that there are");
    trace["traceEvents"].as_array().unwrap().clone()
}

/// An event has the fields that the Trace Event Format asks of its phase, with values of their types, and no others.
fn check_fields(event: &Value) {
    let fields = event.as_object().expect("an object");
    let text = |name: &str| fields.get(name).is_some_and(|it| it.as_str().is_some_and(|it| !it.is_empty()));
    let (needed, allowed): (&[&str], &[&str]) = match event["ph"].as_str().expect("a phase") {
        "B" => (&["name", "cat"], &[]),
        "E" => (&[], &["name", "cat"]),
        "i" => (&["name", "cat", "s"], &[]),
        "M" => (&["name"], &[]),
        other => panic!("phase {other}: {event}"),
    };
    assert!(needed.iter().all(|name| text(name)), "{needed:?} in {event}");
    let known = |name: &str| ["ph", "ts", "pid", "tid", "args"].contains(&name);
    for name in fields.keys() {
        let is_known = known(name) || needed.contains(&name.as_str()) || allowed.contains(&name.as_str());
        assert!(is_known, "`{name}` in {event}");
    }
    assert!(event["ts"].as_f64().is_some_and(|ts| ts.is_finite() && ts >= 0.0), "{event}");
    let is_id = |name: &str| event[name].as_u64().is_some_and(|id| i32::try_from(id).is_ok());
    assert!(is_id("pid") && is_id("tid"), "{event}");
    assert!(fields.get("args").is_none_or(Value::is_object), "{event}");
    assert!(event["ph"] != "i" || event["s"] == "t", "an instant of another scope: {event}");
    if event["ph"] == "M" {
        let (names, sorts) = (["process_name", "thread_name"], event["name"] == "process_sort_index");
        assert!(sorts || names.contains(&event["name"].as_str().unwrap_or_default()), "{event}");
        assert!(event["args"][if sorts { "sort_index" } else { "name" }] != Value::Null, "{event}");
    }
}

/// Slices of a lane pair, and do not overlap, as a reader sees them: sorted by time, else in their order.
fn check(events: &[Value]) {
    events.iter().for_each(check_fields);
    let mut sorted: Vec<&Value> = events.iter().filter(|event| event["ph"] != "M").collect();
    sorted.sort_by(|a, b| a["ts"].as_f64().unwrap().total_cmp(&b["ts"].as_f64().unwrap()));
    let mut open: BTreeMap<Lane, &Value> = BTreeMap::new();
    for event in &sorted {
        match event["ph"].as_str().unwrap() {
            "B" => assert_eq!(open.insert(lane(event), event), None, "a slice in a slice: {event}"),
            "E" => {
                let begin = open.remove(&lane(event)).unwrap_or_else(|| panic!("never begun: {event}"));
                assert!(event["name"].is_null() || event["name"] == begin["name"], "{begin} {event}");
            }
            "i" => assert!(event["args"]["event"].is_u64(), "{event}"),
            other => panic!("phase {other}"),
        }
    }
    assert!(open.is_empty(), "{open:?}");
    let named = |what: &str| -> BTreeSet<Lane> {
        let names = events.iter().filter(|event| event["name"] == what);
        names
            .filter(|event| event["args"]["name"].as_str().is_some_and(|it| !it.is_empty()))
            .map(lane)
            .collect()
    };
    let (lanes, processes) = (named("thread_name"), named("process_name"));
    for event in sorted {
        assert!(lanes.contains(&lane(event)), "a task without a name: {event}");
        assert!(processes.iter().any(|(pid, _)| *pid == lane(event).0), "a process without a name: {event}");
    }
}

#[test]
fn slices_pair_and_every_task_has_a_name() {
    let place = Place::new();
    for engine in engines() {
        record(&place, engine);
        for axis in ["events", "time", "instructions"] {
            let arguments = ["export", engine, "--perfetto", "--axis", axis, "-o", "trace.json"];
            let exported = place.gretel(&arguments);
            assert_eq!((exported.code, exported.out().as_str()), (0, ""), "{}", exported.err);
            check(&trace(&place, "trace.json"));
        }
    }
    let events = trace(&place, "trace.json");
    let has = |keep: &dyn Fn(&Value) -> bool| events.iter().any(keep);
    assert!(has(&|event| event["name"] == "process_name" && event["args"]["name"] == "processor"));
    assert!(has(&|event| event["ph"] == "B" && event["cat"] == "run"));
    assert!(has(&|event| event["ph"] == "i" && event["args"]["signal"] == "SIGUSR1"));
    assert!(has(&|event| event["ph"] == "E"
        && event["args"]["call"].as_str().is_some_and(|call| call.contains("write("))));
}

/// On the axis of events a slice is where the list has its call.
#[test]
fn the_trace_is_at_the_events_of_the_list() {
    let place = Place::new();
    record(&place, "soft");
    assert_eq!(place.gretel(&["export", "soft", "--perfetto", "-o", "trace.json"]).code, 0);
    let events = trace(&place, "trace.json");
    let calls = events.iter().filter(|event| event["ph"] == "B" && event["cat"] == "syscall");
    let traced: BTreeSet<(u64, String)> = calls
        .map(|event| (event["args"]["event"].as_u64().unwrap(), event["name"].as_str().unwrap().to_owned()))
        .collect();
    let listed = place.gretel(&["events", "soft", "--kind", "syscall", "--json"]).out();
    let lines = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let begun = lines.filter(|it| ["whole", "begun", "never"].contains(&it["stage"].as_str().unwrap()));
    let expected: BTreeSet<(u64, String)> =
        begun.map(|it| (it["event"].as_u64().unwrap(), it["name"].as_str().unwrap().to_owned())).collect();
    assert_eq!(traced, expected);
}

#[test]
fn a_torn_recording_gives_a_whole_trace_of_what_there_is() {
    let place = Place::new();
    record(&place, "soft");
    let journal = fs::read(place.path("soft/journal")).unwrap();
    fs::write(place.path("soft/journal"), &journal[..journal.len() - 5]).unwrap();
    let exported = place.gretel(&["export", "soft", "--perfetto", "-o", "trace.json"]);
    assert_eq!(exported.code, DAMAGED, "{}", exported.err);
    assert!(exported.err.contains("journal soft/journal is used up to offset"), "{}", exported.err);
    check(&trace(&place, "trace.json"));
}

#[test]
fn a_part_of_a_recording_is_a_trace_of_that_part() {
    let place = Place::new();
    record(&place, "soft");
    let whole = place.gretel(&["events", "soft", "--kind", "syscall", "--json"]).out();
    let numbers = whole.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["event"].as_u64());
    let last = numbers.flatten().max().unwrap();
    // From the midst of what the shell and its children do to each other.
    let (from, to) = (last * 2 / 3, last - 20);
    for axis in ["events", "time", "instructions"] {
        let bounds = ["--from", &from.to_string(), "--to", &to.to_string(), "--axis", axis];
        let exported =
            place.gretel(&[&["export", "soft", "--perfetto", "-o", "part.json"], &bounds[..]].concat());
        assert_eq!(exported.code, 0, "{}", exported.err);
        let events = trace(&place, "part.json");
        check(&events);
        let at: Vec<u64> = events.iter().filter_map(|event| event["args"]["event"].as_u64()).collect();
        assert!(!at.is_empty() && at.iter().all(|at| (from..=to).contains(at)), "{from} {to} {at:?}");
    }
    let turned = place.gretel(&["export", "soft", "--perfetto", "--from", "9", "--to", "3"]);
    assert!(turned.code == USAGE && turned.err.contains("--from 9 is behind --to 3"), "{}", turned.err);
    let behind = place.gretel(&["export", "soft", "--perfetto", "-o", "none.json", "--from", "999999"]);
    assert!(behind.code == DAMAGED && behind.err.contains("the recording ends at"), "{}", behind.err);
}

#[test]
fn the_trace_goes_to_standard_output_too() {
    let place = Place::new();
    record(&place, "soft");
    assert_eq!(place.gretel(&["export", "soft", "--perfetto", "-o", "trace.json"]).code, 0);
    let printed = place.gretel(&["export", "soft", "--perfetto", "-o", "-"]);
    assert_eq!((printed.code, printed.out), (0, fs::read(place.path("trace.json")).unwrap()));
    let gretel = env!("CARGO_BIN_EXE_gretel");
    let closed =
        place.sh(&format!("{{ {gretel} export soft --perfetto; echo $? >code; }} | head -c 100 | wc -c"));
    assert_eq!((closed.out().trim(), closed.err.as_str()), ("100", ""));
    assert_eq!(fs::read_to_string(place.path("code")).unwrap(), "0\n");
    let nowhere = place.gretel(&["export", "soft", "--perfetto", "-o", "missing/trace.json"]);
    assert_eq!(nowhere.code, crate::WRITE);
    assert!(nowhere.err.contains("cannot write missing/trace.json"), "{}", nowhere.err);
    assert_eq!(place.gretel(&["export", "soft"]).code, USAGE, "no format");
    let kvm = place.gretel(&["export", "soft", "--perfetto", "--axis", "instructions", "--engine", "kvm"]);
    assert_eq!(kvm.code, USAGE, "{}", kvm.err);
}
