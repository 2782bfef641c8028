//! Puts a kernel into memory, as a boot loader does, and the processor at its first instruction.
//!
//! Which entry a file gets, the first that fits (docs/decisions/0093-pvh.md):
//!
//! | file | entry |
//! | --- | --- |
//! | a bzImage | Linux's 64-bit boot protocol (Documentation/arch/x86/boot.rst) |
//! | an ELF file with a Multiboot header | Multiboot (`multiboot`): 32-bit mode without paging |
//! | an ELF file with a PVH note | PVH (`pvh`): the same mode, with a TSS |
//! | another ELF file | the 64-bit boot protocol, at the entry address of the file |
//!
//! The 64-bit boot protocol: flat segments, the first 4 GiB mapped to themselves, rsi points to the page of parameters.
//!
//! | address | what |
//! | --- | --- |
//! | 0x500 | the GDT |
//! | 0x7000 | the page of parameters, or what Multiboot and PVH have in its place |
//! | 0x9000 | page tables |
//! | 0x20000 | the command line |
//! | 0xe0000 | ACPI tables (`acpi`) |
//! | where its headers say | the kernel (`image`: out of a bzImage) |
//! | the top of memory | the initial file system |

mod acpi;
mod aml;
mod image;
mod multiboot;
mod narrow;
mod pvh;

use crate::devices::disk::Image as DiskImage;
use crate::devices::{DISK, Devices, Extras};
use crate::memory::frames;
use image::{HEADER, Image};
use object::LittleEndian;
use object::elf::{EM_386, EM_X86_64, FileHeader32, FileHeader64, Machine, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use std::collections::BTreeSet;
use x86::state::Regs;
use x86_system::{Physical, Registers, Segment, System, SystemCpu, TableRegister};

const GDT: u64 = 0x500;
const PARAMETERS: u64 = 0x7000;
const TABLES: u64 = 0x9000;
const COMMAND_LINE: u64 = 0x2_0000;
/// What a kernel takes at most (COMMAND_LINE_SIZE).
const LONGEST_COMMAND_LINE: usize = 2047;
/// Where low memory ends that is free.
const LOW_END: u64 = 0x9_f000;
const MEGABYTE: u64 = 1 << 20;

/// The least memory of a machine.
pub const LEAST_MEMORY: u64 = 16 << 20;
/// The most: devices are above it.
pub const MOST_MEMORY: u64 = 3 << 30;

/// What is booted.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The kernel's file.
    pub kernel: Vec<u8>,
    /// The initial file system.
    pub initrd: Option<Vec<u8>>,
    /// The command line.
    pub command_line: String,
    /// Bytes of RAM.
    pub memory: u64,
    /// The time of day at the start, in seconds since 1970.
    pub start: u64,
    /// What its disk begins with, if it has one.
    pub disk: Option<DiskImage>,
    /// Which devices of virtio it has beside that.
    pub extras: Extras,
}

/// Why something cannot be booted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootError {
    /// It is some other file.
    #[error("it is neither an ELF file nor a bzImage")]
    NotAKernel,
    /// The file ends early.
    #[error("it is cut: it ends before its compressed kernel does")]
    Cut,
    /// A file that is packed as a whole.
    #[error("it is compressed by {0}; unpack it first: {0} -dc FILE >UNPACKED")]
    Packed(&'static str),
    /// A program of UEFI.
    #[error("it is a program of UEFI, which is not served; a bzImage or an ELF file of the kernel is")]
    Efi,
    /// A program with the header of a Linux that is none.
    #[error(
        "it has the header of a bzImage, but no compressed kernel in it: it is no Linux since 2.6.26, and begins in code of its own as \
         iPXE and memtest86+ do, which is not served (an ELF file of the program is)"
    )]
    NotLinux,
    /// A compression that is not served.
    #[error("its kernel is compressed by {0}; gzip, LZ4, xz and zstd are served (or give the vmlinux)")]
    Compression(&'static str),
    /// The compressed kernel is damaged.
    #[error("its kernel cannot be decompressed: {0}")]
    Payload(String),
    /// The ELF file cannot be loaded.
    #[error("{0}")]
    Elf(String),
    /// It does not fit.
    #[error("the {what} does not fit into {memory} MiB of memory")]
    NoRoom {
        /// What.
        what: &'static str,
        /// The memory.
        memory: u64,
    },
    /// More or less memory than a machine can have.
    #[error("a machine has {least}M to {most}G of memory, not {0} bytes", least = LEAST_MEMORY >> 20, most = MOST_MEMORY >> 30)]
    Memory(u64),
    /// A command line that is too long.
    #[error("the command line has {0} bytes, a kernel takes {LONGEST_COMMAND_LINE}")]
    CommandLine(usize),
}

