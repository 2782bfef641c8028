//! Programs that any boot loader of the Multiboot Specification (version 0.6.96) loads: a header in their first 8 KiB says that they are
//! such, and the processor is in 32-bit mode without paging at their entry.
//!
//! They are ELF files, of 32 or 64 bits, without the flags that want more of a loader than memory and modules. A header that says where its
//! file is to be (flag 16) is obeyed in place of the ELF program headers. eax is a magic number, ebx
//! points to [`INFO`]: how much memory there is, its map, the command line, and as the one module the initial file system. By custom the
//! first word of the command line is the program's name, which is `kernel` here.
//!
//! These programs know that firmware ran before, and some ask its data area how much low memory there is, in place of the map (Xen, which
//! takes the lesser of both for its trampoline).

use super::image::Image;
use super::{BootError, COMMAND_LINE, LOW_END, Loader, MEGABYTE, PARAMETERS, Setup, narrow};
use x86::state::Regs;
use x86_system::Registers;

/// What begins a header.
const HEADER_MAGIC: u32 = 0x1bad_b002;
/// What the program finds in eax.
const LOADER_MAGIC: u64 = 0x2bad_b002;
/// Where a header begins at most.
const SEARCHED: usize = 8192;
/// Flags that this loader does what they want: modules on pages (0), the amount of memory (1).
const SERVED: u32 = 3;
/// Those that a loader has to know; the others it may pass over.
const REQUIRED: u32 = 0xffff;
/// The header says where the file is to be.
const HAS_ADDRESSES: u32 = 1 << 16;

/// The structure that ebx points to, and what is around it.
const INFO: u64 = PARAMETERS;
const MODULES: u64 = INFO + 0x80;
const MAP: u64 = INFO + 0x100;
const NAME: u64 = INFO + 0x200;

/// What the firmware of a PC says of low memory: the segment of its own data at the end, and the KiB before that.
const FIRMWARE_SEGMENT: u64 = 0x40e;
const FIRMWARE_KIB: u64 = 0x413;

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    placed: Option<Placed>,
}

/// What a header says of where its file is to be. Physical addresses, but for `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Placed {
    /// Where in the file that begins which is to be at `start`.
    from: usize,
    start: u32,
    /// The end of it; zero is the end of the file.
    end: u32,
    /// The end of zeros behind it; zero if there are none.
    zeros_end: u32,
    entry: u32,
}

/// The header of a file, if it has one.
///
/// # Errors
/// When it has one with flags that are not served, or with addresses that are none.
pub(super) fn header(file: &[u8]) -> Result<Option<Header>, BootError> {
    let searched = &file[..file.len().min(SEARCHED)];
    let (words, _) = searched.as_chunks::<4>();
    let word = |n: usize| words.get(n).copied().map(u32::from_le_bytes);
    let is_header = |n: &usize| {
        let three = || Some([word(*n)?, word(n + 1)?, word(n + 2)?]);
        three().is_some_and(|[magic, flags, sum]| {
            magic == HEADER_MAGIC && magic.wrapping_add(flags).wrapping_add(sum) == 0
        })
    };
    let Some(at) = (0..words.len()).find(is_header) else { return Ok(None) };
    let flags = word(at + 1).unwrap_or(0);
    match flags & REQUIRED & !SERVED {
        0 => {}
        wanted => {
            let why = "which are not served (2: a video mode)";
            return Err(BootError::Elf(format!("its Multiboot header has flags {wanted:#x}, {why}")));
        }
    }
    if flags & HAS_ADDRESSES == 0 {
        return Ok(Some(Header { placed: None }));
    }
    let placed = || {
        let (own, start) = (word(at + 3)?, word(at + 4)?);
        let before = usize::try_from(own.checked_sub(start)?).ok()?;
        let from = (at * 4).checked_sub(before)?;
        Some(Placed { from, start, end: word(at + 5)?, zeros_end: word(at + 6)?, entry: word(at + 7)? })
    };
    let wrong =
        || BootError::Elf("the addresses in its Multiboot header are not those of its file".to_owned());
    placed().map(|placed| Some(Header { placed: Some(placed) })).ok_or_else(wrong)
}

