//! Physical memory as the CPU sees it: RAM from address zero up, and devices where there is none.
//!
//! A device is reached by running the instruction a second time. The first time [`Physical::take_device_access`] has what it
//! wanted, and nothing has changed; then the value of the device is put into a page of its own ([`Physical::open_window`]),
//! to which the address leads for one instruction, and what a store left there goes to the device.

use super::paging::{Paging, peek, peek_fetch, walk};
use crate::index;
use std::collections::BTreeSet;
use std::ops::Range;
use x86::bus::{Access, Bus, PAGE_SIZE, PageFault, Translation};
use x86::guard::Guard;

/// An access to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAccess {
    /// The physical address.
    pub physical: u64,
    /// A store, or a load and a store.
    pub is_store: bool,
}

/// Physical memory.
pub struct Physical {
    /// RAM, and one more page: the window.
    bytes: Vec<u8>,
    /// What walks depend on.
    pub paging: Paging,
    wanted: Option<DeviceAccess>,
    window_is_open: bool,
    /// The last translation holds for one access.
    is_passing: bool,
    /// Data that is watched.
    pub guard: Guard,
    /// The frames of tables in which walks have set bits.
    marked: BTreeSet<u64>,
}

impl Physical {
    /// `size` bytes of RAM, rounded up to whole pages, all zero.
    #[must_use]
    pub fn new(size: u64) -> Physical {
        let size = size.div_ceil(PAGE_SIZE) * PAGE_SIZE;
        Physical {
            bytes: vec![0; index(size + PAGE_SIZE)],
            paging: Paging::default(),
            wanted: None,
            window_is_open: false,
            is_passing: false,
            guard: Guard::default(),
            marked: BTreeSet::new(),
        }
    }

    /// Bytes of RAM.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.window()
    }

    /// The RAM.
    #[must_use]
    pub fn ram(&self) -> &[u8] {
        &self.bytes[..index(self.size())]
    }

    /// The RAM, to write. Whoever writes where instructions may be calls [`x86::cpu::Cpu::written`].
    pub fn ram_mut(&mut self) -> &mut [u8] {
        let size = index(self.size());
        &mut self.bytes[..size]
    }

    /// Where a linear address leads now, whatever the rights are; `None` where that is no RAM.
    #[must_use]
    pub fn peek(&self, va: u64) -> Option<u64> {
        peek(self.ram(), &self.paging, va).filter(|physical| *physical < self.size())
    }

    /// The frames of tables in which walks have set bits since this was called last: their first addresses.
    pub fn take_marked(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.marked)
    }

    /// Where the window is.
    fn window(&self) -> u64 {
        self.bytes.len() as u64 - PAGE_SIZE
    }

    /// The access to a device that the last page fault stands for.
    pub fn take_device_access(&mut self) -> Option<DeviceAccess> {
        self.wanted.take()
    }

    /// Lets the next instruction find `value` at the device's address.
    pub fn open_window(&mut self, access: DeviceAccess, value: u32) {
        let at = index(self.window() + access.physical % PAGE_SIZE / 4 * 4);
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self.window_is_open = true;
    }

    /// Ends that: what is at the device's address now.
    pub fn close_window(&mut self, access: DeviceAccess) -> u32 {
        self.window_is_open = false;
        let at = index(self.window() + access.physical % PAGE_SIZE / 4 * 4);
        let bytes = self.bytes[at..at + 4].try_into().unwrap_or_default();
        u32::from_le_bytes(bytes)
    }
}

impl Bus for Physical {
    #[inline(always)]
    fn ram(&self) -> &[u8] {
        &self.bytes
    }

    #[inline(always)]
    fn ram_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn translate(&mut self, va: u64, access: Access) -> Result<Translation, PageFault> {
        let size = self.size();
        self.wanted = None;
        if self.guard.stops(va, access) {
            return Err(PageFault { address: va, error_code: 0 });
        }
        let marked = &mut |at: u64| {
            self.marked.insert(at / PAGE_SIZE * PAGE_SIZE);
        };
        let mapping = walk(&mut self.bytes[..index(size)], &self.paging, va, access, marked)?;
        let page = mapping.physical / PAGE_SIZE * PAGE_SIZE;
        let has_ram = page < size;
        self.is_passing = !has_ram;
        let translation = |frame| Translation { frame, writable: false, executable: true };
        if has_ram {
            return Ok(translation(page));
        }
        if self.window_is_open && access != Access::Execute {
            return Ok(translation(size));
        }
        self.wanted = Some(DeviceAccess { physical: mapping.physical, is_store: access == Access::Write });
        Err(PageFault { address: va, error_code: 0 })
    }

    fn peek_code(&mut self, va: u64) -> Option<Translation> {
        let mapping = peek_fetch(self.ram(), &self.paging, va)?;
        let frame = mapping.physical / PAGE_SIZE * PAGE_SIZE;
        self.is_passing = false;
        (frame < self.size()).then_some(Translation { frame, writable: false, executable: true })
    }

    fn expect_length(&mut self, bytes: Option<u64>) {
        self.guard.expect_length(bytes);
    }

    fn may_cache(&self, va: u64, access: Access) -> bool {
        !self.is_passing && self.guard.may_cache(va, access)
    }

    fn part_around(&self, va: u64, access: Access) -> Option<Range<u64>> {
        (!self.is_passing).then(|| self.guard.part_around(va, access))?
    }
}
