//! Symbols and line tables that were taken out of programs and libraries: installed beside them by build-id, or, where
//! DEBUGINFOD_URLS is set, what `debuginfod-find` brings.
//!
//! gretel itself opens no connection. `debuginfod-find` is run by a helper, which is started before gretel takes away its own
//! right to execute files: gretel again, under a subcommand that is not in the help. It is asked by a line with a build-id, and
//! answers by one with a file, or an empty one.

use crate::Outcome;
use crate::exit::{Code, Failure};
use crate::log::say;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use vmm::elfcore::build_id;

/// The subcommand's name.
const NAME: &str = "find-debug";
/// The command that is run.
const FINDER: &str = "debuginfod-find";
/// Where its servers are named.
const SERVERS: &str = "DEBUGINFOD_URLS";
/// Where packages put what was taken out of a file.
const INSTALLED: &str = "/usr/lib/debug/.build-id";
/// One file may take so long.
const TIME: Duration = Duration::from_secs(20);
/// So often it is looked whether the command has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Where such files are looked for.
pub(crate) struct DebugFiles {
    /// Whether they are wanted.
    wanted: bool,
    helper: Option<Child>,
}

impl DebugFiles {
    /// What is installed, and what the servers have that the environment names.
    pub(crate) fn new() -> DebugFiles {
        let asked = std::env::var_os(SERVERS).is_some_and(|servers| !servers.is_empty());
        let helper = if asked && is_installed() { start() } else { None };
        DebugFiles { wanted: true, helper }
    }

    /// Nowhere.
    pub(crate) fn none() -> DebugFiles {
        DebugFiles { wanted: false, helper: None }
    }

    /// What was taken out of the file with these bytes, which is called so.
    pub(crate) fn of(&mut self, name: &Path, bytes: &[u8]) -> Option<Vec<u8>> {
        let id = if self.wanted { build_id::of_file(bytes)? } else { return None };
        let text = build_id::text(&id);
        let (first, rest) = text.split_at_checked(2)?;
        let installed = Path::new(INSTALLED).join(first).join(format!("{rest}.debug"));
        let found = if installed.is_file() { Some(installed) } else { self.ask(name, &text) }?;
        let separate = lbr::regular::read(&found)
            .inspect_err(|error| say!("gretel: cannot read {}: {error}", found.display()))
            .ok()?;
        if build_id::of_file(&separate).as_ref() != Some(&id) {
            say!(
                "gretel: {} is not what was taken out of {}: its build-id is another",
                found.display(),
                name.display()
            );
            return None;
        }
        Some(separate)
    }

    fn ask(&mut self, name: &Path, id: &str) -> Option<PathBuf> {
        let helper = self.helper.as_mut()?;
        say!("gretel: {FINDER}: asking for debug information of {}", name.display());
        let question = helper.stdin.as_mut().map(|pipe| writeln!(pipe, "{id}"));
        let answer = helper.stdout.as_mut().and_then(|pipe| line(pipe).ok());
        match (question, answer.as_deref()) {
            (Some(Ok(())), Some([b'/', ..])) => Some(PathBuf::from(OsStr::from_bytes(&answer?))),
            (Some(Ok(())), Some(b"")) => None,
            _ => {
                say!("gretel: {FINDER} is asked no more");
                self.helper = None;
                None
            }
        }
    }
}

impl Drop for DebugFiles {
    fn drop(&mut self) {
        if let Some(helper) = &mut self.helper {
            drop(helper.stdin.take());
            // It ends with its input; whether it does is no concern of who asked.
            let _ = helper.wait();
        }
    }
}

/// The next line, without its end: a byte at a time, since there is one line for each question.
fn line(pipe: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        pipe.read_exact(&mut byte)?;
        if byte == *b"\n" {
            return Ok(line);
        }
        line.push(byte[0]);
    }
}

/// Whether the command is there.
fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).any(|folder| folder.join(FINDER).is_file());
    if !there {
        say!(
            "gretel: {SERVERS} is set, but {FINDER} is not installed: debug information is looked for in {INSTALLED} alone"
        );
    }
    there
}

fn start() -> Option<Child> {
    let program = std::env::current_exe();
    let started = program.and_then(|program| {
        Command::new(program).arg(NAME).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    });
    started.inspect_err(|error| say!("gretel: cannot start the helper that runs {FINDER}: {error}")).ok()
}

/// Runs debuginfod-find for each build-id that standard input names (of gretel itself)
#[derive(clap::Args)]
pub(crate) struct Args {}

/// The helper.
pub(crate) fn run(_: &Args) -> Outcome {
    let written = |error: io::Error| Failure::new(Code::Write, error);
    for id in BufReader::new(io::stdin()).lines() {
        let Ok(id) = id else { break };
        let found = if id.bytes().all(|byte| byte.is_ascii_hexdigit()) { find(&id)? } else { None };
        let mut out = io::stdout();
        out.write_all(found.as_deref().unwrap_or_default()).map_err(written)?;
        out.write_all(b"\n").and_then(|()| out.flush()).map_err(written)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The file that the command finds. What takes too long once would again: then the helper ends.
fn find(id: &str) -> Result<Option<Vec<u8>>, Failure> {
    let failed = |error: io::Error| Failure::new(Code::Other, format!("cannot run {FINDER}: {error}"));
    let mut command = Command::new(FINDER);
    command.args(["debuginfo", id]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    let end = Instant::now() + TIME;
    while child.try_wait().map_err(failed)?.is_none() {
        if Instant::now() >= end {
            child.kill().and_then(|()| child.wait()).map_err(failed)?;
            let late = format!("{FINDER} found nothing within {} s, and was stopped", TIME.as_secs());
            return Err(Failure::new(Code::Other, late));
        }
        std::thread::sleep(LOOK);
    }
    let output = child.wait_with_output().map_err(failed)?;
    let first = output.stdout.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let found = output.status.success() && first.first() == Some(&b'/');
    Ok(found.then(|| first.to_vec()))
}
