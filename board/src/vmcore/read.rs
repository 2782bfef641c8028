//! Reads the core of a kernel: program headers, notes, physical memory.

use super::{Crashed, CrashedError};
use crate::linux::Memory;
use lbr::crumb::CrumbsError;
use lbr::trail::TrailError;
use lbr::{Crumbs, Trail, View, regular};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use vmm::elfcore::notes::OWNER;
use x86::state::Regs;

/// The name of the note that a machine of gretel adds: lines of `key=value`, numbers in hexadecimal.
pub(super) const ORIGIN: &str = "GRETEL";
/// The name of the note with what Linux says of itself.
const DESCRIPTION: &str = "VMCOREINFO";
/// The kinds of the notes of [`OWNER`]: branch records, exits, where the kernel crashed ([`Crashed`]). Not those of a program's core, since
/// `crash` asks for the kind of a note alone: the trail's would be the registers of a second processor to it.
pub(super) const NT_TRAIL: u32 = 0x6774_0001;
pub(super) const NT_CRUMBS: u32 = 0x6774_0004;
pub(super) const NT_CRASHED: u32 = 0x6774_0006;
/// QEMU's own note.
const QEMU: &str = "QEMU";
/// Notes and program headers beyond these are damage.
const MOST_NOTES: usize = 1 << 30;
const MOST_ENTRIES: u16 = 4096;

/// Why a core cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum VmcoreError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// It is something else, or is cut before its memory.
    #[error("{} is not the core of a kernel: {why}", path.display())]
    Not {
        /// The file.
        path: PathBuf,
        /// What shows that.
        why: &'static str,
    },
}

/// A piece of physical memory in the file.
#[derive(Clone, Copy, Debug)]
struct Piece {
    physical: u64,
    offset: u64,
    size: u64,
}

/// The core of a kernel.
#[derive(Debug)]
pub struct Vmcore {
    view: View,
    pieces: Vec<Piece>,
    /// The registers of each processor, the one that crashed first if a crash kernel wrote the core of it alone.
    pub processors: Vec<Regs>,
    /// What Linux says of itself; none where it is no Linux, or had not come so far.
    pub description: Option<String>,
    /// What a machine of gretel says of itself and of its end.
    pub origin: Option<String>,
    /// What is wrong with the file.
    pub damage: Option<String>,
    /// The branch records, the exits, and where the kernel crashed, as they are in the file.
    trail: Option<Vec<u8>>,
    crumbs: Option<Vec<u8>>,
    crashed: Option<Vec<u8>>,
}

/// A note: its name, its kind, its content.
type Note<'n> = (&'n [u8], u32, &'n [u8]);

/// Whether a file is the core of a kernel: an ELF core with a note that only these have. `false` also where it cannot be read.
#[must_use]
pub fn is_one(path: &Path) -> bool {
    const FIRST: u64 = 1 << 20;
    let mut head = Vec::new();
    let read = regular::open(path).and_then(|file| file.take(FIRST).read_to_end(&mut head));
    let names = |head: &[u8]| {
        let entries = entries(head)?;
        let notes = entries.iter().filter(|entry| entry.kind == Entry::NOTE);
        let notes: Vec<Note> = notes.flat_map(|entry| entry.notes(head)).collect();
        let is_kernels =
            |name: &[u8]| [DESCRIPTION, ORIGIN, QEMU].iter().any(|known| name == known.as_bytes());
        Some(notes.iter().any(|(name, ..)| is_kernels(name)))
    };
    read.is_ok() && names(&head).unwrap_or(false)
}

impl Vmcore {
    /// Opens one.
    ///
    /// # Errors
    /// When it cannot be read or is something else. What is only cut short is [`Vmcore::damage`].
    pub fn open(path: &Path) -> Result<Vmcore, VmcoreError> {
        let failed = |error| VmcoreError::Read { path: path.to_owned(), error };
        let not = |why| VmcoreError::Not { path: path.to_owned(), why };
        let file: File = regular::open(path).map_err(failed)?;
        let view = View::of(&file).map_err(failed)?;
        let entries = entries(&view).ok_or_else(|| not("it is no ELF core of x86-64"))?;
        let (mut processors, mut description, mut origin) = (Vec::new(), None, None);
        let (mut trail, mut crumbs, mut crashed) = (None, None, None);
        let text = |content: &[u8]| String::from_utf8_lossy(content).trim_end_matches('\0').to_owned();
        for entry in entries.iter().filter(|entry| entry.kind == Entry::NOTE) {
            for (name, kind, content) in entry.notes(&view) {
                match (name, kind) {
                    (b"CORE", 1) => processors.extend(registers(content)),
                    (name, _) if name == DESCRIPTION.as_bytes() => description = Some(text(content)),
                    (name, NT_TRAIL) if name == OWNER.as_bytes() => trail = Some(content.to_vec()),
                    (name, NT_CRUMBS) if name == OWNER.as_bytes() => crumbs = Some(content.to_vec()),
                    (name, NT_CRASHED) if name == OWNER.as_bytes() => crashed = Some(content.to_vec()),
                    (name, _) if name == ORIGIN.as_bytes() => origin = Some(text(content)),
                    _ => {}
                }
            }
        }
        let pieces: Vec<Piece> = entries.iter().filter_map(Entry::piece).collect();
        if pieces.is_empty() {
            return Err(not("it has no memory"));
        }
        let end = pieces.iter().map(|piece| piece.offset.saturating_add(piece.size)).max().unwrap_or(0);
        let missing = end.saturating_sub(view.len() as u64);
        let damage = (missing > 0).then(|| format!("the last {missing} bytes are missing"));
        Ok(Vmcore { view, pieces, processors, description, origin, damage, trail, crumbs, crashed })
    }

