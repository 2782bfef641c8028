//! What happens between an exit that was served and the next run of the engine: signals are delivered, and the
//! processor goes to another thread where that is due.
//!
//! Threads change places at system calls and machine reads only, by rules that see nothing but the program's own state and
//! what came through the gate ([`crate::linux`]'s `threads`). So a replay switches where the recording did, on any engine.

use super::{Process, ProcessError, Step};
use crate::engine::Virt;
use crate::gate::Event;
use crate::linux::{Again, Next, Outcome, Waited, interrupt};

impl Process {
    /// Serves the system call at which the program stands.
    pub(super) fn syscall(&mut self) -> Result<Step, ProcessError> {
        self.defined_regs()?;
        match self.serve(Again::default())? {
            Step::Running => self.go_on(),
            end => Ok(end),
        }
    }

    /// Serves the system call of the thread that runs, for the first time or again.
    fn serve(&mut self, again: Again) -> Result<Step, ProcessError> {
        let regs = *self.engine.regs();
        let [rax, _, rdx, _, _, _, rsi, rdi, r8, r9, r10, ..] = regs.gpr;
        self.gate.begin(Event::Syscall(rax), &regs)?;
        let (linux, mut guest) = self.guest();
        match linux.syscall(&mut guest, rax, [rdi, rsi, rdx, r10, r8, r9], again)? {
            Outcome::Return(value) => {
                let mut regs = *self.engine.regs();
                regs.gpr[0] = value;
                self.engine.set_regs(&regs)?;
            }
            Outcome::Resumed | Outcome::Waits | Outcome::ThreadEnded => {}
            Outcome::Exit(status) => {
                let regs = *self.engine.regs();
                self.gate.begin(Event::Exited(status), &regs)?;
                return Ok(Step::Exited(status));
            }
        }
        Ok(Step::Running)
    }

    /// Delivers signals, and switches threads, until one can run in the program; or until all wait, which the next step
    /// sees to.
    pub(super) fn go_on(&mut self) -> Result<Step, ProcessError> {
        loop {
            while self.linux.threads.runs()
                && let Some(death) = self.linux.take_signal()
            {
                let step = self.signal(death, false)?;
                if step != Step::Running {
                    return Ok(step);
                }
            }
            if !self.should_switch()? {
                return Ok(Step::Running);
            }
            let Some(next) = self.switch()? else { return Ok(Step::Running) };
            let (linux, mut guest) = self.guest();
            let again = match next {
                Next::Program => continue,
                Next::Call(again) => again,
                Next::Interrupted(wait) => match interrupt(linux, &mut guest, &wait)? {
                    true => wait.again_interrupted(),
                    false => continue,
                },
            };
            let step = self.serve(again)?;
            if step != Step::Running {
                return Ok(step);
            }
        }
    }

    /// Gives the processor to the next thread that can run.
    fn switch(&mut self) -> Result<Option<Next>, ProcessError> {
        let (before, now) = (self.linux.threads.id(), self.linux.now());
        let (linux, mut guest) = self.guest();
        let next = linux.threads.switch(&mut guest, now)?;
        if let Some(records) = self.records
            && self.linux.threads.id() != before
        {
            records.clear(&mut *self.engine).map_err(|error| ProcessError::Records(error.to_string()))?;
        }
        Ok(next)
    }

    /// Carries out PAUSE: whoever else can run does.
    pub(super) fn pause(&mut self, behind: Virt) -> Result<Step, ProcessError> {
        let mut regs = *self.engine.regs();
        self.gate.begin(Event::MachineRead, &regs)?;
        regs.rip = behind;
        self.engine.set_regs(&regs)?;
        let (linux, mut guest) = self.guest();
        linux.pause(&mut guest)?;
        self.go_on()
    }

    /// Whether the thread that ran gives the processor away. Sees to it that those whose waits are over are ready.
    fn should_switch(&mut self) -> Result<bool, ProcessError> {
        if self.linux.threads.alone() {
            return Ok(self.linux.threads.any_ready());
        }
        let now = self.linux.now();
        self.linux.threads.expire(now);
        let runs = self.linux.threads.runs();
        if runs && !self.linux.threads.slice_is_over(now) {
            return Ok(false);
        }
        let (linux, mut guest) = self.guest();
        linux.look_at_files(&mut guest)?;
        linux.threads.begin_slice(now);
        Ok(!runs || linux.threads.any_ready())
    }

    /// Whether no thread can run before something comes from outside or time passes: the next step waits for that, and
    /// executes nothing.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.end.is_none() && self.linux.threads.all_wait()
    }

    /// From when on a thread that does not run could, by CLOCK_MONOTONIC in nanoseconds: zero if one could now, `None` if
    /// none could before something comes from outside. While all wait, none is kept from anything.
    #[must_use]
    pub fn others_due(&self) -> Option<u64> {
        if self.waits() { None } else { self.linux.threads.due() }
    }

    /// Waits until a thread can run.
    pub(super) fn wait(&mut self) -> Result<Step, ProcessError> {
        let (linux, mut guest) = self.guest();
        match linux.wait_for_any(&mut guest)? {
            Waited::Over => self.go_on(),
            Waited::Interrupted => Ok(Step::Interrupted),
        }
    }
}
