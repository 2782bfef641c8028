//! One instruction forward, of a task.

use super::watched::Watched;
use super::{STRETCH, Stop, Travel, Wanted};
use crate::engine::Until;
use crate::engine::lookout::Lookout;
use crate::replay::ReplayError;

impl Travel {
    /// Runs one instruction of the task that is loaded. Where that gives the processor away, the others run until it goes on.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn step(&mut self) -> Result<Stop, ReplayError> {
        self.step_of(self.process().thread(), &Lookout::default(), &mut |_, _| true)
    }

    /// Runs one instruction of a task. Where another one runs, or comes to run, it goes on to when the task does. What is looked
    /// for and `wanted` ends the way, at the task's own instruction too, but for a breakpoint where that ends.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn step_of(&mut self, task: i32, lookout: &Lookout, wanted: Wanted<'_>) -> Result<Stop, ReplayError> {
        let others = self.process().thread() != task;
        // The own instruction needs no look at addresses, and what a processor looks for is dear to change.
        if others || !lookout.data.is_empty() {
            self.look_out(lookout)?;
        }
        self.note_kernel();
        let stop = self.step_looking(task, lookout, wanted);
        self.look_away()?;
        stop
    }

    fn step_looking(
        &mut self,
        task: i32,
        lookout: &Lookout,
        wanted: Wanted<'_>,
    ) -> Result<Stop, ReplayError> {
        let start = self.position();
        let mut watched = Watched::of(self, lookout);
        let stood = self.process_mut().state_of(task)?.map(|state| state.regs.rip);
        while !self.ended() {
            let (before, now) = (self.position(), self.retired()?);
            let ran = self.process().thread() == task;
            self.walk(Until::Retired(if ran { now + 1 } else { now + STRETCH }))?;
            let (here, runs) = (self.position(), self.process().thread() == task);
            if here == before {
                continue;
            }
            match self.hit(lookout, &mut watched, here.event > before.event) {
                Some(Stop::Breakpoint(_)) if runs => {}
                Some(stop) if wanted(self.process(), stop) => return Ok(stop),
                Some(Stop::Noted) => drop(self.process_mut().take_noted()),
                _ => {}
            }
            // Who gets the processor again has run nothing yet, unless its call is over.
            let moved = ran || stood.is_some_and(|rip| rip != self.process().cpu().regs().rip);
            if here > start && runs && moved {
                return Ok(Stop::There);
            }
            if !runs {
                self.look_out(lookout)?;
            }
            if self.is_asked() {
                return Ok(Stop::Asked);
            }
        }
        Ok(Stop::End)
    }
}
