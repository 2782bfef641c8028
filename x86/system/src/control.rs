//! Control and debug registers, the registers of the tables, and the MSRs of the processor itself.

use super::descriptors::{code_of, kind};
use super::registers::{TableRegister, cr0, cr4, efer, segment};
use super::{Failure, Fault, Outside, Part, System, SystemCpu, go_to};
use x86::machine::Machine;
use x86::op;

/// MSRs (Intel SDM vol. 4).
mod msr {
    pub(super) const SYSENTER: std::ops::RangeInclusive<u32> = 0x174..=0x176;
    pub(super) const PAT: u32 = 0x277;
    pub(super) const EFER: u32 = 0xc000_0080;
    pub(super) const STAR: u32 = 0xc000_0081;
    pub(super) const LSTAR: u32 = 0xc000_0082;
    pub(super) const CSTAR: u32 = 0xc000_0083;
    pub(super) const FMASK: u32 = 0xc000_0084;
    pub(super) const FS_BASE: u32 = 0xc000_0100;
    pub(super) const GS_BASE: u32 = 0xc000_0101;
    pub(super) const KERNEL_GS_BASE: u32 = 0xc000_0102;
    pub(super) const TSC_AUX: u32 = 0xc000_0103;
}

const fn is_canonical(va: u64) -> bool {
    (va << 16).cast_signed() >> 16 == va.cast_signed()
}

/// The base of a TSS or an LDT is canonical.
fn check_base(base: u64, selector: u16) -> Part {
    if is_canonical(base) { Ok(()) } else { Err(Fault::general(code_of(selector)).into()) }
}

impl System {
    /// Tells memory what its walks depend on, and forgets what they found.
    pub(super) fn apply_paging(&mut self, cpu: &mut SystemCpu) {
        let Self { registers: r, .. } = self;
        let paging = super::paging::Paging {
            enabled: r.cr0 & cr0::PG != 0,
            root: r.cr3,
            write_protect: r.cr0 & cr0::WP != 0,
            smep: r.cr4 & cr4::SMEP != 0,
            smap: r.cr4 & cr4::SMAP != 0,
            no_execute: r.efer & efer::NXE != 0,
            user: r.privilege == 3,
            access: cpu.bus().paging.access,
        };
        go_to(cpu, paging);
        cpu.flush_tlb();
    }

    /// MOV from a control register.
    pub(super) fn read_control(&mut self, n: usize, outside: &mut impl Outside) -> Part<u64> {
        Ok(match n {
            0 => self.registers.cr0,
            2 => self.registers.cr2,
            3 => self.registers.cr3,
            4 => self.registers.cr4,
            8 => outside.task_priority(),
            _ => return Err(Fault::INVALID_OPCODE.into()),
        })
    }

    /// MOV to a control register.
    pub(super) fn write_control(
        &mut self,
        cpu: &mut SystemCpu,
        n: usize,
        value: u64,
        outside: &mut impl Outside,
    ) -> Part {
        match n {
            0 => self.write_cr0(cpu, value)?,
            2 => self.registers.cr2 = value,
            3 => {
                if value >> super::paging::PHYSICAL_BITS != 0 {
                    return Err(Fault::general(0).into());
                }
                self.registers.cr3 = value;
                self.apply_paging(cpu);
            }
            4 => {
                if value & !cr4::ALL != 0 || self.registers.is_long() && value & cr4::PAE == 0 {
                    return Err(Fault::general(0).into());
                }
                self.registers.cr4 = value;
                self.apply_paging(cpu);
            }
            8 if value > 15 => return Err(Fault::general(0).into()),
            8 => outside.set_task_priority(value),
            _ => return Err(Fault::INVALID_OPCODE.into()),
        }
        Ok(())
    }

    fn write_cr0(&mut self, cpu: &mut SystemCpu, value: u64) -> Part {
        const ALL: u64 = 0xe005_003f;
        if value >> 32 != 0
            || value & cr0::PG != 0 && value & cr0::PE == 0
            || value & cr0::NW != 0 && value & cr0::CD == 0
        {
            return Err(Fault::general(0).into());
        }
        if value & cr0::PE == 0 {
            return Err(Failure::Refused("real mode: CR0.PE is cleared".to_owned()));
        }
        if value & (cr0::TS | cr0::EM) != 0 {
            return Err(Failure::Refused(format!("CR0 = {value:#x}: the x87 is switched off by TS or EM")));
        }
        self.switch_long_mode(value & cr0::PG != 0)?;
        self.registers.cr0 = value & ALL | cr0::ET;
        self.apply_paging(cpu);
        self.apply_code(cpu);
        Ok(())
    }

