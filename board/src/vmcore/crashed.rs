//! Where a kernel crashed, as a note of its core. The core's memory is that of the machine's end, which debuggers of kernels want: the log
//! has the panic in it. The note has the registers of the moment of the crash, and what memory was then wherever it is another one at
//! the end. So both moments are in one file.
//!
//! The bytes: `gtrcrash`, the version (4 bytes), zero (4), then compressed by zstd: the number of words (8 bytes) and the words, and for each
//! page its address (8 bytes) and what it was.

use super::Vmcore;
use crate::crash::Crash;
use crate::machine::{Machine, Position};
use crate::memory::{PAGE, Page};
use crate::saved::{Saved, Words};
use std::collections::BTreeMap;
use std::io::{self, Read};
use x86::state::{Fpu, Regs, State};
use x86_system::{Raised, Registers};

const MAGIC: &[u8; 8] = b"gtrcrash";
const VERSION: u32 = 1;
const HEADER: usize = 16;
/// A note with more is none: that many bytes are the memory of the largest machine, and its registers.
const MOST: u64 = 4 << 30;
/// How much it is compressed.
const LEVEL: i32 = 3;

/// A machine where its kernel crashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crashed {
    /// Where in its run.
    pub at: Position,
    /// Its registers.
    pub state: State,
    /// Those of the system.
    pub registers: Registers,
    /// What the instruction there raises.
    pub raised: Option<Raised>,
    /// In words where nothing is raised.
    pub end: String,
    /// Pages of memory that are others at the end, by their addresses.
    pages: BTreeMap<u64, Box<Page>>,
}

/// Why a note is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CrashedError {
    /// Another version.
    #[error("where the kernel crashed is written in version {0}; this gretel reads version {VERSION}")]
    Version(u32),
    /// It is damaged.
    #[error(
        "what it says of where the kernel crashed is damaged: name its recording, which needs none of that"
    )]
    Damaged,
}

impl Crashed {
    /// Of a machine that stands there, whose memory is `end` at its end.
    #[must_use]
    pub fn of(machine: &Machine, crash: Crash, end: &[u8]) -> Crashed {
        let (then, _) = machine.ram().as_chunks::<PAGE>();
        let (end, _) = end.as_chunks::<PAGE>();
        let both = (0..).step_by(PAGE).zip(then.iter().zip(end));
        let changed = both.filter(|(_, (then, end))| then != end);
        Crashed {
            at: machine.position(),
            state: State { regs: machine.regs(), fpu: machine.fpu() },
            registers: *machine.system_registers(),
            raised: crash.end().ok(),
            end: crash.end().err().unwrap_or_default().to_owned(),
            pages: changed.map(|(at, (then, _))| (at, Box::new(*then))).collect(),
        }
    }

    /// Memory there, of the core that it is a note of; `None` where that has not all of it.
    #[must_use]
    pub fn memory(&self, core: &Vmcore) -> Option<Vec<u8>> {
        let end = core.first_memory()?;
        let mut memory = vec![0; end.len()];
        // Pages of zeros are holes in the file, and no memory is taken for them.
        for (to, page) in
            memory.chunks_mut(PAGE).zip(end.chunks(PAGE)).filter(|(_, page)| **page != [0; PAGE])
        {
            to.copy_from_slice(page);
        }
        for (at, page) in &self.pages {
            let at = usize::try_from(*at).ok()?;
            memory.get_mut(at..at.checked_add(PAGE)?)?.copy_from_slice(&**page);
        }
        Some(memory)
    }

    /// How many pages of memory are others at the end.
    #[must_use]
    pub fn changed_pages(&self) -> usize {
        self.pages.len()
    }

