//! `gretel calls`: each call of a function, with its arguments and its result.

use crate::Outcome;
use crate::accesses::number;
use crate::called::prototypes;
use crate::called::value::{Begun, Shown, begun, result};
use crate::called::{Call, Called, Ended, Entries, Happened};
use crate::core_file::hex;
use crate::engine::Choice;
use crate::exit::{Code, Failure};
use crate::followed::{self, Followed, Whom};
use crate::log::say;
use crate::moment::name_place;
use crate::output::{Printed, written};
use crate::replay::failure;
use crate::sight::Known;
use crate::symbols::{Place, Symbols, without_parameters};
use crate::values::Signature;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use vmm::position::Position;
use vmm::process::{Process, ProcessError};
use vmm::replay::ReplayError;
use vmm::travel::Travel;

/// Show each call of a function: where, by whom, with which arguments, and what it gave
///
/// A function is named as the linker or the source has it, with or without its parameters and the class or module that
/// it is in; or it is the one that has a source line, or begins at an address. Names are those of what is mapped where
/// the recording ends, or where the process of --pid was last: a library that was unloaded before has none. What the
/// compiler has inlined is no call.
///
/// Arguments and results are shown by their types where there is debug information for the function, else as registers. Of
/// what clang and rustc have optimised, arguments that are not known are `?`, and a result may be one that nobody uses.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel calls rec parse_header
  gretel calls rec 'Cache::get' --limit 10
  gretel calls rec orders.c:28               the function that has this line
  gretel calls rec 0x401190 --from 120 --to 130
  gretel calls rec main --pid all            of every process, and of every program that one became
  gretel calls rec malloc --json | jq -r 'select(.result == \"0x0\") | .position'

A call is shown when it returns; those that did not are shown at the end, in the order in which they began. One that is left by
longjmp or an exception says so. --limit counts calls as they begin. With --json, one object per line.

`gretel gdb rec --at POSITION` goes to a call.")]
pub(crate) struct Args {
    /// The recording's folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The function: its name, FILE:LINE, or its address
    #[arg(value_name = "FUNCTION")]
    function: String,
    /// Of which process, by its number in the recording, or `all` (default: the one that crashed, else the one that is loaded at the
    /// end)
    #[arg(long, value_name = "PID", value_parser = whose)]
    pid: Option<Whose>,
    /// Only calls that begin here or later: an event by its number, or EVENT+INSTRUCTIONS
    #[arg(long, value_name = "POSITION")]
    from: Option<Position>,
    /// Only up to here
    #[arg(long, value_name = "POSITION")]
    to: Option<Position>,
    /// At most so many calls
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// What runs the program: where single instructions count, it is the software CPU
    #[arg(long, value_enum, default_value = "auto")]
    engine: Choice,
    /// Print JSON, an object for each call
    #[arg(long)]
    json: bool,
}

/// Whose calls.
#[derive(Clone, Copy, Debug)]
enum Whose {
    One(i32),
    All,
}

