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
        "monitor why",
        "monitor nonsense",
        "monitor heap",
        "monitor help",
        "eval \"monitor last-write %p 8\", &head",
    ];
    let ran = gdb(&place, &["rec"], &commands);
    // What gretel says goes to gdb's standard error.
    let mut rest = &*ran.err;
    for expected in [
        "`why` is no command here: `gretel why` outside of gdb is one\n",
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

#[test]
fn lists_are_those_of_the_command_line() {
    if !has_gdb("gretel's lists in gdb") {
        return;
    }
    let place = Place::new();
    let Some(address) = recorded(&place, "soft") else { return };
    let lists = [
        vec!["events", "--call", "read,write"],
        vec!["events", "--kind", "end", "--json"],
        vec!["memory", &address, "8"],
        vec!["memory", &address, "8", "--writes", "--json"],
        vec!["calls", "push", "--json"],
        vec!["heap", &address, "--json"],
        vec!["last-write", &address, "8", "--json"],
    ];
    let commands: Vec<String> = lists.iter().map(|words| format!("monitor {}", words.join(" "))).collect();
    let mut commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    commands.extend([
        "monitor when --json",
        "monitor memory 0x10 8",
        "monitor events --nonsense",
        "monitor when",
    ]);
    let ran = gdb(&place, &["rec"], &commands);
    for words in &lists {
        let list = place.gretel(&[&[words[0], "rec"], &words[1..]].concat()).out();
        assert!(!list.is_empty(), "{words:?} lists nothing");
        assert!(ran.err.contains(&list), "{words:?}: `{list}` is missing in\n{}", ran.err);
    }
    let position = ran.err.split("\nposition ").nth(1).and_then(|it| it.split(':').next()).expect("when");
    assert!(ran.err.contains(&format!(r#""position":"{position}""#)), "{}", ran.err);
    assert!(ran.err.contains("unexpected argument '--nonsense'"), "{}", ran.err);
}
