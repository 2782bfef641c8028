//! Reading a core: headers, then notes, then memory, each checked against the length of the file.

use super::notes::{self, word};
use super::unsaid;
use super::{AT_PHDR, Bytes, Core, Damage, Library, ProcessInfo, Rights, Segment, SignalInfo};
use lbr::{View, regular};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use x86::state::{Fpu, Regs, State};

const ET_CORE: u64 = 4;
const EM_X86_64: u64 = 62;
const PT_LOAD: u64 = 1;
const PT_NOTE: u64 = 4;
const PT_PHDR: u64 = 6;
const HEADER_SIZE: usize = 64;
const PROGRAM_HEADER_SIZE: usize = 56;
/// e_phnum that means "more than 65534, see sh_info of section header 0".
const PN_XNUM: u64 = 0xffff;
/// No core has more notes than this; a larger claim is damage.
const MAX_NOTES_SIZE: u64 = 256 << 20;

/// Why a core, or the executable beside it, cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// It is something else.
    #[error("{} is not {expected}: {why}", path.display())]
    Not {
        /// The file.
        path: PathBuf,
        /// What was wanted.
        expected: &'static str,
        /// What shows that it is not.
        why: String,
    },
    /// It is not the library that was loaded.
    #[error("{} is not the file that was loaded (its code is not what the core has)", path.display())]
    OtherFile {
        /// The file.
        path: PathBuf,
    },
    /// It ends before the registers.
    #[error("core {} cannot be used: no registers in it ({why}); write the core again", path.display())]
    NoRegisters {
        /// The file.
        path: PathBuf,
        /// What the file lacks.
        why: String,
    },
}

/// A file that is read by absolute offsets.
struct Source {
    path: PathBuf,
    file: File,
    size: u64,
    /// The file, if it is mapped.
    view: Option<Arc<View>>,
}

impl Source {
    fn open(path: &Path) -> Result<Source, CoreError> {
        let failed = |error| CoreError::Read { path: path.to_owned(), error };
        let mut file = regular::open(path).map_err(failed)?;
        let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
        Ok(Source { path: path.to_owned(), file, size, view: None })
    }

    /// Maps the file, so that memory is seen and not copied; where it cannot be mapped, it is copied.
    fn map(&mut self) {
        self.view = View::of(&self.file).ok().map(Arc::new);
    }

    /// As many of the `count` bytes at `offset` as the file has.
    fn contents(&mut self, offset: u64, count: u64) -> Result<Bytes, CoreError> {
        let Some(view) = &self.view else { return Ok(self.bytes(offset, count)?.into()) };
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(view.len());
        Ok(Bytes::seen(view, at(offset)..at(offset.saturating_add(count))))
    }

    /// As many of the `count` bytes at `offset` as the file has.
    fn bytes(&mut self, offset: u64, count: u64) -> Result<Vec<u8>, CoreError> {
        let count = count.min(self.size.saturating_sub(offset));
        let mut out = Vec::new();
        if count == 0 {
            // An offset may be any number, and not every number can be sought.
            return Ok(out);
        }
        let read = self.file.seek(SeekFrom::Start(offset));
        let read = read.and_then(|_| (&mut self.file).take(count).read_to_end(&mut out));
        read.map_err(|error| CoreError::Read { path: self.path.clone(), error })?;
        Ok(out)
    }
}

/// A program header.
struct ProgramHeader {
    kind: u64,
    flags: u64,
    offset: u64,
    address: u64,
    file_size: u64,
    memory_size: u64,
}

impl ProgramHeader {
    fn read(bytes: &[u8]) -> Option<ProgramHeader> {
        Some(ProgramHeader {
            kind: word(bytes, 0, 4)?,
            flags: word(bytes, 4, 4)?,
            offset: word(bytes, 8, 8)?,
            address: word(bytes, 16, 8)?,
            file_size: word(bytes, 32, 8)?,
            memory_size: word(bytes, 40, 8)?,
        })
    }

    fn rights(&self) -> Rights {
        Rights { read: self.flags & 4 != 0, write: self.flags & 2 != 0, execute: self.flags & 1 != 0 }
    }
}

