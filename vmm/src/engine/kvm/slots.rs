//! The guest's memory as the virtual machine has it: slots, made as the guest comes to use it.
//!
//! KVM keeps tables with an entry for each page of a slot from the moment the slot is made (the reverse map and the counts of
//! write tracking: `kvm_alloc_memslot_metadata` in Linux, arch/x86/kvm/x86.c). One slot for all memory that a guest may use
//! cost 40 MB of such tables for 19 GB, and 15 to 40 ms to make. So the first slot is small, and each further one doubles
//! what is covered.
//!
//! Example: a guest that may use 1 GiB and uses 100 MiB has the slots 0 to 32, 32 to 64 and 64 to 128 MiB.

use super::failed;
use crate::engine::{EngineError, Phys};
use crate::ram::{PAGE, Second};
use kvm_bindings::{KVM_MEM_LOG_DIRTY_PAGES, kvm_userspace_memory_region};
use kvm_ioctls::VmFd;
use std::ops::Range;

/// The size of the first slot, in bytes.
const FIRST: u64 = 32 << 20;

/// The slots of one virtual machine; a slot's number is its index.
pub(super) struct Slots {
    /// The guest's memory as the virtual machine has it.
    memory: Second,
    /// All of it, in bytes.
    size: u64,
    /// Adjacent, from address zero up.
    made: Vec<Range<Phys>>,
    /// Whether KVM notes which frames the guest writes.
    logs: bool,
}

impl Slots {
    /// No slot yet, for `size` bytes of memory.
    pub(super) fn new(memory: Second, size: u64) -> Slots {
        Slots { memory, size, made: Vec::new(), logs: false }
    }

    /// All memory there is, in bytes, whether a slot covers it or not.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Has slots cover the memory from zero up to `end` at least.
    pub(super) fn cover(&mut self, vm: &VmFd, end: Phys) -> Result<(), EngineError> {
        loop {
            let covered = self.made.last().map_or(0, |slot| slot.end);
            if covered >= end.min(self.size) {
                return Ok(());
            }
            let next = covered..(covered * 2).max(FIRST).min(self.size);
            self.set(vm, self.made.len(), &next, true)?;
            self.made.push(next);
        }
    }

    /// Has KVM forget all that it derived from the memory: a slot that is made anew has no shadow of any page table.
    pub(super) fn renew(&self, vm: &VmFd) -> Result<(), EngineError> {
        for (number, range) in self.made.iter().enumerate() {
            self.set(vm, number, range, false)?;
            self.set(vm, number, range, true)?;
        }
        Ok(())
    }

    /// Switches the dirty log on or off.
    pub(super) fn log(&mut self, vm: &VmFd, on: bool) -> Result<(), EngineError> {
        self.logs = on;
        self.made.iter().enumerate().try_for_each(|(number, range)| self.set(vm, number, range, true))
    }

    /// The frames that were written since the log was switched on or last taken, in order.
    pub(super) fn take_log(&self, vm: &VmFd) -> Result<Vec<Phys>, EngineError> {
        let mut frames = Vec::new();
        for (number, range) in (0..).zip(&self.made) {
            let bytes = usize::try_from(range.end - range.start).expect("memory fits the host's addresses");
            let words = vm.get_dirty_log(number, bytes).map_err(failed("KVM_GET_DIRTY_LOG"))?;
            let written = (0..).zip(words).flat_map(|(n, word)| {
                (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| (n * 64 + bit) * PAGE)
            });
            frames.extend(written.map(|frame| range.start + frame));
        }
        Ok(frames)
    }

    /// Sets a slot, or takes it away.
    fn set(&self, vm: &VmFd, number: usize, range: &Range<Phys>, there: bool) -> Result<(), EngineError> {
        let region = kvm_userspace_memory_region {
            slot: u32::try_from(number).expect("each slot doubles what is covered"),
            guest_phys_addr: range.start,
            memory_size: if there { range.end - range.start } else { 0 },
            userspace_addr: self.memory.as_ptr() as u64 + range.start,
            flags: if self.logs { KVM_MEM_LOG_DIRTY_PAGES } else { 0 },
        };
        // SAFETY: the mapping is as long as the memory, of which the slot is a part, and `KvmCpu` owns a count of it beside
        // the virtual machine.
        unsafe { vm.set_user_memory_region(region) }.map_err(failed("KVM_SET_USER_MEMORY_REGION"))
    }
}
