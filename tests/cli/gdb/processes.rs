//! gdb over forks, programs that processes run one after the other, signals, and conditions.

use super::{gdb, has_gdb, in_order};
use crate::{Place, engines, skipped};

/// A child is started, sets a value and crashes when it is told to; before that, its parent gets a signal, and calls a function often.
const FAMILY: &str = r#"
    #include <signal.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static volatile long value = 1;
    static volatile int signals;
    __attribute__((noinline)) void set(long to) { value = to; }
    __attribute__((noinline)) void each(int i) { __asm__ volatile("" : : "r"(i)); signals += i & 0; }
    static void handler(int signal) { signals++; }
    int main(void) {
        signal(SIGUSR1, handler);
        set(2);
        int ends[2];
        if (pipe(ends)) return 1;
        pid_t child = fork();
        if (child == 0) {
            char byte;
            if (read(ends[0], &byte, 1) != 1) return 1;
            set(30);
            *(volatile int *)8 = 31;
        }
        set(20);
        kill(getpid(), SIGUSR1);
        for (int i = 0; i < 100000; i++) each(i);
        if (write(ends[1], "x", 1) != 1) return 1;
        int status;
        waitpid(child, &status, 0);
        set(22);
        return 0;
    }"#;

fn family(place: &Place, engine: &str) -> Option<()> {
    place.compile("family", FAMILY)?;
    let ran = place.gretel(&["record", "--engine", engine, "-o", "rec", "--", "./family"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    Some(())
}

/// The test on the recording of each engine, if there is gdb for it.
pub(super) fn in_families(needs: &str, test: impl Fn(&Place)) {
    if !has_gdb(needs) {
        return;
    }
    for engine in engines() {
        let place = Place::new();
        let Some(()) = family(&place, engine) else { return };
        test(&place);
    }
}

#[test]
fn processes_are_inferiors_in_both_directions() {
    in_families("gdb with processes", |place| {
        let commands = [
            "set detach-on-fork off",
            "handle SIGUSR1 nostop noprint",
            "break set",
            "continue",
            "continue",
            "echo === both live\\n",
            "info threads",
            "print value",
            "inferior 2",
            "print value",
            "continue",
            "watch value",
            "continue",
            "echo === to the crash of the child\\n",
            "continue",
            "bt 1",
            "delete",
            "break set",
            "echo === back to before the fork\\n",
            "reverse-continue",
            "reverse-continue",
            "reverse-continue",
            "print value",
            "info threads",
            // It is the thread that stopped which steps, and not the one that was listed last.
            "reverse-stepi",
            "stepi",
            "print $pc == &set",
            "echo === and forward again\\n",
            "continue",
            "info threads",
            "continue",
        ];
        let ran = gdb(place, &["rec", "--at", "start"], &commands);
        in_order(
            &ran,
            &[
                "set (to=to@entry=2)",
                "[New inferior 2 (process ",
                "set (to=to@entry=20)",
                "=== both live",
                "1.1",
                "2.1",
                "= 2",
                "= 2",
                "Thread 2.1 \"family\" hit Breakpoint",
                "set (to=to@entry=30)",
                "New value = 30",
                "=== to the crash of the child",
                "received signal SIGSEGV",
                "main () at",
                "=== back to before the fork",
                "set (to=to@entry=30)",
                "set (to=to@entry=20)",
                "set (to=to@entry=2)",
                "= 1",
                "(does not live at this position)",
                "main () at",
                "= 1",
                "=== and forward again",
                "set (to=to@entry=20)",
                "2.1",
                "set (to=to@entry=30)",
            ],
        );
        let out = ran.out();
        let again = out.split("=== and forward again").nth(1).unwrap_or_default();
        assert!(!again.contains("does not live"), "{again}");
    });
}

#[test]
fn processes_that_gdb_was_not_told_of_are_shown() {
    if !has_gdb("gdb with processes that it finds") {
        return;
    }
    let place = Place::new();
    let Some(()) = family(&place, "soft") else { return };
    let forks = place.gretel(&["events", "rec", "--kind", "fork"]).out();
    let fork: u64 = forks.split_whitespace().next().and_then(|it| it.parse().ok()).expect("an event");
    let goto = format!("monitor goto {}", fork + 3);
    let commands = [
        "print sizeof($ymm0)",
        "print $ymm0.v4_int64[3] == 77",
        goto.as_str(),
        "info threads",
        "print $rsp != 0",
    ];
    let ran = gdb(&place, &["rec", "--at", "start"], &commands);
    in_order(&ran, &["= 32", "= 0", "[New inferior 2]", "1.1 ", "2.1 ", "= 1"]);
    assert!(!ran.out().contains("is too long"), "{}", ran.out());
}

#[test]
fn it_goes_on_where_gdb_has_found_a_process_before_anything_ran() {
    if !has_gdb("gdb that goes on with processes that it has found") {
        return;
    }
    let place = Place::new();
    let Some(()) = family(&place, "soft") else { return };
    let forks = place.gretel(&["events", "rec", "--kind", "fork"]).out();
    let fork: u64 = forks.split_whitespace().next().and_then(|it| it.parse().ok()).expect("an event");
    let goto = format!("monitor goto {fork}");
    place.write("commands", [goto.as_str(), "info threads", "continue", "continue"].join("\n"));
    let gretel = env!("CARGO_BIN_EXE_gretel");
    let ran =
        place.sh(&format!("timeout 120 {gretel} gdb rec --at start -- -nx -batch -x commands </dev/null"));
    in_order(&ran, &["[New inferior 2]", "signal SIGUSR1", "signal SIGSEGV"]);
    assert_eq!(ran.out().matches("in _start ()").count(), 1, "{}", ran.out());
}

#[test]
fn a_fork_is_caught_in_both_directions() {
    if !has_gdb("gdb with catch fork") {
        return;
    }
    let place = Place::new();
    let Some(()) = family(&place, "soft") else { return };
    let commands = [
        "break set",
        "catch fork",
        "continue",
        "continue",
        "continue",
        "echo === back\\n",
        "reverse-continue",
        "print value",
        "reverse-continue",
        "echo === and forth\\n",
        "continue",
        "continue",
        "echo === nobody catches it\\n",
        "delete 2",
        "reverse-continue",
    ];
    let ran = gdb(&place, &["rec", "--at", "start"], &commands);
    in_order(
        &ran,
        &[
            "to@entry=2)",
            "(forked process",
            "to@entry=20)",
            "=== back",
            "(forked process",
            "= 2",
            "to@entry=2)",
            "=== and forth",
            "(forked process",
            "to@entry=20)",
            "=== nobody catches it",
            "to@entry=2)",
        ],
    );
    assert_eq!(ran.out().matches("(forked process").count(), 3, "{}", ran.out());
}

#[test]
fn a_child_that_is_not_looked_at_does_not_stop() {
    if !has_gdb("gdb with a fork") {
        return;
    }
    let place = Place::new();
    let Some(()) = family(&place, "soft") else { return };
    let commands = [
        "break set",
        "continue",
        "continue",
        "info inferiors",
        "continue",
        "print $_siginfo.si_signo",
        "print $_siginfo._sifields._kill.si_pid > 0",
        "bt",
        "step",
        "continue",
        "continue",
    ];
    let ran = gdb(&place, &["rec", "--at", "start"], &commands);
    in_order(
        &ran,
        &[
            "to@entry=2)",
            "[Detaching after fork from child",
            "to@entry=20)",
            // Before its handler, as a live program stops.
            "Program received signal SIGUSR1",
            "$1 = 10",
            "$2 = 1",
            "#0  0x",
            "in main () at",
            "handler (signal=10) at",
            "to@entry=22)",
            "No more reverse-execution history",
        ],
    );
    assert!(!ran.out().contains("to@entry=30)"), "{}", ran.out());
}

#[test]
fn conditions_are_evaluated_here() {
    if !has_gdb("gdb with conditions") {
        return;
    }
    let place = Place::new();
    let Some(()) = family(&place, "soft") else { return };
    let commands = [
        "handle SIGUSR1 nostop noprint",
        "set debug remote 1",
        "break each if i == 99999",
        "continue",
        "print i",
        "delete",
        "break each if i * 3 == 30 && signals == 1",
        "reverse-continue",
        "print i",
        // A function of the program cannot be called, and a condition with one is gdb's: it says so.
        "print signals",
    ];
    let ran = gdb(&place, &["rec", "--at", "start"], &commands);
    in_order(&ran, &["each (i=i@entry=99999)", "= 99999", "each (i=i@entry=10)", "= 10", "= 1"]);
    // Each condition is sent, and its breakpoint stops once.
    let sent =
        ran.err.matches("Sending packet: $Z0,").count() + ran.out().matches("Sending packet: $Z0,").count();
    let stops = ran.err.matches("swbreak:;").count() + ran.out().matches("swbreak:;").count();
    assert!(sent >= 2 && stops == 2, "{sent} breakpoints, {stops} stops\n{}", ran.out());
}

#[test]
fn programs_change_with_exec_in_both_directions() {
    if !has_gdb("gdb with exec") {
        return;
    }
    let place = Place::new();
    let source = |name: &str, rest: &str| {
        format!(
            "#include <unistd.h>\nint {name}(int n) {{ return n + 1; }}\nint main(int argc, char **argv) {{\n{rest}\n}}"
        )
    };
    let first = source("only_first", r#"execl("./second", "second", (char *)0); return only_first(1);"#);
    let second = format!("\n\n\n{}", source("only_second", "return only_second(argc) - 2;"));
    for (name, source) in [("first", first), ("second", second)] {
        if place.compile(name, &source).is_none() {
            return;
        }
    }
    let ran = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./first"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let commands = [
        "break main",
        "continue",
        "continue",
        "info line",
        "reverse-continue",
        "info line",
        "continue",
        "info line",
    ];
    let ran = gdb(&place, &["rec", "--at", "start"], &commands);
    in_order(
        &ran,
        &[
            "first.c:3",
            "is executing new program",
            "second",
            "second.c:",
            "is executing new program",
            "first",
            "first.c:3",
            "is executing new program",
            "second.c:",
        ],
    );
}

#[test]
fn another_process_has_its_symbols_where_it_has_its_program() {
    if !has_gdb("gdb with a process beside the one that it is about") {
        return;
    }
    let place = Place::new();
    place.write("family.c", FAMILY);
    if place.sh("gcc -g -O1 -fpie -pie -o family family.c").code != 0 {
        return skipped("gdb with dynamic processes", "gcc cannot make a dynamic program here");
    }
    let ran = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./family"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let files = std::fs::read_dir(place.path("rec")).expect("the recording");
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let child = names.filter_map(|name| Some(name.strip_prefix("core.")?.to_owned())).next();
    let child = child.expect("the child's core");
    let commands = ["inferior 2", "bt", "break set", "info breakpoints", "reverse-continue", "bt"];
    let ran = gdb(&place, &["rec", "--pid", &child], &commands);
    in_order(
        &ran,
        &["[New inferior 2]", "inferior 2", "main () at family.c", "Breakpoint 1 at", "2 locations"],
    );
    in_order(&ran, &["1.1 ", " in set at family.c", "1.2 ", " in set at family.c", "hit Breakpoint 1"]);
    assert!(!ran.out().contains("?? ()"), "{}", ran.out());
}
