//! `gretel gdb`, `last-write` and `memory`: a recorded crash is taken back to the store that made it.

mod calls;
mod children;
mod followed;
mod lldb;
mod monitor;
mod processes;
mod protocol;
mod suffix;
mod vforks;

use crate::{DAMAGED, Place, Ran, USAGE, engines, skipped};
use serde_json::Value;
use std::process::Command;

/// A list whose second node is spoiled long before the crash; the loop stores to the same page.
const SPOILED: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    struct node { long key; struct node *next; };
    static struct node nodes[4];
    static struct node *head;
    static long sum;
    static char text[8];
    __attribute__((noinline)) void push(struct node *node, long key) { node->key = key; node->next = head; head = node; }
    __attribute__((noinline)) void spoil(void) { head->next->next = (struct node *)0x1234; }
    int main(void) {
        for (int i = 0; i < 4; i++) push(&nodes[i], i);
        fgets(text, sizeof text, stdin);
        for (long i = 0; i < 200000; i++) { sum += i; if (i == 1000) spoil(); }
        for (struct node *node = head; node; node = node->next) sum += node->key;
        return sum;
    }"#;

/// Records it, and gives the address of the spoiled pointer.
fn recorded(place: &Place, engine: &str) -> Option<String> {
    place.compile("spoiled", SPOILED)?;
    place.write("input", "hello\n");
    let ran = place
        .sh(&format!("{} record --engine {engine} -o rec -- ./spoiled <input", env!("CARGO_BIN_EXE_gretel")));
    assert_eq!(ran.code, 128 + 11, "{}", ran.err);
    let nm = place.sh("nm spoiled | sed -n 's/^0*\\([0-9a-f]*\\) b nodes$/\\1/p'");
    let nodes = u64::from_str_radix(nm.out().trim(), 16).expect("the address of `nodes`");
    // The second from the head is the third.
    Some(format!("{:#x}", nodes + 2 * 16 + 8))
}

#[test]
fn the_last_write_is_the_one_that_spoiled_it() {
    let place = Place::new();
    for engine in engines() {
        let Some(address) = recorded(&place, engine) else { return };
        for replayer in engines() {
            let ran = place.gretel(&["last-write", "rec", &address, "8", "--engine", replayer, "--json"]);
            assert_eq!(ran.code, 0, "{}", ran.err);
            let found: Value = serde_json::from_str(ran.out().trim()).expect("JSON");
            assert_eq!(
                (&found["after"], &found["kind"]),
                (&"3412000000000000".into(), &"write".into()),
                "{found}"
            );
            assert_eq!(
                (&found["function"], &found["stack"][1]["function"]),
                (&"spoil".into(), &"main".into())
            );
            assert!(found["file"].as_str().is_some_and(|file| file.ends_with("spoiled.c")), "{found}");
            assert!(found["place"].as_str().is_some_and(|place| place.contains("spoiled+0x")), "{found}");
            // Before it, the list was made; and before that, nothing.
            let ran =
                place.gretel(&["last-write", "rec", &address, "8", "--count", "5", "--engine", replayer]);
            // Below each stand its callers.
            let writes = ran.out().lines().filter(|line| !line.starts_with(' ')).count();
            assert_eq!(writes, 2, "{}", ran.out());
            assert!(ran.out().contains("\n    from main+0x"), "{}", ran.out());
            assert!(ran.err.contains("nobody wrote to them before that"), "{}", ran.err);
            let ran = place.gretel(&["memory", "rec", &address, "8", "--writes", "--engine", replayer]);
            assert_eq!(ran.out().lines().count(), 2, "{}", ran.out());
        }
        std::fs::remove_dir_all(place.path("rec")).unwrap();
    }
}

/// Whether there is gdb here; says that a test is skipped if not.
pub(crate) fn has_gdb(what: &str) -> bool {
    let has = Command::new("gdb").arg("--version").output().is_ok();
    if !has {
        skipped(what, "gdb is not installed; `make setup` installs it");
    }
    has
}

/// Runs commands in gdb, which `arguments` of `gretel gdb` start.
pub(crate) fn gdb(place: &Place, arguments: &[&str], commands: &[&str]) -> Ran {
    let begin = ["set pagination off", "set confirm off"];
    place.write("commands", [&begin, commands].concat().join("\n"));
    place.gretel(&[&["gdb"], arguments, &["--", "-nx", "-batch", "-x", "commands"]].concat())
}

/// Asserts that what gdb says has these, in this order.
pub(crate) fn in_order(ran: &Ran, expected: &[&str]) {
    let out = ran.out();
    let mut rest = out.as_str();
    for expected in expected {
        let at = rest.find(expected);
        assert!(at.is_some(), "`{expected}` is missing behind what came before it, in\n{out}{}", ran.err);
        rest = &rest[at.unwrap_or(0) + expected.len()..];
    }
}

