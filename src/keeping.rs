//! What is kept of the past, and where: the options of `record` and `replay` for checkpoints and a flight recorder's window, and the
//! stores of files that recordings share.

use crate::exit::{Code, Failure};
use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::Duration;
use vmm::checkpoints::{Rate, Shelf};
use vmm::contents::Stores;
use vmm::contents::store::is_own_folder;
use vmm::ram::PAGE;
use vmm::recording::Recording;

/// The least room of a flight recorder: a checkpoint of a small program fits.
const LEAST_ROOM: u64 = 1 << 20;

/// The least room of a recording: its crumbs and a small program fit.
const LEAST_DISK: u64 = 1 << 20;

/// The least memory of a program: one that prints a line uses a few.
const LEAST_MEMORY: u64 = 16 << 20;

/// What `record` keeps.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Kept {
    /// Write a checkpoint this often, but for what would take more than half of the time, so that later seeks begin there; 0
    /// for none (default: every 5 seconds, less often where checkpoints would take more than a hundredth of the time, and a
    /// gigabyte at most)
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    checkpoint_every: Option<Duration>,
    /// Keep the newest part of the recording only, in so many bytes (256M, 2G; at least 1M): for programs that run for long
    #[arg(long, value_name = "SIZE", value_parser = room)]
    flight: Option<u64>,
    /// The most that the recording's folder may have on disk, but for cores (500M, 10G; at least 1M): there the recording ends, and the
    /// program goes on without. With --kernel: the image of the machine's disk; the image stays as it is, and behind `,ro` the guest
    /// may only read it
    #[arg(long, value_name = "SIZE|IMAGE", conflicts_with = "flight")]
    disk: Option<OsString>,
    /// The signal to gretel that keeps the window of --flight as it is now, in DIR/kept-1 and so on; the program does not get it
    #[arg(long, value_name = "SIGNAL", value_enum, default_value = "usr1", requires = "flight")]
    keep_on: KeepOn,
}

/// A signal that the program can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum KeepOn {
    /// SIGUSR1
    Usr1,
    /// SIGUSR2
    Usr2,
    /// No signal: all are the program's
    Never,
}

impl Kept {
    /// How often checkpoints are taken, if any are.
    pub(crate) fn rate(&self) -> Option<Rate> {
        match self.checkpoint_every {
            None => Some(Rate::default()),
            // A window begins with one all the same.
            Some(Duration::ZERO) => self.flight.map(|_| Rate::every(Duration::MAX)),
            Some(every) => Some(Rate::every(every)),
        }
    }

    /// The signal that keeps the window.
    pub(crate) fn window_signal(&self) -> Option<i32> {
        const SIGUSR1: i32 = 10;
        const SIGUSR2: i32 = 12;
        self.flight?;
        match self.keep_on {
            KeepOn::Usr1 => Some(SIGUSR1),
            KeepOn::Usr2 => Some(SIGUSR2),
            KeepOn::Never => None,
        }
    }

    /// The room of a recording that ends when that is used up.
    pub(crate) fn disk(&self) -> Result<Option<u64>, Failure> {
        let room = |text: &OsString| disk(&text.to_string_lossy());
        let room = self.disk.as_ref().map(room).transpose();
        room.map_err(|why| Failure::new(Code::Usage, format!("--disk without --kernel: {why}")))
    }

    /// The image of a machine's disk, as it was given.
    pub(crate) fn image(&self) -> Option<&OsStr> {
        self.disk.as_deref()
    }

    /// The room of a flight recorder.
    pub(crate) fn room(&self) -> Option<u64> {
        self.flight
    }
}

/// Where files may be that recordings share.
pub(crate) fn stores() -> Stores {
    Stores::of_environment(|name| std::env::var_os(name))
}

/// Where it is kept what was found in programs by looking through them: `gretel/searched` in the user's caches. `None` where there
/// is no such folder that is safe.
pub(crate) fn folder_of_findings() -> Option<PathBuf> {
    own_cache("searched")
}

/// Where compiled code is kept, in the same way: `gretel/code`.
pub(crate) fn folder_of_code() -> Option<PathBuf> {
    own_cache("code")
}

/// A folder in the user's caches, made if it is not there.
fn own_cache(name: &str) -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    let folder = caches.join("gretel").join(name);
    // It may be there; if it cannot be made, nothing is kept.
    let _ = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    is_own_folder(&folder).then_some(folder)
}

/// What to say of a window.
pub(crate) fn window(recording: &Recording) -> Option<String> {
    let shelf = Shelf::open(recording).ok()?;
    let begins = shelf.about(shelf.beginning()?)?.position;
    let segments = recording.segments().ok()?;
    let bytes: u64 = segments.iter().map(vmm::recording::Segment::size).sum();
    Some(format!("the window begins at event {begins} and has {bytes} bytes"))
}

/// A number of seconds, with a fraction or without.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 =
        text.parse().map_err(|_| "a number of seconds is needed, such as 5 or 0.5".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// The room of a window.
fn room(text: &str) -> Result<u64, String> {
    match size(text)? {
        ..LEAST_ROOM => Err("a window has 1M at least".to_owned()),
        bytes => Ok(bytes),
    }
}

/// The room of a recording.
fn disk(text: &str) -> Result<u64, String> {
    match size(text)? {
        ..LEAST_DISK => Err("a recording has 1M at least".to_owned()),
        bytes => Ok(bytes),
    }
}

/// The memory of a program.
pub(crate) fn memory(text: &str) -> Result<u64, String> {
    match size(text)? {
        ..LEAST_MEMORY => Err("16M is the least".to_owned()),
        bytes => Ok(bytes / PAGE * PAGE),
    }
}

/// A number of bytes, perhaps in K, M, G or T.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err("a size is needed, such as 256M".to_owned()),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "a size is needed, such as 256M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(room("256M"), Ok(256 << 20));
        assert_eq!(room("2g"), Ok(2 << 30));
        assert_eq!(room("1048576"), Ok(1 << 20));
        for refused in ["", "M", "1X", "10K", "99999999999T", "-1M", "1.5G"] {
            assert!(room(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn memory_is_whole_pages() {
        assert_eq!(memory("16777217"), Ok(16 << 20));
        assert!(memory("1M").is_err() && memory("x").is_err());
    }

    #[test]
    fn seconds_may_be_parts_of_one() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        assert!(seconds("-1").is_err() && seconds("soon").is_err() && seconds("1e99").is_err());
    }
}
