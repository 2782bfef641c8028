//! Transfers between levels and segments: IRET, SYSCALL and SYSRET, far jumps, calls and returns (Intel SDM vol. 2).
//!
//! They lead to 64-bit code and to 32-bit code in flat segments; what would go elsewhere is refused.

use super::descriptors::{Descriptor, code_of};
use super::registers::{Segment, efer, segment};
use super::{Failure, Fault, Part, System, SystemCpu};
use x86::machine::Machine;
use x86::op::Gpr;
use x86::state::{RFLAGS_FIXED, RFLAGS_IF};

/// RFLAGS bits that exist.
const FLAGS: u64 = 0x003f_7fd5;
/// IOPL.
const IOPL: u64 = 3 << 12;
/// VM: virtual 8086 mode.
const VM: u64 = 1 << 17;
/// RF, which SYSRET clears.
const RF: u64 = 1 << 16;
/// VIF and VIP, which IRET and POPF of programs leave alone.
const VIRTUAL: u64 = 3 << 19;

/// A linear address of 48 bits.
fn canonical(va: u64) -> Part<u64> {
    match (va << 16).cast_signed() >> 16 == va.cast_signed() {
        true => Ok(va),
        false => Err(Fault::general(0).into()),
    }
}

impl System {
    /// The bits of RFLAGS that code of this level may change by POPF and IRET.
    pub(super) fn may_change(&self, old: u64) -> u64 {
        let mut bits = FLAGS & !(IOPL | RFLAGS_IF | VM | VIRTUAL);
        let level = u64::from(self.registers.privilege);
        if level == 0 {
            bits |= IOPL | VIRTUAL;
        }
        if level <= (old & IOPL) >> 12 {
            bits |= RFLAGS_IF;
        }
        bits
    }

    /// SYSCALL, which has retired: rip is behind it.
    pub(super) fn system_call(&mut self, cpu: &mut SystemCpu) -> Part {
        const LENGTH: u64 = 2;
        let old = cpu.regs();
        if self.registers.efer & efer::SCE == 0 {
            cpu.unretire(1);
            cpu.set_rip(old.rip.wrapping_sub(LENGTH));
            return Err(Fault::INVALID_OPCODE.into());
        }
        cpu.set_reg(Gpr::RCX, old.rip);
        cpu.set_reg(Gpr::R11, old.rflags & !RF);
        self.set_flags(cpu, old.rflags & !self.registers.fmask & !RF | RFLAGS_FIXED);
        cpu.set_rip(self.registers.lstar);
        let selector = (self.registers.star >> 32 & 0xfffc) as u16;
        self.registers.segments[segment::CS] = Segment::flat(selector, true, 0);
        self.registers.segments[segment::SS] = Segment::flat(selector.wrapping_add(8), false, 0);
        self.set_privilege(cpu, 0);
        Ok(())
    }

    /// An address that a transfer to this code leads to.
    fn target(&self, code: Descriptor, to: u64) -> Part<u64> {
        if self.registers.is_long() && code.is_long() { canonical(to) } else { Ok(to & 0xffff_ffff) }
    }

    /// A stack pointer as wide as that of the code that runs.
    fn stack_pointer(&self, rsp: u64) -> u64 {
        if self.registers.is_narrow() { rsp & 0xffff_ffff } else { rsp }
    }

    /// SYSRET with a 64-bit operand; else it goes to 32-bit code.
    pub(super) fn system_return(&mut self, cpu: &mut SystemCpu, is_long: bool) -> Part {
        if self.registers.efer & efer::SCE == 0 {
            return Err(Fault::INVALID_OPCODE.into());
        }
        if !is_long {
            return Err(Failure::Refused("SYSRET to 32-bit code".to_owned()));
        }
        let (rip, rflags) = (canonical(cpu.reg(Gpr::RCX))?, cpu.reg(Gpr::R11));
        self.set_flags(cpu, rflags & 0x003c_7fd7 | RFLAGS_FIXED);
        cpu.set_rip(rip);
        let base = (self.registers.star >> 48 & 0xffff) as u16;
        self.registers.segments[segment::CS] = Segment::flat(base.wrapping_add(16) | 3, true, 3);
        self.registers.segments[segment::SS] = Segment::flat(base.wrapping_add(8) | 3, false, 3);
        self.set_privilege(cpu, 3);
        Ok(())
    }

