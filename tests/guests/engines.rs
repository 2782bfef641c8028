//! The command on every engine that works here.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};

use crate::images::Guest;
use crate::skipped;

/// The engines that this user can use on this host.
pub(crate) fn usable(test: &str) -> Vec<&'static str> {
    match File::options().read(true).write(true).open("/dev/kvm") {
        Ok(_) => vec!["kvm", "soft"],
        Err(error) => {
            skipped(&format!("{test} on engine kvm"), &format!("/dev/kvm cannot be opened: {error}"));
            vec!["soft"]
        }
    }
}

/// The software CPU.
pub(crate) fn soft() -> vmm::engine::Machine {
    vmm::engine::open(vmm::engine::EngineKind::Soft, vmm::ram::for_replay()).expect("it needs nothing")
}

fn gretel() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gretel"));
    command.env("GRETEL_STORE", concat!(env!("CARGO_TARGET_TMPDIR"), "/store"));
    command
}

/// Records `guest` into `recording`.
pub(crate) fn record(guest: &Guest, libc: &str, engine: &str, recording: &Path) -> Output {
    gretel()
        .args(["record", "--engine", engine, "-o"])
        .arg(recording)
        .arg("--")
        .arg(guest.program(libc))
        .args(&guest.expected.arguments)
        .stdin(guest.stdin())
        .output()
        .expect("gretel runs")
}

/// What a replay says of itself, and what the program printed in it.
pub(crate) struct Replayed {
    /// One number for the whole run.
    pub(crate) digest: String,
    /// What the program wrote to standard output.
    pub(crate) stdout: String,
}

/// Replays `recording`, which must succeed.
pub(crate) fn replay(recording: &Path, engine: &str) -> Replayed {
    let replay = |option: &str| {
        let mut command = gretel();
        command.arg("replay").arg(recording).args(["--engine", engine, option]);
        succeed(&mut command)
    };
    let result: serde_json::Value =
        serde_json::from_str(&replay("--json")).expect("gretel replay --json is JSON");
    assert_eq!(result["equal"], true, "{result}");
    assert_eq!(result["engine"], engine, "{result}");
    Replayed { digest: result["digest"].as_str().expect("a digest").to_owned(), stdout: replay("--output") }
}

/// The core of `recording`, as `gretel core` reads it.
pub(crate) fn core(recording: &Path) -> serde_json::Value {
    let text = succeed(gretel().args(["core", "--json"]).arg(recording));
    serde_json::from_str(&text).expect("gretel core --json is JSON")
}

/// Runs a command that must succeed, and gives what it printed.
fn succeed(command: &mut Command) -> String {
    let output = command.output().expect("gretel runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the output is text")
}
