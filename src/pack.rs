//! `gretel pack` and `gretel unpack`: a recording in one file, and back.

use crate::exit::{Code, Failure};
use crate::log::say;
use crate::shell;
use crate::units::size_of;
use crate::{Outcome, keeping};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmm::pack::PackError;
use vmm::recording::{Recording, RecordingError};

/// The end of a pack's name.
const EXTENSION: &str = ".tar.zst";

/// Write a recording to one file, for another machine
///
/// The file has all that the recording has, also what is shared here, and a checksum. It is a tar under zstd; `gretel unpack`
/// makes the folder of it again, which replays there bit for bit.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel pack rec                      writes rec.tar.zst
  gretel pack rec -o /tmp/crash.tar.zst
  ssh host gretel unpack rec.tar.zst -o rec

A pack holds the program's memory and what it read, as the recording does: it is made with mode 0600.")]
pub(crate) struct Args {
    /// The recording's folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The file, which must not exist (default: DIR.tar.zst)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Make a recording of the file that `gretel pack` wrote
///
/// Takes files of a recording only, and nothing if the file is cut or altered. What recordings share is shared here too.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel unpack rec.tar.zst            makes rec
  gretel unpack rec.tar.zst -o crash && gretel replay crash")]
pub(crate) struct UnpackArgs {
    /// What `gretel pack` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The recording's folder: new, or empty (default: FILE's name without .tar.zst, here)
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let recording = Recording::open(&args.dir).map_err(|error| Failure::new(Code::Damaged, error))?;
    let file = match &args.output {
        Some(file) => file.clone(),
        None => beside(&args.dir)?,
    };
    let packed = vmm::pack::pack(&recording, &file).map_err(|error| failure(&error))?;
    let size = file.metadata().map_or(0, |found| found.len());
    let (files, bytes) = (packed.files, size_of(packed.bytes));
    say!("gretel: packed {files} files, {bytes}, into {} ({})", file.display(), size_of(size));
    say!("gretel: next: copy it, then gretel unpack {}", shell::word(&file));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn unpack(args: &UnpackArgs) -> Outcome {
    let dir = args.output.clone().or_else(|| without_extension(&args.file));
    let dir = dir.ok_or_else(|| {
        let why = format!("{} does not end in {EXTENSION}: give a folder with -o", args.file.display());
        Failure::new(Code::Usage, why)
    })?;
    let store = |recording: &Recording| recording.store(&keeping::stores());
    let unpacked = vmm::pack::unpack(&args.file, &dir, store).map_err(|error| failure(&error))?;
    let (files, bytes) = (unpacked.files, size_of(unpacked.bytes));
    say!("gretel: unpacked {files} files, {bytes}, to {}", dir.display());
    say!("gretel: next: gretel replay {}", shell::word(&dir));
    Ok(ExitCode::SUCCESS)
}

/// The folder's name with the extension: of `.` and `..` too.
fn beside(dir: &Path) -> Result<PathBuf, Failure> {
    let unreadable = |error| Failure::new(Code::Damaged, format!("cannot read {}: {error}", dir.display()));
    let dir =
        if dir.file_name().is_some() { dir.to_owned() } else { dir.canonicalize().map_err(unreadable)? };
    let mut name: OsString = dir.file_name().unwrap_or_default().to_owned();
    name.push(EXTENSION);
    Ok(dir.with_file_name(name))
}

/// In the current directory, as tar does it.
fn without_extension(file: &Path) -> Option<PathBuf> {
    let name = file.file_name()?.to_str()?.strip_suffix(EXTENSION)?;
    (!name.is_empty()).then(|| PathBuf::from(name))
}

fn failure(error: &PackError) -> Failure {
    let code = match error {
        PackError::Recording(
            RecordingError::Occupied { .. } | RecordingError::NoFolder { .. } | RecordingError::Busy { .. },
        ) => Code::Usage,
        PackError::Recording(RecordingError::Write { .. }) | PackError::Write { .. } => Code::Write,
        PackError::Recording(_) | PackError::Read { .. } | PackError::Damaged { .. } => Code::Damaged,
    };
    Failure::new(code, error)
}
