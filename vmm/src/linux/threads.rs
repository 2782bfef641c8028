//! Threads: who they are, which of them runs, and when another one does.
//!
//! There is one processor. A thread runs until it waits, ends or yields, or until a call or machine read of its own finds
//! that its slice is over; nothing else ever takes the processor from it. All that decides, the queue and the times shown
//! to the program, is computed again at replay, so that a switch needs no record of its own.

use super::signals::ThreadSignals;
use super::wait::{Again, Wait, Why};
use super::{Guest, PID};
use crate::engine::{EngineError, Virt};
use crate::gate::Time;
use std::collections::{BTreeMap, VecDeque};
use x86::state::State;

/// How long a thread runs while others are ready, in nanoseconds of the time that it is shown.
const SLICE: u64 = 5_000_000;
/// The length of a thread's name with its zero byte.
pub(super) const NAME: usize = 16;
/// As many threads as a process may have at once.
pub(super) const LIMIT: usize = 4096;

/// What a thread is about.
#[derive(Debug)]
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

/// What Linux keeps for a thread.
pub(super) struct Thread {
    pub(super) doing: Doing,
    pub(super) signals: ThreadSignals,
    pub(super) name: [u8; NAME],
    /// Where zero is written and a futex woken when it ends; null for nowhere.
    pub(super) clear_at_end: Virt,
    /// The head of its list of robust futexes, or null.
    pub(super) robust: Virt,
    /// Its registers, while the engine has another one's.
    state: Option<Box<State>>,
}

impl Thread {
    pub(super) fn new(name: [u8; NAME]) -> Thread {
        let signals = ThreadSignals::default();
        Thread { doing: Doing::Runs, signals, name, clear_at_end: 0, robust: 0, state: None }
    }

    /// What it waits for.
    pub(super) fn wait(&self) -> Option<&Wait> {
        match &self.doing {
            Doing::Waits(wait) => Some(wait),
            _ => None,
        }
    }
}

/// What the thread that has just got the processor does next.
#[derive(Debug)]
pub(crate) enum Next {
    /// It goes on in the program.
    Program,
    /// Its call is served again.
    Call(Again),
    /// A signal came while its call waited: see [`super::signals::interrupt`].
    Interrupted(Wait),
}

/// All threads of the process.
pub(crate) struct Threads {
    all: BTreeMap<i32, Thread>,
    /// Whose registers the engine has.
    loaded: i32,
    /// Those that could run, but for the one whose registers are loaded; the next one first.
    queue: VecDeque<i32>,
    last_id: i32,
    /// How many were ever started, the first included.
    started: u64,
    /// When the slice of the one that runs began, by the monotonic clock.
    since: u64,
    /// It gives the processor away at the end of its call.
    yields: bool,
    /// Counts waits, so that those for the same are woken in the order in which they began.
    waits: u64,
}

impl Threads {
    /// The first thread alone.
    pub(super) fn new(name: [u8; NAME]) -> Threads {
        Threads {
            all: BTreeMap::from([(PID, Thread::new(name))]),
            loaded: PID,
            queue: VecDeque::new(),
            last_id: PID,
            started: 1,
            since: 0,
            yields: false,
            waits: 0,
        }
    }

    /// Whether there is one thread only: then calls may wait in the host.
    pub(crate) fn alone(&self) -> bool {
        self.all.len() == 1
    }

    /// How many threads were ever started, the first included.
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    /// Who runs, or ran last.
    pub(crate) fn id(&self) -> i32 {
        self.loaded
    }

    /// The thread that runs, or ran last.
    pub(super) fn current(&self) -> &Thread {
        self.all.get(&self.loaded).expect("a thread stays while its registers are loaded")
    }

    /// The same, to be changed.
    pub(super) fn current_mut(&mut self) -> &mut Thread {
        self.all.get_mut(&self.loaded).expect("a thread stays while its registers are loaded")
    }

    /// A thread that has not ended.
    pub(super) fn get_mut(&mut self, id: i32) -> Option<&mut Thread> {
        self.all.get_mut(&id).filter(|thread| !matches!(thread.doing, Doing::Ended))
    }

    /// Does something to each thread.
    pub(super) fn each(&mut self, act: impl FnMut(&mut Thread)) {
        self.all.values_mut().for_each(act);
    }

    /// Those that have not ended, by id.
    pub(super) fn living(&self) -> impl Iterator<Item = (i32, &Thread)> {
        self.all.iter().filter(|(_, thread)| !matches!(thread.doing, Doing::Ended)).map(|(id, it)| (*id, it))
    }

    /// The other threads with their registers, by id.
    pub(crate) fn others(&self) -> impl Iterator<Item = (i32, &State)> {
        self.living().filter_map(|(id, thread)| Some((id, &**thread.state.as_ref()?)))
    }

    /// Whether the loaded thread is in the program, or about to be.
    pub(crate) fn runs(&self) -> bool {
        matches!(self.current().doing, Doing::Runs)
    }

    /// Whether none can run until something comes from outside, or time passes.
    pub(crate) fn all_wait(&self) -> bool {
        !self.runs() && self.queue.is_empty()
    }

