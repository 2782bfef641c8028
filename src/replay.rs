//! `gretel replay`: runs a recording again, and checks that it goes as recorded.

use crate::Outcome;
use crate::ending;
use crate::engine::{self, Choice};
use crate::exit::{Code, Failure};
use crate::followed;
use crate::keeping;
use crate::kernel;
use crate::log::{say, spinner};
use crate::moment::Moment;
use crate::output::{print as print_out, written};
use crate::sandbox;
use crate::symbols::Symbols;
use crate::units::size_of;
use indicatif::ProgressBar;
use serde_json::json;
use std::cell::RefCell;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;
use vmm::checkpoints::Rate;
use vmm::engine::{EngineError, Machine};
use vmm::gate::GateError;
use vmm::interrupt;
use vmm::journal::End;
use vmm::position::Position;
use vmm::process::ProcessError;
use vmm::ram::for_replay;
use vmm::recording::Recording;
use vmm::replay::{Output, Replay, ReplayError, Replayed};
use vmm::timeline::{Kept, Pace, Timeline};

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
  gretel replay rec --to 120              the registers behind event 120
  gretel replay rec --to 120+5000         and 5,000 instructions later
  gretel replay rec --checkpoint-every 1  write checkpoints, so that --to takes less time

--to begins at the nearest checkpoint that `record` or `replay` wrote. The recording of a flight recorder begins at its \
window's first event. In the recording of a machine a position is a count of instructions.

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
    /// Go to this position and show the registers there: an event by its number, or EVENT+INSTRUCTIONS
    #[arg(long, value_name = "POSITION", conflicts_with = "output")]
    to: Option<Position>,
    /// Write checkpoints to the recording's folder this often, but for what would take more than half of the time, in place
    /// of those that are there
    #[arg(long, value_name = "SECONDS", value_parser = keeping::seconds, conflicts_with = "to")]
    checkpoint_every: Option<Duration>,
    /// Print the result as one JSON object
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let recording = Recording::open(&args.dir).map_err(|e| Failure::new(Code::Damaged, e))?;
    if kernel::is_one(&recording) {
        return machine(args, &recording);
    }
    let engine = engine::open(args.engine, for_replay())?;
    if let Some(position) = args.to {
        return show(args, &recording, engine, position);
    }
    sandbox::enter();
    let shown = Rc::new(RefCell::new(Ok(())));
    let to_streams = args.output.then(|| to_own_streams(Rc::clone(&shown)));
    let mut replay = Replay::start(&recording, engine, to_streams).map_err(failure)?;
    replay.shelf().notes().iter().for_each(|note| say!("gretel: {note}"));
    let begins = replay.window_begins();
    let (replayed, kept) = match args.checkpoint_every {
        Some(every) => match keep(args, replay, &recording, every)? {
            Some(Kept { replayed, checkpoints, bytes }) => (replayed, Some((checkpoints, bytes))),
            None => return Ok(interrupted()),
        },
        None => (replay.run_to_end().map_err(failure)?, None),
    };
    shown.replace(Ok(())).map_err(not_shown)?;
    io::stdout().flush().or_else(if_closed).map_err(not_shown)?;
    written(print(args, &replayed, begins, kept.map(|(checkpoints, _)| checkpoints)))?;
    if let Some((checkpoints, bytes)) = kept {
        say!("gretel: {}", what_was_kept(checkpoints, bytes, replayed.damage.is_some()));
    }
    if replayed.end == Some(End::Stopped) {
        say!("gretel: there the recorder could not go on, and said why (exit code {})", Code::Other as u8);
    }
    if replayed.end == Some(End::Full) {
        say!("gretel: there the recording had all the room on disk that --disk gave it; the program went on");
    }
    if replayed.end == Some(End::Kept) {
        say!("gretel: there the window was kept; the recording and the program went on");
    }
    if let Some(difference) = &replayed.crumbs.difference {
        say!("gretel: the replay is as the journal has it, but the ring of crumbs is not: {difference}");
        return Ok(Code::Damaged.into());
    }
    if let Some(damage) = &replayed.damage {
        if followed::say_damage(&args.dir, damage) {
            say!("gretel: the {} events before it were replayed and are as recorded", replayed.events);
        }
        return Ok(Code::Damaged.into());
    }
    Ok(ExitCode::SUCCESS)
}

/// Replays a machine, for which not all options are.
fn machine(args: &Args, recording: &Recording) -> Outcome {
    let refused = [
        (args.engine == Choice::Kvm, "--engine kvm", "it runs on the software CPU"),
        (
            args.checkpoint_every.is_some(),
            "--checkpoint-every",
            "it has those that were written as it was recorded",
        ),
    ];
    if let Some((_, option, why)) = refused.into_iter().find(|(is_given, ..)| *is_given) {
        let dir = recording.dir().display();
        return Err(Failure::new(
            Code::Usage,
            format!("{dir} is a recording of a machine: {option} is not for it, {why}"),
        ));
    }
    match args.to {
        Some(to) => kernel::show_moment(recording, to, args.json),
        None => kernel::replay(recording, args.output, args.json),
    }
}

/// What became of checkpoints that were to be written.
pub(crate) fn what_was_kept(checkpoints: u64, bytes: u64, damaged: bool) -> String {
    match checkpoints {
        0 if damaged => {
            "no checkpoint is written: what can be replayed was over before one was due".to_owned()
        }
        0 => "no checkpoint is written: the program ended before one was due".to_owned(),
        1 => format!("1 checkpoint is written, {}", size_of(bytes)),
        _ => format!("{checkpoints} checkpoints are written, {}", size_of(bytes)),
    }
}

