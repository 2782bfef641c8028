//! Files that are read whole: only regular ones. A device gives bytes for ever, and to open a FIFO is to wait for a writer.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file for reading.
///
/// # Errors
/// When it cannot be opened, or is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let kind = file.metadata()?.file_type();
    match kind.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// The bytes of a file.
///
/// # Errors
/// As [`open`], and when it cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for path in [&fifo, Path::new("/dev/zero"), dir.path()] {
            assert!(read(path).unwrap_err().to_string().contains("not a regular file"), "{}", path.display());
        }
        std::fs::write(dir.path().join("file"), "text").unwrap();
        assert_eq!(read(&dir.path().join("file")).unwrap(), b"text");
    }
}
