//! gdb over vforks: the child runs on its parent's memory, until it runs a program or ends.

use super::{gdb, has_gdb, in_order};
use crate::Place;

/// A process starts another one by vfork, which stores to the memory that they share, and then runs a program or ends.
const STARTER: &str = r#"
    #include <sys/wait.h>
    #include <unistd.h>
    static volatile long value = 1;
    __attribute__((noinline)) void set(long to) { value = to; }
    int main(int argc, char **argv) {
        set(2);
        pid_t child = vfork();
        if (child == 0) {
            set(30);
            if (argc > 1) _exit(0);
            execl("./other", "other", (char *)0);
            _exit(1);
        }
        set(20);
        int status;
        waitpid(child, &status, 0);
        set(22);
        return 0;
    }"#;

fn starter(place: &Place, arguments: &[&str]) -> Option<()> {
    place.compile("starter", STARTER)?;
    place.compile(
        "other",
        "int own(int n) { return n - 1; }\nint main(int argc, char **argv) { return own(argc); }",
    )?;
    let ran = place.gretel(&[&["record", "-o", "rec", "--", "./starter"], arguments].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    Some(())
}

#[test]
fn a_vfork_is_one_for_the_parent() {
    if !has_gdb("gdb with vfork") {
        return;
    }
    let place = Place::new();
    let Some(()) = starter(&place, &[]) else { return };
    let commands = [
        "break set",
        "catch vfork",
        "continue",
        "continue",
        // Nothing of the parent runs until the child lets go; gdb has no breakpoints there until it hears that it did.
        "continue",
        "continue",
        "echo === back over it\\n",
        "reverse-continue",
        "reverse-continue",
        "reverse-continue",
        "echo === at the vfork, and back\\n",
        "continue",
        "reverse-continue",
        "reverse-continue",
        "echo === elsewhere\\n",
        "continue",
        "monitor goto start",
        "continue",
    ];
    let ran = gdb(&place, &["rec", "--at", "start"], &commands);
    in_order(
        &ran,
        &[
            "to@entry=2)",
            "(vforked process",
            "[Detaching after vfork from child process",
            "to@entry=20)",
            "to@entry=22)",
            "=== back over it",
            "to@entry=20)",
            "(vforked process",
            "to@entry=2)",
            "=== at the vfork, and back",
            "(vforked process",
            "(vforked process",
            // Though gdb was not told before that the wait is over.
            "to@entry=2)",
            "=== elsewhere",
            "(vforked process",
            "to@entry=2)",
        ],
    );
    assert!(!ran.out().contains("to@entry=30)"), "{}", ran.out());
}

#[test]
fn a_child_of_a_vfork_is_followed_into_its_program_and_back() {
    if !has_gdb("gdb with a vfork that is followed") {
        return;
    }
    let place = Place::new();
    let Some(()) = starter(&place, &[]) else { return };
    let commands = [
        "set follow-fork-mode child",
        "set breakpoint pending on",
        "break set",
        "break own",
        "continue",
        "continue",
        "continue",
        "echo === to its end\\n",
        "continue",
        "info threads",
        "echo === and back before its program\\n",
        "reverse-continue",
        "reverse-continue",
        // The first of it in the child. gdb has switched its breakpoint off where the other program has no such function.
        "info threads",
        "break set",
        "continue",
    ];
    let ran = gdb(&place, &["rec", "--at", "start"], &commands);
    in_order(
        &ran,
        &[
            "to@entry=2)",
            "vfork to child",
            "[New inferior 2 (process ",
            "to@entry=30)",
            "[Detaching vfork parent process",
            "after child exec]",
            "is executing new program: ",
            "own (n=1)",
            // The parent goes on after that; the child's end is the end of what is looked at.
            "=== to its end",
            "No more reverse-execution history",
            "_exit (",
            "\"other\"",
            "=== and back before its program",
            "own (n=1)",
            "is executing new program: ",
            "starter",
            "No more reverse-execution history",
            "vfork ()",
            "\"starter\"",
            "to@entry=30)",
        ],
    );
    assert!(!ran.out().contains("to@entry=20)") && !ran.out().contains("not available"), "{}", ran.out());
}

#[test]
fn both_sides_of_a_vfork_are_inferiors() {
    if !has_gdb("gdb with both sides of a vfork") {
        return;
    }
    let place = Place::new();
    let Some(()) = starter(&place, &["ends"]) else { return };
    let commands = [
        "set detach-on-fork off",
        "set schedule-multiple on",
        "break set",
        "continue",
        "continue",
        "info inferiors",
    ]
    .into_iter()
    .chain(["continue", "continue", "reverse-continue", "reverse-continue", "reverse-continue"]);
    let ran = gdb(&place, &["rec", "--at", "start"], &commands.collect::<Vec<_>>());
    let stops = ["30", "vfork", "20", "22", "20", "30", "2"].map(|it| match it {
        "vfork" => "is vfork parent of inferior 2".to_owned(),
        value => format!("to@entry={value})"),
    });
    in_order(&ran, &[&["to@entry=2)"], &stops.each_ref().map(String::as_str)[..]].concat());
}

#[test]
fn what_a_process_starts_that_is_not_looked_at_is_not_looked_at() {
    if !has_gdb("gdb with a grandchild") {
        return;
    }
    let place = Place::new();
    let source = r#"
        #include <sys/wait.h>
        #include <unistd.h>
        __attribute__((noinline)) void set(long to) { __asm__ volatile("" : : "r"(to)); }
        int main(void) {
            int up[2], down[2];
            char byte;
            if (pipe(up) || pipe(down)) return 1;
            pid_t child = fork();
            if (child == 0) {
                if (fork() == 0 && write(up[1], "x", 1) == 1 && read(down[0], &byte, 1) == 1) set(30);
                _exit(wait(0) < 0);
            }
            if (read(up[0], &byte, 1) != 1) return 1;
            set(20);
            if (write(down[1], "x", 1) != 1) return 1;
            waitpid(child, 0, 0);
            set(22);
            return 0;
        }"#;
    if place.compile("family", source).is_none() {
        return;
    }
    let ran = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./family"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let commands = ["break set", "continue", "info threads", "continue", "reverse-continue"];
    let ran = gdb(&place, &["rec", "--at", "start"], &commands);
    in_order(&ran, &["[Detaching after fork", "to@entry=20)", "\"family\"", "to@entry=22)", "to@entry=20)"]);
    assert!(ran.out().matches("\"family\"").count() == 1, "{}", ran.out());
    assert!(!ran.out().contains("to@entry=30)") && !ran.out().contains("[New Thread"), "{}", ran.out());
}