    /// Goes into long mode with paging, and out of it without (Intel SDM vol. 3, 10.8.5).
    fn switch_long_mode(&mut self, paging: bool) -> Part {
        let r = &mut self.registers;
        match (r.is_long(), paging) {
            (true, false) if !r.is_narrow() => return Err(Fault::general(0).into()),
            (true, false) => r.efer &= !efer::LMA,
            (false, true) if r.efer & efer::LME == 0 => {
                return Err(Failure::Refused(
                    "paging of 32-bit code: CR0.PG is set without EFER.LME".to_owned(),
                ));
            }
            // It would be 64-bit code at once.
            (false, true) if r.cr4 & cr4::PAE == 0 || r.segments[segment::CS].is_long() => {
                return Err(Fault::general(0).into());
            }
            (false, true) => r.efer |= efer::LMA,
            (true, true) | (false, false) => {}
        }
        Ok(())
    }

    /// LMSW of the low four bits; PE cannot be cleared.
    pub(super) fn load_status_word(&mut self, cpu: &mut SystemCpu, value: u64) -> Part {
        let bits = cr0::PE | cr0::MP | cr0::EM | cr0::TS;
        let kept = self.registers.cr0 & !(bits & !cr0::PE);
        self.write_cr0(cpu, kept | value & bits)
    }

    /// A debug register's number: DR4 and DR5 are other names of DR6 and DR7, unless CR4.DE is set.
    fn debug_register(&self, n: usize) -> Part<usize> {
        match n {
            4 | 5 if self.registers.cr4 & cr4::DE != 0 => Err(Fault::INVALID_OPCODE.into()),
            4 | 5 => Ok(n + 2),
            n => Ok(n & 7),
        }
    }

    /// MOV from a debug register.
    pub(super) fn read_debug(&self, n: usize) -> Part<u64> {
        Ok(self.registers.debug[self.debug_register(n)?])
    }

    /// MOV to a debug register.
    pub(super) fn write_debug(&mut self, n: usize, value: u64) -> Part {
        let n = self.debug_register(n)?;
        if n >= 6 && value >> 32 != 0 {
            return Err(Fault::general(0).into());
        }
        self.registers.debug[n] = match n {
            6 => value & 0xe00f | 0xffff_0ff0,
            7 => {
                let arms_ports = |n: u32| value >> (2 * n) & 3 != 0 && value >> (16 + 4 * n) & 3 == 2;
                if (0..4).any(arms_ports) {
                    return Err(Failure::Refused(format!("hardware breakpoints on ports: DR7 = {value:#x}")));
                }
                value & 0xffff_27ff | 0x400
            }
            _ => value,
        };
        Ok(())
    }

    /// RDMSR.
    pub(super) fn read_msr(
        &mut self,
        cpu: &mut SystemCpu,
        index: u32,
        outside: &mut impl Outside,
    ) -> Part<u64> {
        let r = &self.registers;
        Ok(match index {
            msr::EFER => r.efer,
            msr::STAR => r.star,
            msr::LSTAR => r.lstar,
            msr::CSTAR => r.cstar,
            msr::FMASK => r.fmask,
            msr::FS_BASE => cpu.segment_base(op::Segment::Fs),
            msr::GS_BASE => cpu.segment_base(op::Segment::Gs),
            msr::KERNEL_GS_BASE => r.kernel_gs_base,
            msr::TSC_AUX => r.tsc_aux,
            msr::PAT => r.pat,
            _ if msr::SYSENTER.contains(&index) => {
                r.sysenter[crate::index((index - msr::SYSENTER.start()).into())]
            }
            _ => return outside.read_msr(index).ok_or_else(|| Fault::general(0).into()),
        })
    }

