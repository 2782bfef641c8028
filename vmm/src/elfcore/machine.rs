//! A machine at a moment as a core: what its page tables map is the memory, and the level that it stands in is the program.
//!
//! Physical memory is one mapped file, and each run of pages that lie side by side in both is a segment which sees a part of it. So two
//! addresses of one frame are two segments with the same bytes. What is mapped and is no memory (devices) is a segment without bytes.

use super::bytes::Bytes;
use super::{Core, ProcessInfo, Rights, Segment, SignalInfo};
use crate::signal::SI_KERNEL;
use lbr::View;
use rustc_hash::FxHashSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use x86::state::State;
use x86_system::{Raised, Registers};

const PAGE: usize = 4096;
/// More segments are no kernel's: tables that lead to themselves make any number.
const MOST_SEGMENTS: usize = 1 << 20;
/// And more tables.
const MOST_TABLES: usize = 1 << 17;

/// What the core of a machine has beside that of a process.
#[derive(Debug)]
pub struct Machine {
    /// The registers of the system.
    pub registers: Registers,
    /// What the instruction at rip raises; none where the machine was stopped between two instructions.
    pub raised: Option<Raised>,
    /// RAM, from address zero on.
    memory: Arc<View>,
    /// The pages of it that are not all zero: their first addresses.
    pages: Vec<usize>,
    /// Where data are: linear addresses.
    data: Vec<Range<u64>>,
    /// The name of the end.
    name: String,
}

impl Machine {
    /// RAM.
    #[must_use]
    pub fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Where data are that are not all zero, by linear addresses, in order: each frame once, under the address that belongs to the fewest
    /// others. So what is allocated page by page, and the kernel itself, come before the map of all memory. Code is left out.
    #[must_use]
    pub fn data(&self) -> &[Range<u64>] {
        &self.data
    }

    /// The pages of RAM that are not all zero.
    pub fn pages(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.pages.iter().map(|at| (*at, &self.memory[*at..*at + PAGE]))
    }
}

/// Why a machine has no core.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// There is no room for its memory.
    #[error("cannot keep the memory of the machine: {0}")]
    Memory(#[from] io::Error),
    /// Page tables that no kernel has.
    #[error(
        "the page tables of the machine map more than {MOST_SEGMENTS} pieces, or have more than {MOST_TABLES} tables"
    )]
    Tables,
    /// Addresses are not translated, or not by four levels.
    #[error("the machine is not in 64-bit mode")]
    Mode,
}

/// A machine that stands somewhere.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    /// The registers that a program has, too.
    pub state: State,
    /// Those of the system.
    pub registers: Registers,
    /// RAM.
    pub ram: &'a [u8],
    /// What the instruction at rip raises.
    pub raised: Option<Raised>,
    /// What is said of its end where nothing is raised.
    pub end: &'a str,
}

impl Core {
    /// The core of a machine.
    ///
    /// # Errors
    /// When its memory cannot be kept, or what its tables map is no address space.
    pub fn of_machine(path: PathBuf, machine: &Standing<'_>) -> Result<Core, MachineError> {
        if machine.registers.is_narrow() {
            return Err(MachineError::Mode);
        }
        let (view, pages) = kept(machine.ram)?;
        let memory = Arc::new(view);
        let tables = Tables::new(&memory, &machine.registers).walked()?;
        let (segments, data) = (tables.segments(), tables.data(&pages));
        let name = machine.raised.map_or_else(|| machine.end.to_owned(), name);
        let of = Machine { registers: machine.registers, raised: machine.raised, memory, pages, data, name };
        Ok(Core {
            path,
            state: machine.state,
            signal: machine.raised.map_or(SENT, signal),
            segments,
            files: Vec::new(),
            auxv: Vec::new(),
            process: ProcessInfo::default(),
            threads: Vec::new(),
            trail_bytes: None,
            counters: None,
            crumb_bytes: None,
            context_bytes: None,
            origin: None,
            damage: Vec::new(),
            backing: Vec::new(),
            view: None,
            machine: Some(Arc::new(of)),
        })
    }

