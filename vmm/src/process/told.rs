//! When the vDSO asks for the time before its turn.
//!
//! The vDSO answers from the time page, which is written at exits alone, so that a replay answers the same. A program that
//! computes for long without an exit would be told the time of before: its measurement of a computation would come to
//! nanoseconds. So while recording, once the page is old, the next call is made real: by a word of the page that has the tick
//! from which on calls are real ([`crate::linux::load::vdso`]). The journal has the tick ([`Event::Clock`]), and replay puts it into the
//! page where the segment begins. The word is in the page only while the processor runs, so that no digest sees it.
//!
//! Example: a program asks for the time (tick 1), computes for a second, and asks again. After a millisecond the [`Watch`] kicks
//! the processor back, and it goes on with the word set; the second call makes the system call, and `Event::Clock(2)` is
//! journaled in place of `Event::Syscall(228)`.

use super::{Process, ProcessError};
use crate::engine::Interrupter;
#[cfg(doc)]
use crate::gate::Event;
use crate::gate::Time;
use crate::linux::load::vdso::CALLS_PER_EXIT;
use crate::memory::layout::VDSO;
use crate::ram::PAGE;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// From this age on, in nanoseconds, what the time page says is old: where a kick brings the processor back, and where a count
/// does, which costs nearly nothing.
const OLD: u64 = 1_000_000;
const OLD_WHERE_COUNTED: u64 = 100_000;
/// So many instructions of the software CPU take that long, or longer.
const COUNTED: u64 = 100_000;
/// A kick that the processor has not taken is repeated after this, and then after twice as long, up to [`RARELY`].
const SOON: Duration = Duration::from_micros(200);
const RARELY: Duration = Duration::from_millis(10);

/// When the vDSO asks for the time, in the segment in which the program is.
#[derive(Default)]
pub(super) struct Told {
    /// The tick from which on its calls are real, if that is before its turn.
    at: Option<u64>,
    /// While recording: sees that the program computes for long.
    watch: Option<Watch>,
}

impl Process {
    /// Finds out whether the vDSO is to ask before its turn, from here on: while recording by the clock, while replaying by the
    /// journal.
    pub(super) fn find_when_to_tell(&mut self, ends_in_preemption: bool) -> Result<(), ProcessError> {
        self.pace.told.at = if ends_in_preemption {
            None
        } else if self.gate.replaying() {
            self.gate.clock()?
        } else {
            if self.pace.told.watch.is_none() {
                self.pace.told.watch = Some(Watch::new(self.machine.cpu.interrupter()));
            }
            let age = Time::now().monotonic.saturating_sub(self.kernel.now().monotonic);
            let old = if self.machine.cpu.counters().is_some() { OLD_WHERE_COUNTED } else { OLD };
            (age >= old).then_some(0)
        };
        Ok(())
    }

    /// In how many instructions it is to be found out again, on a processor that counts.
    pub(super) fn told_patience(&self) -> Option<u64> {
        (self.pace.told.watch.is_some() && self.pace.told.at.is_none()).then_some(COUNTED)
    }

    /// The processor is about to run.
    pub(super) fn told_begins(&mut self) -> Result<(), ProcessError> {
        if let Some(tick) = self.pace.told.at {
            self.kernel.clock_is_due_at(&mut self.machine.memory, tick)?;
        } else if let Some(watch) = &self.pace.told.watch {
            watch.begins();
        }
        Ok(())
    }

    /// The processor has run.
    pub(super) fn told_ends(&mut self) -> Result<(), ProcessError> {
        if self.pace.told.at.is_some() {
            self.kernel.clock_is_due_at(&mut self.machine.memory, CALLS_PER_EXIT)?;
        } else if let Some(watch) = &self.pace.told.watch {
            watch.ends();
        }
        Ok(())
    }

    /// The tick, if the system call at which the program stands is one that the vDSO may have made before its turn.
    pub(super) fn asks_for_time(&mut self) -> Result<Option<u64>, ProcessError> {
        let rip = self.machine.cpu.regs().rip;
        if self.pace.told.at.is_none() || !(VDSO..VDSO + PAGE).contains(&rip) {
            return Ok(None);
        }
        self.kernel.ticks(&mut self.machine.memory).map(Some)
    }
}

/// A thread that kicks the processor once when it has run for [`OLD`] or longer without an exit. It sleeps for as long as nothing
/// runs, or what runs has been kicked.
struct Watch {
    shared: Arc<Shared>,
    thread: Option<Thread>,
}

#[derive(Default)]
struct Shared {
    /// How often the processor has begun or ended to run: odd while it runs.
    turns: AtomicU64,
    /// The thread sleeps until it is woken.
    sleeps: AtomicBool,
    /// The program is over.
    over: AtomicBool,
}

impl Watch {
    fn new(interrupter: Interrupter) -> Watch {
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let watch = move || seen.watch(&interrupter);
        let spawned = thread::Builder::new().name("clock".to_owned()).spawn(watch);
        // Without it the time that the program is told in a long computation is that of before.
        let thread = spawned
            .inspect_err(|error| tracing::warn!("the clock is old where the program computes: {error}"))
            .ok()
            .map(|handle| handle.thread().clone());
        Watch { shared, thread }
    }

    fn begins(&self) {
        self.shared.turns.fetch_add(1, Ordering::SeqCst);
        if self.shared.sleeps.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    fn ends(&self) {
        self.shared.turns.fetch_add(1, Ordering::SeqCst);
    }

    fn wake(&self) {
        self.shared.sleeps.store(false, Ordering::SeqCst);
        self.thread.iter().for_each(Thread::unpark);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.wake();
    }
}

impl Shared {
    fn watch(&self, interrupter: &Interrupter) {
        while !self.over.load(Ordering::SeqCst) {
            let turn = self.turns.load(Ordering::SeqCst);
            thread::sleep(Duration::from_nanos(OLD));
            if self.is(turn) {
                if turn % 2 == 1 {
                    self.kick(turn, interrupter);
                }
                self.sleep(turn);
            }
        }
    }

    /// Whether nothing has begun or ended since this turn.
    fn is(&self, turn: u64) -> bool {
        self.turns.load(Ordering::SeqCst) == turn
    }

    /// Kicks, and again where the kick was not taken: KVM may have to go on when it comes.
    fn kick(&self, turn: u64, interrupter: &Interrupter) {
        let mut pause = SOON;
        interrupter.kick();
        while interrupter.is_kicked() && self.is(turn) {
            thread::sleep(pause);
            pause = (pause * 2).min(RARELY);
            if interrupter.is_kicked() && self.is(turn) {
                interrupter.kick();
            }
        }
    }

    /// Sleeps until something begins.
    fn sleep(&self, turn: u64) {
        self.sleeps.store(true, Ordering::SeqCst);
        while self.sleeps.load(Ordering::SeqCst) && self.is(turn) && !self.over.load(Ordering::SeqCst) {
            thread::park();
        }
        self.sleeps.store(false, Ordering::SeqCst);
    }
}
