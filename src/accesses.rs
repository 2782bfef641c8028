//! `gretel last-write` and `gretel memory`: who accessed some bytes of a recorded program, and when.

mod shared;

use crate::Outcome;
use crate::core_file::hex;
use crate::engine::Choice;
use crate::exit::Failure;
use crate::followed::{self, Followed};
use crate::log::{say, spinner};
use crate::moment::{name_place, places};
use crate::named::{self, Named};
use crate::output::{Printed, print};
use crate::replay::failure;
use crate::shell;
use crate::symbols::{Place, Symbols, Trace};
use crate::values;
use serde_json::{Value, json};
use shared::Shared;
use std::ops::Range;
use std::path::PathBuf;
use vmm::engine::lookout::{Access, Lookout, Watch};
use vmm::position::Position;
use vmm::process::Process;
use vmm::replay::ReplayError;
use vmm::travel::{Stop, Travel};

/// So many frames of the stack are shown.
const FRAMES: usize = 8;

/// Bytes that can be asked for at once.
const LARGEST: u64 = 1 << 16;

/// Show who wrote a variable, or some bytes of memory, last before the end, or before a position
///
/// Goes back from there over checkpoints of the replay to the last instruction that stored to any of these bytes, or the
/// last system call that changed them. A store counts even where it changes nothing, but for stretches in which the page that the bytes
/// are on is stored to all the time: that is said, and with --exact it counts there, too.
///
/// An expression is what C and C++ write: names, . -> * & [] + -. Names are looked up where the program stands, at the end or before
/// the position, in the innermost call that knows them; main::count is that of main.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel last-write rec 'order->amount'                     by its name in the source, which knows the size
  gretel last-write rec 0x55555555a2b0 8
  gretel last-write rec 0x55555555a2b0 8 --before 1042+77   and the one before that
  gretel last-write rec 0x55555555a2b0 8 --count 5          the last five, the newest first
  gretel last-write rec 0x55555555a2b0 8 --json | jq -r .position

Below the write stand its callers. The position is that before the write: `gretel gdb rec --at POSITION` goes there.
Exit code 0 also where nobody wrote. It takes as long as the way between two checkpoints. The first question about a
recording with few leaves more of them in its folder, and says so; `gretel replay rec --checkpoint-every 0.1` makes them
closer still.")]
pub(crate) struct LastWriteArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Only what comes before this: an event by its number, or EVENT+INSTRUCTIONS (default: the end)
    #[arg(long, value_name = "POSITION")]
    before: Option<Position>,
    /// Find each store, however long it takes: also one that changes nothing, in a page that is stored to all the time
    #[arg(long)]
    exact: bool,
    /// So many, the newest first
    #[arg(long, default_value_t = 1, value_name = "N")]
    count: u64,
}

/// Show every access to some bytes of memory, in order
///
/// All instructions that store to any of these bytes or load from them, and the system calls that changed them. An expression is what
/// C and C++ write, as list->head; names are looked up where the recording ends.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel memory rec total                     a variable, by its name in the source
  gretel memory rec 0x55555555a2b0 8
  gretel memory rec 0x55555555a2b0 8 --writes
  gretel memory rec 0x55555555a2b0 8 --json | jq -r 'select(.pid == 1389) | .position'

The position and the value are those behind the access. With --json, one object per line.")]
pub(crate) struct MemoryArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Only what writes
    #[arg(long)]
    writes: bool,
}

