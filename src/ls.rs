//! `gretel ls`: the recordings in a folder.

use crate::exit::{Code, Failure};
use crate::kernel::Listed;
use crate::log::say;
use crate::output::print;
use crate::units::{size_of, utc};
use crate::{Outcome, ending, keeping};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmm::journal::End;
use vmm::listing::{State, Summary, recordings, size_of_all, summaries};

/// So many characters of a command are shown.
const COMMAND: usize = 60;

/// Show the recordings in a folder: when, what, how it ended, how large
///
/// A line for each recording, the oldest first. Sizes are what is on the disk: of files that only this recording has, which
/// `gretel rm` would free, and of files that it shares with others. The last line counts what is shared once.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel ls
  gretel ls rec /var/lib/recordings
  gretel ls --json | jq -r '.recordings[] | select(.end == \"killed\") | .dir'

Folders in the folder are looked at, those in them are not. Times are UTC. In JSON, `end` is exited, killed, interrupted, \
stopped, incomplete (the recorder was killed), recording (it is at work) or unreadable, of which `why` tells more; of a kernel \
also power-off, reset, panic, triple-fault, halted, refused and idle.")]
pub(crate) struct Args {
    /// Folders of recordings, or recordings (default: the current directory)
    #[arg(value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let found = find(&args.dirs)?;
    let total = size_of_all(&found);
    if args.json {
        let all: Vec<Value> = found.iter().map(as_json).collect();
        print(format_args!("{}\n", json!({ "recordings": all, "bytes": total })))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(format_args!("{}", as_text(&found)))?;
    for summary in &found {
        if let (State::Unreadable(why), None) = (&summary.state, machine(summary)) {
            say!("gretel: {why}");
        }
    }
    match found.len() {
        0 => say!("gretel: no recordings here; `gretel record` makes one"),
        1 => {}
        n => print(format_args!("{n} recordings, {} on disk\n", size_of(total))).map(|_| ())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The recordings in these folders, or here; each once.
pub(crate) fn find(dirs: &[PathBuf]) -> Result<Vec<Summary>, Failure> {
    let here = [PathBuf::from(".")];
    let dirs = if dirs.is_empty() { &here[..] } else { dirs };
    let mut found = Vec::new();
    for dir in dirs {
        let unreadable =
            |error| Failure::new(Code::Damaged, format!("cannot read {}: {error}", dir.display()));
        found.extend(recordings(dir).map_err(unreadable)?);
    }
    found.sort_by(|a, b| a.dir().cmp(b.dir()));
    found.dedup();
    Ok(summaries(found, &keeping::stores()))
}

fn as_text(found: &[Summary]) -> String {
    let rows: Vec<[String; 6]> = found.iter().map(row).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut text = String::new();
    for [dir, began, state, events, size, command] in &rows {
        let [a, b, c, d, e] = widths;
        // A string takes what is written.
        let _ = writeln!(text, "{dir:<a$}  {began:<b$}  {state:<c$}  {events:>d$}  {size:<e$}  {command}");
    }
    text
}

/// What is said of a recording that is one of a machine.
fn machine(summary: &Summary) -> Option<Listed> {
    Listed::of(&summary.recording)
}

fn row(summary: &Summary) -> [String; 6] {
    let cores = summary.cores.iter().fold(String::new(), |all, core| format!("{all}, {core}"));
    let size = match (summary.size.own, summary.size.shared) {
        (own, 0) => size_of(own),
        (own, shared) => format!("{} + {} shared", size_of(own), size_of(shared)),
    };
    let dir = summary.recording.dir().display().to_string();
    if let Some(machine) = machine(summary) {
        let events = format!("{} events", machine.events);
        let command = shortened(format!("kernel: {}", machine.command_line.escape_debug()));
        return [
            dir,
            utc(machine.began.unwrap_or(summary.began)),
            machine.sentence + &cores,
            events,
            size,
            command,
        ];
    }
    let state = match &summary.state {
        State::BeingRecorded => "being recorded".to_owned(),
        State::Ended(End::Exited(status)) => format!("exited {status}"),
        State::Ended(end) => ending::sentence(end),
        State::NoEnd => "no end".to_owned(),
        State::Unreadable(_) => "unreadable".to_owned(),
    };
    let events = summary.events.map_or_else(|| "-".to_owned(), |events| format!("{events} events"));
    [dir, utc(summary.began), state + &cores, events, size, command(summary)]
}

/// The program and its arguments, as far as they go on a line. What is no character to print is escaped.
fn command(summary: &Summary) -> String {
    let words = summary.argv.iter().map(|word| {
        let word = String::from_utf8_lossy(word).escape_debug().to_string();
        if word.is_empty() || word.contains(' ') { format!("'{word}'") } else { word }
    });
    shortened(words.collect::<Vec<_>>().join(" "))
}

fn shortened(whole: String) -> String {
    match whole.char_indices().nth(COMMAND) {
        Some((end, _)) => format!("{}…", &whole[..end]),
        None => whole,
    }
}

fn as_json(summary: &Summary) -> Value {
    if let Some(machine) = machine(summary) {
        return machine_as_json(summary, &machine);
    }
    let (end, number) = match &summary.state {
        State::BeingRecorded => ("recording", None),
        State::Ended(end) => ending::word(Some(end)),
        State::NoEnd => ending::word(None),
        State::Unreadable(_) => ("unreadable", None),
    };
    let why = match &summary.state {
        State::Unreadable(why) => Some(why),
        _ => None,
    };
    let text = |path: &Path| path.display().to_string();
    let argv: Vec<_> = summary.argv.iter().map(|word| String::from_utf8_lossy(word)).collect();
    json!({
        "dir": text(summary.recording.dir()),
        "began": utc(summary.began),
        "began_ns": summary.began,
        "argv": argv,
        "end": end,
        "status_or_signal": number,
        "why": why,
        "events": summary.events,
        "cores": summary.cores,
        "own_bytes": summary.size.own,
        "shared_bytes": summary.size.shared,
    })
}

/// The same fields for a machine.
fn machine_as_json(summary: &Summary, machine: &Listed) -> Value {
    json!({
        "dir": summary.recording.dir().display().to_string(),
        "began": utc(machine.began.unwrap_or(summary.began)),
        "began_ns": machine.began.unwrap_or(summary.began),
        "argv": ["kernel", machine.command_line],
        "end": machine.end,
        "status_or_signal": null,
        "why": null,
        "events": machine.events,
        "cores": summary.cores,
        "own_bytes": summary.size.own,
        "shared_bytes": summary.size.shared,
    })
}
