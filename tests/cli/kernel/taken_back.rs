//! What led to a kernel's crash: suffixes in ring 0, from the recording of the machine.

use super::{ABORTED, KERNEL, record};
use crate::{Place, Ran, USAGE};
use serde_json::Value;
use std::fs;

/// "pqrst" as an address.
const ASTRAY: &str = "0x7473727170";

/// Records a kernel that crashes as the command line says.
fn crashed(cmdline: &str) -> Place {
    let place = Place::new();
    let ran = place.gretel(&record(cmdline, &[]));
    assert_eq!(ran.code, ABORTED, "{}", ran.err);
    place
}

fn as_json(ran: &Ran) -> Value {
    assert_eq!(ran.code, 0, "{}", ran.err);
    serde_json::from_str(&ran.out()).unwrap_or_else(|error| panic!("{error}: {}", ran.out()))
}

/// All of the path is what happened, and so are the values on it, but for those that say of themselves that others would do.
fn path_is_true(result: &Value, values: u64) {
    let metrics = &result["metrics"];
    assert_eq!(metrics["path"]["equal"], true, "{metrics}");
    for counts in [&metrics["uses"], &metrics["start"]] {
        assert_eq!(counts["wrong"], counts["chosen"], "{metrics}");
    }
    assert!(metrics["uses"]["right"].as_u64() >= Some(values), "{metrics}");
}