/// Which bytes of which program.
#[derive(clap::Args)]
struct PlaceArgs {
    /// The recording's folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The address, as 0x... or decimal, or an expression of the source, as list->head
    #[arg(value_name = "ADDRESS|EXPR")]
    named: Named,
    /// How many bytes (default: as many as the expression's type has)
    #[arg(value_name = "LENGTH", value_parser = number)]
    length: Option<u64>,
    /// Whose memory, by its number in the recording (default: the one that crashed, else the one that is loaded at the end)
    #[arg(long, value_name = "PID")]
    pid: Option<i32>,
    /// What runs the program: where single instructions count, it is the software CPU
    #[arg(long, value_enum, default_value = "auto")]
    engine: Choice,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn number(text: &str) -> Result<u64, String> {
    values::number(text).ok_or_else(|| format!("`{text}` is no number: write it as 4096 or 0x1000"))
}

impl PlaceArgs {
    /// The recording at its end, or before a position, and what to look for.
    fn open(&self, access: Access, looks_back: bool, before: Option<Position>) -> Result<Opened, Failure> {
        if let (Named::Address(address), length) = (&self.named, self.length) {
            let length = length.ok_or_else(|| named::usage(named::NO_LENGTH.to_owned()))?;
            range(*address, length).map_err(named::usage)?;
        }
        let mut followed = followed::open(&self.dir, self.pid.into(), self.engine, looks_back)?;
        let Followed { travel, symbols, .. } = &mut followed;
        if let (Named::Expression(_), Some(before)) = (&self.named, before) {
            travel.seek(before).map_err(failure)?;
            symbols.look(travel.process());
        }
        let (asked, meant) = named::bytes(&self.named, self.length, travel, symbols).map_err(named::usage)?;
        meant.into_iter().for_each(|meant| say!("gretel: {meant}"));
        let range = range(asked.start, asked.end - asked.start).map_err(named::usage)?;
        let end = || match Shared::of(travel.process(), range.start) {
            // Where it is loaded it is known which of the others has the same memory.
            Some(_) => shared::to_end_of_loaded(travel),
            None => travel.seek_end(),
        };
        waited_for("going to the recording's end", end).map_err(failure)?;
        let data = vec![Watch { range: range.clone(), access }];
        if travel.process().pid() == travel.followed() && bytes(&range, travel.process()).is_none() {
            say!("gretel: not all of these bytes are mapped where the recording ends");
        }
        if let Some(before) = before {
            travel.seek(before).map_err(failure)?;
        }
        Ok(Opened { followed, lookout: Lookout { at: Vec::new(), data }, range })
    }
}

/// A recording, and which bytes of it are looked for.
struct Opened {
    followed: Followed,
    lookout: Lookout,
    range: Range<u64>,
}

/// So many bytes from an address on, if they can be asked for at once.
fn range(address: u64, length: u64) -> Result<Range<u64>, String> {
    let end = address.checked_add(length).filter(|_| (1..=LARGEST).contains(&length));
    let end = end.ok_or_else(|| format!("LENGTH is 1 to {LARGEST} bytes of the address space"))?;
    Ok(address..end)
}

/// That no access was found.
const fn none_found(only_writes: bool) -> &'static str {
    if only_writes { "nobody wrote to these bytes" } else { "nobody accessed these bytes" }
}

/// Does what may take long, and says so meanwhile.
fn waited_for<T>(what: &'static str, work: impl FnOnce() -> T) -> T {
    let bar = spinner();
    bar.set_message(what);
    work()
}

/// What is in these bytes, if all of them are mapped.
fn bytes(range: &Range<u64>, process: &Process) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
    process.read_memory(range.start, &mut bytes).then_some(bytes)
}

/// What somebody who is inside of a recording asks for: every access to some bytes, or what writes to them alone.
pub(crate) struct Asked {
    pub(crate) range: Range<u64>,
    pub(crate) writes: bool,
    pub(crate) json: bool,
}

impl Asked {
    /// So many bytes from an address on; else why they cannot be asked for.
    pub(crate) fn of(address: u64, length: u64, writes: bool, json: bool) -> Result<Asked, String> {
        Ok(Asked { range: range(address, length)?, writes, json })
    }

    /// The lines of these accesses, `most` at most, and whether these are all. The recording is left where the last one is.
    pub(crate) fn lines(
        &self,
        travel: &mut Travel,
        symbols: &mut Symbols,
        most: usize,
    ) -> Result<(String, bool), ReplayError> {
        let access = if self.writes { Access::Write } else { Access::Any };
        let lookout = Lookout { at: Vec::new(), data: vec![Watch { range: self.range.clone(), access }] };
        travel.seek(travel.begin())?;
        let mut text = String::new();
        for _ in 0..most {
            let stop = travel.forward(&lookout)?;
            if matches!(stop, Stop::End | Stop::Asked) {
                if matches!(stop, Stop::End) && text.is_empty() && !self.json {
                    text = format!("{}\n", none_found(self.writes));
                }
                return Ok((text, true));
            }
            text += &Found::behind(travel, symbols, stop, &self.range).line(self.json);
        }
        Ok((text, false))
    }

