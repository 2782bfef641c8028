//! The descriptor table: the guest's own numbers, each for a file that the host has open while recording, and
//! for nothing while replaying.

use super::network::Endpoint;
use super::sharing::Inode;
use super::terminal::{self, Side};
use super::{Served, errno, host};
use crate::failure::ProcessError;
use crate::plain::{In, Out, Plain, plain, shared};
use crate::program::OuterTerminal;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::{Rc, Weak};

/// How many descriptors a process may have at most (`fs.nr_open`).
pub(super) const LIMIT: usize = 65_536;

/// An open file; `dup` makes a second descriptor for the same.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The host's descriptor.
    host: Host,
    /// Which of the three standard streams it is, wherever its descriptors moved.
    pub(crate) standard: Option<i32>,
    /// The process that it is a descriptor of.
    process: Option<i32>,
    /// The regular file that it is.
    inode: Option<Inode>,
    /// The number of the open message queue that it is.
    queue: Option<u64>,
    /// What is read of it, if that is computed.
    source: Option<Source>,
    /// Which end of a pseudo-terminal of the guest's it is.
    terminal: Option<Side>,
    /// The socket that it is.
    endpoint: Option<Endpoint>,
    /// It is open as a place alone (O_PATH).
    only_path: bool,
    /// How many bytes of it may be read without a question before ([`host::read_at_once`]), once that is known.
    pub(super) at_once: Cell<Option<usize>>,
    /// The host's descriptors by which its epoll sets know it, by the guest's; `None`: the one that it has anyway. A set takes a file once for
    /// each number, of which the guest may have many and the host has one.
    pub(super) numbers: RefCell<BTreeMap<i32, Option<OwnedFd>>>,
}

/// What is read of a descriptor whose content is computed, by object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// How often a timer has expired (timerfd).
    Timer(u64),
    /// Signals (signalfd).
    Signals(u64),
    /// A file of /proc.
    Proc(u64),
    /// Nothing: an epoll set.
    Set,
}
plain!(enum Source { 0 = Timer(a), 1 = Signals(a), 2 = Proc(a), 3 = Set });

#[derive(Debug)]
enum Host {
    /// There is none: this is a replay.
    Absent,
    /// Ours.
    Owned(OwnedFd),
    /// One of the standard streams, which belong to the whole program.
    Standard(RawFd),
}

shared!(Rc<OpenFile>);

impl Plain for OpenFile {
    /// What the host has open for it is left out.
    fn put(&self, out: &mut Out) {
        let OpenFile {
            host: _,
            standard,
            process,
            inode,
            queue,
            source,
            terminal,
            endpoint,
            only_path,
            at_once: _,
            numbers: _,
        } = self;
        ((*standard, *process), (*inode, (*queue, *source))).put(out);
        (*terminal, (*endpoint, *only_path)).put(out);
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        let ((standard, process), (inode, (queue, source))) = Plain::take(from)?;
        let (terminal, (endpoint, only_path)) = Plain::take(from)?;
        let file = OpenFile::of(None);
        Some(OpenFile { standard, process, inode, queue, source, terminal, endpoint, only_path, ..file })
    }
}

impl Plain for Weak<OpenFile> {
    /// One that leads to nothing any more is written as none.
    fn put(&self, out: &mut Out) {
        self.upgrade().put(out);
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        let file: Option<Rc<OpenFile>> = Plain::take(from)?;
        Some(file.map(|file| Rc::downgrade(&file)).unwrap_or_default())
    }
}

impl OpenFile {
    /// A file that the host opened, or `None` at replay.
    pub(super) fn new(host: Option<OwnedFd>) -> Rc<OpenFile> {
        Rc::new(OpenFile::of(host))
    }

    fn of(host: Option<OwnedFd>) -> OpenFile {
        let host = host.map_or(Host::Absent, Host::Owned);
        OpenFile {
            host,
            standard: None,
            process: None,
            inode: None,
            queue: None,
            source: None,
            terminal: None,
            endpoint: None,
            only_path: false,
            at_once: Cell::new(None),
            numbers: RefCell::default(),
        }
    }

    /// A file that the host opened, of which it is known whether it is a regular one.
    pub(super) fn of_file(host: Option<OwnedFd>, inode: Option<Inode>) -> Rc<OpenFile> {
        Rc::new(OpenFile { inode, ..OpenFile::of(host) })
    }

    /// One that is open as a place alone (O_PATH): it is neither read nor written, nor anything else done to it.
    pub(super) fn of_path(host: Option<OwnedFd>, inode: Option<Inode>) -> Rc<OpenFile> {
        Rc::new(OpenFile { inode, only_path: true, ..OpenFile::of(host) })
    }

    /// The same, of what was open before: what goes to a standard stream is its output by this way, too.
    pub(super) fn opened_again(
        host: Option<OwnedFd>,
        inode: Option<Inode>,
        before: &OpenFile,
    ) -> Rc<OpenFile> {
        Rc::new(OpenFile { inode, standard: before.standard, ..OpenFile::of(host) })
    }

