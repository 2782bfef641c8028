//! What is kept of signals: those that are pending, for a process or a task, and a task's mask and stack.

use super::{FIRST_REAL_TIME, SS_AUTODISARM, SS_DISABLE, UNSTOPPABLE, bit};
use crate::engine::Exception;
use crate::plain::plain;
use crate::ram::Virt;
use crate::signal::{Cause, Raised};
use std::collections::BTreeMap;

/// The alternate stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::linux) struct Stack {
    pub(in crate::linux) start: Virt,
    pub(in crate::linux) flags: u64,
    pub(in crate::linux) size: u64,
}
plain!(struct Stack { start, flags, size });

impl Stack {
    /// There is none.
    pub(super) const NONE: Stack = Stack { start: 0, flags: SS_DISABLE, size: 0 };

    /// Whether a program with this stack pointer runs on it. One that a handler begins without is never in use.
    pub(in crate::linux) fn is_used(&self, pointer: Virt) -> bool {
        self.flags & SS_AUTODISARM == 0 && self.holds(pointer)
    }

    pub(in crate::linux) fn holds(&self, address: Virt) -> bool {
        self.flags & SS_DISABLE == 0 && address > self.start && address - self.start <= self.size
    }
}

/// Signals that were raised and not delivered yet.
#[derive(Clone, Debug, Default)]
pub(in crate::linux) struct Pending {
    by_signal: BTreeMap<i32, Vec<Raised>>,
}
plain!(struct Pending { by_signal });

impl Pending {
    /// Adds a signal; of those that are not queued, the first one stays.
    pub(in crate::linux) fn add(&mut self, raised: Raised) {
        let queue = self.by_signal.entry(raised.signal()).or_default();
        // That of a timer is queued whatever its number is.
        let queued = raised.signal() >= FIRST_REAL_TIME || matches!(raised.cause, Cause::Timer { .. });
        if queue.is_empty() || queued {
            queue.push(raised);
        }
    }

    /// The set of signals.
    pub(in crate::linux) fn set(&self) -> u64 {
        self.by_signal.keys().fold(0, |set, signal| set | bit(*signal))
    }

    /// Takes the oldest of one number.
    pub(in crate::linux) fn take(&mut self, signal: i32) -> Option<Raised> {
        let queue = self.by_signal.get_mut(&signal)?;
        let raised = queue.remove(0);
        if queue.is_empty() {
            self.by_signal.remove(&signal);
        }
        Some(raised)
    }

    /// Drops those of a set.
    pub(in crate::linux) fn drop_set(&mut self, set: u64) {
        self.by_signal.retain(|signal, _| set & bit(*signal) == 0);
    }

    /// How many are queued.
    pub(in crate::linux) fn count(&self) -> usize {
        self.by_signal.values().map(Vec::len).sum()
    }

    /// Counts so many more expirations in the pending signal of a timer; false if there is none.
    pub(in crate::linux) fn count_overrun(&mut self, timer: i32, times: u64) -> bool {
        for raised in self.by_signal.values_mut().flatten() {
            if let Cause::Timer { id, overrun, .. } = &mut raised.cause
                && *id == timer
            {
                *overrun = overrun.saturating_add(i32::try_from(times).unwrap_or(i32::MAX));
                return true;
            }
        }
        false
    }

    /// Drops the signal of a timer.
    pub(in crate::linux) fn drop_timer(&mut self, timer: i32) {
        let is_it = |raised: &Raised| matches!(raised.cause, Cause::Timer { id, .. } if id == timer);
        self.by_signal.values_mut().for_each(|queue| queue.retain(|raised| !is_it(raised)));
        self.by_signal.retain(|_, queue| !queue.is_empty());
    }
}

/// The state of one task's signals.
#[derive(Clone, Debug)]
pub(in crate::linux) struct TaskSignals {
    pub(in crate::linux) blocked: u64,
    pub(in crate::linux) pending: Pending,
    pub(in crate::linux) stack: Stack,
    /// The mask to come back to, while a call has put another in its place.
    pub(super) replaced: Option<u64>,
    /// The last exception of the task: frames of later signals name it again (`thread_struct` of arch/x86 keeps it).
    pub(super) exception: Option<Exception>,
}
plain!(struct TaskSignals { blocked, pending, stack, replaced, exception });

impl TaskSignals {
    /// None pending, and these are blocked.
    pub(in crate::linux) fn blocking(blocked: u64) -> TaskSignals {
        TaskSignals { blocked: blocked & !UNSTOPPABLE, ..TaskSignals::default() }
    }
}

impl Default for TaskSignals {
    fn default() -> Self {
        TaskSignals {
            blocked: 0,
            pending: Pending::default(),
            stack: Stack::NONE,
            replaced: None,
            exception: None,
        }
    }
}

impl TaskSignals {
    pub(in crate::linux) fn blocks(&self, signal: i32) -> bool {
        self.blocked & bit(signal) != 0
    }

    /// What a task that another one makes begins with: its mask, and its alternate stack if it has a copy of it.
    pub(in crate::linux) fn inherited(&self, keeps_stack: bool) -> TaskSignals {
        let stack = if keeps_stack { self.stack } else { Stack::NONE };
        TaskSignals {
            blocked: self.blocked,
            pending: Pending::default(),
            stack,
            replaced: None,
            exception: None,
        }
    }

    /// What is left behind an exec.
    pub(in crate::linux) fn after_exec(before: &TaskSignals) -> TaskSignals {
        TaskSignals { stack: Stack::NONE, replaced: None, ..before.clone() }
    }

    /// Puts another mask in the place of the one that is to come back when the call is done.
    pub(in crate::linux) fn replace_mask(&mut self, mask: u64) {
        self.replaced.get_or_insert(self.blocked);
        self.blocked = mask & !UNSTOPPABLE;
    }

    /// Comes back to the mask before the call; whether there was another.
    pub(in crate::linux) fn restore_mask(&mut self) -> bool {
        let replaced = self.replaced.take();
        self.blocked = replaced.unwrap_or(self.blocked);
        replaced.is_some()
    }
}
