//! Loads of segment registers, and the instructions that look at descriptors: LAR, LSL, VERR, VERW.

use super::descriptors::{Descriptor, code_of, kind};
use super::registers::{Segment, segment};
use super::{Failure, Fault, Part, System, SystemCpu};
use x86::machine::Machine;
use x86::op;

impl System {
    /// MOV to a segment register, POP of FS or GS, LFS and its kin.
    pub(super) fn load_segment(&mut self, cpu: &mut SystemCpu, n: usize, selector: u16) -> Part {
        let loaded = match n {
            segment::CS => return Err(Fault::INVALID_OPCODE.into()),
            segment::SS if selector & !3 == 0 => {
                let level = self.registers.privilege;
                if level == 3 || (selector & 3) as u8 != level {
                    return Err(Fault::general(0).into());
                }
                Segment { selector, ..Segment::default() }
            }
            segment::SS => self.stack_segment(cpu, selector, self.registers.privilege)?,
            _ if selector & !3 == 0 => Segment { selector, ..Segment::default() },
            _ => self.data_segment(cpu, selector)?,
        };
        let has_base_here = matches!(n, segment::FS | segment::GS);
        if self.registers.is_narrow() && !has_base_here && !loaded.is_flat() {
            return Err(Failure::Refused(format!(
                "32-bit code loads selector {selector:#x}, which is not flat"
            )));
        }
        if selector & !3 != 0 {
            self.mark_descriptor(cpu, selector, 1)?;
        }
        self.registers.segments[n] = loaded;
        match n {
            segment::FS => cpu.set_segment_base(op::Segment::Fs, loaded.base),
            segment::GS => cpu.set_segment_base(op::Segment::Gs, loaded.base),
            _ => {}
        }
        Ok(())
    }

    /// The data segment of a selector for a stack of `level`.
    pub(super) fn stack_segment(&mut self, cpu: &mut SystemCpu, selector: u16, level: u8) -> Part<Segment> {
        let found = self.descriptor(cpu, selector)?;
        let is_stack = found.is_segment() && !found.is_code() && found.is_open();
        if !is_stack || found.level() != level || (selector & 3) as u8 != level {
            return Err(Fault::general(code_of(selector)).into());
        }
        match found.is_present() {
            true => Ok(found.loaded(selector)),
            false => Err(Fault { vector: 12, code: code_of(selector) }.into()),
        }
    }

    fn data_segment(&mut self, cpu: &mut SystemCpu, selector: u16) -> Part<Segment> {
        let found = self.descriptor(cpu, selector)?;
        let is_readable = found.is_segment() && (!found.is_code() || found.is_open());
        if !is_readable || !self.reaches(found, selector) {
            return Err(Fault::general(code_of(selector)).into());
        }
        match found.is_present() {
            true => Ok(found.loaded(selector)),
            false => Err(Fault { vector: 11, code: code_of(selector) }.into()),
        }
    }

    /// Whether the level, and the one that the selector asks for, are high enough for the descriptor.
    fn reaches(&self, found: Descriptor, selector: u16) -> bool {
        let weakest = self.registers.privilege.max((selector & 3) as u8);
        found.is_code() && found.is_conforming() || found.level() >= weakest
    }

    /// What LAR and LSL find: attributes where LAR has them and the limit. `None` clears ZF.
    pub(super) fn look_up(&mut self, cpu: &mut SystemCpu, selector: u16) -> Part<Option<(u64, u64)>> {
        let Some(found) = self.descriptor_or_none(cpu, selector)? else { return Ok(None) };
        let is_known =
            found.is_segment() || matches!(found.kind(), kind::LDT | kind::AVAILABLE_TSS | kind::BUSY_TSS);
        if !is_known || !self.reaches(found, selector) {
            return Ok(None);
        }
        Ok(Some((u64::from(found.attributes()) << 8 & 0xf0_ff00, found.limit().into())))
    }

    /// VERR, and VERW where `write`.
    pub(super) fn verify(&mut self, cpu: &mut SystemCpu, selector: u16, write: bool) -> Part<bool> {
        let Some(found) = self.descriptor_or_none(cpu, selector)? else { return Ok(false) };
        let allowed = match (found.is_code(), write) {
            (false, true) => found.is_open(),
            (false, false) => true,
            (true, true) => false,
            (true, false) => found.is_open(),
        };
        Ok(found.is_segment() && allowed && self.reaches(found, selector))
    }

    /// A descriptor; `None` where the selector has none.
    fn descriptor_or_none(&mut self, cpu: &mut SystemCpu, selector: u16) -> Part<Option<Descriptor>> {
        if selector & !3 == 0 {
            return Ok(None);
        }
        match self.descriptor(cpu, selector) {
            Ok(found) => Ok(Some(found)),
            Err(super::Failure::Fault(Fault { vector: 13, .. })) => Ok(None),
            Err(other) => Err(other),
        }
    }
}
