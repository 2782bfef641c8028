//! Capture: what it reads through the registers of a model, and what it says of hosts that have none.

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
        assert!(registers.0.write(msr::DEBUGCTL, 0));
        branch(&mut registers, 5, 6);
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

/// A host that takes every write and forgets it, as kvm_pvm does with IA32_DEBUGCTL.
struct Forgetful {
    format: u64,
    registers: bool,
}

impl MsrAccess for Forgetful {
    type Error = Infallible;

    fn read(&mut self, indices: &[u32]) -> Result<Vec<u64>, Infallible> {
        let value = |index: &u32| match *index {
            msr::PERF_CAPABILITIES => Some(self.format),
            msr::DEBUGCTL => Some(0),
            _ => self.registers.then_some(0),
        };
        Ok(indices.iter().map_while(value).collect())
    }

    fn write(&mut self, entries: &[(u32, u64)]) -> Result<usize, Infallible> {
        Ok(entries.len())
    }
}

#[test]
fn a_host_without_records_is_told_apart_by_the_reason() {
    let arm = |format, registers, filter| match Armed::arm(&mut Forgetful { format, registers }, filter) {
        Err(CaptureError::Unavailable(why)) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(arm(0, false, Filter::ANY), Unavailable::NoFormat);
    assert_eq!(arm(0x3f, true, Filter::ANY), Unavailable::UnknownFormat(0x3f));
    assert_eq!(arm(5, false, Filter::ANY), Unavailable::NoRegisters);
    assert_eq!(arm(5, true, Filter::ANY), Unavailable::FilterRefused);
    assert_eq!(arm(5, true, Filter::from_bits(0).unwrap()), Unavailable::Dropped);
}

#[test]
fn hardware_that_reads_as_zeros_is_an_error_and_not_an_empty_trail() {
    let mut registers = Registers(Model::new(Processor::Skylake));
    let armed = Armed::arm(&mut registers, Filter::ANY).unwrap();
    assert!(matches!(armed.capture(&mut registers, Provenance::Hardware), Err(CaptureError::Lost)));
    let nothing_yet = armed.capture(&mut registers, Provenance::Derived).unwrap();
    assert!(nothing_yet.records.is_empty());
}
