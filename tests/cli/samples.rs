//! Samples of branches: exported from a recording, and used to tell which way is tried first.

use crate::{DAMAGED, Place, Ran, USAGE};
use lbr::trail::{Family, Provenance};
use lbr::{BranchRecord, Filter, Trail};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// Twice in each round it goes one of two ways, nearly always the same one, and shifts out the bit that told; then it crashes.
const ROUNDS: &str = "\
volatile unsigned long sink;
static void __attribute__((noinline)) odd(unsigned long n) { sink = n; }
static void __attribute__((noinline)) even(unsigned long n) { sink = n; }
int main(void) {
    unsigned long seldom = 0, often = 0;
    for (unsigned long n = 0; n < 300000; n++) {
        if (n % 64 == 0) {
            seldom = 0x0102040810204081;
            often = ~seldom;
        }
        if (seldom & 1) odd(n); else even(n);
        if (often & 1) odd(n); else even(n);
        seldom >>= 1;
        often >>= 1;
    }
    return *(volatile int *)0;
}
";

fn recorded() -> Option<Place> {
    let place = Place::new();
    let _program = place.compile("rounds", ROUNDS)?;
    let recorded =
        place.gretel(&["record", "--engine", "soft", "--records", "0", "-o", "rec", "--", "./rounds"]);
    assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
    Some(place)
}

/// What synth found of the recording without any branch record or crumb, with these options.
fn synthesized(place: &Place, options: &[&str]) -> (Ran, Value) {
    let plain =
        ["synth", "--json", "--records", "0", "--crumbs", "none", "--fuel", "3", "--instructions", "500"];
    let ran = place.gretel(&[&plain[..], options, &["rec"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let found = serde_json::from_str(&ran.out()).expect("JSON");
    (ran, found)
}

#[test]
fn samples_tell_the_way_that_the_program_mostly_goes() {
    let Some(place) = recorded() else { return };
    let exported = place.gretel(&["export", "rec", "--samples", "--period", "5000", "-o", "samples.txt"]);
    assert_eq!(exported.code, 0, "{}", exported.err);
    let text = fs::read_to_string(place.path("samples.txt")).unwrap();
    let samples = text.lines().filter(|line| line.contains("/P/") || line.contains("/-/")).count();
    assert!(samples > 100 && exported.err.contains(&format!("{samples} samples")), "{}", exported.err);
    assert!(
        text.lines().next().is_some_and(|line| line.contains("MMAP2") && line.ends_with("/rounds")),
        "{text:.300}"
    );

    let (_, without) = synthesized(&place, &[]);
    let (ran, with) = synthesized(&place, &["--samples", "samples.txt"]);
    assert!(ran.err.contains(&format!("{samples} samples of ")), "{}", ran.err);
    let told = |found: &Value| found["search"]["told_by_samples"].as_u64().unwrap();
    assert_eq!(told(&without), 0);
    assert!(told(&with) > 0, "{with}");
    let is_true = |found: &Value| found["metrics"]["path"]["common"].as_u64().unwrap();
    assert!(is_true(&with) > is_true(&without), "{} and {}", is_true(&with), is_true(&without));

    // The recording itself is sampled, at the usual distance.
    let (ran, of_recording) = synthesized(&place, &["--samples", "rec"]);
    assert!(told(&of_recording) > 0, "{}", ran.err);
}

/// Two programs of one recording lie at the same addresses: a sample's are those of the one that ran.
#[test]
fn samples_of_several_programs_are_told_apart() {
    let Some(place) = recorded() else { return };
    let both =
        ["record", "--engine", "soft", "-o", "both", "--", "busybox", "sh", "-c", "./rounds; busybox true"];
    assert_eq!(place.gretel(&both).code, 0);
    let exported = place.gretel(&["export", "both", "--samples", "--period", "5000"]);
    assert_eq!(exported.code, 0, "{}", exported.err);
    let sampled = lbr::Sampled::read(exported.out().as_bytes(), &lbr::file::Known::default()).unwrap();
    let programs = sampled.iter().filter_map(|sample| {
        let (file, _) = sample.place(sample.trail.records[0].from)?;
        Some(file.rsplit('/').next().unwrap_or(file).to_owned())
    });
    let programs: BTreeSet<String> = programs.collect();
    assert!(programs.contains("rounds") && programs.contains("busybox"), "{programs:?}");
}

/// A program whose journal grows all the time.
const READS: &str = "\
#include <unistd.h>
int main(void) {
    static char bytes[1 << 16];
    volatile unsigned sum = 0;
    for (int n = 0; n < 64; n++) {
        if (getentropy(bytes, 256) != 0) return 1;
        for (int round = 0; round < 255; round++)
            if (getentropy(bytes + 256 * round, 256) != 0) return 1;
        for (int at = 0; at < sizeof bytes; at++) sum += bytes[at];
    }
    return 0;
}
";

/// What was sampled before a tear is of use, and the tear is told.
#[test]
fn a_torn_recording_is_sampled_up_to_the_tear() {
    let place = Place::new();
    if place.compile("reads", READS).is_none() {
        return;
    }
    assert_eq!(place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./reads"]).code, 0);
    let whole = fs::read(place.path("rec/journal")).unwrap();
    place.replace("rec/journal", &whole[..whole.len() / 2]);
    let exported = place.gretel(&["export", "rec", "--samples", "--period", "5000", "-o", "samples.txt"]);
    assert_eq!(exported.code, DAMAGED, "{}", exported.err);
    assert!(exported.err.contains("samples were taken before it"), "{}", exported.err);
    let text = fs::read_to_string(place.path("samples.txt")).unwrap();
    let samples = text.lines().filter(|line| line.contains("/-/")).count();
    assert!(
        samples > 10 && exported.err.contains(&format!("{samples} samples")),
        "{samples}: {}",
        exported.err
    );
}

#[test]
fn samples_that_are_of_no_use_are_named() {
    let Some(place) = recorded() else { return };
    place.write("text", "no samples\n");
    place.write("torn", "prog 1 1.0: 0x1010/0x\n");
    let records = vec![BranchRecord::new(0x10, 0x20), BranchRecord::new(0x30, 0x40)];
    let (provenance, family) = (Provenance::Perf, Family::Perf);
    let calls = Trail { records, depth: 32, filter: Some(Filter::CALLS), provenance, family };
    fs::write(place.path("calls"), calls.to_bytes()).unwrap();
    for (file, code, message) in [
        ("missing", DAMAGED, "missing"),
        ("text", DAMAGED, "text: "),
        ("torn", DAMAGED, "line 1: "),
        ("calls", USAGE, "only some branches (calls)"),
    ] {
        let ran = place.gretel(&["synth", "--samples", file, "rec"]);
        assert_eq!(ran.code, code, "{file}: {}", ran.err);
        assert!(ran.err.contains(message), "{file}: {}", ran.err);
    }
    let of_another = " PERF_RECORD_MMAP2 1/1: [0x1000(0x1000) @ 0 00:00 0 0]: r-xp /no/such/program\n \
                      0x1010/0x1020/P/-/-/0  0x1030/0x1040/P/-/-/0 \n";
    place.write("another", of_another);
    let (ran, _) = synthesized(&place, &["--samples", "another"]);
    assert!(ran.err.contains("2 branches of samples are left out"), "{}", ran.err);
    let short = place.gretel(&["export", "rec", "--samples", "--period", "1000000000", "-o", "none.txt"]);
    assert!(short.code > 0 && short.err.contains("shorter --period"), "{}", short.err);
}
