//! What `monitor` asks for in gdb: where one is in the recording, and going elsewhere.

use super::target::Debugged;
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
";

/// Answers a command with lines of text.
pub(super) fn answer(debugged: &mut Debugged, command: &str) -> Result<String, ReplayError> {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words[..] {
        ["when"] => Ok(when(debugged)),
        ["goto", "start"] => {
            let begin = debugged.travel.begin();
            debugged.travel.seek(begin)?;
            Ok(when(debugged))
        }
        ["goto", "end"] => {
            debugged.travel.seek_end()?;
            debugged.say_damage();
            Ok(when(debugged))
        }
        ["goto", position] => match position.parse::<Position>() {
            Ok(position) => {
                let arrived = debugged.travel.seek(position)?;
                let note =
                    if arrived == position { "" } else { "the program does not stand at that position\n" };
                Ok(format!("{note}{}", when(debugged)))
            }
            Err(error) => Ok(format!("{error}\n")),
        },
        ["last-write", address, len] => match (number(address), number(len)) {
            (Some(address), Some(len)) if len > 0 => last_write(debugged, address, len),
            _ => Ok(format!("`{address}` and `{len}` are to be an address and a number of bytes\n")),
        },
        ["calls", function] => last_calls(debugged, function, LAST),
        ["calls", function, last] => match last.parse() {
            Ok(last) => last_calls(debugged, function, last),
            Err(_) => Ok(format!("`{last}` is to be a number of calls\n")),
        },
        ["heap", address] => match number(address) {
            Some(address) => heap(debugged, address),
            None => Ok(format!("`{address}` is to be an address\n")),
        },
        _ => Ok(HELP.to_owned()),
    }
}

fn when(debugged: &mut Debugged) -> String {
    let ended = debugged.travel.ended();
    Moment::of(debugged.travel.process(), &mut debugged.symbols, ended).to_string()
}

fn last_write(debugged: &mut Debugged, address: u64, len: u64) -> Result<String, ReplayError> {
    let data = vec![Watch { range: address..address.saturating_add(len), access: Access::Write }];
    let stop = debugged.travel.backward(&Lookout { at: Vec::new(), data })?;
    let found = match stop {
        Stop::Accessed(accessed) => {
            format!("written by the instruction at {}\n", place(debugged, accessed.rip))
        }
        Stop::Changed(_) => "written by the system call that comes next\n".to_owned(),
        Stop::Asked => "interrupted\n".to_owned(),
        _ => "not written since the beginning\n".to_owned(),
    };
    Ok(found + &when(debugged))
}

/// The last calls of a function that began before here; afterwards one stands here again.
fn last_calls(debugged: &mut Debugged, function: &str, last: usize) -> Result<String, ReplayError> {
    debugged.symbols.look(debugged.travel.process());
    let functions = match Functions::find(debugged.travel.process(), &debugged.symbols, function) {
        Ok(functions) => functions,
        Err(why) => return Ok(format!("{why}\n")),
    };
    let mut kept = VecDeque::new();
    let (_, note) = and_back(debugged, |travel, symbols, here| {
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
fn heap(debugged: &mut Debugged, address: u64) -> Result<String, ReplayError> {
    debugged.symbols.look(debugged.travel.process());
    let (text, note) =
        and_back(debugged, |travel, symbols, here| crate::heap::text(travel, symbols, address, here))?;
    Ok(text + note)
}

/// Looks through the recording, and comes back. The second is what is to be said besides.
fn and_back<T>(
    debugged: &mut Debugged,
    look: impl FnOnce(&mut Travel, &mut Symbols, Position) -> Result<T, ReplayError>,
) -> Result<(T, &'static str), ReplayError> {
    let Debugged { travel, symbols, .. } = debugged;
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
fn place(debugged: &mut Debugged, address: u64) -> String {
    debugged.symbols.look(debugged.travel.process());
    let place = debugged.symbols.place(address).map(|place| format!(" {place}")).unwrap_or_default();
    format!("{address:#x}{place}")
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
