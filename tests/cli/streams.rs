//! Standard output and error that cannot be written.

use crate::{Place, WRITE, engines, ran};

const GRETEL: &str = env!("CARGO_BIN_EXE_gretel");

/// What the starter ignores or blocks, the program does, and gretel does not end by it.
#[test]
fn ignored_and_blocked_signals_are_taken_over() {
    let place = Place::new();
    let script = "kill -HUP $$; kill -QUIT $$; echo $?; kill -USR1 $$; echo alive; kill -TERM $$";
    for engine in engines() {
        let start = ["--ignore-signal=HUP", "--ignore-signal=QUIT", "--block-signal=USR1"];
        let gretel = [GRETEL, "record", "--engine", engine, "-o", engine, "--"];
        let program = ["busybox", "sh", "-c", script];
        let recorded = ran(&mut place.command("env", &[&start[..], &gretel, &program].concat()));
        assert_eq!((recorded.code, recorded.out().as_str()), (143, "0\nalive\n"), "{}", recorded.err);
        place.replay(engine, engine);
    }
}

/// The warning of a call that is not served, and the summary, are lost; the recording is whole.
#[test]
fn a_recording_goes_on_where_nothing_can_be_said() {
    let place = Place::new();
    let source = "#include <stdio.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n\
        int main(void) { syscall(1000); puts(\"said\"); return 3; }";
    let Some(_) = place.compile("asks", source) else { return };
    let recorded = place.sh(&format!("{GRETEL} -vv record --engine soft -o rec -- ./asks 2>/dev/full"));
    assert_eq!((recorded.code, recorded.out()), (3, "said\n".to_owned()));
    assert_eq!(place.replay("rec", "soft")["status_or_signal"], 3);
    assert_eq!(place.sh(&format!("{GRETEL} record -- ./no-such-program 2>/dev/full")).code, 121);
}

#[test]
fn output_that_a_replay_cannot_show_is_an_error() {
    let place = Place::new();
    for (n, text) in ["no newline", "a line\n"].into_iter().enumerate() {
        let recording = format!("rec-{n}");
        let start = ["record", "--engine", "soft", "-o", &recording, "--", "busybox", "printf"];
        assert_eq!(place.gretel(&[&start[..], &["%s", text]].concat()).code, 0);
        let replay = format!("{GRETEL} replay --engine soft --output {recording}");
        let full = place.sh(&format!("{replay} >/dev/full"));
        assert_eq!(full.code, WRITE, "{}", full.err);
        assert!(full.err.contains("No space left on device"), "{}", full.err);
        assert_eq!(place.sh(&format!("{replay} 2>/dev/null")).out(), text);
    }
    let full = place.sh(&format!("{GRETEL} replay --engine soft rec-0 >/dev/full"));
    assert_eq!(full.code, WRITE, "{}", full.err);
}