    /// Its bytes.
    ///
    /// # Errors
    /// When they cannot be compressed.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut words = Vec::new();
        let Position { retired, delivered } = self.at;
        (retired, delivered).put(&mut words);
        (self.state.regs, self.state.fpu).put(&mut words);
        (self.registers, (self.raised, self.end.clone())).put(&mut words);
        let mut plain: Vec<u8> = (words.len() as u64).to_le_bytes().to_vec();
        plain.extend(words.into_iter().flat_map(u64::to_le_bytes));
        for (at, page) in &self.pages {
            plain.extend(at.to_le_bytes());
            plain.extend_from_slice(&**page);
        }
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        out.resize(HEADER, 0);
        out.extend(zstd::bulk::compress(&plain, LEVEL)?);
        Ok(out)
    }

    /// Reads what [`Crashed::to_bytes`] wrote; the bytes may be anything. Pages at or behind `memory` are damage.
    ///
    /// # Errors
    /// When they are something else.
    pub fn from_bytes(bytes: &[u8], memory: u64) -> Result<Crashed, CrashedError> {
        let damaged = CrashedError::Damaged;
        let (header, packed) = bytes.split_at_checked(HEADER).ok_or_else(|| damaged.clone())?;
        if &header[..8] != MAGIC {
            return Err(damaged);
        }
        match header[8..12].try_into().map(u32::from_le_bytes) {
            Ok(VERSION) if header[12..] == [0; 4] => {}
            Ok(version) if version != VERSION => return Err(CrashedError::Version(version)),
            _ => return Err(damaged),
        }
        unpacked(packed, memory).ok_or(damaged)
    }
}

fn unpacked(packed: &[u8], memory: u64) -> Option<Crashed> {
    /// Registers and a sentence: some hundred words.
    const MOST_WORDS: u64 = 1 << 16;
    let mut from = zstd::stream::read::Decoder::new(packed).ok()?.take(MOST);
    let mut number = || -> Option<Option<u64>> {
        let mut bytes = [0; 8];
        let read = from.read(&mut bytes[..1]).ok()?;
        if read == 0 {
            return Some(None);
        }
        from.read_exact(&mut bytes[1..]).ok()?;
        Some(Some(u64::from_le_bytes(bytes)))
    };
    let count = number()??;
    let words: Option<Vec<u64>> = (0..count.min(MOST_WORDS)).map(|_| number()?).collect();
    let words = words.filter(|words| words.len() as u64 == count)?;
    let mut left = Words(&words);
    let (retired, delivered) = <(u64, u64)>::take(&mut left)?;
    let (regs, fpu) = <(Regs, Fpu)>::take(&mut left)?;
    let (registers, (raised, end)) = <(Registers, (Option<Raised>, String))>::take(&mut left)?;
    if !left.0.is_empty() {
        return None;
    }
    let mut pages = BTreeMap::new();
    loop {
        let mut address = [0; 8];
        if from.read(&mut address[..1]).ok()? == 0 {
            break;
        }
        from.read_exact(&mut address[1..]).ok()?;
        let at = u64::from_le_bytes(address);
        let mut page = Box::new([0; PAGE]);
        from.read_exact(&mut page[..]).ok()?;
        if at % PAGE as u64 != 0 || at >= memory {
            return None;
        }
        pages.insert(at, page);
    }
    let at = Position { retired, delivered };
    Some(Crashed { at, state: State { regs, fpu }, registers, raised, end, pages })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crashed() -> Crashed {
        let raised = Raised { vector: 14, code: 2, address: Some(8), rip: 0x1000, rsp: 0x2000, privilege: 0 };
        Crashed {
            at: Position { retired: 7, delivered: 3 },
            state: State::default(),
            registers: Registers { cr3: 0x9000, ..Registers::default() },
            raised: Some(raised),
            end: String::new(),
            pages: [(0x3000, Box::new([3; PAGE])), (0x5000, Box::new([5; PAGE]))].into(),
        }
    }

    #[test]
    fn what_is_written_is_read_and_what_is_damaged_is_told() {
        let (it, size) = (crashed(), 0x6000);
        let bytes = it.to_bytes().unwrap();
        assert_eq!(Crashed::from_bytes(&bytes, size), Ok(it));
        assert_eq!(Crashed::from_bytes(&bytes, 0x5000), Err(CrashedError::Damaged), "no such memory");
        for cut in 0..bytes.len() {
            assert!(Crashed::from_bytes(&bytes[..cut], size).is_err(), "cut at {cut}");
        }
        let mut other = bytes.clone();
        other[8] = 2;
        assert_eq!(Crashed::from_bytes(&other, size), Err(CrashedError::Version(2)));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0xff;
            drop(Crashed::from_bytes(&bad, size));
        }
    }
}
