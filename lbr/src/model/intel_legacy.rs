//! Intel's model-specific records in software.

use super::{DEBUG, Event, Records, Transfer};
use crate::filter::Filter;
use crate::format::intel_legacy::{Format, Raw, written};
use crate::format::{bits_if, sign_extended};
use crate::msr;
use crate::trail::BranchRecord;
use x86::op::BranchKind;

/// What tells one processor's records from another's (Linux, arch/x86/events/intel/lbr.c, `intel_pmu_lbr_init_*`).
#[derive(Debug)]
pub(super) struct Spec {
    format: Format,
    /// A power of two.
    depth: usize,
    /// The first FROM and the first TO register.
    banks: (u32, u32),
    /// The bits of MSR_LBR_SELECT; zero: there is none.
    select: u64,
    tsx: bool,
    /// How an interrupt of the counters stops the recording.
    freeze: Freeze,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freeze {
    /// It switches it off in IA32_DEBUGCTL (performance monitoring before version 4).
    SwitchOff,
    /// It sets a bit in IA32_PERF_GLOBAL_STATUS, until software clears that (version 4).
    Status,
}

pub(super) const CORE_2: Spec = Spec {
    format: Format::OFFSETS,
    depth: 4,
    banks: (msr::OLD_FROM, msr::OLD_TO),
    select: 0,
    tsx: false,
    freeze: Freeze::SwitchOff,
};
pub(super) const NEHALEM: Spec = Spec {
    format: Format::FLAGS,
    depth: 16,
    banks: (msr::FROM, msr::TO),
    select: 0x1ff,
    tsx: false,
    freeze: Freeze::SwitchOff,
};
pub(super) const HASWELL: Spec = Spec { format: Format::FLAGS_TSX, select: 0x3ff, tsx: true, ..NEHALEM };
pub(super) const HASWELL_WITHOUT_TSX: Spec = Spec { tsx: false, ..HASWELL };
pub(super) const SKYLAKE: Spec = Spec { format: Format::INFO, depth: 32, freeze: Freeze::Status, ..HASWELL };
pub(super) const GOLDMONT: Spec = Spec { format: Format::CYCLES, tsx: false, ..SKYLAKE };
pub(super) const GOLDMONT_PLUS: Spec = Spec { format: Format::INFO_PLAIN, tsx: false, ..SKYLAKE };

/// The registers.
#[derive(Clone, Debug)]
pub(super) struct IntelLegacy {
    spec: &'static Spec,
    enabled: bool,
    freeze_on_interrupt: bool,
    frozen: bool,
    filter: Filter,
    top: usize,
    records: Box<[Raw]>,
}

impl IntelLegacy {
    pub(super) fn new(spec: &'static Spec) -> IntelLegacy {
        IntelLegacy {
            spec,
            enabled: false,
            freeze_on_interrupt: false,
            frozen: false,
            filter: Filter::EVERYTHING,
            top: 0,
            records: vec![Raw::default(); spec.depth].into(),
        }
    }

    fn record(&mut self, transfer: &Transfer) {
        if !self.is_enabled() || !self.filter.records(transfer.kind, transfer.to_ring0) {
            return;
        }
        if self.filter.is_call_stack() && transfer.kind == BranchKind::Return {
            // The newest record is the call that this return answers.
            self.records[self.top] = Raw::default();
            self.top = self.top.wrapping_sub(1) & (self.records.len() - 1);
            return;
        }
        // The index of the newest rises first, then the record is written.
        self.top = (self.top + 1) & (self.records.len() - 1);
        let branch = BranchRecord::new(transfer.from, transfer.to);
        self.records[self.top] = written(self.spec.format, &branch);
    }

    /// A register of a record: the bank that it is in, and its number there.
    fn locate(&self, index: u32) -> Option<(Bank, usize)> {
        let banks = [(Bank::From, self.spec.banks.0), (Bank::To, self.spec.banks.1), (Bank::Info, msr::INFO)];
        let (bank, n) = banks.into_iter().find_map(|(bank, first)| {
            let n = usize::try_from(index.checked_sub(first)?).ok()?;
            (n < self.spec.depth).then_some((bank, n))
        })?;
        (bank != Bank::Info || self.spec.format.has_info()).then_some((bank, n))
    }

