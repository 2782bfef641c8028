//! `record --attach-on-crash CMD`: runs a command for each process of the program that leaves a core.
//!
//! gretel may start no process once the program runs ([`vmm::confine`]), so a helper does, which is started before: gretel itself,
//! under a subcommand that is not in the help. It reads a line for each crash from its standard input, and ends with it: also when
//! gretel is killed.

use crate::Outcome;
use crate::exit::{Code, Failure};
use crate::log::say;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use vmm::interrupt;

/// The subcommand's name.
const NAME: &str = "run-at-crash";
/// So often it is looked whether the commands have ended.
const LOOK: Duration = Duration::from_millis(20);

/// The helper, as `record` has it.
pub(crate) struct AtCrash {
    helper: Child,
}

impl AtCrash {
    /// Starts the helper for the recording in `folder`. It is in a process group of its own: Ctrl-C is the program's.
    pub(crate) fn start(command: &OsStr, folder: &Path) -> Result<AtCrash, Failure> {
        let failed = |error: io::Error| {
            Failure::new(Code::Other, format!("cannot start the helper of --attach-on-crash: {error}"))
        };
        let folder = folder.canonicalize().map_err(failed)?;
        let mut helper = Command::new(std::env::current_exe().map_err(failed)?);
        helper
            .arg(NAME)
            .arg(command)
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0);
        Ok(AtCrash { helper: helper.spawn().map_err(failed)? })
    }

    /// Has the command run for a process whose core is written.
    pub(crate) fn run(&mut self, core: &Path, pid: i32, signal: i32) {
        let core = core.file_name().unwrap_or_default().to_string_lossy();
        let told = self.helper.stdin.as_mut().map(|pipe| writeln!(pipe, "{pid} {signal} {core}"));
        if let Some(Err(error)) = told {
            say!("gretel: the command of --attach-on-crash cannot be run for process {pid}: {error}");
        }
    }

    /// Waits for all commands, but for no longer than until somebody wants gretel to end.
    pub(crate) fn finish(mut self) {
        drop(self.helper.stdin.take());
        while matches!(self.helper.try_wait(), Ok(None)) {
            if interrupt::arrived().is_some() {
                say!("gretel: the command of --attach-on-crash goes on by itself");
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Runs a command for each crash that standard input tells (of gretel itself, for --attach-on-crash)
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The command, for `sh -c`
    command: OsString,
    /// The recording
    folder: PathBuf,
}

/// The helper.
pub(crate) fn run(args: &Args) -> Outcome {
    let mut running = Vec::new();
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let [pid, signal, core] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else { continue };
        let mut command = Command::new("sh");
        command.arg("-c").arg(&args.command).arg("sh").arg(&args.folder);
        command.env("GRETEL_RECORDING", &args.folder).env("GRETEL_CORE", args.folder.join(core));
        command.env("GRETEL_PID", pid).env("GRETEL_SIGNAL", signal);
        command.stdin(Stdio::null()).stdout(io::stderr());
        match command.spawn() {
            Ok(child) => running.push(child),
            Err(error) => say!("gretel: the command of --attach-on-crash cannot be run: sh: {error}"),
        }
    }
    for mut child in running {
        match child.wait() {
            Ok(status) if !status.success() => {
                let how = status.signal().map_or_else(
                    || format!("exited with status {}", status.code().unwrap_or_default()),
                    |signal| format!("was ended by signal {signal}"),
                );
                say!("gretel: the command of --attach-on-crash {how}");
            }
            _ => {}
        }
    }
    Ok(ExitCode::SUCCESS)
}