/// Memory that is being filled.
struct Loader<'m> {
    ram: &'m mut [u8],
    /// The frames that were written.
    written: BTreeSet<u64>,
}

impl Loader<'_> {
    fn put(&mut self, at: u64, bytes: &[u8], what: &'static str) -> Result<(), BootError> {
        let memory = self.ram.len() as u64 / MEGABYTE;
        let start = usize::try_from(at).ok();
        let range = start.and_then(|start| Some(start..start.checked_add(bytes.len())?));
        let room = range.and_then(|range| self.ram.get_mut(range));
        room.ok_or(BootError::NoRoom { what, memory })?.copy_from_slice(bytes);
        self.written.extend(frames(at, bytes.len() as u64));
        Ok(())
    }

    fn word(&mut self, at: u64, value: u64) -> Result<(), BootError> {
        self.put(at, &value.to_le_bytes(), "start")
    }

    fn long(&mut self, at: u64, value: u32) -> Result<(), BootError> {
        self.put(at, &value.to_le_bytes(), "start")
    }

    /// Loads what the ELF file says, and gives its entry and the end of what was loaded.
    fn elf<H: FileHeader<Endian = LittleEndian>>(
        &mut self,
        bytes: &[u8],
        machine: Machine,
    ) -> Result<(u64, u64), BootError> {
        let wrong = |error: object::Error| BootError::Elf(format!("it is no ELF file to load: {error}"));
        let header = H::parse(bytes).map_err(wrong)?;
        let endian = header.endian().map_err(wrong)?;
        if header.e_machine(endian) != machine {
            return Err(BootError::Elf("it is an ELF file for another processor than x86-64".to_owned()));
        }
        let mut end = 0;
        for segment in header.program_headers(endian, bytes).map_err(wrong)? {
            if segment.p_type(endian) != PT_LOAD {
                continue;
            }
            let data = segment.data(endian, bytes);
            let data = data.map_err(|()| BootError::Elf("it is cut: a segment is missing".to_owned()))?;
            let at: u64 = segment.p_paddr(endian).into();
            if at < MEGABYTE && !data.is_empty() {
                return Err(BootError::Elf(format!(
                    "it wants to be at {at:#x}, below 1 MiB, where the boot loader is"
                )));
            }
            self.put(at, data, "kernel")?;
            end = end.max(at.saturating_add(segment.p_memsz(endian).into()));
        }
        if end == 0 {
            return Err(BootError::Elf("it has no segment to load".to_owned()));
        }
        if end > self.ram.len() as u64 {
            return Err(BootError::NoRoom { what: "kernel", memory: self.ram.len() as u64 / MEGABYTE });
        }
        Ok((header.e_entry(endian).into(), end))
    }

    /// The same of an ELF file that is entered in 32-bit mode, and so may be one of 32 bits.
    fn elf_of_either_class(&mut self, bytes: &[u8]) -> Result<(u64, u64), BootError> {
        if is_elf_32(bytes) {
            self.elf::<FileHeader32<LittleEndian>>(bytes, EM_386)
        } else {
            self.elf::<FileHeader64<LittleEndian>>(bytes, EM_X86_64)
        }
    }

    /// Puts the initial file system at the top of memory: where.
    fn initrd(&mut self, initrd: &[u8], kernel_end: u64) -> Result<u64, BootError> {
        let no_room = BootError::NoRoom { what: "initrd", memory: self.ram.len() as u64 / MEGABYTE };
        // No kernel asks for one below this.
        let top = (self.ram.len() as u64).min(0x3800_0000);
        let at = top.checked_sub(initrd.len() as u64).map(|at| at & !0xfff).filter(|at| *at >= kernel_end);
        let at = at.ok_or(no_room)?;
        self.put(at, initrd, "initrd")?;
        Ok(at)
    }

    /// Maps the first 4 GiB to themselves by pages of 2 MiB.
    fn page_tables(&mut self) -> Result<(), BootError> {
        const POINTER: u64 = 3;
        const PAGE: u64 = 0x83;
        self.word(TABLES, (TABLES + 0x1000) | POINTER)?;
        for n in 0..4 {
            self.word(TABLES + 0x1000 + 8 * n, (TABLES + 0x2000 + 0x1000 * n) | POINTER)?;
        }
        (0..4 * 512).try_for_each(|n| self.word(TABLES + 0x2000 + 8 * n, n << 21 | PAGE))
    }

    fn segments(&mut self) -> Result<(), BootError> {
        self.word(GDT + 0x10, 0x00af_9b00_0000_ffff)?;
        self.word(GDT + 0x18, 0x00cf_9300_0000_ffff)
    }

    /// Loads a kernel for the entry that its file has: the registers there.
    fn kernel(&mut self, image: &Image, setup: &Setup) -> Result<(Registers, Regs), BootError> {
        if image.header.is_some() {
            return self.linux(image, setup);
        }
        if let Some(header) = multiboot::header(&image.elf)? {
            return self.multiboot(header, image, setup);
        }
        match pvh::entry(&image.elf)? {
            Some(entry) => self.pvh(entry, image, setup),
            None => self.linux(image, setup),
        }
    }

    /// Loads a kernel for its 64-bit entry: the registers there.
    fn linux(&mut self, image: &Image, setup: &Setup) -> Result<(Registers, Regs), BootError> {
        let (entry, end) = self.elf::<FileHeader64<LittleEndian>>(&image.elf, EM_X86_64)?;
        let initrd = setup.initrd.as_ref().map(|initrd| self.initrd(initrd, end)).transpose()?;
        self.page_tables()?;
        self.segments()?;
        self.parameters(image, setup, initrd)?;
        let mut regs = Regs { rip: entry, rflags: 2, ..Regs::default() };
        // rsp below the parameters, and rsi to them.
        regs.gpr[4] = PARAMETERS;
        regs.gpr[6] = PARAMETERS;
        Ok((registers(), regs))
    }

    /// The map of memory: start, length, and 1 for RAM.
    fn areas(&self) -> [(u64, u64, u32); 3] {
        [(0, LOW_END, 1), (LOW_END, MEGABYTE - LOW_END, 2), (MEGABYTE, self.ram.len() as u64 - MEGABYTE, 1)]
    }

    /// The page of parameters ("zero page").
    fn parameters(&mut self, image: &Image, setup: &Setup, initrd: Option<u64>) -> Result<(), BootError> {
        const RSDP: u64 = PARAMETERS + 0x70;
        const AREAS: u64 = PARAMETERS + 0x1e8;
        const LOADER: u64 = PARAMETERS + 0x210;
        const FILE_SYSTEM: u64 = PARAMETERS + 0x218;
        const TEXT: u64 = PARAMETERS + 0x228;
        const MAP: u64 = PARAMETERS + 0x2d0;
        /// A boot loader without a number of its own.
        const UNDEFINED: u8 = 0xff;
        let fresh = fresh_header();
        let header = image.header.as_deref().unwrap_or(&fresh);
        self.put(PARAMETERS + HEADER as u64, header, "start")?;
        self.put(LOADER, &[UNDEFINED], "start")?;
        self.word(RSDP, acpi::BASE)?;
        if let (Some(at), Some(bytes)) = (initrd, &setup.initrd) {
            let low = |n: u64| u32::try_from(n).unwrap_or(0).to_le_bytes();
            self.put(FILE_SYSTEM, &low(at), "start")?;
            self.put(FILE_SYSTEM + 4, &low(bytes.len() as u64), "start")?;
        }
        self.put(TEXT, &u32::try_from(COMMAND_LINE).unwrap_or(0).to_le_bytes(), "start")?;
        let text = [setup.command_line.as_bytes(), &[0]].concat();
        self.put(COMMAND_LINE, &text, "command line")?;
        for (n, (start, length, kind)) in (0..).zip(self.areas()) {
            self.word(MAP + 20 * n, start)?;
            self.word(MAP + 20 * n + 8, length)?;
            self.put(MAP + 20 * n + 16, &kind.to_le_bytes(), "start")?;
        }
        self.put(AREAS, &[3], "start")
    }
}

