//! From a program that a signal has ended to its core file.

use crate::elfcore::write::{Area, Contents, Memory, write_memory};
use crate::elfcore::{FileMapping, ProcessInfo, SignalInfo, THREADS_STARTED};
use crate::engine::Counters;
use crate::process::{Death, Process, ProcessError};
use crate::ram::PAGE_LEN;
use crate::recording::private_file;
use lbr::Crumbs;
use lbr::context::Table;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Why there is no core.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// It cannot be written.
    #[error("cannot write core {}: {error} (the recording itself is complete)", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The engine does not give its state.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Whether a death leaves a core.
#[must_use]
pub fn leaves_core(death: &Death) -> bool {
    death.leaves_core()
}

/// What the core says besides the program's state.
#[derive(Clone, Debug)]
pub struct About {
    /// How it died.
    pub death: Death,
    /// How the core was made: `key: value` lines.
    pub origin: String,
    /// The bytes of the branch trail.
    pub trail: Option<Vec<u8>>,
    /// Exact counts at the crash.
    pub counters: Option<Counters>,
    /// The newest crumbs.
    pub crumbs: Option<Crumbs>,
    /// The words of call sites by which their contexts are decoded.
    pub contexts: Option<Table>,
}

/// Writes the core of a program that has died to `path`, in place of what is there.
///
/// # Errors
/// When it cannot be written; what is there stays.
pub fn write_core(path: &Path, process: &mut Process, about: &About) -> Result<(), DumpError> {
    let state = process.state()?;
    let mappings = process.mappings();
    let (program, arguments) = process.command();
    let command: Vec<_> = arguments.iter().map(|a| String::from_utf8_lossy(a).into_owned()).collect();
    let program = program.to_string_lossy().into_owned();
    let name = program.rsplit('/').next().unwrap_or_default();
    let file = |m: &crate::process::MappingInfo| FileMapping {
        start: m.start,
        end: m.end,
        offset: m.file_offset,
        path: m.name.clone(),
    };
    let started = process.threads_started();
    let mut origin = about.origin.clone();
    if started > 1 {
        origin.push_str(&format!("{THREADS_STARTED} {started}\n"));
    }
    let contents = Contents {
        state,
        thread: process.thread(),
        others: process.other_threads().map(|(id, state)| (id, *state)).collect(),
        signal: SignalInfo {
            signo: about.death.signal,
            code: about.death.code,
            address: about.death.address,
        },
        process: ProcessInfo { pid: process.pid(), name: name.to_owned(), arguments: command.join(" ") },
        auxv: process.auxv(),
        files: mappings.iter().filter(|m| m.name.starts_with('/')).map(file).collect(),
        trail: about.trail.clone(),
        counters: about.counters,
        crumbs: about.crumbs.as_ref().map(Crumbs::to_bytes),
        contexts: about.contexts.as_ref().map(Table::to_bytes),
        origin,
    };
    let areas: Vec<_> =
        mappings.iter().map(|m| Area { start: m.start, end: m.end, rights: m.rights }).collect();
    let memory = Memory {
        areas: &areas,
        held: &mut |area| process.held(&(area.start..area.end)),
        page: &mut |at, bytes: &mut [u8; PAGE_LEN]| process.read_memory(at, bytes),
    };
    let unfinished = path.with_extension("unfinished");
    // One that was killed while it wrote a core has left what it had.
    let _ = fs::remove_file(&unfinished);
    let written = private_file(&unfinished)
        .and_then(|file| write_memory(file, &contents, memory))
        .and_then(|()| fs::rename(&unfinished, path));
    written.map_err(|error| {
        // The disk may be full: leave nothing that takes space or looks like a core.
        let _ = fs::remove_file(&unfinished);
        DumpError::Write { path: path.to_owned(), error }
    })
}
