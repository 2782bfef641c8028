//! `gretel report`: one page with all that is known of a crash.
//!
//! The page is made of what gretel's other commands say with `--json` ([`asked`]), so it says nothing that they do not. Each section is a
//! file: [`crash`] (signal, stack, registers; [`kernel`] where that is a kernel), [`slice`] (where the value came from), [`memory`] (what
//! became of the heap there), [`suffix`] (how it got there), [`lanes`] (what happened when, by task), [`branches`], [`machine`] (where
//! the records came from, what the host can do). [`html`] is what all of them write with, [`source`] the source text.

mod asked;
mod branches;
mod crash;
mod html;
mod kernel;
mod lanes;
mod machine;
mod memory;
mod slice;
mod source;
mod suffix;

use crate::Outcome;
use crate::exit::{Code, Failure};
use crate::log::say;
use crate::shell;
use crate::summary::crashed_too;
use asked::Asked;
use html::{Html, escaped, text};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use vmm::recording::Recording;

/// Write a page about a crash: stack, where the bad value came from, how it got there, who ran when
///
/// One file that needs nothing else: open it in a browser, or print it. It has what `gretel core`, `why`, `synth`,
/// `events` and `doctor` say. Of a core alone it has what a core can tell.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel report rec -o report.html
  gretel report --exe ./prog core.1234 -o report.html
  gretel report rec -o report.html --fuel 60          a longer search for the suffix

A page holds parts of the program's memory: treat it as a secret.")]
pub(crate) struct Args {
    /// A recording's folder, or a core file
    #[arg(value_name = "DIR|CORE")]
    input: PathBuf,
    /// Of which process, by its number in the recording (default: the first; if that did not crash, the one with the highest number
    /// that did)
    #[arg(long, value_name = "PID", conflicts_with = "exe")]
    pid: Option<i32>,
    /// The page
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The executable of a core (default: the one in the recording, or where the core says that it was)
    #[arg(long, value_name = "PROG")]
    exe: Option<PathBuf>,
    /// How much work to do for the suffix, as for `gretel synth`; 0 leaves it out (default: 3 of a recording, whose past is known
    /// besides; 9 of a core alone)
    #[arg(long, value_name = "N")]
    fuel: Option<String>,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
}

impl Args {
    /// How much work to do for the suffix: most of the time that a page takes.
    fn fuel(&self) -> &str {
        let usual =
            if self.input.is_dir() && crate::kernel::Source::of(&self.input).is_none() { "3" } else { "9" };
        self.fuel.as_deref().unwrap_or(usual)
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    crate::synth::fuel(args.fuel()).map_err(|why| Failure::new(Code::Usage, format!("--fuel: {why}")))?;
    if let Err(error) = args.input.metadata() {
        return Err(Failure::new(Code::Damaged, format!("cannot read {}: {error}", args.input.display())));
    }
    let other = other_process(args)?;
    let cannot_write = |error: io::Error| {
        let hint = if error.kind() == io::ErrorKind::AlreadyExists { " (--force replaces it)" } else { "" };
        Failure::new(Code::Write, format!("cannot write {}: {error}{hint}", args.output.display()))
    };
    // That it can be written is known before the work. Until there is a page it is not there, or what it was: who interrupts this, or asks
    // for what is not known, finds no empty file in the way of the next try.
    if open(args).map_err(cannot_write)?.is_new {
        fs::remove_file(&args.output).map_err(cannot_write)?;
    }
    let asked = Asked::ask(args, other.as_ref())?;
    asked.missing().for_each(|(what, why)| say!("gretel: the page has no {what}: {why}"));
    if let [first, rest @ ..] = asked.damage() {
        let more = if rest.is_empty() { String::new() } else { format!("; and {} more", rest.len()) };
        say!("gretel: the core is damaged, the page is of what it has: {}{more}", text(first));
    }
    if !asked.has_anything() {
        let why = format!("nothing is known of {}, and no page was written", args.input.display());
        return Err(Failure::new(Code::Damaged, why));
    }
    let page = page(args, &asked);
    let mut opened = open(args).map_err(cannot_write)?;
    opened.replace(page.as_bytes()).map_err(|error| {
        if opened.is_new {
            // The disk may be full: part of a page is none.
            let _ = fs::remove_file(&args.output);
        }
        cannot_write(error)
    })?;
    say!("gretel: next: open {} in a browser", shell::word(&args.output));
    Ok(ExitCode::SUCCESS)
}

/// The file of the page.
struct Opened {
    file: File,
    /// It was not there before.
    is_new: bool,
}

/// Opens the file of the page: with `--force` one that is there, which may be a device, and keeps what it has.
fn open(args: &Args) -> io::Result<Opened> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    match options.clone().create_new(true).open(&args.output) {
        Err(error) if args.force && error.kind() == io::ErrorKind::AlreadyExists => {
            Ok(Opened { file: options.create(true).open(&args.output)?, is_new: false })
        }
        new => Ok(Opened { file: new?, is_new: true }),
    }
}

