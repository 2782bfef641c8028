//! A program at a position of its recording, as `gretel replay --to` shows it.

use crate::core_file::hex;
use crate::symbols::{Place, Symbols};
use serde_json::{Value, json};
use std::fmt;
use vmm::process::Process;
use x86::op::Gpr;

/// What a program is at a moment.
pub(crate) struct Moment {
    position: String,
    pid: i32,
    thread: i32,
    /// What had retired since the program's start, where that is counted.
    instructions: Option<u64>,
    place: Option<Place>,
    registers: Vec<(&'static str, u64)>,
    ended: bool,
}

impl Moment {
    /// The program as it stands; `ended` with its recording.
    pub(crate) fn of(process: &Process, symbols: &mut Symbols, ended: bool) -> Moment {
        let regs = process.cpu().regs();
        symbols.look(process);
        let place = symbols.place(regs.rip);
        let general = Gpr::NAMES.into_iter().zip(regs.gpr);
        let rest = [
            ("rip", regs.rip),
            ("rflags", regs.rflags),
            ("fs_base", regs.fs_base),
            ("gs_base", regs.gs_base),
        ];
        Moment {
            position: process.position().to_string(),
            pid: process.pid(),
            thread: process.thread(),
            instructions: process
                .cpu()
                .counters()
                .filter(|_| !process.counts_late())
                .map(|counters| counters.instructions),
            place,
            registers: general.chain(rest).collect(),
            ended,
        }
    }

    /// The same for scripts.
    pub(crate) fn as_json(&self) -> Value {
        let registers = self.registers.iter().map(|(name, value)| ((*name).to_owned(), hex(*value)));
        let mut object = json!({
            "position": self.position,
            "pid": self.pid,
            "thread": self.thread,
            "instructions": self.instructions,
            "place": self.place.as_ref().map(Place::raw),
            "registers": registers.collect::<serde_json::Map<_, _>>(),
            "ended": self.ended,
        });
        name_place(&mut object, self.place.as_ref());
        object
    }
}

/// Adds to an object for scripts the function and the source line of a place; null where they are not known.
pub(crate) fn name_place(object: &mut Value, place: Option<&Place>) {
    let line = place.and_then(Place::line);
    object["function"] = place.and_then(Place::function).into();
    object["inlined"] = place.and_then(Place::inlined).into();
    object["file"] = line.map(|(file, _)| file).into();
    object["line"] = line.map(|(_, line)| line).into();
}

/// Frames for scripts.
pub(crate) fn places<'a>(frames: impl IntoIterator<Item = &'a Place>) -> Vec<Value> {
    let named = |place: &Place| {
        let mut object = json!({ "place": place.raw() });
        name_place(&mut object, Some(place));
        object
    };
    frames.into_iter().map(named).collect()
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "position {}: process {}, thread {}", self.position, self.pid, self.thread)?;
        if let Some(instructions) = self.instructions {
            write!(f, ", {instructions} instructions since the start")?;
        }
        writeln!(f, "{}", if self.ended { ", at the recording's end" } else { "" })?;
        if let Some(place) = &self.place {
            writeln!(f, "at {place}")?;
        }
        for row in self.registers.chunks(4) {
            let cells = row.iter().map(|(name, value)| format!("{name:<7} {value:016x}"));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}
