//! ELF core files: gretel's own, and those that the Linux kernel or gdb wrote.
//!
//! [`parse`] reads one (hostile input: every offset is checked, and what a cut file lacks is listed rather than guessed; memory is
//! mapped, not copied), [`write`](mod@write) makes one as Linux does, so that gdb opens it as it is. [`notes`] holds the layouts of
//! the note records that both use. The layouts are those of Linux's `fs/binfmt_elf.c` and `include/uapi/linux/elfcore.h`; gretel's
//! own notes carry the owner name `gretel` (docs/formats.md). [`unwind`] walks the stack, [`build_id`] tells files of one name apart.
//! [`unsaid`] are mappings that gdb's cores have no segment for. [`machine`] makes a core of a machine with a kernel.

pub mod build_id;
mod bytes;
mod expression;
pub mod machine;
pub mod notes;
mod parse;
mod pieces;
mod signal;
mod signal_frame;
mod unsaid;
pub mod unwind;
mod unwind_tables;
pub mod write;

#[cfg(test)]
mod tests;

pub use crate::memory::Rights;
pub use bytes::Bytes;
pub use parse::CoreError;
pub use signal::{SignalInfo, signal_name};

use lbr::View;
use parse::Pages;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use x86::state::State;

impl std::fmt::Display for Rights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let letter = |on, letter| if on { letter } else { '-' };
        write!(f, "{}{}{}", letter(self.read, 'r'), letter(self.write, 'w'), letter(self.execute, 'x'))
    }
}

/// A piece of the dead program's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// First address behind what was written into the core: `start` where the kernel left the mapping out.
    pub dumped: u64,
    /// What was allowed there.
    pub rights: Rights,
    /// The bytes from `start` on that the core holds: all up to `dumped`, or, in a cut file, some.
    pub data: Bytes,
}

/// A file that was mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Offset in the file of the byte at `start`.
    pub offset: u64,
    /// The file's name as the dead program's system knew it.
    pub path: String,
}

/// Who the dead process was.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ProcessInfo {
    /// Its process id.
    pub pid: i32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// The beginning of its command line, at most 79 bytes.
    pub arguments: String,
}

/// A part of the core that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where in the file it begins to fail.
    pub offset: u64,
    /// What is missing or cannot be used.
    pub what: String,
    /// The memory that is missing since the file is cut; where it is something else, empty.
    pub missing: Range<u64>,
}

impl Damage {
    /// Damage that is no gap in memory.
    pub(crate) fn new(offset: u64, what: impl Into<String>) -> Damage {
        Damage { offset, what: what.into(), missing: 0..0 }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "offset {:#x}: {}", self.offset, self.what)
    }
}

/// A core file.
#[derive(Clone, Debug)]
pub struct Core {
    /// The file that it was read from.
    pub path: PathBuf,
    /// The registers of the thread that crashed.
    pub state: State,
    /// Why it died.
    pub signal: SignalInfo,
    /// Its memory, by address, without overlaps.
    pub segments: Vec<Segment>,
    /// The files that were mapped, by address.
    pub files: Vec<FileMapping>,
    /// The auxiliary vector: (type, value), without the final AT_NULL.
    pub auxv: Vec<(u64, u64)>,
    /// Who it was.
    pub process: ProcessInfo,
    /// The threads that the core holds, by id, with their registers: first the one that crashed.
    pub threads: Vec<(i32, State)>,
    /// The bytes of gretel's branch trail note.
    pub trail_bytes: Option<Vec<u8>>,
    /// Retired instructions, taken branches and conditional branches at the crash, where they were counted.
    pub counters: Option<crate::engine::Counters>,
    /// The bytes of gretel's note of the newest crumbs.
    pub crumb_bytes: Option<Vec<u8>>,
    /// The bytes of gretel's note of the words of call sites.
    pub context_bytes: Option<Vec<u8>>,
    /// How gretel made the core: `key: value` lines. `None` in a core that the kernel wrote.
    pub origin: Option<String>,
    /// What the file lacks, in the order of the file; empty for a whole one.
    pub damage: Vec<Damage>,
    /// Bytes from the executable for what the core leaves out, by address.
    backing: Vec<Segment>,
    /// The file, if it is mapped.
    view: Option<Arc<View>>,
    /// Of a machine with a kernel: what a process does not have.
    pub machine: Option<Arc<machine::Machine>>,
}

