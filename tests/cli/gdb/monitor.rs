//! gretel's own commands in gdb: what is none of them is said, and an expression of gdb's can be given to one.

use super::{gdb, has_gdb, in_order, recorded};
use crate::{Place, skipped};
use std::process::Command;

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

/// Whether gdb has Python, which makes it forget what it has read.
fn has_python() -> bool {
    let ran = Command::new("gdb").args(["-nx", "-batch", "-ex", "python print(6 * 7)"]).output();
    let has = ran.is_ok_and(|ran| ran.stdout.starts_with(b"42"));
    if !has {
        skipped("gdb after `monitor goto`", "this gdb has no Python");
    }
    has
}

#[test]
fn gdb_sees_where_a_command_went() {
    if !has_gdb("gdb after `monitor goto`") || !has_python() {
        return;
    }
    let place = Place::new();
    if recorded(&place, "soft").is_none() {
        return;
    }
    let commands = [
        "printf \"crash %016lx\\n\", $pc",
        "monitor goto start",
        "printf \"start %016lx\\n\", $pc",
        "monitor goto end",
        "printf \"end %016lx\\n\", $pc",
        // Where nothing has moved, the frame that was selected stays so.
        "tbreak spoil",
        "reverse-continue",
        "up",
        "monitor when",
        "frame",
    ];
    let ran = gdb(&place, &["rec"], &commands);
    let pc = |name: &str| {
        let out = ran.out();
        let found = out.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        found.unwrap_or_else(|| panic!("`{name}` is missing in\n{out}{}", ran.err))
    };
    let (crash, start) = (pc("crash "), pc("start "));
    assert_eq!(crash, pc("end "));
    assert_ne!(crash, start);
    assert!(ran.err.contains(&format!("rip     {start} ")), "{start}: {}", ran.err);
    in_order(&ran, &["spoil () at ", "\n#1 ", " in main ", "\n#1 ", " in main "]);
}

#[test]
fn gdb_turns_to_the_thread_that_wrote() {
    if !has_gdb("gdb after `monitor last-write`") || !has_python() {
        return;
    }
    let source = r#"
        #include <pthread.h>
        static volatile long shared;
        __attribute__((noinline)) static void store(long value) { shared = value; }
        static void *work(void *argument) { store(7); return argument; }
        int main(void) {
            pthread_t thread;
            pthread_create(&thread, 0, work, 0);
            pthread_join(thread, 0);
            return shared == 0;
        }"#;
    let place = Place::new();
    if place.compile("threads", source).is_none() {
        return;
    }
    assert_eq!(place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./threads"]).code, 0);
    let commands = [
        "monitor goto end",
        "eval \"monitor last-write %p 8\", &shared",
        "backtrace 2",
        "monitor goto start",
        "backtrace 1",
    ];
    let ran = gdb(&place, &["rec"], &commands);
    assert_eq!(ran.code, 0, "{}{}", ran.out(), ran.err);
    in_order(&ran, &["#0 ", " store (", "#1 ", " work (", "#0 ", " _start ("]);
}

#[test]
fn that_there_is_nothing_is_said() {
    if !has_gdb("gretel's empty lists in gdb") {
        return;
    }
    let place = Place::new();
    let Some(address) = recorded(&place, "soft") else { return };
    let commands = [
        "monitor memory 0x10 8",
        "monitor memory 0x10 8 --writes",
        "monitor memory 0xfffffffffffffff8 16",
        "monitor last-write 0xffffffffffffffff 8",
        "monitor events --task 1",
    ];
    let said = gdb(&place, &["rec"], &commands).err;
    for expected in
        ["nobody accessed these bytes\n", "nobody wrote to these bytes\n", "nothing of that happened\n"]
    {
        assert_eq!(said.matches(expected).count(), 1, "{said}");
    }
    assert_eq!(said.matches("LENGTH is 1 to 65536 bytes of the address space\n").count(), 2, "{said}");
    // The command line says the same, beside an empty output.
    for (words, expected) in [
        (&["memory", "rec", "0x10", "8"][..], "gretel: nobody accessed these bytes\n"),
        (&["memory", "rec", "0x10", "8", "--writes"], "gretel: nobody wrote to these bytes\n"),
        (&["events", "rec", "--task", "1"], "gretel: nothing of that happened\n"),
    ] {
        let ran = place.gretel(words);
        assert!(
            ran.code == 0 && ran.out().is_empty() && ran.err.contains(expected),
            "{words:?}: {}",
            ran.err
        );
    }
    let ran = place.gretel(&["memory", "rec", &address, "8"]);
    assert!(!ran.err.contains("nobody"), "{}", ran.err);
}