impl Loader<'_> {
    /// Loads a program with a Multiboot header: the registers at its entry.
    pub(super) fn multiboot(
        &mut self,
        header: Header,
        image: &Image,
        setup: &Setup,
    ) -> Result<(Registers, Regs), BootError> {
        let (entry, end) = match header.placed {
            Some(placed) => self.placed(placed, &image.elf)?,
            None => self.elf_of_either_class(&image.elf)?,
        };
        if entry > u32::MAX.into() {
            return Err(BootError::Elf(format!("its entry {entry:#x} is no address of 32 bits")));
        }
        let module = setup.initrd.as_ref().map(|initrd| self.initrd(initrd, end)).transpose()?;
        self.information(setup, module)?;
        self.narrow_segments()?;
        let mut regs = Regs { rip: entry, rflags: 2, ..Regs::default() };
        regs.gpr[0] = LOADER_MAGIC;
        regs.gpr[3] = INFO;
        Ok((narrow::registers(), regs))
    }

    /// Loads a file where its header says, and gives its entry and the end of what was loaded.
    fn placed(&mut self, placed: Placed, file: &[u8]) -> Result<(u64, u64), BootError> {
        let Placed { from, start, end, zeros_end, entry } = placed;
        let cut = || BootError::Elf("it is cut: what its Multiboot header says is not in it".to_owned());
        let rest = file.get(from..).ok_or_else(cut)?;
        let loaded = match end {
            0 => rest,
            end => {
                let length = end.checked_sub(start).and_then(|length| usize::try_from(length).ok());
                length.and_then(|length| rest.get(..length)).ok_or_else(cut)?
            }
        };
        let start = u64::from(start);
        if start < MEGABYTE {
            return Err(BootError::Elf(format!(
                "it wants to be at {start:#x}, below 1 MiB, where the boot loader is"
            )));
        }
        self.put(start, loaded, "kernel")?;
        let end = (start + loaded.len() as u64).max(zeros_end.into());
        if end > self.ram.len() as u64 {
            return Err(BootError::NoRoom { what: "kernel", memory: self.ram.len() as u64 / MEGABYTE });
        }
        Ok((entry.into(), end))
    }

    /// What ebx points to.
    fn information(&mut self, setup: &Setup, module: Option<u64>) -> Result<(), BootError> {
        /// Memory, command line, map, name of the loader.
        const FLAGS: u32 = 1 | 1 << 2 | 1 << 6 | 1 << 9;
        const HAS_MODULES: u32 = 1 << 3;
        /// An entry of the map, with its length, which does not count itself.
        const ENTRY: u64 = 24;
        let low = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let upper = self.ram.len() as u64 - MEGABYTE;
        self.long(INFO, FLAGS | if module.is_some() { HAS_MODULES } else { 0 })?;
        self.long(INFO + 4, low(LOW_END / 1024))?;
        self.long(INFO + 8, low(upper / 1024))?;
        let short = |n: u64| u16::try_from(n).unwrap_or(u16::MAX).to_le_bytes();
        self.put(FIRMWARE_SEGMENT, &short(LOW_END >> 4), "start")?;
        self.put(FIRMWARE_KIB, &short(LOW_END / 1024), "start")?;
        self.long(INFO + 16, low(COMMAND_LINE))?;
        let text = [b"kernel ", setup.command_line.as_bytes(), &[0]].concat();
        self.put(COMMAND_LINE, &text, "command line")?;
        if let (Some(at), Some(bytes)) = (module, &setup.initrd) {
            self.long(INFO + 20, 1)?;
            self.long(INFO + 24, low(MODULES))?;
            self.long(MODULES, low(at))?;
            self.long(MODULES + 4, low(at + bytes.len() as u64))?;
        }
        self.long(INFO + 64, low(NAME))?;
        self.put(NAME, b"gretel\0", "start")?;
        let areas = self.areas();
        self.long(INFO + 44, low(ENTRY * areas.len() as u64))?;
        self.long(INFO + 48, low(MAP))?;
        for (at, (start, length, kind)) in (MAP..).step_by(24).zip(areas) {
            self.long(at, low(ENTRY - 4))?;
            self.word(at + 4, start)?;
            self.word(at + 12, length)?;
            self.long(at + 20, kind)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(at: usize, flags: u32, rest: &[u32]) -> Vec<u8> {
        let mut file = vec![0; at];
        let sum = 0_u32.wrapping_sub(HEADER_MAGIC.wrapping_add(flags));
        let words = [HEADER_MAGIC, flags, sum];
        file.extend(words.iter().chain(rest).copied().flat_map(u32::to_le_bytes));
        file
    }

    fn has_one(file: &[u8]) -> bool {
        header(file).unwrap().is_some()
    }

    #[test]
    fn a_header_is_found_where_the_specification_has_it() {
        assert!(has_one(&file(0x78, 3, &[])));
        assert!(has_one(&file(SEARCHED - 12, 0, &[])));
        assert!(!has_one(&file(SEARCHED - 8, 0, &[])), "behind the first 8 KiB");
        assert!(!has_one(&file(0x7a, 0, &[])), "not aligned");
        let mut damaged = file(0, 0, &[]);
        damaged[8] ^= 1;
        assert!(!has_one(&damaged), "another sum");
        assert!(!has_one(&[]));
    }

    #[test]
    fn what_a_loader_must_not_pass_over_is_refused() {
        assert!(header(&file(0, 4, &[])).unwrap_err().to_string().contains("flags 0x4"));
        assert!(has_one(&file(0, 1 << 17, &[])));
        // A header before what is loaded, one behind the file's start, and one that is cut.
        for rest in [&[0x10_0000, 0x10_1000, 0, 0, 0][..], &[0x10_0010, 0x10_0000, 0, 0, 0], &[0x10_0000]] {
            let wrong = header(&file(8, HAS_ADDRESSES, rest)).unwrap_err();
            assert!(wrong.to_string().contains("addresses"), "{rest:x?}");
        }
    }

    /// What is between the addresses is loaded, and nothing else; the entry is the header's.
    #[test]
    fn a_header_with_addresses_says_where_its_file_is() {
        const START: u32 = 0x10_0000;
        let mut bytes = file(8, HAS_ADDRESSES, &[START + 4, START, START + 40, START + 64, START + 36]);
        bytes.extend([7; 24]);
        let load = |memory: usize, bytes: &[u8]| {
            let mut ram = vec![0; memory];
            let mut loader = Loader { ram: &mut ram, written: std::collections::BTreeSet::new() };
            let placed = header(bytes).unwrap().unwrap().placed.unwrap();
            loader.placed(placed, bytes).map(|found| (found, ram))
        };
        let start = START as usize;
        let ((entry, end), ram) = load(start + 64, &bytes).unwrap();
        assert_eq!((entry, end), (u64::from(START) + 36, u64::from(START) + 64));
        assert_eq!((&ram[start..start + 40], &ram[start + 40..]), (&bytes[4..44], &[0; 24][..]));
        assert!(load(start + 63, &bytes).unwrap_err().to_string().contains("does not fit"));
        assert!(load(start + 64, &bytes[..43]).unwrap_err().to_string().contains("cut"));
        let low = file(0, HAS_ADDRESSES, &[0x1000, 0x1000, 0, 0, 0x1000]);
        assert!(load(start, &low).unwrap_err().to_string().contains("below 1 MiB"));
    }
}
