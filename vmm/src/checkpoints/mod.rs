//! Checkpoints on disk: what a replay begins at instead of the start, and what the window of a flight recorder begins with.
//!
//! Example: a program with 100 MB in use stores to three pages between two checkpoints. The first checkpoint writes all its
//! pages; the second writes three, and the numbers of all. `gretel replay --to` a position behind both reads the second,
//! and runs forward from there.
//!
//! | part | module |
//! | --- | --- |
//! | writing a file: a page that is there already is not written again | [`store`] |
//! | reading a file, and what of it is in memory already | [`index`], [`loaded`] |
//! | taking checkpoints of a program that is being recorded, and how often | [`keeper`], [`rate`] |
//! | the thread that writes them, and a window that has no room to move | [`worker`], [`stall`] |
//! | all that a recording has of both journal and checkpoints, whether it is whole or a window | [`shelf`] |
//!
//! A file is a preamble (magic `GRETELC\n`, format version) and frames as the journal has them (`journal::frame`), of four
//! kinds:
//!
//! | marker | content |
//! | --- | --- |
//! | `GIDN` | the first frame: the digest of the journal's header, by which checkpoints of another recording are known |
//! | `GPAG` | pages, 4096 bytes each; the n-th of the file is known by the number n |
//! | `GCHK` | a checkpoint: the numbers of its pages, the versions of their frames, and all else that the program is |
//! | `GMRK` | where the program stood at the checkpoint before it, and where the journal goes on ([`About`]) |
//!
//! A checkpoint counts once its mark is whole. Files are append-only: what a killed recorder leaves ends inside a frame,
//! and everything before it can be used.

pub(crate) mod index;
pub(crate) mod keeper;
pub(crate) mod loaded;
mod rate;
pub mod shelf;
mod stall;
mod store;
#[cfg(test)]
mod tests;
mod worker;

use crate::engine::Counters;
use crate::failure::ProcessError;
use crate::journal::Header;
use crate::plain::plain;
use crate::position::Position;
pub use rate::Rate;
pub use shelf::Shelf;
use std::io;
use std::path::PathBuf;
pub(crate) use worker::Flight;
use xxhash_rust::xxh3::xxh3_64;

/// The first bytes of a file of checkpoints.
const MAGIC: &[u8; 8] = b"GRETELC\n";
/// The version of its format: of what [`crate::plain`] writes, and of all types that it writes. What a program sees is
/// [`crate::journal::schema::BEHAVIOUR`], in the journal's header.
pub const VERSION: u32 = 2;
const IDENTITY: &[u8; 4] = b"GIDN";
const PAGES: &[u8; 4] = b"GPAG";
const CHECKPOINT: &[u8; 4] = b"GCHK";
const MARK: &[u8; 4] = b"GMRK";

/// Where a program stood at a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// The position.
    pub position: Position,
    /// What had retired since the program's start, if the recorder counted.
    pub counters: Option<Counters>,
    /// How much processor time it takes to run from the start to there, in nanoseconds.
    pub spent: u64,
    /// How many digests of the whole program the journal has before it.
    pub comparisons: u64,
    /// The frame of the journal with which it goes on: its offset and its number.
    pub offset: u64,
    /// See `offset`.
    pub sequence: u32,
    /// How many records of that frame are before it.
    pub record: u64,
}
plain!(struct About { position, counters, spent, comparisons, offset, sequence, record });

/// Why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file system's word.
    #[error("cannot read the checkpoints in {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Its error.
        error: io::Error,
    },
    /// It is some other file.
    #[error("{} holds no checkpoints: it does not begin with the magic GRETELC", path.display())]
    NotCheckpoints {
        /// The file.
        path: PathBuf,
    },
    /// It is of another version of the format.
    #[error("the checkpoints in {} have format {found}, this gretel reads format {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// What it says.
        found: u32,
    },
    /// It belongs to another journal.
    #[error("the checkpoints in {} are of another recording", path.display())]
    OtherRecording {
        /// The file.
        path: PathBuf,
    },
    /// Something in it is not what was written.
    #[error("the checkpoints in {} are damaged at offset {offset:#x}: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong there.
        why: String,
    },
    /// There is none to begin with.
    #[error("{} has no segment that begins with a whole checkpoint{why}", path.display())]
    NoBeginning {
        /// The folder.
        path: PathBuf,
        /// Of each segment, behind a semicolon.
        why: String,
    },
    /// The program cannot be made what it was.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// What checkpoints and their journal have in common.
fn identity(header: &Header) -> u64 {
    xxh3_64(&header.encode())
}
