//! What `monitor` asks for in gdb: where one is in the recording, and going elsewhere.

use super::target::Debugged;
use crate::moment::Moment;
use vmm::engine::lookout::{Access, Lookout, Watch};
use vmm::position::Position;
use vmm::replay::ReplayError;
use vmm::travel::Stop;

const HELP: &str = "\
monitor when                 the position: EVENT+INSTRUCTIONS, and the registers
monitor goto POSITION        go there; also `start` and `end`. Then: `maintenance flush register-cache`, `thread`
monitor last-write ADDR LEN  go to before the last write to these bytes
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