    /// An open message queue; the host's descriptor tells poll what it needs.
    pub(super) fn of_queue(host: Option<OwnedFd>, number: u64) -> Rc<OpenFile> {
        Rc::new(OpenFile { queue: Some(number), ..OpenFile::of(host) })
    }

    /// An end of a pseudo-terminal of the guest's.
    pub(super) fn of_terminal(host: Option<OwnedFd>, side: Side) -> Rc<OpenFile> {
        Rc::new(OpenFile { terminal: Some(side), ..OpenFile::of(host) })
    }

    /// Which end of a pseudo-terminal of the guest's it is.
    pub(super) fn terminal(&self) -> Option<Side> {
        self.terminal
    }

    /// The regular file that it is.
    pub(super) fn inode(&self) -> Option<Inode> {
        self.inode
    }

    /// The number of the open message queue that it is.
    pub(super) fn queue(&self) -> Option<u64> {
        self.queue
    }

    /// A descriptor of a process; the host's is readable when it has ended.
    pub(super) fn of_process(host: Option<OwnedFd>, pid: i32) -> Rc<OpenFile> {
        Rc::new(OpenFile { process: Some(pid), ..OpenFile::of(host) })
    }

    /// A descriptor whose content is computed; the host's is an eventfd, readable while there is something.
    pub(super) fn computed(host: Option<OwnedFd>, source: Source) -> Rc<OpenFile> {
        Rc::new(OpenFile { source: Some(source), ..OpenFile::of(host) })
    }

    /// A socket.
    pub(super) fn of_socket(host: Option<OwnedFd>, endpoint: Endpoint) -> Rc<OpenFile> {
        Rc::new(OpenFile { endpoint: Some(endpoint), ..OpenFile::of(host) })
    }

    /// The socket that it is.
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        self.endpoint
    }

    /// What is read of it, if that is computed.
    pub(super) fn source(&self) -> Option<Source> {
        self.source
    }

    /// Makes the host's eventfd readable, or empties it.
    pub(super) fn set_readable(&self, readable: bool) {
        let eventfd = self.host();
        if eventfd < 0 {
            return;
        }
        if readable {
            host::write(eventfd, &1_u64.to_le_bytes(), None);
        } else if host::poll(&mut [libc::pollfd { fd: eventfd, events: libc::POLLIN, revents: 0 }]) > 0 {
            host::read(eventfd, &mut [0; 8], None);
        }
    }

    /// The process that it is a descriptor of.
    pub(super) fn process(&self) -> Option<i32> {
        self.process
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

/// Copies of open files that no host has open, as at replay. What is one file stays one.
#[derive(Default)]
pub(super) struct Detached {
    copies: HashMap<*const OpenFile, Rc<OpenFile>>,
}

impl Detached {
    /// The copy of a file.
    pub(super) fn file(&mut self, file: &Rc<OpenFile>) -> Rc<OpenFile> {
        let copy = || {
            Rc::new(OpenFile {
                standard: file.standard,
                process: file.process,
                inode: file.inode,
                queue: file.queue,
                source: file.source,
                terminal: file.terminal,
                endpoint: file.endpoint,
                ..OpenFile::of(None)
            })
        };
        Rc::clone(self.copies.entry(Rc::as_ptr(file)).or_insert_with(copy))
    }
}

/// A descriptor.
#[derive(Clone, Debug)]
struct Descriptor {
    file: Rc<OpenFile>,
    close_on_exec: bool,
}
plain!(struct Descriptor { file, close_on_exec });

/// All descriptors by number.
#[derive(Clone, Debug)]
pub(crate) struct Descriptors {
    table: Vec<Option<Descriptor>>,
    /// How many there may be.
    limit: usize,
}
plain!(struct Descriptors { table, limit });

/// Where relative paths begin, and which rights new files do not get.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The working directory.
    pub(super) directory: Rc<OpenFile>,
    /// The root directory, if that is not the host's (chroot).
    pub(super) root: Option<Rc<OpenFile>>,
    pub(super) umask: u32,
}
plain!(struct Place { directory, root, umask });

impl Place {
    /// Opens the working directory, unless this is a replay.
    pub(super) fn new(directory: &[u8], umask: u32, replaying: bool) -> Result<Place, ProcessError> {
        let directory = if replaying { None } else { Some(open_directory(directory)?) };
        Ok(Place { directory: OpenFile::new(directory), root: None, umask })
    }

    /// The same with no host's file.
    pub(super) fn detached(&self, files: &mut Detached) -> Place {
        let root = self.root.as_ref().map(|root| files.file(root));
        Place { directory: files.file(&self.directory), root, umask: self.umask }
    }
}