/// The line of [`Core::origin`] with the number of threads that were ever started, the first included.
pub const THREADS_STARTED: &str = "threads started:";
/// Auxiliary vector type of the program headers' address.
pub const AT_PHDR: u64 = 3;
/// Auxiliary vector type of the entry point.
pub const AT_ENTRY: u64 = 9;
/// Auxiliary vector type of the vDSO's address.
pub const AT_SYSINFO_EHDR: u64 = 33;

/// A file whose code ran.
#[derive(Clone, Copy, Debug)]
pub struct Module<'a> {
    /// The bytes of the file.
    pub bytes: &'a [u8],
    /// What was added to the addresses in it.
    pub bias: u64,
    /// The symbols and line tables that were taken out of it, where they are installed.
    pub debug: Option<&'a [u8]>,
}

/// A shared library, or the dynamic linker, that was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The file.
    pub path: PathBuf,
    /// Where its beginning was mapped.
    pub start: u64,
}

impl Core {
    /// Reads the core at `path`.
    ///
    /// # Errors
    /// When it is not an x86-64 ELF core, or is cut so early that it has no registers. A core that is cut
    /// later is read as far as it goes; see [`Core::damage`].
    pub fn open(path: &Path) -> Result<Core, CoreError> {
        parse::open(path)
    }