/// What is said when a signal has ended the replay, and the exit code.
fn interrupted() -> ExitCode {
    say!("gretel: interrupted: no checkpoint is written, and those that were there are as they were");
    let signal = interrupt::arrived().unwrap_or(libc::SIGINT);
    ExitCode::from(128 + u8::try_from(signal).unwrap_or(0))
}

/// Replays, and writes checkpoints. They take the place of earlier ones when they are whole. `None` where a signal ended it.
fn keep(
    args: &Args,
    replay: Replay,
    recording: &Recording,
    every: Duration,
) -> Result<Option<Kept>, Failure> {
    if recording.flight().is_dir() {
        let why = "the recording of a flight recorder has its checkpoints: --checkpoint-every is for others";
        return Err(Failure::new(Code::Usage, why));
    }
    let unwritable = |error| Failure::new(Code::Write, format!("cannot write checkpoints: {error}"));
    let new = recording.begin_checkpoints().map_err(unwritable)?;
    let mut timeline = Timeline::of(replay, Pace::default()).map_err(failure)?;
    let bar = if args.output { ProgressBar::hidden() } else { spinner() };
    interrupt::stop_on_signals(timeline.replay().process().cpu().interrupter())
        .map_err(|e| Failure::new(Code::Other, format!("cannot handle signals: {e}")))?;
    let mut tell = |at: Position| {
        bar.set_message(format!("writing checkpoints; at {at}"));
        interrupt::arrived().is_none()
    };
    let kept = timeline.run_to_end_keeping(new, Rate::every(every), &mut tell);
    bar.finish_and_clear();
    recording.end_checkpoints(matches!(kept, Ok(Some(_)))).map_err(unwritable)?;
    kept.map_err(failure)
}

/// Shows the program at a position.
fn show(args: &Args, recording: &Recording, machine: Machine, position: Position) -> Outcome {
    let mut symbols = Symbols::of(&args.dir);
    sandbox::enter();
    let mut timeline = Timeline::open(recording, machine).map_err(failure)?;
    timeline.replay().shelf().notes().iter().for_each(|note| say!("gretel: {note}"));
    let arrived = timeline.seek(position).map_err(failure)?;
    let moment = Moment::of(timeline.replay().process(), &mut symbols, timeline.ended());
    if args.json {
        print_out(format_args!("{}\n", moment.as_json()))?;
    } else {
        print_out(format_args!("{moment}"))?;
    }
    if arrived > position && timeline.replay().window_begins() == Some(arrived) {
        say!("gretel: the window begins at {arrived}, behind {position}");
        return Ok(Code::Damaged.into());
    }
    if arrived < position {
        say!("gretel: the recording ends at {arrived}, before {position}");
        return Ok(Code::Damaged.into());
    }
    if arrived > position {
        say!("gretel: the program does not stand at {position}, but at {arrived} behind it");
    }
    Ok(ExitCode::SUCCESS)
}

/// Passes the program's output on to the same stream, up to the first error, which is kept.
fn to_own_streams(shown: Rc<RefCell<io::Result<()>>>) -> Output {
    Box::new(move |descriptor, bytes| {
        let mut shown = shown.borrow_mut();
        if shown.is_ok() {
            let written =
                if descriptor == 1 { io::stdout().write_all(bytes) } else { io::stderr().write_all(bytes) };
            *shown = written.or_else(if_closed);
        }
    })
}

/// Who closes the pipe does not want the output; the replay goes on to its result.
fn if_closed(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
}

fn not_shown(error: io::Error) -> Failure {
    Failure::new(Code::Write, format!("the replay is as recorded, but its output cannot be written: {error}"))
}

pub(crate) fn failure(error: ReplayError) -> Failure {
    let code = match &error {
        ReplayError::Recording(_) | ReplayError::Checkpoint(_) => Code::Damaged,
        ReplayError::Process(ProcessError::Gate(GateError::Diverged { .. })) => Code::Diverged,
        ReplayError::Process(ProcessError::Gate(_)) => Code::Damaged,
        ReplayError::Process(ProcessError::Engine(EngineError::Lacks { .. })) => Code::Host,
        ReplayError::Process(_) => Code::Other,
    };
    Failure::new(code, error)
}

/// Prints the result; `kept` checkpoints were written, where some were to be.
fn print(args: &Args, replayed: &Replayed, begins: Option<Position>, kept: Option<u64>) -> io::Result<()> {
    let (kind, number) = ending::word(replayed.end.as_ref());
    let engine = replayed.engine;
    let digest = format!("{:016x}", replayed.digest());
    if args.json {
        let object = json!({
            "equal": replayed.damage.is_none(),
            "end": kind,
            "status_or_signal": number,
            "begins": begins.map(|begins| begins.to_string()),
            "events": replayed.events,
            "comparisons": replayed.comparisons,
            "checkpoints_written": kept,
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
    let times = |n: u64| if n == 1 { "once".to_owned() } else { format!("{n} times") };
    let line = format!(
        "replayed on {engine}: {} events{}, memory compared {}, {kind}{number}, digest {digest}",
        replayed.events,
        begins.map(|begins| format!(" (from {begins} on)")).unwrap_or_default(),
        times(replayed.comparisons)
    );
    // With --output, stdout is the program's.
    if args.output { writeln!(io::stderr(), "{line}") } else { writeln!(io::stdout(), "{line}") }
}
