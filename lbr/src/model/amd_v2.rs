//! AMD's stack of records in software, beside the single record.

use super::amd_single::AmdSingle;
use super::{Event, Records, Transfer};
use crate::filter::Filter;
use crate::format::amd_v2::{Raw, written};
use crate::format::bits_if;
use crate::msr;
use crate::trail::BranchRecord;
use std::collections::VecDeque;

/// The records of all processors so far.
const DEPTH: u32 = 16;
/// The bits of LastBranchStackSelect; the others read as zero whatever is written.
const SELECT: u64 = 0x1ff;

/// The registers.
#[derive(Clone, Debug)]
pub(super) struct AmdV2 {
    single: AmdSingle,
    enabled: bool,
    freeze_on_interrupt: bool,
    frozen: bool,
    filter: Filter,
    /// Newest first; what was never written is zero.
    records: VecDeque<Raw>,
}

impl AmdV2 {
    pub(super) fn new() -> AmdV2 {
        AmdV2 {
            single: AmdSingle::new(),
            enabled: false,
            freeze_on_interrupt: false,
            frozen: false,
            filter: Filter::EVERYTHING,
            records: vec![Raw::default(); DEPTH as usize].into(),
        }
    }

    /// Interrupts and exceptions are far transfers as well (AMD64 APM vol. 2, 13.1.6 lists what transfers control).
    fn record(&mut self, transfer: &Transfer) {
        let recorded = self.filter.records(transfer.kind, transfer.to_ring0);
        if self.enabled && !self.frozen && recorded {
            self.records.pop_back();
            self.records.push_front(written(&BranchRecord::new(transfer.from, transfer.to)));
        }
    }

    /// A register of a record: whether it is TO, and of which.
    fn locate(index: u32) -> Option<(bool, usize)> {
        let offset = index.checked_sub(msr::AMD_FROM).filter(|offset| *offset < 2 * DEPTH)?;
        Some((offset % 2 == 1, usize::try_from(offset / 2).ok()?))
    }
}

impl Records for AmdV2 {
    fn is_enabled(&self) -> bool {
        self.enabled && !self.frozen || self.single.is_enabled()
    }

    fn branch(&mut self, transfer: &Transfer) {
        self.single.branch(transfer);
        self.record(transfer);
    }

    fn event(&mut self, event: Event, transfer: &Transfer) {
        self.single.event(event, transfer);
        match AmdSingle::is_debug(event) {
            true => self.enabled = false,
            false => self.record(transfer),
        }
    }

    fn performance_interrupt(&mut self) {
        self.frozen |= self.freeze_on_interrupt;
    }

    fn read(&self, index: u32) -> Option<u64> {
        match index {
            msr::DEBUGCTL => {
                let freeze = bits_if(self.freeze_on_interrupt, msr::DEBUGCTL_FREEZE_LBRS_ON_PMI);
                self.single.read(index).map(|debugctl| debugctl | freeze)
            }
            msr::AMD_DEBUG_EXTN_CTL => Some(bits_if(self.enabled, msr::AMD_DEBUG_EXTN_CTL_LBRSE)),
            msr::AMD_SELECT => Some(self.filter.bits()),
            msr::AMD_GLOBAL_STATUS => Some(bits_if(self.frozen, msr::STATUS_LBRS_FROZEN)),
            msr::AMD_GLOBAL_STATUS_RESET => Some(0),
            _ => match AmdV2::locate(index) {
                Some((to, n)) => Some(if to { self.records[n].to } else { self.records[n].from }),
                None => self.single.read(index),
            },
        }
    }

    fn write(&mut self, index: u32, value: u64) -> bool {
        match index {
            msr::DEBUGCTL => {
                let fine = self.single.write(index, value);
                if fine {
                    self.freeze_on_interrupt = value & msr::DEBUGCTL_FREEZE_LBRS_ON_PMI != 0;
                }
                fine
            }
            msr::AMD_DEBUG_EXTN_CTL => {
                let fine = value & !msr::AMD_DEBUG_EXTN_CTL_LBRSE == 0;
                if fine {
                    self.enabled = value != 0;
                }
                fine
            }
            msr::AMD_SELECT => {
                Filter::from_amd_select(value & SELECT).map(|filter| self.filter = filter).is_ok()
            }
            msr::AMD_GLOBAL_STATUS_RESET => {
                let known = value & !msr::STATUS_LBRS_FROZEN == 0;
                self.frozen &= !(known && value != 0);
                known
            }
            _ => {
                let Some((to, n)) = AmdV2::locate(index) else { return false };
                let record = &mut self.records[n];
                *(if to { &mut record.to } else { &mut record.from }) = value;
                true
            }
        }
    }
}
