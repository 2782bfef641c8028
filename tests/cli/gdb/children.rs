//! A child that gdb follows from a fork on the way back, where it does not live yet.

use super::processes::in_families;
use super::{gdb, in_order};

/// gdb turns to the child and reads its registers at once: it is shown as the copy of its parent that it will be.
#[test]
fn a_child_that_is_held_is_followed_from_its_fork_on_the_way_back() {
    in_families("gdb that follows a child on the way back", |place| {
        let commands = [
            "set detach-on-fork off",
            "set follow-fork-mode child",
            "handle SIGUSR1 nostop noprint",
            "echo === to the fork, which nobody catches\\n",
            "reverse-continue",
            "info inferiors",
            "echo === and forward into the child\\n",
            "break set if to == 30",
            "continue",
        ];
        let ran = gdb(place, &["rec", "--at", "end"], &commands);
        in_order(
            &ran,
            &[
                "=== to the fork",
                "[New inferior 2 (process ",
                "No more reverse-execution history",
                "=== and forward",
                "Thread 2.1 \"family\" hit Breakpoint",
                "set (to=to@entry=30)",
            ],
        );
        assert!(!ran.out().contains("not available"), "{}", ran.out());
    });
}
