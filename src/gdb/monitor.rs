//! What `monitor` asks for in gdb: where one is in the recording, and going elsewhere.

use super::recorded::Recorded;
use crate::accesses::{Asked, passed_over};
use crate::calls::{self, Functions, Range};
use crate::events;
use crate::log::say;
use crate::moment::Moment;
use crate::named::{self, Named};
use crate::symbols::Symbols;
use crate::values::number;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use vmm::engine::lookout::{Access, Lookout, Watch};
use vmm::position::Position;
use vmm::replay::ReplayError;
use vmm::travel::{Stop, Travel};

/// So many calls are shown, if nothing else is said.
const LAST: usize = 10;
/// So many events or accesses are shown at once: gdb shows an answer when it is whole.
const MOST: usize = 1000;

const HELP: &str = "\
monitor when                 the position: EVENT+INSTRUCTIONS, and the registers
monitor goto POSITION        go there; also `start` and `end`
monitor last-write EXPR      go to before the last write to this variable; or to so many bytes, as ADDR LEN
monitor memory EXPR          every access to it, in order; with --writes, what writes alone
monitor calls FUNCTION [N]   the last N calls of a function that began before here (10, if there is no N)
monitor events [FILTERS]     what happened, with the options of `gretel events`: --kind --call --task --failed --from --to
monitor heap EXPR            what happened to the heap memory at an address, up to here
monitor refresh              with --follow: sees what was recorded since

With --json, each of them but `refresh` answers as the command of that name does (`when` and `goto`: as `gretel replay --to`).
EXPR is what C writes, in the innermost call that knows its names: list->head, main::count, *0x4052a8; ADDR is a number.
gdb's own `checkpoint` cannot work, since it forks the program: a position is one, and `monitor goto` returns to it.
A gdb that `gretel gdb` did not start, or that has no Python, needs `maintenance flush register-cache`, `maintenance flush dcache`,
`sharedlibrary` and `thread N` behind what goes elsewhere.
";

/// gdb reads the symbols of the process that it begins in, and of those whose forks it sees.
fn another_process(recorded: &Recorded, pid: i32, at: Position) -> String {
    let here = recorded.travel.process().pid();
    if here == pid {
        return String::new();
    }
    format!(
        "gdb stands in process {pid}, and {here} runs here: `gretel gdb DIR --at {at}` begins in it, with its symbols\n"
    )
}

/// Commands of gretel that are none of `monitor`.
const BESIDE: [&str; 2] = ["why", "core"];

/// Answers a command with lines of text; breakpoints and data are looked for in process `pid`.
pub(super) fn answer(recorded: &mut Recorded, command: &str, pid: i32) -> Result<String, ReplayError> {
    recorded.travel.follow(pid);
    recorded.travel.heed_kernel(false);
    let mut words: Vec<&str> = command.split_whitespace().collect();
    if let ["events", filters @ ..] = &words[..] {
        return match events::Asked::parse(filters) {
            Ok(asked) => listed(recorded, |travel, _| asked.lines(travel, MOST)),
            Err(why) => Ok(why),
        };
    }
    let all = words.len();
    words.retain(|word| *word != "--json");
    let json = words.len() < all;
    match words[..] {
        ["when"] => Ok(when(recorded, json)),
        ["goto", "start"] => {
            recorded.moved();
            let begin = recorded.travel.begin();
            recorded.travel.seek(begin)?;
            Ok(when(recorded, json))
        }
        ["goto", "end"] => {
            recorded.moved();
            recorded.travel.seek_end()?;
            recorded.say_damage();
            Ok(when(recorded, json))
        }
        ["goto", position] => match position.parse::<Position>() {
            Ok(position) => {
                recorded.moved();
                let arrived = recorded.travel.seek(position)?;
                if arrived != position && json {
                    say!("gretel: the program does not stand at {position}");
                }
                let elsewhere = arrived != position && !json;
                let note = if elsewhere { "the program does not stand at that position\n" } else { "" };
                let another = if json { String::new() } else { another_process(recorded, pid, arrived) };
                Ok(format!("{note}{}{another}", when(recorded, json)))
            }
            Err(error) => Ok(format!("{error}\n")),
        },
        ["last-write", ref asked @ ..] if !asked.is_empty() => {
            match named(recorded, asked, pid, true, json) {
                Ok((asked, meant)) => Ok(meant + &last_write(recorded, &asked)?),
                Err(why) => Ok(why),
            }
        }
        ["memory", ref asked @ ..] if !asked.is_empty() => {
            let (options, asked): (Vec<&str>, Vec<&str>) =
                asked.iter().partition(|word| **word == "--writes");
            match named(recorded, &asked, pid, !options.is_empty(), json) {
                Ok((asked, meant)) => Ok(meant + &memory(recorded, &asked)?),
                Err(why) => Ok(why),
            }
        }
        ["calls", function] => last_calls(recorded, function, LAST, json),
        ["calls", function, last] => match last.parse() {
            Ok(last) => last_calls(recorded, function, last, json),
            Err(_) => Ok(format!("`{last}` is to be a number of calls\n")),
        },
        ["heap", ref asked @ ..] if !asked.is_empty() => match pointed_to(recorded, &asked.join(" "), pid) {
            Ok(address) => heap(recorded, address, json),
            Err(why) => Ok(why),
        },
        [] | ["help"] => Ok(HELP.to_owned()),
        [name, ..] => {
            let known = HELP.lines().any(|line| line.split_whitespace().nth(1) == Some(name));
            let wrong = if known { "takes other words" } else { "is no command here" };
            let beside = BESIDE.contains(&name);
            let beside =
                if beside { format!(": `gretel {name}` outside of gdb is one") } else { String::new() };
            Ok(format!("`{name}` {wrong}{beside}\n{HELP}"))
        }
    }
}

