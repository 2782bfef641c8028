//! The journal: what the guest could not have computed, in order, and the digests that replay checks.
//!
//! Example: a `read` of three bytes is two records: the begin of an event (system call 0, the task, the digest of the
//! registers) and an input (result 3, the bytes and their address). [`writer`] puts both into the frame that waits and
//! appends it within 100 ms; [`reader`] gives them back in this order. If a bit of the third frame is flipped, the reader
//! gives the records of the first two, and then the offset of the damage.
//!
//! | part | module |
//! | --- | --- |
//! | what is recorded, byte by byte; the first record | [`schema`]; [`header`] |
//! | where the bytes of files are | [`contents`] |
//! | records packed into checksummed blocks | [`frame`] |
//! | appending while the guest runs, and reading back | [`writer`], [`reader`] |
//!
//! A recorder that is killed, or a disk that is full, costs at most the last unfinished frame: everything before it replays
//! (docs/formats.md).

mod contents;
pub mod frame;
mod header;
pub mod reader;
pub mod schema;
pub mod writer;

#[cfg(test)]
mod tests;

pub use crate::plain::numbers;
pub use header::Header;
pub use reader::Reader;
pub use schema::{End, Record};
pub use writer::{Cut, Writer};

use crate::contents::ContentError;
use std::path::PathBuf;

/// Why a journal cannot be used, or goes no further.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system's word.
    #[error("cannot read journal {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Its error.
        error: std::io::Error,
    },
    /// It is some other file.
    #[error("{} is not a gretel journal: it does not begin with the magic GRETELJ", path.display())]
    NotAJournal {
        /// The file.
        path: PathBuf,
    },
    /// It is of a kernel guest.
    #[error("{} is the journal of a machine with a kernel: replay, core, events, gdb and synth know such a recording, other commands do not", path.display())]
    OfAMachine {
        /// The file.
        path: PathBuf,
    },
    /// It is of another version of the format.
    #[error(
        "journal {} has format {found}, this gretel reads format {}: replay it with {} (`gretel --version` shows the format \
         it reads), or record again", path.display(), schema::VERSION, described(gretel.as_deref())
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// What it says.
        found: u32,
        /// The version of gretel that recorded it, where that can be read.
        gretel: Option<String>,
    },
    /// A file beside it is missing, or is another one.
    #[error(transparent)]
    Content(#[from] ContentError),
    /// Not even the first frame, which says what was run, is whole.
    #[error("journal {} is damaged at offset {offset:#x}: {why}; nothing of it can be replayed, record again",
        path.display())]
    NoHeader {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong there.
        why: String,
    },
}

/// The gretel that recorded, in a message.
fn described(version: Option<&str>) -> String {
    version.map_or_else(
        || "the gretel that recorded it".to_owned(),
        |it| format!("the gretel {it} that recorded it"),
    )
}

/// Where and why the usable part of a journal ends before its end record, or before the file does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Where the first bytes that cannot be used begin; the end of the file if the last frame is whole.
    pub offset: u64,
    /// How many bytes from there on are lost.
    pub lost: u64,
    /// What is wrong.
    pub why: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Damage { path, offset, lost, why } = self;
        write!(f, "journal {} is used up to offset {offset:#x}: {why}", path.display())?;
        if *lost > 0 {
            write!(f, " ({lost} bytes cannot be used)")?;
        }
        Ok(())
    }
}