/// The file's headers: its type, and as many program headers as are there.
struct Headers {
    kind: u64,
    program_header_offset: u64,
    program_headers: Vec<ProgramHeader>,
    declared: u64,
}

fn headers(source: &mut Source, expected: &'static str) -> Result<Headers, CoreError> {
    let header = source.bytes(0, HEADER_SIZE as u64)?;
    let not = |why: String| CoreError::Not { path: source.path.clone(), expected, why };
    if !header.starts_with(b"\x7fELF") {
        return Err(not("it does not begin with the ELF magic".to_owned()));
    }
    if header.len() < HEADER_SIZE {
        return Err(not(format!("its ELF header is cut at {:#x}", header.len())));
    }
    let field = |at, size| word(&header, at, size).unwrap_or(0);
    if header[4..6] != [2, 1] || field(18, 2) != EM_X86_64 {
        return Err(not(format!("it is for another machine (e_machine {})", field(18, 2))));
    }
    if field(54, 2) != PROGRAM_HEADER_SIZE as u64 {
        return Err(not(format!("its program headers have {} bytes each, not 56", field(54, 2))));
    }
    let (kind, program_header_offset, section_header_offset) = (field(16, 2), field(32, 8), field(40, 8));
    let mut declared = field(56, 2);
    if declared == PN_XNUM {
        let section = source.bytes(section_header_offset, 64)?;
        declared = word(&section, 44, 4).unwrap_or(declared);
    }
    let table = source.bytes(program_header_offset, declared * PROGRAM_HEADER_SIZE as u64)?;
    let program_headers = table.chunks_exact(PROGRAM_HEADER_SIZE).filter_map(ProgramHeader::read).collect();
    Ok(Headers { kind, program_header_offset, program_headers, declared })
}

/// Reads a core.
pub(super) fn open(path: &Path) -> Result<Core, CoreError> {
    const EXPECTED: &str = "an x86-64 ELF core";
    let mut source = Source::open(path)?;
    source.map();
    let headers = headers(&mut source, EXPECTED)?;
    if headers.kind != ET_CORE {
        let why = format!("its ELF type is {}, not ET_CORE (4)", headers.kind);
        return Err(CoreError::Not { path: path.to_owned(), expected: EXPECTED, why });
    }
    let mut damage = Vec::new();
    let present = headers.program_headers.len() as u64;
    if present < headers.declared {
        let what = format!("the file is cut after {present} of {} program headers", headers.declared);
        damage.push(Damage::new(source.size, what));
    }
    let mut found = Notes::default();
    for header in headers.program_headers.iter().filter(|h| h.kind == PT_NOTE) {
        let bytes = source.bytes(header.offset, header.file_size.min(MAX_NOTES_SIZE))?;
        found.walk(&bytes, header.offset, &mut damage);
        let end = header.offset.saturating_add(bytes.len() as u64);
        if (bytes.len() as u64) < header.file_size {
            damage.push(Damage::new(end, "the notes are cut here"));
        }
    }
    let mut segments = segments(&mut source, &headers.program_headers, &mut damage)?;
    unsaid::add(&mut segments, &found.files);
    let Some((state, signal)) = found.state() else {
        let why = damage.first().map_or_else(|| "no NT_PRSTATUS note".to_owned(), ToString::to_string);
        return Err(CoreError::NoRegisters { path: path.to_owned(), why });
    };
    damage.sort_by_key(|d| d.offset);
    Ok(Core {
        path: path.to_owned(),
        state,
        signal,
        segments,
        files: found.files,
        auxv: found.auxv,
        process: found.process,
        threads: found.threads.iter().map(|thread| (thread.id, thread.state())).collect(),
        trail_bytes: found.trail,
        counters: found.counters,
        crumb_bytes: found.crumbs,
        context_bytes: found.contexts,
        origin: found.origin,
        damage,
        backing: Vec::new(),
        view: source.view,
        machine: None,
    })
}