    /// IRET with operands of `w` bits.
    pub(super) fn interrupt_return(&mut self, cpu: &mut SystemCpu, w: u32) -> Part {
        const NT: u64 = 1 << 14;
        let old = cpu.regs();
        if !self.registers.is_long() && (old.rflags & NT != 0) {
            return Err(Failure::Refused("a return from a task".to_owned()));
        }
        if old.rflags & NT != 0 {
            return Err(Fault::general(0).into());
        }
        let mut word = |n: u64| self.load(cpu, w, old.gpr[4].wrapping_add(n * u64::from(w / 8)));
        let [rip, cs, rflags] = [word(0)?, word(1)?, word(2)?];
        let cs = (cs & 0xffff) as u16;
        let level = (cs & 3) as u8;
        // 64-bit code pops a stack in any case.
        let pops_stack = !self.registers.is_narrow() || level != self.registers.privilege;
        let outer = if pops_stack { Some((word(3)?, (word(4)? & 0xffff) as u16)) } else { None };
        if !self.registers.is_long() && rflags & VM != 0 {
            return Err(Failure::Refused("a return to virtual 8086 mode".to_owned()));
        }
        let code = self.code_to_return_to(cpu, cs)?;
        let (rsp, stack) = match outer {
            Some((rsp, ss)) => (rsp, self.stack_to_return_to(cpu, (code, ss), level)?),
            None => {
                let above = self.stack_pointer(old.gpr[4].wrapping_add(3 * u64::from(w / 8)));
                (above, self.registers.segments[segment::SS])
            }
        };
        self.check_flat(code, stack)?;
        let rip = self.target(code, rip)?;
        let mut may = self.may_change(old.rflags);
        if w < 64 {
            may &= 0xffff_ffff;
        }
        self.set_flags(cpu, old.rflags & !may | rflags & may | RFLAGS_FIXED);
        cpu.set_rip(rip);
        cpu.set_reg(Gpr::RSP, rsp);
        self.arrive(cpu, (cs, code), stack, level);
        Ok(())
    }

    /// RETF with operands of `w` bits that releases `bytes` more.
    pub(super) fn far_return(&mut self, cpu: &mut SystemCpu, w: u32, bytes: u64) -> Part {
        let rsp = cpu.reg(Gpr::RSP);
        let size = u64::from(w / 8);
        let rip = self.load(cpu, w, rsp)?;
        let cs = (self.load(cpu, w, rsp.wrapping_add(size))? & 0xffff) as u16;
        let code = self.code_to_return_to(cpu, cs)?;
        let level = (cs & 3) as u8;
        let mut top = self.stack_pointer(rsp.wrapping_add(2 * size + bytes));
        let mut stack = self.registers.segments[segment::SS];
        if level > self.registers.privilege {
            let outer = self.load(cpu, w, top)?;
            let ss = (self.load(cpu, w, top.wrapping_add(size))? & 0xffff) as u16;
            stack = self.stack_to_return_to(cpu, (code, ss), level)?;
            top = outer.wrapping_add(bytes);
        }
        self.check_flat(code, stack)?;
        cpu.set_rip(self.target(code, rip)?);
        cpu.set_reg(Gpr::RSP, top);
        self.arrive(cpu, (cs, code), stack, level);
        Ok(())
    }

    /// A far jump, or a far call of operands of `w` bits, through the pointer at `at`.
    pub(super) fn far_branch(
        &mut self,
        cpu: &mut SystemCpu,
        w: u32,
        at: u64,
        calls_from: Option<u64>,
    ) -> Part {
        let to = self.load(cpu, w, at)?;
        let selector = (self.load(cpu, 16, at.wrapping_add(u64::from(w / 8)))? & 0xffff) as u16;
        self.far_branch_to(cpu, w, (selector, to), calls_from)
    }

