//! lldb, which speaks the same protocol with some packets of its own. Its version 14 has no commands that go backwards, so those packets
//! are sent by hand.

use super::recorded;
use crate::{Place, skipped};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn lldb_goes_to_the_crash() {
    let place = Place::new();
    if !has_lldb() || recorded(&place, "soft").is_none() {
        return;
    }
    let out = lldb(
        &place,
        "./spoiled",
        &[
            "breakpoint set -n push",
            "continue",
            "bt",
            "register read rip",
            "breakpoint delete -f",
            "continue",
            "bt",
            "process plugin packet send bs",
            "process plugin packet send bc",
            "detach",
        ],
    );
    let mut rest = &*out;
    for expected in [
        "spoiled`push(",
        "frame #1: 0x",
        "spoiled`main",
        "rip = 0x",
        "stop reason = signal SIGSEGV",
        "spoiled`main",
        "response: T05",
        "response: T05",
        "replaylog:begin;",
    ] {
        let at = rest.find(expected);
        assert!(at.is_some(), "`{expected}` is missing behind what came before it, in\n{out}");
        rest = &rest[at.unwrap_or(0) + expected.len()..];
    }
}

const THREADS: &str = r#"
    #include <pthread.h>
    static volatile int done;
    __attribute__((noinline)) void work(int n) { done += n; }
    static void *run(void *of) { work(3); return of; }
    int main(void) {
        pthread_t thread;
        return pthread_create(&thread, 0, run, 0) + pthread_join(thread, 0);
    }"#;

#[test]
fn lldb_looks_at_the_thread_that_stopped() {
    let place = Place::new();
    if !has_lldb() || place.compile("threads", THREADS).is_none() {
        return;
    }
    let ran = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./threads"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let out =
        lldb(&place, "./threads", &["breakpoint set -n work", "continue", "thread list", "next", "detach"]);
    let list = out.split("(lldb) thread list").nth(1).and_then(|it| it.split("(lldb) next").next());
    let threads: Vec<&str> = list.unwrap_or_default().lines().filter(|it| it.contains("tid = ")).collect();
    let (stopped, others): (Vec<&str>, Vec<&str>) = threads.iter().partition(|it| it.starts_with('*'));
    assert!(stopped.len() == 1 && stopped[0].contains("stop reason = breakpoint"), "{out}");
    assert!(!others.is_empty() && others.iter().all(|it| !it.contains("stop reason")), "{out}");
    assert!(out.contains("stop reason = step over"), "{out}");
}

#[test]
fn lldb_that_begins_at_a_crash_is_told_of_its_signal() {
    let place = Place::new();
    if !has_lldb() || recorded(&place, "soft").is_none() {
        return;
    }
    let out = lldb_at(&place, "end", "./spoiled", &["thread list", "detach"]);
    assert!(out.contains("stop reason = signal SIGSEGV"), "{out}");
    assert!(!out.contains("SIGTRAP"), "{out}");
}

fn has_lldb() -> bool {
    let has = Command::new("lldb").arg("--version").output().is_ok();
    if !has {
        skipped("lldb", "it is not installed");
    }
    has
}

/// What lldb says to these commands, at the start of the recording `rec` of a program.
fn lldb(place: &Place, program: &str, commands: &[&str]) -> String {
    lldb_at(place, "start", program, commands)
}

fn lldb_at(place: &Place, at: &str, program: &str, commands: &[&str]) -> String {
    let arguments = ["gdb", "rec", "--at", at, "--engine", "soft", "--listen", "127.0.0.1:0"];
    let mut served = place
        .command(env!("CARGO_BIN_EXE_gretel"), &arguments)
        .stderr(Stdio::piped())
        .spawn()
        .expect("gretel runs");
    let mut said = BufReader::new(served.stderr.take().expect("its standard error"));
    let mut line = String::new();
    said.read_line(&mut line).expect("where it listens");
    let address = line.trim().rsplit(' ').next().unwrap_or_default();
    let connect = format!("gdb-remote {address}");
    let commands = [&[connect.as_str()], commands].concat();
    place.write("commands", commands.join("\n"));
    let ran = place
        .command("lldb", &["--no-lldbinit", "--batch", "-s", "commands", program])
        .output()
        .expect("lldb runs");
    let out = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(served.wait().expect("it ends").success(), "{said:?}");
    out
}