/// Whether an ELF file is one of 32 bits.
fn is_elf_32(bytes: &[u8]) -> bool {
    const CLASS: usize = 4;
    const CLASS_32: u8 = 1;
    bytes.get(CLASS) == Some(&CLASS_32)
}

/// The setup header of a vmlinux, which has none: protocol 2.15, loaded high.
fn fresh_header() -> Vec<u8> {
    let mut header = vec![0; 0x26c - HEADER];
    let mut put = |at: usize, bytes: &[u8]| header[at - HEADER..][..bytes.len()].copy_from_slice(bytes);
    put(0x1fe, &[0x55, 0xaa]);
    put(0x202, b"HdrS\x0f\x02");
    put(0x211, &[1]);
    header
}

/// What a boot loader leaves.
pub(crate) struct Booted {
    pub(crate) cpu: SystemCpu,
    pub(crate) system: System,
    pub(crate) devices: Devices,
    /// The frames that are not zero, or may be.
    pub(crate) written: BTreeSet<u64>,
}

/// A machine with the kernel in memory, and the processor before its first instruction.
pub(crate) fn boot(setup: &Setup) -> Result<Booted, BootError> {
    if !(LEAST_MEMORY..=MOST_MEMORY).contains(&setup.memory) {
        return Err(BootError::Memory(setup.memory));
    }
    if setup.command_line.len() > LONGEST_COMMAND_LINE {
        return Err(BootError::CommandLine(setup.command_line.len()));
    }
    let image = Image::of(&setup.kernel)?;
    let mut memory = Physical::new(setup.memory);
    let mut loader = Loader { ram: memory.ram_mut(), written: BTreeSet::new() };
    loader.put(acpi::BASE, &acpi::tables(setup.disk.is_some(), setup.extras), "start")?;
    let (registers, regs) = loader.kernel(&image, setup)?;
    let written = loader.written;
    let mut cpu = SystemCpu::new(memory);
    let system = System::new(&mut cpu, registers);
    cpu.set_regs(&regs);
    let devices = Devices::new(setup.start, setup.disk.clone(), setup.extras);
    Ok(Booted { cpu, system, devices, written })
}

const _: () = assert!(MOST_MEMORY <= DISK.at);

/// 64-bit mode with flat segments, the selectors of the boot protocol.
fn registers() -> Registers {
    const CODE: u16 = 0x10;
    const DATA: u16 = 0x18;
    let mut segments = [Segment::flat(DATA, false, 0); 6];
    segments[1] = Segment::flat(CODE, true, 0);
    Registers {
        cr3: TABLES,
        segments,
        gdtr: TableRegister { base: GDT, limit: 0x1f },
        ..Registers::default()
    }
}
