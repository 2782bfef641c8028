//! Where a journey ends that has come to the recording's end, or to its beginning, and none of the processes that are looked at lives there.
//!
//! The debugger would stand in a thread without registers, which it does not let go on. So the end is where the last of them ran last,
//! and the beginning where the first of them ran first. Example: a shell's child is followed, and the shell goes on after it: "no more
//! history" is at the child's exit.

use super::Recorded;
use crate::gdb::target::Wishes;
use vmm::position::Position;
use vmm::replay::ReplayError;
use vmm::travel::Stop;

impl Recorded {
    /// Goes to the end of what is looked at, where the journey that came to `stop` began at `start`.
    pub(super) fn go_to_shown(
        &mut self,
        stop: Stop,
        start: Position,
        wishes: &Wishes,
    ) -> Result<(), ReplayError> {
        let process = self.travel.process();
        if !matches!(stop, Stop::Begin | Stop::End) || process.tasks().any(|task| wishes.includes(task.pid)) {
            return Ok(());
        }
        if stop == Stop::Begin { self.go_to_first(wishes) } else { self.go_to_last(start, wishes) }
    }

    /// From the recording's beginning to where one of the processes runs first.
    fn go_to_first(&mut self, wishes: &Wishes) -> Result<(), ReplayError> {
        let here = self.travel.position();
        while !wishes.includes(self.travel.process().pid()) {
            if !self.travel.next_event()? {
                return self.travel.seek(here).map(drop);
            }
        }
        Ok(())
    }

    /// From the recording's end to before the last instruction that one of them ran behind `start`.
    fn go_to_last(&mut self, start: Position, wishes: &Wishes) -> Result<(), ReplayError> {
        let end = self.travel.position();
        self.travel.seek(start)?;
        // The task that ran before the newest event, and where the last one that counts had been relieved.
        let (mut ran, mut last) = (None, None);
        loop {
            last = ran.map(|task| (task, self.travel.position())).or(last);
            let process = self.travel.process();
            ran = wishes.includes(process.pid()).then(|| process.thread());
            if !self.travel.next_event()? {
                break;
            }
        }
        match last {
            Some((task, behind)) => {
                self.travel.seek(behind)?;
                self.travel.step_back_of(task).map(drop)
            }
            None => self.travel.seek(end).map(drop),
        }
    }
}
