//! A kernel's virtual addresses, by its own page tables (Intel SDM vol. 3, 4.5).

use super::Memory;
use super::info::Info;

/// Where Linux maps its code, from physical address `phys_base` on.
const KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;
const PAGE: u64 = 0x1000;

/// What is mapped in a kernel.
pub(super) struct Space<'m> {
    memory: &'m dyn Memory,
    /// The physical address of the highest table.
    root: u64,
    levels: u32,
    /// The bits of an entry that are an address.
    mask: u64,
}

impl<'m> Space<'m> {
    pub(super) fn of(memory: &'m dyn Memory, info: &Info<'_>) -> Result<Space<'m>, String> {
        const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
        let top = ["swapper_pg_dir", "init_top_pgt"].into_iter().find_map(|name| info.symbol(name));
        let top =
            top.ok_or("VMCOREINFO has no SYMBOL(swapper_pg_dir): where its page tables are is not known")?;
        let root = top.wrapping_sub(KERNEL_MAP).wrapping_add(info.number("phys_base").unwrap_or(0));
        let levels = if info.number("pgtable_l5_enabled") == Some(1) { 5 } else { 4 };
        let mask = ADDRESS & !info.number("sme_mask").unwrap_or(0);
        Ok(Space { memory, root, levels, mask })
    }

    /// The physical address, and how many bytes follow it in its page.
    fn translate(&self, address: u64) -> Option<(u64, u64)> {
        const PRESENT: u64 = 1;
        const LARGE: u64 = 1 << 7;
        let mut table = self.root;
        for level in (0..self.levels).rev() {
            let shift = 12 + 9 * level;
            let mut entry = [0; 8];
            let at = table.wrapping_add((address >> shift & 0x1ff) * 8);
            if !self.memory.read_physical(at, &mut entry) {
                return None;
            }
            let entry = u64::from_le_bytes(entry);
            if entry & PRESENT == 0 {
                return None;
            }
            if level == 0 || level <= 2 && entry & LARGE != 0 {
                let offset = address & ((1 << shift) - 1);
                let frame = entry & self.mask & !((1 << shift) - 1);
                return Some((frame | offset, (1 << shift) - offset));
            }
            table = entry & self.mask;
        }
        None
    }

    /// Fills bytes; `None` unless all of them are there.
    pub(super) fn read(&self, mut address: u64, mut bytes: &mut [u8]) -> Option<()> {
        while !bytes.is_empty() {
            let (physical, room) = self.translate(address)?;
            let length = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
            let (piece, rest) = bytes.split_at_mut(length);
            if !self.memory.read_physical(physical, piece) {
                return None;
            }
            address = address.wrapping_add(length as u64);
            bytes = rest;
        }
        Some(())
    }

    /// So many bytes, which whoever asks has bounded.
    pub(super) fn bytes(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.read(address, &mut bytes).map(|()| bytes)
    }

    /// A number of `N` bytes.
    fn array<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.read(address, &mut bytes).map(|()| bytes)
    }

    pub(super) fn half(&self, address: u64) -> Option<u16> {
        self.array(address).map(u16::from_le_bytes)
    }

    pub(super) fn int(&self, address: u64) -> Option<u32> {
        self.array(address).map(u32::from_le_bytes)
    }

    pub(super) fn long(&self, address: u64) -> Option<u64> {
        self.array(address).map(u64::from_le_bytes)
    }

    /// Text up to a zero, or so many bytes of it.
    pub(super) fn text(&self, address: u64, most: usize) -> Option<String> {
        let mut bytes = Bytes::new(self, address);
        let mut text = Vec::new();
        while text.len() < most {
            match bytes.next()? {
                0 => break,
                byte => text.push(byte),
            }
        }
        Some(String::from_utf8_lossy(&text).into_owned())
    }
}

/// The bytes from an address on, as far as they are mapped, read a page at a time.
pub(super) struct Bytes<'s, 'm> {
    space: &'s Space<'m>,
    /// The address behind the page.
    next: u64,
    page: Vec<u8>,
    used: usize,
}

impl<'s, 'm> Bytes<'s, 'm> {
    pub(super) fn new(space: &'s Space<'m>, address: u64) -> Bytes<'s, 'm> {
        Bytes { space, next: address, page: Vec::new(), used: 0 }
    }
}

impl Iterator for Bytes<'_, '_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if self.used == self.page.len() {
            let length = PAGE - self.next % PAGE;
            self.page = self.space.bytes(self.next, usize::try_from(length).ok()?)?;
            self.next = self.next.checked_add(length)?;
            self.used = 0;
        }
        self.used += 1;
        Some(self.page[self.used - 1])
    }
}
