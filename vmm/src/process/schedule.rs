//! What happens between an exit that was served and the next run of the processor: signals are delivered, and the
//! processor goes to another task where that is due.
//!
//! Tasks change places at system calls, machine reads and preemptions, by rules that see nothing but the guest's own state and
//! what came through the gate ([`crate::linux`]'s `tasks`). So a replay switches where the recording did, on any engine.

use super::choice::Choice;
use super::happening::What;
use super::{Process, ProcessError, Step};
use crate::gate::Event;
use crate::linux::{Again, Interruption, Next, Outcome, Waited, interrupt};
use crate::ram::Virt;

impl Process {
    /// Serves the system call at which the program stands.
    pub(super) fn syscall(&mut self) -> Result<Step, ProcessError> {
        self.defined_regs()?;
        self.call_begins();
        match self.serve(Again::default())? {
            Step::Running => self.go_on(),
            end => Ok(end),
        }
    }

    /// Serves the system call of the task that runs, for the first time or again.
    fn serve(&mut self, again: Again) -> Result<Step, ProcessError> {
        let (number, arguments) = self.call();
        let event = self.clock_call_tick()?.map_or(Event::Syscall(number), Event::Clock);
        self.begin(event)?;
        let (task, started) = (self.kernel.tasks.id(), self.kernel.tasks.started());
        let has_waited = again.has_waited();
        let (kernel, mut guest) = self.guest();
        let outcome = kernel.syscall(&mut guest, number, arguments, again)?;
        self.call_comes_to(task, outcome);
        self.tell_what_began(started, outcome, number);
        if has_waited {
            self.note_release(number);
        }
        match outcome {
            Outcome::Return(value) => {
                let mut regs = *self.machine.cpu.regs();
                regs.gpr[0] = value;
                self.machine.cpu.set_regs(&regs)?;
            }
            Outcome::Resumed | Outcome::Waits | Outcome::TaskEnded => {}
            Outcome::Exit(status) => return self.exit(status),
        }
        Ok(Step::Running)
    }

    /// The number and the arguments of the call at which the loaded task stands.
    pub(super) fn call(&self) -> (u64, [u64; 6]) {
        let [rax, _, rdx, _, _, _, rsi, rdi, r8, r9, r10, ..] = self.machine.cpu.regs().gpr;
        (rax, [rdi, rsi, rdx, r10, r8, r9])
    }

    /// The loaded process ends by itself.
    fn exit(&mut self, status: i32) -> Result<Step, ProcessError> {
        self.begin(Event::Exited(status))?;
        self.happened(|_| What::Exited(status));
        let (first, _) = self.kernel.first();
        if self.kernel.pid() == first && !self.kernel.has_other_processes() {
            let (kernel, mut guest) = self.guest();
            kernel.settle(&mut guest)?;
            return Ok(Step::Exited(status));
        }
        self.end_process(status << 8)
    }

    /// Delivers signals, and switches tasks, until one can run in the program; or until all wait, which the next step
    /// sees to.
    pub(super) fn go_on(&mut self) -> Result<Step, ProcessError> {
        self.kill_if_exhausted()?;
        loop {
            self.kernel.expire(self.kernel.now());
            while self.kernel.tasks.runs()
                && let Some(raised) = self.kernel.take_signal()
            {
                let step = self.signal(raised, false)?;
                if step != Step::Running {
                    return Ok(step);
                }
            }
            if self.kernel.tasks.runs() && self.kernel.restore_mask() {
                continue;
            }
            if !self.should_switch()? {
                return Ok(Step::Running);
            }
            let Some(next) = self.switch()? else { return Ok(Step::Running) };
            let rip = self.machine.cpu.regs().rip;
            let (kernel, mut guest) = self.guest();
            let again = match next {
                Next::Program => continue,
                Next::Call(again) => again,
                Next::Interrupted(wait) => match interrupt(kernel, &mut guest, &wait)? {
                    Interruption::Again => wait.again_interrupted(),
                    Interruption::Stopped => continue,
                    Interruption::Told => {
                        self.call_is_interrupted(rip);
                        continue;
                    }
                },
            };
            let step = self.serve(again)?;
            if step != Step::Running {
                return Ok(step);
            }
        }
    }

    /// Gives the processor to the next task that can run.
    fn switch(&mut self) -> Result<Option<Next>, ProcessError> {
        let (before, now) = (self.kernel.tasks.id(), self.kernel.now());
        let (kernel, mut guest) = self.guest();
        let next = kernel.tasks.switch(&mut guest, now)?;
        self.pace.new_slice(self.retired(), &self.kernel.tasks);
        if let Some(records) = self.records
            && self.kernel.tasks.id() != before
        {
            let cleared = records.clear(&mut *self.machine.cpu);
            cleared.map_err(|error| ProcessError::Records(error.to_string()))?;
            self.emptied += 1;
        }
        if self.kernel.tasks.id() != before {
            self.happened(|_| What::Switched { from: before });
        }
        Ok(next)
    }

    /// Carries out PAUSE: whoever else can run does.
    pub(super) fn pause(&mut self, behind: Virt) -> Result<Step, ProcessError> {
        self.begin(Event::MachineRead)?;
        self.happened(|_| What::MachineRead { instruction: "pause".to_owned(), value: None });
        let mut regs = *self.machine.cpu.regs();
        regs.rip = behind;
        self.machine.cpu.set_regs(&regs)?;
        let (kernel, mut guest) = self.guest();
        kernel.pause(&mut guest)?;
        self.go_on()
    }

    /// Whether the task that ran gives the processor away.
    fn should_switch(&mut self) -> Result<bool, ProcessError> {
        let now = self.kernel.now();
        if self.kernel.tasks.alone() {
            return Ok(self.kernel.tasks.any_ready());
        }
        self.pace.follow_slice(self.retired(), &self.kernel.tasks);
        let runs = self.kernel.tasks.runs();
        if runs && !self.kernel.tasks.slice_is_over(now) {
            return Ok(false);
        }
        let (kernel, mut guest) = self.guest();
        kernel.look_at_files(&mut guest)?;
        kernel.tasks.begin_slice(now);
        self.pace.new_slice(self.retired(), &self.kernel.tasks);
        Ok(!runs || self.kernel.tasks.any_ready())
    }

    /// Whether no task can run before something comes from outside or time passes: the next step waits for that, and
    /// executes nothing.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.end.is_none() && self.dying.is_none() && self.kernel.tasks.all_wait()
    }

    /// Writes what was stored in mapped files to them, and leaves no record of it: the recording has ended where nothing
    /// replays to.
    pub(crate) fn abandon(&mut self) {
        if !self.gate.replaying() {
            self.kernel.abandon_shared(&self.machine.memory);
        }
    }

    /// Waits until a task can run.
    pub(super) fn wait(&mut self) -> Result<Step, ProcessError> {
        self.choice.iter_mut().for_each(Choice::waits);
        let (kernel, mut guest) = self.guest();
        let waited = kernel.wait_for_any(&mut guest)?;
        self.at_event();
        self.happened(|_| What::Waited);
        match waited {
            Waited::Over => self.go_on(),
            Waited::Interrupted => Ok(Step::Interrupted),
        }
    }
}
