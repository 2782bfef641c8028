//! How a machine ends: ACPI's sleep register, reset by three ways, the port of pvpanic, and that of QEMU's isa-debug-exit, by which
//! programs without a system end with a status. Also ACPI's timer, which is in the same block of ports. `boot::acpi` tells the guest of
//! those that are ACPI's.

use crate::clock::ticks;
use crate::saved::saved;

/// Ports.
pub(crate) mod port {
    /// PM1a event block: status and enable, two bytes each.
    pub(crate) const PM1_EVENT: u16 = 0x600;
    /// PM1a control block, two bytes.
    pub(crate) const PM1_CONTROL: u16 = 0x604;
    /// ACPI's timer, four bytes.
    pub(crate) const PM_TIMER: u16 = 0x608;
    /// The reset register of chip sets.
    pub(crate) const RESET: u16 = 0xcf9;
    /// Where a guest says that it has panicked.
    pub(crate) const PVPANIC: u16 = 0x505;
    /// Where a guest ends with a status.
    pub(crate) const EXIT: u16 = 0xf4;
}

/// SLP_TYP of the state S5, as the table DSDT has it.
pub(crate) const OFF: u8 = 5;
/// ACPI's timer.
const HERTZ: u64 = 3_579_545;

/// How the guest ended the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    PowerOff,
    Reset,
    /// By the port of pvpanic.
    Panic,
    /// With [`Power::status`].
    Exit,
}

/// The block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Power {
    enable: u16,
    control: u16,
    request: Option<Request>,
    /// What was written to [`port::EXIT`].
    status: u32,
}

saved!(
    enum Request {
        PowerOff,
        Reset,
        Panic,
        Exit,
    }
);
saved!(struct Power { enable, control, request, status });

impl Power {
    /// What the guest wants.
    pub(super) fn request(&self) -> Option<Request> {
        self.request
    }

    /// The status of [`Request::Exit`].
    pub(super) fn status(&self) -> u32 {
        self.status
    }

    pub(super) fn reset(&mut self) {
        self.request = Some(Request::Reset);
    }

    /// IN; `None` where nothing is.
    pub(super) fn read(&self, at: u16, now: u64) -> Option<u32> {
        const ACPI_MODE: u32 = 1;
        Some(match at {
            port::PM1_EVENT => u32::from(self.enable) << 16,
            _ if at == port::PM1_EVENT + 2 => self.enable.into(),
            port::PM1_CONTROL => u32::from(self.control) | ACPI_MODE,
            port::PM_TIMER => (ticks(now, HERTZ) & 0xffff_ffff) as u32,
            port::RESET | port::EXIT => 0,
            // It knows the one event.
            port::PVPANIC => 1,
            _ => return None,
        })
    }

    /// OUT; `None` where nothing is.
    pub(super) fn write(&mut self, at: u16, value: u32) -> Option<()> {
        const SLEEP: u32 = 1 << 13;
        const CPU_RESET: u32 = 1 << 2;
        match at {
            // Status bits are cleared by writing them; none is ever set.
            port::PM1_EVENT => {}
            _ if at == port::PM1_EVENT + 2 => self.enable = (value & 0xffff) as u16,
            port::PM1_CONTROL => {
                self.control = (value & 0x1fff) as u16;
                if value & SLEEP != 0 && value >> 10 & 7 == u32::from(OFF) {
                    self.request = Some(Request::PowerOff);
                }
            }
            port::RESET => {
                if value & CPU_RESET != 0 {
                    self.reset();
                }
            }
            port::EXIT => (self.status, self.request) = (value, Some(Request::Exit)),
            port::PVPANIC => {
                if value & 1 != 0 {
                    self.request = Some(Request::Panic);
                }
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_is_power_off_in_the_state_that_is_off_alone() {
        let mut power = Power::default();
        power.write(port::PM1_CONTROL, 1 << 13 | 3 << 10);
        assert_eq!(power.request(), None);
        power.write(port::PM1_CONTROL, 1 << 13 | u32::from(OFF) << 10);
        assert_eq!(power.request(), Some(Request::PowerOff));
        assert_eq!(power.write(0x77, 0), None);
    }

    #[test]
    fn a_guest_ends_with_a_status() {
        let mut power = Power::default();
        power.write(port::EXIT, 77);
        assert_eq!((power.request(), power.status()), (Some(Request::Exit), 77));
    }
}
