//! A suffix in gdb.

use super::{gdb, has_gdb, in_order, recorded};
use crate::{DAMAGED, Place, USAGE};

#[test]
fn gdb_walks_about_in_a_suffix() {
    if !has_gdb("gdb with a suffix") {
        return;
    }
    let place = Place::new();
    if recorded(&place, "soft").is_none() {
        return;
    }
    let ran = place.gretel(&["synth", "-o", "suffix.json", "rec"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let commands = [
        "bt 1",
        "reverse-stepi",
        "reverse-stepi",
        "monitor when",
        "break spoil",
        "watch sum",
        "reverse-continue",
        "reverse-continue",
        "stepi",
        "continue",
        "delete",
        "continue",
        "monitor origins",
        "monitor origins 0x10 4",
        "break main if $rip == 0",
        "reverse-continue",
        "monitor when",
        "set var sum = 1",
    ];
    let ran = gdb(&place, &["rec", "--suffix", "suffix.json"], &commands);
    in_order(
        &ran,
        &[
            "main () at",
            "Hardware watchpoint 2: sum",
            "Old value = ",
            "Old value = ",
            "Program received signal SIGSEGV",
            "No more reverse-execution history",
        ],
    );
    for said in [
        "2 instructions before the crash",
        "were chosen",
        "at the start, ",
        "in the core: 4 bytes at 0x10",
        "0 behind the start",
    ] {
        assert!(ran.err.contains(said), "`{said}` is missing in {}", ran.err);
    }
    // Beside its core it is enough by itself.
    std::fs::copy(place.path("suffix.json"), place.path("rec/suffix.json")).unwrap();
    in_order(&gdb(&place, &["rec/suffix.json"], &["bt 1"]), &["main () at"]);
    let ran = place.gretel(&["gdb", "suffix.json", "--stdio"]);
    assert_eq!(ran.code, USAGE, "{}", ran.err);
    assert!(ran.err.contains("name its core"), "{}", ran.err);
    // What is not there is said before gdb's screen could hide it.
    for (named, suffix, missing) in [("rec", "nowhere", "nowhere"), ("nowhere", "suffix.json", "nowhere")] {
        let ran = gdb(&place, &[named, "--suffix", suffix], &["bt"]);
        assert_eq!(ran.code, DAMAGED, "{}", ran.err);
        assert!(ran.err.contains(missing) && ran.out.is_empty(), "{}{}", ran.out(), ran.err);
    }
}
