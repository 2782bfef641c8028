//! Ends that are no fault of one instruction: what libc says before it aborts, a handler that gives up, a child that crashes, a signal
//! from outside.

use crate::{Place, USAGE, engines, skipped};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// What a service does: its handler reports a crash, and then ends the process in one of three ways. The pointer is input.
const REPORTS: &str = r#"
    #include <signal.h>
    #include <stdlib.h>
    #include <unistd.h>
    static char how;
    static void report(int number) {
        write(1, "it crashed\n", 11);
        if (how == 'a') abort();
        signal(number, SIG_DFL);
        if (how == 'k') kill(getpid(), number);
        else raise(number);
    }
    __attribute__((noinline)) static int look(const int *at) { return *at; }
    __attribute__((noinline)) static int call(int (*at)(void)) { return at() + 1; }
    int main(int count, char **words) {
        unsigned long word = 0;
        how = words[1][0];
        struct sigaction action = { .sa_handler = report, .sa_flags = SA_NODEFER };
        sigaction(SIGSEGV, &action, NULL);
        read(0, &word, sizeof word);
        return words[1][1] == 'c' ? call((int (*)(void))word) : look((const int *)word);
    }"#;

#[test]
fn what_a_handler_was_called_for_is_to_blame_for_its_end() {
    let place = Place::new();
    if place.compile("reports", REPORTS).is_none() {
        return;
    }
    place.write("input", "ABCDEF\0\0");
    let gretel = env!("CARGO_BIN_EXE_gretel");
    for engine in engines() {
        for (how, signal, told, function) in [
            ("a", 6, "accesses 0x464544434241, where nothing is mapped", "look"),
            ("k", 11, "accesses 0x464544434241, where nothing is mapped", "look"),
            ("r", 11, "accesses 0x464544434241, where nothing is mapped", "look"),
            ("ac", 6, "went to 0x464544434241, where there is no code", "call"),
            ("kc", 11, "went to 0x464544434241, where there is no code", "call"),
        ] {
            let ran = place
                .sh(&format!("{gretel} record --engine {engine} --force -o rec -- ./reports {how} <input"));
            assert_eq!(ran.code, 128 + signal, "{how}: {}", ran.err);
            let why = place.gretel(&["why", "rec"]);
            let text = why.out();
            for expected in ["a handler of signals gave up there", told, "bytes 0 to 7 of what it read"] {
                assert!(text.contains(expected), "{engine} {how}: `{expected}`: {text}{}", why.err);
            }
            // The stack goes through the handler to what it interrupted, also where that was no code.
            let core = place.gretel(&["core", "rec"]).out();
            assert!(core.contains(&format!(" {function}+0x")), "{engine} {how}: {core}");
            assert!(core.contains(" main+0x"), "{engine} {how}: {core}");
            assert!(core.contains("(a signal came here)"), "{engine} {how}: {core}");
        }
    }
}

const GIVES_UP: &str = r#"
    #include <assert.h>
    #include <stdlib.h>
    int main(int count, char **words) {
        char *name = calloc(1, 100);
        if (words[1][0] == 'a') assert(count == 3 && "three words");
        free(name + 8);
        return 0;
    }"#;

#[test]
fn what_libc_says_before_it_aborts_is_shown() {
    let place = Place::new();
    if place.compile("static", GIVES_UP).is_none() {
        return;
    }
    place.write("prog.c", GIVES_UP);
    let mut programs = vec!["./static"];
    match place.sh("gcc -g -O1 -w -o dynamic prog.c").code {
        0 => programs.push("./dynamic"),
        _ => skipped("./dynamic", "gcc cannot make it here"),
    }
    for program in programs {
        for (how, said) in [
            ("free", "free(): invalid pointer"),
            ("assert", "Assertion `count == 3 && \"three words\"' failed."),
        ] {
            let start = ["record", "--engine", "soft", "--force", "-o", "rec", "--", program, how];
            assert_eq!(place.gretel(&start).code, 128 + 6);
            let core: Value = serde_json::from_str(&place.gretel(&["core", "rec", "--json"]).out()).unwrap();
            let text = core["signal"]["abort_message"].as_str().unwrap_or_default();
            assert!(text.contains(said), "{program}: {text}");
            let expected = format!("  libc said: {text}\n");
            assert!(place.gretel(&["core", "rec"]).out().contains(&expected), "{program}: {text}");
            let why = place.gretel(&["why", "rec"]);
            assert!(
                why.out().contains(&format!("libc said: {text}\n")),
                "{program}: {}{}",
                why.out(),
                why.err
            );
        }
    }
}

