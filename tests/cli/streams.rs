//! What gretel is started with: streams that cannot be written, signals, descriptors, and a line that is not quite right.

use crate::{Place, USAGE, WRITE, engines, ran};

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

#[test]
fn sockets_that_the_program_does_not_get_are_said() {
    let place = Place::new();
    let gretel = env!("CARGO_BIN_EXE_gretel");
    let record = |n: u32, variables: &str| {
        place.sh(&format!("{variables} {gretel} record --engine soft -o rec{n} -- busybox true 7</dev/null"))
    };
    let told = record(1, "LISTEN_FDS=1");
    assert!(
        told.code == 0 && told.err.contains("it begins with descriptors 0 to 2, without"),
        "{}",
        told.err
    );
    assert!(told.err.lines().any(|line| line.ends_with('7') || line.contains("7,")), "{}", told.err);
    let quiet = record(2, "");
    assert!(quiet.code == 0 && !quiet.err.contains("descriptors"), "{}", quiet.err);
}

#[test]
fn what_a_new_user_types_is_answered_with_what_to_type() {
    let place = Place::new();
    let without = place.gretel(&["record", "busybox", "true"]);
    assert!(
        without.code == USAGE && without.err.contains("put -- before the program: gretel record -- busybox"),
        "{}",
        without.err
    );
    place.write("file", "");
    let file = place.gretel(&["record", "--engine", "soft", "-o", "file", "--", "busybox", "true"]);
    assert!(file.code == USAGE && file.err.contains("give another name with -o"), "{}", file.err);
    let spaces = place.gretel(&["record", "--engine", "soft", "-o", "a b", "--", "busybox", "true"]);
    assert!(spaces.err.contains("next: gretel replay 'a b'\n"), "{}", spaces.err);
    let store = place.sh(&format!(
        "GRETEL_STORE=file {} record --engine soft -o rec -- busybox true",
        env!("CARGO_BIN_EXE_gretel")
    ));
    assert!(
        store.code == 0 && store.err.contains("file (GRETEL_STORE) cannot be the store"),
        "{}",
        store.err
    );
}
