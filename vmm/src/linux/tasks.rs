//! Tasks: who they are, which of them runs, and when another one does.
//!
//! A task is what Linux schedules: a thread of some process. There is one processor. A task runs until it waits, ends or yields,
//! until a call or machine read of its own finds that its slice is over, or until it is preempted. All that decides, the
//! ready queue and the times shown to programs, is computed again at replay, so that a switch needs no record of its own;
//! a preemption has one ([`crate::gate::Event::Preempt`]).
//!
//! A task holds ids ([`super::arena`]): of its process, address space, descriptor table, working directory and handlers.

use super::Guest;
use super::arena::Id;
use super::chance::Chance;
use super::descriptors::Detached;
use super::numa::Policy;
use super::scheduling::Scheduling;
use super::seccomp::Sieve;
use super::signals::TaskSignals;
use super::wait::{Again, Wait, Why};
use crate::engine::EngineError;
use crate::gate::Time;
use crate::plain::plain;
use crate::ram::Virt;
use std::collections::{BTreeMap, VecDeque};
use x86::state::State;

/// How long a task runs while others are ready, in nanoseconds of the time that it is shown.
const SLICE: u64 = 5_000_000;
/// The length of a task's name with its zero byte.
pub(super) const NAME: usize = 16;
/// As many tasks as there may be at once.
pub(super) const LIMIT: usize = 4096;
/// Task ids go up to this, and then begin again (`pid_max`).
const LAST_ID: i32 = 4_194_303;
/// The first id when they begin again (RESERVED_PIDS).
const FIRST_AGAIN: i32 = 300;

/// What a task is about.
#[derive(Clone, Debug)]
pub(super) enum Doing {
    /// It runs, or could.
    Runs,
    /// A call of its own waits.
    Waits(Wait),
    /// The wait is over; the call is to be served again.
    Woken(Wait, Why),
    /// It has ended. It stays until another one's registers are loaded.
    Ended,
}
plain!(enum Doing { 0 = Runs, 1 = Waits(a), 2 = Woken(a, b), 3 = Ended });

/// What Linux keeps for a task.
#[derive(Clone)]
pub(super) struct Task {
    /// The process: the id of its first task.
    pub(super) group: i32,
    pub(super) space: Id,
    pub(super) files: Id,
    /// Working directory and umask.
    pub(super) place: Id,
    pub(super) handlers: Id,
    pub(super) doing: Doing,
    /// It is stopped with its process; what it does goes on when that does.
    pub(super) stopped: bool,
    pub(super) signals: TaskSignals,
    pub(super) name: [u8; NAME],
    /// Where zero is written and a futex woken when it ends; null for nowhere.
    pub(super) clear_at_end: Virt,
    /// The head of its list of robust futexes, or null.
    pub(super) robust: Virt,
    /// The task that waits until this one has called exec or ended (vfork).
    pub(super) vfork_parent: Option<i32>,
    /// The signal at its parent's death (PR_SET_PDEATHSIG), or zero.
    pub(super) parent_death_signal: i32,
    pub(super) scheduling: Scheduling,
    /// What its calls pass.
    pub(super) sieve: Sieve,
    /// Which system it takes this one for (personality).
    pub(super) persona: u32,
    /// Of which nodes its memory is to be (set_mempolicy).
    pub(super) memory_policy: Policy,
    /// RDTSC is a fault (PR_SET_TSC).
    pub(super) no_time_stamps: bool,
    /// Its processor time, in nanoseconds.
    pub(super) cpu: u64,
    /// When it was made, by the monotonic clock.
    pub(super) started: u64,
    /// Its registers, while the processor has another one's.
    pub(super) state: Option<Box<State>>,
}
plain!(struct Task {
    group, space, files, place, handlers, doing, stopped, signals, name, clear_at_end, robust,
    vfork_parent, parent_death_signal, scheduling, sieve, persona, memory_policy, no_time_stamps,
    cpu, started, state
});

impl Task {
    /// What it waits for.
    pub(super) fn wait(&self) -> Option<&Wait> {
        match &self.doing {
            Doing::Waits(wait) => Some(wait),
            _ => None,
        }
    }

