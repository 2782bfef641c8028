//! A part of a recording, one step after the other: what a processor would have recorded of its branches, and what really ran.

use super::{Stop, Travel, TravelError};
use crate::machine::{Look, Machine, Position};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use lbr::model::{Event, Transfer};
use lbr::{Armed, CaptureError, Filter, Model, MsrAccess, Processor, Provenance, Trail};
use std::convert::Infallible;
use x86::op::BranchKind;

/// So many instructions before the end branches are recorded from at first.
const FIRST_LOOK_BACK: u64 = 1 << 12;
/// And so many times as many each time when those had too few branches.
const FURTHER: u64 = 16;
/// No further.
const MOST: u64 = 1 << 24;

/// Where the processor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    at: Position,
    rip: u64,
    is_ring0: bool,
}

impl Place {
    fn of(machine: &Machine) -> Place {
        let is_ring0 = machine.system_registers().privilege == 0;
        Place { at: machine.position(), rip: machine.regs().rip, is_ring0 }
    }
}

impl Travel {
    /// The newest `records` branches before here of those that `filter` lets through, as the model of a processor has recorded them in a run
    /// from a moment before. It stands here again then.
    ///
    /// # Errors
    /// When the run differs, or the model refuses.
    pub fn branch_records(&mut self, records: u32, filter: Filter) -> Result<Trail, BranchError> {
        let here = self.position();
        let mut back = FIRST_LOOK_BACK;
        loop {
            self.seek(Position::at(here.retired.saturating_sub(back)))?;
            let is_all = self.position() == self.history.begin() || back >= MOST;
            let trail = self.record_to(here, filter)?;
            if is_all || trail.records.len() >= usize::try_from(records).unwrap_or(usize::MAX) {
                return Ok(trail.newest(records));
            }
            back = back.saturating_mul(FURTHER);
        }
    }

    /// Records branches on the way to a position.
    fn record_to(&mut self, to: Position, filter: Filter) -> Result<Trail, BranchError> {
        let mut model = Registers(Model::new(Processor::Skylake));
        let armed = Armed::arm(&mut model, filter)?;
        let mut before = Place::of(&self.machine);
        let mut code = code_at(&self.machine, before.rip);
        while before.at < to && self.step_once()? {
            let after = Place::of(&self.machine);
            note(&mut model.0, before, &code, after, &self.machine);
            (before, code) = (after, code_at(&self.machine, after.rip));
        }
        Ok(armed.capture(&mut model, Provenance::Derived)?)
    }

    /// One instruction or one delivery; false at the end.
    ///
    /// # Errors
    /// When the run differs.
    pub fn step_once(&mut self) -> Result<bool, TravelError> {
        let here = self.position();
        let to = Position { delivered: here.delivered + 1, ..here };
        Ok(self.run_to(to, &Look::default(), false)? == Stop::There)
    }
}

/// Why there are no branch records.
#[derive(Debug, thiserror::Error)]
pub enum BranchError {
    /// The run.
    #[error(transparent)]
    Travel(#[from] TravelError),
    /// The model.
    #[error("the model of the branch records: {0}")]
    Model(#[from] CaptureError<Infallible>),
}

/// The model's registers.
struct Registers(Model);

impl MsrAccess for Registers {
    type Error = Infallible;

    fn read(&mut self, indices: &[u32]) -> Result<Vec<u64>, Infallible> {
        Ok(indices.iter().map_while(|index| self.0.read(*index)).collect())
    }

    fn write(&mut self, entries: &[(u32, u64)]) -> Result<usize, Infallible> {
        Ok(entries.iter().take_while(|(index, value)| self.0.write(*index, *value)).count())
    }
}

/// The instruction at an address; an invalid one where none is.
fn code_at(machine: &Machine, rip: u64) -> Instruction {
    let mut bytes = [0; 15];
    let there = machine.read(rip, &mut bytes);
    decoded(&bytes[..there], rip, machine.system_registers().is_narrow())
}

fn decoded(bytes: &[u8], rip: u64, is_narrow: bool) -> Instruction {
    let bitness = if is_narrow { 32 } else { 64 };
    Decoder::with_ip(bitness, bytes, rip, DecoderOptions::NONE).decode()
}

/// Tells the model what the step from one place to another was.
fn note(model: &mut Model, before: Place, code: &Instruction, after: Place, machine: &Machine) {
    let transfer = |kind| Transfer {
        from: before.rip,
        to: after.rip,
        kind,
        from_ring0: before.is_ring0,
        to_ring0: after.is_ring0,
    };
    if after.at.delivered > before.at.delivered {
        let raised = machine.exceptions().next().filter(|exception| exception.at >= before.at);
        let event = raised.map_or(Event::Interrupt, |exception| Event::Exception(exception.raised.vector));
        model.event(event, &transfer(BranchKind::Far));
    } else if let Some(kind) = taken(code, after.rip) {
        model.branch(&transfer(kind));
    }
}

/// The kind of the branch that an instruction took which went on at `to`.
fn taken(code: &Instruction, to: u64) -> Option<BranchKind> {
    match code.flow_control() {
        FlowControl::ConditionalBranch if to != code.next_ip() => Some(BranchKind::Conditional),
        FlowControl::UnconditionalBranch if code.is_jmp_short_or_near() => Some(BranchKind::RelativeJump),
        FlowControl::IndirectBranch if code.is_jmp_near_indirect() => Some(BranchKind::IndirectJump),
        FlowControl::IndirectCall if code.is_call_near_indirect() => Some(BranchKind::IndirectCall),
        FlowControl::Call if code.is_call_near() => Some(BranchKind::RelativeCall),
        FlowControl::Return if code.mnemonic() == Mnemonic::Ret => Some(BranchKind::Return),
        FlowControl::ConditionalBranch | FlowControl::Next => None,
        // SYSCALL and the like, far jumps, IRET.
        _ => Some(BranchKind::Far),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `jmp 8:0x100010` is how 32-bit code goes over to 64 bits; as 64-bit code it is no instruction.
    #[test]
    fn far_jumps_of_32_bit_code_are_branches() {
        let code = [0xea, 0x10, 0x00, 0x10, 0x00, 0x08, 0x00];
        let kind = |is_narrow| taken(&decoded(&code, 0x10_0000, is_narrow), 0x10_0010);
        assert_eq!(kind(true), Some(BranchKind::Far));
        assert!(decoded(&code, 0x10_0000, false).is_invalid());
    }
}
