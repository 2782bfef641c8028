//! The descriptor table: the guest's own numbers, each for a file that the host has open while recording, and
//! for nothing while replaying.

use super::{Served, errno, host};
use crate::process::{ProcessError, Streams};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

/// How many descriptors a process may have (the usual RLIMIT_NOFILE).
pub(super) const LIMIT: usize = 1024;

/// An open file; `dup` makes a second descriptor for the same.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The host's descriptor.
    host: Host,
    /// Which of the three standard streams it is, wherever its descriptors moved.
    pub(crate) standard: Option<i32>,
}

#[derive(Debug)]
enum Host {
    /// There is none: this is a replay.
    Absent,
    /// Ours.
    Owned(OwnedFd),
    /// One of the standard streams, which belong to the whole program.
    Standard(RawFd),
}

impl OpenFile {
    /// A file that the host opened, or `None` at replay.
    pub(super) fn new(host: Option<OwnedFd>) -> Rc<OpenFile> {
        Rc::new(OpenFile { host: host.map_or(Host::Absent, Host::Owned), standard: None })
    }

    /// The host's descriptor; -1 at replay, where nothing may use it.
    pub(super) fn host(&self) -> RawFd {
        match &self.host {
            Host::Absent => -1,
            Host::Owned(descriptor) => descriptor.as_raw_fd(),
            Host::Standard(descriptor) => *descriptor,
        }
    }

    /// The number under which the gate is told of output: 0, 1 or 2 for a standard stream, -1 for any other
    /// file.
    pub(super) fn output_number(&self) -> i32 {
        self.standard.unwrap_or(-1)
    }
}

/// A descriptor.
#[derive(Clone, Debug)]
struct Descriptor {
    file: Rc<OpenFile>,
    close_on_exec: bool,
}

/// All descriptors by number, and the working directory.
#[derive(Debug)]
pub(crate) struct Descriptors {
    table: Vec<Option<Descriptor>>,
    directory: Rc<OpenFile>,
}

impl Descriptors {
    /// The three standard streams, and the working directory; neither is the host's at replay.
    pub(super) fn new(
        directory: &[u8],
        streams: Streams,
        replaying: bool,
    ) -> Result<Descriptors, ProcessError> {
        let hosts = match streams {
            _ if replaying => [Host::Absent, Host::Absent, Host::Absent],
            Streams::Inherited => [0, 1, 2].map(Host::Standard),
            Streams::Given(files) => files.map(Host::Owned),
        };
        let standard = |(host, number)| {
            let file = Rc::new(OpenFile { host, standard: Some(number) });
            Some(Descriptor { file, close_on_exec: false })
        };
        let directory = if replaying { None } else { Some(open_directory(directory)?) };
        Ok(Descriptors {
            table: hosts.into_iter().zip(0..).map(standard).collect(),
            directory: OpenFile::new(directory),
        })
    }

    /// The file of a descriptor.
    pub(super) fn get(&self, number: i32) -> Served<Rc<OpenFile>> {
        match self.slot(number) {
            Some(descriptor) => Ok(Rc::clone(&descriptor.file)),
            None => errno(libc::EBADF),
        }
    }

    fn slot(&self, number: i32) -> Option<&Descriptor> {
        self.table.get(usize::try_from(number).ok()?)?.as_ref()
    }

    /// Gives a file the lowest free number from `from` up.
    pub(super) fn install(&mut self, file: Rc<OpenFile>, close_on_exec: bool, from: usize) -> Served {
        let number = self.free(from)?;
        self.set(number, Some(Descriptor { file, close_on_exec }));
        Ok(number as u64)
    }

    /// The lowest free number from `from` up.
    pub(super) fn free(&self, from: usize) -> Served<usize> {
        let taken = |number: &usize| self.table.get(*number).is_some_and(Option::is_some);
        match (from..LIMIT).find(|number| !taken(number)) {
            Some(number) => Ok(number),
            None => errno(libc::EMFILE),
        }
    }

