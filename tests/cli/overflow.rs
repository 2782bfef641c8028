//! Stack overflows: they are called so, with who filled the stack.

use crate::{Place, engines};
use serde_json::Value;

/// By its argument: recursion, two functions in turns, a large array, recursion in a thread.
const PROGRAM: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    static volatile int deepest;
    __attribute__((noinline)) static int deep(int n) {
        volatile char some[100];
        some[n % 100] = 1;
        return deep(n + 1) + some[0];
    }
    static int pong(int n);
    __attribute__((noinline)) static int ping(int n) {
        volatile char some[60];
        some[n % 60] = 1;
        return pong(n + 1) + some[0];
    }
    __attribute__((noinline)) static int pong(int n) {
        volatile char some[60];
        some[n % 60] = 1;
        return ping(n + 1) + some[0];
    }
    __attribute__((noinline)) static int large(int n) {
        volatile char some[20000000];
        some[n] = 1;
        return some[n + 1];
    }
    static void *run(void *unused) { deepest = deep(1); return unused; }
    int main(int argc, char **argv) {
        pthread_t thread;
        switch (argv[1][0]) {
            case 'r': return deep(1);
            case 'p': return ping(1);
            case 'l': return large(atoi(argv[1] + 1));
            case 'w': return *(volatile int *)(long)argc;
            default: return pthread_create(&thread, 0, run, 0) + pthread_join(thread, 0);
        }
    }"#;

#[test]
fn a_stack_overflow_is_called_so() {
    let place = Place::new();
    let Some(_) = place.compile("full", PROGRAM) else { return };
    for engine in engines() {
        for (how, expected) in [
            ("r", &["bytes below the stack; of its", "frames", "are of deep"][..]),
            ("p", &["bytes below the stack; of its", "are of ping", "are of pong"]),
            ("l0", &["bytes below the stack; its largest frame is that of large, 19999"]),
            ("t", &["is in its guard, ", "of its", "are of deep"]),
        ] {
            let ran =
                place.gretel(&["record", "--engine", engine, "-o", how, "--force", "--", "./full", how]);
            assert_eq!(ran.code, 128 + 11, "{}", ran.err);
            let shown = place.gretel(&["core", how]).out();
            let line = shown.lines().find(|line| line.contains("stack overflow: "));
            let line = line.unwrap_or_else(|| panic!("{how}: {shown}")).trim();
            for part in expected {
                assert!(line.contains(part), "{how}: {line}");
            }
            let json: Value =
                serde_json::from_str(&place.gretel(&["core", "--json", how]).out()).expect("JSON");
            assert_eq!(json["signal"]["stack_overflow"], line);
            let address = json["signal"]["address"].as_str().expect("an address");
            assert!(line.starts_with(&format!("stack overflow: {address} is ")), "{line}");
            let frames = json["stack"].as_array().expect("frames").len();
            let lines = shown.lines().filter(|line| line.starts_with("  #")).count();
            if ["r", "p", "t"].contains(&how) {
                let names = if how == "p" { " more frames of " } else { " more frames of deep\n" };
                assert!(shown.contains(names) && frames > 100 && lines < 20, "{how}: {frames} in\n{shown}");
            }
            let why = place.gretel(&["why", how, "--steps", "3"]).out();
            assert!(why.contains(line), "{line} is not in {why}");
        }
        // Another fault is none.
        let ran = place.gretel(&["record", "--engine", engine, "-o", "w", "--force", "--", "./full", "w"]);
        assert_eq!(ran.code, 128 + 11, "{}", ran.err);
        for command in [&["core", "w"][..], &["why", "w"]] {
            let shown = place.gretel(command).out();
            assert!(shown.contains("SIGSEGV") && !shown.contains("stack overflow"), "{shown}");
        }
    }
    let ran = place.gretel(&["report", "r", "-o", "page.html", "--fuel", "0"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let page = std::fs::read_to_string(place.path("page.html")).expect("the page");
    assert!(page.contains("stack overflow: ") && page.contains("are of deep"), "{page}");
    assert!(page.contains("more frames, which repeat the one above"), "{page}");
}