impl Opened {
    fn replace(&mut self, page: &[u8]) -> io::Result<()> {
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(page)?;
        self.file.flush()
    }
}

/// A process that is not the first of a recording, and its core.
struct Other {
    pid: i32,
    core: PathBuf,
}

/// The process that the page is of, where that is not the first.
fn other_process(args: &Args) -> Result<Option<Other>, Failure> {
    let Some(recording) = Recording::open(&args.input).ok().filter(|_| args.input.is_dir()) else {
        let why = format!("{} is no recording: --pid is of one", args.input.display());
        return if args.pid.is_some() { Err(Failure::new(Code::Usage, why)) } else { Ok(None) };
    };
    let others = recording.others_with_cores();
    let other = |pid| Other { pid, core: recording.core_of(pid) };
    match args.pid {
        Some(pid) if others.contains(&pid) => Ok(Some(other(pid))),
        Some(pid) => {
            let said = crashed_too(&others).unwrap_or_else(|| "no other process crashed".to_owned());
            Err(Failure::new(Code::Usage, format!("process {pid} left no core: {said}")))
        }
        None if recording.core().exists() => Ok(None),
        None => Ok(others.last().map(|pid| {
            let said = crashed_too(&others).unwrap_or_default();
            say!("gretel: {said}; the page is about {pid}");
            other(*pid)
        })),
    }
}

/// What is the same on all pages.
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A section: its name, its title, and what is in it, if there is anything.
type Section = (&'static str, &'static str, Option<String>);

fn page(args: &Args, asked: &Asked) -> String {
    let title = title(args, asked);
    let sections: [Section; 7] = [
        ("crash", "The crash", asked.core.ok().map(crash_section)),
        ("why", "Where the value came from", asked.why.ok().map(slice::section)),
        ("heap", "What became of that memory", asked.heap.as_ref().map(memory::section)),
        ("suffix", "How it got there", asked.synth.ok().map(suffix::section)),
        ("branches", "The last branches", asked.core.ok().and_then(branches::section)),
        ("time", "What happened when", asked.events.ok().map(lanes::section)),
        ("machine", "What was recorded, and with what", Some(machine::section(asked))),
    ];
    let mut html = Html::new();
    html.raw("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    html.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    html.raw("<link rel=\"icon\" href=\"data:,\">");
    html.raw(&format!("<title>{}</title><style>{STYLE}</style></head><body>\n", escaped(&title)));
    html.raw(&format!("<header><h1>{}</h1>", escaped(&title)));
    html.raw("<nav aria-label=\"sections\">");
    for (name, heading, content) in &sections {
        if content.is_some() {
            html.raw(&format!("<a href=\"#{name}\">{heading}</a>"));
        }
    }
    html.raw("</nav></header>\n<main>\n");
    for (name, heading, content) in &sections {
        if let Some(content) = content {
            html.raw(&format!(
                "<section id=\"{name}\" tabindex=\"-1\"><h2>{heading}</h2>\n{content}</section>\n"
            ));
        }
    }
    html.raw("</main>\n<footer>");
    html.text(&format!(
        "made by gretel {} of {}; keys: j and k go to the next and the last section, and the arrows through the events of the timeline",
        env!("CARGO_PKG_VERSION"),
        args.input.display()
    ));
    html.raw(&format!("</footer>\n<script>{SCRIPT}</script></body></html>\n"));
    html.finish()
}

fn crash_section(core: &Value) -> String {
    if kernel::is_one(core) { kernel::section(core) } else { crash::section(core) }
}

/// What crashed, how and where.
fn title(args: &Args, asked: &Asked) -> String {
    let Some(core) = asked.core.ok() else { return format!("gretel: {}", args.input.display()) };
    if kernel::is_one(core) {
        return kernel::title(core);
    }
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let place = text(&core["stack"][0]["place"]);
    format!("{}: {} at {place}", text(&core["process"]["name"]), text(&core["signal"]["name"]))
}