    /// The newest branch records where the kernel crashed, if it has any.
    ///
    /// # Errors
    /// When they are damaged.
    pub fn trail(&self) -> Result<Option<Trail>, TrailError> {
        self.trail.as_deref().map(Trail::from_bytes).transpose()
    }

    /// The newest exits there.
    ///
    /// # Errors
    /// When they are damaged.
    pub fn crumbs(&self) -> Result<Option<Crumbs>, CrumbsError> {
        self.crumbs.as_deref().map(Crumbs::from_bytes).transpose()
    }

    /// Where the kernel crashed, if that is in it.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn crashed(&self) -> Result<Option<Crashed>, CrashedError> {
        let size = self.first_memory().map_or(0, |memory| memory.len() as u64);
        self.crashed.as_deref().map(|bytes| Crashed::from_bytes(bytes, size)).transpose()
    }

    /// Memory from address zero on, in one piece.
    pub(super) fn first_memory(&self) -> Option<&[u8]> {
        let first = self.pieces.iter().filter(|piece| piece.physical == 0);
        let largest = first.max_by_key(|piece| piece.size)?;
        let (start, size) = (usize::try_from(largest.offset).ok()?, usize::try_from(largest.size).ok()?);
        self.view.get(start..start.checked_add(size)?)
    }
}

/// What a machine of gretel says under a key.
#[must_use]
pub fn said<'o>(origin: &'o str, key: &str) -> Option<&'o str> {
    let lines = origin.lines().filter_map(|line| line.split_once('='));
    lines.into_iter().find(|(name, _)| *name == key).map(|(_, value)| value)
}

impl Memory for Vmcore {
    fn read_physical(&self, at: u64, bytes: &mut [u8]) -> bool {
        let length = bytes.len() as u64;
        let found = self.pieces.iter().find_map(|piece| {
            let inside = at.checked_sub(piece.physical).filter(|n| n.saturating_add(length) <= piece.size)?;
            let start = usize::try_from(piece.offset.checked_add(inside)?).ok()?;
            self.view.get(start..start.checked_add(bytes.len())?)
        });
        found.map(|found| bytes.copy_from_slice(found)).is_some()
    }
}

/// A program header.
#[derive(Clone, Copy, Debug)]
struct Entry {
    kind: u32,
    offset: u64,
    physical: u64,
    size: u64,
}

impl Entry {
    const LOAD: u32 = 1;
    const NOTE: u32 = 4;

    fn read(bytes: &[u8]) -> Option<Entry> {
        let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let kind = bytes.get(..4)?.try_into().ok().map(u32::from_le_bytes)?;
        Some(Entry { kind, offset: word(8)?, physical: word(24)?, size: word(32)? })
    }

    /// Its memory; none where the file does not say which physical memory that is.
    fn piece(&self) -> Option<Piece> {
        let is_memory = self.kind == Entry::LOAD && self.physical != u64::MAX && self.size > 0;
        is_memory.then_some(Piece { physical: self.physical, offset: self.offset, size: self.size })
    }

    /// Its notes, up to the first that is cut.
    fn notes<'f>(&self, file: &'f [u8]) -> Vec<Note<'f>> {
        let start = usize::try_from(self.offset).unwrap_or(usize::MAX).min(file.len());
        let size = usize::try_from(self.size).unwrap_or(usize::MAX).min(MOST_NOTES);
        let mut rest = &file[start..start.saturating_add(size).min(file.len())];
        let mut notes = Vec::new();
        while let Some((note, behind)) = split_note(rest) {
            notes.push(note);
            rest = behind;
        }
        notes
    }
}

