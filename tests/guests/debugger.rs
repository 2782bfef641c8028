//! What gdb says about a crash: the judge of a backtrace is the tool that people use.

use std::process::Command;

use crate::skipped;

/// One line of gdb's backtrace that has a source line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The function's name.
    pub(crate) function: String,
    /// The source file as the debug information has it, and the line.
    pub(crate) line: String,
}

/// Whether gdb is installed; says so when it is not, since a test is skipped then.
pub(crate) fn available(test: &str) -> bool {
    let found = Command::new("gdb").arg("--version").output().is_ok();
    if !found {
        skipped(test, "gdb is not installed; `make setup` installs it");
    }
    found
}

/// The frames with a source line, innermost first, that gdb shows after `arguments` (a program and a core, or `-ex run`
/// and `--args`).
pub(crate) fn backtrace(arguments: &[&str]) -> Result<Vec<Frame>, String> {
    let output = Command::new("gdb")
        .args(["-batch", "-nx", "-iex", "set width 0", "-iex", "set print frame-arguments none"])
        .args(arguments)
        .output()
        .map_err(|error| format!("gdb: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let frames: Vec<_> = text.lines().filter_map(frame).collect();
    if frames.is_empty() {
        return Err(format!("gdb shows no frame:\n{text}{}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(frames)
}

/// The threads of a core by their ids, in gdb's order.
pub(crate) fn threads(program: &str, core: &str) -> Vec<String> {
    let mut gdb = Command::new("gdb");
    let output =
        gdb.args(["-batch", "-nx", "-ex", "info threads", program, core]).output().expect("gdb runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let id = |line: &str| Some(line.split_once("LWP ")?.1.split([')', ' ']).next()?.to_owned());
    // The list itself, not the messages before it.
    let list = text.lines().skip_while(|line| !line.trim_start().starts_with("Id "));
    list.filter_map(id).collect()
}

/// Reads `#1  0x000000000040171e in main (argc=...) at smashed-stack.c:35`, where the address may be missing.
fn frame(line: &str) -> Option<Frame> {
    let (_, rest) = line.strip_prefix('#')?.split_once("  ")?;
    let (before, line) = rest.rsplit_once(") at ")?;
    let (name, _) = before.split_once(" (")?;
    let function = name.rsplit(' ').next()?.to_owned();
    Some(Frame { function, line: line.to_owned() })
}

#[test]
fn frames_are_read_with_and_without_an_address() {
    let expect = |line: &str| Some(Frame { function: "main".into(), line: line.into() });
    assert_eq!(frame("#1  0x0000000000401711 in main (argc=..., argv=...) at a/a.c:33"), expect("a/a.c:33"));
    assert_eq!(frame("#0  main () at a.c:3"), expect("a.c:3"));
    assert_eq!(frame("#0  0x0000000000000009 in ?? ()"), None);
}
