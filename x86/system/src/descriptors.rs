//! Descriptors in the GDT and the LDT, and the gates of the IDT (Intel SDM vol. 3, 3.4.5, 3.5 and 5.14).

use super::registers::Segment;
use super::{Failure, Fault, Part, System, SystemCpu};

/// A descriptor: its low eight bytes, and the high half of its base where it is one of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    low: u64,
    high: u64,
}

impl Descriptor {
    /// Bits 40 to 55, without those of the limit's high part.
    pub(super) const fn attributes(self) -> u16 {
        (self.low >> 40 & 0xffff) as u16
    }

    /// Type: bits 40 to 43.
    pub(super) const fn kind(self) -> u8 {
        (self.low >> 40 & 15) as u8
    }

    /// S: a segment of code or data.
    pub(super) const fn is_segment(self) -> bool {
        self.low >> 44 & 1 != 0
    }

    pub(super) const fn is_code(self) -> bool {
        self.is_segment() && self.kind() & 8 != 0
    }

    /// Code that lesser levels may call without a change of level.
    pub(super) const fn is_conforming(self) -> bool {
        self.kind() & 4 != 0
    }

    /// Data that may be written, or code that may be read.
    pub(super) const fn is_open(self) -> bool {
        self.kind() & 2 != 0
    }

    pub(super) const fn level(self) -> u8 {
        (self.low >> 45 & 3) as u8
    }

    pub(super) const fn is_present(self) -> bool {
        self.low >> 47 & 1 != 0
    }

    /// L: 64-bit code.
    pub(super) const fn is_long(self) -> bool {
        self.low >> 53 & 1 != 0
    }

    /// D: 32-bit code, if L is clear.
    pub(super) const fn is_default_32(self) -> bool {
        self.low >> 54 & 1 != 0
    }

    pub(super) const fn base(self) -> u64 {
        self.low >> 16 & 0xff_ffff | (self.low >> 56) << 24 | self.high << 32
    }

    /// The last offset, in bytes.
    pub(super) const fn limit(self) -> u32 {
        let limit = ((self.low & 0xffff | self.low >> 32 & 0xf_0000) & 0xf_ffff) as u32;
        if self.low >> 55 & 1 != 0 { limit << 12 | 0xfff } else { limit }
    }

    /// As a segment register has it.
    pub(super) const fn loaded(self, selector: u16) -> Segment {
        Segment { selector, base: self.base(), limit: self.limit(), attributes: self.attributes() }
    }
}

/// Types of descriptors of the system in 64-bit mode.
pub(super) mod kind {
    pub(crate) const LDT: u8 = 2;
    pub(crate) const AVAILABLE_TSS: u8 = 9;
    pub(crate) const BUSY_TSS: u8 = 11;
}

/// A gate of the IDT.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gate {
    pub(super) target: u64,
    pub(super) selector: u16,
    /// Which stack of the TSS; 0 is none.
    pub(super) stack: u8,
    /// It clears IF.
    pub(super) is_interrupt: bool,
    pub(super) level: u8,
}

/// The part of an error code that names a selector.
pub(super) const fn code_of(selector: u16) -> u32 {
    (selector & !3) as u32
}

/// What an error code says of a vector.
pub(super) const fn code_of_vector(vector: u8, external: bool) -> u32 {
    (vector as u32) << 3 | 2 | external as u32
}

impl System {
    /// Where a selector's descriptor is; #GP behind the end of its table.
    fn place(&self, selector: u16, bytes: u64) -> Part<u64> {
        let offset = u64::from(selector & !7);
        let (base, limit) = if selector & 4 == 0 {
            (self.registers.gdtr.base, u64::from(self.registers.gdtr.limit))
        } else {
            (self.registers.ldtr.base, u64::from(self.registers.ldtr.limit))
        };
        let has_table = selector & 4 == 0 || self.registers.ldtr.attributes != 0;
        if !has_table || offset + bytes - 1 > limit {
            return Err(Fault::general(code_of(selector)).into());
        }
        Ok(base.wrapping_add(offset))
    }

    /// A word of a table, as the processor itself loads it.
    fn load_as_supervisor(&mut self, cpu: &mut SystemCpu, at: u64) -> Part<u64> {
        self.as_supervisor(cpu, |system, cpu| system.load(cpu, 64, at))
    }

