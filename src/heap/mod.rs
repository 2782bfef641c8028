//! `gretel heap`: the history of the memory at an address.
//!
//! [`allocators`] knows the functions, [`history`] follows their calls by [`crate::called`], and this file shows what they say and
//! concludes.
//!
//! Example: `gretel heap rec 0x4052a8` of a program that uses what it has freed shows the `malloc` that gave the 32 bytes at 0x4052a0,
//! the `free` that took them, the load behind it, and ends with `use after free: freed at 40+210, accessed at 40+377`.

mod allocators;
mod history;

use crate::Outcome;
use crate::core_file::hex;
use crate::engine::Choice;
use crate::exit::{Code, Failure};
use crate::followed::{self, Followed};
use crate::log::say;
use crate::moment::places;
use crate::named::{self, Named};
use crate::output::print;
use crate::replay::failure;
use crate::symbols::Symbols;
use history::{Event, History, NEAR, Near, What};
use serde_json::{Value, json};
use std::fmt;
use std::path::PathBuf;
use vmm::position::Position;
use vmm::replay::ReplayError;
use vmm::travel::Travel;

/// Show what happened to the heap memory at an address: allocated, freed, used after that
///
/// Goes once through the recording, and looks at the calls of the allocator: malloc, free and their kin of any C library
/// (also in static programs), jemalloc and mimalloc, and C++'s operators new and delete. While the memory is free, the
/// first access to it is looked for. Allocators that are known by no such name (of a stripped static program, Go's) are
/// not seen.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel heap rec 0x4052a8
  gretel heap rec 'list->head'              what it points to where the recording ends
  gretel heap rec 0x4052a8 --json | jq -r .verdict

Verdicts: use-after-free, double-free, invalid-free (an address inside an allocation), freed, live, never-allocated.
The position is that of the call or access: `gretel gdb rec --at POSITION` goes there.")]
pub(crate) struct Args {
    /// The recording's folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The address, as 0x... or decimal, anywhere in the allocation; or an expression of the source, as list->head: what it points to
    #[arg(value_name = "ADDRESS|EXPR")]
    named: Named,
    /// Of which process, by its number in the recording (default: the one that crashed, else the one that is loaded at the end)
    #[arg(long, value_name = "PID")]
    pid: Option<i32>,
    /// What runs the program: where single instructions count, it is the software CPU
    #[arg(long, value_enum, default_value = "auto")]
    engine: Choice,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let Followed { mut travel, mut symbols, code } =
        followed::open(&args.dir, args.pid.into(), args.engine, false)?;
    let (address, meant) = named::address(&args.named, &mut travel, &symbols).map_err(named::usage)?;
    meant.into_iter().for_each(|meant| say!("gretel: {meant}; {address:#x} is looked at"));
    let history = history::of(&mut travel, &mut symbols, address, None).map_err(failure)?;
    let history = history.ok_or_else(|| Failure::new(Code::Usage, NO_ALLOCATOR))?;
    let verdict = Verdict::of(&history, address);
    if args.json {
        print(format_args!("{}\n", as_json(&history, &verdict, address)))?;
    } else {
        history.events.iter().try_for_each(|event| print(format_args!("{event}")).map(drop))?;
        print(format_args!("{}\n", verdict.text))?;
    }
    say!("gretel: {} calls of the allocator were looked at", history.calls);
    Ok(code)
}

const NO_ALLOCATOR: &str = "the process has no function that is called malloc or the like where it was last: the program is static and \
                            stripped, or has an allocator of its own";

fn as_json(history: &History, verdict: &Verdict, address: u64) -> Value {
    json!({
        "address": hex(address),
        "calls": history.calls,
        "events": history.events.iter().map(event_as_json).collect::<Vec<_>>(),
        "before": history.before.iter().map(|near| near_as_json(near, address)).collect::<Vec<_>>(),
        "verdict": verdict.name,
        "text": verdict.text,
    })
}

/// The same for gdb: up to `end`.
pub(crate) fn text(
    travel: &mut Travel,
    symbols: &mut Symbols,
    address: u64,
    end: Position,
    json: bool,
) -> Result<String, ReplayError> {
    let Some(history) = history::of(travel, symbols, address, Some(end))? else {
        return Ok(format!("{NO_ALLOCATOR}\n"));
    };
    let verdict = Verdict::of(&history, address);
    if json {
        return Ok(format!("{}\n", as_json(&history, &verdict, address)));
    }
    let events: String = history.events.iter().map(ToString::to_string).collect();
    Ok(format!("{events}{}\n", verdict.text))
}

/// What the history comes to.
struct Verdict {
    name: &'static str,
    text: String,
}

