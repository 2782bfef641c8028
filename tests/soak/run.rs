//! A command natively and under gretel: what it did, in a folder that is made anew for each run.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::limited;
use crate::list::{Entry, PATH, make_folder};

/// What a command, its recording or a replay may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The same of a command that is known to fail, maybe by never ending.
const NEEDY_LIMIT: Duration = Duration::from_secs(10);

/// The status when this host lacks the engine.
const NOT_HERE: i32 = 122;

/// Where one command runs and is recorded.
pub(crate) struct Place {
    folder: PathBuf,
    recording: PathBuf,
    home: PathBuf,
    early_binding: bool,
}

/// What a command did.
#[derive(PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The status as a shell says it.
    status: Option<i32>,
    stdout: Vec<u8>,
    files: BTreeMap<PathBuf, Found>,
}

/// A file after the run.
#[derive(PartialEq, Eq)]
struct Found {
    mode: u32,
    content: Content,
}

#[derive(PartialEq, Eq)]
enum Content {
    Bytes(Vec<u8>),
    Link(PathBuf),
    Folder,
    Special,
}

impl fmt::Display for Found {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "mode {:o}, ", self.mode)?;
        match &self.content {
            Content::Bytes(bytes) => write!(to, "{} bytes", bytes.len()),
            Content::Link(target) => write!(to, "a link to {}", target.display()),
            Content::Folder => write!(to, "a folder"),
            Content::Special => write!(to, "a special file"),
        }
    }
}

impl Place {
    /// A place in `within`; with `early_binding`, the linker looks up all functions at the start.
    pub(crate) fn new(within: &Path, early_binding: bool) -> Place {
        let [folder, recording, home] = ["place", "recording", "home"].map(|name| within.join(name));
        Place { folder, recording, home, early_binding }
    }

    /// Runs it on this processor, under this kernel.
    pub(crate) fn natively(&self, entry: &Entry) -> Result<Outcome, String> {
        let mut command = Command::new(entry.program());
        command.args(&entry.run[1..]);
        let output = self.run(entry, &mut command, LIMIT)?;
        self.outcome(output)
    }

    /// Records it on an engine, compares with what it did natively, and replays the recording on each engine.
    pub(crate) fn recorded(
        &self,
        entry: &Entry,
        engine: &str,
        engines: &[&str],
        native: &Outcome,
    ) -> Result<(), String> {
        if self.recording.exists() {
            fs::remove_dir_all(&self.recording).map_err(|error| format!("the last recording: {error}"))?;
        }
        let limit = if entry.needs.is_some() { NEEDY_LIMIT } else { LIMIT };
        let mut command = Command::new(env!("CARGO_BIN_EXE_gretel"));
        command.args(["record", "--engine", engine, "-o"]).arg(&self.recording).arg("--");
        command.arg(entry.program()).args(&entry.run[1..]);
        let output = self.run(entry, &mut command, limit)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        compare(entry, &self.outcome(output)?, native).map_err(|why| format!("{why}\n{said}"))?;
        engines.iter().try_for_each(|replayer| {
            self.replay(replayer, limit).map_err(|why| format!("replayed on {replayer}: {why}"))
        })
    }

    /// Runs a command in the folder, made anew, with the entry's input and an environment that is always the same.
    fn run(&self, entry: &Entry, command: &mut Command, limit: Duration) -> Result<Output, String> {
        make_folder(&self.folder).map_err(|error| format!("{}: {error}", self.folder.display()))?;
        fs::create_dir_all(&self.home).map_err(|error| format!("{}: {error}", self.home.display()))?;
        if let Some(script) = &entry.prepare {
            let mut shell = Command::new("sh");
            shell.args(["-e", "-c", script]).stdin(Stdio::null());
            let output = limited::output(self.environment(&mut shell), LIMIT)?;
            if !output.status.success() {
                return Err(format!("not prepared: {}", String::from_utf8_lossy(&output.stderr)));
            }
        }
        match &entry.stdin {
            Some(name) => {
                let file = File::open(self.folder.join(name)).map_err(|error| format!("{name}: {error}"))?;
                command.stdin(file)
            }
            None => command.stdin(Stdio::null()),
        };
        limited::output(self.environment(command), limit)
    }

