//! gretel's own commands in gdb: what is none of them is said, and an expression of gdb's can be given to one.

use super::{gdb, has_gdb, recorded};
use crate::Place;

#[test]
fn what_is_no_command_is_said() {
    if !has_gdb("gretel's commands in gdb") {
        return;
    }
    let place = Place::new();
    if recorded(&place, "soft").is_none() {
        return;
    }
    let commands = [
        "monitor events",
        "monitor nonsense",
        "monitor heap",
        "monitor help",
        "eval \"monitor last-write %p 8\", &head",
    ];
    let ran = gdb(&place, &["rec"], &commands);
    // What gretel says goes to gdb's standard error.
    let mut rest = &*ran.err;
    for expected in [
        "`events` is no command here: `gretel events` outside of gdb is one\n",
        "`nonsense` is no command here\n",
        "`heap` takes other words\n",
        "monitor goto POSITION",
        "a position is one",
        "written by the instruction at ",
    ] {
        let at = rest.find(expected);
        assert!(at.is_some(), "`{expected}` is missing behind what came before it, in\n{}", ran.err);
        rest = &rest[at.unwrap_or(0) + expected.len()..];
    }
}
