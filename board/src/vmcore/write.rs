//! The memory of a machine as an ELF core, which `drgn` and `crash` open with the kernel's debug information.
//!
//! Linux leaves what they need to know of it in a page of its own (VMCOREINFO), which is looked for. The core has that as a note, the
//! registers as another, what only the machine knows (control registers, how it ended) as a third, and memory twice: where the kernel
//! maps all of it, and where it maps its own code. Pages of zeros are holes. What is known of the crash are more notes ([`Beside`]).

use super::Crashed;
use super::read::{NT_CRASHED, NT_CRUMBS, NT_TRAIL, ORIGIN};
use crate::linux::Memory;
use crate::machine::Machine;
use lbr::{Crumbs, Trail};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use vmm::elfcore::notes::OWNER;

/// Where Linux maps all memory without KASLR, by four-level paging.
const DIRECT_MAP: u64 = 0xffff_8880_0000_0000;
/// Where it maps the first memory for its code, and how much of that.
const KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;
const KERNEL_MAP_SIZE: u64 = 0x4000_0000;
const PAGE: usize = 4096;
/// The ELF header, and one program header.
const HEADER: u64 = 64;
const ENTRY: u64 = 56;
const ENTRIES: u64 = 3;

/// What a core has of the moment of the crash.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// That moment.
    pub crashed: Option<Crashed>,
    /// The newest branch records there.
    pub trail: Option<Trail>,
    /// The newest exits there.
    pub crumbs: Option<Crumbs>,
}

impl Beside {
    /// Appends the notes.
    fn put(&self, notes: &mut Vec<u8>) -> io::Result<()> {
        let mut add = |kind, content: &[u8]| note(notes, OWNER.as_bytes(), kind, content);
        self.trail.iter().for_each(|trail| add(NT_TRAIL, &trail.to_bytes()));
        self.crumbs.iter().for_each(|crumbs| add(NT_CRUMBS, &crumbs.to_bytes()));
        if let Some(crashed) = &self.crashed {
            add(NT_CRASHED, &crashed.to_bytes()?);
        }
        Ok(())
    }
}

/// What Linux says of itself.
fn vmcoreinfo(ram: &[u8]) -> Option<&[u8]> {
    let page = ram.chunks(PAGE).find(|page| page.starts_with(b"OSRELEASE="))?;
    let end = page.iter().position(|byte| *byte == 0).unwrap_or(PAGE);
    Some(&page[..end])
}

/// Appends a note.
fn note(out: &mut Vec<u8>, name: &[u8], kind: u32, content: &[u8]) {
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(0).to_le_bytes();
    out.extend(length(name.len() + 1));
    out.extend(length(content.len()));
    out.extend(kind.to_le_bytes());
    for part in [&[name, &[0]].concat(), content] {
        out.extend_from_slice(part);
        out.resize(out.len().next_multiple_of(4), 0);
    }
}

/// A program header.
fn entry(out: &mut Vec<u8>, kind: u32, flags: u32, offset: u64, address: u64, physical: u64, size: u64) {
    out.extend(kind.to_le_bytes());
    out.extend(flags.to_le_bytes());
    for word in [offset, address, physical, size, size, 0] {
        out.extend(word.to_le_bytes());
    }
}

/// `struct elf_prstatus` of Linux.
fn status(machine: &Machine) -> Vec<u8> {
    const PROCESS: usize = 32;
    const REGISTERS: usize = 112;
    const SIZE: usize = 336;
    let (regs, system) = machine.registers();
    let [rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15] = regs.gpr;
    let [es, cs, ss, ds, fs, gs] = system.segments.map(|segment| u64::from(segment.selector));
    let words = [
        r15,
        r14,
        r13,
        r12,
        rbp,
        rbx,
        r11,
        r10,
        r9,
        r8,
        rax,
        rcx,
        rdx,
        rsi,
        rdi,
        u64::MAX,
        regs.rip,
        cs,
        regs.rflags,
        rsp,
        ss,
        regs.fs_base,
        regs.gs_base,
        ds,
        es,
        fs,
        gs,
    ];
    let mut out = vec![0; REGISTERS];
    // Debuggers take it for the number of the processor, plus one, as QEMU has it.
    out[PROCESS] = 1;
    out.extend(words.into_iter().flat_map(u64::to_le_bytes));
    out.resize(SIZE, 0);
    out
}

