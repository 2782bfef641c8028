//! One run of a program or a server: natively, recorded, or replayed.

use crate::programs::Program;
use crate::resident;
use crate::services::Asked;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// What a run took.
pub(crate) struct Run {
    /// The seconds of the work.
    pub(crate) seconds: f64,
    /// With start and end.
    pub(crate) whole: f64,
    /// Pieces of work: one, or what a server was asked for.
    pub(crate) units: f64,
    /// The most memory that was resident, in bytes, as far as it was seen.
    pub(crate) peak: Option<u64>,
}

impl Run {
    pub(crate) fn per_unit(&self) -> f64 {
        self.seconds / self.units
    }
}

/// Runs programs in a folder.
pub(crate) struct Bench<'a> {
    dir: &'a Path,
}

impl Bench<'_> {
    pub(crate) fn new(dir: &Path) -> Bench<'_> {
        Bench { dir }
    }

    /// Whether gretel runs anything on an engine here; a line on stderr where it does not.
    pub(crate) fn has(&self, engine: &str) -> bool {
        let mut command =
            self.gretel(&["record", "--force", "-o", "rec", "--engine", engine, "--", "/bin/true"]);
        let there = command.status().is_ok_and(|status| status.success());
        if !there {
            eprintln!("skipped: engine {engine}, which this host lacks");
        }
        there
    }

    /// `None` where it does not end well; so below.
    pub(crate) fn natively(&self, program: &Program) -> Option<Run> {
        let mut command = Command::new(&program.argv[0]);
        command.args(&program.argv[1..]);
        self.run(self.wired(command), program)
    }

    pub(crate) fn record(&self, program: &Program, engine: &str) -> Option<Run> {
        let mut command = self.gretel(&["record", "--force", "-o", "rec", "--engine", engine, "--"]);
        command.args(&program.argv);
        self.run(command, program)
    }

    /// Replays what was recorded last: so many pieces of work.
    pub(crate) fn replay(&self, engine: &str, units: f64) -> Option<Run> {
        let start = Instant::now();
        let peak = wait(self.gretel(&["replay", "--engine", engine, "rec"]).spawn().ok()?)?;
        let seconds = start.elapsed().as_secs_f64();
        Some(Run { seconds, whole: seconds, units, peak })
    }

    /// The bytes of the journal of what was recorded last.
    pub(crate) fn journal(&self) -> Option<u64> {
        fs::metadata(self.dir.join("rec/journal")).ok().map(|file| file.len())
    }

    fn gretel(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gretel"));
        command.args(arguments).env("GRETEL_STORE", self.dir.join("store"));
        self.wired(command)
    }

    fn wired(&self, mut command: Command) -> Command {
        command.current_dir(self.dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn run(&self, mut command: Command, program: &Program) -> Option<Run> {
        let start = Instant::now();
        let child = command.spawn().ok()?;
        let Some(service) = &program.service else {
            let peak = wait(child)?;
            let seconds = start.elapsed().as_secs_f64();
            return Some(Run { seconds, whole: seconds, units: 1.0, peak });
        };
        let asked = service.ask(self.dir);
        end(&child);
        let peak = wait(child);
        let Asked { seconds, units } = asked?;
        Some(Run { seconds, whole: start.elapsed().as_secs_f64(), units, peak: peak? })
    }
}

/// Sends SIGTERM, as service managers do.
fn end(child: &Child) {
    _ = Command::new("kill").arg(child.id().to_string()).status();
}

/// The most memory that was resident, as far as it was seen; `None` where the process does not end well.
fn wait(child: Child) -> Option<Option<u64>> {
    let (status, peak) = resident::wait(child).ok()?;
    status.success().then_some(peak)
}