/// The first note, and what is behind it.
fn split_note(bytes: &[u8]) -> Option<(Note<'_>, &[u8])> {
    let number = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let [name, content] = [number(0)? as usize, number(4)? as usize];
    let kind = number(8)?;
    let content_at = 12_usize.checked_add(name.checked_next_multiple_of(4)?)?;
    let end = content_at.checked_add(content)?;
    let name = bytes.get(12..12_usize.checked_add(name)?)?;
    let name = name.strip_suffix(&[0]).unwrap_or(name);
    let behind = end.checked_next_multiple_of(4)?.min(bytes.len());
    Some(((name, kind, bytes.get(content_at..end)?), &bytes[behind..]))
}

/// The program headers of an ELF core of x86-64; `None` if it is none.
fn entries(file: &[u8]) -> Option<Vec<Entry>> {
    const CORE_X86_64: [u8; 4] = [4, 0, 62, 0];
    const SIZE: usize = 56;
    let is_one = file.get(..6)? == b"\x7fELF\x02\x01" && file.get(16..20)? == CORE_X86_64;
    let at = usize::try_from(u64::from_le_bytes(file.get(32..40)?.try_into().ok()?)).ok()?;
    let count = u16::from_le_bytes(file.get(56..58)?.try_into().ok()?);
    if !is_one || count > MOST_ENTRIES {
        return None;
    }
    let headers = (0..usize::from(count)).map(|n| {
        let start = at.checked_add(n * SIZE)?;
        Entry::read(file.get(start..start.checked_add(SIZE)?)?)
    });
    headers.collect()
}

/// The registers in `struct elf_prstatus`.
fn registers(status: &[u8]) -> Option<Regs> {
    const AT: usize = 112;
    const COUNT: usize = 27;
    let bytes = status.get(AT..AT + 8 * COUNT)?;
    let mut words = [0; COUNT];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let [r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, _, rip, ..] = words;
    let [.., rflags, rsp, _, fs_base, gs_base, _, _, _, _] = words;
    let gpr = [rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15];
    Some(Regs { gpr, rip, rflags, fs_base, gs_base })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmcore::Beside;
    use crate::{Machine, Pause, Setup};
    use std::fs;

    const IMAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../guest-images/build/bare-kernel");

    fn machine() -> Machine {
        let kernel = fs::read(IMAGE).unwrap_or_else(|error| panic!("{IMAGE}: {error}: make guests"));
        let setup = Setup { kernel, command_line: "triple".to_owned(), memory: 16 << 20, ..Setup::default() };
        let mut machine = Machine::boot(&setup).unwrap();
        while let Pause::Idle(Some(due)) = machine.run(u64::MAX >> 2) {
            machine.wait_until(due);
        }
        machine
    }

    #[test]
    fn what_is_written_is_read_and_what_is_cut_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let (path, machine) = (dir.path().join("core"), machine());
        machine.write_vmcore(&mut File::create(&path).unwrap(), "triple fault", &Beside::default()).unwrap();
        assert!(is_one(&path));
        let core = Vmcore::open(&path).unwrap();
        assert_eq!((&core.processors[..], &core.damage), (&[machine.regs()][..], &None));
        let origin = core.origin.clone().unwrap();
        assert_eq!((said(&origin, "end"), core.description), (Some("triple fault"), None));
        assert_eq!(origin, machine.origin("triple fault"));
        let instructions = format!("{:#x}", machine.moment().retired);
        assert_eq!(said(&origin, "instructions"), Some(instructions.as_str()));
        let core = Vmcore::open(&path).unwrap();
        let mut bytes = [0; 64];
        assert!(core.read_physical(0x10_0000, &mut bytes));
        assert_eq!(bytes, machine.ram()[0x10_0000..0x10_0040]);
        assert!(
            !core.read_physical((16 << 20) - 63, &mut bytes) && !core.read_physical(u64::MAX, &mut bytes)
        );

        let whole = fs::read(&path).unwrap();
        for length in (0..0x600).chain([whole.len() / 2, whole.len() - 1]) {
            fs::write(&path, &whole[..length]).unwrap();
            if let Ok(core) = Vmcore::open(&path) {
                assert!(core.damage.is_some(), "cut at {length}");
            }
        }
        // Whatever its headers and notes say, it is read or refused.
        for at in 0..0x600 {
            let mut bad = whole[..0x2000].to_vec();
            bad[at] ^= 0xff;
            fs::write(&path, bad).unwrap();
            drop((is_one(&path), Vmcore::open(&path)));
        }
    }

    #[test]
    fn other_files_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for bytes in [&b""[..], b"\x7fELF", include_bytes!("read.rs")] {
            fs::write(&path, bytes).unwrap();
            assert!(!is_one(&path) && Vmcore::open(&path).is_err());
        }
        assert!(!is_one(Path::new("/bin/true")) && !is_one(Path::new("none")));
    }
}
