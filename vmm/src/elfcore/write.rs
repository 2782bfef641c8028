//! Writing a core as Linux does: one PT_NOTE, then a PT_LOAD for each mapping.
//!
//! Pages of zeros become holes in the file: they cost no disk and read as zeros. Where there would be too many, they are
//! left out ([`super::pieces`]).

use super::notes;
use super::pieces::{Piece, pieces};
use super::{FileMapping, ProcessInfo, Rights, SignalInfo};
use crate::engine::Counters;
use crate::interrupt;
use crate::ram::{PAGE, PAGE_LEN};
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::ops::Range;
use x86::state::{Fpu, State};

const HEADER_SIZE: u64 = 64;
const PROGRAM_HEADER_SIZE: u64 = 56;
/// e_phnum holds 16 bits, and 0xffff means something else.
const MAX_PROGRAM_HEADERS: usize = 0xfffe;

/// What goes into a core, but for the memory.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// The registers at the crash.
    pub state: State,
    /// The thread that crashed; zero if the process has no other.
    pub thread: i32,
    /// The other threads, with their registers.
    pub others: Vec<(i32, State)>,
    /// Why it died.
    pub signal: SignalInfo,
    /// Who it was.
    pub process: ProcessInfo,
    /// The auxiliary vector, without AT_NULL.
    pub auxv: Vec<(u64, u64)>,
    /// The mapped files.
    pub files: Vec<FileMapping>,
    /// The bytes of the branch trail.
    pub trail: Option<Vec<u8>>,
    /// Exact counts at the crash.
    pub counters: Option<Counters>,
    /// The bytes of the newest crumbs.
    pub crumbs: Option<Vec<u8>>,
    /// The bytes of the words of call sites.
    pub contexts: Option<Vec<u8>>,
    /// How the core was made: `key: value` lines.
    pub origin: String,
}

/// A mapping to dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First address, a page boundary.
    pub start: u64,
    /// First address behind it, a page boundary.
    pub end: u64,
    /// What is allowed there. An area that cannot be read is listed, and its bytes are left out.
    pub rights: Rights,
}

impl Contents {
    /// The PT_NOTE segment: what Linux writes, in its order, then gretel's own.
    fn notes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let thread = if self.thread == 0 { self.process.pid } else { self.thread };
        let status = notes::prstatus(&self.state.regs, self.signal, thread);
        append(&mut out, "CORE", notes::NT_PRSTATUS, &status);
        append(&mut out, "CORE", notes::NT_PRPSINFO, &notes::prpsinfo(&self.process));
        append(&mut out, "CORE", notes::NT_SIGINFO, &notes::siginfo(self.signal));
        append(&mut out, "CORE", notes::NT_AUXV, &notes::auxv(&self.auxv));
        append(&mut out, "CORE", notes::NT_FILE, &notes::file(&self.files));
        append_vectors(&mut out, &self.state.fpu);
        for (thread, state) in &self.others {
            let status = notes::prstatus(&state.regs, self.signal, *thread);
            append(&mut out, "CORE", notes::NT_PRSTATUS, &status);
            append_vectors(&mut out, &state.fpu);
        }
        append(&mut out, notes::OWNER, notes::NT_GRETEL_ORIGIN, self.origin.as_bytes());
        if let Some(trail) = &self.trail {
            append(&mut out, notes::OWNER, notes::NT_GRETEL_TRAIL, trail);
        }
        if let Some(counters) = &self.counters {
            append(&mut out, notes::OWNER, notes::NT_GRETEL_COUNTERS, &notes::counters(counters));
        }
        if let Some(crumbs) = &self.crumbs {
            append(&mut out, notes::OWNER, notes::NT_GRETEL_CRUMBS, crumbs);
        }
        if let Some(contexts) = &self.contexts {
            append(&mut out, notes::OWNER, notes::NT_GRETEL_CONTEXTS, contexts);
        }
        out
    }
}

/// Appends the x87 and vector registers of a thread.
fn append_vectors(out: &mut Vec<u8>, fpu: &Fpu) {
    append(out, "CORE", notes::NT_FPREGSET, &fpu.to_fxsave());
    if fpu.wide_components() != 0 {
        append(out, "LINUX", notes::NT_X86_XSTATE, &notes::xstate(fpu));
    }
}

