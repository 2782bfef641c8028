//! lldb, which speaks the same protocol with some packets of its own. Its version 14 has no commands that go backwards, so those packets
//! are sent by hand.

use super::recorded;
use crate::{Place, skipped};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn lldb_goes_to_the_crash() {
    if Command::new("lldb").arg("--version").output().is_err() {
        skipped("lldb", "it is not installed");
        return;
    }
    let place = Place::new();
    if recorded(&place, "soft").is_none() {
        return;
    }
    let arguments = ["gdb", "rec", "--at", "start", "--engine", "soft", "--listen", "127.0.0.1:0"];
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
    let commands = [
        connect.as_str(),
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
    ];
    place.write("commands", commands.join("\n"));
    let ran = place
        .command("lldb", &["--no-lldbinit", "--batch", "-s", "commands", "./spoiled"])
        .output()
        .expect("lldb runs");
    let out = String::from_utf8_lossy(&ran.stdout);
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
    assert!(served.wait().expect("it ends").success(), "{said:?}");
}