    /// Its name, up to the zero byte.
    fn short_name(&self) -> &[u8] {
        self.name.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Whether it has ended.
    pub(super) fn ended(&self) -> bool {
        matches!(self.doing, Doing::Ended)
    }

    /// Whether it could run if it had the processor.
    fn is_ready(&self) -> bool {
        !self.stopped && matches!(self.doing, Doing::Runs | Doing::Woken(..))
    }
}

/// What the task that has just got the processor does next.
#[derive(Debug)]
pub(crate) enum Next {
    /// It goes on in the program.
    Program,
    /// Its call is served again.
    Call(Again),
    /// A signal came while its call waited: see [`super::signals::interrupt`].
    Interrupted(Wait),
}

/// All tasks, by id.
#[derive(Clone)]
pub(crate) struct Tasks {
    all: BTreeMap<i32, Task>,
    /// Whose registers the processor has.
    loaded: i32,
    /// The ready queue: those that could run, but for the loaded one; the next one first.
    queue: VecDeque<i32>,
    last_id: i32,
    /// How many were ever started, the first included.
    started: u64,
    /// When the slice of the one that runs began, by the monotonic clock, and how long it is.
    since: u64,
    slice: u64,
    /// It gives the processor away at the end of its call.
    yields: bool,
    /// Counts waits, so that those for the same are woken in the order in which they began.
    waits: u64,
    /// The address space of a process that has ended, which stays until another one is loaded.
    left: Option<Id>,
    /// Draws slices and successors, if they are to be random.
    chance: Option<Chance>,
}
plain!(struct Tasks { all, loaded, queue, last_id, started, since, slice, yields, waits, left, chance });

impl Tasks {
    /// The first task alone.
    pub(super) fn new(id: i32, task: Task, chance: Option<Chance>) -> Tasks {
        Tasks {
            all: BTreeMap::from([(id, task)]),
            loaded: id,
            queue: VecDeque::new(),
            last_id: id,
            started: 1,
            since: 0,
            slice: SLICE,
            yields: false,
            waits: 0,
            left: None,
            chance,
        }
    }

    /// The same with no host's files.
    pub(super) fn detached(&self, files: &mut Detached) -> Tasks {
        let mut copy = self.clone();
        for task in copy.all.values_mut() {
            if let Doing::Waits(wait) | Doing::Woken(wait, _) = &mut task.doing {
                *wait = wait.detached(files);
            }
        }
        copy
    }

    /// Whether the loaded task and those that queue are there, `holds` is true of all, and the address space that is left
    /// names something.
    pub(super) fn fits(&self, holds: impl Fn(&Task) -> bool, names: impl Fn(Id) -> bool) -> bool {
        let queued = |id: &i32| self.all.get(id).is_some_and(|task| !task.ended());
        self.all.contains_key(&self.loaded)
            && self.queue.iter().all(queued)
            && self.all.values().all(holds)
            && self.left.is_none_or(names)
    }

    /// Whether there is one task only: then calls may wait in the host.
    pub(crate) fn alone(&self) -> bool {
        self.all.len() == 1
    }

    /// How many tasks were ever started, the first included.
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    /// The name of the loaded task.
    pub(crate) fn name(&self) -> &[u8] {
        self.current().short_name()
    }

    /// The task that was started last, and its process; its own id where it has ended.
    pub(crate) fn newest(&self) -> (i32, i32) {
        (self.last_id, self.get(self.last_id).map_or(self.last_id, |task| task.group))
    }

    /// Whether its creator waits until this task has called exec or ended (vfork).
    pub(crate) fn holds_parent(&self, id: i32) -> bool {
        self.get(id).is_some_and(|task| task.vfork_parent.is_some())
    }

    /// Who runs, or ran last.
    pub(crate) fn id(&self) -> i32 {
        self.loaded
    }

    /// The task that runs, or ran last.
    pub(super) fn current(&self) -> &Task {
        self.all.get(&self.loaded).expect("a task stays while its registers are loaded")
    }

    /// The same, to be changed.
    pub(super) fn current_mut(&mut self) -> &mut Task {
        self.all.get_mut(&self.loaded).expect("a task stays while its registers are loaded")
    }

    /// A task that has not ended.
    pub(super) fn get(&self, id: i32) -> Option<&Task> {
        self.all.get(&id).filter(|task| !task.ended())
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, id: i32) -> Option<&mut Task> {
        self.all.get_mut(&id).filter(|task| !task.ended())
    }

    /// Those that have not ended, by id.
    pub(super) fn living(&self) -> impl Iterator<Item = (i32, &Task)> {
        self.all.iter().filter(|(_, task)| !task.ended()).map(|(id, it)| (*id, it))
    }

    /// Those of a process that have not ended, by id.
    pub(super) fn of_group(&self, group: i32) -> impl Iterator<Item = (i32, &Task)> {
        self.living().filter(move |(_, task)| task.group == group)
    }

    /// The ids of those.
    pub(super) fn ids_of_group(&self, group: i32) -> Vec<i32> {
        self.of_group(group).map(|(id, _)| id).collect()
    }

