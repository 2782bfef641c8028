//! Which processor a task runs on, where KVM and the software CPU take turns: the one that costs less.
//!
//! What lies between two exits is a stretch. Under KVM it takes as long as natively, and the exit behind it some microseconds
//! (on kvm_pvm, 20 to 150); on the software CPU an exit costs nothing to speak of, and the stretch takes several times as long.
//! So there is a length at which both cost the same. A task whose stretches are shorter runs on the software CPU, one whose are
//! longer under KVM, with a factor in between at which it stays where it is. A stretch that becomes very long goes on
//! under KVM in its midst; the way back is where a segment begins, since nobody counts what KVM retires.
//!
//! Example: exits cost 30 µs, and the software CPU retires 0.3 instructions in a nanosecond. Both cost the same at 10,600
//! instructions. A shell that makes a system call every 2,000 stays on the software CPU; `gzip`, which has some million
//! between two reads, is under KVM from its 85,000th instruction on.

use crate::engine::kvm::Waiting;
use crate::engine::{EngineKind, Exit};
use std::collections::BTreeMap;
use std::time::Duration;

/// Instructions that a processor retires in a nanosecond, about.
const NATIVE: f64 = 2.0;
/// A task changes over when its stretches are longer than the break-even by this factor, or shorter.
const HYSTERESIS: f64 = 2.0;
/// A stretch of so many times the break-even goes on under KVM; longer ones count as so long.
const PATIENCE: f64 = 8.0;
/// The same where turns do not go by cost.
const PATIENCE_BY_EXITS: f64 = 3_000.0;
/// What the newest stretch counts against those before it.
const NEWEST: f64 = 1.0 / 8.0;
/// The cost of an exit before one was seen, in nanoseconds.
const EXIT: f64 = 30_000.0;
/// By how much an exit may cost more than was believed, at each that did; and more than the cheapest, at all.
const DEARER: f64 = 1.0 + 1.0 / 1024.0;
const DEAREST: f64 = 8.0;
/// The speed of the software CPU is that over this time, in nanoseconds, before which it is not known.
const SPEED_OVER: f64 = 20e6;
/// The habits of more tasks than this are forgotten.
const MOST_TASKS: usize = 4096;

/// What is known of both processors, and of the tasks.
pub(super) struct Choice {
    /// KVM, as long as no task has needed more of it.
    pub(super) waiting: Option<Waiting>,
    /// The cost of an exit, in nanoseconds.
    exit: f64,
    /// That of the cheapest.
    cheapest: f64,
    /// Instructions on the software CPU, and the nanoseconds that they took: the newest.
    retired: f64,
    took: f64,
    /// The length of a task's stretches, in instructions.
    habits: BTreeMap<i32, f64>,
    /// The length of the stretch that has not ended.
    stretch: f64,
    /// How long each ran: KVM, and the software CPU.
    ran: [Duration; 2],
    /// They take turns after so many exits, whatever they cost.
    every: Option<u32>,
    exits: u32,
}

impl Choice {
    pub(super) fn new(waiting: Waiting) -> Choice {
        Choice {
            every: waiting.takes_turns_every(),
            exits: 0,
            waiting: Some(waiting),
            exit: EXIT,
            cheapest: EXIT,
            retired: 0.3 * SPEED_OVER,
            took: SPEED_OVER,
            habits: BTreeMap::new(),
            stretch: 0.0,
            ran: [Duration::ZERO; 2],
        }
    }

    /// The length of a stretch that costs the same on both, in instructions.
    fn break_even(&self) -> f64 {
        let saved = self.took / self.retired - 1.0 / NATIVE;
        if saved > 0.0 { self.exit / saved } else { f64::INFINITY }
    }

    /// The processor for a task that stands on this one.
    pub(super) fn wanted(&self, task: i32, now: EngineKind) -> EngineKind {
        if let Some(every) = self.every {
            let is_late = now == EngineKind::Soft && self.stretch >= PATIENCE_BY_EXITS;
            let for_kvm =
                is_late || now == EngineKind::Kvm && self.stretch > 0.0 || self.exits / every % 2 == 1;
            return if for_kvm { EngineKind::Kvm } else { EngineKind::Soft };
        }
        let (even, habit) = (self.break_even(), self.habits.get(&task).copied().unwrap_or(0.0));
        match now {
            EngineKind::Soft if self.stretch >= even * PATIENCE || habit > even * HYSTERESIS => {
                EngineKind::Kvm
            }
            EngineKind::Kvm if habit < even / HYSTERESIS => EngineKind::Soft,
            now => now,
        }
    }

    /// How many more instructions the software CPU may execute of this stretch.
    pub(super) fn patience(&self) -> u64 {
        let whole = if self.every.is_some() { PATIENCE_BY_EXITS } else { self.break_even() * PATIENCE };
        let left = whole - self.stretch;
        // What is infinite becomes the largest number.
        left.max(1.0).ceil() as u64
    }

