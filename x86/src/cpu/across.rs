//! Accesses to memory that may lie in two pages.

use super::{Cpu, both_canonical, index};
use crate::bus::{Bus, PAGE_SIZE};
use crate::machine::{Exec, Machine};

impl<B: Bus> Cpu<B> {
    /// Loads `n` bytes, at most eight, that lie in two pages.
    #[cold]
    #[inline(never)]
    pub(super) fn load_across(&mut self, n: u64, va: u64) -> Exec<u64> {
        both_canonical(va, n)?;
        let mut bytes = [0; 8];
        for (k, byte) in (0..n).zip(&mut bytes) {
            let at = self.locate_read(va.wrapping_add(k))?;
            *byte = self.bus.ram()[index(at)];
        }
        Ok(u64::from_le_bytes(bytes))
    }

    /// Loads bytes, a multiple of eight, that lie in two pages.
    #[cold]
    #[inline(never)]
    pub(super) fn load_bytes_across(&mut self, va: u64, bytes: &mut [u8]) -> Exec {
        for (at, to) in (0..).step_by(8).zip(bytes.as_chunks_mut().0) {
            *to = self.load(64, va.wrapping_add(at))?.to_le_bytes();
        }
        Ok(())
    }

    /// Stores bytes, at most a page of them.
    #[inline(always)]
    pub(super) fn store_bytes(&mut self, va: u64, bytes: &[u8]) -> Exec {
        if va % PAGE_SIZE > PAGE_SIZE - bytes.len() as u64 {
            return self.store_across(va, bytes);
        }
        let at = index(self.locate_write(va)?);
        self.bus.ram_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Stores bytes that lie in two pages: both are asked before either is written.
    #[cold]
    #[inline(never)]
    pub(super) fn store_across(&mut self, va: u64, bytes: &[u8]) -> Exec {
        both_canonical(va, bytes.len() as u64)?;
        let second = va.wrapping_add(PAGE_SIZE) & !(PAGE_SIZE - 1);
        let first_at = index(self.locate_write(va)?);
        let second_at = index(self.locate_write(second)?);
        let (low, high) = bytes.split_at(index(second.wrapping_sub(va)).min(bytes.len()));
        self.bus.ram_mut()[first_at..first_at + low.len()].copy_from_slice(low);
        self.bus.ram_mut()[second_at..second_at + high.len()].copy_from_slice(high);
        Ok(())
    }
}
