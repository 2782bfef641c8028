//! perf itself, where it is installed: it reads the file that we read, and prints what we print.

use crate::{entries, perf_data};
use lbr::format::brstack::print;
use lbr::format::perf::Stack;
use std::fs;
use std::io::{Write, stderr};
use std::path::PathBuf;
use std::process::Command;

/// Says that something is skipped and why: past the capture of test output, so that it is seen.
fn skipped(why: &str) {
    // Where stderr is closed nobody can be told.
    let _ = writeln!(stderr(), "skipped: what perf prints, since {why}");
}

#[test]
fn perf_script_prints_the_same() {
    let stacks = [
        Stack { entries: entries(), ..Stack::default() },
        Stack { entries: entries()[..3].to_vec(), ..Stack::default() },
    ];
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("branches.perf.data");
    fs::write(&path, perf_data(&stacks)).unwrap();
    let output = match Command::new("perf").args(["script", "-F", "brstack", "-i"]).arg(&path).output() {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).unwrap(),
        Ok(output) => {
            return skipped(&format!("perf script fails: {}", String::from_utf8_lossy(&output.stderr)));
        }
        Err(error) => return skipped(&format!("perf cannot be run: {error}")),
    };
    // Of a branch, seven parts, and since perf 6.2 the speculation.
    let without_speculation = !output.split_whitespace().all(|branch| branch.matches('/').count() == 7);
    let expected: String = stacks.iter().map(|stack| print(stack) + "\n").collect();
    let expected = match without_speculation {
        true => expected.lines().map(cut_speculation).collect(),
        false => expected,
    };
    assert_eq!(output, expected);
}

/// A line without the last part of each branch.
fn cut_speculation(line: &str) -> String {
    let branches =
        line.split_whitespace().map(|branch| branch.rsplit_once('/').map_or(branch, |(rest, _)| rest));
    branches.map(|branch| format!(" {branch} ")).collect::<String>() + "\n"
}
