//! What `monitor` asks for in gdb: where one is in the recording, and going elsewhere.

use super::recorded::Recorded;
use crate::calls::{self, Functions, Range};
use crate::moment::Moment;
use crate::symbols::Symbols;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use vmm::engine::lookout::{Access, Lookout, Watch};
use vmm::position::Position;
use vmm::replay::ReplayError;
use vmm::travel::{Stop, Travel};

/// So many calls are shown, if nothing else is said.
const LAST: usize = 10;

const HELP: &str = "\
monitor when                 the position: EVENT+INSTRUCTIONS, and the registers
monitor goto POSITION        go there; also `start` and `end`. Then: `maintenance flush register-cache`, `thread`
monitor last-write ADDR LEN  go to before the last write to these bytes
monitor calls FUNCTION [N]   the last N calls of a function that began before here (10, if there is no N)
monitor heap ADDR            what happened to the heap memory at an address, up to here
monitor refresh              with --follow: sees what was recorded since

ADDR is a number: `eval \"monitor heap %p\", list->head` asks for the value of an expression.
gdb's own `checkpoint` cannot work, since it forks the program: a position is one, and `monitor goto` returns to it.
";

/// Commands of gretel that are none of `monitor`.
const BESIDE: [&str; 4] = ["events", "memory", "why", "core"];

/// Answers a command with lines of text; breakpoints and data are looked for in process `pid`.
pub(super) fn answer(recorded: &mut Recorded, command: &str, pid: i32) -> Result<String, ReplayError> {
    recorded.travel.follow(pid);
    recorded.travel.heed_kernel(false);
    let words: Vec<&str> = command.split_whitespace().collect();
    match words[..] {
        ["when"] => Ok(when(recorded)),
        ["goto", "start"] => {
            recorded.moved();
            let begin = recorded.travel.begin();
            recorded.travel.seek(begin)?;
            Ok(when(recorded))
        }
        ["goto", "end"] => {
            recorded.moved();
            recorded.travel.seek_end()?;
            recorded.say_damage();
            Ok(when(recorded))
        }
        ["goto", position] => match position.parse::<Position>() {
            Ok(position) => {
                recorded.moved();
                let arrived = recorded.travel.seek(position)?;
                let note =
                    if arrived == position { "" } else { "the program does not stand at that position\n" };
                Ok(format!("{note}{}", when(recorded)))
            }
            Err(error) => Ok(format!("{error}\n")),
        },
        ["last-write", address, len] => match (number(address), number(len)) {
            (Some(address), Some(len)) if len > 0 => last_write(recorded, address, len),
            _ => Ok(format!("`{address}` and `{len}` are to be an address and a number of bytes\n")),
        },
        ["calls", function] => last_calls(recorded, function, LAST),
        ["calls", function, last] => match last.parse() {
            Ok(last) => last_calls(recorded, function, last),
            Err(_) => Ok(format!("`{last}` is to be a number of calls\n")),
        },
        ["heap", address] => match number(address) {
            Some(address) => heap(recorded, address),
            None => Ok(format!("`{address}` is to be an address\n")),
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

fn when(recorded: &mut Recorded) -> String {
    let ended = recorded.travel.ended();
    Moment::of(recorded.travel.process(), &mut recorded.symbols, ended).to_string()
}

fn last_write(recorded: &mut Recorded, address: u64, len: u64) -> Result<String, ReplayError> {
    let data = vec![Watch { range: address..address.saturating_add(len), access: Access::Write }];
    recorded.moved();
    let stop = recorded.travel.backward(&Lookout { at: Vec::new(), data })?;
    let found = match stop {
        Stop::Accessed(accessed) => {
            format!("written by the instruction at {}\n", place(recorded, accessed.rip))
        }
        Stop::Changed(_) => "written by the system call that comes next\n".to_owned(),
        Stop::Asked => "interrupted\n".to_owned(),
        _ => "not written since the beginning\n".to_owned(),
    };
    Ok(found + &when(recorded))
}

/// The last calls of a function that began before here; afterwards one stands here again.
fn last_calls(recorded: &mut Recorded, function: &str, last: usize) -> Result<String, ReplayError> {
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
            kept.push_back(format!("{line}\n"));
            kept.drain(..kept.len().saturating_sub(last));
            true
        })
    })?;
    let notes: String = functions.notes.iter().map(|note| format!("{note}\n")).collect();
    let calls = if kept.is_empty() {
        "nobody called it before here\n".to_owned()
    } else {
        kept.into_iter().collect()
    };
    Ok(notes + &calls + note)
}

/// The history of the memory at an address up to here; afterwards one stands here again.
fn heap(recorded: &mut Recorded, address: u64) -> Result<String, ReplayError> {
    recorded.symbols.look(recorded.travel.process());
    let (text, note) =
        and_back(recorded, |travel, symbols, here| crate::heap::text(travel, symbols, address, here))?;
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

/// A number as people write it.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
