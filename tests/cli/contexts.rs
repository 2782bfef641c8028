//! Calling contexts of crumbs as evidence for `gretel synth`: compared by the certificate, and used by the search.

use crate::{DAMAGED, Place, engines, skipped};
use lbr::crumb::Entry;
use lbr::crumb::record::RECORD;
use serde_json::Value;
use std::fs;

/// Writes under calls of different functions, and divides by zero.
const LOGS: &str = r#"
#include <unistd.h>
#define KEEP __attribute__((noinline))
static volatile int sink;
KEEP static void say(const char *text) { write(1, text, 5); sink++; }
KEEP static void first(void) { say("first"); sink++; }
KEEP static void again(void) { say("again"); sink++; }
int main(int argc, char **argv) {
    volatile int zero = argc - 1;
    first();
    again();
    return argc / zero;
}
"#;

/// Calls one of three functions that are the same, by a number of which nothing is left, and wipes what was left of its stack.
const PICKS: &str = r#"
#include <unistd.h>
#define KEEP __attribute__((noinline))
static volatile unsigned char pick = 1;
KEEP static void one(void) { write(1, "call!", 5); asm volatile(""); }
KEEP static void two(void) { write(1, "call!", 5); asm volatile(""); }
KEEP static void three(void) { write(1, "call!", 5); asm volatile(""); }
static void (*const table[])(void) = { one, two, three };
KEEP static void wipes(void) { volatile long room[16]; for (int i = 0; i < 16; i++) room[i] = i; }
int main(int argc, char **argv) {
    volatile int zero = argc - 1;
    read(0, (void *)&pick, 1);
    table[pick % 3]();
    pick = 9;
    wipes();
    return argc / zero;
}
"#;

fn recorded(place: &Place, name: &str, options: &[&str], program: &str) {
    let ran = place.gretel(&[&["record", "-o", name], options, &["--", program]].concat());
    assert_eq!(ran.code, 128 + 8, "{}", ran.err);
}

fn synthesized(place: &Place, arguments: &[&str]) -> Value {
    let ran = place.gretel(&[&["synth", "--json", "--records", "0"], arguments].concat());
    assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.err);
    serde_json::from_str(&ran.out()).expect("--json prints JSON")
}

fn number(found: &Value, path: &str) -> u64 {
    found.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {found}"))
}

const CONTEXTS: &str = "/listing/summary/contexts";
const TAKEN: &str = "/listing/summary/taken_branches";
const CRUMBS: &str = "/listing/summary/crumbs/0";

/// What is said not to be compared.
fn not_compared(found: &Value) -> String {
    found["listing"]["summary"]["dont_care"].to_string()
}

#[test]
fn the_stacks_of_a_suffix_are_those_of_the_contexts() {
    let place = Place::new();
    let Some(_program) = place.compile("logs", LOGS) else { return };
    for engine in engines() {
        recorded(&place, engine, &["--contexts", "--engine", engine], "./logs");
        let found = synthesized(&place, &["--instructions", "70", engine]);
        let crumbs = number(&found, CRUMBS);
        assert!(crumbs >= 1, "{found}");
        assert_eq!(number(&found, CONTEXTS), crumbs, "{found}");
        if engine == "soft" {
            assert_eq!(number(&found, TAKEN), crumbs, "they were counted exactly: {found}");
        }
        let named = not_compared(&found);
        assert!(named.contains("page faults and times") && !named.contains("context"), "{named}");
        let shown = place.gretel(&["synth", "--records", "0", "--instructions", "70", engine]);
        let shown = shown.out().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(&format!("and the stack with calling contexts: {crumbs}")), "{shown}");

        let without = synthesized(&place, &["--crumbs", "counts", "--instructions", "70", engine]);
        assert_eq!(number(&without, CONTEXTS), 0, "{without}");
        assert!(not_compared(&without).contains("of crumbs: contexts"), "{without}");
    }
}

/// A dynamic program's calls are mostly in its libraries.
#[test]
fn stacks_go_through_shared_libraries() {
    let place = Place::new();
    place.write("logs.c", LOGS);
    let built = place.command("gcc", &["-O1", "-s", "-o", "logs", "logs.c"]).status();
    if !built.is_ok_and(|status| status.success()) {
        return skipped("logs", "gcc makes no dynamic program here");
    }
    recorded(&place, "rec", &["--contexts", "--engine", "soft"], "./logs");
    let crumbs = place.gretel(&["core", "--crumbs", "--json", "rec"]);
    let crumbs: Value = serde_json::from_str(&crumbs.out()).unwrap();
    let calls = crumbs["crumbs"].as_array().unwrap().iter().filter(|crumb| crumb["exit"] == "syscall");
    let without: Vec<_> = calls.filter(|crumb| !crumb["calls"].is_array()).collect();
    assert!(without.is_empty(), "each is walked and decoded: {without:?}");
    let found = synthesized(&place, &["--instructions", "70", "rec"]);
    assert!(number(&found, CONTEXTS) >= 1, "{found}");
    assert_eq!(number(&found, CONTEXTS), number(&found, CRUMBS), "{found}");
}