    /// The descriptor of a selector, which is not null.
    pub(super) fn descriptor(&mut self, cpu: &mut SystemCpu, selector: u16) -> Part<Descriptor> {
        let at = self.place(selector, 8)?;
        let low = self.load_as_supervisor(cpu, at)?;
        let mut descriptor = Descriptor { low, high: 0 };
        if !descriptor.is_segment() && selector & 4 == 0 {
            // Those of the system have sixteen bytes; one that ends the table before is checked by its type.
            if let Ok(at) = self.place(selector, 16) {
                descriptor.high = self.load_as_supervisor(cpu, at + 8)?;
            }
        }
        Ok(descriptor)
    }

    /// Sets bits in the type of a descriptor: accessed, or busy.
    pub(super) fn mark_descriptor(&mut self, cpu: &mut SystemCpu, selector: u16, bits: u8) -> Part {
        let at = self.place(selector, 8)? + 5;
        self.as_supervisor(cpu, |system, cpu| {
            let byte = system.load(cpu, 8, at)?;
            let marked = byte | u64::from(bits);
            if marked != byte { system.store(cpu, 8, at, marked) } else { Ok(()) }
        })
    }

    /// The gate of a vector.
    pub(super) fn gate(&mut self, cpu: &mut SystemCpu, vector: u8, external: bool) -> Part<Gate> {
        let code = code_of_vector(vector, external);
        if !self.registers.is_long() {
            return self.narrow_gate(cpu, vector, code);
        }
        let offset = u64::from(vector) * 16;
        if offset + 15 > u64::from(self.registers.idtr.limit) {
            return Err(Fault::general(code).into());
        }
        let at = self.registers.idtr.base.wrapping_add(offset);
        let low = self.load_as_supervisor(cpu, at)?;
        let high = self.load_as_supervisor(cpu, at.wrapping_add(8))?;
        let kind = low >> 40 & 0x1f;
        if !matches!(kind, 14 | 15) {
            return Err(Fault::general(code).into());
        }
        if low >> 47 & 1 == 0 {
            return Err(Failure::Fault(Fault { vector: 11, code }));
        }
        Ok(Gate {
            target: low & 0xffff | low >> 32 & 0xffff_0000 | high << 32,
            selector: (low >> 16 & 0xffff) as u16,
            stack: (low >> 32 & 7) as u8,
            is_interrupt: kind == 14,
            level: (low >> 45 & 3) as u8,
        })
    }

    /// The gate of a vector before long mode: eight bytes, to 32-bit code.
    fn narrow_gate(&mut self, cpu: &mut SystemCpu, vector: u8, code: u32) -> Part<Gate> {
        let offset = u64::from(vector) * 8;
        if offset + 7 > u64::from(self.registers.idtr.limit) {
            return Err(Fault::general(code).into());
        }
        let gate = self.load_as_supervisor(cpu, self.registers.idtr.base.wrapping_add(offset))?;
        let kind = gate >> 40 & 0x1f;
        match kind {
            14 | 15 => {}
            5 => return Err(Failure::Refused(format!("a task gate (vector {vector})"))),
            6 | 7 => return Err(Failure::Refused(format!("a gate of 16 bits (vector {vector})"))),
            _ => return Err(Fault::general(code).into()),
        }
        if gate >> 47 & 1 == 0 {
            return Err(Failure::Fault(Fault { vector: 11, code }));
        }
        Ok(Gate {
            target: gate & 0xffff | gate >> 32 & 0xffff_0000,
            selector: (gate >> 16 & 0xffff) as u16,
            stack: 0,
            is_interrupt: kind == 14,
            level: (gate >> 45 & 3) as u8,
        })
    }

    /// A stack pointer of the TSS: RSP0 to RSP2 by level, IST1 to IST7 from 7 on.
    pub(super) fn task_stack(&mut self, cpu: &mut SystemCpu, n: u8) -> Part<u64> {
        let offset = match n {
            0..=2 => 4 + u64::from(n) * 8,
            _ => 0x24 + u64::from(n - 7) * 8,
        };
        if offset + 7 > u64::from(self.registers.tr.limit) {
            return Err(Failure::Fault(Fault { vector: 10, code: code_of(self.registers.tr.selector) }));
        }
        self.load_as_supervisor(cpu, self.registers.tr.base.wrapping_add(offset))
    }
}
