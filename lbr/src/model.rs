//! Intel's model-specific branch records in software, behind the same registers (format 5, as Skylake to Tiger
//! Lake have it).
//!
//! The software CPU tells it every taken branch. What it keeps and what it refuses is what hardware and KVM do; it has
//! no branch predictor and no clock, so those flags are zero.

use crate::filter::Filter;
use crate::msr;
use x86::interpreter::Observer;
use x86::op::BranchKind;

/// A ring of branch records with its registers.
#[derive(Clone, Debug)]
pub struct Model {
    enabled: bool,
    filter: Filter,
    top: usize,
    from: Box<[u64]>,
    to: Box<[u64]>,
    info: Box<[u64]>,
}

impl Model {
    /// Records of Skylake.
    pub const DEPTH: usize = 32;

    /// A ring of `depth` records, 16 or 32, in its reset state: off, filter 0.
    ///
    /// # Panics
    /// If `depth` is neither.
    #[must_use]
    pub fn new(depth: usize) -> Model {
        assert!(matches!(depth, 16 | 32), "no processor with these registers has {depth} records");
        let zeros = || vec![0; depth].into_boxed_slice();
        let filter = Filter::from_bits(0).expect("zero is a filter");
        Model { enabled: false, filter, top: 0, from: zeros(), to: zeros(), info: zeros() }
    }

    /// Whether IA32_DEBUGCTL has recording switched on.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// A taken branch; `ring0`: it ends in ring 0.
    pub fn record(&mut self, from: u64, to: u64, kind: BranchKind, ring0: bool) {
        if !self.enabled || !self.filter.records(kind, ring0) {
            return;
        }
        if self.filter.is_call_stack() && kind == BranchKind::Return {
            self.pop();
            return;
        }
        // The index of the newest rises first, then the record is written.
        self.top = (self.top + 1) % self.from.len();
        self.put(from, to);
    }

    /// Reads a register; `None`: refused.
    #[must_use]
    pub fn read(&self, index: u32) -> Option<u64> {
        match index {
            msr::PERF_CAPABILITIES => Some(msr::FORMAT_INFO.into()),
            msr::DEBUGCTL => Some(if self.enabled { msr::DEBUGCTL_LBR } else { 0 }),
            msr::SELECT => Some(self.filter.bits()),
            msr::TOP => Some(self.top as u64),
            _ => {
                let (base, n) = self.locate(index)?;
                Some(match base {
                    msr::FROM => self.from[n],
                    msr::TO => self.to[n],
                    _ => self.info[n],
                })
            }
        }
    }

    /// Writes a register; false: refused, and nothing changed.
    pub fn write(&mut self, index: u32, value: u64) -> bool {
        match index {
            msr::PERF_CAPABILITIES => value == msr::FORMAT_INFO.into(),
            msr::DEBUGCTL => {
                let fine = value & !msr::DEBUGCTL_LBR == 0;
                if fine {
                    self.enabled = value != 0;
                }
                fine
            }
            msr::SELECT => Filter::from_bits(value).map(|filter| self.filter = filter).is_ok(),
            msr::TOP => {
                let top = usize::try_from(value).ok().filter(|top| *top < self.from.len());
                top.map(|top| self.top = top).is_some()
            }
            _ => self.write_record(index, value),
        }
    }

    fn write_record(&mut self, index: u32, value: u64) -> bool {
        let Some((base, n)) = self.locate(index) else { return false };
        match base {
            // Addresses must be canonical.
            msr::FROM | msr::TO if (value << 16).cast_signed() >> 16 != value.cast_signed() => return false,
            msr::FROM => self.from[n] = value,
            msr::TO => self.to[n] = value,
            _ => self.info[n] = value,
        }
        true
    }

    /// Which of the three banks a register is in, and its number there.
    fn locate(&self, index: u32) -> Option<(u32, usize)> {
        [msr::FROM, msr::TO, msr::INFO].into_iter().find_map(|base| {
            let n = usize::try_from(index.checked_sub(base)?).ok()?;
            (n < self.from.len()).then_some((base, n))
        })
    }

    /// Call-stack mode: the newest record is the call that this return answers.
    fn pop(&mut self) {
        self.put(0, 0);
        self.top = (self.top + self.from.len() - 1) % self.from.len();
    }

    fn put(&mut self, from: u64, to: u64) {
        self.from[self.top] = from;
        self.to[self.top] = to;
        self.info[self.top] = 0;
    }
}

impl Observer for Model {
    fn branch(&mut self, from: u64, to: u64, kind: BranchKind) {
        self.record(from, to, kind, false);
    }
}