/// One bit of a crumb's context is another one: the stack that the path has is not the one that it tells of.
#[test]
fn a_stack_that_is_not_the_one_of_the_context_is_refused() {
    let place = Place::new();
    let Some(_program) = place.compile("logs", LOGS) else { return };
    recorded(&place, "rec", &["--contexts", "--engine", "soft"], "./logs");
    let found = synthesized(&place, &["--instructions", "70", "-o", "suffix", "rec"]);
    assert!(number(&found, CONTEXTS) >= 1, "{found}");
    assert_eq!(place.gretel(&["verify", "suffix", "rec"]).code, 0);

    let crumbs = place.gretel(&["core", "--crumbs", "--json", "rec"]);
    let crumbs: Value = serde_json::from_str(&crumbs.out()).unwrap();
    let entries = crumbs["crumbs"].as_array().unwrap();
    let newest = entries.iter().rfind(|crumb| crumb["exit"] == "syscall").expect("a call");
    let hex = newest["context"].as_str().expect("a context").trim_start_matches("0x");
    let word = u64::from_str_radix(hex, 16).unwrap();
    let mut core = fs::read(place.path("rec/core")).unwrap();
    let mut changed = 0;
    // With its checksum: a crumb without is damaged, and said to be.
    for at in 0..core.len() - RECORD {
        let Some(mut entry) = core[at..].first_chunk().and_then(Entry::from_bytes) else { continue };
        if entry.crumb.context == Some(word) {
            entry.crumb.context = Some(word ^ 1);
            core[at..at + RECORD].copy_from_slice(&entry.to_bytes());
            changed += 1;
        }
    }
    assert!(changed > 0, "the core has it");
    fs::write(place.path("rec/core"), core).unwrap();

    let verified = place.gretel(&["verify", "suffix", "rec"]);
    assert_eq!(verified.code, 1, "{}", verified.err);
    let rip = newest["rip"].as_str().unwrap();
    assert!(
        verified.out().contains(&format!("context of the crumb at {rip}: expected ")),
        "{}",
        verified.out()
    );
    let ran = place.gretel(&["synth", "--json", "--records", "0", "--instructions", "70", "rec"]);
    let refused: Value = serde_json::from_str(&ran.out()).unwrap();
    assert!(number(&refused, "/search/refuted_by_contexts") >= 1, "{refused}");
    if refused["verdict"] == "certified" {
        assert_eq!(number(&refused, CRUMBS), 0, "the suffix ends before that call: {refused}");
    }
}

/// Where a call through a pointer led, nothing but the context tells: without it another function is taken.
#[test]
fn a_context_tells_which_function_had_run() {
    let place = Place::new();
    let Some(_program) = place.compile("picks", PICKS) else { return };
    recorded(&place, "rec", &["--contexts", "--engine", "soft"], "./picks");
    let called = |found: &Value| -> Vec<String> {
        let steps = found["listing"]["steps"].as_array().unwrap().iter();
        let functions = steps.filter_map(|step| step["function"].as_str().map(str::to_owned));
        let mut called: Vec<_> =
            functions.filter(|it| ["one", "two", "three"].contains(&it.as_str())).collect();
        called.dedup();
        called
    };
    let enough = ["--instructions", "106"];
    let found = synthesized(&place, &[&enough[..], &["rec"]].concat());
    assert_eq!(called(&found), ["two"], "{found}");
    assert_eq!(found["metrics"]["path"]["equal"], true, "{}", found["metrics"]);
    let without = synthesized(&place, &[&enough[..], &["--crumbs", "counts", "rec"]].concat());
    assert_ne!(called(&without), ["two"], "nothing else tells it: {without}");
    // Longer ways end at the read before the call; the functions that it was not are refused by their stacks.
    let longer = synthesized(&place, &["--instructions", "150", "--fuel", "6", "rec"]);
    assert!(number(&longer, "/search/refuted_by_contexts") >= 1, "{longer}");
}

#[test]
fn what_contexts_buy_is_measured_where_they_were_recorded() {
    let place = Place::new();
    let Some(_program) = place.compile("logs", LOGS) else { return };
    recorded(&place, "with", &["--contexts", "--engine", "soft"], "./logs");
    recorded(&place, "without", &["--engine", "soft"], "./logs");
    let options = ["bench", "synth", "--json", "--records", "0+counts,0+contexts", "--instructions", "70"];
    let run = place.gretel(&[&options[..], &["with"]].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    let shown: Value = serde_json::from_str(&run.out()).unwrap();
    let kinds: Vec<&Value> =
        shown["results"].as_array().unwrap().iter().map(|kind| &kind["records"]).collect();
    assert_eq!(kinds, ["none, counts", "none, contexts"]);
    let refused = place.gretel(&[&options[..], &["with", "without"]].concat());
    assert_eq!(refused.code, DAMAGED, "{}", refused.err);
    assert!(refused.err.contains("without: it was recorded without --contexts"), "{}", refused.err);
}
