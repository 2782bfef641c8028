//! While recording: the software CPU, lent in place of a processor that is kicked where it does not count.
//!
//! Such a processor cannot be stopped at a count, and a preemption that comes by a kick costs a digest of the memory. So two kinds
//! of segments run on the software CPU though KVM was asked for: random slices that end before a kick could come, and those of a
//! task that was kicked, until a look has shown whether it waits by looking ([`super::spin`]). Where KVM and the software CPU
//! take turns, [`super::choice`] sees to the second kind.
//!
//! Example: the two threads of a redis with `--io-threads 2` wait for each other by looking a million times. Under KVM each of
//! their handovers would wait for the kick; lent, it is a count some thousand instructions behind the event.

use super::{Process, ProcessError};

impl Process {
    /// While recording: lends the software CPU, or takes it back. It is lent where a segment begins, since where in a segment a
    /// processor stands that does not count is not known; and not where the other one fills branch records.
    pub(super) fn lend(&mut self, segment_begins: bool) -> Result<(), ProcessError> {
        let asked = if segment_begins { self.asks_to_lend() } else { self.pace.lent && self.goes_on_lent() };
        self.pace.gives_back = false;
        if asked == self.pace.lent || asked && self.machine.cpu.counters().is_some() {
            return Ok(());
        }
        // Nobody counts what the other one retires.
        self.machine.cpu.stop_counting();
        self.counts_late = true;
        self.exchange_within_slice()?;
        self.pace.lent = asked;
        Ok(())
    }

    fn asks_to_lend(&self) -> bool {
        let tasks = &self.kernel.tasks;
        if self.records.is_some() {
            return false;
        }
        if tasks.slices_are_random() {
            return tasks.slice() < super::preempt::SOONEST && tasks.any_ready();
        }
        self.choice.is_none() && self.is_to_be_looked_at()
    }

    /// Whether what began on the software CPU goes on there: an instruction that it leaves to the other one, and a look that
    /// showed an honest task, end that.
    fn goes_on_lent(&self) -> bool {
        let tasks = &self.kernel.tasks;
        !self.pace.gives_back && (tasks.slices_are_random() || self.is_to_be_looked_at())
    }

    /// Whether the task that runs is suspected, and something is due for which it could give way: else nothing stops it to look.
    pub(super) fn is_to_be_looked_at(&self) -> bool {
        self.pace.spin.suspects(self.kernel.tasks.id()) && self.kernel.due().is_some()
    }
}
