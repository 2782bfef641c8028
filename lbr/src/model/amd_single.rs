//! AMD's single record in software.

use super::{DEBUG, Event, MACHINE_CHECK, Records, Transfer};
use crate::format::bits_if;
use crate::msr;

/// Bits 6:3 of DebugCtl must be zero.
const DEBUGCTL_MUST_BE_ZERO: u64 = 0x78;
/// Branch single step and bus lock traps, which the software CPU does not have.
const DEBUGCTL_ABSENT: u64 = 0x6;

/// The registers.
#[derive(Clone, Debug, Default)]
pub(super) struct AmdSingle {
    enabled: bool,
    branch: (u64, u64),
    interrupt: (u64, u64),
}

impl AmdSingle {
    pub(super) fn new() -> AmdSingle {
        AmdSingle::default()
    }

    /// Whether DebugCtl takes this value: the bits that are reserved without having to be zero are not kept, and do
    /// not matter.
    pub(super) fn takes_debugctl(value: u64) -> bool {
        value & (DEBUGCTL_MUST_BE_ZERO | DEBUGCTL_ABSENT) == 0
    }

    /// Whether an event is a debug exception. SVM injects events as if they happened in the guest (AMD64 APM vol. 2,
    /// "Event Injection"), so one that is injected counts.
    pub(super) fn is_debug(event: Event) -> bool {
        matches!(event, Event::Exception(DEBUG) | Event::Injected(DEBUG))
    }
}

impl Records for AmdSingle {
    fn is_enabled(&self) -> bool {
        self.enabled
    }

    fn branch(&mut self, transfer: &Transfer) {
        if self.enabled {
            self.branch = (transfer.from, transfer.to);
        }
    }

    fn event(&mut self, event: Event, transfer: &Transfer) {
        if AmdSingle::is_debug(event) {
            self.enabled = false;
        }
        let keeps = matches!(event, Event::Exception(MACHINE_CHECK) | Event::Injected(MACHINE_CHECK));
        if self.enabled && !keeps {
            self.interrupt = self.branch;
        }
        self.branch(transfer);
    }

    fn performance_interrupt(&mut self) {}

    fn read(&self, index: u32) -> Option<u64> {
        match index {
            msr::DEBUGCTL => Some(bits_if(self.enabled, msr::DEBUGCTL_LBR)),
            msr::LAST_BRANCH_FROM => Some(self.branch.0),
            msr::LAST_BRANCH_TO => Some(self.branch.1),
            msr::LAST_INT_FROM => Some(self.interrupt.0),
            msr::LAST_INT_TO => Some(self.interrupt.1),
            _ => None,
        }
    }

    fn write(&mut self, index: u32, value: u64) -> bool {
        // The other four are read-only.
        let fine = index == msr::DEBUGCTL && AmdSingle::takes_debugctl(value);
        if fine {
            self.enabled = value & msr::DEBUGCTL_LBR != 0;
        }
        fine
    }
}
