//! The core of a kernel without its recording: it says where the kernel crashed, with branch records and exits there. What is made of
//! it is what is made of the recording; `why`, `verify`, `gdb` and `report` take it, too.

use super::{ABORTED, KERNEL, record};
use crate::gdb::{has_gdb, in_order};
use crate::{DAMAGED, Place, Ran, USAGE};
use serde_json::Value;
use std::fs;

/// Records a kernel that crashes, and copies its core away from the recording.
fn crashed(cmdline: &str, more: &[&str]) -> Place {
    let place = Place::new();
    let ran = place.gretel(&record(cmdline, more));
    assert_eq!(ran.code, ABORTED, "{}", ran.err);
    assert!(ran.err.contains("the core has where the kernel crashed"), "{}", ran.err);
    fs::copy(place.path("rec/core"), place.path("alone")).expect("a copy");
    place
}

fn as_json(ran: &Ran) -> Value {
    assert_eq!(ran.code, 0, "{}", ran.err);
    serde_json::from_str(&ran.out()).unwrap_or_else(|error| panic!("{error}: {}", ran.out()))
}

fn refused(place: &Place, arguments: &[&str], code: i32, said: &str) {
    let ran = place.gretel(arguments);
    assert_eq!(ran.code, code, "{arguments:?}: {}", ran.err);
    assert!(ran.err.contains(said), "{arguments:?}: {}", ran.err);
}

/// The core shows its crash, the branch records that a run of the recording gives, and the exits that its events have.
#[test]
fn a_core_says_where_its_kernel_crashed() {
    let place = crashed("chain", &["--records", "16", "--ring", "both"]);
    let core = as_json(&place.gretel(&["core", "--json", "alone"]));
    let (crash, trail) = (&core["crash"], &core["trail"]);
    assert_eq!((&crash["vector"], &crash["address"]), (&14.into(), &"0x7000000008".into()), "{crash}");
    assert!(crash["instructions"].as_u64() < core["instructions"].as_u64(), "the end is behind it: {core}");
    assert_eq!((&trail["depth"], &trail["provenance"]), (&16.into(), &"derived".into()), "{trail}");
    let records = trail["records"].as_array().expect("records");
    assert_eq!((records.len(), &records[15]["to"]), (16, &crash["rip"]));
    let stack = place.gretel(&["core", "--format", "perf-script", "alone"]);
    assert_eq!((stack.code, stack.out().matches("0x").count()), (0, 32), "{}", stack.out());

    // The interrupts are those of the recording's events.
    let crumbs = as_json(&place.gretel(&["core", "--crumbs", "--json", "alone"]));
    let crumbs = crumbs["crumbs"].as_array().expect("crumbs");
    let vectors: Vec<(u64, u64)> = crumbs
        .iter()
        .filter(|crumb| crumb["exit"] == "interrupt")
        .filter_map(|crumb| Some((crumb["instructions"].as_u64()?, crumb["vector"].as_u64()?)))
        .collect();
    let events = place.gretel(&["events", "rec", "--json", "--kind", "interrupt"]);
    let events = events
        .out()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .collect::<Vec<_>>();
    let listed: Vec<(u64, u64)> =
        events.iter().filter_map(|it| Some((it["instructions"].as_u64()?, it["vector"].as_u64()?))).collect();
    assert!(vectors == listed && !vectors.is_empty(), "{vectors:?} {listed:?}");
    for kind in ["syscall", "page-fault"] {
        assert!(crumbs.iter().any(|crumb| crumb["exit"] == kind), "no {kind}: {crumbs:?}");
    }
    // Without records the core has the crash alone.
    let place = crashed("chain", &["--records", "0"]);
    let core = as_json(&place.gretel(&["core", "--json", "alone"]));
    assert!(core["trail"].is_null() && core["crash"].is_object(), "{core}");
    refused(&place, &["core", "--format", "perf-script", "alone"], USAGE, "no branch records");
    refused(
        &place,
        &["synth", "alone", "--records", "16", "--exe", KERNEL],
        USAGE,
        "the core has no branch records",
    );
}

/// The suffix of the core alone is that of the recording.
#[test]
fn the_suffix_of_a_core_alone_is_that_of_its_recording() {
    let place = crashed("chain", &[]);
    let ran = place.gretel(&["synth", "rec", "--json"]);
    assert!(ran.err.contains("derived by a run of the recording"), "{}", ran.err);
    let recorded = as_json(&ran);
    let ran = place.gretel(&["synth", "alone", "--json", "--exe", KERNEL, "-o", "suffix.json"]);
    assert!(ran.err.contains("derived, as the core has them"), "{}", ran.err);
    let alone = as_json(&ran);
    assert_eq!((&alone["verdict"], &alone["listing"]), (&"certified".into(), &recorded["listing"]));
    assert!(
        alone["metrics"].is_null() && !recorded["metrics"].is_null(),
        "what really ran is in the recording"
    );
    assert_eq!(alone["listing"]["summary"]["records"], 32);

    // The suffix is checked against either.
    for input in [&["rec"][..], &["alone", "--exe", KERNEL]] {
        let verified = place.gretel(&[&["verify", "suffix.json"], input].concat());
        assert_eq!(verified.code, 0, "{}", verified.err);
        assert!(verified.out().contains("32 branch records are reproduced"), "{}", verified.out());
    }
    let other = crashed("tick", &[]);
    fs::copy(place.path("suffix.json"), other.path("suffix.json")).expect("a copy");
    assert_ne!(other.gretel(&["verify", "suffix.json", "rec"]).code, 0, "it is another core's");

    refused(&place, &["synth", "alone", "--at", "5"], USAGE, "--at is for the recording");
    refused(&place, &["synth", "alone", "--ring", "both", "--exe", KERNEL], USAGE, "fewer or other");
    refused(&place, &["synth", "alone"], USAGE, "name the file that was booted with --exe");
}

