//! `gretel export`: a recording in the form of another tool.

mod axis;
mod perfetto;
mod samples;

use crate::Outcome;
use crate::engine::Choice;
use crate::exit::{Code, Failure};
use crate::followed;
use crate::log::say;
use crate::output::{Printed, written};
use crate::played::Played;
use axis::{Axis, Scale};
use perfetto::Writer;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmm::position::Position;

/// Write a recording as a trace that ui.perfetto.dev and chrome://tracing open, or as samples of its branches
///
/// Of the trace: each process of the program is a process of the trace, each task a lane with its system calls. The lane `processor` above
/// them shows which task ran. Signals, preemptions, starts, ends and crashes are marks. A click on any of them shows the event's
/// number (a position for `gretel replay --to`), the arguments and the result.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel export rec --perfetto -o trace.json              then open it at https://ui.perfetto.dev
  gretel export rec --perfetto --axis time -o trace.json
  gretel export rec --perfetto --from 5000 --to 6000      of a long recording, what concerns you
  gretel export rec --perfetto | jq '.traceEvents | length'
  gretel export rec --samples -o samples.txt              what perf record -b would have sampled, for gretel synth --samples

Axes:
  events         one microsecond of the trace is one event of the recording. The order is exact, and no call is too short to
                 be seen; the lengths say nothing of time.
  time           the program's CLOCK_MONOTONIC, from its first event on. The journal has the time at which a call came back, and
                 at which it began to wait; not when one that did not wait was made. The slice of such a call begins at the event
                 before it, so it has in it what the program computed in between.
  instructions   one nanosecond of the trace is one instruction of the program, counted on the software CPU. Calls that do not
                 wait have no length; a call that waits is as long as what others computed meanwhile.

The branch records of a crash, as perf script prints them: gretel core --format perf-script DIR.

A call that waited when --from begins is shown where it came back; one that waits when --to ends, up to there.

A recording whose end is missing or damaged is exported up to there, and the exit code is 123. A trace holds file names and \
data of the program: treat it as a secret.")]
pub(crate) struct Args {
    /// The recording's folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// In the Trace Event Format (JSON)
    #[arg(long, required_unless_present = "samples")]
    perfetto: bool,
    /// The branches that the program took, sampled now and then, as perf script prints those of perf record -b: the last 32 before
    /// each sample, and where files with code were mapped
    #[arg(long, conflicts_with_all = ["perfetto", "axis", "from", "to", "engine"])]
    samples: bool,
    /// One sample every so many instructions (default: 1000000, about what perf record takes)
    #[arg(long, value_name = "N", requires = "samples", value_parser = clap::value_parser!(u64).range(1..))]
    period: Option<u64>,
    /// The file; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// What the trace's time is
    #[arg(long, value_enum, default_value = "events")]
    axis: Axis,
    /// Begin at this position, from the nearest checkpoint before it
    #[arg(long, value_name = "POSITION")]
    from: Option<Position>,
    /// End behind this position
    #[arg(long, value_name = "POSITION")]
    to: Option<Position>,
    /// What runs the program; it need not be what recorded it
    #[arg(long, value_enum, default_value = "auto")]
    engine: Choice,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.samples {
        return samples::run(args);
    }
    let engine = match (args.axis, args.engine) {
        (Axis::Instructions, Choice::Kvm) => {
            let why = "KVM does not count instructions: --axis instructions needs --engine soft";
            return Err(Failure::new(Code::Usage, why));
        }
        (Axis::Instructions, _) => Choice::Soft,
        (_, engine) => engine,
    };
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from > to
    {
        return Err(Failure::new(Code::Usage, format!("--from {from} is behind --to {to}")));
    }
    let mut played = Played::open(&args.dir, engine)?;
    if let Some(from) = args.from {
        played.skip_to(from)?;
    }
    let mut out: Box<dyn Write> = match is_stdout(&args.output) {
        true => Box::new(BufWriter::new(io::stdout().lock())),
        false => Box::new(BufWriter::new(File::create(&args.output).map_err(|e| unwritable(args, &e))?)),
    };
    let mut writer = Writer::begin(&mut *out, Scale::new(args.axis), played.process());
    let (exported, ended) = (export(args, &mut played, &mut writer), writer.finish());
    let printed = exported?;
    let Exported { printed, to_the_end } = printed;
    if printed == Printed::Closed || wrote(args, ended.and_then(|()| out.flush()))? == Printed::Closed {
        return Ok(ExitCode::SUCCESS);
    }
    if !to_the_end {
        return Ok(ExitCode::SUCCESS);
    }
    let replayed = played.report()?;
    if let Some(damage) = &replayed.damage {
        if followed::say_damage(&args.dir, damage) {
            say!("gretel: the {} events before it are in the trace", replayed.events);
        }
        return Ok(Code::Damaged.into());
    }
    let end = played.position();
    if let Some(from) = args.from.filter(|from| *from > end) {
        say!("gretel: the recording ends at {end}, before {from}");
        return Ok(Code::Damaged.into());
    }
    Ok(ExitCode::SUCCESS)
}

/// How far a trace came.
struct Exported {
    printed: Printed,
    /// Not to where `--to` ends it.
    to_the_end: bool,
}

/// Writes what happens, up to the recording's end or `--to`.
fn export(args: &Args, played: &mut Played, writer: &mut Writer<'_>) -> Result<Exported, Failure> {
    while let Some(happenings) = played.next()? {
        for happening in &happenings {
            if args.to.is_some_and(|to| happening.position > to) {
                return Ok(Exported { printed: Printed::Yes, to_the_end: false });
            }
            if args.from.is_none_or(|from| happening.position >= from) {
                writer.put(happening);
            }
        }
        writer.name_task(played.process());
        if wrote(args, writer.written())? == Printed::Closed {
            return Ok(Exported { printed: Printed::Closed, to_the_end: true });
        }
    }
    Ok(Exported { printed: Printed::Yes, to_the_end: true })
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// What came of writing the trace.
fn wrote(args: &Args, result: io::Result<()>) -> Result<Printed, Failure> {
    if is_stdout(&args.output) {
        return written(result);
    }
    result.map(|()| Printed::Yes).map_err(|error| unwritable(args, &error))
}

fn unwritable(args: &Args, error: &io::Error) -> Failure {
    Failure::new(Code::Write, format!("cannot write {}: {error}", args.output.display()))
}