    /// How it ended, in a word or two: the signal's name, or the exception's.
    #[must_use]
    pub fn end_name(&self) -> String {
        self.machine.as_ref().map_or_else(|| self.signal.name(), |machine| machine.name.clone())
    }
}

/// What was done where nothing is raised: SIGABRT, sent.
const SENT: SignalInfo = SignalInfo { signo: 6, code: 0, address: 0 };

/// The signal that Linux would make of an exception of a program.
fn signal(raised: Raised) -> SignalInfo {
    let of = |signo, code, address| SignalInfo { signo, code, address };
    match raised.vector {
        0 | 16 | 19 => of(8, 1, raised.rip),
        1 | 3 => of(5, 1, raised.rip),
        6 => of(4, 1, raised.rip),
        14 => of(11, 1, raised.address.unwrap_or(0)),
        17 => of(7, 1, 0),
        _ => of(11, SI_KERNEL, 0),
    }
}

fn name(raised: Raised) -> String {
    let known = match raised.vector {
        0 => "divide error (#DE)",
        1 => "debug exception (#DB)",
        3 => "breakpoint (#BP)",
        4 => "overflow (#OF)",
        6 => "invalid opcode (#UD)",
        7 => "device not available (#NM)",
        11 => "segment not present (#NP)",
        12 => "stack fault (#SS)",
        13 => "general protection (#GP)",
        14 => "page fault (#PF)",
        16 => "x87 error (#MF)",
        17 => "alignment check (#AC)",
        19 => "SIMD error (#XM)",
        vector => return format!("exception {vector}"),
    };
    known.to_owned()
}

/// RAM in a file of its own, in which pages of zeros are holes, and which pages are not.
fn kept(ram: &[u8]) -> io::Result<(View, Vec<usize>)> {
    let file = File::from(rustix::fs::memfd_create("gretel-machine", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.set_len(ram.len() as u64)?;
    let mut pages = Vec::new();
    for (n, page) in ram.chunks_exact(PAGE).enumerate() {
        if page != [0; PAGE] {
            file.write_all_at(page, (n * PAGE) as u64)?;
            pages.push(n * PAGE);
        }
    }
    Ok((View::of(&file)?, pages))
}

/// The page tables of a machine.
struct Tables<'a> {
    memory: &'a Arc<View>,
    root: u64,
    /// CR0.WP: the kernel cannot write to read-only pages either.
    protects: bool,
    /// EFER.NXE.
    no_execute: bool,
    seen: FxHashSet<(u64, u32)>,
    found: Vec<Piece>,
}

/// Addresses that lead to physical ones side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: u64,
    size: u64,
    physical: u64,
    rights: Rights,
}

/// Bits of an entry.
const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const LARGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
/// Where it has the address.
const ADDRESS: u64 = (1 << 40) - 4096;

impl<'a> Tables<'a> {
    fn new(memory: &'a Arc<View>, registers: &Registers) -> Tables<'a> {
        const WRITE_PROTECT: u64 = 1 << 16;
        const EXECUTE_DISABLE: u64 = 1 << 11;
        Tables {
            memory,
            root: registers.cr3 & ADDRESS,
            protects: registers.cr0 & WRITE_PROTECT != 0,
            no_execute: registers.efer & EXECUTE_DISABLE != 0,
            seen: FxHashSet::default(),
            found: Vec::new(),
        }
    }

    fn walked(mut self) -> Result<Tables<'a>, MachineError> {
        let all = Rights { read: true, write: true, execute: true };
        self.walk(self.root, 3, 0, all)?;
        Ok(self)
    }

    /// What is mapped.
    fn segments(&self) -> Vec<Segment> {
        let len = self.memory.len() as u64;
        let segment = |piece: &Piece| {
            let held = len.saturating_sub(piece.physical).min(piece.size);
            let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            let range = match held {
                0 => 0..0,
                held => at(piece.physical)..at(piece.physical + held),
            };
            Segment {
                start: piece.start,
                end: piece.start.saturating_add(piece.size),
                dumped: piece.start + held,
                rights: piece.rights,
                data: Bytes::seen(self.memory, range),
            }
        };
        self.found.iter().map(segment).collect()
    }