    /// Whether a register of this bank takes the value: what is not a flag must be an address with its sign.
    fn takes(&self, bank: Bank, value: u64) -> bool {
        let format = self.spec.format;
        let canonical = |value: u64| sign_extended(value, 48) == value;
        match bank {
            // Without transactions two of the flags count as bits of the sign, though hardware writes them as zero
            // (lbr.c, `lbr_from_signext_quirk_wr`).
            Bank::From if format == Format::FLAGS_TSX && !self.spec.tsx => {
                canonical(sign_extended(value, Format::FLAGS.bits_of_from()))
            }
            Bank::From => canonical(sign_extended(value, format.bits_of_from())),
            Bank::To => canonical(sign_extended(value, format.bits_of_to())),
            Bank::Info => value & !self.info_bits() == 0,
        }
    }

    /// The bits of an INFO register that are not reserved.
    fn info_bits(&self) -> u64 {
        let transaction = if self.spec.format == Format::INFO { 3 << 61 } else { 0 };
        1 << 63 | transaction | 0xffff
    }

    fn debugctl(&self) -> u64 {
        bits_if(self.enabled, msr::DEBUGCTL_LBR)
            | bits_if(self.freeze_on_interrupt, msr::DEBUGCTL_FREEZE_LBRS_ON_PMI)
    }

    fn write_debugctl(&mut self, value: u64) -> bool {
        // KVM offers a guest these two (vmx.c, `vmx_get_supported_debugctl`).
        if value & !(msr::DEBUGCTL_LBR | msr::DEBUGCTL_FREEZE_LBRS_ON_PMI) != 0 {
            return false;
        }
        self.enabled = value & msr::DEBUGCTL_LBR != 0;
        self.freeze_on_interrupt = value & msr::DEBUGCTL_FREEZE_LBRS_ON_PMI != 0;
        true
    }

    fn write_filter(&mut self, value: u64) -> bool {
        let filter = Filter::from_bits(value).ok().filter(|_| value & !self.spec.select == 0);
        filter.map(|filter| self.filter = filter).is_some()
    }
}

/// What a register of a record holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bank {
    From,
    To,
    Info,
}

impl Records for IntelLegacy {
    fn is_enabled(&self) -> bool {
        self.enabled && !self.frozen
    }

    fn branch(&mut self, transfer: &Transfer) {
        self.record(transfer);
    }

    fn event(&mut self, event: Event, transfer: &Transfer) {
        match event {
            // The processor switches recording off before it enters the handler. Not so where a hypervisor injects
            // the exception (Intel SDM vol. 3, "Details of Vectored-Event Injection").
            Event::Exception(DEBUG) => self.enabled = false,
            Event::Exception(_) | Event::Interrupt | Event::Injected(_) => self.record(transfer),
        }
    }

    fn performance_interrupt(&mut self) {
        match (self.freeze_on_interrupt, self.spec.freeze) {
            (false, _) => {}
            (true, Freeze::SwitchOff) => self.enabled = false,
            (true, Freeze::Status) => self.frozen = true,
        }
    }

    fn read(&self, index: u32) -> Option<u64> {
        let has_status = self.spec.freeze == Freeze::Status;
        match index {
            msr::PERF_CAPABILITIES => Some(self.spec.format.number().into()),
            msr::DEBUGCTL => Some(self.debugctl()),
            msr::SELECT => (self.spec.select != 0).then(|| self.filter.bits()),
            msr::TOP => Some(self.top as u64),
            msr::GLOBAL_STATUS => has_status.then(|| bits_if(self.frozen, msr::STATUS_LBRS_FROZEN)),
            msr::GLOBAL_STATUS_RESET => has_status.then_some(0),
            _ => {
                let (bank, n) = self.locate(index)?;
                let record = self.records[n];
                Some(match bank {
                    Bank::From => record.from,
                    Bank::To => record.to,
                    Bank::Info => record.info.unwrap_or(0),
                })
            }
        }
    }

    fn write(&mut self, index: u32, value: u64) -> bool {
        match index {
            // Read-only; KVM lets its user write what it announces.
            msr::PERF_CAPABILITIES => value == self.spec.format.number().into(),
            msr::DEBUGCTL => self.write_debugctl(value),
            msr::SELECT => self.spec.select != 0 && self.write_filter(value),
            msr::TOP => {
                let top = usize::try_from(value).ok().filter(|top| *top < self.spec.depth);
                top.map(|top| self.top = top).is_some()
            }
            msr::GLOBAL_STATUS_RESET if self.spec.freeze == Freeze::Status => {
                let known = value & !msr::STATUS_LBRS_FROZEN == 0;
                self.frozen &= !(known && value != 0);
                known
            }
            _ => {
                let place = self.locate(index).filter(|(bank, _)| self.takes(*bank, value));
                let Some((bank, n)) = place else { return false };
                let record = &mut self.records[n];
                match bank {
                    Bank::From => record.from = value,
                    Bank::To => record.to = value,
                    Bank::Info => record.info = Some(value),
                }
                true
            }
        }
    }
}