    /// A task has run on a processor, which retired so much if it counts.
    pub(super) fn ran(&mut self, task: i32, on: EngineKind, retired: u64, took: Duration, exit: &Exit) {
        let (nanoseconds, retired) = (took.as_nanos() as f64, retired as f64);
        let has_ended = !matches!(exit, Exit::Budget | Exit::Interrupted | Exit::Kicked | Exit::Differing);
        match on {
            EngineKind::Soft => {
                self.ran[1] += took;
                self.stretch += retired;
                (self.retired, self.took) = (self.retired + retired, self.took + nanoseconds);
                if self.took > 2.0 * SPEED_OVER {
                    (self.retired, self.took) = (self.retired / 2.0, self.took / 2.0);
                }
            }
            EngineKind::Kvm => {
                self.ran[0] += took;
                if has_ended {
                    self.cheapest = self.cheapest.min(nanoseconds);
                    self.exit = nanoseconds.min(self.exit * DEARER).min(self.cheapest * DEAREST);
                }
                self.stretch += (nanoseconds - self.exit).max(0.0) * NATIVE;
            }
        }
        if matches!(exit, Exit::Differing) {
            self.stretch = f64::INFINITY;
        }
        if has_ended {
            self.exits = self.exits.wrapping_add(1);
            let length = std::mem::take(&mut self.stretch).min(self.break_even() * PATIENCE);
            if self.habits.len() > MOST_TASKS {
                self.habits.clear();
            }
            let habit = self.habits.entry(task).or_default();
            *habit += (length - *habit) * NEWEST;
        }
    }

    /// Whether KVM has run, and if so how long each of both: KVM, and the software CPU.
    pub(super) fn shares(&self) -> Option<[Duration; 2]> {
        self.waiting.is_none().then_some(self.ran)
    }

    /// What is known, for people.
    pub(super) fn describe(&self) -> String {
        let speed = self.retired / self.took;
        format!(
            "an exit from KVM costs {:.1} us, the software CPU retires {speed:.2} instructions in a nanosecond: break-even at \
             {:.0} instructions",
            self.exit / 1e3,
            self.break_even(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: i32 = 1;

    /// A host whose exits cost 30 µs.
    fn choice() -> Choice {
        let mut choice = Choice {
            waiting: None,
            exit: EXIT,
            cheapest: EXIT,
            retired: 0.3 * SPEED_OVER,
            took: SPEED_OVER,
            habits: BTreeMap::new(),
            stretch: 0.0,
            ran: [Duration::ZERO; 2],
            every: None,
            exits: 0,
        };
        assert!((10_000.0..11_000.0).contains(&choice.break_even()), "{}", choice.describe());
        choice.ran(TASK, EngineKind::Kvm, 0, Duration::from_micros(30), &Exit::Syscall);
        choice
    }

    /// So many stretches of so many instructions on the software CPU.
    fn on_soft(choice: &mut Choice, times: usize, retired: u64) {
        for _ in 0..times {
            let took = Duration::from_nanos(retired * 10 / 3);
            choice.ran(TASK, EngineKind::Soft, retired, took, &Exit::Syscall);
        }
    }

    #[test]
    fn short_stretches_stay_on_the_software_cpu_and_long_ones_go_to_kvm() {
        let mut choice = choice();
        on_soft(&mut choice, 100, 2_000);
        assert_eq!(choice.wanted(TASK, EngineKind::Soft), EngineKind::Soft);
        assert_eq!(choice.wanted(TASK, EngineKind::Kvm), EngineKind::Soft);
        on_soft(&mut choice, 100, 40_000);
        assert_eq!(choice.wanted(TASK, EngineKind::Soft), EngineKind::Kvm);
        assert_eq!(choice.wanted(TASK + 1, EngineKind::Soft), EngineKind::Soft, "another task");
    }

    #[test]
    fn between_the_two_a_task_stays_where_it_is() {
        let mut choice = choice();
        on_soft(&mut choice, 100, 10_000);
        for kind in [EngineKind::Soft, EngineKind::Kvm] {
            assert_eq!(choice.wanted(TASK, kind), kind);
        }
    }

    #[test]
    fn a_very_long_stretch_goes_to_kvm_in_its_midst_and_comes_back_soon() {
        let mut choice = choice();
        on_soft(&mut choice, 100, 1_000);
        let patience = choice.patience();
        choice.ran(TASK, EngineKind::Soft, patience, Duration::from_micros(280), &Exit::Budget);
        assert_eq!(choice.wanted(TASK, EngineKind::Soft), EngineKind::Kvm);
        choice.ran(TASK, EngineKind::Kvm, 0, Duration::from_millis(50), &Exit::Syscall);
        let exits = (0..100).take_while(|_| {
            choice.ran(TASK, EngineKind::Kvm, 0, Duration::from_micros(31), &Exit::Syscall);
            choice.wanted(TASK, EngineKind::Kvm) == EngineKind::Kvm
        });
        assert!((1..30).contains(&exits.count()));
    }

    #[test]
    fn cheap_exits_make_everything_run_under_kvm() {
        let mut choice = choice();
        choice.ran(TASK, EngineKind::Kvm, 0, Duration::from_nanos(1_500), &Exit::Syscall);
        on_soft(&mut choice, 100, 2_000);
        assert_eq!(choice.wanted(TASK, EngineKind::Soft), EngineKind::Kvm);
    }
}