impl Verdict {
    fn of(history: &History, address: u64) -> Verdict {
        let events = &history.events;
        let freed_before = |n: usize| {
            let freed = events[..n].iter().rev().find(|event| event.what.takes_back());
            freed.map(Event::taken_back).unwrap_or_default()
        };
        for (n, Event { position, what, .. }) in events.iter().enumerate() {
            let (name, text) = match what {
                What::FreedAgain(_) => {
                    ("double-free", format!("double free: {}, and again at {position}", freed_before(n)))
                }
                What::Accessed { .. } | What::Changed | What::Crashed { .. } => {
                    ("use-after-free", format!("use after free: {}, accessed at {position}", freed_before(n)))
                }
                What::FreedInside(request) => (
                    "invalid-free",
                    format!("invalid free: {request} at {position} is inside the allocation"),
                ),
                What::Allocated(..) | What::Resized(..) => continue,
                What::Freed(_) | What::Moved(..) | What::CutOff(_) => continue,
            };
            return Verdict { name, text };
        }
        match events.last() {
            None => Verdict { name: "never-allocated", text: never(history, address) },
            Some(last) if last.what.takes_back() => {
                Verdict { name: "freed", text: format!("{}, and not accessed after that", last.taken_back()) }
            }
            Some(last) => {
                let given = events.iter().rev().find(|event| matches!(event.what, What::Allocated(..)));
                let position = given.unwrap_or(last).position;
                let earlier = events.iter().filter(|event| event.what.takes_back()).count();
                let text = match earlier {
                    0 => format!("live: allocated at {position}, never freed"),
                    _ => format!(
                        "live: allocated at {position}. It was freed {} before that: a pointer kept from then points into \
                         another allocation now",
                        if earlier == 1 { "once".to_owned() } else { format!("{earlier} times") }
                    ),
                };
                Verdict { name: "live", text }
            }
        }
    }
}

impl Event {
    /// How and where the memory became free.
    fn taken_back(&self) -> String {
        match &self.what {
            What::CutOff(request) => format!("cut off at {} ({request})", self.position),
            What::Moved(_, to) => format!("moved to {to:#x} at {}", self.position),
            _ => format!("freed at {}", self.position),
        }
    }
}

fn never(history: &History, address: u64) -> String {
    let since = history.window.map(|begins| format!(" since the window begins, at {begins}"));
    let never = format!("never allocated{}", since.unwrap_or_default());
    if history.before.is_empty() {
        return format!("{never}, and no allocation ends in the {NEAR} bytes before it");
    }
    let before: Vec<String> = history.before.iter().map(|near| behind(near, address)).collect();
    format!("{never}: {}", before.join("; and "))
}

/// How far an address is behind an allocation, and what became of that.
fn behind(Near { range, allocated, freed }: &Near, address: u64) -> String {
    let freed = freed.map_or_else(|| "not freed".to_owned(), |freed| format!("freed at {freed}"));
    let distance = match address - range.end {
        0 => "right".to_owned(),
        1 => "1 byte".to_owned(),
        bytes => format!("{bytes} bytes"),
    };
    format!(
        "{distance} behind the end of {:#x}-{:#x} ({} bytes), which was allocated at {allocated} and {freed}",
        range.start,
        range.end,
        range.end - range.start
    )
}

fn near_as_json(Near { range, allocated, freed }: &Near, address: u64) -> Value {
    json!({
        "start": hex(range.start),
        "size": range.end - range.start,
        "bytes_behind": address - range.end,
        "allocated": allocated.to_string(),
        "freed": freed.map(|freed| freed.to_string()),
    })
}

fn event_as_json(event: &Event) -> Value {
    let mut object = json!({
        "position": event.position.to_string(),
        "thread": event.thread,
        "stack": places(&event.stack),
        "stack_stopped": event.stopped,
    });
    let (kind, request) = match &event.what {
        What::Allocated(request, range) => {
            object["start"] = hex(range.start);
            object["size"] = request.size.into();
            ("allocated", Some(request))
        }
        What::Freed(request) => ("freed", Some(request)),
        What::Moved(request, to) => {
            object["to"] = hex(*to);
            ("moved", Some(request))
        }
        What::CutOff(request) => ("cut-off", Some(request)),
        What::Resized(request, range) => {
            object["start"] = hex(range.start);
            object["size"] = request.size.into();
            ("resized", Some(request))
        }
        What::FreedAgain(request) => ("freed-again", Some(request)),
        What::FreedInside(request) => ("freed-inside", Some(request)),
        What::Accessed { writes, address } => {
            object["address"] = hex(*address);
            object["writes"] = (*writes).into();
            ("accessed", None)
        }
        What::Changed => ("changed", None),
        What::Crashed { address } => {
            object["address"] = hex(*address);
            ("crashed", None)
        }
    };
    object["kind"] = kind.into();
    object["call"] = request.map(ToString::to_string).into();
    object
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<14} thread {:<7} ", self.position.to_string(), self.thread)?;
        match &self.what {
            What::Allocated(request, range) => writeln!(f, "{request} = {:#x}", range.start)?,
            What::Freed(request) => writeln!(f, "{request}")?,
            What::CutOff(request) => {
                writeln!(f, "{request} = {:#x}: smaller, this part is free", request.given)?
            }
            What::Moved(request, to) => writeln!(f, "{request} = {to:#x}: moved there, this is free")?,
            What::Resized(request, range) => writeln!(f, "{request} = {:#x}: where it was", range.start)?,
            What::FreedAgain(request) => writeln!(f, "{request}: it is free already")?,
            What::FreedInside(request) => writeln!(f, "{request}: inside the allocation")?,
            What::Accessed { writes: true, address } => {
                writeln!(f, "written at {address:#x} while it is free")?
            }
            What::Accessed { writes: false, address } => {
                writeln!(f, "read at {address:#x} while it is free")?
            }
            What::Changed => writeln!(f, "changed by a system call while it is free")?,
            What::Crashed { address } => {
                writeln!(f, "the crash: an access to {address:#x} while it is free")?
            }
        }
        self.stack.iter().try_for_each(|place| writeln!(f, "    {place}"))?;
        self.stopped.iter().try_for_each(|why| writeln!(f, "    ({why})"))
    }
}