#[test]
fn a_child_that_crashes_is_told_of_and_asked_about() {
    let place = Place::new();
    let source = r#"
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) {
            char index = 0;
            if (fork() == 0) {
                read(0, &index, 1);
                return *(volatile int *)(long)index;
            }
            wait(0);
            return 0;
        }"#;
    if place.compile("parent", source).is_none() {
        return;
    }
    place.write("input", "x");
    let gretel = env!("CARGO_BIN_EXE_gretel");
    for engine in engines() {
        let ran = place.sh(&format!("{gretel} record --engine {engine} --force -o rec -- ./parent <input"));
        assert_eq!(ran.code, 0, "{}", ran.err);
        let (_, pid) = ran.err.split_once("and left core.").expect("a word about the child");
        let pid = pid.lines().next().unwrap();
        assert!(ran.err.contains(&format!("next: gretel core rec/core.{pid}\n")), "{}", ran.err);
        // The folder's own core there is not, and where the other is, is said.
        let core = place.gretel(&["core", "rec"]);
        assert_eq!(core.code, USAGE);
        assert!(core.err.contains(&format!("process {pid} crashed, and left core.{pid}")), "{}", core.err);
        let why = place.gretel(&["why", "rec"]);
        assert!(why.err.contains(&format!("this is about {pid}")), "{}", why.err);
        assert!(why.out().contains("byte 0 of what it read"), "{}{}", why.out(), why.err);
        // Whoever asks next asks about the same process.
        for question in [&["why", "rec", "--of", "rax"][..], &["calls", "rec", "fork"], &["heap", "rec", "8"]]
        {
            let ran = place.gretel(question);
            assert!(ran.err.contains(&format!("this is about {pid}")), "{question:?}: {}", ran.err);
        }
    }
    let page = place.gretel(&["report", "rec", "-o", "page.html", "--fuel", "0"]);
    assert!(page.err.contains("; the page is about "), "{}", page.err);
    let page = std::fs::read_to_string(place.path("page.html")).unwrap();
    assert!(page.contains("<section id=\"crash\"") && page.contains("<section id=\"why\""), "{page}");
    let other = place.gretel(&["report", "rec", "-o", "other.html", "--pid", "1"]);
    assert_eq!(other.code, USAGE, "{}", other.err);
    assert!(!place.path("other.html").exists());
}

#[test]
fn a_master_that_is_told_to_stop_did_not_crash_its_worker_did() {
    let place = Place::new();
    let source = r#"
        #include <signal.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) {
            if (fork() == 0) sleep(1), _exit(0);
            pid_t worker = fork();
            if (worker == 0) return *(volatile int *)8;
            waitpid(worker, 0, 0);
            kill(getpid(), SIGTERM);
        }"#;
    if place.compile("master", source).is_none() {
        return;
    }
    let ran = place.gretel(&["record", "-o", "rec", "--", "./master"]);
    assert_eq!(ran.code, 128 + 15, "{}", ran.err);
    let (_, pid) = ran.err.split_once("and left core.").expect("a word about the worker");
    let pid = pid.lines().next().unwrap();
    let why = place.gretel(&["why", "rec"]);
    assert!(why.out().starts_with("it crashed with SIGSEGV at main"), "{}{}", why.out(), why.err);
    assert!(why.err.contains(&format!("; this is about {pid} ")), "{}", why.err);
    let first = place.gretel(&["events", "rec", "--json"]).out();
    let first: serde_json::Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    let first = place.gretel(&["why", "rec", "--pid", &first["pid"].to_string()]);
    assert!(first.out().starts_with("it was ended by SIGTERM at "), "{}{}", first.out(), first.err);
}

/// Records what this command line does until it has printed a line, ends it by a signal from outside, and asks why it ended.
fn is_ended_from_outside(place: &Place, start: &[&str], (name, number): (&str, i32)) {
    let mut recorder = place.command(env!("CARGO_BIN_EXE_gretel"), start);
    let mut child = recorder.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(place.command("kill", &[name, &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(128 + number));
    let why = place.gretel(&["why", "rec"]);
    assert_eq!(why.code, USAGE, "{}", why.out());
    assert!(why.err.contains("was sent from outside of it"), "{}", why.err);
}

#[test]
fn a_signal_from_outside_has_no_value_that_made_it() {
    let place = Place::new();
    for engine in engines() {
        let script = "echo ready; while :; do :; done";
        let start =
            ["record", "--engine", engine, "--force", "-o", "rec", "--", "busybox", "sh", "-c", script];
        // Also what says that the program has made a fault, which it has not.
        for signal in [("-ABRT", 6), ("-SEGV", 11), ("-BUS", 7)] {
            is_ended_from_outside(&place, &start, signal);
            assert_eq!(place.gretel(&["replay", "rec"]).code, 0);
        }
    }
}

/// A program that asks whether others want to run, which returns zero, for as long as it lives.
const YIELDS: &str = r#"
    #include <sched.h>
    #include <signal.h>
    #include <stdlib.h>
    #include <unistd.h>
    int main(int count, char **words) {
        if (words[1][0] == 'k') kill(getpid(), SIGABRT);
        if (words[1][0] == 'p' && fork() == 0) { kill(getppid(), SIGABRT); _exit(0); }
        write(1, "ready\n", 6);
        for (;;) sched_yield();
    }"#;

#[test]
fn a_signal_from_elsewhere_is_told_behind_a_call_that_returned_zero() {
    let place = Place::new();
    if place.compile("yields", YIELDS).is_none() {
        return;
    }
    for engine in engines() {
        let start = ["record", "--engine", engine, "--force", "-o", "rec", "--", "./yields"];
        is_ended_from_outside(&place, &[&start[..], &["outside"]].concat(), ("-ABRT", 6));
        let events = place.gretel(&["events", "rec", "--kind", "signal"]).out();
        assert!(events.contains("SIGABRT from outside, not handled"), "{events}");
        // A process of the recording sent it.
        assert_eq!(place.gretel(&[&start[..], &["parent"]].concat()).code, 128 + 6);
        let why = place.gretel(&["why", "rec"]);
        assert_eq!(why.code, USAGE, "{}", why.out());
        assert!(why.err.contains(" sent: no value of this process made it"), "{}", why.err);
        // Its own is led to by what it decided.
        assert_eq!(place.gretel(&[&start[..], &["kills"]].concat()).code, 128 + 6);
        let why = place.gretel(&["why", "rec"]);
        assert_eq!(why.code, 0, "{}", why.err);
        assert!(why.out().contains("the last decision before it, in main"), "{}", why.out());
    }
}