    /// Where data are in the pages that are not all zero.
    fn data(&self, pages: &[usize]) -> Vec<Range<u64>> {
        const STEP: u64 = PAGE as u64;
        let mut left: FxHashSet<u64> = pages.iter().map(|page| *page as u64).collect();
        let mut pieces: Vec<&Piece> =
            self.found.iter().filter(|it| it.rights.write || !it.rights.execute).collect();
        pieces.sort_by_key(|piece| (piece.size, piece.start));
        let mut data: Vec<Range<u64>> = Vec::new();
        for piece in pieces {
            let held = (self.memory.len() as u64).saturating_sub(piece.physical).min(piece.size);
            for at in (0..held).step_by(PAGE).filter(|at| left.remove(&(piece.physical + at))) {
                let start = piece.start + at;
                match data.last_mut() {
                    Some(last) if last.end == start => last.end += STEP,
                    _ => data.push(start..start.saturating_add(STEP)),
                }
            }
        }
        data.sort_by_key(|range| range.start);
        data
    }

    /// Adds what a table maps, from an address on.
    fn walk(&mut self, table: u64, level: u32, start: u64, rights: Rights) -> Result<(), MachineError> {
        let shift = 12 + 9 * level;
        for n in 0..512 {
            let Some(entry) = self.entry(table + 8 * n).filter(|entry| entry & PRESENT != 0) else {
                continue;
            };
            let mut start = start | n << shift;
            if level == 3 && n >= 256 {
                start |= 0xffff << 48;
            }
            let rights = Rights {
                write: rights.write && (entry & WRITE != 0 || !self.protects),
                execute: rights.execute && (entry & NO_EXECUTE == 0 || !self.no_execute),
                ..rights
            };
            let physical = entry & ADDRESS & !((1 << shift) - 1);
            let is_page = level == 0 || level <= 2 && entry & LARGE != 0;
            let piece = Piece { start, size: 1 << shift, physical, rights };
            if is_page {
                self.add(piece)?;
            } else if self.seen.insert((entry & ADDRESS, level)) {
                if self.seen.len() > MOST_TABLES {
                    return Err(MachineError::Tables);
                }
                self.walk(entry & ADDRESS, level - 1, start, rights)?;
            } else {
                // A table that was walked through is so under other addresses, too: what is there is known, but not here.
                self.add(Piece { physical: u64::MAX, ..piece })?;
            }
        }
        Ok(())
    }

