//! `catch syscall` in gdb: before and behind each call, in both directions.

use super::{gdb, has_gdb, in_order};
use crate::Place;

const PROGRAM: &str = r#"
    #include <sys/wait.h>
    #include <unistd.h>
    int main(void) {
        write(1, "one", 3);
        getppid();
        if (fork() == 0) { write(1, "child", 5); _exit(0); }
        wait(0);
        write(1, "two", 3);
        getppid();
        return *(volatile char *)8;
    }"#;

#[test]
fn system_calls_are_caught_in_both_directions() {
    if !has_gdb("gdb with catch syscall") {
        return;
    }
    let place = Place::new();
    if place.compile("calls", PROGRAM).is_none() {
        return;
    }
    let ran = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./calls"]);
    assert_eq!(ran.code, 128 + 11, "{}", ran.err);
    let commands = [
        "catch syscall write",
        "continue",
        "print (long)$rdx",
        "continue",
        "print (long)$rax",
        "continue",
        "x/s $rsi",
        "continue",
        "echo === back\\n",
        "reverse-continue",
        "x/s $rsi",
        "reverse-continue",
        "reverse-continue",
        "echo === and forth\\n",
        "continue",
        "echo === any\\n",
        "catch syscall",
        "continue",
        "continue",
        "echo === one that waits\\n",
        "monitor goto start",
        "delete",
        "catch syscall wait4",
        "continue",
        "continue",
        "print (long)$rax > 61",
        "reverse-continue",
        "monitor goto start",
        "echo === a breakpoint comes first\\n",
        "delete",
        "catch syscall getppid",
        "break wait4",
        "continue",
        "continue",
        "continue",
        "echo === nobody catches them\\n",
        "delete",
        "continue",
    ];
    let ran = gdb(&place, &["rec", "--at", "start"], &commands);
    in_order(
        &ran,
        &[
            "(call to syscall write)",
            " = 3",
            "(returned from syscall write)",
            " = 3",
            // The child is not looked at.
            "(call to syscall write)",
            "\"two",
            "(returned from syscall write)",
            "=== back",
            "(call to syscall write)",
            "\"two",
            "(returned from syscall write)",
            "(call to syscall write)",
            "=== and forth",
            "(returned from syscall write)",
            "=== any",
            "(call to syscall getppid)",
            "(returned from syscall getppid)",
            "=== one that waits",
            "(call to syscall wait4)",
            "(returned from syscall wait4)",
            // The child's number, and not the call's: it has returned.
            " = 1",
            "(call to syscall wait4)",
            "=== a breakpoint comes first",
            "(call to syscall getppid)",
            "(returned from syscall getppid)",
            "Breakpoint",
            "=== nobody catches them",
            "SIGSEGV",
        ],
    );
}

/// Executes itself, and exits.
const LAST: &str = r#"
    #include <unistd.h>
    int main(int arguments, char **named) {
        if (arguments == 1) execl(named[0], named[0], "again", NULL);
        _exit(3);
    }"#;

#[test]
fn a_call_that_does_not_return_is_caught_before_it() {
    if !has_gdb("gdb with catch syscall") {
        return;
    }
    let place = Place::new();
    if place.compile("last", LAST).is_none() {
        return;
    }
    let ran = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./last"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    let commands = [
        "catch syscall execve",
        "continue",
        "delete",
        "catch syscall exit_group",
        "continue",
        "print (long)$rdi",
        "continue",
        "reverse-continue",
        "print (long)$rdi",
    ];
    let ran = gdb(&place, &["rec", "--at", "start"], &commands);
    in_order(
        &ran,
        &[
            "(call to syscall execve)",
            "(call to syscall exit_group)",
            " = 3",
            "No more reverse-execution history",
            "(call to syscall exit_group)",
            " = 3",
        ],
    );
}
