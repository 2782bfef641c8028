//! Crumbs as `core --crumbs` and `watch` show them.

use crate::Outcome;
use crate::contexts::Contexts;
use crate::core_file::place;
use crate::debug_files::DebugFiles;
use crate::exit::{Code, Failure};
use crate::kernel;
use crate::log::say;
use crate::opened;
use crate::output::{Printed, print};
use lbr::Crumbs;
use lbr::context::{Policy, Table};
use lbr::crumb::ring::MAX_SLOTS;
use lbr::crumb::{Entry, Exit, Origin, Reader, RingError, Snapshot};
use serde_json::{Value, json};
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use synth::program::Program;
use synth::program::cfg::Cfg;
use vmm::crumbs::{DEFAULT_SLOTS, Keep, contexts};
use vmm::elf::Image;
use vmm::elfcore::Core;
use vmm::linux::call_name;
use vmm::recording::Recording;

/// Whether crumbs are left, and how many are kept.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    /// How many exits the ring of crumbs holds: the newest are kept, at 96 bytes each
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SLOTS,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SLOTS)))]
    crumbs: u32,
    /// Leave no crumbs
    #[arg(long, conflicts_with = "crumbs")]
    no_crumbs: bool,
    /// Give each crumb its calling context, by a walk of the stack at each exit; a call site that was looked at more than
    /// N times is hot, and from then on found by search (default: 1000)
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1000",
        conflicts_with = "no_crumbs")]
    contexts: Option<u32>,
}

impl Options {
    /// What to keep.
    pub(crate) fn keep(self) -> Option<Keep> {
        let contexts = self.contexts.map(|threshold| Policy { threshold, ..Policy::default() });
        (!self.no_crumbs).then_some(Keep { slots: self.crumbs, contexts })
    }
}

/// Crumbs, and what names their addresses.
struct Source {
    crumbs: Crumbs,
    /// Numbers between the oldest and the newest that are not there, and slots that hold no whole record.
    missing: u64,
    torn: u64,
    /// The words of call sites, if contexts were recorded.
    table: Option<Table>,
    program: Option<Program>,
    core: Option<Core>,
}

/// Shows the crumbs of a recording's ring, or of a core.
pub(crate) fn show(input: &Path, exe: Option<&Path>, as_json: bool, debug_files: &mut DebugFiles) -> Outcome {
    let source =
        if input.is_dir() { of_recording(input, debug_files)? } else { of_core(input, exe, debug_files)? };
    if source.torn > 0 {
        say!(
            "gretel: {} records were being written when the recorder was killed, or are damaged",
            source.torn
        );
    }
    if source.missing > 0 {
        say!("gretel: {} crumbs between the oldest and the newest are missing", source.missing);
    }
    let entries = &source.crumbs.entries;
    let without = entries.iter().filter(|entry| entry.crumb.context.is_none()).count();
    if source.table.is_some() && without > 0 {
        say!(
            "gretel: {without} of {} crumbs have no context, since their stacks could not be walked",
            entries.len()
        );
    }
    let cell = |va| source.core.as_ref().and_then(|core| core.word(va));
    let known = source.program.as_ref().zip(source.table.as_ref());
    let cfg = known.map(|(program, _)| Cfg::build(program, &cell));
    let contexts = known.zip(cfg.as_ref()).map(|((program, table), cfg)| Contexts::new(table, cfg, program));
    if as_json { show_json(&source, contexts) } else { show_text(&source, contexts) }
}

