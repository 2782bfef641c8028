//! The command as its users see it: what it prints, what it leaves behind, its exit codes.

mod aborts;
mod answers;
mod bad_input;
mod bench;
mod board;
mod branches;
mod breakout;
mod calls;
mod contexts;
mod crash;
mod crumbs;
mod dap;
mod debug_files;
mod disk;
mod dynamic;
mod editor;
mod events;
mod explain;
mod export;
mod flight;
mod gdb;
mod handlers;
mod heap;
mod hidden;
mod hostile;
mod index;
mod inherited;
mod kept;
mod kernel;
mod limits;
mod listing;
mod memory;
mod named;
mod notices;
mod overflow;
mod overwritten;
mod passed;
mod personas;
mod preempted;
mod replay;
mod report;
mod room;
mod samples;
mod shells;
mod signals;
mod store;
mod streams;
mod synth;
mod trail;
mod unserved;
mod values;
mod verify;
mod why;

use serde_json::Value;
use std::fs;
use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// gretel's own exit codes, as its help documents them.
const USAGE: i32 = 120;
const PROGRAM: i32 = 121;
const HOST: i32 = 122;
const DAMAGED: i32 = 123;
const WRITE: i32 = 125;
const OTHER: i32 = 126;

/// Says that something is skipped and why: past the capture of test output, so that it is seen.
fn skipped(what: &str, why: &str) {
    // Where stderr is closed nobody can be told.
    let _ = writeln!(stderr(), "skipped: {what}, since {why}");
}

/// The engines that this host has.
fn engines() -> Vec<&'static str> {
    let kvm = fs::File::options().read(true).write(true).open("/dev/kvm");
    match kvm {
        Ok(_) => vec!["soft", "kvm"],
        Err(error) => {
            skipped("engine kvm", &format!("/dev/kvm: {error}"));
            vec!["soft"]
        }
    }
}

/// A fresh directory in which commands run.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The store of the recordings that are made here, whether or not there is one.
    fn store(&self) -> PathBuf {
        self.path(".store")
    }

    /// Replaces a file: in a recording it may be a link, and nobody can write to it.
    fn replace(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::remove_file(self.path(name)).expect("a file to replace");
        self.write(name, bytes);
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).expect("a file in a temporary directory");
        path
    }

    fn command(&self, program: impl AsRef<Path>, arguments: &[&str]) -> Command {
        let mut command = Command::new(program.as_ref());
        command.args(arguments).current_dir(self.dir.path()).stdin(Stdio::null());
        // Not the store of whoever runs the tests.
        command.env("GRETEL_STORE", self.store());
        // Nothing is asked of the network.
        command.env_remove("DEBUGINFOD_URLS");
        command
    }

    fn gretel(&self, arguments: &[&str]) -> Ran {
        ran(&mut self.command(env!("CARGO_BIN_EXE_gretel"), arguments))
    }

    /// Runs a line of shell.
    fn sh(&self, line: &str) -> Ran {
        ran(&mut self.command("sh", &["-c", line]))
    }

    /// The same, with nothing open but the standard streams, whatever these tests were started with.
    fn sh_with_streams_alone(&self, line: &str) -> Ran {
        let close =
            r#"for fd in /proc/self/fd/*; do fd=${fd##*/}; [ "$fd" -le 2 ] || eval "exec $fd>&-"; done"#;
        ran(&mut self.command("bash", &["-c", &format!("{close}; {line}")]))
    }

    /// Compiles a static C program; `None`, and a word on why, where that cannot be done.
    fn compile(&self, name: &str, source: &str) -> Option<PathBuf> {
        let file = self.write(&format!("{name}.c"), source);
        let path = self.path(name);
        let file = file.to_str().expect("temporary directories have plain names");
        let done = self.command("gcc", &["-g", "-O1", "-static", "-o", name, file]).status();
        if done.is_ok_and(|status| status.success()) {
            return Some(path);
        }
        skipped(name, "gcc cannot make a static program here");
        None
    }

    /// Replays a recording and gives its result, which must be equal.
    fn replay(&self, recording: &str, engine: &str) -> Value {
        let ran = self.gretel(&["replay", recording, "--engine", engine, "--json"]);
        assert_eq!(ran.code, 0, "replay of {recording} on {engine}: {}", ran.err);
        serde_json::from_str(&ran.out()).expect("--json prints JSON")
    }
}

/// What a command did.
struct Ran {
    code: i32,
    out: Vec<u8>,
    err: String,
}

impl Ran {
    fn out(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }
}

fn ran(command: &mut Command) -> Ran {
    finished(&command.output().expect("the command runs"))
}

/// A panic is never an answer.
fn finished(output: &Output) -> Ran {
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!err.contains("panicked"), "{err}");
    Ran { code: output.status.code().unwrap_or(-1), out: output.stdout.clone(), err }
}
