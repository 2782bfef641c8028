//! Exit codes: one table, and the error type that carries them.

use crate::log::say;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::fmt::{self, Display};
use std::io;
use std::process::ExitCode;

/// The table, as the help shows it.
pub(crate) const HELP: &str = "\
Exit codes:
  0-119    record: the program's own exit status (also 120-255, which then mean what the program means)
  128+N    record: the program was ended by signal N, as shells say it
  128+N    record: interrupted by signal N: 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP; what was recorded replays
  128+N    replay --checkpoint-every: interrupted by signal N; no checkpoint was written
  0        all other commands: done; replay: equal to the recording, also where that ended in a crash
  120      the command line is wrong, or what it names is in use (a folder with other things in it, a recording in the making),
           or is of no use: the core of a program that did not crash
  121      PROG cannot be run: not found, not an x86-64 ELF program, no permission
  122      this host lacks what was asked for (no KVM with --engine kvm)
  123      a file is damaged, cut, not what it should be, or of another version; what precedes the damage was used
  124      replay differs from the recording
  125      a file or the output cannot be written (disk full, no permission, the journal was removed); what was
           recorded before stays usable
  126      gretel could not go on (an instruction or a system call that it cannot run): the message says why";

/// A file would outgrow its limit.
const EFBIG: i32 = 27;

/// gretel's own exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// The command line is wrong.
    Usage = 120,
    /// PROG cannot be run.
    Program = 121,
    /// The host lacks what was asked for.
    Host = 122,
    /// A file is damaged, is something else, or of another version.
    Damaged = 123,
    /// Replay differs from the recording.
    Diverged = 124,
    /// A file cannot be written.
    Write = 125,
    /// Nothing of the above.
    Other = 126,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code as u8)
    }
}

/// Why a subcommand did not do what was asked, and the exit code for it.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    message: String,
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Failure {
    /// A failure with its message.
    pub(crate) fn new(code: Code, message: impl Display) -> Failure {
        Failure { code, message: message.to_string() }
    }

    /// Prints the message and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        say!("gretel: {}", self.message);
        if self.message.contains(&io::Error::from_raw_os_error(EFBIG).to_string()) {
            say!("gretel: files may not grow that large here: raise the limit with `ulimit -f unlimited`");
        }
        self.code.into()
    }
}

/// Prints what clap has to say; help and version are no failures.
pub(crate) fn for_usage(message: &clap::Error) -> ExitCode {
    // A closed pipe behind --help is no reason to fail.
    let _ = message.print();
    if message.kind() == ErrorKind::UnknownArgument {
        hint_at_program(message);
    }
    if message.use_stderr() { Code::Usage.into() } else { ExitCode::SUCCESS }
}

/// A program without `--` before it is taken for an argument of gretel's.
fn hint_at_program(message: &clap::Error) {
    let is_record = std::env::args_os().nth(1).is_some_and(|command| command == "record");
    match message.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(program)) if is_record && !program.starts_with('-') => {
            say!("gretel: put -- before the program: gretel record -- {program}");
        }
        _ => {}
    }
}
