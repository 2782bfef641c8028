//! `gretel watch`: follows a recording while it is made.

use crate::Outcome;
use crate::core_file::place;
use crate::crumbs;
use crate::exit::{Code, Failure};
use crate::log::say;
use crate::output::{Printed, print};
use lbr::crumb::{Entry, Origin};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;
use synth::program::Program;

/// How often the ring is looked at. The recorder does not notice.
const POLL: Duration = Duration::from_millis(50);

/// Follow a recording while it is made: a line for each exit of the program
///
/// Reads the recording's ring of crumbs, from another process and without disturbing it. Ends when the recording does.
/// A program that exits faster than lines can be shown overwrites crumbs; how many is said on stderr.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel record -o rec -- ./prog & gretel watch rec
  gretel watch --json rec | jq -r .syscall_name")]
pub(crate) struct Args {
    /// The recording's folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// How many crumbs to begin with that are there already
    #[arg(long, value_name = "N", default_value_t = 10)]
    last: usize,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let damaged = |e| Failure::new(Code::Damaged, e);
    let mut ring = crumbs::open(&args.dir)?;
    let program = crumbs::program(&args.dir);
    let origin = ring.origin();
    let show = |entries: &[Entry]| show(args, origin, program.as_ref(), entries);
    let entries = ring.snapshot().map_err(damaged)?.entries;
    ring.skip_to(entries.last().map_or(0, |entry| entry.number));
    let mut printed = show(&entries[entries.len().saturating_sub(args.last)..])?;
    let mut running = true;
    while running && printed == Printed::Yes {
        // Asked first: what a writer leaves before it ends is then still read.
        running = ring.is_written().map_err(damaged)?;
        let (entries, lost) = ring.follow().map_err(damaged)?;
        if lost > 0 {
            say!("gretel: {lost} crumbs were overwritten before they could be read");
        }
        printed = show(&entries)?;
        if running {
            sleep(POLL);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A line for each crumb.
fn show(
    args: &Args,
    origin: Origin,
    program: Option<&Program>,
    entries: &[Entry],
) -> Result<Printed, Failure> {
    for entry in entries {
        let place = place(program, entry.crumb.rip);
        let printed = match args.json {
            true => print(format_args!("{}\n", crumbs::json(entry, &place)))?,
            false => print(format_args!("{}\n", crumbs::line(origin, entry, &place)))?,
        };
        if printed == Printed::Closed {
            return Ok(Printed::Closed);
        }
    }
    Ok(Printed::Yes)
}