impl Descriptors {
    /// The three standard streams, ours unless others are given, some of which may be the terminal that gretel was started on; they are
    /// not the host's at replay.
    pub(super) fn new(
        given: Option<[OwnedFd; 3]>,
        outer: Option<OuterTerminal>,
        replaying: bool,
    ) -> Descriptors {
        let hosts = match given {
            _ if replaying => [Host::Absent, Host::Absent, Host::Absent],
            None => [0, 1, 2].map(Host::Standard),
            Some(files) => files.map(Host::Owned),
        };
        let is_outer = outer.map_or([false; 3], |outer| outer.streams);
        let standard = |((host, number), is_outer): ((Host, i32), bool)| {
            let terminal = is_outer.then_some(Side::Slave(terminal::OUTER));
            let file = Rc::new(OpenFile { host, standard: Some(number), terminal, ..OpenFile::of(None) });
            Some(Descriptor { file, close_on_exec: false })
        };
        Descriptors { table: hosts.into_iter().zip(0..).zip(is_outer).map(standard).collect(), limit: LIMIT }
    }

    /// Sets how many there may be; those that are open stay.
    pub(super) fn set_limit(&mut self, limit: u64) {
        self.limit = usize::try_from(limit).unwrap_or(LIMIT).min(LIMIT);
    }

    /// How many the table has room for: 64, and more when there were more (`alloc_fdtable` of fs/file.c).
    pub(super) fn room(&self) -> usize {
        self.table.len().next_power_of_two().max(64)
    }

    /// How many there may be.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// The same with no host's files.
    pub(super) fn detached(&self, files: &mut Detached) -> Descriptors {
        let mut copy = self.clone();
        for descriptor in copy.table.iter_mut().flatten() {
            descriptor.file = files.file(&descriptor.file);
        }
        copy
    }

    /// Closes what is not to be open behind an exec, and gives it.
    pub(super) fn close_for_exec(&mut self) -> Vec<Rc<OpenFile>> {
        let closed = |slot: &mut Option<Descriptor>| slot.take_if(|descriptor| descriptor.close_on_exec);
        self.table.iter_mut().filter_map(closed).map(|descriptor| descriptor.file).collect()
    }

    /// All open files.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Rc<OpenFile>)> {
        let slots = self.table.iter().enumerate();
        slots.filter_map(|(number, slot)| slot.as_ref().map(|descriptor| (number, &descriptor.file)))
    }

    /// The file of a descriptor.
    pub(super) fn get(&self, number: i32) -> Served<Rc<OpenFile>> {
        match self.slot(number) {
            Some(descriptor) => Ok(Rc::clone(&descriptor.file)),
            None => errno(libc::EBADF),
        }
    }

    /// Whether a descriptor is open as a place alone (O_PATH).
    pub(super) fn is_only_path(&self, number: i32) -> bool {
        self.slot(number).is_some_and(|descriptor| descriptor.file.only_path)
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
        match (from..self.limit).find(|number| !taken(number)) {
            Some(number) => Ok(number),
            None => errno(libc::EMFILE),
        }
    }

    /// Makes `number` a descriptor of `file`, in place of what it was.
    pub(super) fn replace(&mut self, number: i32, file: Rc<OpenFile>, close_on_exec: bool) -> Served {
        match usize::try_from(number) {
            Ok(slot) if slot < self.limit => {
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

    /// Makes `number` a descriptor from the start, whatever the limit.
    pub(super) fn begin_with(&mut self, number: usize, file: Rc<OpenFile>) {
        self.set(number, Some(Descriptor { file, close_on_exec: false }));
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
        let mut files = Descriptors::new(None, None, true);
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
    fn there_are_as_many_as_the_limit_says_and_no_more_than_the_most() {
        let mut files = Descriptors::new(None, None, true);
        let install = |files: &mut Descriptors, from| files.install(OpenFile::new(None), false, from).ok();
        files.set_limit(1024);
        assert_eq!(install(&mut files, 1024), None);
        files.set_limit(2000);
        assert_eq!(install(&mut files, 1999), Some(1999));
        assert_eq!(install(&mut files, 1999), None);
        files.set_limit(u64::MAX);
        assert_eq!((install(&mut files, LIMIT - 1), install(&mut files, LIMIT)), (Some(65_535), None));
    }

    #[test]
    fn files_that_are_detached_stay_one() {
        let mut files = Descriptors::new(None, None, false);
        let output = files.get(1).expect("standard output");
        files.replace(5, output, false).expect("a number");
        let mut detached = Detached::default();
        let copy = files.detached(&mut detached);
        let (one, other) = (copy.get(1).expect("it is open"), copy.get(5).expect("it is open"));
        assert!(Rc::ptr_eq(&one, &other) && !Rc::ptr_eq(&one, &files.get(1).expect("it is open")));
        assert_eq!((one.host(), one.standard), (-1, Some(1)));
    }

    #[test]
    fn a_standard_stream_is_known_under_another_number() {
        let mut files = Descriptors::new(None, None, true);
        let output = files.get(1).expect("standard output");
        files.replace(9, output, false).expect("a number");
        assert_eq!(files.get(9).expect("it is open").output_number(), 1);
    }
}