/// Appends a note: three 32-bit sizes and type, owner with NUL, content, each padded to four bytes.
fn append(out: &mut Vec<u8>, owner: &str, kind: u32, content: &[u8]) {
    let size = |n: usize| u32::try_from(n).expect("a note is smaller than 4 GiB").to_le_bytes();
    out.extend(size(owner.len() + 1));
    out.extend(size(content.len()));
    out.extend(kind.to_le_bytes());
    out.extend(owner.as_bytes());
    out.push(0);
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend(content);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// The memory of a core.
pub struct Memory<'a> {
    /// The mappings, in order.
    pub areas: &'a [Area],
    /// Which pages of an area may not be zero, as ranges in order.
    pub held: &'a mut dyn FnMut(&Area) -> Vec<Range<u64>>,
    /// Fills a page of the guest's memory as the program sees it, and says whether the page exists; pages that do not are
    /// zeros, as an untouched page is for the program.
    pub page: &'a mut dyn FnMut(u64, &mut [u8; PAGE_LEN]) -> bool,
}

/// Writes a core to an empty file; `page` is that of [`Memory`], which any page may be in.
///
/// # Errors
/// As [`write_memory`].
pub fn write(
    file: File,
    contents: &Contents,
    areas: &[Area],
    page: &mut dyn FnMut(u64, &mut [u8; PAGE_LEN]) -> bool,
) -> io::Result<()> {
    let held = &mut |area: &Area| std::iter::once(area.start..area.end).collect();
    write_memory(file, contents, Memory { areas, held, page })
}

/// Writes a core to an empty file.
///
/// # Errors
/// What the file system says, and when a signal asks gretel to end.
pub fn write_memory(file: File, contents: &Contents, memory: Memory<'_>) -> io::Result<()> {
    let pieces = pieces(memory.areas, memory.held);
    if pieces.len() >= MAX_PROGRAM_HEADERS {
        return Err(io::Error::other("the program has more mappings than an ELF core can hold"));
    }
    let notes = contents.notes();
    let notes_at = HEADER_SIZE + PROGRAM_HEADER_SIZE * (pieces.len() as u64 + 1);
    let data_at = (notes_at + notes.len() as u64).next_multiple_of(PAGE);
    let mut out = BufWriter::with_capacity(1 << 18, file);
    out.write_all(&elf_header(pieces.len() + 1))?;
    out.write_all(&program_header(4, 0, notes_at, 0, notes.len() as u64, 0, 4))?;
    let mut offset = data_at;
    for piece in &pieces {
        let (Area { start, end, rights }, stored) = (piece.area, piece.stored());
        out.write_all(&program_header(1, flags(rights), offset, start, stored, end - start, PAGE))?;
        offset += stored;
    }
    out.write_all(&notes)?;
    let mut at = data_at;
    for piece in &pieces {
        write_piece(&mut out, piece, at, memory.page)?;
        at += piece.stored();
    }
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.set_len(offset)
}

/// Writes the pages of a piece, which begins at `offset` of the file, that are not zero.
fn write_piece(
    out: &mut BufWriter<File>,
    piece: &Piece,
    offset: u64,
    page: &mut dyn FnMut(u64, &mut [u8; PAGE_LEN]) -> bool,
) -> io::Result<()> {
    let mut bytes = [0; PAGE_LEN];
    // Where the file stands; seeking flushes, so only over holes.
    let mut stands = None;
    for at in piece.held.iter().flatten().flat_map(|run| run.clone().step_by(PAGE_LEN)) {
        if interrupt::arrived().is_some() {
            return Err(io::Error::other("a signal asked gretel to end"));
        }
        if !page(at, &mut bytes) || bytes.iter().all(|b| *b == 0) {
            continue;
        }
        let to = offset + (at - piece.area.start);
        if stands != Some(to) {
            out.seek(SeekFrom::Start(to))?;
        }
        out.write_all(&bytes)?;
        stands = Some(to + PAGE);
    }
    Ok(())
}

fn flags(rights: Rights) -> u32 {
    u32::from(rights.read) << 2 | u32::from(rights.write) << 1 | u32::from(rights.execute)
}

fn elf_header(program_headers: usize) -> Vec<u8> {
    let mut out = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    out.resize(16, 0);
    out.extend(4_u16.to_le_bytes());
    out.extend(62_u16.to_le_bytes());
    out.extend(1_u32.to_le_bytes());
    for value in [0, HEADER_SIZE, 0] {
        out.extend(value.to_le_bytes());
    }
    out.extend(0_u32.to_le_bytes());
    let count = u16::try_from(program_headers).expect("checked by the caller");
    for value in [64, 56, count, 0, 0, 0] {
        out.extend(value.to_le_bytes());
    }
    out
}

fn program_header(
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    file_size: u64,
    memory_size: u64,
    align: u64,
) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(kind.to_le_bytes());
    out.extend(flags.to_le_bytes());
    for value in [offset, address, 0, file_size, memory_size, align] {
        out.extend(value.to_le_bytes());
    }
    out
}