fn show_json(source: &Source, mut contexts: Option<Contexts<'_>>) -> Outcome {
    let crumbs = &source.crumbs;
    let entries = crumbs.entries.iter().map(|entry| {
        let mut object = json(entry, &place(source.program.as_ref(), entry.crumb.rip));
        object["calls"] = contexts.as_mut().map_or(Value::Null, |contexts| contexts.json(&entry.crumb));
        object
    });
    let entries: Vec<_> = entries.collect();
    let Origin { vcpu, real, monotonic } = crumbs.origin;
    let origin = json!({ "vcpu": vcpu, "real": real, "monotonic": monotonic });
    let all = json!({ "origin": origin, "missing": source.missing, "torn": source.torn, "crumbs": entries });
    print(format_args!("{all}\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn show_text(source: &Source, mut contexts: Option<Contexts<'_>>) -> Outcome {
    for entry in &source.crumbs.entries {
        let place = place(source.program.as_ref(), entry.crumb.rip);
        let mut text = line(source.crumbs.origin, entry, &place);
        if let Some(calls) = contexts.as_mut().and_then(|contexts| contexts.line(&entry.crumb)) {
            text.push_str(&format!("\n        {calls}"));
        }
        if print(format_args!("{text}\n"))? == Printed::Closed {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn of_core(path: &Path, exe: Option<&Path>, debug_files: &mut DebugFiles) -> Result<Source, Failure> {
    let opened = opened::open(path, exe, debug_files)?;
    let damaged = |why: &dyn Display| Failure::new(Code::Damaged, format!("core {}: {why}", path.display()));
    let crumbs = opened.core.crumbs().map_err(|e| damaged(&e))?;
    let crumbs = crumbs.ok_or_else(|| damaged(&"there are no crumbs in it"))?;
    let table = opened.core.contexts().map_err(|e| damaged(&e))?;
    let program = opened.program().ok().map(|(program, _)| program);
    Ok(Source { crumbs, missing: 0, torn: 0, table, program, core: Some(opened.core) })
}

fn of_recording(dir: &Path, debug_files: &mut DebugFiles) -> Result<Source, Failure> {
    let ring = open(dir)?;
    let damaged = |why: &dyn Display| Failure::new(Code::Damaged, why);
    let Snapshot { entries, missing, torn, preemptions } = ring.snapshot().map_err(|e| damaged(&e))?;
    let mut crumbs = Crumbs { origin: ring.origin(), entries, preemptions };
    let recording = Recording::open(dir).map_err(|e| damaged(&e))?;
    kernel::refuse(&recording)?;
    let table = contexts(&recording).map_err(|e| damaged(&e))?;
    // A core says where the libraries were loaded, too.
    let opened = if recording.core().is_file() { opened::open(dir, None, debug_files).ok() } else { None };
    let loaded = opened.as_ref().and_then(|opened| opened.program().ok()).map(|(program, _)| program);
    let core = opened.map(|opened| opened.core);
    if let Some(counted) = core.as_ref().and_then(|core| core.crumbs().ok().flatten()) {
        crumbs.take_counts(&counted);
    }
    Ok(Source { crumbs, missing, torn, table, program: loaded.or_else(|| program(dir)), core })
}

/// The program of a recording, where it runs.
pub(crate) fn program(dir: &Path) -> Option<Program> {
    let bytes = lbr::regular::read(&dir.join("program")).ok()?;
    let bias = Image::parse(&bytes).ok()?.bias;
    Program::from_bytes(&bytes, bias).ok()
}

/// The ring of a recording.
pub(crate) fn open(dir: &Path) -> Result<Reader, Failure> {
    let damaged = |why: &dyn Display| Failure::new(Code::Damaged, why);
    let recording = Recording::open(dir).map_err(|e| damaged(&e))?;
    kernel::refuse(&recording)?;
    Reader::open(&recording.crumbs()).map_err(|error| match &error {
        RingError::Read { error: why, .. } if why.kind() == io::ErrorKind::NotFound => damaged(&format!(
            "{} has no crumbs: it was recorded with --no-crumbs, or its crumbs-0 was removed",
            dir.display()
        )),
        _ => damaged(&error),
    })
}

/// A crumb on one line, its address named by `place`.
pub(crate) fn line(origin: Origin, entry: &Entry, place: &str) -> String {
    let Entry { number, crumb } = entry;
    let time = crumb.time.map_or_else(String::new, |time| {
        let since = time.saturating_sub(origin.monotonic);
        format!("{}.{:06}s", since / 1_000_000_000, since % 1_000_000_000 / 1000)
    });
    let what = match crumb.exit {
        Exit::Syscall { number } => {
            format!("syscall {number} {}", call_name(number))
        }
        Exit::PageFault { address, .. } => format!("page-fault {address:#x}"),
        Exit::Exception { vector, .. } => format!("exception {vector}"),
        Exit::Interrupt { vector } => format!("interrupt {vector:#x}"),
        other => other.name().to_owned(),
    };
    let mut line =
        format!("#{number:<6} {time:>12}  after event {:<6} {what:<26} {:#014x}", crumb.event, crumb.rip);
    if !place.is_empty() {
        line.push_str(&format!(" {place}"));
    }
    let counts = [
        ("instructions", crumb.counts.instructions),
        ("taken", crumb.counts.taken_branches),
        ("conditional", crumb.counts.conditional_branches),
    ];
    for (name, count) in counts {
        if let Some(count) = count {
            line.push_str(&format!("  {name} {count}"));
        }
    }
    if crumb.counts.derived {
        line.push_str("  (derived)");
    }
    line
}

/// A crumb as JSON.
pub(crate) fn json(entry: &Entry, place: &str) -> Value {
    let Entry { number, crumb } = entry;
    let hex = |value: u64| format!("{value:#x}");
    let mut object = json!({
        "number": number,
        "events_before": crumb.event,
        "exit": crumb.exit.name(),
        "thread": crumb.thread,
        "rip": hex(crumb.rip),
        "rsp": hex(crumb.rsp),
        "time": crumb.time,
        "instructions": crumb.counts.instructions,
        "taken_branches": crumb.counts.taken_branches,
        "conditional_branches": crumb.counts.conditional_branches,
        "counts_derived": crumb.counts.derived,
        "context": crumb.context.map(hex),
    });
    let mut add = |name: &str, value: Value| object[name] = value;
    match crumb.exit {
        Exit::Syscall { number } => {
            add("syscall", number.into());
            add("syscall_name", call_name(number).into());
        }
        Exit::PageFault { address, error_code } => {
            add("address", hex(address).into());
            add("error_code", error_code.into());
        }
        Exit::Exception { vector, error_code } => {
            add("vector", vector.into());
            add("error_code", error_code.into());
        }
        Exit::Interrupt { vector } => add("vector", vector.into()),
        Exit::MachineRead | Exit::Interrupted | Exit::NoSemantics | Exit::Preempted => {}
    }
    if !place.is_empty() {
        add("place", place.into());
    }
    object
}
