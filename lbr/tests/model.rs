//! The model of the hardware against a plain list of all branches, through the registers, as a capture sees it.

use lbr::{Armed, Filter, Model, MsrAccess, Provenance, Unavailable, capture::CaptureError, msr};
use proptest::prelude::*;
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

const KINDS: [BranchKind; 7] = BranchKind::ALL;

#[derive(Clone, Copy, Debug)]
struct Branch {
    from: u64,
    to: u64,
    kind: BranchKind,
    ring0: bool,
}

fn branch() -> impl Strategy<Value = Branch> {
    (1..1u64 << 47, 1..1u64 << 47, 0..KINDS.len(), any::<bool>()).prop_map(|(from, to, kind, ring0)| {
        let kind = KINDS[kind];
        Branch { from, to, kind, ring0: ring0 && kind == BranchKind::Far }
    })
}

/// The table of LBR_SELECT bits written out again, so that the filter's own code is not its judge.
fn recorded(select: u64, branch: &Branch) -> bool {
    let kind = KINDS.iter().position(|kind| *kind == branch.kind).unwrap();
    let kind_bit = [2, 7, 6, 3, 4, 5, 8][kind];
    let ring_bit = if branch.ring0 { 0 } else { 1 };
    select >> kind_bit & 1 == 0 && select >> ring_bit & 1 == 0
}

proptest! {
    #[test]
    fn it_keeps_the_last_branches_that_the_filter_lets_through(
        branches in prop::collection::vec(branch(), 0..200),
        select in 0..0x200u64,
        deep in any::<bool>(),
    ) {
        let depth = if deep { 32 } else { 16 };
        let mut registers = Registers(Model::new(depth));
        let armed = Armed::arm(&mut registers, Filter::from_bits(select).unwrap()).unwrap();
        prop_assert_eq!(armed.depth() as usize, depth);
        for b in &branches {
            registers.0.record(b.from, b.to, b.kind, b.ring0);
        }
        let trail = armed.capture(&mut registers, Provenance::Derived).unwrap();
        let let_through: Vec<(u64, u64)> =
            branches.iter().filter(|b| recorded(select, b)).map(|b| (b.from, b.to)).collect();
        let expected = &let_through[let_through.len().saturating_sub(depth)..];
        let found: Vec<(u64, u64)> = trail.records.iter().map(|r| (r.from, r.to)).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(lbr::Trail::from_bytes(&trail.to_bytes()), Ok(trail));
    }

    /// In call-stack mode what is left is the stack of calls that have not returned, as far as the ring reaches.
    #[test]
    fn call_stack_mode_keeps_the_open_calls(steps in prop::collection::vec(any::<bool>(), 0..100)) {
        let mut registers = Registers(Model::new(32));
        let armed = Armed::arm(&mut registers, "0x3c5".parse().unwrap()).unwrap();
        let mut open = Vec::new();
        for (n, call) in (1..).zip(steps) {
            if call && open.len() < 32 {
                registers.0.record(n, n + 1000, BranchKind::RelativeCall, false);
                open.push((n, n + 1000));
            } else if open.pop().is_some() {
                registers.0.record(n, n + 2000, BranchKind::Return, false);
            }
            registers.0.record(n, n + 3000, BranchKind::Conditional, false);
        }
        let trail = armed.capture(&mut registers, Provenance::Derived).unwrap();
        let found: Vec<(u64, u64)> = trail.records.iter().map(|r| (r.from, r.to)).collect();
        prop_assert_eq!(found, open);
    }

    /// Whatever is written to whatever register: a refused write changes nothing, a taken one reads back.
    #[test]
    fn a_write_is_taken_or_refused_as_a_whole(
        index in prop_oneof![0x1c0..0x1e0u32, 0x680..0x6e8u32, 0xdc0..0xde4u32, Just(0x345u32)],
        value in prop_oneof![any::<u64>(), 0..0x800u64, Just(1), Just(5)],
    ) {
        let mut model = Model::new(32);
        let before = model.read(index);
        match model.write(index, value) {
            true => prop_assert_eq!(model.read(index), Some(value)),
            false => prop_assert_eq!(model.read(index), before),
        }
    }
}

#[test]
fn it_records_nothing_while_it_is_off() {
    let mut registers = Registers(Model::new(16));
    registers.0.record(1, 2, BranchKind::Return, false);
    let armed = Armed::arm(&mut registers, Filter::ANY).unwrap();
    registers.0.record(3, 4, BranchKind::Return, false);
    assert!(registers.0.write(msr::DEBUGCTL, 0));
    registers.0.record(5, 6, BranchKind::Return, false);
    let trail = armed.capture(&mut registers, Provenance::Hardware).unwrap();
    assert_eq!(trail.records.iter().map(|r| r.from).collect::<Vec<_>>(), [3]);
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
    let mut registers = Registers(Model::new(32));
    let armed = Armed::arm(&mut registers, Filter::ANY).unwrap();
    assert!(matches!(armed.capture(&mut registers, Provenance::Hardware), Err(CaptureError::Lost)));
    let nothing_yet = armed.capture(&mut registers, Provenance::Derived).unwrap();
    assert!(nothing_yet.records.is_empty());
}
