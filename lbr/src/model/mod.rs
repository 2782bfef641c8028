//! The registers of branch records in software, one file for each family: what they keep and what they refuse is what
//! hardware, or KVM in its place, does.
//!
//! The software CPU tells the model every transfer of control. It has no branch predictor, no transactions and no
//! clock: those flags are zero. What a virtual machine does to records on real hardware follows from who tells it
//! what: an event that leaves the virtual machine is not told, and makes no record; one that is injected into it is
//! ([`Event::Injected`]).

mod amd_single;
mod amd_v2;
mod intel_arch;
mod intel_legacy;

use amd_single::AmdSingle;
use amd_v2::AmdV2;
use intel_arch::IntelArch;
use intel_legacy::IntelLegacy;
use x86::interpreter::Observer;
use x86::op::BranchKind;

/// Processors with branch records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Processor {
    /// 4 records of format 2, no filter; Core 2.
    Core2,
    /// 16 records of format 3; to Ivy Bridge.
    Nehalem,
    /// 16 records of format 4, with a call-stack mode; to Broadwell.
    Haswell,
    /// The same with transactions switched off.
    HaswellWithoutTsx,
    /// 32 records of format 5; to Tiger Lake.
    Skylake,
    /// 32 records of format 6.
    Goldmont,
    /// 32 records of format 7; to Tremont.
    GoldmontPlus,
    /// 8, 16 or 32 architectural records; from Alder Lake and Sapphire Rapids on.
    GoldenCove,
    /// A stack of 16 beside the single record; from Zen 4 on.
    Zen4,
    /// The single record of all AMD processors.
    Zen,
}

impl Processor {
    /// All of them.
    pub const ALL: [Processor; 10] = [
        Processor::Core2,
        Processor::Nehalem,
        Processor::Haswell,
        Processor::HaswellWithoutTsx,
        Processor::Skylake,
        Processor::Goldmont,
        Processor::GoldmontPlus,
        Processor::GoldenCove,
        Processor::Zen4,
        Processor::Zen,
    ];
}

/// A transfer of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The address of the branch instruction; of an interrupt, that of the next instruction; of a fault, that of the
    /// instruction that faults.
    pub from: u64,
    /// The address of the first instruction after it.
    pub to: u64,
    /// The kind of branch; events are far.
    pub kind: BranchKind,
    /// It began in ring 0.
    pub from_ring0: bool,
    /// It ends in ring 0.
    pub to_ring0: bool,
}

impl Transfer {
    /// A branch of the program.
    #[must_use]
    pub fn user(from: u64, to: u64, kind: BranchKind) -> Transfer {
        Transfer { from, to, kind, from_ring0: false, to_ring0: false }
    }

    /// A far transfer from the program to its kernel.
    #[must_use]
    pub fn to_kernel(from: u64, to: u64) -> Transfer {
        Transfer { from, to, kind: BranchKind::Far, from_ring0: false, to_ring0: true }
    }

    /// A far transfer from the kernel to the program.
    #[must_use]
    pub fn to_user(from: u64, to: u64) -> Transfer {
        Transfer { from, to, kind: BranchKind::Far, from_ring0: true, to_ring0: false }
    }
}

/// Why control was transferred, where it was no branch instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An interrupt from outside.
    Interrupt,
    /// An exception with this vector, INT3 and INT n among them.
    Exception(u8),
    /// An event with this vector that a hypervisor injects at its entry to the virtual machine.
    Injected(u8),
}

/// The vector of debug exceptions.
const DEBUG: u8 = 1;
/// The vector of machine checks.
const MACHINE_CHECK: u8 = 18;

/// The registers of one family.
trait Records {
    /// Whether branches are recorded as the registers stand.
    fn is_enabled(&self) -> bool;
    /// A branch instruction has transferred control.
    fn branch(&mut self, transfer: &Transfer);
    /// An event has transferred control.
    fn event(&mut self, event: Event, transfer: &Transfer);
    /// A performance counter has interrupted.
    fn performance_interrupt(&mut self);
    /// Reads a register; `None`: refused (#GP).
    fn read(&self, index: u32) -> Option<u64>;
    /// Writes a register; false: refused (#GP), and nothing changed.
    fn write(&mut self, index: u32, value: u64) -> bool;
}

/// The branch record registers of a processor.
#[derive(Clone, Debug)]
pub struct Model(Registers);

#[derive(Clone, Debug)]
enum Registers {
    IntelLegacy(IntelLegacy),
    IntelArch(IntelArch),
    AmdV2(AmdV2),
    AmdSingle(AmdSingle),
}

impl Model {
    /// The registers of a processor after reset: nothing is recorded, and the filter lets everything through.
    #[must_use]
    pub fn new(processor: Processor) -> Model {
        use intel_legacy::{CORE_2, GOLDMONT, GOLDMONT_PLUS, HASWELL, HASWELL_WITHOUT_TSX, NEHALEM, SKYLAKE};
        let legacy = |spec| Registers::IntelLegacy(IntelLegacy::new(spec));
        Model(match processor {
            Processor::Core2 => legacy(&CORE_2),
            Processor::Nehalem => legacy(&NEHALEM),
            Processor::Haswell => legacy(&HASWELL),
            Processor::HaswellWithoutTsx => legacy(&HASWELL_WITHOUT_TSX),
            Processor::Skylake => legacy(&SKYLAKE),
            Processor::Goldmont => legacy(&GOLDMONT),
            Processor::GoldmontPlus => legacy(&GOLDMONT_PLUS),
            Processor::GoldenCove => Registers::IntelArch(IntelArch::new()),
            Processor::Zen4 => Registers::AmdV2(AmdV2::new()),
            Processor::Zen => Registers::AmdSingle(AmdSingle::new()),
        })
    }

    /// Whether branches are recorded as the registers stand.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.records().is_enabled()
    }

    /// A branch instruction has transferred control.
    #[inline]
    pub fn branch(&mut self, transfer: &Transfer) {
        match &mut self.0 {
            Registers::IntelLegacy(records) => records.branch(transfer),
            Registers::IntelArch(records) => records.branch(transfer),
            Registers::AmdV2(records) => records.branch(transfer),
            Registers::AmdSingle(records) => records.branch(transfer),
        }
    }

    /// An interrupt or exception has transferred control within the virtual machine.
    pub fn event(&mut self, event: Event, transfer: &Transfer) {
        self.records_mut().event(event, transfer);
    }

    /// A performance counter has interrupted: recording stops where that was asked for.
    pub fn performance_interrupt(&mut self) {
        self.records_mut().performance_interrupt();
    }

    /// Reads a register; `None`: refused, as by #GP.
    #[must_use]
    pub fn read(&self, index: u32) -> Option<u64> {
        self.records().read(index)
    }

    /// Writes a register; false: refused, as by #GP, and nothing changed.
    pub fn write(&mut self, index: u32, value: u64) -> bool {
        self.records_mut().write(index, value)
    }

    fn records(&self) -> &dyn Records {
        match &self.0 {
            Registers::IntelLegacy(records) => records,
            Registers::IntelArch(records) => records,
            Registers::AmdV2(records) => records,
            Registers::AmdSingle(records) => records,
        }
    }

    fn records_mut(&mut self) -> &mut dyn Records {
        match &mut self.0 {
            Registers::IntelLegacy(records) => records,
            Registers::IntelArch(records) => records,
            Registers::AmdV2(records) => records,
            Registers::AmdSingle(records) => records,
        }
    }
}

impl Observer for Model {
    fn branch(&mut self, from: u64, to: u64, kind: BranchKind) {
        Model::branch(self, &Transfer::user(from, to, kind));
    }
}
