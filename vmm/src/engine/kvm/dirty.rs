//! Which frames the guest has written, by KVM's dirty log.

use super::{KvmCpu, failed, setup};
use crate::engine::{EngineError, Phys};
use crate::ram::PAGE;
use kvm_bindings::KVM_MEM_LOG_DIRTY_PAGES;

impl KvmCpu {
    /// Switches the dirty log on or off.
    ///
    /// # Errors
    /// Where KVM does not have it.
    pub fn set_dirty_log(&mut self, on: bool) -> Result<(), EngineError> {
        setup::set_slot(&self.vm, &self.slot, self.size, if on { KVM_MEM_LOG_DIRTY_PAGES } else { 0 })
    }

    /// The frames that the guest has written since the log was switched on or last taken, in order; the engine's own
    /// among them. Writes by the host are not in it.
    ///
    /// # Errors
    /// If the log is off.
    pub fn take_dirty_log(&mut self) -> Result<Vec<Phys>, EngineError> {
        let size = usize::try_from(self.size).expect("guest memory fits the host's address space");
        let words = self.vm.get_dirty_log(0, size).map_err(failed("KVM_GET_DIRTY_LOG"))?;
        let frames = (0..).zip(words).flat_map(|(n, word)| {
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| (n * 64 + bit) * PAGE)
        });
        Ok(frames.collect())
    }
}
