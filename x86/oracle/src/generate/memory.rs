//! Memory operands: an address first, then registers and a displacement that lead there.

use super::operands::Operands;
use crate::layout::{DATA, PAGE, READ_ONLY, WRITABLE};
use crate::random::Random;
use crate::values;
use iced_x86::{Instruction, MemorySize, Mnemonic, OpCodeOperandKind as Kind, OpKind, Register};
use x86::op::Gpr;

impl Operands<'_> {
    /// A memory operand of any form, of the instruction's size; `absolute` for the 64-bit address of MOV.
    pub(super) fn memory(&mut self, i: &mut Instruction, absolute: bool) {
        let size = u64::try_from(i.memory_size().size()).unwrap_or(0);
        let target = self.address_for(i.mnemonic(), size, alignment(i.memory_size()));
        let (segment, base) = match self.random.below(24) {
            0 => (Register::FS, self.pins.fs_base),
            1 => (Register::GS, self.pins.gs_base),
            _ => (Register::None, 0),
        };
        i.set_segment_prefix(segment);
        let effective = target.wrapping_sub(base);
        if absolute {
            i.set_memory_displ_size(8);
            i.set_memory_displacement64(effective);
            return;
        }
        match self.random.below(12) {
            0 => self.displacement_only(i, effective),
            1 => self.rip_relative(i, effective),
            2..=3 => self.registers(i, effective, true),
            _ => self.registers(i, effective, false),
        }
    }

    /// A vector of addresses: most of the indices are small, and the base is inside the data.
    pub(super) fn gathered(&mut self, i: &mut Instruction, n: u32, kind: Kind, first: Register) {
        i.set_op_kind(n, OpKind::Memory);
        let index = self.random.index(usize::try_from(self.vectors).unwrap_or(16));
        i.set_memory_index(first + u32::try_from(index).unwrap_or(0));
        i.set_memory_index_scale(1 << self.random.below(4));
        let width =
            if matches!(kind, Kind::mem_vsib32x | Kind::mem_vsib32y | Kind::mem_vsib32z) { 32 } else { 64 };
        self.pins.indices.push((index, width));
        let base = self.usable_register();
        let displacement = if self.random.percent(50) { 0 } else { sign_extend_8(self.random.next()) };
        let target = DATA + 0x800 + self.random.below(WRITABLE as u64 - 0x1000);
        self.pins.pin(base, target.wrapping_sub(displacement));
        let narrow = self.random.percent(10);
        let bases = if narrow { Register::EAX } else { Register::RAX };
        i.set_memory_base(bases + u32::from(base.0));
        i.set_memory_displacement64(if narrow { displacement & 0xffff_ffff } else { displacement });
        i.set_memory_displ_size(if displacement == 0 { 0 } else { 1 });
    }

    fn displacement_only(&mut self, i: &mut Instruction, effective: u64) {
        i.set_memory_displ_size(8);
        i.set_memory_displacement64(effective);
    }

    fn rip_relative(&mut self, i: &mut Instruction, effective: u64) {
        i.set_memory_base(Register::RIP);
        i.set_memory_displ_size(8);
        i.set_memory_displacement64(effective);
    }

    /// `[base + index * scale + disp]`, or a part of it, of 64-bit or (`narrow`) 32-bit registers.
    fn registers(&mut self, i: &mut Instruction, effective: u64, narrow: bool) {
        let first = if narrow { Register::EAX } else { Register::RAX };
        let (has_base, has_index) = [(true, false), (true, true), (true, true), (false, true)]
            [usize::try_from(self.random.below(4)).unwrap_or(0)];
        let mut rest = effective;
        if has_index {
            let n = loop {
                let n = self.usable_register();
                if n != Gpr::RSP {
                    break n;
                }
            };
            let scale = 1 << self.random.below(4);
            let value = self.known_or(n, values::integer);
            rest = rest.wrapping_sub(value.wrapping_mul(u64::from(scale)));
            i.set_memory_index(first + u32::from(n.0));
            i.set_memory_index_scale(scale);
        }
        let mut displacement = match self.random.below(4) {
            0 => 0,
            1 => sign_extend_8(self.random.next()),
            _ => sign_extend_32(self.random.next()),
        };
        if has_base {
            let n = self.usable_register();
            match self.known(n) {
                Some(value) => displacement = rest.wrapping_sub(value),
                None => self.pins.pin(n, self.with_junk(rest.wrapping_sub(displacement), narrow)),
            }
            i.set_memory_base(first + u32::from(n.0));
        } else {
            displacement = rest;
        }
        let displacement = if narrow { displacement & 0xffff_ffff } else { sign_extend_32(displacement) };
        i.set_memory_displacement64(displacement);
        let fits_8 =
            sign_extend_8(displacement) == if narrow { sign_extend_32(displacement) } else { displacement };
        let size = match (displacement, has_base) {
            (0, true) if self.random.percent(80) => 0,
            (_, true) if fits_8 && self.random.percent(80) => 1,
            _ if narrow => 4,
            _ => 8,
        };
        i.set_memory_displ_size(size);
    }

    /// The upper half of a register is ignored by 32-bit addressing.
    fn with_junk(&self, value: u64, narrow: bool) -> u64 {
        if narrow { value & 0xffff_ffff | value.wrapping_mul(0x9e37_79b9_7f4a_7c15) << 32 } else { value }
    }

    /// A register whose value at this instruction is still known, most of the time.
    fn usable_register(&mut self) -> Gpr {
        let mut n = 0;
        for _ in 0..4 {
            n = self.random.index(16);
            if !self.pins.written[n] {
                break;
            }
        }
        Gpr(u8::try_from(n).unwrap_or(0))
    }

    pub(super) fn known(&self, r: Gpr) -> Option<u64> {
        self.pins.gpr[usize::from(r.0)]
    }

    pub(super) fn known_or(&mut self, r: Gpr, make: impl FnOnce(&mut Random) -> u64) -> u64 {
        let value = match self.known(r) {
            Some(value) => value,
            None => make(self.random),
        };
        self.pins.pin(r, value);
        value
    }

    fn address_for(&mut self, mnemonic: Mnemonic, size: u64, align: u64) -> u64 {
        match mnemonic {
            Mnemonic::Jmp | Mnemonic::Call => self.slot(values::CODE_SLOTS),
            _ => self.address(size, align),
        }
    }

    /// Where the data pages hold an address of code, or flags.
    pub(super) fn slot(&mut self, (first, distance): (u64, u64)) -> u64 {
        DATA + first + distance * self.random.below((WRITABLE as u64 - first).div_ceil(distance))
    }

    /// An address for an access of `size` bytes: mostly one that works.
    pub(super) fn address(&mut self, size: u64, align: u64) -> u64 {
        let page = PAGE as u64;
        let align = if self.random.percent(90) { align } else { 1 };
        let inside = |random: &mut Random, from: u64, len: u64| {
            (from + random.below(len.saturating_sub(size) + 1)) & !(align - 1)
        };
        let near = self.random.below(2 * size.max(1) + 2);
        if !self.random.percent(self.risk) {
            return inside(self.random, DATA, WRITABLE as u64);
        }
        let end = WRITABLE as u64;
        match self.random.below(9) {
            0 | 1 => DATA + page * (1 + self.random.below(3)) + near - size,
            2 => DATA + end + near - size,
            3 => (DATA + near).wrapping_sub(size),
            4 => READ_ONLY + near - size,
            5 => READ_ONLY + page + near - size,
            6 => inside(self.random, READ_ONLY, page),
            7 => values::integer(self.random),
            // Not the case's own code: behind it, the native half has a jump that the other has not.
            _ => values::INT3_FROM + self.random.below(values::INT3_LEN),
        }
    }
}

/// Vectors are mostly put where the aligned instructions take them.
fn alignment(size: MemorySize) -> u64 {
    match size.size() {
        size @ (16 | 32 | 64) => size as u64,
        _ => 1,
    }
}

fn sign_extend_8(value: u64) -> u64 {
    (value << 56).cast_signed().wrapping_shr(56).cast_unsigned()
}

fn sign_extend_32(value: u64) -> u64 {
    (value << 32).cast_signed().wrapping_shr(32).cast_unsigned()
}
