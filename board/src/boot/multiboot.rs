//! Programs that any boot loader of the Multiboot Specification (version 0.6.96) loads: a header in their first 8 KiB says that they are
//! such, and the processor is in 32-bit mode without paging at their entry.
//!
//! They are ELF files, of 32 or 64 bits, without the flags that want more of a loader than memory and modules. eax is a magic number, ebx
//! points to [`INFO`]: how much memory there is, its map, the command line, and as the one module the initial file system. By custom the
//! first word of the command line is the program's name, which is `kernel` here.

use super::image::Image;
use super::{BootError, COMMAND_LINE, GDT, LOW_END, Loader, MEGABYTE, PARAMETERS, Setup};
use object::LittleEndian;
use object::elf::{EM_386, EM_X86_64, FileHeader32, FileHeader64};
use x86::state::Regs;
use x86_system::{Registers, Segment, TableRegister};

/// What begins a header.
const HEADER_MAGIC: u32 = 0x1bad_b002;
/// What the program finds in eax.
const LOADER_MAGIC: u64 = 0x2bad_b002;
/// Where a header begins at most.
const SEARCHED: usize = 8192;
/// Flags that this loader does what they want: modules on pages (0), the amount of memory (1).
const SERVED: u32 = 3;
/// Those that a loader has to know; the others it may pass over, but for the addresses in the header (16).
const REQUIRED: u32 = 0xffff | 1 << 16;

/// The structure that ebx points to, and what is around it.
const INFO: u64 = PARAMETERS;
const MODULES: u64 = INFO + 0x80;
const MAP: u64 = INFO + 0x100;
const NAME: u64 = INFO + 0x200;

/// Whether the file has a header.
///
/// # Errors
/// When it has one with flags that are not served.
pub(super) fn is_in(file: &[u8]) -> Result<bool, BootError> {
    let searched = &file[..file.len().min(SEARCHED)];
    let (words, _) = searched.as_chunks::<4>();
    let flags = words.windows(3).find_map(|three| {
        let [magic, flags, sum] = [three[0], three[1], three[2]].map(u32::from_le_bytes);
        let is_header = magic == HEADER_MAGIC && magic.wrapping_add(flags).wrapping_add(sum) == 0;
        is_header.then_some(flags)
    });
    match flags.map(|flags| flags & REQUIRED & !SERVED) {
        None => Ok(false),
        Some(0) => Ok(true),
        Some(wanted) => Err(BootError::Elf(format!(
            "its Multiboot header has flags {wanted:#x}, which are not served (2: a video mode, 16: addresses in the header)"
        ))),
    }
}

impl Loader<'_> {
    /// Loads a program with a Multiboot header: the registers at its entry.
    pub(super) fn multiboot(&mut self, image: &Image, setup: &Setup) -> Result<(Registers, Regs), BootError> {
        const CLASS: usize = 4;
        const CLASS_32: u8 = 1;
        let (entry, end) = match image.elf.get(CLASS) {
            Some(&CLASS_32) => self.elf::<FileHeader32<LittleEndian>>(&image.elf, EM_386)?,
            _ => self.elf::<FileHeader64<LittleEndian>>(&image.elf, EM_X86_64)?,
        };
        if entry > u32::MAX.into() {
            return Err(BootError::Elf(format!("its entry {entry:#x} is no address of 32 bits")));
        }
        let module = setup.initrd.as_ref().map(|initrd| self.initrd(initrd, end)).transpose()?;
        self.information(setup, module)?;
        // 0x08 is code, 0x10 data.
        self.word(GDT + 0x08, 0x00cf_9b00_0000_ffff)?;
        self.word(GDT + 0x10, 0x00cf_9300_0000_ffff)?;
        let mut regs = Regs { rip: entry, rflags: 2, ..Regs::default() };
        regs.gpr[0] = LOADER_MAGIC;
        regs.gpr[3] = INFO;
        Ok((registers(), regs))
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

/// 32-bit mode without paging, in flat segments; interrupts are off.
fn registers() -> Registers {
    const CODE: u16 = 0x08;
    const DATA: u16 = 0x10;
    const PROTECTED: u64 = 0x11;
    let mut segments = [Segment::flat_32(DATA, false); 6];
    segments[1] = Segment::flat_32(CODE, true);
    Registers {
        cr0: PROTECTED,
        cr4: 0,
        efer: 0,
        segments,
        gdtr: TableRegister { base: GDT, limit: 0x17 },
        ..Registers::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(at: usize, flags: u32) -> Vec<u8> {
        let mut file = vec![0; at];
        let sum = 0_u32.wrapping_sub(HEADER_MAGIC.wrapping_add(flags));
        file.extend([HEADER_MAGIC, flags, sum].into_iter().flat_map(u32::to_le_bytes));
        file
    }

    #[test]
    fn a_header_is_found_where_the_specification_has_it() {
        assert_eq!(is_in(&header(0x78, 3)), Ok(true));
        assert_eq!(is_in(&header(SEARCHED - 12, 0)), Ok(true));
        assert_eq!(is_in(&header(SEARCHED - 8, 0)), Ok(false), "behind the first 8 KiB");
        assert_eq!(is_in(&header(0x7a, 0)), Ok(false), "not aligned");
        let mut damaged = header(0, 0);
        damaged[8] ^= 1;
        assert_eq!(is_in(&damaged), Ok(false), "another sum");
        assert_eq!(is_in(&[]), Ok(false));
    }

    #[test]
    fn what_a_loader_must_not_pass_over_is_refused() {
        assert!(is_in(&header(0, 4)).unwrap_err().to_string().contains("flags 0x4"));
        assert!(is_in(&header(0, 1 << 16)).unwrap_err().to_string().contains("flags 0x10000"));
        assert_eq!(is_in(&header(0, 1 << 17)), Ok(true));
    }
}
