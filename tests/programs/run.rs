//! A program on this processor, and under `gretel record`.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::limited;
use crate::list::{Case, folder};

/// What a program, its recording or a replay may take: far more than any needs, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The same of one that is known to fail, maybe by never ending.
const PENDING_LIMIT: Duration = Duration::from_secs(10);

/// What a program did.
#[derive(PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The status as a shell says it.
    status: Option<i32>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

fn outcome(output: Output) -> Outcome {
    let signal = output.status.signal().map(|signal| 128 + signal);
    Outcome { status: output.status.code().or(signal), stdout: output.stdout, stderr: output.stderr }
}

fn run(command: &mut Command, limit: Duration) -> Result<Output, String> {
    // Natively too, since a program may show its environment.
    command.env("GRETEL_STORE", concat!(env!("CARGO_TARGET_TMPDIR"), "/store"));
    limited::output(command.current_dir(folder()), limit)
}

fn limit(case: &Case<'_>) -> Duration {
    if case.program.pending.is_some() { PENDING_LIMIT } else { LIMIT }
}

/// Runs it on this processor, under this kernel.
pub(crate) fn natively(case: &Case<'_>) -> Result<Outcome, String> {
    run(Command::new(case.file()).args(&case.program.arguments).stdin(case.stdin()), LIMIT).map(outcome)
}

/// Records it on an engine, compares with what it did natively, and replays the recording on every engine.
pub(crate) fn recorded(case: &Case<'_>, engine: &str, model: &str, native: &Outcome) -> Result<(), String> {
    let what = format!("--engine {engine} --cpu {model}");
    let temporary = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
    let recording = temporary.path().join("recording");
    let mut record = Command::new(env!("CARGO_BIN_EXE_gretel"));
    record.args(["record", "--engine", engine, "--cpu", model, "-o"]).arg(&recording).arg("--");
    record.arg(case.file()).args(&case.program.arguments).stdin(case.stdin());
    let mut recorded = outcome(run(&mut record, limit(case)).map_err(|why| format!("{what}: {why}"))?);
    if recorded.status == Some(NOT_HERE) && native.status != Some(NOT_HERE) {
        return Ok(());
    }
    let said = own_lines(&mut recorded.stderr);
    compare(&recorded, native).map_err(|why| format!("{what}: {why}\n{said}"))?;
    ["soft", "kvm"].into_iter().try_for_each(|replayer| {
        replay(case, &recording, replayer).map_err(|why| format!("{what}, replayed on {replayer}: {why}"))
    })
}

/// Takes gretel's own lines out of what the program wrote to standard error.
fn own_lines(stderr: &mut Vec<u8>) -> String {
    let lines: Vec<_> = stderr.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let (own, program): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| line.starts_with(b"gretel: "));
    *stderr = program.concat();
    String::from_utf8_lossy(&own.concat()).into_owned()
}

fn compare(got: &Outcome, native: &Outcome) -> Result<(), String> {
    if got.status != native.status {
        return Err(format!("status {:?}, natively {:?}", got.status, native.status));
    }
    same_text("standard output", &got.stdout, &native.stdout)?;
    same_text("standard error", &got.stderr, &native.stderr)
}

/// Compares what was written, and shows the first line that differs.
fn same_text(what: &str, got: &[u8], native: &[u8]) -> Result<(), String> {
    if got == native {
        return Ok(());
    }
    let (got, native) = (String::from_utf8_lossy(got), String::from_utf8_lossy(native));
    let (mut ours, mut theirs) = (got.lines(), native.lines());
    let mut number = 0;
    loop {
        number += 1;
        match (ours.next(), theirs.next()) {
            (Some(a), Some(b)) if a == b => {}
            (a, b) => return Err(format!("{what}, line {number}: {a:?}\nnatively {b:?}")),
        }
        if number > got.lines().count() {
            return Err(format!("{what} differs in bytes that are no text"));
        }
    }
}

/// The status when the host lacks the engine, or a part of the CPU model.
const NOT_HERE: i32 = 122;

/// Replays a recording, which must find itself equal; nothing where this host has no such engine.
fn replay(case: &Case<'_>, recording: &Path, engine: &str) -> Result<(), String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gretel"));
    command.arg("replay").arg(recording).args(["--engine", engine, "--json"]);
    let output = run(&mut command, limit(case))?;
    if output.status.code() == Some(NOT_HERE) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let result: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("replay: {error}\n{said}"))?;
    if result["equal"] == true { Ok(()) } else { Err(format!("replay: {result}\n{said}")) }
}