/// A walk along a chain, whose items are added with interrupts off, ends in a page fault. The suffix has all records, and ends at the
/// instruction that faulted, not where the machine ended.
#[test]
fn a_page_fault_in_ring_0_is_taken_back() {
    let place = crashed("chain");
    let result = as_json(&place.gretel(&["synth", "rec", "--json", "--explain"]));
    let (summary, crash) = (&result["listing"]["summary"], &result["listing"]["crash"]);
    assert_eq!((&summary["records"], &summary["given"]), (&32.into(), &32.into()), "{summary}");
    assert_eq!((&crash["signal"], &crash["accessed"]), (&"page fault (#PF)".into(), &"0x7000000008".into()));
    assert!(crash["function"].as_str().is_some_and(|function| function.starts_with("walk")), "{crash}");
    path_is_true(&result, 100);
    // The interrupt flag is followed through PUSHF, CLI and POPF.
    let steps = result["listing"]["steps"].as_array().expect("steps");
    let has = |text: &str| steps.iter().any(|step| step["text"] == text);
    assert!(has("cli") && has("popfq") && has("pushfq"), "{steps:?}");
    assert!(result["exploitability"].is_null(), "{}", result["exploitability"]);
    // All of memory is compared: 512 MiB.
    assert_eq!(summary["compared_bytes"], 512 << 20, "{summary}");
    let (why, of) = (&summary["without_kvm"], "a kernel's, with a machine around it");
    assert!(why.as_str().is_some_and(|why| why.contains(of)), "{why}");

    // The core of the machine's end stands for its recording; the suffix is kept.
    let ran = place.gretel(&["synth", "rec/core", "-o", "suffix.json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        ran.out().contains("crash: page fault (#PF)") && place.path("suffix.json").exists(),
        "{}",
        ran.out()
    );
    // Without records the search finds the same end by itself.
    let result =
        as_json(&place.gretel(&["synth", "rec", "--json", "--records", "0", "--instructions", "20"]));
    assert_eq!(
        (&result["listing"]["summary"]["given"], &result["verdict"]),
        (&0.into(), &"certified".into())
    );
    assert_eq!(result["metrics"]["path"]["equal"], true, "{}", result["metrics"]);
}

/// A division by zero without a handler ends the machine. Before it something was printed: what is sent to a port is the device's, and
/// the search goes on.
#[test]
fn what_is_sent_to_a_port_is_passed() {
    let place = crashed("divide");
    let result = as_json(&place.gretel(&["synth", "rec", "--json", "--explain"]));
    path_is_true(&result, 10);
    let crash = &result["listing"]["crash"];
    assert_eq!(crash["signal"], "divide error (#DE)");
    assert!(crash["function"].as_str().is_some_and(|function| function.starts_with("share")), "{crash}");
    let steps = result["listing"]["steps"].as_array().expect("steps");
    assert!(steps.iter().filter(|step| step["text"] == "out dx, al").count() >= 2, "{steps:?}");
    assert_eq!(result["explain"]["windows_of"], "recording");
    // It makes no system calls that crumbs could tell of.
    assert_eq!(result["explain"]["crumbs"], Value::Null);
}

/// No value makes UD2 fault. What decided to come to it is the question: the comparison, with what was compared.
#[test]
fn why_of_a_bug_is_what_was_decided_last() {
    let place = crashed("bug");
    let ran = place.gretel(&["why", "rec"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for part in [
        "`ud2` always faults",
        "the last decision before it: `jne",
        "in audit",
        ", taken",
        "decided by `cmp",
        "(the kernel)",
        "= 0x10",
    ] {
        assert!(ran.out().contains(part), "no `{part}` in: {}", ran.out());
    }
    // The sum was made by the loop before.
    assert!(ran.out().contains("add") && ran.out().contains("in bug"), "{}", ran.out());
    let ran = place.gretel(&["why", "rec", "--json"]);
    let answer: Value = serde_json::from_str(&ran.out()).expect("--json prints JSON");
    assert!(answer["nodes"].as_array().is_some_and(|nodes| !nodes.is_empty()), "{answer}");
}

/// A function that only gives up has nothing to say of its own: the question is what its caller compared.
#[test]
fn why_of_a_function_that_gives_up_is_what_its_caller_decided() {
    let place = crashed("refuse");
    let ran = place.gretel(&["why", "rec"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out().contains("it crashed at refuse"), "{}", ran.out());
    let decision = ran.out().lines().find(|line| line.starts_with("the last decision")).map(str::to_owned);
    assert!(decision.is_some_and(|line| line.contains("at review") && line.contains("jne")), "{}", ran.out());
    assert!(ran.out().contains("decided by `cmp") && ran.out().contains("= 0x10"), "{}", ran.out());
}

/// A pointer into a program's memory, which is there: the kernel may not use it, and that pointer is the question. No farther: a program's
/// memory is the lower half to the search, and this kernel lies there itself.
#[test]
fn why_of_memory_that_is_a_programs_is_the_pointer() {
    let place = crashed("smap");
    let ran = place.gretel(&["why", "rec"]);
    for part in ["accesses 0xc0000", "= 0xc00000", "the page is there, and is a program's"] {
        assert!(ran.code == 0 && ran.out().contains(part), "no `{part}` in: {}{}", ran.out(), ran.err);
    }
    // Of a page that nothing maps it is not said.
    let ran = crashed("chain").gretel(&["why", "rec"]);
    assert!(ran.code == 0 && !ran.out().contains("the page is there"), "{}{}", ran.out(), ran.err);
}

/// An instruction that clears a page is one, and not 512 of the most that a suffix may have: the records behind it are covered, too.
#[test]
fn behind_a_page_that_is_cleared_the_search_goes_on() {
    let place = crashed("clear");
    let result = as_json(&place.gretel(&["synth", "rec", "--json", "--instructions", "400"]));
    let summary = &result["listing"]["summary"];
    assert_eq!((&summary["records"], &summary["given"]), (&32.into(), &32.into()), "{summary}");
    assert!(summary["instructions"].as_u64() > Some(512), "{summary}");
    let length = result["metrics"]["path"]["length"].as_u64();
    assert!(length > Some(50) && length <= Some(400), "{}", result["metrics"]);
    path_is_true(&result, 50);
}

/// The base of GS that SWAPGS brings is written as Linux writes a task's: it is followed, and compared at the end. What was given from
/// outside on the way, by the time and a port, are inputs; a selector is the core's.
#[test]
fn a_switch_of_tasks_is_taken_back() {
    let place = crashed("switch");
    let ran = place.gretel(&["synth", "rec", "--json", "-o", "suffix.json", "--instructions", "300"]);
    let result = as_json(&ran);
    let summary = &result["listing"]["summary"];
    assert_eq!((&summary["records"], &summary["given"]), (&32.into(), &32.into()), "{summary}");
    let steps = result["listing"]["steps"].as_array().expect("steps");
    let count = |text: &str| {
        steps.iter().filter(|step| step["text"].as_str().is_some_and(|it| it.starts_with(text))).count()
    };
    assert!(count("swapgs") >= 8 && count("in al, dx") >= 4 && count("rdtsc") >= 8, "{steps:?}");
    path_is_true(&result, 100);
    let ran = place.gretel(&["verify", "suffix.json", "rec"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out(), ran.err);

    // Time does not go back, and what is asked for is given.
    let whole = fs::read_to_string(place.path("suffix.json")).unwrap();
    let mut suffix: Value = serde_json::from_str(&whole).expect("a suffix");
    let answers = suffix["answers"].as_array_mut().expect("answers");
    let is_time = |it: &Value| {
        it["step"].as_u64().is_some_and(|n| steps[usize::try_from(n).unwrap()]["text"] == "rdtsc")
    };
    let late = answers.iter_mut().find(|it| is_time(it)).expect("a time stamp");
    late["value"] = "0x7fffffffffff".into();
    fs::write(place.path("late.json"), suffix.to_string()).unwrap();
    let ran = place.gretel(&["verify", "late.json", "rec"]);
    assert!(ran.code != 0 && ran.out().contains("a time that lies before"), "{}{}", ran.out(), ran.err);
    suffix["answers"] = Value::Array(Vec::new());
    fs::write(place.path("none.json"), suffix.to_string()).unwrap();
    let ran = place.gretel(&["verify", "none.json", "rec"]);
    assert!(ran.code != 0 && ran.out().contains("reads the machine"), "{}{}", ran.out(), ran.err);

    // A suffix that goes through no SWAPGS begins with the base that it ends with, and with another one it leads elsewhere.
    let ran = place.gretel(&["synth", "rec", "-o", "short.json", "--records", "0", "--instructions", "5"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let short = fs::read_to_string(place.path("short.json")).unwrap();
    let other = short.replacen("\"inactive_gs\":\"0xf040\"", "\"inactive_gs\":\"0xf041\"", 1);
    assert_ne!(short, other);
    fs::write(place.path("short.json"), other).unwrap();
    let ran = place.gretel(&["verify", "short.json", "rec"]);
    assert!(ran.code == 1 && ran.out().contains("registers of the system"), "{}{}", ran.out(), ran.err);
}

/// A call of an address that is not canonical: what lies below the stack is what older instructions have left there, since the machine's
/// processor stores nothing at such a call. All of memory is compared.
#[test]
fn a_call_of_what_is_no_address_is_taken_back() {
    let place = crashed("wild");
    let ran = place.gretel(&["synth", "rec", "--json", "--instructions", "240"]);
    let result = as_json(&ran);
    let (summary, crash) = (&result["listing"]["summary"], &result["listing"]["crash"]);
    assert_eq!(crash["signal"], "general protection (#GP)", "{crash}");
    assert_eq!((&summary["records"], &summary["given"]), (&32.into(), &32.into()), "{summary}");
    assert_eq!(summary["compared_bytes"], 512 << 20, "{summary}");
    assert!(!ran.out().contains("not canonical has stored"), "{}", ran.out());
    path_is_true(&result, 30);
}

/// A call of an address where nothing can be executed: the fault is at that address, and the value to be explained is what led there.
#[test]
fn why_of_a_call_of_what_is_no_code_is_the_pointer() {
    let place = crashed("astray");
    let result = as_json(&place.gretel(&["synth", "rec", "--json", "--instructions", "240"]));
    let crash = &result["listing"]["crash"];
    assert_eq!(
        (&crash["signal"], &crash["accessed"]),
        (&"page fault (#PF)".into(), &ASTRAY.into()),
        "{crash}"
    );
    path_is_true(&result, 30);
    let ran = place.gretel(&["why", "rec"]);
    let went = format!("went to {ASTRAY}, where there is no code, at wild");
    for part in ["`call", &went, "\"pqrst\"", "in rename_sensor"] {
        assert!(ran.code == 0 && ran.out().contains(part), "no `{part}` in: {}{}", ran.out(), ran.err);
    }
}

/// In the handler of an interrupt the way back ends at its entry, and so do the records that are used.
#[test]
fn the_entry_of_an_interrupt_is_a_barrier() {
    let place = crashed("tick");
    let ran = place.gretel(&["synth", "rec", "--json", "--explain"]);
    let result = as_json(&ran);
    path_is_true(&result, 20);
    let summary = &result["listing"]["summary"];
    assert_eq!(summary["records"], summary["given"], "{summary}");
    assert!(summary["given"].as_u64() < Some(32), "{summary}");
    assert!(
        ran.err.contains("of 32 branch records are used: before them the processor came from"),
        "{}",
        ran.err
    );
    let first = &result["explain"]["end"]["first"];
    assert!(first["place"].as_str().is_some_and(|place| place == "on_timer+0x0"), "{first}");
    let barriers = result["explain"]["barriers"].as_array().expect("barriers");
    let is_entry = |barrier: &Value| barrier["why"] == "the entry of an interrupt: it may have come anywhere";
    assert!(barriers.iter().any(is_entry), "{barriers:?}");
}

/// A timer's interrupt takes a job away: the suffix ends where IRET came back to, by the branch records, or has no more instructions than
/// the crumbs have since the interrupt. What goes on before that address is not what ran.
#[test]
fn behind_an_interrupt_a_suffix_ends_where_that_came_back() {
    const ELSEWHERE: &str = "where the processor came from elsewhere, by the branch records";
    let place = crashed("race");
    let synth =
        |more: &[&str]| as_json(&place.gretel(&[&["synth", "rec", "--json", "--explain"], more].concat()));
    let length = |result: &Value| result["listing"]["summary"]["instructions"].as_u64().expect("a count");
    let has_met = |result: &Value, why: &str| {
        result["explain"]["barriers"]
            .as_array()
            .expect("barriers")
            .iter()
            .any(|barrier| barrier["why"] == why)
    };
    let result = synth(&[]);
    path_is_true(&result, 20);
    let summary = &result["listing"]["summary"];
    assert!(summary["given"].as_u64() < Some(32) && summary["records"] == summary["given"], "{summary}");
    assert!(has_met(&result, ELSEWHERE), "{}", result["explain"]);

    let crumbs = as_json(&place.gretel(&["core", "rec", "--crumbs", "--json"]));
    let newest = crumbs["crumbs"].as_array().and_then(|crumbs| crumbs.last()).expect("a crumb");
    assert_eq!(newest["exit"], "interrupt", "{newest}");
    let core = as_json(&place.gretel(&["core", "rec", "--json"]));
    let count = |value: &Value| value["instructions"].as_u64().expect("a count");
    let since = count(&core["crash"]) - count(newest);
    let bounded = synth(&["--records", "0"]);
    assert!(length(&bounded) <= since, "{} of {since}", length(&bounded));
    assert!(has_met(&bounded, "the newest interrupt, exception or system call, by the crumbs' count"));
    // Without either it would go round the loop for longer than that.
    let unbounded = synth(&["--records", "0", "--crumbs", "none", "--instructions", "200"]);
    assert!(length(&unbounded) > since, "{} of {since}", length(&unbounded));

    // A suffix that is longer than the crumbs allow is none of this core.
    let args =
        ["synth", "rec", "--records", "0", "--crumbs", "none", "--instructions", "200", "-o", "long.json"];
    assert_eq!(place.gretel(&args).code, 0);
    let ran = place.gretel(&["verify", "long.json", "rec"]);
    assert_eq!(ran.code, 1, "{}: {}", ran.out(), ran.err);
}

/// A kernel's tables may lead to themselves, and nowhere else: there is no code, which is said.
#[test]
fn what_maps_nothing_is_refused() {
    let place = crashed("lost");
    let ran = place.gretel(&["synth", "rec"]);
    assert!(ran.code > 2 && ran.err.contains("no code of the kernel is mapped"), "{}: {}", ran.code, ran.err);
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
}

/// Another place is one of the recording, in the kernel; the end of a panic that nothing was raised for is one between instructions.
#[test]
fn other_places_are_taken_back_too() {
    let place = crashed("chain");
    let end = as_json(&place.gretel(&["core", "rec", "--json"]))["instructions"].as_u64().expect("a count");
    let at = (end - 40).to_string();
    let result = as_json(&place.gretel(&["synth", "rec", "--json", "--at", &at]));
    assert_eq!(result["listing"]["crash"]["text"], Value::Null);
    assert_eq!(result["metrics"]["path"]["equal"], true, "{}", result["metrics"]);
    let beyond = (end + 1).to_string();
    for (arguments, said) in [
        (&["synth", "rec", "--at", &beyond][..], "the recording has"),
        (&["synth", "rec", "--exe", KERNEL], "--exe is not for a machine"),
        (&["synth", "rec", "--filter", "0x3c4"], "call-stack records"),
        (&["synth", "rec", "--ring", "hypervisor"], "give kernel, user or both"),
    ] {
        let ran = place.gretel(arguments);
        assert_eq!(ran.code, USAGE, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(said), "{arguments:?}: {}", ran.err);
    }
}
