//! The guest images and their `expected.toml` (`guest-images/README.md` explains the keys).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde::Deserialize;

/// The C libraries that every program is built with.
pub(crate) const LIBCS: [&str; 2] = ["glibc", "musl"];

/// `expected.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expected {
    /// What goes wrong, in one line.
    pub(crate) summary: String,
    /// The arguments after the program's name.
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
    /// The file in the folder that is standard input.
    pub(crate) stdin: Option<String>,
    /// How it crashes.
    pub(crate) crash: Option<Crash>,
    /// How it ends, when it does not crash.
    pub(crate) exit: Option<Exit>,
    /// What a suffix of the crash shows.
    pub(crate) suffix: Option<Suffix>,
}

/// The crash, with what differs under musl.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Crash {
    /// The signal's name.
    pub(crate) signal: String,
    /// The innermost of the program's own functions.
    pub(crate) function: String,
    /// What differs under musl.
    #[serde(default)]
    pub(crate) musl: Musl,
}

/// What differs under musl.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Musl {
    /// The signal's name, when it is another one.
    pub(crate) signal: Option<String>,
    /// `false` where a debugger cannot walk from the crash to the program's own functions.
    pub(crate) unwinds: Option<bool>,
}

/// The end of a program that does not crash.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exit {
    /// Exit status.
    pub(crate) status: i32,
    /// All of standard output.
    pub(crate) output: String,
}

/// What a suffix of the crash shows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Suffix {
    /// Functions that it passes through, when it is long enough.
    pub(crate) shows: Vec<String>,
}

/// One folder of `guest-images/`.
pub(crate) struct Guest {
    /// The folder's name, which is the program's.
    pub(crate) name: String,
    /// What it says of itself.
    pub(crate) expected: Expected,
}

/// How a program should end under one libc.
pub(crate) enum Ending {
    /// By a signal.
    Crash { signal: i32 },
    /// By itself.
    Exit { status: i32, output: String },
}

/// How a program ended.
pub(crate) struct Outcome {
    /// The signal that ended it, if one did.
    pub(crate) signal: Option<i32>,
    /// The status it ended with, if it did.
    pub(crate) status: Option<i32>,
    /// What it wrote to standard output.
    pub(crate) stdout: String,
}

impl Outcome {
    /// The status as a shell says it, which is also how `gretel record` does.
    pub(crate) fn shell_status(&self) -> Option<i32> {
        self.status.or_else(|| self.signal.map(|signal| 128 + signal))
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("guest-images")
}

/// All guest images, by name; builds them first.
pub(crate) fn all() -> Vec<Guest> {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let status = Command::new("make").arg("--silent").current_dir(folder()).status().expect("make runs");
        assert!(status.success(), "the guest images do not build; `make setup` installs the compilers");
    });
    let mut guests = BTreeMap::new();
    for entry in fs::read_dir(folder()).expect("guest-images can be read") {
        let entry = entry.expect("guest-images can be read");
        let name = entry.file_name().into_string().expect("a guest's name is text");
        if let Ok(text) = fs::read_to_string(entry.path().join("expected.toml")) {
            let expected =
                toml::from_str(&text).unwrap_or_else(|error| panic!("{name}/expected.toml: {error}"));
            guests.insert(name.clone(), Guest { name, expected });
        }
    }
    guests.into_values().collect()
}

fn signal_number(name: &str) -> i32 {
    match name {
        "SIGILL" => 4,
        "SIGABRT" => 6,
        "SIGBUS" => 7,
        "SIGFPE" => 8,
        "SIGSEGV" => 11,
        _ => panic!("expected.toml: no fatal signal is called {name}"),
    }
}

impl Guest {
    /// The program that was built with `libc`.
    pub(crate) fn program(&self, libc: &str) -> PathBuf {
        folder().join("build").join(libc).join(&self.name)
    }

    fn input(&self) -> PathBuf {
        match &self.expected.stdin {
            Some(file) => folder().join(&self.name).join(file),
            None => PathBuf::from("/dev/null"),
        }
    }

    /// Its standard input.
    pub(crate) fn stdin(&self) -> Stdio {
        File::open(self.input()).expect("the input can be read").into()
    }

    /// The command by which gdb runs it with its arguments and its input.
    pub(crate) fn gdb_run(&self) -> String {
        let arguments: String =
            self.expected.arguments.iter().map(|argument| format!("'{argument}' ")).collect();
        format!("run {arguments}< {}", self.input().display())
    }

    /// Whether a debugger can walk from the crash to the program's own functions.
    pub(crate) fn unwinds(&self, libc: &str) -> bool {
        let crash = self.expected.crash.as_ref();
        libc != "musl" || crash.and_then(|crash| crash.musl.unwinds).unwrap_or(true)
    }

    /// How it should end.
    pub(crate) fn ending(&self, libc: &str) -> Ending {
        match (&self.expected.crash, &self.expected.exit) {
            (Some(crash), None) => {
                let other = crash.musl.signal.as_ref().filter(|_| libc == "musl");
                Ending::Crash { signal: signal_number(other.unwrap_or(&crash.signal)) }
            }
            (None, Some(exit)) => Ending::Exit { status: exit.status, output: exit.output.clone() },
            _ => panic!("{}/expected.toml must have either [crash] or [exit]", self.name),
        }
    }

    /// Runs it on this processor, under this kernel.
    pub(crate) fn run_natively(&self, libc: &str) -> Outcome {
        let output = Command::new(self.program(libc))
            .args(&self.expected.arguments)
            .stdin(self.stdin())
            .output()
            .expect("a guest image runs natively");
        Outcome {
            signal: output.status.signal(),
            status: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        }
    }

    /// The names of all functions of the program that was built with `libc`.
    pub(crate) fn symbols(&self, libc: &str) -> BTreeSet<String> {
        let output = Command::new("nm").arg(self.program(libc)).output().expect("nm runs");
        assert!(output.status.success(), "nm {}", self.program(libc).display());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
    }

    /// The number of the line that the source marks with `// crash`.
    pub(crate) fn crash_line(&self) -> usize {
        let path = folder().join(&self.name).join(format!("{}.c", self.name));
        let source = fs::read_to_string(&path).expect("a guest has a source");
        let mut marked =
            source.lines().zip(1..).filter(|(line, _)| line.contains("// crash")).map(|(_, number)| number);
        match (marked.next(), marked.next()) {
            (Some(number), None) => number,
            _ => panic!("{}: exactly one line must say `// crash`", path.display()),
        }
    }
}