fn when(recorded: &mut Recorded, json: bool) -> String {
    let ended = recorded.travel.ended();
    let moment = Moment::of(recorded.travel.process(), &mut recorded.symbols, ended);
    if json { format!("{}\n", moment.as_json()) } else { moment.to_string() }
}

/// The bytes that are asked for, by an expression, or by an address and a length, and what an expression means; else why there are none.
fn named(
    recorded: &mut Recorded,
    words: &[&str],
    pid: i32,
    writes: bool,
    json: bool,
) -> Result<(Asked, String), String> {
    let (name, length) = with_length(words);
    let named: Named = name.parse().map_err(|why| format!("{why}\n"))?;
    if let (Named::Address(address), Some(length)) = (&named, length) {
        let asked = Asked::of(*address, length, writes, json).map_err(|why| format!("{why}\n"))?;
        return Ok((asked, String::new()));
    }
    look_up_in(recorded, &named, pid)?;
    let found = named::bytes(&named, length, &mut recorded.travel, &recorded.symbols);
    let asked = found.and_then(|(range, meant)| {
        let asked = Asked::of(range.start, range.end - range.start, writes, json)?;
        Ok((asked, meant.filter(|_| !json).map(|meant| format!("{meant}\n")).unwrap_or_default()))
    });
    asked.map_err(|why| format!("{why}\n"))
}

/// The address that an expression is, or that it has; else why there is none.
fn pointed_to(recorded: &mut Recorded, name: &str, pid: i32) -> Result<u64, String> {
    let named: Named = name.parse().map_err(|why| format!("{why}\n"))?;
    look_up_in(recorded, &named, pid)?;
    let found = named::address(&named, &mut recorded.travel, &recorded.symbols);
    found.map(|(address, _)| address).map_err(|why| format!("{why}\n"))
}

/// Takes what is loaded, for who looks up names of a process; an error where another one is.
fn look_up_in(recorded: &mut Recorded, named: &Named, pid: i32) -> Result<(), String> {
    let here = recorded.travel.process().pid();
    if matches!(named, Named::Expression(_)) && here != pid {
        return Err(format!(
            "names are those of process {here}, which runs here, and gdb shows {pid}: say an address\n"
        ));
    }
    recorded.symbols.look(recorded.travel.process());
    Ok(())
}

/// An expression, and the number of bytes that may stand behind it: not where that number ends a sum or a comparison.
fn with_length(words: &[&str]) -> (String, Option<u64>) {
    if let [name @ .., length] = words
        && let Some(length) = number(length)
        && name.last().is_some_and(|last| !last.ends_with(['+', '-', '*', '&', '=', '<', '>', '|', '[']))
    {
        return (name.join(" "), Some(length));
    }
    (words.join(" "), None)
}