    /// The write that comes next where one stands, as JSON.
    pub(crate) fn next_write(
        &self,
        travel: &mut Travel,
        symbols: &mut Symbols,
        stop: Stop,
    ) -> Result<String, ReplayError> {
        Ok(Found::before(travel, symbols, stop, &self.range)?.line(true))
    }
}

pub(crate) fn last_write(args: &LastWriteArgs) -> Outcome {
    let Opened { followed, lookout, range } = args.place.open(Access::Write, true, args.before)?;
    let Followed { mut travel, mut symbols, code } = followed;
    travel.look_for_changes(!args.exact);
    let mut at = travel.position();
    for n in 0..args.count {
        let found = waited_for("looking for the store before", || {
            last_before(&mut travel, &mut symbols, &mut at, &lookout, &range)
        });
        let found = found?;
        if let Some(note) = passed_over(&travel) {
            say!("gretel: {note}; --exact looks for them");
        }
        let Some(found) = found else {
            if args.place.json && n == 0 {
                print(format_args!("{}\n", Value::Null))?;
            }
            say!(
                "gretel: nobody wrote to them{} since the recording's beginning",
                if n > 0 { " before that" } else { "" }
            );
            break;
        };
        if found.print(args.place.json)? == Printed::Closed {
            break;
        }
        if args.count == 1 {
            let dir = shell::word(&args.place.dir);
            say!("gretel: next: gretel gdb {dir} --at {}", found.position);
        }
    }
    Ok(code)
}

/// What the last way back over stores has not looked for, if anything.
pub(crate) fn passed_over(travel: &Travel) -> Option<String> {
    let (from, to) = travel.passed_over()?;
    Some(format!(
        "from {from} to {to} the page of these bytes is stored to all the time: stores that left the bytes as they were from one event to \
         the next were not looked for"
    ))
}

/// The last write before `at`, which is where one stands; `at` is that of the write afterwards.
fn last_before(
    travel: &mut Travel,
    symbols: &mut Symbols,
    at: &mut Position,
    lookout: &Lookout,
    range: &Range<u64>,
) -> Result<Option<Found>, Failure> {
    if Shared::of(travel.process(), range.start).is_some() {
        let Some((found, before)) = shared::last_write(travel, symbols, *at, range)? else { return Ok(None) };
        *at = before;
        return Ok(Some(found));
    }
    let mut stop = travel.backward(lookout).map_err(failure)?;
    while matches!(stop, Stop::Begin) {
        let child = travel.followed();
        let Some(parent) = travel.seek_start_of(child, *at).map_err(failure)? else { return Ok(None) };
        say!(
            "gretel: process {child} has not written to them since {parent} forked it at {}: this is about {parent} before that",
            travel.position()
        );
        *at = travel.position();
        travel.follow(parent);
        stop = travel.backward(lookout).map_err(failure)?;
    }
    let found = Found::before(travel, symbols, stop, range).map_err(failure)?;
    *at = found.position;
    Ok(Some(found))
}

pub(crate) fn memory(args: &MemoryArgs) -> Outcome {
    let access = if args.writes { Access::Write } else { Access::Any };
    let Opened { followed, lookout, range } = args.place.open(access, false, None)?;
    let Followed { mut travel, mut symbols, code } = followed;
    let begin = travel.begin();
    let shared = Shared::of(travel.process(), range.start);
    let mut wanted = shared.map(|shared| shared::Wanted::of(shared, &lookout, range.clone()));
    travel.seek(begin).map_err(failure)?;
    let mut any = false;
    loop {
        let stop = match &mut wanted {
            Some(wanted) => wanted.next(&mut travel, &lookout),
            None => travel.forward(&lookout),
        };
        let stop = stop.map_err(failure)?;
        if matches!(stop, Stop::End | Stop::Asked) {
            if matches!(stop, Stop::End) && !any {
                say!("gretel: {}", none_found(args.writes));
            }
            return Ok(code);
        }
        any = true;
        let found = Found::behind(&travel, &mut symbols, stop, &range);
        if found.print(args.place.json)? == Printed::Closed {
            return Ok(code);
        }
    }
}