    /// The same to an address.
    pub(super) fn far_branch_to(
        &mut self,
        cpu: &mut SystemCpu,
        w: u32,
        (selector, to): (u16, u64),
        calls_from: Option<u64>,
    ) -> Part {
        if selector & !3 == 0 {
            return Err(Fault::general(0).into());
        }
        let code = self.descriptor(cpu, selector)?;
        if !code.is_code() {
            return Err(match code.is_segment() {
                true => Fault::general(code_of(selector)).into(),
                false => Failure::Refused("a far transfer through a gate or to a task".to_owned()),
            });
        }
        let level = self.registers.privilege;
        let fits = match code.is_conforming() {
            true => code.level() <= level,
            false => code.level() == level && (selector & 3) as u8 <= level,
        };
        if !fits {
            return Err(Fault::general(code_of(selector)).into());
        }
        self.check_code(code, selector)?;
        self.check_flat(code, self.registers.segments[segment::SS])?;
        let to = self.target(code, to)?;
        if let Some(back) = calls_from {
            let size = u64::from(w / 8);
            let rsp = cpu.reg(Gpr::RSP).wrapping_sub(2 * size);
            let cs = self.registers.segments[segment::CS].selector;
            self.store(cpu, w, rsp.wrapping_add(size), cs.into())?;
            self.store(cpu, w, rsp, back)?;
            cpu.set_reg(Gpr::RSP, rsp);
        }
        cpu.set_rip(to);
        self.registers.segments[segment::CS] = code.loaded(selector & !3 | u16::from(level));
        self.apply_code(cpu);
        Ok(())
    }

    /// The code that a return leads to.
    fn code_to_return_to(&mut self, cpu: &mut SystemCpu, cs: u16) -> Part<Descriptor> {
        if cs & !3 == 0 {
            return Err(Fault::general(0).into());
        }
        let code = self.descriptor(cpu, cs)?;
        let level = (cs & 3) as u8;
        let fits = if code.is_conforming() { code.level() <= level } else { code.level() == level };
        if !code.is_code() || level < self.registers.privilege || !fits {
            return Err(Fault::general(code_of(cs)).into());
        }
        self.check_code(code, cs)?;
        Ok(code)
    }

    /// The stack that a return to `code` leads to: null is one in ring 0 of 64-bit code.
    fn stack_to_return_to(
        &mut self,
        cpu: &mut SystemCpu,
        (code, ss): (Descriptor, u16),
        level: u8,
    ) -> Part<Segment> {
        if ss & !3 == 0 {
            return match code.is_long() && level < 3 && (ss & 3) as u8 == level {
                true => Ok(Segment { selector: ss, ..Segment::default() }),
                false => Err(Fault::general(0).into()),
            };
        }
        self.stack_segment(cpu, ss, level)
    }

    /// Loads CS and SS, and takes from an outer level what data of an inner one it must not have.
    fn arrive(&mut self, cpu: &mut SystemCpu, (cs, code): (u16, Descriptor), stack: Segment, level: u8) {
        self.registers.segments[segment::CS] = code.loaded(cs);
        self.registers.segments[segment::SS] = stack;
        if level > self.registers.privilege {
            for n in [segment::ES, segment::DS, segment::FS, segment::GS] {
                let Segment { selector, attributes, .. } = self.registers.segments[n];
                let is_inner = (attributes >> 5 & 3) < u16::from(level);
                let is_conforming = attributes & 0xc == 0xc;
                if selector & !3 != 0 && is_inner && !is_conforming {
                    self.registers.segments[n] = Segment::default();
                }
            }
        }
        self.set_privilege(cpu, level);
        self.apply_code(cpu);
    }

    /// Code that is present, of 64 bits or of 32.
    pub(super) fn check_code(&self, code: Descriptor, selector: u16) -> Part {
        if !code.is_present() {
            return Err(Failure::Fault(Fault { vector: 11, code: code_of(selector) }));
        }
        match (self.registers.is_long() && code.is_long(), code.is_default_32()) {
            (true, true) => Err(Fault::general(code_of(selector)).into()),
            (true, false) | (false, true) => Ok(()),
            (false, false) => {
                Err(Failure::Refused(format!("a transfer to 16-bit code (selector {selector:#x})")))
            }
        }
    }

    /// 32-bit code has flat segments here, this stack's among them.
    pub(super) fn check_flat(&self, code: Descriptor, stack: Segment) -> Part {
        if self.registers.is_long() && code.is_long() {
            return Ok(());
        }
        let all = [
            code.loaded(0),
            stack,
            self.registers.segments[segment::DS],
            self.registers.segments[segment::ES],
        ];
        match all.iter().all(Segment::is_flat) {
            true => Ok(()),
            false => Err(Failure::Refused("32-bit code in segments that are not flat".to_owned())),
        }
    }
}