    /// The address space of a process; `None` of one that has ended.
    pub(crate) fn space_of(&self, group: i32) -> Option<Id> {
        self.of_group(group).next().map(|(_, task)| task.space)
    }

    /// The other tasks of the loaded one's process with their registers, by id.
    pub(crate) fn others(&self) -> impl Iterator<Item = (i32, &State)> {
        let group = self.current().group;
        let others = self.of_group(group).filter(|(id, _)| *id != self.loaded);
        others.filter_map(|(id, task)| Some((id, &**task.state.as_ref()?)))
    }

    /// All tasks but the loaded one with their registers, by id.
    pub(crate) fn all_others(&self) -> impl Iterator<Item = (i32, &State)> {
        let others = self.living().filter(|(id, _)| *id != self.loaded);
        others.filter_map(|(id, task)| Some((id, &**task.state.as_ref()?)))
    }

    /// All tasks, the loaded one first though it may have ended: process, id, and name.
    pub(crate) fn all_named(&self) -> impl Iterator<Item = (i32, i32, &[u8])> {
        let others = self.living().filter(|(id, _)| *id != self.loaded);
        let all = std::iter::once((self.loaded, self.current())).chain(others);
        all.map(|(id, task)| (task.group, id, task.short_name()))
    }

    /// The registers of a task that is not loaded.
    pub(crate) fn state_of(&self, id: i32) -> Option<&State> {
        self.get(id)?.state.as_deref()
    }

    /// Whether the loaded task is in the program, or about to be.
    pub(crate) fn runs(&self) -> bool {
        let current = self.current();
        matches!(current.doing, Doing::Runs) && !current.stopped
    }

    /// Whether none can run until something comes from outside, or time passes.
    pub(crate) fn all_wait(&self) -> bool {
        !self.current().is_ready() && self.queue.is_empty()
    }

