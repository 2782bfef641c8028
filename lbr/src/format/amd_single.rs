//! AMD's single record: the last branch, and what was the last branch when the last interrupt or exception came.
//!
//! AMD64 APM vol. 2, 13.1.1.7 and 13.1.6.1. The registers hold offsets in the code segment, which in 64-bit mode are
//! addresses. An exception is itself a last branch; before it becomes that, the one before is copied.

use super::Unencodable;
use crate::dump::DumpError;
use crate::msr;
use crate::registers::Registers;
use crate::trail::{BranchRecord, Trail};

/// The number of records.
const DEPTH: u32 = 2;

/// The branches of the registers, oldest first. Whether the last branch is the exception that the older one came
/// before, or a later one, the registers do not tell: there may be a gap between them.
pub(crate) fn decode(registers: &Registers) -> Result<(Vec<BranchRecord>, u32), DumpError> {
    let need = |register: u32| registers.get(register).ok_or(DumpError::Missing { register, depth: None });
    let last = (need(msr::LAST_BRANCH_FROM)?, need(msr::LAST_BRANCH_TO)?);
    let before = match registers.get(msr::LAST_INT_FROM) {
        Some(from) => (from, need(msr::LAST_INT_TO)?),
        None => (0, 0),
    };
    let mut records = Vec::new();
    if before != (0, 0) {
        records.push(BranchRecord::new(before.0, before.1));
    }
    if last != (0, 0) {
        records.push(BranchRecord { after_gap: !records.is_empty(), ..BranchRecord::new(last.0, last.1) });
    }
    Ok((records, DEPTH))
}

/// The registers that hold the trail: of two records the older is that of the last interrupt.
pub(crate) fn encode(trail: &Trail) -> Result<Registers, Unencodable> {
    let (before, last) = match trail.records.as_slice() {
        [] => (BranchRecord::default(), BranchRecord::default()),
        [last] => (BranchRecord::default(), *last),
        [before, last] => (*before, *last),
        more => return Err(Unencodable::Depth { records: more.len(), depth: DEPTH }),
    };
    for (record, branch) in trail.records.iter().enumerate() {
        if (branch.from, branch.to) == (0, 0) {
            return Err(Unencodable::Empty { record });
        }
    }
    let registers = [
        (msr::LAST_BRANCH_FROM, last.from),
        (msr::LAST_BRANCH_TO, last.to),
        (msr::LAST_INT_FROM, before.from),
        (msr::LAST_INT_TO, before.to),
    ];
    Ok(registers.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dump, Family};

    #[test]
    fn the_branch_before_the_interrupt_comes_first() {
        let mut registers: Registers =
            [(0x1db, 0x40_1000), (0x1dc, 0xffff_ffff_8100_0000)].into_iter().collect();
        let alone = Dump::default().decode(&registers).unwrap();
        assert_eq!((alone.family, alone.records.len()), (Family::AmdSingle, 1));
        registers.set(0x1dd, 0x40_0ff0);
        assert_eq!(
            Dump::default().decode(&registers).unwrap_err().to_string(),
            "the dump lacks MSR 0x1de (LastIntToIP)"
        );
        registers.set(0x1de, 0x40_1000);
        let both = Dump::default().decode(&registers).unwrap();
        let found: Vec<_> = both.records.iter().map(|r| (r.from, r.to, r.after_gap)).collect();
        assert_eq!(found, [(0x40_0ff0, 0x40_1000, false), (0x40_1000, 0xffff_ffff_8100_0000, true)]);
        assert_eq!(Dump::default().encode(&both), Ok(registers));
    }
}