#[test]
fn gdb_goes_back_from_the_crash_to_the_store() {
    if !has_gdb("gdb goes back") {
        return;
    }
    let place = Place::new();
    for engine in engines() {
        if recorded(&place, engine).is_none() {
            return;
        }
        let commands = [
            "watch nodes[2].next",
            "reverse-continue",
            "bt",
            "delete",
            "break push",
            "reverse-continue",
            "printf \"key %ld\\n\", key",
            "reverse-stepi",
            "stepi",
            "reverse-continue",
            "reverse-continue",
            "reverse-continue",
            "reverse-continue",
            "delete",
            "watch text[0]",
            "continue",
            "delete",
            "continue",
            "monitor calls push 2",
            "monitor heap 0x10",
            "monitor when",
            "info proc mappings",
            "print $_siginfo._sifields._sigfault.si_addr",
            // What is watched is seen by steps too.
            "echo === 2 steps\\n",
            "break push",
            "run",
            "watch head",
            "next",
            "next",
            "set var sum = 1",
        ];
        let ran = gdb(&place, &["rec"], &commands);
        in_order(
            &ran,
            &[
                "Old value = (struct node *) 0x1234",
                "spoil ()",
                "#1  0x",
                "Breakpoint 2, push (",
                "key 3",
                "Breakpoint 2, push (",
                "No more reverse-execution history",
                "New value = 104 'h'",
                "Program received signal SIGSEGV",
                "[stack]",
                "= (void *) 0x1234",
                "=== 2 steps",
                "Hardware watchpoint 5: head",
                "Old value = (struct node *) 0x0",
            ],
        );
        // gdb prints what a target answers to `monitor` on stderr.
        for said in ["push(node=0x", "key=2)", "key=3)", "never allocated"] {
            assert!(ran.err.contains(said), "`{said}` is missing in {}", ran.err);
        }
        assert!(!ran.err.contains("key=1)"), "{}", ran.err);
        assert!(ran.err.contains("it would be another run"), "{}", ran.err);
        assert!(ran.err.contains("position ") && ran.err.contains("at the recording's end"), "{}", ran.err);
        std::fs::remove_dir_all(place.path("rec")).unwrap();
    }
}

#[test]
fn scripts_in_python_set_breakpoints_and_go_back() {
    if !has_gdb("scripts of gdb in Python") {
        return;
    }
    let place = Place::new();
    if recorded(&place, "soft").is_none() {
        return;
    }
    let script = [
        "python",
        "gdb.Breakpoint('push')",
        "gdb.execute('watch nodes[2].next')",
        "gdb.execute('reverse-continue')",
        "print('in', gdb.selected_frame().name())",
        "gdb.execute('monitor goto 0')",
        "print('event', gdb.execute('monitor when', to_string=True).split(':')[0])",
        "gdb.execute('continue')",
        "print('then', gdb.selected_frame().name())",
        "end",
    ];
    let ran = gdb(&place, &["rec"], &script);
    if ran.err.contains("Python") && ran.err.contains("not supported") {
        return skipped("scripts of gdb in Python", "this gdb has none");
    }
    in_order(&ran, &["in spoil", "event position 0", "then push"]);
}

#[test]
fn what_cannot_be_asked_for_is_said() {
    let place = Place::new();
    let ran = place.gretel(&["last-write", "rec", "0x1000", "0"]);
    assert_eq!(ran.code, USAGE, "{}", ran.err);
    let ran = place.gretel(&["memory", "rec", "0xhere", "8"]);
    assert_eq!(ran.code, USAGE, "{}", ran.err);
    let ran = place.gretel(&["gdb", "no-such-folder", "--stdio"]);
    assert!(ran.err.contains("no-such-folder"), "{}", ran.err);
    if recorded(&place, "soft").is_none() {
        return;
    }
    for arguments in [&["memory", "rec", "0x1000", "8"][..], &["gdb", "rec", "--stdio"], &["gdb", "rec"]] {
        let ran = place.gretel(&[arguments, &["--pid", "999999"]].concat());
        assert_eq!(ran.code, USAGE, "{}", ran.err);
        assert!(ran.err.contains("no process 999999"), "{}", ran.err);
        assert!(ran.err.contains("(spoiled)"), "those that there are: {}", ran.err);
    }
    // A journal that is torn is looked at up to there, and that is said.
    place.sh("cp -r rec torn; chmod -R u+w torn; truncate -s -40 torn/journal");
    for command in ["last-write", "memory"] {
        let ran = place.gretel(&[command, "torn", "0x1000", "8"]);
        assert_eq!(ran.code, DAMAGED, "{}", ran.err);
        assert!(
            ran.err.contains("torn/journal") && ran.err.contains("not all of these bytes"),
            "{}",
            ran.err
        );
    }
    let ran = place.gretel(&["gdb", "torn", "--stdio"]);
    assert!(ran.err.contains("torn/journal") && ran.err.contains("is shown up to there"), "{}", ran.err);
    let ran = place.gretel(&["gdb", "rec", "--stdio", "--at", "999999"]);
    assert!(ran.err.contains("before 999999"), "{}", ran.err);
    // Another program of that name is here now.
    std::fs::write(place.path("spoiled"), b"\x7fELF, but not that one").unwrap();
    let ran = place.gretel(&["gdb", "rec", "--stdio"]);
    assert!(ran.err.contains("is another file here than was recorded"), "{}", ran.err);
}
