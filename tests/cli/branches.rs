//! Where branch records come from: what is asked for is used or refused with the reason that `gretel doctor` gives, and
//! the core says which it was.

use crate::{HOST, Place, USAGE, skipped};
use serde_json::Value;

const CRASHES: &str = "
static volatile int sum;
__attribute__((noinline)) static int f(int n) { return n % 3 ? n : sum; }
int main(void) { for (int i = 0; i < 100; i++) sum += f(i); return *(volatile int *)8; }";

fn doctor(place: &Place) -> Value {
    let shown = place.gretel(&["doctor", "--json"]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    serde_json::from_str(&shown.out()).expect("--json prints JSON")
}

fn core(place: &Place, recording: &str) -> Value {
    let shown = place.gretel(&["core", "--json", recording]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    serde_json::from_str(&shown.out()).expect("--json prints JSON")
}

/// The (from, to) of a core's branch records.
fn pairs(core: &Value) -> Vec<(String, String)> {
    let pair = |record: &Value| (record["from"].to_string(), record["to"].to_string());
    core["trail"]["records"].as_array().expect("a trail").iter().map(pair).collect()
}

#[test]
fn a_source_that_the_host_lacks_is_refused_before_anything_runs() {
    let place = Place::new();
    let Some(_program) = place.compile("crashes", CRASHES) else { return };
    let host = doctor(&place);
    let refused = |source: &str, reason: &Value| {
        let said = place.gretel(&["record", "--branch-records", source, "-o", "rec", "--", "./crashes"]);
        assert_eq!(said.code, HOST, "{source}: {}", said.err);
        assert!(said.err.contains(reason.as_str().unwrap()), "{source}: {} and not {reason}", said.err);
        assert!(said.err.contains("--branch-records derived"), "the remedy: {}", said.err);
        assert!(!place.path("rec").exists(), "nothing is left behind");
    };
    refused("perf", &host["perf"]["guest_branch_stack"]["reason"]);
    let soft = ["--engine", "soft", "-o", "rec", "--", "./crashes"];
    let said = place.gretel(&[&["record", "--branch-records", "perf"], &soft[..]].concat());
    assert_eq!(said.code, HOST);
    assert!(said.err.contains("the software CPU executes the program"), "{}", said.err);
    let said = place.gretel(&[&["record", "--branch-records", "kvm"], &soft[..]].concat());
    assert_eq!(said.code, USAGE, "{}", said.err);
    match &host["kvm"]["branch_records"] {
        Value::Null => skipped("the refusal of KVM's branch records", "there is no KVM"),
        records if records["available"] == true => {
            skipped("the refusal of KVM's branch records", "it has them")
        }
        records => refused("kvm", &records["reason"]),
    }
}

#[test]
fn the_core_says_where_its_branch_records_come_from() {
    let place = Place::new();
    let Some(_program) = place.compile("crashes", CRASHES) else { return };
    let record = |source: &str| {
        let said = place.gretel(&["record", "--branch-records", source, "-o", source, "--", "./crashes"]);
        assert_eq!(said.code, 128 + 11, "{}", said.err);
        (core(&place, source), said.err)
    };
    let host = doctor(&place);
    let (derived, said) = record("derived");
    assert_eq!(derived["trail"]["provenance"], "derived");
    assert!(!said.contains("not the processor's"), "nothing else was asked for: {said}");
    let (auto, said) = record("auto");
    assert_eq!(auto["trail"]["provenance"], host["use"]["branch_records"]);
    assert_eq!(pairs(&auto), pairs(&derived), "whoever records them, they are the same");
    let records = &host["kvm"]["branch_records"];
    if records["available"] == true {
        let (processor, _) = record("kvm");
        assert_eq!(processor["trail"]["provenance"], "hardware");
        assert_eq!(pairs(&processor), pairs(&derived));
    } else if let Some(why) = records["reason"].as_str() {
        assert!(said.contains(&format!("derived, not the processor's: {why}")), "{said}");
        assert!(auto["origin"].to_string().contains(why), "{}", auto["origin"]);
    }
}

/// Nothing is counted by guessing: doctor names what is counted, or the reason why nothing is.
#[test]
fn doctor_gives_a_reason_for_whatever_is_missing() {
    let place = Place::new();
    let host = doctor(&place);
    let mut tried = vec!["rdpmc", "counters", "branch_stack", "flight_recorder"]
        .into_iter()
        .map(|name| (name, &host["perf"][name]))
        .collect::<Vec<_>>();
    if host["kvm"]["available"] == true {
        tried.extend(["branch_records", "counters"].map(|name| (name, &host["kvm"][name])));
    }
    for (name, found) in tried {
        let reason = found["reason"].as_str().is_some_and(|why| !why.is_empty());
        assert_eq!(found["available"] == false, reason, "{name}: {found}");
    }
    let text = place.gretel(&["doctor"]).out();
    for name in ["perf counters", "perf rdpmc", "perf branches", "perf samples", "branch records", "counts"] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}: {text}");
    }
}