/// A core that does not say it, as those of other tools, is refused by name; one where it is damaged is told.
#[test]
fn cores_that_do_not_say_it_are_refused() {
    let place = crashed("chain", &[]);
    let core = fs::read(place.path("alone")).expect("a core");
    let at = core.windows(8).position(|bytes| bytes == b"gtrcrash").expect("the note");
    let kind = core[..at].windows(8).rposition(|bytes| bytes.starts_with(b"gretel\0")).expect("its owner");
    let mut other = core.clone();
    other[kind] = b'G';
    place.write("other", &other);
    refused(&place, &["synth", "other"], USAGE, "it does not say where the kernel crashed");
    let ran = place.gretel(&["why", "other"]);
    assert!(ran.code >= USAGE && ran.err.contains("it does not say where the kernel crashed"), "{}", ran.err);
    let mut bad = core;
    bad[at + 20] ^= 0xff;
    place.write("bad", &bad);
    refused(&place, &["synth", "bad"], DAMAGED, "where the kernel crashed is damaged");
    let shown = place.gretel(&["core", "bad"]);
    assert!(shown.code == 0 && shown.err.contains("where the kernel crashed is damaged"), "{}", shown.err);
}

/// Where a value came from, over the suffix, of the recording and of the core alone.
#[test]
fn a_kernels_value_is_followed_over_its_suffix() {
    let place = crashed("chain", &[]);
    let of_recording = place.gretel(&["why", "rec"]);
    assert_eq!(of_recording.code, 0, "{}", of_recording.err);
    in_order(
        &of_recording,
        &["it crashed at walk+0x", "accesses 0x7000000008: rcx = 0x7000000000", "mov rcx, [rcx]"],
    );
    let alone = place.gretel(&["why", "alone", "--exe", KERNEL]);
    assert_eq!((alone.code, alone.out()), (0, of_recording.out()), "{}", alone.err);
    for option in ["--at", "--pid", "--thread"] {
        refused(&place, &["why", "rec", option, "1"], USAGE, "leave --at, --pid and --thread out");
    }
    let quiet = Place::new();
    assert_eq!(quiet.gretel(&record("", &[])).code, 0);
    let ran = quiet.gretel(&["why", "rec"]);
    assert!(ran.code >= USAGE && ran.err.contains("its kernel did not crash"), "{}", ran.err);
}

/// A kernel's suffix in gdb: the crash, the steps before it, breakpoints, and back.
#[test]
fn gdb_walks_through_a_kernels_suffix() {
    let place = crashed("chain", &[]);
    if !has_gdb("gdb on a kernel's suffix") {
        return;
    }
    let ran = place.gretel(&["synth", "alone", "--exe", KERNEL, "-o", "suffix.json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    place.write(
        "commands",
        "print/x $rcx\nreverse-stepi\nx/i $pc\nreverse-continue\ncontinue\nmonitor goto 0\nmonitor when\n",
    );
    for input in [&["rec"][..], &["alone", "--exe", KERNEL]] {
        let gdb = ["--suffix", "suffix.json", "--", "-batch", "-nx", "-x", "commands", KERNEL];
        let ran = place.gretel(&[&["gdb"], input, &gdb].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        in_order(&ran, &["$1 = 0x7000000000", "=> ", "No more reverse-execution history", "SIGSEGV"]);
        assert!(ran.err.contains("at the crash"), "{}", ran.err);
    }
}

/// The page of a kernel has its crash, its suffix, where the value came from, its branch records and its events.
#[test]
fn a_page_tells_of_a_kernel() {
    let place = crashed("chain", &[]);
    let ran = place.gretel(&["report", "rec", "-o", "page.html"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let page = fs::read_to_string(place.path("page.html")).expect("the page");
    for section in ["crash", "why", "suffix", "branches", "time", "machine"] {
        assert!(page.contains(&format!("<section id=\"{section}\"")), "no {section}: {}", ran.err);
    }
    for said in ["kernel panic: page fault", "0x7000000008", "rcx = 0x7000000000", "certified", ">end</text>"]
    {
        assert!(page.contains(said), "no {said}");
    }
    let ran = place.gretel(&["report", "alone", "--exe", KERNEL, "-o", "alone.html"]);
    assert!(ran.code == 0 && ran.err.contains("a core alone does not tell"), "{}", ran.err);
    let page = fs::read_to_string(place.path("alone.html")).expect("the page");
    assert!(page.contains("<section id=\"suffix\"") && page.contains("<section id=\"why\""), "{}", ran.err);
}
