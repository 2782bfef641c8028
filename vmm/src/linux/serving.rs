//! What the guest comes to the kernel for: a system call, an instruction that reads the machine, time that passes.

use super::wait::{self, Wait};
use super::{Again, Guest, Kernel, Outcome, Served, Stop, call_name, host, seccomp, table, word};
use crate::engine::Interrupter;
use crate::failure::ProcessError;
use crate::gate::{GateError, Input, Time};

impl Kernel {
    /// Serves a system call that was begun at the gate, for the first time or `again`; then shows the new time.
    pub(crate) fn syscall(
        &mut self,
        guest: &mut Guest<'_>,
        number: u64,
        arguments: [u64; 6],
        again: Again,
    ) -> Result<Outcome, ProcessError> {
        self.again = again;
        self.called = (number, arguments);
        let other_user = self.become_caller(guest, number, &arguments)?;
        let served = match self.sifted(guest, number, &arguments) {
            Ok(None) => table::serve(self, guest, number, arguments),
            Ok(Some(outcome)) => Ok(outcome),
            Err(stop) => Err(stop),
        };
        if other_user {
            self.become_recorder();
        }
        self.again = Again::default();
        let outcome = match served {
            Ok(outcome) => {
                self.restore_mask();
                outcome
            }
            Err(Stop::Wait(wait)) => {
                let interruptible = wait.interrupted != wait::Interrupted::Never;
                self.tasks.park(wait);
                if interruptible && self.is_signalled() {
                    let id = self.tasks.id();
                    self.tasks.wake(id, wait::Why::Signal);
                }
                Outcome::Waits
            }
            Err(Stop::Errno(error)) => {
                self.restore_mask();
                Outcome::Return(word(-i64::from(error)))
            }
            Err(Stop::Fatal(error)) => return Err(error),
        };
        tracing::trace!(call = call_name(number), ?arguments, ?outcome);
        if !matches!(outcome, Outcome::Exit(_)) {
            self.tell_of_files_after_call(guest)?;
            self.show(guest)?;
        }
        Ok(outcome)
    }

    /// What the task's own filters make of a call that it begins.
    fn sifted(
        &mut self,
        guest: &mut Guest<'_>,
        number: u64,
        arguments: &[u64; 6],
    ) -> Served<Option<Outcome>> {
        if self.again.why.is_some() {
            return Ok(None);
        }
        seccomp::sift(self, guest, number, arguments)
    }

    /// The time stamp counter at a machine read that was begun at the gate.
    pub(crate) fn time_stamp(&mut self, guest: &mut Guest<'_>) -> Result<u64, ProcessError> {
        let stamp = self.clock.time_stamp(guest)?;
        self.take_arrived(guest);
        Ok(stamp)
    }

    /// The task that runs has nothing to do until another one has done something: it yields, and time passes.
    pub(crate) fn pause(&mut self, guest: &mut Guest<'_>) -> Result<(), ProcessError> {
        if !self.tasks.alone() {
            self.show(guest)?;
            self.tasks.yield_now();
        }
        Ok(())
    }

    /// Time passes, between two instructions of the task that runs.
    pub(crate) fn preempted(&mut self, guest: &mut Guest<'_>) -> Result<(), ProcessError> {
        self.tell_of_files(guest)?;
        let now = self.show(guest)?;
        self.expire(now);
        if !self.tasks.alone() {
            self.tasks.yield_now();
        }
        Ok(())
    }

    /// Ends what ends by itself at this time: waits, timers.
    pub(crate) fn expire(&mut self, now: Time) {
        self.tasks.expire(now);
        self.timers_expire(now);
    }

    /// From when on something happens by itself though the task that runs does nothing, by the monotonic clock: zero if
    /// another task could run now.
    pub(crate) fn due(&self) -> Option<u64> {
        let now = self.clock.shown();
        let told = self.sigio.watches().then_some(wait::LOOK_AT_FILES);
        if self.has_nothing_due() {
            return None;
        }
        if self.tasks.any_ready() {
            let left = self.timers_left(now).chain(told).min().map(|left| now.monotonic.saturating_add(left));
            return Some(left.unwrap_or(u64::MAX).min(self.tasks.slice_ends()));
        }
        let waits = self.tasks.living().filter_map(|(_, task)| Some(task.wait()?.deadline?.left(now)));
        let files = self.tasks.living().any(|(_, task)| task.wait().is_some_and(Wait::is_for_files));
        let look = files.then_some(wait::LOOK_AT_FILES);
        let left = waits.chain(self.timers_left(now)).chain(look).chain(told).min()?;
        Some(now.monotonic.saturating_add(left))
    }

    /// Whether one task runs alone, and nobody waits for a time: so it is at most exits.
    fn has_nothing_due(&self) -> bool {
        let is_alone = self.tasks.alone() && self.tasks.runs();
        is_alone && self.timers.is_empty() && !self.sigio.watches() && self.cpu_limit_left().is_none()
    }

    /// Random bits for a machine read that was begun at the gate.
    pub(crate) fn random_word(&mut self, guest: &mut Guest<'_>) -> Result<u64, ProcessError> {
        let input = guest.gate.input(&mut || {
            let mut bytes = [0; 8];
            host::random(&mut bytes);
            Input::Result(i64::from_le_bytes(bytes))
        })?;
        match input {
            Input::Result(value) => Ok(word(value)),
            other => Err(GateError::OtherInput(other.kind()).into()),
        }
    }
}

/// Repeats a call of the host that a signal interrupted, unless the signal is there to stop us, or for the program.
pub(super) fn retry(interrupter: &Interrupter, mut call: impl FnMut() -> i64) -> i64 {
    loop {
        let result = call();
        if result != -i64::from(libc::EINTR)
            || is_raised(interrupter)
            || crate::interrupt::is_any_for_program()
        {
            return result;
        }
    }
}

/// Whether we were asked to stop; the engine will be told as well.
pub(super) fn is_raised(interrupter: &Interrupter) -> bool {
    let raised = interrupter.take();
    if raised {
        interrupter.interrupt();
    }
    raised
}
