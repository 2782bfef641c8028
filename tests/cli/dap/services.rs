//! What services have, and small programs seldom: handlers of crashes, functions that are inlined and named like others.

use super::recorded;
use crate::Place;
use crate::editor::Editor;
use serde_json::json;

/// A crash whose handler reports it, as that of Redis does.
const HANDLED: &str = r#"#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
static int *volatile bad;
static volatile int seen;
static void report(int signal) {
    seen = signal;
    printf("%d\n", seen);
    abort();
}
static void work(void) {
    seen = 3;
    seen = 4;
    *bad = seen;
}
int main(void) {
    signal(SIGSEGV, report);
    work();
}
"#;

#[test]
fn a_step_back_out_of_a_handler_goes_to_what_it_interrupted() {
    let place = Place::new();
    // Also where the handler has no lines.
    for debug in ["-g", "-g0"] {
        if !recorded(&place, "handled", HANDLED, &["-O0"], "soft") {
            return;
        }
        let compiled =
            place.command("gcc", &["-O0", debug, "-static", "-o", "handled", "handled.c"]).status();
        assert!(compiled.is_ok_and(|it| it.success()));
        let gretel = env!("CARGO_BIN_EXE_gretel");
        let ran = place.sh(&format!("rm -rf rec; {gretel} record --engine soft -o rec -- ./handled"));
        assert!(place.path("rec").is_dir(), "{}", ran.err);
        let mut editor = Editor::launch(&place, &json!({ "recording": "rec" }));
        editor.break_in(&["report"]);
        editor.begin();
        assert_eq!(editor.run("reverseContinue"), "function breakpoint");
        editor.ask("setFunctionBreakpoints", json!({ "breakpoints": [] }));
        assert_eq!(editor.run("stepBack"), "step", "{}", editor.said());
        let (function, line) = editor.at();
        if debug == "-g" {
            assert_eq!((function.as_str(), line), ("work", 14));
            assert_eq!(editor.value("seen"), "4");
            assert_eq!(editor.run("stepBack"), "step");
            assert_eq!(editor.at(), ("work".to_owned(), 13));
        } else {
            assert!(function.starts_with("work+"), "{function}");
        }
        assert_eq!(editor.leave(), 0);
    }
}

/// A function that has no code of its own, but two copies.
const INLINED: &str = r#"#include <stdio.h>
static volatile int seed;
static inline __attribute__((always_inline)) int scaled(int n) {
    int found = n * seed;
    seed = found + 1;
    return found;
}
int main(void) {
    seed = 2;
    int a = scaled(3);
    puts("between");
    int b = scaled(5);
    printf("%d\n", a + b);
}
"#;

#[test]
fn a_breakpoint_of_a_function_is_at_its_inlined_copies() {
    let place = Place::new();
    if !recorded(&place, "inlined", INLINED, &["-O2"], "soft") {
        return;
    }
    let mut editor = Editor::launch(&place, &json!({ "recording": "rec", "at": "start" }));
    editor.break_in(&["scaled"]);
    editor.begin();
    for (caller_line, seed) in [(10, "2"), (12, "7")] {
        assert_eq!(editor.run("continue"), "function breakpoint");
        let frames = editor.frames();
        assert_eq!(frames[0]["name"], "scaled (inlined)", "{frames:?}");
        assert_eq!((&frames[1]["name"], frames[1]["line"].as_i64()), (&json!("main"), Some(caller_line)));
        assert_eq!(editor.value("seed"), seed);
    }
    assert_eq!(editor.run("reverseContinue"), "function breakpoint");
    assert_eq!(editor.value("seed"), "2");
    assert_eq!(editor.leave(), 0);
}
