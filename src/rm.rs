//! `gretel rm`: removes recordings, and what only they used.

use crate::exit::{Code, Failure};
use crate::log::say;
use crate::output::print;
use crate::units::{duration, size_of};
use crate::{Outcome, keeping, ls};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vmm::listing::remove;
use vmm::recording::{Recording, RecordingError};

/// Remove recordings, and the shared files that no other recording uses
///
/// Removes a recording's own files and its folder, nothing else: a folder in which there is anything else is left as it is, and so
/// is a recording that is still being recorded.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel rm rec                        this one
  gretel rm --keep 5                   all recordings here but the newest five
  gretel rm --older 7d /var/recordings those there that ended more than a week ago
  gretel rm --all                      all recordings here

With --all, --older and --keep, a recording that cannot be removed is told and left. One that is named is a failure: exit \
code 120 if it is being recorded or has other things in its folder, 123 if it is no recording, 125 if files cannot be removed.")]
pub(crate) struct Args {
    /// Recordings; with --all, --older or --keep, folders of them (default: the current directory)
    #[arg(value_name = "DIR", required_unless_present_any = ["all", "older", "keep"])]
    dirs: Vec<PathBuf>,
    /// All recordings in the folder
    #[arg(long, conflicts_with_all = ["older", "keep"])]
    all: bool,
    /// Those that ended longer ago than this (90s, 30m, 12h, 7d, 2w)
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "keep")]
    older: Option<Duration>,
    /// All but the newest N
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let is_named = !args.all && args.older.is_none() && args.keep.is_none();
    if is_named {
        for dir in &args.dirs {
            let recording = Recording::open(dir).map_err(failure)?;
            remove_one(&recording).map_err(failure)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut unwritable = None;
    for recording in chosen(args)? {
        match remove_one(&recording) {
            Ok(()) => {}
            Err(error @ (RecordingError::Busy { .. } | RecordingError::OtherThings { .. })) => {
                say!("gretel: {error}");
            }
            Err(error) => {
                say!("gretel: {error}");
                unwritable = Some(Code::Write);
            }
        }
    }
    Ok(unwritable.map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// Those that an option says.
fn chosen(args: &Args) -> Result<Vec<Recording>, Failure> {
    let mut found = ls::find(&args.dirs)?;
    if let Some(keep) = args.keep {
        found.truncate(found.len().saturating_sub(keep));
    }
    if let Some(older) = args.older {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let before = u64::try_from(now.saturating_sub(older).as_nanos()).unwrap_or(u64::MAX);
        found.retain(|summary| summary.written < before);
    }
    Ok(found.into_iter().map(|summary| summary.recording).collect())
}

fn remove_one(recording: &Recording) -> Result<(), RecordingError> {
    let freed = remove(recording, &keeping::stores())?;
    // It is gone, whether or not that can be said.
    let _ = print(format_args!("removed {}, {} freed\n", recording.dir().display(), size_of(freed)));
    Ok(())
}

fn failure(error: RecordingError) -> Failure {
    let code = match &error {
        RecordingError::Busy { .. } | RecordingError::OtherThings { .. } => Code::Usage,
        RecordingError::Write { .. } => Code::Write,
        _ => Code::Damaged,
    };
    Failure::new(code, error)
}