    /// Whether another one could run.
    pub(crate) fn any_ready(&self) -> bool {
        !self.queue.is_empty()
    }

    /// From when on one of those that do not run could, by the monotonic clock: zero if one could now.
    pub(crate) fn due(&self) -> Option<u64> {
        if self.any_ready() {
            return Some(0);
        }
        let deadlines = self.all.values().filter_map(|thread| thread.wait()?.deadline);
        deadlines.filter(|deadline| !deadline.real).map(|deadline| deadline.nanoseconds).min()
    }

    /// Whoever runs now has its share from here on.
    pub(crate) fn begin_slice(&mut self, now: Time) {
        self.yields = false;
        self.since = now.monotonic;
    }

    /// Whether the one that runs has had its share.
    pub(crate) fn slice_is_over(&self, now: Time) -> bool {
        self.yields || now.monotonic.saturating_sub(self.since) >= SLICE
    }

    /// Gives the processor away when the call is served.
    pub(super) fn yield_now(&mut self) {
        self.yields = true;
    }

    /// A new thread, which begins with this state when its turn comes; `None` if there are too many.
    pub(super) fn start(&mut self, state: State, now: Time) -> Option<i32> {
        if self.all.len() >= LIMIT {
            return None;
        }
        if self.alone() {
            self.begin_slice(now);
        }
        let creator = self.current();
        let mut thread = Thread::new(creator.name);
        thread.signals.blocked = creator.signals.blocked;
        thread.state = Some(Box::new(state));
        self.last_id += 1;
        self.started += 1;
        self.all.insert(self.last_id, thread);
        self.queue.push_back(self.last_id);
        Some(self.last_id)
    }

    /// Ends the thread that runs; false if it is the last, with which the process ends.
    pub(super) fn end(&mut self) -> bool {
        let others = self.living().count() > 1;
        if others {
            self.current_mut().doing = Doing::Ended;
        }
        others
    }

    /// Makes the thread that runs wait.
    pub(super) fn park(&mut self, mut wait: Wait) {
        self.waits += 1;
        wait.since = self.waits;
        self.current_mut().doing = Doing::Waits(wait);
    }

    /// Ends the wait of a thread; nothing if it does not wait.
    pub(super) fn wake(&mut self, id: i32, why: Why) {
        let Some(thread) = self.all.get_mut(&id) else { return };
        match std::mem::replace(&mut thread.doing, Doing::Runs) {
            Doing::Waits(wait) => {
                thread.doing = Doing::Woken(wait, why);
                self.queue.push_back(id);
            }
            other => thread.doing = other,
        }
    }

    /// The threads whose wait `wanted` accepts, in the order in which they began to wait.
    pub(super) fn waiting(&self, mut wanted: impl FnMut(&Wait) -> bool) -> Vec<i32> {
        let mut found: Vec<_> =
            self.all.iter().filter_map(|(id, thread)| Some((thread.wait()?, *id))).collect();
        found.retain(|(wait, _)| wanted(wait));
        found.sort_by_key(|(wait, _)| wait.since);
        found.into_iter().map(|(_, id)| id).collect()
    }

    /// The futex waits of threads, to be changed.
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
            .filter_map(|(id, thread)| {
                let wait = thread.wait()?;
                wait.deadline
                    .filter(|deadline| deadline.left(now) == 0)
                    .map(|at| (at.nanoseconds, wait.since, *id))
            })
            .collect();
        due.sort_unstable();
        due.into_iter().for_each(|(_, _, id)| self.wake(id, Why::TimedOut));
    }

    /// Gives the processor to the next thread that could run, behind which the one that ran queues if it could, too; `None`
    /// if there is none.
    pub(crate) fn switch(&mut self, guest: &mut Guest<'_>, now: Time) -> Result<Option<Next>, EngineError> {
        self.begin_slice(now);
        if self.runs() {
            self.queue.push_back(self.loaded);
        }
        let Some(next) = self.queue.pop_front() else { return Ok(None) };
        if next != self.loaded {
            self.load(guest, next)?;
        }
        let thread = self.current_mut();
        Ok(Some(match std::mem::replace(&mut thread.doing, Doing::Runs) {
            Doing::Woken(wait, Why::Signal) => Next::Interrupted(wait),
            Doing::Woken(wait, why) => Next::Call(wait.again(Some(why))),
            _ => Next::Program,
        }))
    }

    /// Exchanges the registers.
    fn load(&mut self, guest: &mut Guest<'_>, next: i32) -> Result<(), EngineError> {
        let old = self.loaded;
        if matches!(self.current().doing, Doing::Ended) {
            self.all.remove(&old);
        } else {
            let state = State { regs: *guest.engine.regs(), fpu: guest.engine.fpu()? };
            self.current_mut().state = Some(Box::new(state));
        }
        self.loaded = next;
        if let Some(state) = self.current_mut().state.take() {
            guest.engine.set_regs(&state.regs)?;
            guest.engine.set_fpu(&state.fpu)?;
        }
        Ok(())
    }
}
