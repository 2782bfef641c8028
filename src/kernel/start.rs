//! Where the recording of a machine begins, and where else a machine can begin in it: the boot, and checkpoints.

use super::disk;
use crate::engine::keep_code;
use crate::exit::{Code, Failure};
use board::checkpoints::{Shelf, ShelfError};
use board::journal::{Header, Reader, Record};
use board::travel::Starts;
use board::{BootError, DiskImage, Machine, Setup};
use std::path::{Path, PathBuf};
use vmm::contents::{FOLDER, read};
use vmm::recording::Recording;

/// What was booted, from the files of the recording.
fn setup(dir: &Path, header: &Header) -> Result<Setup, Failure> {
    let folder = dir.join(FOLDER);
    let file = |digest| read(&folder, digest).map_err(|error| Failure::new(Code::Damaged, error));
    Ok(Setup {
        kernel: file(header.kernel)?,
        initrd: header.initrd.map(file).transpose()?,
        command_line: header.command_line.clone(),
        memory: header.memory,
        start: header.start,
        disk: image(dir, header)?,
        extras: header.extras,
    })
}

/// Why a kernel's file is not booted: what of the command line it is that cannot be.
pub(super) fn not_booted(kernel: &Path, error: &BootError) -> Failure {
    let kernel = kernel.display();
    match error {
        BootError::Memory(_) => Failure::new(Code::Usage, format!("--memory: {error}")),
        BootError::CommandLine(_) => Failure::new(Code::Usage, format!("--cmdline: {error}")),
        BootError::NoRoom { .. } => {
            Failure::new(Code::Program, format!("{kernel}: {error}: give it more with --memory"))
        }
        _ => Failure::new(Code::Program, format!("{kernel}: {error}")),
    }
}

/// The file of the kernel that was booted.
pub(crate) fn file(recording: &Recording) -> Result<Vec<u8>, Failure> {
    let damaged = |error: &dyn std::error::Error| Failure::new(Code::Damaged, error.to_string());
    let reader = Reader::open(&recording.journal()).map_err(|error| damaged(&error))?;
    read(&recording.dir().join(FOLDER), reader.header().kernel).map_err(|error| damaged(&error))
}

/// The image of its disk, if it has one.
pub(super) fn image(dir: &Path, header: &Header) -> Result<Option<DiskImage>, Failure> {
    header.disk.map(|disk| disk::kept(&dir.join(FOLDER), disk)).transpose()
}

/// The machine that a recording begins with.
pub(super) fn first(recording: &Recording, header: &Header) -> Result<Machine, Failure> {
    let Some(from) = header.from else {
        let setup = setup(recording.dir(), header)?;
        let booted = Machine::boot(&setup).map_err(|error| Failure::new(Code::Damaged, error))?;
        return Ok(with_code(booted, header));
    };
    let damaged = |error: ShelfError| Failure::new(Code::Damaged, error);
    let shelf = Shelf::open(&recording.checkpoints()).map_err(damaged)?;
    let from = usize::try_from(from).unwrap_or(usize::MAX);
    let machine = shelf.machine(from, image(recording.dir(), header)?).map_err(damaged)?;
    Ok(with_code(machine, header))
}

/// A machine that has run nothing, with the code that earlier ones have compiled of its kernel.
pub(super) fn with_code(mut machine: Machine, header: &Header) -> Machine {
    keep_code();
    machine.keep_code(header.kernel);
    machine
}

/// All of them.
pub(crate) struct Places {
    dir: PathBuf,
    header: Header,
    shelf: Option<Shelf>,
    /// The numbers of the checkpoints, in the order of `list`, which begins with the start of the recording.
    numbers: Vec<usize>,
    list: Vec<(u64, u64)>,
}

impl Places {
    /// Those of a recording, and what is wrong with its checkpoints.
    pub(crate) fn of(recording: &Recording, header: &Header) -> (Places, Vec<String>) {
        let mut places = Places {
            dir: recording.dir().to_owned(),
            header: header.clone(),
            shelf: None,
            numbers: Vec::new(),
            list: vec![(0, 0)],
        };
        let mut notes = Vec::new();
        let path = recording.checkpoints();
        if path.exists() {
            match Shelf::open(&path) {
                Ok(shelf) => places.add(shelf, &mut notes),
                Err(error) => notes.push(error.to_string()),
            }
        }
        (places, notes)
    }

    fn add(&mut self, shelf: Shelf, notes: &mut Vec<String>) {
        notes.extend(shelf.damage().map(ToOwned::to_owned));
        // Those before it are of the recording that this one goes on from.
        let from = self.header.from.map(|from| usize::try_from(from).unwrap_or(usize::MAX));
        if let Some(Ok((at, _))) = from.map(|from| shelf.about(from)) {
            self.list[0] = (at.retired, 0);
        }
        for number in from.map_or(0, |from| from.saturating_add(1))..shelf.len() {
            match shelf.about(number) {
                Ok((at, records)) => {
                    self.numbers.push(number);
                    self.list.push((at.retired, records));
                }
                Err(error) => notes.push(error.to_string()),
            }
        }
        self.shelf = Some(shelf);
    }
}

impl Starts for Places {
    fn list(&self) -> &[(u64, u64)] {
        &self.list
    }

    fn machine(&self, start: usize) -> Result<Machine, String> {
        let in_words = |failure: Failure| failure.to_string();
        let number = start.checked_sub(1).and_then(|n| self.numbers.get(n));
        match (number, &self.shelf) {
            (Some(number), Some(shelf)) => {
                let image = image(&self.dir, &self.header).map_err(in_words)?;
                let machine = shelf.machine(*number, image).map_err(|error| error.to_string())?;
                Ok(with_code(machine, &self.header))
            }
            _ => {
                let recording = Recording::open(&self.dir).map_err(|error| error.to_string())?;
                first(&recording, &self.header).map_err(in_words)
            }
        }
    }
}

/// All records of a journal, and what is wrong with its end.
pub(crate) fn records(reader: &mut Reader) -> (Vec<Record>, Option<String>) {
    let mut records = Vec::new();
    loop {
        match reader.take() {
            Ok(Some(record)) => records.push(record),
            Ok(None) => return (records, None),
            Err(damage) => return (records, Some(damage.to_string())),
        }
    }
}
