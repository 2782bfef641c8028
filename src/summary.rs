//! What `gretel record` says at its end: on stderr for people, and as JSON for scripts.

use crate::exit::{Code, Failure};
use crate::log::say;
use crate::{ending, keeping, profile, shell, units};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use vmm::elfcore::signal_name;
use vmm::journal::End;
use vmm::record::{RecordError, Recorded};
use vmm::recording::Recording;

/// Illegal instruction.
const SIGILL: i32 = 4;

/// A recording that came to its end.
pub(crate) struct Summary<'a> {
    recording: &'a Recording,
    recorded: &'a Recorded,
    crashed: bool,
    stopped_by: Option<String>,
}

/// The file of `--json`.
pub(crate) struct SummaryFile {
    path: PathBuf,
    file: File,
}

impl SummaryFile {
    /// Makes the file, or empties it.
    ///
    /// # Errors
    /// With the code for what cannot be written, as [`SummaryFile::write`].
    pub(crate) fn create(path: &Path) -> Result<SummaryFile, Failure> {
        let file = File::create(path).map_err(|error| SummaryFile::failed(path, &error))?;
        Ok(SummaryFile { path: path.to_owned(), file })
    }

    /// Writes the summary, in a line of JSON.
    pub(crate) fn write(&mut self, summary: &Summary<'_>) -> Result<(), Failure> {
        let written = writeln!(self.file, "{}", summary.as_json());
        written.map_err(|error| SummaryFile::failed(&self.path, &error))
    }

    fn failed(path: &Path, error: &std::io::Error) -> Failure {
        Failure::new(Code::Write, format!("cannot write {}: {error}", path.display()))
    }
}

impl<'a> Summary<'a> {
    /// `crashed`: it has a core.
    pub(crate) fn of(recording: &'a Recording, recorded: &'a Recorded, crashed: bool) -> Summary<'a> {
        Summary { recording, recorded, crashed, stopped_by: None }
    }

    /// The same of one whose recorder could not go on, with the reason.
    pub(crate) fn stopped_by(self, error: &RecordError) -> Summary<'a> {
        Summary { stopped_by: Some(error.to_string()), ..self }
    }

    /// How it ended, what was recorded, what was not served, and what to do next.
    pub(crate) fn say(&self) {
        let Summary { recording, recorded, crashed, .. } = self;
        let dir = recording.dir().display();
        let is_illegal_instruction = matches!(recorded.end, End::Killed(death) if death.signal == SIGILL);
        if let (true, Some(needed)) = (is_illegal_instruction, recorded.process.needs_model()) {
            let cpu = needed.name().trim_start_matches("x86-64-");
            say!(
                "gretel: it was stopped at an instruction of {}: --cpu {cpu} shows it that processor",
                needed.name()
            );
        }
        for unserved in recorded.process.unserved() {
            let answer =
                if unserved.answer.is_empty() { String::new() } else { format!(": {}", unserved.answer) };
            say!("gretel: not served: {}{answer}, {}", unserved.what, times(unserved.times));
        }
        for killed in recorded.process.killed_for_memory() {
            say!("gretel: {killed}");
        }
        let frames = recorded.process.memory().frames();
        say!(
            "gretel: {}; {} events, {} bytes of journal, {} on disk, {} of {} of memory, engine {}; recorded in {dir}",
            ending::sentence(&recorded.end),
            recorded.events,
            recorded.journal_bytes,
            units::size_of(recording.size()),
            units::size_of(frames.most_used()),
            units::size_of(frames.limit()),
            recorded.engine
        );
        profile::say(recorded);
        if recorded.is_full {
            say!(
                "gretel: the recording ends before the program, where its room on disk (--disk) was used up"
            );
        }
        if let Some(window) = keeping::window(recording) {
            say!("gretel: {window}");
        }
        let others = recording.others_with_cores();
        if let Some(said) = crashed_too(&others) {
            say!("gretel: {said}");
        }
        match others.last().filter(|_| !crashed) {
            Some(pid) => say!("gretel: next: gretel core {}", shell::word(&recording.core_of(*pid))),
            None => {
                let next = if *crashed { "core" } else { "replay" };
                say!("gretel: next: gretel {next} {}", shell::word(recording.dir()));
            }
        }
    }

    /// The same as an object.
    pub(crate) fn as_json(&self) -> Value {
        let Summary { recording, recorded, crashed, stopped_by } = self;
        let (end, number) = ending::word(Some(&recorded.end));
        let status = number.filter(|_| matches!(recorded.end, End::Exited(_)));
        let signal = number.filter(|_| matches!(recorded.end, End::Killed(_)));
        let unserved =
            recorded.process.unserved().iter().map(
                |it| json!({ "what": it.what, "answer": it.answer, "first": it.first, "times": it.times }),
            );
        let frames = recorded.process.memory().frames();
        let killed = recorded.process.killed_for_memory().iter().map(
            |it| json!({ "pid": it.pid, "name": it.name, "bytes": it.bytes, "oom_score_adj": it.adjustment }),
        );
        json!({
            "recording": recording.dir(),
            "end": end,
            "status": status,
            "signal": signal.map(|signal| signal_name(signal).unwrap_or("another")),
            "stopped_by": stopped_by,
            "engine": recorded.engine,
            "events": recorded.events,
            "journal_bytes": recorded.journal_bytes,
            "bytes_on_disk": recording.size(),
            "ends_before_program": recorded.is_full,
            "bytes_of_memory": frames.most_used(),
            "memory_limit": frames.limit(),
            "killed_for_memory": killed.collect::<Vec<_>>(),
            "core": crashed.then(|| recording.core()),
            "other_cores": recording.others_with_cores().iter().map(|pid| recording.core_of(*pid)).collect::<Vec<_>>(),
            "unserved": unserved.collect::<Vec<_>>(),
            "profile": profile::as_json(recorded),
        })
    }
}

/// So many processes are named.
const NAMED: usize = 5;

/// Which processes crashed that are not the first, if any did.
pub(crate) fn crashed_too(pids: &[i32]) -> Option<String> {
    let named: Vec<String> = pids.iter().rev().take(NAMED).map(ToString::to_string).collect();
    match named.as_slice() {
        [] => None,
        [only] => Some(format!("process {only} crashed, and left core.{only}")),
        _ if named.len() < pids.len() => {
            Some(format!("{} processes crashed, and left cores: {}, ...", pids.len(), named.join(", ")))
        }
        _ => Some(format!("processes {} crashed, and left cores", named.join(", "))),
    }
}

fn times(times: u64) -> String {
    match times {
        1 => "once".to_owned(),
        times => format!("{times} times"),
    }
}
