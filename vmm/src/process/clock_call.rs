//! When the vDSO asks for the time before its turn.
//!
//! The vDSO answers from the time page, which is written at exits alone, so that a replay answers the same. A program that
//! computes for long without an exit would be told the time of before: its measurement of a computation would come to
//! nanoseconds. So while recording, once the page is old, the next call is made real: by a word of the page that has the tick
//! from which on calls are real ([`crate::linux::load::vdso`]). The journal has the tick ([`Event::Clock`]), and replay puts it into the
//! page where the segment begins. The word is in the page only while the processor runs, so that no digest sees it.
//!
//! Example: a program asks for the time (tick 1), computes for a second, and asks again. After a millisecond the [`StretchWatch`] kicks
//! the processor back, and it goes on with the word set; the second call makes the system call, and `Event::Clock(2)` is
//! journaled in place of `Event::Syscall(228)`.

use super::stretch::StretchWatch;
use super::{Process, ProcessError};
#[cfg(doc)]
use crate::gate::Event;
use crate::gate::clock;
use crate::linux::load::vdso::CALLS_PER_EXIT;
use crate::memory::layout::VDSO;
use crate::ram::PAGE;

/// From this age on, in nanoseconds, what the time page says is old: where a kick brings the processor back, and where a count
/// does, which costs nearly nothing.
const OLD: u64 = 1_000_000;
const OLD_WHERE_COUNTED: u64 = 100_000;
/// The software CPU comes back to look at the age after so many instructions.
const COUNTED: u64 = 100_000;

/// When the vDSO asks for the time, in the segment in which the program is.
#[derive(Default)]
pub(super) struct ClockCall {
    /// The tick from which on its calls are real, if that is before its turn.
    at: Option<u64>,
    /// While recording: sees that the program computes for long.
    watch: Option<StretchWatch>,
    /// The monotonic time that the program had been shown when the processor ran last.
    shown: u64,
    /// While recording: the host's monotonic clock at the last exit, or soon after.
    now: Option<u64>,
}

impl Process {
    /// Finds out whether the vDSO is to ask before its turn, from here on: while recording by the clock, while replaying by the
    /// journal.
    pub(super) fn find_clock_call(&mut self, ends_in_preemption: bool) -> Result<(), ProcessError> {
        self.pace.clock_call.now = None;
        self.pace.clock_call.at = if ends_in_preemption {
            None
        } else if self.gate.replaying() {
            self.gate.clock()?
        } else {
            if self.pace.clock_call.watch.is_none() {
                self.pace.clock_call.watch = Some(StretchWatch::new(OLD, self.machine.cpu.interrupter()));
            }
            let shown = self.kernel.now().monotonic;
            let call = &mut self.pace.clock_call;
            // Where the exit has shown a time, the clock says hardly another.
            let is_new = std::mem::replace(&mut call.shown, shown) != shown;
            let now = if is_new { shown } else { clock(libc::CLOCK_MONOTONIC) };
            call.now = Some(now);
            let old = if self.machine.cpu.counters().is_some() { OLD_WHERE_COUNTED } else { OLD };
            (now.saturating_sub(shown) >= old).then_some(0)
        };
        Ok(())
    }

    /// The host's monotonic clock, as of the last exit where that has read it.
    pub(super) fn recent_clock(&self) -> u64 {
        self.pace.clock_call.now.unwrap_or_else(|| clock(libc::CLOCK_MONOTONIC))
    }

    /// In how many instructions it is to be found out again, on a processor that counts.
    pub(super) fn clock_patience(&self) -> Option<u64> {
        (self.pace.clock_call.watch.is_some() && self.pace.clock_call.at.is_none()).then_some(COUNTED)
    }

    /// The processor is about to run.
    pub(super) fn make_clock_due(&mut self) -> Result<(), ProcessError> {
        if let Some(tick) = self.pace.clock_call.at {
            self.kernel.clock_is_due_at(&mut self.machine.memory, tick)?;
        } else if let Some(watch) = &self.pace.clock_call.watch {
            watch.begins();
        }
        Ok(())
    }

    /// The processor has run.
    pub(super) fn make_clock_usual(&mut self) -> Result<(), ProcessError> {
        if self.pace.clock_call.at.is_some() {
            self.kernel.clock_is_due_at(&mut self.machine.memory, CALLS_PER_EXIT)?;
        } else if let Some(watch) = &self.pace.clock_call.watch {
            watch.ends();
        }
        Ok(())
    }

    /// The tick, if the system call at which the program stands is one that the vDSO may have made before its turn.
    pub(super) fn clock_call_tick(&mut self) -> Result<Option<u64>, ProcessError> {
        let rip = self.machine.cpu.regs().rip;
        if self.pace.clock_call.at.is_none() || !(VDSO..VDSO + PAGE).contains(&rip) {
            return Ok(None);
        }
        self.kernel.ticks(&mut self.machine.memory).map(Some)
    }
}
