//! What gretel is started with: streams that cannot be written, signals, descriptors, and a line that is not quite right.

use crate::{Place, USAGE, WRITE, engines, ran};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;

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

/// A file, a copy of standard output, and a pipe that ends when the program closes it.
#[test]
fn what_the_starter_has_open_is_the_programs() {
    let place = Place::new();
    place.write("file", "first\nsecond\n");
    let script = "read a <&7; read b <&7; echo $a $b; echo copied >&8; echo piped >&9; exec 9>&-
        n=0; until [ -e eof ]; do sleep 0.1; n=$((n + 1)); [ $n -lt 300 ] || exit 9; done; rm eof";
    for engine in engines() {
        let record = format!("{GRETEL} record --engine {engine} -o {engine} -- busybox sh -c '{script}'");
        let recorded = place.sh(&format!(
            "(exec {record} 7<file 8>&1 9>&3 3>&-) 3>&1 >out | {{ busybox cat; : >eof; }}; busybox cat out"
        ));
        assert_eq!(recorded.out(), "piped\nfirst second\ncopied\n", "{}", recorded.err);
        for other in engines() {
            assert_eq!(place.replay(engine, other)["status_or_signal"], 0);
            let shown = place.gretel(&["replay", engine, "--engine", other, "--output"]);
            assert_eq!(shown.out(), "first second\ncopied\n", "{}", shown.err);
        }
    }
}

#[test]
fn a_socket_that_the_starter_has_open_is_the_programs() {
    let place = Place::new();
    for engine in engines() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
            stream.write_all(format!("answer to {line}").as_bytes()).unwrap();
        });
        let script = "echo a question >&5; read answer <&5; echo $answer";
        let line = format!(
            "exec 5<>/dev/tcp/127.0.0.1/{port}; {GRETEL} record --engine {engine} -o {engine} -- busybox sh -c '{script}'"
        );
        let recorded = ran(&mut place.command("bash", &["-c", &line]));
        assert_eq!(
            (recorded.code, recorded.out().as_str()),
            (0, "answer to a question\n"),
            "{}",
            recorded.err
        );
        answers.join().unwrap();
        engines().iter().for_each(|other| drop(place.replay(engine, other)));
    }
}

/// The program is kept from its recording, whatever is open of it.
#[test]
fn a_descriptor_of_the_recording_is_refused() {
    let place = Place::new();
    let refused = place.sh(&format!("mkdir rec; {GRETEL} record --engine soft -o rec -- busybox true 6<rec"));
    assert_eq!(refused.code, USAGE, "{}", refused.err);
    assert!(refused.err.contains("rec is the descriptor 6 of the program"), "{}", refused.err);
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
