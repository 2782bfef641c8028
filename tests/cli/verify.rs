//! Crumbs as evidence for `gretel synth`, and `gretel verify`: a suffix that was kept is checked again.

use crate::{DAMAGED, Place};
use serde_json::Value;
use std::fs;

const WRITES: &str = "\
#include <unistd.h>
int main(int argc, char **argv) {
    volatile int zero = argc - 1;
    for (int i = 0; i < 3; i++)
        write(1, \"crumb\", 5);
    return argc / zero;
}
";

/// The crash of [`WRITES`], recorded, and what synth says of it with these arguments.
fn synthesized(place: &Place, arguments: &[&str]) -> Option<Value> {
    if !place.path("rec").exists() {
        place.compile("writes", WRITES)?;
        let recorded = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./writes"]);
        assert_eq!(recorded.code, 128 + 8, "{}", recorded.err);
    }
    let ran = place.gretel(&[&["synth", "--json", "--instructions", "60", "rec"], arguments].concat());
    assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.err);
    Some(serde_json::from_str(&ran.out()).unwrap())
}

fn crumbs(found: &Value) -> [u64; 2] {
    let compared = &found["listing"]["summary"]["crumbs"];
    [0, 1].map(|n| compared[n].as_u64().unwrap_or_else(|| panic!("{found}")))
}

#[test]
fn the_calls_of_a_suffix_are_those_of_the_crumbs_and_what_retires_between_them_is_counted() {
    let place = Place::new();
    let Some(counted) = synthesized(&place, &["--records", "0"]) else { return };
    let [calls, counts] = crumbs(&counted);
    assert!(calls >= 1, "{counted}");
    assert_eq!(counts, calls, "{counted}");
    // The suffix ends behind the older writes, which are in the outline with their distances.
    let outline = counted["outline"].as_array().unwrap();
    let older = outline.iter().take(3 - usize::try_from(calls).unwrap());
    let distances: Vec<u64> = older
        .inspect(|exit| assert_eq!(exit["name"], "write", "{counted}"))
        .map(|exit| exit["before_crash"].as_u64().unwrap())
        .collect();
    assert!(distances.is_sorted() && distances.iter().all(|distance| *distance > 60), "{counted}");
    let Some(called) = synthesized(&place, &["--records", "0", "--crumbs", "calls"]) else { return };
    assert!(crumbs(&called)[0] >= 1, "{called}");
    assert_eq!(crumbs(&called)[1], 0, "{called}");
    let Some(without) = synthesized(&place, &["--records", "0", "--crumbs", "none"]) else { return };
    assert_eq!(crumbs(&without), [0, 0], "{without}");
}

#[test]
fn a_kept_suffix_is_verified_and_one_that_was_changed_is_not() {
    let place = Place::new();
    if synthesized(&place, &["-o", "suffix"]).is_none() {
        return;
    }
    let verified = place.gretel(&["verify", "suffix", "rec"]);
    assert_eq!(verified.code, 0, "{}", verified.err);
    assert!(verified.out().starts_with("certified on soft"), "{}", verified.out());
    let verified = place.gretel(&["verify", "--json", "--no-kvm", "suffix", "rec/core"]);
    assert_eq!(verified.code, 0, "{}", verified.err);
    let told: Value = serde_json::from_str(&verified.out()).unwrap();
    assert_eq!(told["summary"]["engines"], serde_json::json!(["soft"]), "{told}");

    let mut suffix: Value = serde_json::from_slice(&fs::read(place.path("suffix")).unwrap()).unwrap();
    // rbp, which the program computes all its addresses from.
    suffix["registers"]["gpr"][5] = "0x10".into();
    place.write("changed", suffix.to_string());
    let changed = place.gretel(&["verify", "changed", "rec"]);
    assert_eq!(changed.code, 1, "{}", changed.err);
    assert!(changed.out().starts_with("rejected: "), "{}", changed.out());
    place.write("cut", &suffix.to_string()[..200]);
    let cut = place.gretel(&["verify", "cut", "rec"]);
    assert_eq!(cut.code, DAMAGED, "{}", cut.err);
    assert!(cut.err.contains("cut"), "{}", cut.err);
}
