//! Programs that Xen's direct boot ABI for x86 loads, in short PVH (Xen, docs/misc/pvh.pandoc): a note in the ELF file says where 32-bit
//! code is to be entered, without paging.
//!
//! The note is `XEN_ELFNOTE_PHYS32_ENTRY` in a segment of notes; its content is a physical address, of 4 or 8 bytes. ebx points to
//! `hvm_start_info`, version 1 (Xen, public/arch-x86/hvm/start_info.h): the command line, the map of memory, the ACPI tables, and as the
//! one module the initial file system. There is no Xen around the program: CPUID has no leaves of it, so no hypercalls.

use super::image::Image;
use super::{BootError, COMMAND_LINE, Loader, PARAMETERS, Setup, acpi, is_elf_32, narrow};
use object::LittleEndian;
use object::elf::{FileHeader32, FileHeader64, PT_LOAD, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};
use x86::state::Regs;
use x86_system::Registers;

/// `XEN_ELFNOTE_PHYS32_ENTRY`, and whose note it is.
const PHYS32_ENTRY: u32 = 18;
const OWNER: &[u8] = b"Xen\0";

/// `XEN_HVM_START_MAGIC_VALUE`.
const MAGIC: u32 = 0x336e_c578;
const VERSION: u32 = 1;

/// The structure that ebx points to, and what is around it.
const INFO: u64 = PARAMETERS;
const MODULES: u64 = INFO + 0x80;
const MAP: u64 = INFO + 0x100;

/// Where the 32-bit entry of a file is, if its notes have one.
///
/// # Errors
/// When the file's notes are damaged, or when the entry is not in what is loaded.
pub(super) fn entry(file: &[u8]) -> Result<Option<u32>, BootError> {
    if is_elf_32(file) {
        entry_of::<FileHeader32<LittleEndian>>(file)
    } else {
        entry_of::<FileHeader64<LittleEndian>>(file)
    }
}

fn entry_of<H: FileHeader<Endian = LittleEndian>>(file: &[u8]) -> Result<Option<u32>, BootError> {
    let wrong = |error: object::Error| BootError::Elf(format!("it is no ELF file to load: {error}"));
    let header = H::parse(file).map_err(wrong)?;
    let endian = header.endian().map_err(wrong)?;
    let segments = header.program_headers(endian, file).map_err(wrong)?;
    for segment in segments.iter().filter(|segment| segment.p_type(endian) == PT_NOTE) {
        let (at, size): (u64, u64) = (segment.p_offset(endian).into(), segment.p_filesz(endian).into());
        let align = if segment.p_align(endian).into() == 8 { 8 } else { 4 };
        let Some(entry) = Notes::new(file, at, size, align)?.entry()? else { continue };
        let is_loaded = segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD).any(|segment| {
            let (start, size): (u64, u64) = (segment.p_paddr(endian).into(), segment.p_filesz(endian).into());
            u64::from(entry).checked_sub(start).is_some_and(|n| n < size)
        });
        if !is_loaded {
            return Err(BootError::Elf(format!(
                "its PVH entry {entry:#x} is not in what the file has loaded (is it a virtual address?)"
            )));
        }
        return Ok(Some(entry));
    }
    Ok(None)
}

/// The notes of one segment.
struct Notes<'f> {
    bytes: &'f [u8],
    /// Where in the file these begin.
    at: u64,
    /// What names and contents are padded to.
    align: usize,
}

