//! `gretel replay` of a machine.

use super::shown::Shown;
use super::start::first;
use super::{seconds, sentence, word};
use crate::Outcome;
use crate::exit::{Code, Failure};
use crate::log::say;
use crate::output::{print, written};
use crate::sandbox;
use board::journal::{JournalError, Reader};
use board::replay::{ReplayError, Replayed, replay};
use serde_json::json;
use std::fs::File;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use vmm::journal::frame::MAGIC_OF_MACHINES;
use vmm::recording::Recording;

/// Whether a recording is one of a machine.
pub(crate) fn is_one(recording: &Recording) -> bool {
    let mut magic = Vec::new();
    let file = File::open(recording.journal());
    let read = file.and_then(|file| file.take(MAGIC_OF_MACHINES.len() as u64).read_to_end(&mut magic));
    read.is_ok() && magic == MAGIC_OF_MACHINES
}

/// Replays it, and shows what it prints if `output`, the result as JSON if `as_json`.
pub(crate) fn run(recording: &Recording, output: bool, as_json: bool) -> Outcome {
    let unusable = |error: JournalError| Failure::new(Code::Damaged, error);
    let mut reader = Reader::open(&recording.journal()).map_err(unusable)?;
    let mut machine = first(recording, reader.header())?;
    sandbox::enter();
    let mut shown = Shown::default();
    let mut show = |bytes: &[u8]| if output { show(&mut shown, bytes) } else { Ok(()) };
    let replayed = replay(&mut machine, &mut reader, &mut show);
    shown.finish();
    let replayed = replayed.map_err(|error| failure(&error))?;
    if as_json {
        print(format_args!("{}\n", result(&replayed)))?;
    } else {
        let line = format!(
            "replayed on soft: {} bytes typed, {} digests compared, {}; {} instructions, {} s by the guest's clock, digest {:016x}",
            replayed.typed,
            replayed.compared,
            replayed.end.as_ref().map_or_else(|| "incomplete".to_owned(), sentence),
            replayed.at.retired,
            seconds(replayed.at.time),
            replayed.digests.state ^ replayed.digests.memory
        );
        // With --output, stdout is the guest's.
        written(if output { writeln!(io::stderr(), "{line}") } else { writeln!(io::stdout(), "{line}") })?;
    }
    let Some(damage) = &replayed.damage else { return Ok(ExitCode::SUCCESS) };
    say!("gretel: {damage}");
    say!("gretel: the {} records before it were replayed and are as recorded", replayed.compared);
    Ok(Code::Damaged.into())
}

fn show(shown: &mut Shown, bytes: &[u8]) -> io::Result<()> {
    written(shown.show(bytes)).map(|_| ()).map_err(|failure| io::Error::other(failure.to_string()))
}

pub(super) fn failure(error: &ReplayError) -> Failure {
    let code = match error {
        ReplayError::Shown(_) => Code::Write,
        _ => Code::Diverged,
    };
    Failure::new(code, error)
}

fn result(replayed: &Replayed) -> serde_json::Value {
    json!({
        "equal": replayed.damage.is_none(),
        "end": replayed.end.as_ref().map_or("incomplete", word),
        "typed": replayed.typed,
        "compared": replayed.compared,
        "instructions": replayed.at.retired,
        "nanoseconds": replayed.at.time,
        "state": format!("{:016x}", replayed.digests.state),
        "memory": format!("{:016x}", replayed.digests.memory),
    })
}
