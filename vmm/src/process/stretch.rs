//! Notices that the processor has run for long without an exit.
//!
//! Example: with a millisecond for long, a program that computes for a second is kicked once, after one to two milliseconds. One
//! that makes a system call every 100 µs never is, and costs two counts a call.

use super::kicker::{RARELY, SOON};
use crate::engine::Interrupter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// A thread that kicks the processor once when it has run for a time without an exit. It sleeps for as long as nothing
/// runs, or what runs has been kicked.
pub(super) struct StretchWatch {
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

impl StretchWatch {
    /// `long` is that time, in nanoseconds.
    pub(super) fn new(long: u64, interrupter: Interrupter) -> StretchWatch {
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let watch = move || seen.watch(Duration::from_nanos(long), &interrupter);
        let spawned = thread::Builder::new().name("clock".to_owned()).spawn(watch);
        // Without it the time that the program is told in a long computation is that of before.
        let thread = spawned
            .inspect_err(|error| tracing::warn!("the clock is old where the program computes: {error}"))
            .ok()
            .map(|handle| handle.thread().clone());
        StretchWatch { shared, thread }
    }

    /// The processor is about to run.
    pub(super) fn begins(&self) {
        self.shared.turns.fetch_add(1, Ordering::SeqCst);
        if self.shared.sleeps.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// It has come back.
    pub(super) fn ends(&self) {
        self.shared.turns.fetch_add(1, Ordering::SeqCst);
    }

    fn wake(&self) {
        self.shared.sleeps.store(false, Ordering::SeqCst);
        self.thread.iter().for_each(Thread::unpark);
    }
}

impl Drop for StretchWatch {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.wake();
    }
}

impl Shared {
    fn watch(&self, long: Duration, interrupter: &Interrupter) {
        while !self.over.load(Ordering::SeqCst) {
            let turn = self.turns.load(Ordering::SeqCst);
            thread::sleep(long);
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
