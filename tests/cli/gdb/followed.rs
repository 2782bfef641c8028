//! A recording that is still being made.

use super::{gdb, has_gdb, in_order};
use crate::{Place, engines, finished};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Tells each line that it is given.
const TELLS: &str = r#"
    #include <stdio.h>
    static char line[16];
    __attribute__((noinline)) void tell(int n) { printf("%d %s", n, line); fflush(stdout); }
    int main(void) {
        for (int n = 1; fgets(line, sizeof line, stdin); n++) tell(n);
        return 7;
    }"#;

/// Gives the program a line, and waits until it has told it and the journal has that.
fn give(place: &Place, recorder: &mut Child, line: &str) {
    let input = recorder.stdin.as_mut().expect("its standard input");
    writeln!(input, "{line}").expect("it reads");
    let began = Instant::now();
    while !place.gretel(&["events", "rec"]).out().contains(&format!(" {line}\\n\"")) {
        assert!(began.elapsed() < Duration::from_secs(60), "`{line}` does not come into the journal");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn gdb_follows_a_recording_that_is_being_made() {
    if !has_gdb("gdb on a recording that is being made") {
        return;
    }
    for engine in engines() {
        let place = Place::new();
        if place.compile("tells", TELLS).is_none() {
            return;
        }
        let mut recorder = place
            .command(
                env!("CARGO_BIN_EXE_gretel"),
                &["record", "--engine", engine, "-o", "rec", "--", "./tells"],
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("gretel runs");
        let mut told = BufReader::new(recorder.stdout.take().expect("its output")).lines();
        give(&place, &mut recorder, "one");
        assert_eq!(told.next().unwrap().unwrap(), "1 one");
        for words in [&["events", "rec"][..], &["calls", "rec", "tell"], &["why", "rec", "--of", "rax"]] {
            let asked = place.gretel(words);
            let said = asked.err.contains("the recording is still being made");
            assert!(said && !asked.err.contains("killed"), "{words:?}: {}", asked.err);
        }
        let debugged = thread::scope(|scope| {
            let debugger = scope.spawn(|| {
                let commands = [
                    "break tell",
                    "continue",
                    "printf \"%d %s\", n, line",
                    "continue",
                    "shell touch seen; while [ ! -e more ]; do sleep 0.05; done",
                    "monitor refresh",
                    "continue",
                    "printf \"%d %s\", n, line",
                    "reverse-continue",
                    "printf \"%d %s\", n, line",
                ];
                gdb(&place, &["rec", "--follow"], &commands)
            });
            while !place.path("seen").exists() && !debugger.is_finished() {
                thread::sleep(Duration::from_millis(50));
            }
            give(&place, &mut recorder, "two");
            place.write("more", "");
            debugger.join().expect("gdb ends")
        });
        in_order(
            &debugged,
            &["Breakpoint 1, tell", "1 one", "No more reverse-execution history", "2 two", "1 one"],
        );
        assert!(debugged.err.contains("up to its last whole event"), "{}", debugged.err);
        drop(recorder.stdin.take());
        assert_eq!(told.next().unwrap().unwrap(), "2 two");
        let ran = finished(&recorder.wait_with_output().expect("it ends"));
        assert_eq!(ran.code, 7, "{}", ran.err);
    }
}