impl<'f> Notes<'f> {
    fn new(file: &'f [u8], at: u64, size: u64, align: usize) -> Result<Notes<'f>, BootError> {
        let range = || Some(usize::try_from(at).ok()?..usize::try_from(at.checked_add(size)?).ok()?);
        let bytes = range().and_then(|range| file.get(range)).ok_or_else(|| {
            BootError::Elf(format!("it is cut: its notes, {size} bytes at offset {at:#x}, are not in it"))
        })?;
        Ok(Notes { bytes, at, align })
    }

    /// The content of the note that says where the entry is.
    fn entry(&self) -> Result<Option<u32>, BootError> {
        const HEAD: usize = 12;
        let mut start = 0;
        // Less than a head is padding.
        while let Some(head) = self.bytes.get(start..start + HEAD) {
            let word = |n: usize| head[n..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
            let at = self.at + start as u64;
            let part = |from: usize, length: u32| {
                let end = from.checked_add(usize::try_from(length).ok()?)?;
                Some((self.bytes.get(from..end)?, end.checked_next_multiple_of(self.align)?))
            };
            let whole = || {
                let (name, behind) = part(start + HEAD, word(0))?;
                let (content, behind) = part(behind, word(4))?;
                Some((name, content, behind))
            };
            let (name, content, behind) = whole().ok_or_else(|| {
                let (name, content) = (word(0), word(4));
                BootError::Elf(format!(
                    "its note at offset {at:#x} is damaged: a name of {name} and a content of {content} bytes \
                     do not fit into its segment"
                ))
            })?;
            if name == OWNER && word(8) == PHYS32_ENTRY {
                return address(content, at).map(Some);
            }
            start = behind;
        }
        Ok(None)
    }
}

/// The address in the note at an offset of the file.
fn address(content: &[u8], at: u64) -> Result<u32, BootError> {
    let wide = match *content {
        [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => {
            return Err(BootError::Elf(format!(
                "its PVH note at offset {at:#x} has {} bytes, an entry has 4 or 8",
                content.len()
            )));
        }
    };
    u32::try_from(wide).map_err(|_| {
        let why = "is no physical address of 32 bits";
        BootError::Elf(format!("its PVH note at offset {at:#x}: the entry {wide:#x} {why}"))
    })
}

impl Loader<'_> {
    /// Loads a program with a PVH note: the registers at its entry.
    pub(super) fn pvh(
        &mut self,
        entry: u32,
        image: &Image,
        setup: &Setup,
    ) -> Result<(Registers, Regs), BootError> {
        let (_, end) = self.elf_of_either_class(&image.elf)?;
        let module = setup.initrd.as_ref().map(|initrd| self.initrd(initrd, end)).transpose()?;
        self.start_info(setup, module)?;
        self.narrow_segments()?;
        self.narrow_task()?;
        let mut regs = Regs { rip: entry.into(), rflags: 2, ..Regs::default() };
        regs.gpr[3] = INFO;
        Ok((narrow::registers_with_task(), regs))
    }

    /// What ebx points to.
    fn start_info(&mut self, setup: &Setup, module: Option<u64>) -> Result<(), BootError> {
        const MODULE_COUNT: u64 = INFO + 12;
        const MODULE_LIST: u64 = INFO + 16;
        const TEXT: u64 = INFO + 24;
        const RSDP: u64 = INFO + 32;
        const MAP_POINTER: u64 = INFO + 40;
        const MAP_LENGTH: u64 = INFO + 48;
        self.long(INFO, MAGIC)?;
        self.long(INFO + 4, VERSION)?;
        if let (Some(at), Some(bytes)) = (module, &setup.initrd) {
            self.long(MODULE_COUNT, 1)?;
            self.word(MODULE_LIST, MODULES)?;
            self.word(MODULES, at)?;
            self.word(MODULES + 8, bytes.len() as u64)?;
        }
        self.word(TEXT, COMMAND_LINE)?;
        self.put(COMMAND_LINE, &[setup.command_line.as_bytes(), &[0]].concat(), "command line")?;
        self.word(RSDP, acpi::BASE)?;
        let areas = self.areas();
        self.word(MAP_POINTER, MAP)?;
        self.word(MAP_LENGTH, areas.len() as u64)?;
        for (at, (start, length, kind)) in (MAP..).step_by(24).zip(areas) {
            self.word(at, start)?;
            self.word(at + 8, length)?;
            self.word(at + 16, kind.into())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
