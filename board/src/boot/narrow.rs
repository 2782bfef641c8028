//! The mode that Multiboot and PVH enter a program in: 32-bit code in flat segments of ring 0, without paging, and with interrupts off.

use super::{BootError, GDT, Loader};
use x86_system::{Registers, Segment, TableRegister};

const CODE: u16 = 0x08;
const DATA: u16 = 0x10;
const TASK: u16 = 0x18;

impl Loader<'_> {
    /// A GDT with the segments of [`registers`].
    pub(super) fn narrow_segments(&mut self) -> Result<(), BootError> {
        self.word(GDT + u64::from(CODE), 0x00cf_9b00_0000_ffff)?;
        self.word(GDT + u64::from(DATA), 0x00cf_9300_0000_ffff)
    }

    /// Adds the descriptor of [`task`].
    pub(super) fn narrow_task(&mut self) -> Result<(), BootError> {
        self.word(GDT + u64::from(TASK), 0x0000_8b00_0000_0067)
    }
}

pub(super) fn registers() -> Registers {
    const PROTECTED: u64 = 0x11;
    let mut segments = [Segment::flat_32(DATA, false); 6];
    segments[1] = Segment::flat_32(CODE, true);
    Registers {
        cr0: PROTECTED,
        cr4: 0,
        efer: 0,
        segments,
        gdtr: TableRegister { base: GDT, limit: TASK - 1 },
        ..Registers::default()
    }
}

/// The same with a busy TSS of 32 bits at address zero, of which nobody uses anything.
pub(super) fn registers_with_task() -> Registers {
    let tr = Segment { selector: TASK, base: 0, limit: 0x67, attributes: 0x8b };
    Registers { tr, gdtr: TableRegister { base: GDT, limit: TASK + 7 }, ..registers() }
}
