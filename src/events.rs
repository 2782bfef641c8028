//! `gretel events`: what happened in a recording, a line each.
//!
//! [`wanted`] is which of it, [`shown`] how a line looks.

pub(crate) mod shown;
mod wanted;

pub(crate) use wanted::WantedOfMachine;

use crate::Outcome;
use crate::engine::Choice;
use crate::exit::{Code, Failure};
use crate::followed;
use crate::kernel;
use crate::log::say;
use crate::output::{Printed, written};
use crate::played::Played;
use clap::Parser;
use shown::Line;
use std::cell::RefCell;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use vmm::position::Position;
use vmm::process::happening::Happening;
use vmm::recording::Recording;
use vmm::replay::ReplayError;
use vmm::travel::Travel;
use wanted::Wanted;

/// That none of the events are those that were asked for.
const NONE: &str = "nothing of that happened";

/// List what happened in a recording: system calls, signals, switches between tasks, and the rest, a line each
///
/// Replays the recording, and needs nothing else. A line has the event's number, which is a position for `gretel replay
/// --to`; the process, and behind a slash the task where it is not the process's first; the kind; and what happened. A
/// system call that waited has two lines at least: where it began, and where it came back. What the kernel did of its own
/// accord, such as a switch, stands at the event before it.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel events rec
  gretel events rec --failed                     the calls that returned an error
  gretel events rec --call openat,execve
  gretel events rec --kind signal,crash --json
  gretel events rec --task 1234 --from 500 --to 600
  gretel events rec --json | jq -r 'select(.kind == \"syscall\") | .name' | sort | uniq -c

Of a machine with a kernel (docs/kernel.md): what was typed, requests to the disk, the end, and how many interrupts of \
which vector there were; --kind interrupt lists these. Positions are counts of instructions.

--kind, --call, --task and --failed each keep less. --call and --failed choose among system calls; other kinds are shown \
beside them where --kind names them.

A recording whose end is missing or damaged is listed up to there, and the exit code is 123.")]
pub(crate) struct Args {
    /// The recording's folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// What runs the program; it need not be what recorded it
    #[arg(long, value_enum, default_value = "auto")]
    engine: Choice,
    #[command(flatten)]
    wanted: Wanted,
    /// Print one JSON object a line; numbers above 2^53 are strings in hexadecimal
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    args.wanted.check()?;
    if let Some(recording) = Recording::open(&args.dir).ok().filter(kernel::is_one) {
        return kernel::events(&recording, &args.wanted.of_machine()?, args.json);
    }
    let mut played = Played::open(&args.dir, args.engine)?;
    if let Some(begins) = played.window_begins() {
        say!("gretel: this is the window of a flight recorder, which begins at {begins}");
    }
    if let Some(from) = args.wanted.from {
        played.skip_to(from)?;
    }
    let stdout = io::stdout();
    // For people at once, for programs in large pieces.
    let mut out: Box<dyn Write> = match stdout.is_terminal() {
        true => Box::new(stdout.lock()),
        false => Box::new(BufWriter::new(stdout.lock())),
    };
    let listed = list(args, &mut played, &mut *out);
    let flushed = written(out.flush());
    let Listed { printed, is_empty, to_the_end } = listed?;
    if is_empty && !args.json {
        say!("gretel: {NONE}");
    }
    if printed == Printed::Closed || flushed? == Printed::Closed || !to_the_end {
        return Ok(ExitCode::SUCCESS);
    }
    finish(args, &mut played)
}

/// Which events somebody who is inside of a recording asks for, in the words of the command line.
#[derive(clap::Parser)]
#[command(no_binary_name = true, disable_help_flag = true, name = "events")]
pub(crate) struct Asked {
    #[command(flatten)]
    wanted: Wanted,
    #[arg(long)]
    json: bool,
}

impl Asked {
    /// What these words ask for; else why not.
    pub(crate) fn parse(words: &[&str]) -> Result<Asked, String> {
        let asked = Asked::try_parse_from(words).map_err(|error| error.to_string())?;
        asked.wanted.check().map_err(|failure| format!("{failure}\n"))?;
        Ok(asked)
    }