    /// WRMSR.
    pub(super) fn write_msr(
        &mut self,
        cpu: &mut SystemCpu,
        index: u32,
        value: u64,
        outside: &mut impl Outside,
    ) -> Part {
        let needs_canonical =
            matches!(index, msr::LSTAR | msr::CSTAR | msr::FS_BASE | msr::GS_BASE | msr::KERNEL_GS_BASE);
        if needs_canonical && !is_canonical(value) {
            return Err(Fault::general(0).into());
        }
        let r = &mut self.registers;
        match index {
            msr::EFER => return self.write_efer(cpu, value),
            msr::STAR => r.star = value,
            msr::LSTAR => r.lstar = value,
            msr::CSTAR => r.cstar = value,
            msr::FMASK => r.fmask = value & 0xffff_ffff,
            msr::FS_BASE => cpu.set_segment_base(op::Segment::Fs, value),
            msr::GS_BASE => cpu.set_segment_base(op::Segment::Gs, value),
            msr::KERNEL_GS_BASE => r.kernel_gs_base = value,
            msr::TSC_AUX => r.tsc_aux = value & 0xffff_ffff,
            msr::PAT => {
                // Each of the eight types is one of 0, 1, 4, 5, 6, 7.
                if value.to_le_bytes().iter().any(|kind| !matches!(kind, 0 | 1 | 4..=7)) {
                    return Err(Fault::general(0).into());
                }
                r.pat = value;
            }
            _ if msr::SYSENTER.contains(&index) => {
                r.sysenter[crate::index((index - msr::SYSENTER.start()).into())] = value;
            }
            _ => return outside.write_msr(index, value).ok_or_else(|| Fault::general(0).into()),
        }
        Ok(())
    }

    fn write_efer(&mut self, cpu: &mut SystemCpu, value: u64) -> Part {
        let old = self.registers.efer;
        let leaves_long_mode = self.registers.is_long() && value & efer::LME == 0;
        if value & !(efer::SCE | efer::LME | efer::LMA | efer::NXE) != 0 || leaves_long_mode {
            return Err(Fault::general(0).into());
        }
        self.registers.efer = value & !efer::LMA | old & efer::LMA;
        self.apply_paging(cpu);
        Ok(())
    }

    /// SWAPGS.
    pub(super) fn swap_gs(&mut self, cpu: &mut SystemCpu) {
        let base = cpu.segment_base(op::Segment::Gs);
        cpu.set_segment_base(op::Segment::Gs, self.registers.kernel_gs_base);
        self.registers.kernel_gs_base = base;
    }

    /// How wide the base of a table is in memory.
    fn base_width(&self) -> u32 {
        if self.registers.is_narrow() { 32 } else { 64 }
    }

    /// The operand of LGDT and LIDT.
    pub(super) fn load_table(&mut self, cpu: &mut SystemCpu, at: u64) -> Part<TableRegister> {
        let limit = self.load(cpu, 16, at)?;
        let base = self.load(cpu, self.base_width(), at.wrapping_add(2))?;
        if !is_canonical(base) {
            return Err(Fault::general(0).into());
        }
        Ok(TableRegister { base, limit: (limit & 0xffff) as u16 })
    }

    /// SGDT and SIDT.
    pub(super) fn store_table(&mut self, cpu: &mut SystemCpu, at: u64, table: TableRegister) -> Part {
        self.store(cpu, self.base_width(), at.wrapping_add(2), table.base)?;
        self.store(cpu, 16, at, table.limit.into())
    }

    /// LTR.
    pub(super) fn load_task(&mut self, cpu: &mut SystemCpu, selector: u16) -> Part {
        if selector & !3 == 0 {
            return Err(Fault::general(0).into());
        }
        let found = self.descriptor(cpu, selector)?;
        if selector & 4 != 0 || found.is_segment() || found.kind() != kind::AVAILABLE_TSS {
            return Err(Fault::general(code_of(selector)).into());
        }
        if !found.is_present() {
            return Err(Failure::Fault(Fault { vector: 11, code: code_of(selector) }));
        }
        check_base(found.base(), selector)?;
        self.mark_descriptor(cpu, selector, 2)?;
        self.registers.tr = found.loaded(selector);
        Ok(())
    }

    /// LLDT; a null selector means that there is no LDT.
    pub(super) fn load_local_table(&mut self, cpu: &mut SystemCpu, selector: u16) -> Part {
        if selector & !3 == 0 {
            self.registers.ldtr = super::Segment { selector, ..super::Segment::default() };
            return Ok(());
        }
        let found = self.descriptor(cpu, selector)?;
        if selector & 4 != 0 || found.is_segment() || found.kind() != kind::LDT {
            return Err(Fault::general(code_of(selector)).into());
        }
        if !found.is_present() {
            return Err(Failure::Fault(Fault { vector: 11, code: code_of(selector) }));
        }
        check_base(found.base(), selector)?;
        self.registers.ldtr = found.loaded(selector);
        Ok(())
    }
}