    fn entry(&self, at: u64) -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        Some(u64::from_le_bytes(self.memory.get(at..at + 8)?.try_into().ok()?))
    }

    fn add(&mut self, piece: Piece) -> Result<(), MachineError> {
        let len = self.memory.len() as u64;
        // Neither half of the addresses reaches into the other, and memory does not go on in what is none.
        if let Some(last) = self.found.last_mut()
            && last.start.checked_add(last.size) == Some(piece.start)
            && last.rights == piece.rights
            && (last.physical.checked_add(last.size) == Some(piece.physical)
                && (last.physical < len) == (piece.physical < len)
                || last.physical == u64::MAX && piece.physical == u64::MAX)
        {
            last.size += piece.size;
            return Ok(());
        }
        if self.found.len() == MOST_SEGMENTS {
            return Err(MachineError::Tables);
        }
        self.found.push(piece);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 1 << 20;

    fn standing(ram: &[u8], registers: Registers) -> Standing<'_> {
        Standing { state: State::default(), registers, ram, raised: None, end: "asked for" }
    }

    fn put(ram: &mut [u8], table: u64, n: usize, entry: u64) {
        let at = usize::try_from(table).unwrap() + 8 * n;
        ram[at..at + 8].copy_from_slice(&entry.to_le_bytes());
    }

    fn registers() -> Registers {
        let mut registers = Registers { cr3: 0x1000, ..Registers::default() };
        registers.cr0 |= 1 << 16;
        registers.efer |= 1 << 11;
        registers.segments[1] = x86_system::Segment::flat(0x10, true, 0);
        registers
    }

    /// Two pages side by side are one segment; another address of a frame sees the same bytes; what is no memory has none.
    #[test]
    fn what_the_tables_map_is_the_memory() {
        let mut ram = vec![0; SIZE];
        for (table, n, entry) in [
            (0x1000, 511, 0x2000 | PRESENT | WRITE),
            (0x2000, 510, 0x3000 | PRESENT | WRITE),
            (0x3000, 0, 0x4000 | PRESENT | WRITE),
            (0x4000, 0, 0x8000 | PRESENT | WRITE | NO_EXECUTE),
            (0x4000, 1, 0x9000 | PRESENT | WRITE | NO_EXECUTE),
            (0x4000, 2, 0xa000 | PRESENT),
            (0x4000, 3, 0x8000 | PRESENT | NO_EXECUTE),
            (0x4000, 4, 0xfee0_0000 | PRESENT | WRITE | NO_EXECUTE),
            // A table under a second address.
            (0x3000, 1, 0x4000 | PRESENT | WRITE),
        ] {
            put(&mut ram, table, n, entry);
        }
        ram[0x8000] = 7;
        ram[0x9001] = 9;
        let core = Core::of_machine(PathBuf::new(), &standing(&ram, registers())).unwrap();
        let start = 0xffff_ffff_8000_0000_u64;
        let of = |at: u64| {
            core.segment(start + at).map(|it| (it.start - start, it.end - start, it.rights.to_string()))
        };
        assert_eq!(of(0), Some((0, 0x2000, "rw-".to_owned())));
        assert_eq!(of(0x2000), Some((0x2000, 0x3000, "r-x".to_owned())));
        assert_eq!(of(0x3000), Some((0x3000, 0x4000, "r--".to_owned())));
        assert_eq!(
            (core.byte(start), core.byte(start + 0x1001), core.byte(start + 0x3000)),
            (Some(7), Some(9), Some(7))
        );
        assert_eq!((of(0x4000).is_some(), core.byte(start + 0x4000)), (true, None), "a device");
        assert_eq!(
            (of(0x20_0000).is_some(), core.byte(start + 0x20_0000)),
            (true, None),
            "a table that was seen"
        );
        assert_eq!((of(0x5000), core.end_name()), (None, "asked for".to_owned()));
        // The first page is data under the address of a piece of its own.
        let data = core.machine.as_ref().unwrap().data();
        assert_eq!(data, [start + 0x1000..start + 0x2000, start + 0x3000..start + 0x4000]);
    }

    #[test]
    fn tables_may_be_anything() {
        let mut seed = 11_u64;
        for round in 0..64 {
            let mut ram = vec![0; SIZE];
            for word in ram.chunks_exact_mut(8) {
                seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                // Most lead to some table in memory, or to themselves.
                let mask = if round % 2 == 0 { (SIZE as u64 - 1) | NO_EXECUTE } else { u64::MAX };
                word.copy_from_slice(&((seed ^ seed >> 29) & mask | u64::from(round % 4 == 0)).to_le_bytes());
            }
            let registers = Registers { cr3: seed, ..registers() };
            match Core::of_machine(PathBuf::new(), &standing(&ram, registers)) {
                Ok(core) => {
                    let sorted = core.segments.windows(2).all(|pair| pair[0].end <= pair[1].start);
                    assert!(sorted, "segments overlap in round {round}");
                }
                Err(error) => assert!(matches!(error, MachineError::Tables), "{error}"),
            }
        }
        let narrow = Registers { efer: 0, ..registers() };
        let refused = Core::of_machine(PathBuf::new(), &standing(&[0; SIZE], narrow));
        assert!(matches!(refused, Err(MachineError::Mode)));
    }
}