    /// Whether somebody truncated the file since it was opened: zeros were seen in place of what is gone.
    #[must_use]
    pub fn was_cut(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.is_cut())
    }

    /// Takes what the core leaves out from the executable that ran: Linux writes no pages that are as they are
    /// in a file (`coredump_filter`). Only addresses that the core says were mapped are filled, and none of those that
    /// were written and are missing, since the file was cut: the program may have changed them.
    ///
    /// # Errors
    /// When the file cannot be read or is not an x86-64 ELF program.
    pub fn with_executable(mut self, path: &Path) -> Result<Core, CoreError> {
        self.backing = parse::backing(path, &self.auxv, Pages::Whole)?;
        Ok(self)
    }

    /// Where the core has other code than this executable: how many bytes, and the first address.
    ///
    /// # Errors
    /// When the file cannot be read or is not an x86-64 ELF program.
    pub fn differing_code(&self, executable: &Path) -> Result<(usize, Option<u64>), CoreError> {
        let pieces = parse::backing(executable, &self.auxv, Pages::Own)?;
        let code = pieces.iter().filter(|piece| piece.rights.execute);
        let mut differing = code.flat_map(|piece| self.differing(piece)).peekable();
        let first = differing.peek().copied();
        Ok((differing.count(), first))
    }

    /// The file that the program's entry point was mapped from, if the core says so.
    #[must_use]
    pub fn executable_path(&self) -> Option<&Path> {
        let entry = self.aux(AT_ENTRY)?;
        self.files
            .iter()
            .find(|file| (file.start..file.end).contains(&entry))
            .map(|file| Path::new(&file.path))
    }

    /// Where the beginning of the program's file was mapped.
    #[must_use]
    pub fn executable_start(&self) -> Option<u64> {
        let path = self.executable_path()?.to_str()?;
        self.files.iter().filter(|file| file.offset == 0 && file.path == path).map(|file| file.start).min()
    }

    /// The files beside the executable of which code was mapped, by address.
    #[must_use]
    pub fn libraries(&self) -> Vec<Library> {
        let entry = self.aux(AT_ENTRY).unwrap_or(0);
        let program = self.files.iter().find(|file| (file.start..file.end).contains(&entry));
        let has_code = |path: &str| {
            let mut of_file = self.files.iter().filter(|file| file.path == path);
            of_file.any(|file| self.segment(file.start).is_some_and(|segment| segment.rights.execute))
        };
        let beginnings = self.files.iter().filter(|file| file.offset == 0);
        let others = beginnings.filter(|file| program.is_none_or(|program| program.path != file.path));
        let mut libraries: Vec<Library> = others
            .filter(|file| has_code(&file.path))
            .map(|file| Library { path: PathBuf::from(&file.path), start: file.start })
            .collect();
        // The same beginning can be mapped twice; the lower is where the file was loaded.
        libraries.dedup_by(|later, earlier| later.path == earlier.path);
        libraries
    }

    /// Takes what the core leaves out of a library's pages from its file; gives what was added to its addresses.
    ///
    /// # Errors
    /// When the file cannot be read, is not an x86-64 ELF library, or its code is not what the core has.
    pub fn take_library(&mut self, library: &Library) -> Result<u64, CoreError> {
        let (own, _) = parse::library(library, Pages::Own)?;
        let (pieces, bias) = parse::library(library, Pages::Whole)?;
        let mut code = own.iter().filter(|piece| piece.rights.execute);
        if code.any(|piece| self.contradicts(piece)) {
            return Err(CoreError::OtherFile { path: library.path.clone() });
        }
        self.backing.extend(pieces);
        self.backing.sort_by_key(|piece| piece.start);
        self.backing = parse::without_overlaps(std::mem::take(&mut self.backing), &mut Vec::new());
        Ok(bias)
    }

    /// The branch trail, if gretel wrote one into the core.
    ///
    /// # Errors
    /// When the note is not a trail.
    pub fn trail(&self) -> Result<Option<lbr::Trail>, lbr::trail::TrailError> {
        self.trail_bytes.as_deref().map(lbr::Trail::from_bytes).transpose()
    }

    /// The newest crumbs before the end, if gretel wrote them into the core: points of the past that are certain.
    ///
    /// # Errors
    /// When the note is damaged.
    pub fn crumbs(&self) -> Result<Option<lbr::Crumbs>, lbr::crumb::CrumbsError> {
        self.crumb_bytes.as_deref().map(lbr::Crumbs::from_bytes).transpose()
    }

    /// The words of call sites by which the crumbs' contexts are decoded, if gretel wrote them into the core.
    ///
    /// # Errors
    /// When the note is damaged.
    pub fn contexts(&self) -> Result<Option<lbr::context::Table>, lbr::context::TableError> {
        self.context_bytes.as_deref().map(lbr::context::Table::from_bytes).transpose()
    }

    /// Whether other threads may have run before the crash: the core has some, or gretel says that there were.
    #[must_use]
    pub fn had_threads(&self) -> bool {
        self.threads.len() > 1 || self.threads_started().is_some_and(|started| started > 1)
    }

    /// Whether they may have run at any instruction: under gretel threads take turns, elsewhere they have several
    /// processors.
    #[must_use]
    pub fn had_parallel_threads(&self) -> bool {
        self.threads.len() > 1 && self.threads_started().is_none()
    }

    /// The registers of a thread.
    #[must_use]
    pub fn thread(&self, id: u32) -> Option<&State> {
        self.threads.iter().find(|(other, _)| other.unsigned_abs() == id).map(|(_, state)| state)
    }

    /// How many threads there ever were, if gretel wrote the core and there were several.
    fn threads_started(&self) -> Option<u64> {
        let started = |line: &str| line.strip_prefix(THREADS_STARTED)?.trim().parse().ok();
        self.origin.iter().flat_map(|origin| origin.lines()).find_map(started)
    }

    /// The value of an auxiliary vector entry.
    #[must_use]
    pub fn aux(&self, kind: u64) -> Option<u64> {
        self.auxv.iter().find(|(k, _)| *k == kind).map(|(_, value)| *value)
    }

    /// The segment that `va` lies in, whether or not its bytes are there.
    #[must_use]
    pub fn segment(&self, va: u64) -> Option<&Segment> {
        find(&self.segments, va)
    }

    /// The byte at `va`, if the core (or the executable) has it.
    #[must_use]
    pub fn byte(&self, va: u64) -> Option<u8> {
        self.run(va).map(|bytes| bytes[0])
    }

    /// Changes the byte at `va`, if the core (or the executable) has it: a copy is made of the bytes around it.
    pub fn set_byte(&mut self, va: u64, byte: u8) {
        let has = |segment: &&mut Segment| {
            let at = va.checked_sub(segment.start).and_then(|at| usize::try_from(at).ok());
            at.is_some_and(|at| at < segment.data.len())
        };
        if let Some(segment) = self.segments.iter_mut().chain(&mut self.backing).find(has) {
            let mut bytes = segment.data.to_vec();
            if let Some(at) = usize::try_from(va - segment.start).ok().and_then(|at| bytes.get_mut(at)) {
                *at = byte;
            }
            segment.data = bytes.into();
        }
    }

    /// Reads `out.len()` bytes at `va`; false, with nothing promised about `out`, if any is not there.
    #[must_use]
    pub fn read(&self, va: u64, out: &mut [u8]) -> bool {
        let mut done = 0;
        while done < out.len() {
            let Some(run) = va.checked_add(done as u64).and_then(|at| self.run(at)) else { return false };
            let n = run.len().min(out.len() - done);
            out[done..done + n].copy_from_slice(&run[..n]);
            done += n;
        }
        true
    }

    /// The 64-bit word at `va`.
    #[must_use]
    pub fn word(&self, va: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(va, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }

    /// The known bytes from `va` on, as far as they are in one piece; none where the core (and the executable) has
    /// nothing.
    #[must_use]
    pub fn bytes(&self, va: u64) -> &[u8] {
        self.run(va).unwrap_or_default()
    }

    /// The pieces between two addresses whose bytes are known, in order. Takes no time for what is not: mappings of
    /// many terabytes are nothing unusual (sanitizers, runtimes with large heaps).
    pub fn known(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &[u8])> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            while at < range.end {
                let bytes = self.bytes(at);
                if let Some(left) = range.end.checked_sub(at).filter(|_| !bytes.is_empty()) {
                    let len = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    let found = (at, &bytes[..len]);
                    at = at.saturating_add(len as u64);
                    return Some(found);
                }
                let starts = self.segments.iter().chain(&self.backing).flat_map(|s| [s.start, s.dumped]);
                at = starts.filter(|start| *start > at).min()?;
            }
            None
        })
    }

    /// The known bytes from `va` on as far as they are in one piece, at least one.
    fn run(&self, va: u64) -> Option<&[u8]> {
        let segment = find(&self.segments, va)?;
        bytes_at(segment, va).or_else(|| {
            if va < segment.dumped {
                return None;
            }
            let bytes = bytes_at(find(&self.backing, va)?, va)?;
            let left = usize::try_from(segment.end - va).unwrap_or(usize::MAX);
            Some(&bytes[..bytes.len().min(left)])
        })
    }
}