    /// Whether another one could run.
    pub(crate) fn any_ready(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whoever runs now has its share from here on.
    pub(crate) fn begin_slice(&mut self, now: Time) {
        self.yields = false;
        self.since = now.monotonic;
        self.slice = self.chance.as_mut().map_or(SLICE, Chance::slice);
    }

    /// When the one that runs has had its share, by the monotonic clock.
    pub(crate) fn slice_ends(&self) -> u64 {
        self.since.saturating_add(self.slice)
    }

    /// How long the slice of the one that runs is, in nanoseconds.
    pub(crate) fn slice(&self) -> u64 {
        self.slice
    }

    /// Whether slices are random.
    pub(crate) fn slices_are_random(&self) -> bool {
        self.chance.is_some()
    }

    /// Whether the one that runs has had its share. Random slices end by preemption alone, so that they do not depend on
    /// what time it was shown.
    pub(crate) fn slice_is_over(&self, now: Time) -> bool {
        self.yields || self.chance.is_none() && now.monotonic >= self.slice_ends()
    }

    /// Gives the processor away when the call is served.
    pub(super) fn yield_now(&mut self) {
        self.yields = true;
    }

    /// An id that no task, and nothing in `taken`, has.
    pub(super) fn next_id(&mut self, taken: impl Fn(i32) -> bool) -> i32 {
        loop {
            self.last_id = if self.last_id >= LAST_ID { FIRST_AGAIN } else { self.last_id + 1 };
            if !self.all.contains_key(&self.last_id) && !taken(self.last_id) {
                return self.last_id;
            }
        }
    }

    /// Whether there is room for another task.
    pub(super) fn has_room(&self) -> bool {
        self.all.len() < LIMIT
    }

    /// Adds a task, which begins with its state when its turn comes.
    pub(super) fn start(&mut self, id: i32, task: Task, now: Time) {
        if self.alone() {
            self.begin_slice(now);
        }
        self.started += 1;
        self.all.insert(id, task);
        self.queue.push_back(id);
    }

    /// Ends a task.
    pub(super) fn end(&mut self, id: i32) {
        self.queue.retain(|queued| *queued != id);
        if id == self.loaded {
            self.current_mut().doing = Doing::Ended;
        } else {
            self.all.remove(&id);
        }
    }

    /// Gives the loaded task another id, which none has: exec by a thread that is not the first.
    pub(super) fn rename_current(&mut self, id: i32) {
        if let Some(task) = self.all.remove(&self.loaded) {
            self.all.insert(id, task);
            self.loaded = id;
        }
    }

    /// Makes the task that runs wait.
    pub(super) fn park(&mut self, mut wait: Wait) {
        self.waits += 1;
        wait.since = self.waits;
        self.current_mut().doing = Doing::Waits(wait);
    }

    /// Ends the wait of a task; nothing if it does not wait.
    pub(super) fn wake(&mut self, id: i32, why: Why) {
        let Some(task) = self.all.get_mut(&id) else { return };
        match std::mem::replace(&mut task.doing, Doing::Runs) {
            Doing::Waits(wait) => {
                task.doing = Doing::Woken(wait, why);
                if !task.stopped {
                    self.queue.push_back(id);
                }
            }
            other => task.doing = other,
        }
    }

    /// Stops a task, or lets it go on.
    pub(super) fn set_stopped(&mut self, id: i32, stopped: bool) {
        let loaded = self.loaded;
        let Some(task) = self.all.get_mut(&id).filter(|task| task.stopped != stopped) else { return };
        task.stopped = stopped;
        let waits = matches!(task.doing, Doing::Waits(_) | Doing::Ended);
        if stopped {
            self.queue.retain(|queued| *queued != id);
        } else if !waits && id != loaded {
            self.queue.push_back(id);
        } else if !waits {
            // Its registers are loaded, but it does not run: it takes its turn.
            self.queue.push_back(id);
        }
    }

    /// The tasks whose wait `wanted` accepts, in the order in which they began to wait.
    pub(super) fn waiting(&self, mut wanted: impl FnMut(&Wait) -> bool) -> Vec<i32> {
        let mut found: Vec<_> = self.all.iter().filter_map(|(id, task)| Some((task.wait()?, *id))).collect();
        found.retain(|(wait, _)| wanted(wait));
        found.sort_by_key(|(wait, _)| wait.since);
        found.into_iter().map(|(_, id)| id).collect()
    }

    /// The wait of a task, to be changed.
    pub(super) fn wait_mut(&mut self, id: i32) -> Option<&mut Wait> {
        match &mut self.all.get_mut(&id)?.doing {
            Doing::Waits(wait) => Some(wait),
            _ => None,
        }
    }

    /// Ends the waits whose time has come, the earliest first.
    pub(crate) fn expire(&mut self, now: Time) {
        let mut due: Vec<_> = self
            .all
            .iter()
            .filter_map(|(id, task)| {
                let wait = task.wait()?;
                wait.deadline
                    .filter(|deadline| deadline.left(now) == 0)
                    .map(|at| (at.nanoseconds, wait.since, *id))
            })
            .collect();
        due.sort_unstable();
        due.into_iter().for_each(|(_, _, id)| self.wake(id, Why::TimedOut));
    }

    /// Gives the processor to the next task that could run, behind which the one that ran queues if it could, too; `None`
    /// if there is none.
    pub(crate) fn switch(&mut self, guest: &mut Guest<'_>, now: Time) -> Result<Option<Next>, EngineError> {
        self.begin_slice(now);
        if self.runs() && !self.queue.contains(&self.loaded) {
            self.queue.push_back(self.loaded);
        }
        let chosen = self.chance.as_mut().map_or(0, |chance| chance.below(self.queue.len()));
        let Some(next) = self.queue.remove(chosen) else { return Ok(None) };
        if next != self.loaded {
            self.load(guest, next)?;
        }
        let task = self.current_mut();
        Ok(Some(match std::mem::replace(&mut task.doing, Doing::Runs) {
            Doing::Woken(wait, Why::Signal) => Next::Interrupted(wait),
            Doing::Woken(wait, why) => Next::Call(wait.again(Some(why))),
            _ => Next::Program,
        }))
    }

    /// Exchanges the registers, and the address space.
    fn load(&mut self, guest: &mut Guest<'_>, next: i32) -> Result<(), EngineError> {
        let old = self.loaded;
        if self.current().ended() {
            self.all.remove(&old);
        } else {
            let state = State { regs: *guest.cpu.regs(), fpu: guest.cpu.fpu()? };
            self.current_mut().state = Some(Box::new(state));
        }
        self.loaded = next;
        let task = self.current_mut();
        let space = task.space;
        if let Some(state) = task.state.take() {
            guest.cpu.set_regs(&state.regs)?;
            guest.cpu.set_fpu(&state.fpu)?;
        }
        guest.enter(space);
        if let Some(left) = self.left.take() {
            guest.release_space(left);
        }
        Ok(())
    }

    /// Whether an address space goes when another task is loaded.
    pub(super) fn leaves_space(&self) -> bool {
        self.left.is_some()
    }

    /// The loaded task's process has ended: its address space goes when another one is loaded.
    pub(super) fn leave_space(&mut self, space: Id) {
        self.left = Some(space);
    }
}