/// Reads the PT_LOAD segments, as far as they are in the file.
fn segments(
    source: &mut Source,
    headers: &[ProgramHeader],
    damage: &mut Vec<Damage>,
) -> Result<Vec<Segment>, CoreError> {
    let mut segments = Vec::new();
    // A core's segments do not share bytes, so together they are no longer than the file; a hostile one could
    // otherwise ask for the whole file once per header.
    let mut budget = source.size;
    for header in headers.iter().filter(|h| h.kind == PT_LOAD && h.memory_size != 0) {
        let refuse = |what: &str| {
            Damage::new(header.offset, format!("segment at {:#x} {what}: left out", header.address))
        };
        let Some(end) = header.address.checked_add(header.memory_size) else {
            damage.push(refuse("wraps around the address space"));
            continue;
        };
        let wanted = header.file_size.min(header.memory_size);
        if wanted > budget && header.offset.saturating_add(wanted) <= source.size {
            damage.push(refuse("shares its bytes with others"));
            continue;
        }
        let data = source.contents(header.offset, wanted.min(budget))?;
        budget -= data.len() as u64;
        if (data.len() as u64) < wanted {
            let missing = header.address + data.len() as u64..header.address + wanted;
            let what = format!("memory {:#x}-{:#x} is missing (the file is cut)", missing.start, missing.end);
            let offset = header.offset.saturating_add(data.len() as u64);
            damage.push(Damage { offset, what, missing });
        }
        let dumped = header.address + wanted;
        segments.push(Segment { start: header.address, end, dumped, rights: header.rights(), data });
    }
    segments.sort_by_key(|s| s.start);
    Ok(without_overlaps(segments, damage))
}

/// Keeps the first of segments that overlap in memory.
pub(super) fn without_overlaps(segments: Vec<Segment>, damage: &mut Vec<Damage>) -> Vec<Segment> {
    let mut kept: Vec<Segment> = Vec::with_capacity(segments.len());
    for segment in segments {
        if kept.last().is_some_and(|last| segment.start < last.end) {
            let what = format!("segment at {:#x} overlaps another: left out", segment.start);
            damage.push(Damage::new(0, what));
        } else {
            kept.push(segment);
        }
    }
    kept
}

/// What the notes of one thread said.
struct Thread {
    id: i32,
    regs: Regs,
    signal: SignalInfo,
    fxsave: Option<Fpu>,
    xsave: Option<Fpu>,
}

impl Thread {
    fn state(&self) -> State {
        State { regs: self.regs, fpu: self.xsave.or(self.fxsave).unwrap_or_default() }
    }
}

/// What the notes said, the first of each kind: Linux writes the thread that crashed first, and the registers of each behind its
/// status.
#[derive(Default)]
struct Notes {
    threads: Vec<Thread>,
    signal: Option<SignalInfo>,
    process: ProcessInfo,
    auxv: Vec<(u64, u64)>,
    files: Vec<super::FileMapping>,
    trail: Option<Vec<u8>>,
    counters: Option<crate::engine::Counters>,
    crumbs: Option<Vec<u8>>,
    contexts: Option<Vec<u8>>,
    origin: Option<String>,
}

impl Notes {
    /// Takes all whole notes of a PT_NOTE segment.
    fn walk(&mut self, bytes: &[u8], base: u64, damage: &mut Vec<Damage>) {
        let mut at = 0;
        while at < bytes.len() {
            let Some((owner, kind, content, next)) = note(bytes, at) else {
                damage.push(Damage::new(base.saturating_add(at as u64), "a note is cut"));
                return;
            };
            if self.take(owner, kind, content).is_none() {
                let what = format!("note {kind:#x} of {} is malformed", String::from_utf8_lossy(owner));
                damage.push(Damage::new(base.saturating_add(at as u64), what));
            }
            at = next;
        }
    }

