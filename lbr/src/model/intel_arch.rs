//! Intel's architectural records in software: 8, 16 or 32 of them, with call-stack mode and kinds.

use super::{DEBUG, Event, Records, Transfer};
use crate::filter::Filter;
use crate::format::intel_arch::{INFO_DEFINED, Raw, written};
use crate::format::{bits_if, sign_extended};
use crate::kind::Kind;
use crate::msr;
use crate::trail::BranchRecord;
use std::collections::VecDeque;
use x86::op::BranchKind;

/// The depths that a guest may choose (CPUID.1CH:EAX[7:0]).
const DEPTHS: [u64; 3] = [8, 16, 32];

/// The registers.
#[derive(Clone, Debug)]
pub(super) struct IntelArch {
    enabled: bool,
    freeze_on_interrupt: bool,
    frozen: bool,
    filter: Filter,
    /// As many as the depth, newest first; what was never written is zero.
    records: VecDeque<Raw>,
}

impl IntelArch {
    pub(super) fn new() -> IntelArch {
        IntelArch {
            enabled: false,
            freeze_on_interrupt: false,
            frozen: false,
            filter: Filter::EVERYTHING,
            records: VecDeque::from(vec![Raw::default(); 32]),
        }
    }

    fn record(&mut self, transfer: &Transfer) {
        if !self.is_enabled() || !self.filter.records(transfer.kind, transfer.to_ring0) {
            return;
        }
        if self.filter.is_call_stack() && transfer.kind == BranchKind::Return {
            // The newest record is the call that this return answers.
            self.records.pop_front();
            self.records.push_back(Raw::default());
            return;
        }
        let visible = self.filter.records_ring(transfer.from_ring0);
        let from = if visible { transfer.from } else { BranchRecord::HIDDEN };
        let kind = Some(Kind::from(transfer.kind));
        self.records.pop_back();
        self.records.push_front(written(&BranchRecord { kind, ..BranchRecord::new(from, transfer.to) }));
    }

    /// A register of a record: what it holds, and of which. Registers beyond the depth are not there.
    fn locate(&self, index: u32) -> Option<(u32, usize)> {
        [msr::ARCH_FROM, msr::ARCH_TO, msr::ARCH_INFO].into_iter().find_map(|first| {
            let n = usize::try_from(index.checked_sub(first)?).ok()?;
            (n < self.records.len()).then_some((first, n))
        })
    }

    fn write_record(&mut self, index: u32, value: u64) -> bool {
        let Some((bank, n)) = self.locate(index) else { return false };
        let record = &mut self.records[n];
        match bank {
            msr::ARCH_INFO => record.info = value & INFO_DEFINED,
            _ if sign_extended(value, 48) != value => return false,
            msr::ARCH_FROM => record.from = value,
            _ => record.to = value,
        }
        true
    }
}

impl Records for IntelArch {
    fn is_enabled(&self) -> bool {
        self.enabled && !self.frozen
    }

    fn branch(&mut self, transfer: &Transfer) {
        self.record(transfer);
    }

    fn event(&mut self, event: Event, transfer: &Transfer) {
        match event {
            Event::Exception(DEBUG) => self.enabled = false,
            Event::Exception(_) | Event::Interrupt | Event::Injected(_) => self.record(transfer),
        }
    }

    fn performance_interrupt(&mut self) {
        self.frozen |= self.freeze_on_interrupt;
    }

    fn read(&self, index: u32) -> Option<u64> {
        match index {
            msr::ARCH_CTL => Some(self.filter.lbr_ctl() | bits_if(self.enabled, msr::ARCH_CTL_ENABLE)),
            msr::ARCH_DEPTH => Some(self.records.len() as u64),
            // Its bit for the model-specific records can be written and reads as zero.
            msr::DEBUGCTL => Some(bits_if(self.freeze_on_interrupt, msr::DEBUGCTL_FREEZE_LBRS_ON_PMI)),
            msr::GLOBAL_STATUS => Some(bits_if(self.frozen, msr::STATUS_LBRS_FROZEN)),
            msr::GLOBAL_STATUS_RESET => Some(0),
            _ => {
                let (bank, n) = self.locate(index)?;
                let Raw { from, to, info } = self.records[n];
                Some(match bank {
                    msr::ARCH_FROM => from,
                    msr::ARCH_TO => to,
                    _ => info,
                })
            }
        }
    }

    fn write(&mut self, index: u32, value: u64) -> bool {
        match index {
            msr::ARCH_CTL => {
                let Ok(filter) = Filter::from_lbr_ctl(value) else { return false };
                (self.filter, self.enabled) = (filter, value & msr::ARCH_CTL_ENABLE != 0);
                true
            }
            msr::ARCH_DEPTH => {
                let depth = DEPTHS.contains(&value).then(|| usize::try_from(value).ok()).flatten();
                depth.map(|depth| self.records = VecDeque::from(vec![Raw::default(); depth])).is_some()
            }
            msr::DEBUGCTL => {
                let known = value & !(msr::DEBUGCTL_LBR | msr::DEBUGCTL_FREEZE_LBRS_ON_PMI) == 0;
                if known {
                    self.freeze_on_interrupt = value & msr::DEBUGCTL_FREEZE_LBRS_ON_PMI != 0;
                }
                known
            }
            msr::GLOBAL_STATUS_RESET => {
                let known = value & !msr::STATUS_LBRS_FROZEN == 0;
                self.frozen &= !(known && value != 0);
                known
            }
            _ => self.write_record(index, value),
        }
    }
}