    fn environment<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env_clear().current_dir(&self.folder).env("PATH", PATH).env("HOME", &self.home);
        command.envs([("LC_ALL", "C"), ("TZ", "UTC"), ("TERM", "dumb"), ("PYTHONDONTWRITEBYTECODE", "1")]);
        command.envs([("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_AUTHOR_NAME", "A"), ("GIT_COMMITTER_NAME", "A")]);
        command.envs([("GIT_AUTHOR_EMAIL", "a@b"), ("GIT_COMMITTER_EMAIL", "a@b")]);
        command.envs([("GIT_AUTHOR_DATE", "1000000000 +0000"), ("GIT_COMMITTER_DATE", "1000000000 +0000")]);
        command.env("GRETEL_STORE", concat!(env!("CARGO_TARGET_TMPDIR"), "/store"));
        if self.early_binding {
            command.env("LD_BIND_NOW", "1");
        }
        command
    }

    fn outcome(&self, output: Output) -> Result<Outcome, String> {
        let signal = output.status.signal().map(|signal| 128 + signal);
        let mut files = BTreeMap::new();
        find(&self.folder, Path::new(""), &mut files).map_err(|error| format!("the files made: {error}"))?;
        Ok(Outcome { status: output.status.code().or(signal), stdout: output.stdout, files })
    }

    /// Replays the recording, which must find itself equal.
    fn replay(&self, engine: &str, limit: Duration) -> Result<(), String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gretel"));
        command.arg("replay").arg(&self.recording).args(["--engine", engine, "--json"]).stdin(Stdio::null());
        let output = limited::output(&mut command, limit)?;
        if output.status.code() == Some(NOT_HERE) {
            return Err(format!("this host has no engine {engine} any more"));
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let result: serde_json::Value =
            serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}\n{said}"))?;
        if result["equal"] == true { Ok(()) } else { Err(format!("{result}\n{said}")) }
    }
}

/// Collects what is in `folder`, which is `name` in the result.
fn find(folder: &Path, name: &Path, files: &mut BTreeMap<PathBuf, Found>) -> std::io::Result<()> {
    for file in fs::read_dir(folder)? {
        let file = file?;
        let (path, name) = (file.path(), name.join(file.file_name()));
        let data = fs::symlink_metadata(&path)?;
        let kind = data.file_type();
        let content = if kind.is_symlink() {
            Content::Link(fs::read_link(&path)?)
        } else if kind.is_dir() {
            find(&path, &name, files)?;
            Content::Folder
        } else if kind.is_file() {
            Content::Bytes(read(&path, data.mode())?)
        } else {
            debug_assert!(
                kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device()
            );
            Content::Special
        };
        files.insert(name, Found { mode: data.mode(), content });
    }
    Ok(())
}

/// Reads a file, also one that its owner may not read.
fn read(path: &Path, mode: u32) -> std::io::Result<Vec<u8>> {
    if mode & 0o400 == 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(mode | 0o400))?;
    }
    fs::read(path)
}

/// Says what of one outcome differs from that of a native run.
pub(crate) fn compare(entry: &Entry, got: &Outcome, native: &Outcome) -> Result<(), String> {
    if got.status != native.status {
        return Err(format!("status {:?}, natively {:?}", got.status, native.status));
    }
    if entry.output_differs.is_none() && got.stdout != native.stdout {
        return Err(first_line(&got.stdout, &native.stdout));
    }
    if entry.files_differ.is_none() {
        return same_files(&got.files, &native.files);
    }
    Ok(())
}

/// The first line of the output that differs.
fn first_line(got: &[u8], native: &[u8]) -> String {
    let (mut ours, mut theirs) = (got.split(|byte| *byte == b'\n'), native.split(|byte| *byte == b'\n'));
    let mut number = 0;
    loop {
        number += 1;
        let (a, b) = (ours.next(), theirs.next());
        if a != b || a.is_none() {
            let [a, b] = [a, b].map(|line| line.map(String::from_utf8_lossy));
            return format!("output, line {number}: {a:?}\nnatively {b:?}");
        }
    }
}

fn same_files(got: &BTreeMap<PathBuf, Found>, native: &BTreeMap<PathBuf, Found>) -> Result<(), String> {
    for name in got.keys().chain(native.keys()) {
        let (ours, theirs) = (got.get(name), native.get(name));
        if ours != theirs {
            let [ours, theirs] =
                [ours, theirs].map(|file| file.map_or_else(|| "nothing".to_owned(), Found::to_string));
            return Err(format!("{}: {ours}, natively {theirs}", name.display()));
        }
    }
    Ok(())
}