    /// Takes one note; `None` if its content is malformed.
    fn take(&mut self, owner: &[u8], kind: u32, content: &[u8]) -> Option<()> {
        match (owner, kind) {
            (b"CORE", notes::NT_PRSTATUS) => {
                let (regs, signal, thread) = notes::read_prstatus(content)?;
                if self.threads.is_empty() {
                    self.process.pid = thread;
                }
                self.threads.push(Thread { id: thread, regs, signal, fxsave: None, xsave: None });
            }
            (b"CORE", notes::NT_FPREGSET) => {
                let fpu = fxsave(content)?;
                self.threads.last_mut().into_iter().for_each(|thread| first(&mut thread.fxsave, fpu));
            }
            (b"LINUX", notes::NT_X86_XSTATE) => {
                let fpu = notes::read_xstate(content)?;
                self.threads.last_mut().into_iter().for_each(|thread| first(&mut thread.xsave, fpu));
            }
            (b"CORE", notes::NT_SIGINFO) => first(&mut self.signal, notes::read_siginfo(content)?),
            (b"CORE", notes::NT_PRPSINFO) => self.process = notes::read_prpsinfo(content)?,
            (b"CORE", notes::NT_AUXV) => self.auxv = notes::read_auxv(content),
            (b"CORE", notes::NT_FILE) => self.files = notes::read_file(content)?,
            (b"gretel", notes::NT_GRETEL_TRAIL) => first(&mut self.trail, content.to_vec()),
            (b"gretel", notes::NT_GRETEL_COUNTERS) => {
                first(&mut self.counters, notes::read_counters(content)?);
            }
            (b"gretel", notes::NT_GRETEL_CRUMBS) => first(&mut self.crumbs, content.to_vec()),
            (b"gretel", notes::NT_GRETEL_CONTEXTS) => first(&mut self.contexts, content.to_vec()),
            (b"gretel", notes::NT_GRETEL_ORIGIN) => {
                first(&mut self.origin, String::from_utf8_lossy(content).into_owned());
            }
            _ => {}
        }
        Some(())
    }

    /// The state and signal of the thread that crashed.
    fn state(&self) -> Option<(State, SignalInfo)> {
        let crashed = self.threads.first()?;
        Some((crashed.state(), self.signal.unwrap_or(crashed.signal)))
    }
}

fn first<T>(slot: &mut Option<T>, value: T) {
    slot.get_or_insert(value);
}

/// The FXSAVE image at the beginning of `content`.
fn fxsave(content: &[u8]) -> Option<Fpu> {
    content.first_chunk().map(Fpu::from_fxsave)
}

/// The note at `at`: owner, type, content, and where the next begins. `None` if it does not fit.
fn note(bytes: &[u8], at: usize) -> Option<(&[u8], u32, &[u8], usize)> {
    let size = |at| word(bytes, at, 4).and_then(|v| usize::try_from(v).ok());
    let (owner_size, content_size) = (size(at)?, size(at + 4)?);
    let kind = u32::try_from(word(bytes, at + 8, 4)?).ok()?;
    let owner_at = at.checked_add(12)?;
    let content_at = owner_at.checked_add(owner_size.checked_next_multiple_of(4)?)?;
    let end = content_at.checked_add(content_size)?;
    let owner = bytes.get(owner_at..owner_at.checked_add(owner_size)?)?;
    let owner = owner.strip_suffix(b"\0").unwrap_or(owner);
    Some((owner, kind, bytes.get(content_at..end)?, end.checked_next_multiple_of(4)?))
}

/// What an executable or a library has to be.
const LOADABLE: &str = "an x86-64 ELF program or library";

/// The pieces of memory that an executable's file holds, at the addresses where it was loaded.
pub(super) fn backing(path: &Path, auxv: &[(u64, u64)], pages: Pages) -> Result<Vec<Segment>, CoreError> {
    let mut source = Source::open(path)?;
    let headers = headers(&mut source, LOADABLE)?;
    let bias = load_bias(&headers, auxv);
    pieces(&mut source, &headers, bias, pages)
}