/// What only the machine knows.
fn origin(machine: &Machine, end: &str) -> String {
    let (at, (_, system)) = (machine.moment(), machine.registers());
    let end = end.replace(char::is_control, " ");
    let numbers = [
        ("instructions", at.retired),
        ("nanoseconds", at.time),
        ("cr0", system.cr0),
        ("cr2", system.cr2),
        ("cr3", system.cr3),
        ("cr4", system.cr4),
        ("privilege", system.privilege.into()),
    ];
    let numbers = numbers.map(|(key, value)| format!("{key}={value:#x}\n"));
    format!("end={end}\n{}", numbers.concat())
}

fn header() -> Vec<u8> {
    const CORE: u16 = 4;
    const X86_64: u16 = 62;
    let mut out = Vec::from(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    out.extend(CORE.to_le_bytes());
    out.extend(X86_64.to_le_bytes());
    out.extend(1_u32.to_le_bytes());
    for word in [0, HEADER, 0] {
        out.extend(u64::to_le_bytes(word));
    }
    out.extend(0_u32.to_le_bytes());
    for half in [HEADER, ENTRY, ENTRIES, 0, 0, 0] {
        out.extend(u16::try_from(half).unwrap_or(0).to_le_bytes());
    }
    out
}

impl Memory for Machine {
    fn read_physical(&self, at: u64, bytes: &mut [u8]) -> bool {
        let found = usize::try_from(at).ok().and_then(|at| self.ram().get(at..at.checked_add(bytes.len())?));
        found.map(|found| bytes.copy_from_slice(found)).is_some()
    }
}

impl Machine {
    /// What Linux says of itself, if it is in memory.
    #[must_use]
    pub fn description(&self) -> Option<String> {
        vmcoreinfo(self.ram()).map(|text| String::from_utf8_lossy(text).into_owned())
    }

    /// What only the machine knows, as its core has it: how it ended in words, and lines of `key=value`.
    #[must_use]
    pub fn origin(&self, end: &str) -> String {
        origin(self, end)
    }

    /// Writes its memory and registers as an ELF core, with how it ended in words, and what is known of the crash; whether the kernel's own
    /// description was found.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write_vmcore(&self, file: &mut File, end: &str, beside: &Beside) -> io::Result<bool> {
        const LOAD: u32 = 1;
        const NOTE: u32 = 4;
        let ram = self.ram();
        let size = ram.len() as u64;
        let described = vmcoreinfo(ram);
        let mut notes = Vec::new();
        note(&mut notes, b"CORE", 1, &status(self));
        note(&mut notes, ORIGIN.as_bytes(), 0, origin(self, end).as_bytes());
        described.into_iter().for_each(|text| note(&mut notes, b"VMCOREINFO", 0, text));
        beside.put(&mut notes)?;
        let notes_at = HEADER + ENTRIES * ENTRY;
        let ram_at = (notes_at + notes.len() as u64).next_multiple_of(PAGE as u64);
        let mut out = header();
        entry(&mut out, NOTE, 0, notes_at, 0, 0, notes.len() as u64);
        entry(&mut out, LOAD, 7, ram_at, KERNEL_MAP, 0, size.min(KERNEL_MAP_SIZE));
        entry(&mut out, LOAD, 7, ram_at, DIRECT_MAP, 0, size);
        out.extend(notes);
        file.write_all(&out)?;
        for (at, page) in (ram_at..).step_by(PAGE).zip(ram.chunks(PAGE)) {
            if page.iter().any(|byte| *byte != 0) {
                file.seek(SeekFrom::Start(at))?;
                file.write_all(page)?;
            }
        }
        file.set_len(ram_at + size)?;
        Ok(described.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_description_is_a_page_that_begins_with_its_release() {
        let mut ram = vec![1; 3 * PAGE];
        assert_eq!(vmcoreinfo(&ram), None);
        ram[PAGE..PAGE + 15].copy_from_slice(b"OSRELEASE=6.1\n\0");
        assert_eq!(vmcoreinfo(&ram), Some(b"OSRELEASE=6.1\n".as_slice()));
    }

    #[test]
    fn notes_are_padded_to_words() {
        let mut out = Vec::new();
        note(&mut out, b"CORE", 1, &[9]);
        assert_eq!(out, [5, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, b'C', b'O', b'R', b'E', 0, 0, 0, 0, 9, 0, 0, 0]);
    }
}