/// An access.
struct Found {
    position: Position,
    pid: i32,
    thread: i32,
    /// The instruction; for a system call, where it was made, or behind it.
    rip: u64,
    place: Option<Place>,
    kind: &'static str,
    /// The stack there, for who asks for one access.
    stack: Option<Trace>,
    range: Range<u64>,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
}

impl Found {
    /// The access that comes next where one stands; afterwards one stands there again.
    fn before(
        travel: &mut Travel,
        symbols: &mut Symbols,
        stop: Stop,
        range: &Range<u64>,
    ) -> Result<Found, ReplayError> {
        let mut found = Found::behind(travel, symbols, stop, range);
        found.before = found.after.take();
        travel.step()?;
        found.after = bytes(range, travel.process());
        travel.seek(found.position)?;
        let process = travel.process();
        symbols.look(process);
        found.stack = Some(symbols.backtrace(process, process.thread(), FRAMES).up_to_main());
        Ok(found)
    }

    /// The system call that one stands behind.
    fn of_call(travel: &Travel, symbols: &mut Symbols, range: &Range<u64>) -> Found {
        Found::behind(travel, symbols, Stop::Changed(range.start), range)
    }

    /// The access that one stands behind.
    fn behind(travel: &Travel, symbols: &mut Symbols, stop: Stop, range: &Range<u64>) -> Found {
        let process = travel.process();
        let (kind, rip) = match stop {
            Stop::Accessed(accessed) if accessed.writes => ("write", accessed.rip),
            Stop::Accessed(accessed) => ("read", accessed.rip),
            _ => ("system call", process.cpu().regs().rip),
        };
        let after = bytes(range, process);
        symbols.look(process);
        Found {
            position: travel.position(),
            pid: process.pid(),
            thread: process.thread(),
            rip,
            place: symbols.place(rip),
            kind,
            stack: None,
            range: range.clone(),
            before: None,
            after,
        }
    }

    fn print(&self, as_json: bool) -> Result<Printed, Failure> {
        print(format_args!("{}", self.line(as_json)))
    }

    /// The access as it is shown, with the newline.
    fn line(&self, as_json: bool) -> String {
        if as_json {
            let bytes = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| digits(bytes));
            let mut object = json!({
                "position": self.position.to_string(),
                "pid": self.pid,
                "thread": self.thread,
                "kind": self.kind,
                "address": hex(self.range.start),
                "length": self.range.end - self.range.start,
                "rip": hex(self.rip),
                "place": self.place.as_ref().map(Place::raw),
                "before": bytes(&self.before),
                "after": bytes(&self.after),
            });
            name_place(&mut object, self.place.as_ref());
            if let Some(stack) = &self.stack {
                object["stack"] = places(stack.frames.iter().map(|(_, place)| place)).into();
                object["stack_stopped"] = stack.stopped.as_deref().into();
            }
            return format!("{object}\n");
        }
        let shown =
            |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or_else(|| "?".to_owned(), |bytes| value(bytes));
        let change = match &self.before {
            Some(_) => format!("{} -> {}", shown(&self.before), shown(&self.after)),
            None => shown(&self.after),
        };
        let place = self.place.as_ref().map_or_else(|| "?".to_owned(), Place::to_string);
        let line = format!(
            "{:<14} thread {:<7} {:<11} {change}  at {:#x} {place}\n",
            self.position.to_string(),
            self.thread,
            self.kind,
            self.rip
        );
        // The first frame is the place.
        let callers = self.stack.iter().flat_map(|stack| stack.frames.iter().skip(1));
        let callers: String = callers.map(|(_, place)| format!("    from {place}\n")).collect();
        let stopped = self.stack.as_ref().and_then(|stack| stack.stopped.as_ref());
        let stopped = stopped.map(|why| format!("    ({why})\n")).unwrap_or_default();
        format!("{line}{callers}{stopped}")
    }
}

/// Up to eight bytes as the number that they are, more as they lie there.
fn value(bytes: &[u8]) -> String {
    if bytes.len() <= 8 {
        let number = bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        return format!("{number:#x}");
    }
    let shown = digits(&bytes[..bytes.len().min(32)]);
    if bytes.len() > 32 { format!("{shown}...") } else { shown }
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
