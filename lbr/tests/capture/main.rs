//! Capture: what it reads through the registers of a model, what it says of hosts that have none, and what it makes of
//! a kernel that fails at any step.

mod faults;
mod kernel;

use lbr::model::{Model, Processor, Transfer};
use lbr::{Armed, Filter, MsrAccess, Provenance, Unavailable, capture::CaptureError, msr};
use std::convert::Infallible;
use x86::op::BranchKind;

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

fn branch(registers: &mut Registers, from: u64, to: u64) {
    registers.0.branch(&Transfer::user(from, to, BranchKind::Return));
}

#[test]
fn what_was_recorded_while_it_was_on_is_read_back() {
    for (processor, depth) in [
        (Processor::Nehalem, 16),
        (Processor::Haswell, 16),
        (Processor::Skylake, 32),
        (Processor::Goldmont, 32),
        (Processor::GoldmontPlus, 32),
    ] {
        let mut registers = Registers(Model::new(processor));
        branch(&mut registers, 1, 2);
        let armed = Armed::arm(&mut registers, Filter::ANY).unwrap();
        assert_eq!(armed.depth(), depth, "{processor:?}");
        branch(&mut registers, 3, 4);
        let trail = armed.capture(&mut registers, Provenance::Hardware).unwrap();
        assert_eq!(trail.records.iter().map(|r| r.from).collect::<Vec<_>>(), [3], "{processor:?}");
        assert_eq!((trail.filter, trail.provenance), (Some(Filter::ANY), Provenance::Hardware));
        assert_eq!(trail.records[0].mispredicted, Some(false));
        assert_eq!(lbr::Trail::from_bytes(&trail.to_bytes()), Ok(trail));
        let derived = armed.capture(&mut registers, Provenance::Derived).unwrap();
        let flags = (derived.records[0].mispredicted, derived.records[0].cycles);
        assert_eq!(flags, (None, None), "{processor:?}: the model has no predictor and no clock");
    }
}

/// A host that takes every write, and forgets those to some registers.
struct Forgetful {
    format: u64,
    registers: bool,
    kept: Vec<(u32, u64)>,
    forgets: fn(u32) -> bool,
}

impl MsrAccess for Forgetful {
    type Error = Infallible;

    fn read(&mut self, indices: &[u32]) -> Result<Vec<u64>, Infallible> {
        let value = |index: &u32| match *index {
            msr::PERF_CAPABILITIES => Some(self.format),
            index => {
                let kept =
                    self.kept.iter().rev().find(|(kept, _)| *kept == index).map_or(0, |(_, value)| *value);
                (self.registers || index == msr::DEBUGCTL).then_some(kept)
            }
        };
        Ok(indices.iter().map_while(value).collect())
    }

    fn write(&mut self, entries: &[(u32, u64)]) -> Result<usize, Infallible> {
        self.kept.extend(entries.iter().filter(|(index, _)| !(self.forgets)(*index)));
        Ok(entries.len())
    }
}

#[test]
fn a_host_without_records_is_told_apart_by_the_reason() {
    let arm = |format, registers, forgets| {
        let mut host = Forgetful { format, registers, kept: Vec::new(), forgets };
        match Armed::arm(&mut host, Filter::EVERYTHING) {
            Err(CaptureError::Unavailable(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(arm(0, false, |_| true), Unavailable::NoFormat);
    assert_eq!(arm(0x3f, true, |_| true), Unavailable::UnknownFormat(0x3f));
    assert_eq!(arm(5, false, |_| true), Unavailable::NoRegisters);
    assert_eq!(arm(5, true, |_| true), Unavailable::Inactive);
    // As kvm_pvm does with this one.
    assert_eq!(arm(5, true, |index| index == msr::DEBUGCTL), Unavailable::Dropped);
}

#[test]
fn hardware_that_was_taken_away_is_an_error_and_not_an_empty_trail() {
    let mut registers = Registers(Model::new(Processor::Skylake));
    let armed = Armed::arm(&mut registers, Filter::ANY).unwrap();
    let nothing_yet = armed.capture(&mut registers, Provenance::Hardware).unwrap();
    assert!(nothing_yet.records.is_empty(), "the filter still reads back: the program has not branched");
    assert!(registers.0.write(msr::SELECT, 0));
    assert!(matches!(armed.capture(&mut registers, Provenance::Hardware), Err(CaptureError::Lost)));
    branch(&mut registers, 1, 2);
    let another = armed.capture(&mut registers, Provenance::Hardware);
    assert!(matches!(another, Err(CaptureError::FilterChanged { found: 0, filter: 0x101 })), "{another:?}");
    assert!(registers.0.write(msr::SELECT, 0x101) && registers.0.write(msr::DEBUGCTL, 0));
    assert!(matches!(armed.capture(&mut registers, Provenance::Hardware), Err(CaptureError::Stopped(0))));
    // Without a filter nothing tells zeros from zeros.
    let mut registers = Registers(Model::new(Processor::Skylake));
    let armed = Armed::arm(&mut registers, Filter::EVERYTHING).unwrap();
    assert!(matches!(armed.capture(&mut registers, Provenance::Hardware), Err(CaptureError::Lost)));
}
