//! `gretel replay`: runs a recording again, and checks that it goes as recorded.

use crate::Outcome;
use crate::engine::{self, Choice};
use crate::exit::{Code, Failure};
use crate::output::written;
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use vmm::engine::EngineError;
use vmm::gate::GateError;
use vmm::journal::End;
use vmm::process::ProcessError;
use vmm::recording::Recording;
use vmm::replay::{Output, Replay, ReplayError, Replayed};

/// Run a recording again, bit for bit, and compare at every event
///
/// Needs nothing but the folder: no file that the program read, no network, no time. Nothing outside is touched.
/// The registers are compared at every event, the memory at checkpoints and at the end; the first difference stops
/// the replay. The last line has a digest of the whole run: it is the same for every replay on every engine.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel replay rec
  gretel replay rec --engine soft
  gretel replay rec --output > what-it-printed
  gretel replay rec --json | jq -r .digest

A recording whose end is missing or damaged is replayed up to there, and the exit code is 123.")]
pub(crate) struct Args {
    /// The recording's folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// What runs the program; it need not be what recorded it
    #[arg(long, value_enum, default_value = "auto")]
    engine: Choice,
    /// Show what the program printed to its standard output and error
    #[arg(long)]
    output: bool,
    /// Print the result as one JSON object
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let recording = Recording::open(&args.dir).map_err(|e| Failure::new(Code::Damaged, e))?;
    let engine = engine::open(args.engine)?;
    let mut replay = Replay::start(&recording, engine, args.output.then(to_own_streams)).map_err(failure)?;
    let replayed = replay.run_to_end().map_err(failure)?;
    written(print(args, &replayed))?;
    if let Some(difference) = &replayed.crumbs.difference {
        eprintln!("gretel: the replay is as the journal has it, but the ring of crumbs is not: {difference}");
        return Ok(Code::Damaged.into());
    }
    if let Some(damage) = &replayed.damage {
        eprintln!("gretel: {damage}");
        eprintln!("gretel: the {} events before it were replayed and are as recorded", replayed.events);
        return Ok(Code::Damaged.into());
    }
    Ok(ExitCode::SUCCESS)
}

/// Passes the program's output on to the same stream.
fn to_own_streams() -> Output {
    Box::new(|descriptor, bytes| {
        // Who closes the pipe does not want the output; the replay goes on to its result.
        let _ = if descriptor == 1 { io::stdout().write_all(bytes) } else { io::stderr().write_all(bytes) };
    })
}

pub(crate) fn failure(error: ReplayError) -> Failure {
    let code = match &error {
        ReplayError::Recording(_) => Code::Damaged,
        ReplayError::Process(ProcessError::Gate(GateError::Diverged { .. })) => Code::Diverged,
        ReplayError::Process(ProcessError::Gate(_)) => Code::Damaged,
        ReplayError::Process(ProcessError::Engine(EngineError::Lacks { .. })) => Code::Host,
        ReplayError::Process(_) => Code::Other,
    };
    Failure::new(code, error)
}

fn print(args: &Args, replayed: &Replayed) -> io::Result<()> {
    let (kind, number) = match replayed.end {
        Some(End::Exited(status)) => ("exited", Some(status)),
        Some(End::Killed(death)) => ("killed", Some(death.signal)),
        Some(End::Interrupted) => ("interrupted", None),
        None => ("incomplete", None),
    };
    let engine = replayed.engine.name();
    let digest = format!("{:016x}", replayed.digest());
    if args.json {
        let object = json!({
            "equal": replayed.damage.is_none(),
            "end": kind,
            "status_or_signal": number,
            "events": replayed.events,
            "checkpoints": replayed.checkpoints,
            "crumbs_compared": replayed.crumbs.compared,
            "engine": engine,
            "digest": digest,
            "registers": format!("{:016x}", replayed.state.regs),
            "vectors": format!("{:016x}", replayed.state.fpu),
            "memory": format!("{:016x}", replayed.state.memory),
        });
        return writeln!(io::stdout(), "{object}");
    }
    let number = number.map(|n| format!(" {n}")).unwrap_or_default();
    let line = format!(
        "replayed on {engine}: {} events, {} checkpoints, {kind}{number}, digest {digest}",
        replayed.events, replayed.checkpoints
    );
    // With --output, stdout is the program's.
    if args.output { writeln!(io::stderr(), "{line}") } else { writeln!(io::stdout(), "{line}") }
}