fn whose(text: &str) -> Result<Whose, String> {
    match text {
        "all" => Ok(Whose::All),
        number => number.parse().map(Whose::One).map_err(|_| "a process is a number, or `all`".to_owned()),
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    let whom = match args.pid {
        Some(Whose::One(pid)) => Whom::One(pid),
        Some(Whose::All) => Whom::All,
        None => Whom::Chosen,
    };
    let Followed { mut travel, mut symbols, code } = followed::open(&args.dir, whom, args.engine, false)?;
    let functions = match args.pid {
        Some(Whose::All) => Functions::find_everywhere(&mut travel, &mut symbols, &args.function)?,
        _ => Functions::find(travel.process(), &symbols, &args.function)
            .map_err(|why| Failure::new(Code::Usage, why))?,
    };
    functions.notes.iter().for_each(|note| say!("gretel: {note}"));
    travel.seek(args.from.unwrap_or_else(|| travel.begin())).map_err(failure)?;
    let stdout = io::stdout();
    // For people at once, for programs in large pieces.
    let mut out: Box<dyn Write> = match stdout.is_terminal() {
        true => Box::new(stdout.lock()),
        false => Box::new(BufWriter::new(stdout.lock())),
    };
    let mut printed = Ok(Printed::Yes);
    let range = Range { end: args.to, limit: args.limit };
    let calls = each(&mut travel, &mut symbols, &functions, range, &mut |line| {
        printed =
            written(if args.json { writeln!(out, "{}", line.as_json()) } else { writeln!(out, "{line}") });
        matches!(printed, Ok(Printed::Yes))
    });
    if printed? == Printed::Yes {
        written(out.flush())?;
    }
    if calls.map_err(failure)? == 0 {
        say!("gretel: nobody called it{}", if args.from.or(args.to).is_some() { " there" } else { "" });
    }
    Ok(code)
}

/// The functions whose calls are looked for.
#[derive(Default)]
pub(crate) struct Functions {
    /// The name of each, and what is known of it, by number.
    known: Vec<(String, Option<Signature>)>,
    entries: Entries,
    /// What is to be said of them.
    pub(crate) notes: Vec<String>,
}

impl Functions {
    /// Those that are meant, in the program as it stands; or why there are none, and what to do.
    pub(crate) fn find(process: &Process, symbols: &Symbols, wanted: &str) -> Result<Functions, String> {
        let mut found = Functions::default();
        found.add(process, symbols, wanted)?;
        if found.known.is_empty() { Err(none(symbols, wanted, &found.notes)) } else { Ok(found) }
    }

    /// Those that are meant in any process: goes through the whole recording.
    fn find_everywhere(
        travel: &mut Travel,
        symbols: &mut Symbols,
        wanted: &str,
    ) -> Result<Functions, Failure> {
        let usage = |why| Failure::new(Code::Usage, why);
        let (mut found, mut seen) = (Functions::default(), HashSet::new());
        travel.seek(travel.begin()).map_err(failure)?;
        loop {
            symbols.look(travel.process());
            if seen.insert(symbols.fingerprint()) {
                // Not all programs need have something mapped at an address.
                let added = found.add(travel.process(), symbols, wanted);
                added.or_else(|why| {
                    if found.known.is_empty() && number(wanted).is_err() { Err(usage(why)) } else { Ok(()) }
                })?;
            }
            if !travel.next_event().map_err(failure)? {
                break;
            }
        }
        if found.known.is_empty() { Err(usage(none(symbols, wanted, &found.notes))) } else { Ok(found) }
    }

    /// Adds those that are meant in the program as it stands.
    fn add(&mut self, process: &Process, symbols: &Symbols, wanted: &str) -> Result<(), String> {
        let known = Known::of(process, symbols);
        for entry in self.meant(process, symbols, wanted)? {
            let new = self.known.len();
            if self.entries.add(process, entry, new) != new {
                continue;
            }
            let name = match symbols.place(entry) {
                Some(place) => {
                    place.function().map_or_else(|| place.raw(), |it| without_parameters(it).to_owned())
                }
                None => format!("{entry:#x}"),
            };
            let mut signature = known.info(entry).and_then(|info| {
                let read = |at: u64, bytes: &mut [u8]| process.read_memory(at, bytes);
                Signature::of(&info, entry, is_copy(symbols, entry), &read)
            });
            if signature.is_none() {
                signature = prototypes::of(wanted).filter(|_| is_of_libc(symbols, entry, &name, wanted));
                let shown = match &signature {
                    Some(_) => format!("arguments are shown as libc declares {wanted}"),
                    None => "the registers that may hold the first six integers and pointers are shown, whether it takes them or not, and rax".to_owned(),
                };
                self.note(format!("{name}: no debug information: {shown}"));
            }
            self.known.push((name, signature));
        }
        Ok(())
    }

    /// Where the functions begin that are meant.
    fn meant(&mut self, process: &Process, symbols: &Symbols, wanted: &str) -> Result<Vec<u64>, String> {
        let mut entries = Vec::new();
        if wanted.starts_with(|c: char| c.is_ascii_digit()) {
            let entry = number(wanted)?;
            let place = symbols.place(entry).ok_or_else(|| format!("nothing is mapped at {wanted}"))?;
            if let Some(function) = place.function().filter(|_| !place.is_beginning()) {
                self.note(format!("{wanted} is inside {function}, and not where it begins"));
            }
            entries.push(entry);
        } else if let Some((file, line)) = file_and_line(wanted) {
            let addresses = symbols.addresses_of_line(Path::new(file), line);
            let functions =
                addresses.iter().filter_map(|at| symbols.module_at(*at)?.names().function_at(*at));
            entries.extend(functions.map(|function| function.start));
        }
        for (entry, symbol) in symbols.functions(wanted) {
            if !symbol.indirect {
                entries.push(entry);
                continue;
            }
            // What the name is bound to is called, and not what chooses it.
            let bound = symbols.bound(process, &symbol.name);
            if bound.is_empty() {
                self.note(format!(
                    "{wanted} at {entry:#x} only chooses a function when the program starts (IFUNC), and it is not known \
                     which: name that one, as `gretel last-write` and gdb show it"
                ));
            }
            entries.extend(bound);
        }
        Ok(entries)
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// Whether a function is a copy that the compiler made for some callers, such as `find.constprop.0`.
fn is_copy(symbols: &Symbols, entry: u64) -> bool {
    let all = symbols.module_at(entry).map(|module| module.names().symbols()).unwrap_or_default();
    !all.iter().any(|it| it.start == entry && !it.name.contains('.'))
}

/// Whether a function is libc's: by the file that it is in, or, in a program that has it in itself, as the one that was chosen among
/// those that libc has for this name.
fn is_of_libc(symbols: &Symbols, entry: u64, name: &str, wanted: &str) -> bool {
    let file = symbols.module_at(entry).and_then(|module| Path::new(module.path()).file_name());
    let file = file.map(|it| it.to_string_lossy()).unwrap_or_default();
    let in_libc = ["libc.", "libc-", "ld-"].iter().any(|prefix| file.starts_with(prefix));
    in_libc || name.strip_prefix("__").is_some_and(|rest| rest.starts_with(&format!("{wanted}_")))
}

/// Why there is no such function.
fn none(symbols: &Symbols, wanted: &str, notes: &[String]) -> String {
    if let [note, ..] = notes {
        return note.clone();
    }
    if file_and_line(wanted).is_some() {
        return format!(
            "no code of {wanted} is known: it has no such line, or no debug information (gcc -g)"
        );
    }
    if symbols.is_inlined(wanted) {
        return format!(
            "{wanted} has no code of its own: it was inlined wherever it is called (gcc -fno-inline, or a breakpoint in \
             `gretel gdb`, which knows these places)"
        );
    }
    let hint = match symbols.similar(wanted) {
        similar if similar.is_empty() => "`nm -C PROGRAM` shows those that there are".to_owned(),
        similar => format!("there is {}", similar.join(", ")),
    };
    format!("there is no function {wanted} in what the process has mapped: {hint}")
}

/// `FILE:LINE`.
fn file_and_line(text: &str) -> Option<(&str, u32)> {
    let (file, line) = text.rsplit_once(':')?;
    Some((file, line.parse().ok()?)).filter(|_| !file.ends_with(':'))
}

/// How far to look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Range {
    pub(crate) end: Option<Position>,
    /// So many calls at most.
    pub(crate) limit: Option<u64>,
}

/// Shows each call from here on, until `show` has enough; gives how many began.
pub(crate) fn each(
    travel: &mut Travel,
    symbols: &mut Symbols,
    functions: &Functions,
    range: Range,
    show: &mut dyn FnMut(&Line) -> bool,
) -> Result<u64, ReplayError> {
    let mut called = Called::of(functions.entries.clone());
    let mut lines: BTreeMap<u64, Line> = BTreeMap::new();
    let mut callers = HashMap::new();
    let limit = range.limit.unwrap_or(u64::MAX);
    let mut goes_on = limit > 0;
    while goes_on && let Some(happened) = called.next(travel, range.end)? {
        match happened {
            Happened::Entered(call) if call.number < limit => {
                lines.insert(call.number, Line::begun(travel, symbols, functions, &mut callers, call)?);
                if call.number + 1 == limit {
                    called.enter_no_more();
                }
            }
            Happened::Ended(call, ended) => {
                if let Some(mut line) = lines.remove(&call.number) {
                    line.end(travel, symbols, functions, ended)?;
                    goes_on = show(&line) && (called.entered() < limit || !lines.is_empty());
                }
            }
            Happened::Entered(_) | Happened::Accessed(_) | Happened::Changed => {}
        }
    }
    travel.look_away()?;
    let _ = lines.values().all(show);
    Ok(called.entered().min(limit))
}

/// A call as it is shown.
pub(crate) struct Line {
    call: Call,
    pid: i32,
    function: String,
    arguments: Vec<Shown>,
    caller: Option<Place>,
    /// Where its result is to be put, if its caller said that.
    result_at: Option<u64>,
    result: Option<String>,
    ended: Option<(Ended, Position)>,
}

impl Line {
    /// A call that begins where one stands.
    fn begun(
        travel: &mut Travel,
        symbols: &mut Symbols,
        functions: &Functions,
        callers: &mut HashMap<(i32, usize, u64), Option<Place>>,
        call: Call,
    ) -> Result<Line, ReplayError> {
        let pid = travel.process().pid();
        let caller = callers.entry((pid, call.function, call.returns_to)).or_insert_with(|| {
            symbols.look(travel.process());
            symbols.place_of_call(call.returns_to)
        });
        let (function, signature) = functions.known.get(call.function).cloned().unwrap_or_default();
        let process = travel.process_mut();
        let Begun { arguments, result_at } = begun(process, symbols, signature.as_ref())?;
        let caller = caller.clone();
        Ok(Line { call, pid, function, arguments, caller, result_at, result: None, ended: None })
    }

    /// It has ended, where one stands.
    fn end(
        &mut self,
        travel: &mut Travel,
        symbols: &Symbols,
        functions: &Functions,
        ended: Ended,
    ) -> Result<(), ProcessError> {
        self.ended = Some((ended, travel.position()));
        if ended == Ended::Returned {
            let signature = functions.known.get(self.call.function).and_then(|(_, it)| it.as_ref());
            self.result = result(travel.process_mut(), symbols, signature, self.result_at)?;
        }
        Ok(())
    }

    pub(crate) fn as_json(&self) -> Value {
        let arguments = self.arguments.iter().map(|it| json!({ "name": it.name, "value": it.text }));
        let mut caller = json!({
            "rip": hex(self.call.returns_to),
            "place": self.caller.as_ref().map(Place::raw),
        });
        name_place(&mut caller, self.caller.as_ref());
        let ended = match self.ended {
            Some((Ended::Returned, _)) => "returned",
            Some((Ended::Left, _)) => "left",
            Some((Ended::Again, _)) => "again",
            None => "open",
        };
        json!({
            "position": self.call.position.to_string(),
            "pid": self.pid,
            "thread": self.call.thread,
            "address": hex(self.call.entry),
            "function": self.function,
            "depth": self.call.depth,
            "arguments": arguments.collect::<Vec<_>>(),
            "caller": caller,
            "result": self.result,
            "end": ended,
            "ended_at": self.ended.map(|(_, position)| position.to_string()),
        })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { position, thread, returns_to, .. } = self.call;
        write!(f, "{:<14} thread {thread:<7} {}(", position.to_string(), self.function)?;
        for (n, argument) in self.arguments.iter().enumerate() {
            let comma = if n > 0 { ", " } else { "" };
            let equals = if argument.name.is_empty() { "" } else { "=" };
            write!(f, "{comma}{}{equals}{}", argument.name, argument.text)?;
        }
        write!(f, ")")?;
        if let Some(result) = &self.result {
            write!(f, " = {result}")?;
        }
        match self.ended {
            Some((Ended::Returned, at)) => write!(f, "  until {at}")?,
            Some((Ended::Left, at)) => {
                write!(f, "  left without a return (longjmp, an exception) before {at}")?
            }
            Some((Ended::Again, at)) => {
                write!(f, "  began again at {at} (a jump to itself, or it was left)")?
            }
            None => write!(f, "  has not returned")?,
        }
        match &self.caller {
            Some(caller) => write!(f, "  from {caller}"),
            None => write!(f, "  from {returns_to:#x}"),
        }
    }
}
