//! Which bytes are to blame for a crash.

use super::recorded::{Recorded, instruction_at};
use super::{Byte, Place};
use crate::position::Position;
use crate::replay::ReplayError;
use iced_x86::Instruction;
use std::collections::BTreeSet;
use x86_provenance::Untraced;

/// What there is to be explained of a program that stands at its crash.
#[derive(Clone, Debug)]
pub struct Blame {
    /// When these bytes were what they are.
    pub at: Position,
    /// Whose they are.
    pub place: Place,
    /// The bytes.
    pub bytes: BTreeSet<Byte>,
    /// The instruction that faulted, or that went where nothing can be executed.
    pub instruction: Instruction,
    /// The address that it tried to access, if that is why.
    pub address: Option<u64>,
    /// It went to that address.
    pub jumped: bool,
    /// Of a branch, what told where in memory its target was found.
    pub looked_up_by: BTreeSet<Byte>,
}

impl Recorded<'_> {
    /// What made the instruction fault before which the program stands; `None` where it does not fault, or by no value at all (UD2, INT3).
    ///
    /// # Errors
    /// When the recording cannot be looked at.
    pub fn blame(&mut self) -> Result<Option<Blame>, ReplayError> {
        let (at, place) = (self.travel.position(), self.place());
        let rip = self.travel.process().cpu().regs().rip;
        let executable = |mapping: &crate::memory::MappingInfo| {
            mapping.rights.execute && (mapping.start..mapping.end).contains(&rip)
        };
        if !self.travel.process().mappings().iter().any(executable) {
            return self.blame_for_jump(rip);
        }
        let instruction = instruction_at(self.travel.process(), rip);
        let blame = match self.trace_here(&instruction, &[], false)? {
            Err(Untraced::Trapped(why)) => {
                let bytes = why.origin.value;
                let address = why.address;
                let looked_up_by = BTreeSet::new();
                Some(Blame { at, place, bytes, instruction, address, jumped: false, looked_up_by })
            }
            _ => None,
        };
        Ok(blame.filter(|blame| !blame.bytes.is_empty()))
    }

    /// Who went to `rip`.
    fn blame_for_jump(&mut self, rip: u64) -> Result<Option<Blame>, ReplayError> {
        self.travel.step_back()?;
        self.blame_branch(Some(rip))
    }

    /// What told the branch before which the program stands where to go, or whether.
    ///
    /// # Errors
    /// When the recording cannot be looked at.
    pub fn blame_branch(&mut self, address: Option<u64>) -> Result<Option<Blame>, ReplayError> {
        let (at, place) = (self.travel.position(), self.place());
        let instruction = instruction_at(self.travel.process(), self.travel.process().cpu().regs().rip);
        let traced = self.trace_here(&instruction, &[], true)?;
        let target = traced.ok().and_then(|provenance| provenance.target);
        Ok(target.filter(|target| !target.value.is_empty()).map(|target| Blame {
            at,
            place,
            bytes: target.value,
            instruction,
            address,
            jumped: true,
            looked_up_by: target.address,
        }))
    }
}
