//! Signals that the program's own instructions raise, and how a process ends: by one of them, or by its own call.

use super::happening::What;
use super::{Noted, Process, ProcessError, Step};
use crate::gate::Event;
use crate::linux::{Delivery, Last, deliver};
use crate::signal::{Death, Raised};

impl Process {
    /// Delivers the signal of an exception.
    pub(super) fn fault(&mut self, death: Death) -> Result<Step, ProcessError> {
        match self.signal(Raised::exception(death), true)? {
            Step::Running => self.go_on(),
            step => Ok(step),
        }
    }

    /// Delivers a signal.
    pub(super) fn signal(&mut self, raised: Raised, synchronous: bool) -> Result<Step, ProcessError> {
        self.begin(Event::Signal(raised.signal()))?;
        let (kernel, mut guest) = self.guest();
        let delivery = deliver(kernel, &mut guest, raised, synchronous)?;
        let handler = (delivery == Delivery::Handled).then(|| self.machine.cpu.regs().rip);
        self.note(Noted::Signal { task: self.kernel.tasks.id(), signal: raised.signal(), handler });
        self.happened(|_| What::Signal { raised, handler });
        match delivery {
            Delivery::Handled => Ok(Step::Running),
            Delivery::Fatal(death) => {
                let (kernel, mut guest) = self.guest();
                kernel.settle(&mut guest)?;
                Ok(self.died(death))
            }
        }
    }

    /// A signal ends the loaded process. If it is the first and the last, that is the end.
    pub(super) fn died(&mut self, death: Death) -> Step {
        self.happened(|_| What::Died(death));
        let (first, _) = self.kernel.first();
        if self.kernel.pid() == first && !self.kernel.has_other_processes() {
            return Step::Killed(death);
        }
        if self.kernel.pid() == first {
            self.first_death = Some(death);
        }
        self.dying = Some(death);
        Step::Died(death)
    }

    /// Takes a process that a signal has ended out of the kernel.
    pub(super) fn bury(&mut self, death: Death) -> Result<Step, ProcessError> {
        let status = self.kernel.status_of(&death);
        self.end_process(status)
    }

    /// Ends the loaded process with a status as wait tells it, and goes on with another one.
    pub(super) fn end_process(&mut self, status: i32) -> Result<Step, ProcessError> {
        self.note(Noted::Ended { pid: self.kernel.pid(), task: self.kernel.tasks.id() });
        let (kernel, mut guest) = self.guest();
        match kernel.end_process(&mut guest, status)? {
            Last::NotYet => self.go_on(),
            Last::AllEnded => Ok(self.over()),
        }
    }

    /// No task is left: the program ended as its first process did.
    pub(super) fn over(&self) -> Step {
        let (_, status) = self.kernel.first();
        match (self.first_death, status) {
            (Some(death), _) => Step::Killed(death),
            (None, status) => Step::Exited(status.unwrap_or(0) >> 8 & 0xff),
        }
    }
}