impl Core {
    /// Whether the core itself has other bytes where `piece` is.
    fn contradicts(&self, piece: &Segment) -> bool {
        self.differing(piece).next().is_some()
    }

    /// Where it has.
    fn differing<'a>(&'a self, piece: &'a Segment) -> impl Iterator<Item = u64> + 'a {
        let overlapping = self.segments.iter().filter(|own| own.start < piece.end && piece.start < own.end);
        overlapping.flat_map(move |own| {
            let start = own.start.max(piece.start);
            let [own, other] = [own, piece].map(|segment| bytes_at(segment, start).unwrap_or_default());
            let pairs = (start..).zip(own.iter().zip(other));
            pairs.filter(|(_, (own, other))| own != other).map(|(va, _)| va)
        })
    }
}

/// The segment of a sorted list that holds `va`.
fn find(segments: &[Segment], va: u64) -> Option<&Segment> {
    let behind = segments.partition_point(|s| s.start <= va);
    segments[..behind].last().filter(|s| va < s.end)
}

/// The bytes of a segment from `va` on, if there are any.
fn bytes_at(segment: &Segment, va: u64) -> Option<&[u8]> {
    let at = usize::try_from(va - segment.start).ok()?;
    segment.data.get(at..).filter(|bytes| !bytes.is_empty())
}