    /// The lines of these events, `most` at most, and whether these are all. The recording is left where the last one is.
    pub(crate) fn lines(&self, travel: &mut Travel, most: usize) -> Result<(String, bool), ReplayError> {
        let from = self.wanted.from.map_or(0, |from| from.event.saturating_sub(1));
        travel.seek(travel.begin().max(Position { event: from, retired: 0 }))?;
        let happened: Rc<RefCell<Vec<Happening>>> = Rc::default();
        let told = Rc::clone(&happened);
        travel.process_mut().trace(Box::new(move |it: &Happening| told.borrow_mut().push(it.clone())));
        let lines = self.lines_from_here(travel, &happened, most);
        travel.process_mut().trace_no_more();
        lines
    }

    fn lines_from_here(
        &self,
        travel: &mut Travel,
        happened: &RefCell<Vec<Happening>>,
        most: usize,
    ) -> Result<(String, bool), ReplayError> {
        let (mut text, mut count) = (String::new(), 0);
        let mut add = |line: &Line| {
            text += &if self.json { format!("{}\n", line.as_json()) } else { format!("{line}\n") };
            count += 1;
            count < most
        };
        let asks = travel.asks();
        while travel.next_event()? && !asks.load(Ordering::Relaxed) {
            for happening in happened.take() {
                if self.wanted.is_behind(&happening) {
                    let none = text.is_empty() && !self.json;
                    return Ok((if none { format!("{NONE}\n") } else { text }, true));
                }
                if self.wanted.has(&happening) && !add(&Line::of(&happening)) {
                    return Ok((text, false));
                }
            }
        }
        let position = travel.position();
        if travel.ended()
            && self.wanted.has_end(position)
            && let Some(end) = travel.report()?.end
        {
            add(&Line::of_end(position, &end));
        }
        if text.is_empty() && !self.json && !asks.load(Ordering::Relaxed) {
            text = format!("{NONE}\n");
        }
        Ok((text, true))
    }
}

/// How far a list came.
struct Listed {
    printed: Printed,
    /// It has no line.
    is_empty: bool,
    /// Not to where `--to` ends it.
    to_the_end: bool,
}

/// Prints what happens, up to the recording's end or `--to`.
fn list(args: &Args, played: &mut Played, out: &mut dyn Write) -> Result<Listed, Failure> {
    let mut is_empty = true;
    while let Some(happenings) = played.next()? {
        for happening in happenings {
            if args.wanted.is_behind(&happening) {
                return Ok(Listed { printed: Printed::Yes, is_empty, to_the_end: false });
            }
            if args.wanted.has(&happening) {
                is_empty = false;
                if print(args, out, &Line::of(&happening))? == Printed::Closed {
                    return Ok(Listed { printed: Printed::Closed, is_empty, to_the_end: false });
                }
            }
        }
    }
    let (end, position) = (played.report()?.end, played.position());
    let printed = match end {
        Some(end) if args.wanted.has_end(position) => {
            is_empty = false;
            print(args, out, &Line::of_end(position, &end))?
        }
        _ => Printed::Yes,
    };
    Ok(Listed { printed, is_empty, to_the_end: true })
}

fn print(args: &Args, out: &mut dyn Write, line: &Line) -> Result<Printed, Failure> {
    written(if args.json { writeln!(out, "{}", line.as_json()) } else { writeln!(out, "{line}") })
}

/// What there is to say at the end.
fn finish(args: &Args, played: &mut Played) -> Outcome {
    let (replayed, end) = (played.report()?, played.position());
    if let Some(damage) = &replayed.damage {
        if followed::say_damage(&args.dir, damage) {
            say!("gretel: the {} events before it are as recorded", replayed.events);
        }
        return Ok(Code::Damaged.into());
    }
    if let Some(from) = args.wanted.from.filter(|from| *from > end) {
        say!("gretel: the recording ends at {end}, before {from}");
        return Ok(Code::Damaged.into());
    }
    Ok(ExitCode::SUCCESS)
}
