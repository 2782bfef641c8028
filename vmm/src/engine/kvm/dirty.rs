//! Which frames the guest has written, by KVM's dirty log.

use super::KvmCpu;
use crate::engine::{EngineError, Phys};

impl KvmCpu {
    /// Switches the dirty log on or off.
    ///
    /// # Errors
    /// Where KVM does not have it.
    pub fn set_dirty_log(&mut self, on: bool) -> Result<(), EngineError> {
        self.slots.log(&self.vm, on)
    }

    /// The frames that the guest has written since the log was switched on or last taken, in order; the engine's own
    /// among them. Writes by the host are not in it.
    ///
    /// # Errors
    /// If the log is off.
    pub fn take_dirty_log(&mut self) -> Result<Vec<Phys>, EngineError> {
        self.slots.take_log(&self.vm)
    }
}
