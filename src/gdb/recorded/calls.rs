//! System calls that are caught: a journey ends before one, and behind it, in both directions.
//!
//! Which there are is in the journal, which is read once for the calls that are asked for. Where one begins and ends is found by going
//! there.
//!
//! Example: `catch syscall write` and `reverse-continue`: "Catchpoint 1 (returned from syscall write)", and the next one "(call to
//! syscall write)".

use super::Recorded;
use crate::gdb::ids::Id;
use crate::gdb::target::{Stopped, Way, Why, Wishes};
use std::collections::BTreeMap;
use vmm::engine::lookout::Lookout;
use vmm::position::Position;
use vmm::replay::ReplayError;
use vmm::travel::Stop;
use x86::op::Gpr;

/// Linux's numbers of system calls are below.
const ALL: std::ops::Range<i64> = 0..600;

/// So many bytes are the instruction.
const SYSCALL: u64 = 2;

/// `exit` and `exit_group`, behind which a task runs no more: where it would is not looked for up to the recording's end.
const ENDS: [u64; 2] = [60, 231];

/// A system call: who made it, and the positions before and behind it; a signal's handler has no end of a call before it.
#[derive(Clone, Copy)]
struct Call {
    by: Id,
    number: u64,
    before: Position,
    behind: Option<Position>,
}

/// Where a journey ends for a call.
#[derive(Clone, Copy)]
pub(super) struct Caught {
    by: Id,
    number: u64,
    returned: bool,
    pub(super) at: Position,
}

/// What is known of the calls that are asked for.
#[derive(Default)]
pub(super) struct Calls {
    /// Which were asked for, by number, none for all.
    numbers: Option<Vec<i64>>,
    /// The event and the task of each.
    listed: Vec<(u64, i32)>,
    looked_at: BTreeMap<u64, Option<Call>>,
}

impl Recorded {
    /// The next beginning or end of a call of which the debugger wants to be told, in a direction. Comes back to here.
    pub(super) fn next_call(&mut self, way: Way, wishes: &Wishes) -> Result<Option<Caught>, ReplayError> {
        let (Some(numbers), Way::Forward | Way::Back) = (&wishes.calls, way) else { return Ok(None) };
        if self.calls.numbers.as_ref() != Some(numbers) {
            let asked = if numbers.is_empty() { ALL.collect() } else { numbers.clone() };
            let listed = self.travel.calls(&asked)?;
            self.calls = Calls { numbers: Some(numbers.clone()), listed, looked_at: BTreeMap::new() };
        }
        let here = self.travel.position();
        let forward = way == Way::Forward;
        let mut found: Option<Caught> = None;
        for (event, task) in self.around(here, wishes) {
            let call = match self.calls.looked_at.get(&event) {
                Some(call) => *call,
                None => self.look_at(event, task)?,
            };
            self.calls.looked_at.insert(event, call);
            let Some(call) = call.filter(|it| wishes.includes(it.by.pid)) else { continue };
            for (at, returned) in [(Some(call.before), false), (call.behind, true)] {
                let Some(at) = at else { continue };
                let is_ahead = if forward { at > here } else { at < here };
                let is_nearer = |other: &Caught| if forward { at < other.at } else { at > other.at };
                if is_ahead && found.as_ref().is_none_or(is_nearer) {
                    found = Some(Caught { by: call.by, number: call.number, returned, at });
                }
            }
        }
        self.travel.seek(here)?;
        Ok(found)
    }

    /// Of each task that may be looked at, its last two calls up to here, of which one may wait still, and its next one.
    fn around(&self, here: Position, wishes: &Wishes) -> Vec<(u64, i32)> {
        let mut of_task: BTreeMap<i32, (Vec<u64>, Option<u64>)> = BTreeMap::new();
        for (event, task) in &self.calls.listed {
            let (before, next) = of_task.entry(*task).or_default();
            if (Position { event: *event, retired: 0 }) <= here {
                before.push(*event);
            } else if next.is_none() {
                *next = Some(*event);
            }
        }
        of_task.retain(|task, _| !wishes.hidden.contains(task));
        let near = |(task, (before, next)): (i32, (Vec<u64>, Option<u64>))| {
            let last = before.len().saturating_sub(2);
            before[last..].iter().copied().chain(next).map(|event| (event, task)).collect::<Vec<_>>()
        };
        of_task.into_iter().flat_map(near).collect()
    }

    /// Goes to before a task's call, and to where it has returned, which may be long after that, or nowhere; none where it is no call of
    /// the task's.
    fn look_at(&mut self, event: u64, task: i32) -> Result<Option<Call>, ReplayError> {
        let begun = self.travel.seek(Position { event, retired: 0 })?;
        if begun.event < event {
            return Ok(None);
        }
        self.travel.step_back_of(task)?;
        let process = self.travel.process();
        let regs = *process.cpu().regs();
        let number = regs.gpr[usize::from(Gpr::RAX.0)];
        let by = Id { pid: process.pid(), tid: process.thread() };
        let before = self.travel.position();
        let returned = match ENDS.contains(&number) {
            true => Stop::End,
            false => self.travel.step_of(task, &Lookout::default(), &mut |_, _| false)?,
        };
        let goes_on = self.travel.process().cpu().regs().rip == regs.rip.wrapping_add(SYSCALL);
        let behind = (goes_on && returned == Stop::There).then(|| self.travel.position());
        let is_call = by.tid == task && before < begun && returned != Stop::Asked;
        Ok(is_call.then_some(Call { by, number, before, behind }))
    }
}

impl Caught {
    pub(super) fn told(self) -> Stopped {
        Stopped { id: self.by, why: Why::Called { number: self.number, returned: self.returned } }
    }
}