/// Every access to some bytes; afterwards one stands here again.
fn memory(recorded: &mut Recorded, asked: &Asked) -> Result<String, ReplayError> {
    listed(recorded, |travel, symbols| asked.lines(travel, symbols, MOST))
}

/// A list of the whole recording; afterwards one stands here again.
fn listed(
    recorded: &mut Recorded,
    list: impl FnOnce(&mut Travel, &mut Symbols) -> Result<(String, bool), ReplayError>,
) -> Result<String, ReplayError> {
    let ((text, is_all), note) = and_back(recorded, |travel, symbols, _| list(travel, symbols))?;
    let more = match is_all {
        true => String::new(),
        false => format!("these are the first {MOST}: the command line has no limit\n"),
    };
    Ok(text + &more + note)
}

fn last_write(recorded: &mut Recorded, asked: &Asked) -> Result<String, ReplayError> {
    let data = vec![Watch { range: asked.range.clone(), access: Access::Write }];
    recorded.moved();
    let stop = recorded.travel.backward(&Lookout { at: Vec::new(), data })?;
    let note = passed_over(&recorded.travel).map(|note| note + "\n").unwrap_or_default();
    if asked.json {
        return match stop {
            Stop::Accessed(_) | Stop::Changed(_) => {
                asked.next_write(&mut recorded.travel, &mut recorded.symbols, stop)
            }
            _ => Ok("null\n".to_owned()),
        };
    }
    let found = match stop {
        Stop::Accessed(accessed) => {
            format!("written by the instruction at {}\n", place(recorded, accessed.rip))
        }
        Stop::Changed(_) => "written by the system call that comes next\n".to_owned(),
        Stop::Asked => "interrupted\n".to_owned(),
        _ => "not written since the beginning\n".to_owned(),
    };
    Ok(found + &note + &when(recorded, false))
}

/// The last calls of a function that began before here; afterwards one stands here again.
fn last_calls(
    recorded: &mut Recorded,
    function: &str,
    last: usize,
    json: bool,
) -> Result<String, ReplayError> {
    recorded.symbols.look(recorded.travel.process());
    let functions = match Functions::find(recorded.travel.process(), &recorded.symbols, function) {
        Ok(functions) => functions,
        Err(why) => return Ok(format!("{why}\n")),
    };
    let mut kept = VecDeque::new();
    let (_, note) = and_back(recorded, |travel, symbols, here| {
        travel.seek(travel.begin())?;
        let range = Range { end: Some(here), limit: None };
        calls::each(travel, symbols, &functions, range, &mut |line| {
            kept.push_back(if json { format!("{}\n", line.as_json()) } else { format!("{line}\n") });
            kept.drain(..kept.len().saturating_sub(last));
            true
        })
    })?;
    if json {
        return Ok(kept.into_iter().collect());
    }
    let notes: String = functions.notes.iter().map(|note| format!("{note}\n")).collect();
    let calls = if kept.is_empty() {
        "nobody called it before here\n".to_owned()
    } else {
        kept.into_iter().collect()
    };
    Ok(notes + &calls + note)
}

/// The history of the memory at an address up to here; afterwards one stands here again.
fn heap(recorded: &mut Recorded, address: u64, json: bool) -> Result<String, ReplayError> {
    recorded.symbols.look(recorded.travel.process());
    let (text, note) =
        and_back(recorded, |travel, symbols, here| crate::heap::text(travel, symbols, address, here, json))?;
    Ok(text + note)
}

/// Looks through the recording, and comes back. The second is what is to be said besides.
fn and_back<T>(
    recorded: &mut Recorded,
    look: impl FnOnce(&mut Travel, &mut Symbols, Position) -> Result<T, ReplayError>,
) -> Result<(T, &'static str), ReplayError> {
    let Recorded { travel, symbols, .. } = recorded;
    let (here, ended) = (travel.position(), travel.ended());
    let found = look(travel, symbols, here)?;
    let asked = travel.asks().swap(false, Ordering::Relaxed);
    if ended {
        travel.seek_end()?;
    } else {
        travel.seek(here)?;
    }
    Ok((found, if asked { "interrupted: there may be more\n" } else { "" }))
}

/// An address with what it is in.
fn place(recorded: &mut Recorded, address: u64) -> String {
    recorded.symbols.look(recorded.travel.process());
    let place = recorded.symbols.place(address).map(|place| format!(" {place}")).unwrap_or_default();
    format!("{address:#x}{place}")
}
