//! The models of the branch record registers, in each processor's dress, against a plain log of all branches.
//!
//! What a processor should keep is written out again here, from the tables of the manuals, so that the crate's own
//! filter is not its judge; the models are only seen through their registers, as a dump of them is decoded.

mod expected;
mod programs;
mod registers;
mod streams;

use lbr::model::{Model, Processor, Transfer};
use lbr::{Dump, Family, Filter, Registers, Trail, msr};
use std::sync::LazyLock;
use x86::op::BranchKind;

/// Every kind of branch.
const KINDS: [BranchKind; 7] = [
    BranchKind::Conditional,
    BranchKind::RelativeJump,
    BranchKind::IndirectJump,
    BranchKind::RelativeCall,
    BranchKind::IndirectCall,
    BranchKind::Return,
    BranchKind::Far,
];

/// The family of a processor's records.
fn family(processor: Processor) -> Family {
    match processor {
        Processor::Core2 => Family::IntelLegacy { format: 2 },
        Processor::Nehalem => Family::IntelLegacy { format: 3 },
        Processor::Haswell | Processor::HaswellWithoutTsx => Family::IntelLegacy { format: 4 },
        Processor::Skylake => Family::IntelLegacy { format: 5 },
        Processor::Goldmont => Family::IntelLegacy { format: 6 },
        Processor::GoldmontPlus => Family::IntelLegacy { format: 7 },
        Processor::GoldenCove => Family::IntelArch,
        Processor::Zen4 => Family::AmdV2,
        Processor::Zen => Family::AmdSingle,
    }
}

/// Switches a processor's recording on; false: it has no such filter.
fn arm(model: &mut Model, processor: Processor, filter: Filter) -> bool {
    let all = filter == Filter::EVERYTHING;
    match family(processor) {
        Family::IntelLegacy { .. } => {
            // Core 2 has no filter.
            (model.write(msr::SELECT, filter.bits()) || all && processor == Processor::Core2)
                && model.write(msr::DEBUGCTL, 1)
        }
        Family::IntelArch => {
            model.write(msr::ARCH_DEPTH, 16) && model.write(msr::ARCH_CTL, filter.lbr_ctl() | 1)
        }
        Family::AmdV2 => {
            !filter.is_call_stack()
                && model.write(msr::AMD_SELECT, filter.bits())
                && model.write(msr::AMD_DEBUG_EXTN_CTL, 1 << 6)
        }
        Family::AmdSingle => all && model.write(msr::DEBUGCTL, 1),
        Family::Perf => false,
    }
}

/// Whether recording is on, as the register that switches it says.
fn is_on(model: &Model, processor: Processor) -> bool {
    let (register, bit) = match family(processor) {
        Family::IntelArch => (msr::ARCH_CTL, 1),
        Family::AmdV2 => (msr::AMD_DEBUG_EXTN_CTL, 1 << 6),
        _ => (msr::DEBUGCTL, 1),
    };
    model.read(register).unwrap() & bit != 0
}

/// Every register that the model has.
fn dump(model: &Model) -> Registers {
    static NUMBERS: LazyLock<Vec<u32>> = LazyLock::new(|| {
        let numbers = (0..0x2000).chain(0xc000_0000..0xc000_0400).chain(0xc001_0000..0xc001_0400);
        numbers.filter(|index| msr::name(*index).is_some()).collect()
    });
    NUMBERS.iter().filter_map(|index| Some((*index, model.read(*index)?))).collect()
}

/// The trail that a dump of the model's registers says.
fn trail(model: &Model, processor: Processor) -> Trail {
    let tsx = (processor == Processor::HaswellWithoutTsx).then_some(false);
    let dumped = Dump { tsx, ..Dump::of(family(processor)) };
    dumped.decode(&dump(model)).unwrap_or_else(|error| panic!("{processor:?}: {error}"))
}

/// The branches of the trail.
fn branches(model: &Model, processor: Processor) -> Vec<(u64, u64)> {
    trail(model, processor).records.iter().map(|r| (r.from, r.to)).collect()
}

/// A branch of the program.
fn user(from: u64, to: u64) -> Transfer {
    Transfer::user(from, to, BranchKind::RelativeJump)
}