    /// Makes `number` a descriptor of `file`, in place of what it was.
    pub(super) fn replace(&mut self, number: i32, file: Rc<OpenFile>, close_on_exec: bool) -> Served {
        match usize::try_from(number) {
            Ok(slot) if slot < LIMIT => {
                self.set(slot, Some(Descriptor { file, close_on_exec }));
                Ok(slot as u64)
            }
            _ => errno(libc::EBADF),
        }
    }

    /// Takes a descriptor away; the file closes with its last one.
    pub(super) fn close(&mut self, number: i32) -> Served<()> {
        let slot = usize::try_from(number).ok().and_then(|slot| self.table.get_mut(slot));
        match slot.and_then(Option::take) {
            Some(_) => Ok(()),
            None => errno(libc::EBADF),
        }
    }

    /// Whether a descriptor is closed on exec.
    pub(super) fn close_on_exec(&self, number: i32) -> Served<bool> {
        self.slot(number).map_or_else(|| errno(libc::EBADF), |descriptor| Ok(descriptor.close_on_exec))
    }

    /// Sets whether a descriptor is closed on exec.
    pub(super) fn set_close_on_exec(&mut self, number: i32, close: bool) -> Served<()> {
        let slot = usize::try_from(number).ok().and_then(|slot| self.table.get_mut(slot));
        match slot.and_then(Option::as_mut) {
            Some(descriptor) => {
                descriptor.close_on_exec = close;
                Ok(())
            }
            None => errno(libc::EBADF),
        }
    }

    /// The working directory.
    pub(super) fn directory(&self) -> &Rc<OpenFile> {
        &self.directory
    }

    /// Changes the working directory.
    pub(super) fn set_directory(&mut self, directory: Rc<OpenFile>) {
        self.directory = directory;
    }

    /// The host's descriptor for a directory argument of an `*at` call. One that is not open is -1: the host
    /// ignores it for an absolute path and refuses it otherwise.
    pub(super) fn host_directory(&self, number: i32) -> RawFd {
        if number == libc::AT_FDCWD {
            return self.directory.host();
        }
        self.slot(number).map_or(-1, |descriptor| descriptor.file.host())
    }

    fn set(&mut self, number: usize, descriptor: Option<Descriptor>) {
        if self.table.len() <= number {
            self.table.resize(number + 1, None);
        }
        self.table[number] = descriptor;
    }
}

/// Opens the working directory; only names are looked up in it.
fn open_directory(path: &[u8]) -> Result<OwnedFd, ProcessError> {
    let shown = || String::from_utf8_lossy(path).into_owned();
    let name = CString::new(path)
        .map_err(|_| ProcessError::Launch("the working directory has a zero byte".into()))?;
    host::open(libc::AT_FDCWD, &name, libc::O_PATH | libc::O_DIRECTORY, 0).map_err(|error| {
        let error = std::io::Error::from_raw_os_error(i32::try_from(-error).unwrap_or(libc::EIO));
        ProcessError::Launch(format!("cannot open the working directory {}: {error}", shown()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_from_the_lowest_and_shared_by_dup() {
        let mut files = Descriptors::new(b"/", Streams::Inherited, true).expect("a replay opens nothing");
        let first = files.install(OpenFile::new(None), false, 0).expect("a number");
        let second = files.install(OpenFile::new(None), true, 0).expect("a number");
        assert_eq!((first, second), (3, 4));
        assert!(files.close_on_exec(4).expect("it is open"));
        files.close(1).expect("standard output");
        assert_eq!(files.install(OpenFile::new(None), false, 0).expect("a number"), 1);
        assert!(files.close(7).is_err() && files.close(-1).is_err() && files.get(5000).is_err());
        assert_eq!(files.install(OpenFile::new(None), false, 20).expect("a number"), 20);
    }

    #[test]
    fn a_standard_stream_is_known_under_another_number() {
        let mut files = Descriptors::new(b"/", Streams::Inherited, true).expect("a replay opens nothing");
        let output = files.get(1).expect("standard output");
        files.replace(9, output, false).expect("a number");
        assert_eq!(files.get(9).expect("it is open").output_number(), 1);
    }
}
