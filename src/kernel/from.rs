//! `gretel record --from REC[@N]`: a recording that begins at a checkpoint of another one, behind its boot.

use super::start::image;
use crate::exit::{Code, Failure};
use board::Machine;
use board::checkpoints::{self, Shelf, ShelfError};
use board::journal::{BEHAVIOUR, Header, JournalError, Reader};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use vmm::contents::{FOLDER, name};
use vmm::recording::Recording;

/// A checkpoint that was chosen, and a machine in its state.
pub(super) struct Chosen {
    pub(super) machine: Machine,
    shelf: Shelf,
    number: usize,
    /// The other recording's.
    header: Header,
    other: Recording,
}

impl Chosen {
    /// Reads `REC`, for the newest that can be used, or `REC@N`, and what could not be used.
    pub(super) fn parse(text: &OsStr) -> Result<(Chosen, Vec<String>), Failure> {
        let (path, number) = split(text);
        let other = Recording::open(path).map_err(|error| Failure::new(Code::Damaged, error))?;
        let unusable = |error: JournalError| Failure::new(Code::Damaged, error);
        let reader = Reader::open(&other.journal()).map_err(unusable)?;
        let header = reader.header().clone();
        let damaged = |error: ShelfError| Failure::new(Code::Damaged, error);
        let shelf = Shelf::open(&other.checkpoints()).map_err(damaged)?;
        let image = image(other.dir(), &header)?;
        let chosen = |number: usize| shelf.machine(number, image.clone());
        let mut notes: Vec<String> = shelf.damage().map(ToOwned::to_owned).into_iter().collect();
        if let Some(number) = number {
            let machine = chosen(number).map_err(damaged)?;
            return Ok((Chosen { machine, shelf, number, header, other }, notes));
        }
        for number in (0..shelf.len()).rev() {
            match chosen(number) {
                Ok(machine) => return Ok((Chosen { machine, shelf, number, header, other }, notes)),
                Err(error) => notes.push(error.to_string()),
            }
        }
        let why = format!(
            "{} has no checkpoint that can be used; name another recording, or boot with --kernel",
            path.display()
        );
        notes.push(why);
        Err(Failure::new(Code::Damaged, notes.join("\n")))
    }

    /// Makes the new recording whole without the other: its checkpoints up to this one, and its disk. The header, and who goes on writing
    /// checkpoints.
    pub(super) fn keep(&self, recording: &Recording) -> Result<(Header, checkpoints::Writer), Failure> {
        let unwritten = |error: ShelfError| Failure::new(Code::Write, error);
        let writer = checkpoints::Writer::go_on(&recording.checkpoints(), &self.shelf, self.number);
        let files = recording.dir().join(FOLDER);
        fs::create_dir(&files).map_err(|error| super::unwritable(&files, error))?;
        if let Some(disk) = self.header.disk {
            let [from, to] =
                [self.other.dir(), recording.dir()].map(|dir| dir.join(FOLDER).join(name(disk.image)));
            // On another file system it is copied.
            fs::hard_link(&from, &to)
                .or_else(|_| fs::copy(&from, &to).map(drop))
                .map_err(|error| super::unwritable(&to, error))?;
        }
        let header = Header {
            gretel: env!("CARGO_PKG_VERSION").to_owned(),
            behaviour: BEHAVIOUR,
            from: Some(self.number as u64),
            ..self.header.clone()
        };
        Ok((header, writer.map_err(unwritten)?))
    }
}

/// The recording, and the number of a checkpoint.
fn split(text: &OsStr) -> (&Path, Option<usize>) {
    let bytes = text.as_bytes();
    let split = bytes.iter().rposition(|byte| *byte == b'@').and_then(|at| {
        let number = std::str::from_utf8(&bytes[at + 1..]).ok()?.parse().ok()?;
        Some((Path::new(OsStr::from_bytes(&bytes[..at])), Some(number)))
    });
    split.unwrap_or_else(|| (Path::new(text), None))
}