/// The same of a library, and what was added to the addresses in it.
pub(super) fn library(library: &Library, pages: Pages) -> Result<(Vec<Segment>, u64), CoreError> {
    let mut source = Source::open(&library.path)?;
    let headers = headers(&mut source, LOADABLE)?;
    let lowest = headers.program_headers.iter().filter(|h| h.kind == PT_LOAD).map(|h| h.address).min();
    let bias = library.start.wrapping_sub(lowest.unwrap_or(0) / crate::ram::PAGE * crate::ram::PAGE);
    Ok((pieces(&mut source, &headers, bias, pages)?, bias))
}

/// With which rights a program or library has the page at `offset` of its file mapped, if it is mapped at all and never written.
pub(super) fn rights_in_file(path: &Path, offset: u64) -> Option<Rights> {
    let mut source = Source::open(path).ok()?;
    let headers = headers(&mut source, LOADABLE).ok()?;
    let has_page = |header: &&ProgramHeader| {
        let first = header.offset / crate::ram::PAGE * crate::ram::PAGE;
        header.kind == PT_LOAD && (first..header.offset.saturating_add(header.file_size)).contains(&offset)
    };
    let all: Vec<Rights> =
        headers.program_headers.iter().filter(has_page).map(ProgramHeader::rights).collect();
    let is_written = all.iter().any(|rights| rights.write);
    all.into_iter().max_by_key(|rights| rights.execute).filter(|_| !is_written)
}

/// How much of a segment's first and last page is meant: a linker may put the beginning of the data on the last page of the code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pages {
    /// All that is mapped there.
    Whole,
    /// What the segment has of them.
    Own,
}

/// What a file's loadable segments hold in memory.
fn pieces(
    source: &mut Source,
    headers: &Headers,
    bias: u64,
    pages: Pages,
) -> Result<Vec<Segment>, CoreError> {
    // As a core's, a program's segments share no bytes but those of the pages at their ends.
    let mut budget = source.size + 2 * crate::ram::PAGE * headers.program_headers.len() as u64;
    let mut pieces = Vec::new();
    for header in headers.program_headers.iter().filter(|h| h.kind == PT_LOAD) {
        let (offset, address, size) = if header.rights().write || pages == Pages::Own {
            (header.offset, header.address, header.file_size.min(source.size))
        } else {
            whole_pages(header, source.size)
        };
        budget = budget.checked_sub(size).ok_or_else(|| CoreError::Not {
            path: source.path.clone(),
            expected: LOADABLE,
            why: format!("its segment at {:#x} shares its bytes with others", header.address),
        })?;
        let data = source.contents(offset, size)?;
        let start = address.wrapping_add(bias);
        let Some(end) = start.checked_add(data.len() as u64) else { continue };
        pieces.push(Segment { start, end, dumped: end, rights: header.rights(), data });
    }
    pieces.sort_by_key(|p| p.start);
    Ok(without_overlaps(pieces, &mut Vec::new()))
}

/// What the pages of a read-only segment show: the file around it, up to the page boundaries. (The last page of a
/// writable one is cleared behind the file's bytes, and therefore in the core.)
fn whole_pages(header: &ProgramHeader, file_size: u64) -> (u64, u64, u64) {
    let before = header.offset % crate::ram::PAGE;
    let (offset, address) = (header.offset - before, header.address.wrapping_sub(before));
    let size = before.saturating_add(header.file_size).checked_next_multiple_of(crate::ram::PAGE);
    (offset, address, size.unwrap_or(0).min(file_size.saturating_sub(offset)))
}

/// How far above its own addresses a position-independent program was loaded, by AT_PHDR.
fn load_bias(headers: &Headers, auxv: &[(u64, u64)]) -> u64 {
    let Some((_, at)) = auxv.iter().find(|(kind, _)| *kind == AT_PHDR) else { return 0 };
    let of = |kind| headers.program_headers.iter().find(move |h| h.kind == kind);
    let own = of(PT_PHDR).map(|h| h.address).or_else(|| {
        // No PT_PHDR (a static program): the headers lie in the first segment.
        of(PT_LOAD).map(|h| h.address.wrapping_sub(h.offset).wrapping_add(headers.program_header_offset))
    });
    own.map_or(0, |own| at.wrapping_sub(own))
}
