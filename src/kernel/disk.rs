//! `--disk IMAGE[,ro]`: the image of a machine's disk, and the copy of it that the recording keeps.

use crate::exit::{Code, Failure};
use crate::keeping;
use board::DiskImage;
use board::journal::Disk;
use lbr::regular;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use vmm::contents::{FOLDER, name, open, place_file};
use vmm::recording::Recording;

/// What was given.
pub(super) struct Given {
    path: PathBuf,
    read_only: bool,
    /// Bytes of memory that what the guest writes may take.
    room: u64,
}

impl Given {
    /// Reads `IMAGE` or `IMAGE,ro`, of which so many bytes may be written.
    pub(super) fn parse(text: &OsStr, room: u64) -> Given {
        let bytes = text.as_bytes();
        let path = bytes.strip_suffix(b",ro");
        let (path, read_only) = (path.unwrap_or(bytes), path.is_some());
        Given { path: PathBuf::from(OsStr::from_bytes(path)), read_only, room }
    }

    /// The image itself.
    pub(super) fn image(&self) -> Result<DiskImage, Failure> {
        let image =
            regular::open(&self.path).and_then(|file| DiskImage::new(file, self.read_only, self.room));
        image.map_err(|error| {
            Failure::new(Code::Program, format!("the disk {}: {error}", self.path.display()))
        })
    }

    /// Keeps the image with the recording, by its content: what the header says of it, and the copy.
    pub(super) fn keep(&self, recording: &Recording) -> Result<(Disk, DiskImage), Failure> {
        let unkept = |error: io::Error| {
            Failure::new(Code::Write, format!("cannot keep the disk {}: {error}", self.path.display()))
        };
        let folder = recording.dir().join(FOLDER);
        let store = recording.store(&keeping::stores());
        let digest = place_file(store.as_ref(), &folder, &self.path).map_err(unkept)?;
        let copy = File::open(folder.join(name(digest)));
        let copy = copy.and_then(|file| DiskImage::new(file, self.read_only, self.room)).map_err(unkept)?;
        Ok((Disk { image: digest, read_only: self.read_only, room: self.room }, copy))
    }
}

/// The copy that a recording has.
pub(super) fn kept(folder: &Path, disk: Disk) -> Result<DiskImage, Failure> {
    let file = open(folder, disk.image).map_err(|error| Failure::new(Code::Damaged, error))?;
    let path = folder.join(name(disk.image));
    DiskImage::new(file, disk.read_only, disk.room)
        .map_err(|error| Failure::new(Code::Damaged, format!("{}: {error}", path.display())))
}
