//! Which processor a task runs on, where KVM and the software CPU take turns: the one that costs less.
//!
//! What lies between two exits is a stretch. Under KVM it takes as long as natively, and the exit behind it some microseconds
//! (on kvm_pvm, 20 to 150); on the software CPU an exit costs little, and the stretch takes several times as long. How much that is
//! depends on what the stretch does: on fresh pages, say, or on code that was never run. So nothing is computed from
//! lengths: both are tried, with what is done at their exits ([`habit`]). A task begins on the software CPU. When its stretches cost more there than an exit from KVM alone would, a
//! few run under KVM, and it stays where they cost less. After some hundred stretches the other one is tried again, later
//! and later if that was in vain, and soon when the costs have changed.
//!
//! A stretch that becomes very long goes on under KVM in its midst; the way back is where a segment begins, since nobody counts
//! what KVM retires. KVM's virtual CPU takes a while to be made, and is not before the software CPU has run about as long: a
//! program of a few milliseconds does without.
//!
//! Example: exits cost 30 µs. A shell whose system calls are 8 µs apart on the software CPU never sees KVM. `gzip`, which computes for
//! milliseconds between two reads, goes over in its first long stretch, and is under KVM from its ninth read on.

mod habit;

use crate::engine::kvm::Waiting;
use crate::engine::{EngineKind, Exit};
use habit::{Habit, Newcomers};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The cost of an exit before one was seen, in nanoseconds.
const EXIT: f64 = 30_000.0;
/// By how much an exit may cost more than was believed, at each that did; and more than the cheapest, at all.
const DEARER: f64 = 1.0 + 1.0 / 1024.0;
const DEAREST: f64 = 8.0;
/// A stretch on the software CPU that has cost so many exits goes on under KVM.
const PATIENCE: f64 = 8.0;
/// So long the software CPU runs before KVM's virtual CPU is made, in nanoseconds: some times what making it takes (1 to 3 ms on
/// kvm_pvm), since each address space costs KVM anew.
const MAKING: f64 = 12e6;
/// A stretch that costs more than so many exits counts as so many.
const LONGEST: f64 = 16.0;
/// The speed of the software CPU is that over this time, in nanoseconds.
const SPEED_OVER: f64 = 20e6;
/// What tests call a long stretch, in instructions.
const LONG_FOR_TESTS: u64 = 3_000;
/// The habits of more tasks than this are forgotten.
const MOST_TASKS: usize = 4096;

/// What is known of both processors, and of the tasks.
pub(super) struct Choice {
    /// KVM, as long as no task has needed more of it.
    waiting: Option<Waiting>,
    /// Its virtual CPU is there.
    is_made: bool,
    /// The cost of an exit, in nanoseconds; that of the cheapest.
    exit: f64,
    cheapest: f64,
    /// Instructions on the software CPU, and the nanoseconds that they took: the newest.
    retired: f64,
    took: f64,
    habits: BTreeMap<i32, Habit>,
    newcomers: Newcomers,
    /// What the stretch has cost that has not ended, in nanoseconds; and that KVM is to go on with it.
    stretch: f64,
    for_kvm: bool,
    /// Where it began, whose it is, and where it has come to.
    began_on: EngineKind,
    task: i32,
    on: EngineKind,
    /// When the newest stretch ended, until it is known what came of it.
    ended_at: Option<Instant>,
    /// How long each ran: KVM, and the software CPU.
    ran: [Duration; 2],
    /// They take turns after so many exits, whatever they cost.
    every: Option<u32>,
    exits: u32,
    /// The task is to be on the software CPU, whatever it costs there.
    counts_instead: bool,
}

impl Choice {
    pub(super) fn new(waiting: Waiting) -> Choice {
        let every = waiting.takes_turns_every();
        Choice { waiting: Some(waiting), is_made: false, ..Choice::with(every) }
    }

    fn with(every: Option<u32>) -> Choice {
        Choice {
            waiting: None,
            is_made: true,
            exit: EXIT,
            cheapest: EXIT,
            retired: 0.3 * SPEED_OVER,
            took: SPEED_OVER,
            habits: BTreeMap::new(),
            newcomers: Newcomers::FIRST,
            stretch: 0.0,
            for_kvm: false,
            began_on: EngineKind::Soft,
            task: 0,
            on: EngineKind::Soft,
            ended_at: None,
            ran: [Duration::ZERO; 2],
            every,
            exits: 0,
            counts_instead: false,
        }
    }

    /// Whether the task whose turn it is has to be on the processor that counts.
    pub(super) fn counts_instead(&mut self, instead: bool) {
        self.counts_instead = instead;
    }

    /// The processor for a task that stands on this one.
    pub(super) fn wanted(&self, task: i32, now: EngineKind) -> EngineKind {
        let is_inside = self.stretch > 0.0;
        if self.for_kvm || now == EngineKind::Kvm && is_inside {
            return EngineKind::Kvm;
        }
        if self.counts_instead {
            return EngineKind::Soft;
        }
        match self.every {
            Some(every) if self.exits / every % 2 == 1 => EngineKind::Kvm,
            Some(_) => EngineKind::Soft,
            None if self.is_too_early() => EngineKind::Soft,
            None => self.habits.get(&task).unwrap_or(&Habit::NEW).wanted(),
        }
    }

    /// How long the software CPU is to run before KVM's is made, in nanoseconds.
    fn until_made(&self) -> f64 {
        if self.is_made { 0.0 } else { (MAKING - self.ran[1].as_nanos() as f64).max(0.0) }
    }

    fn is_too_early(&self) -> bool {
        self.until_made() > 0.0
    }

    /// KVM, to have its virtual CPU made now, if it is not there.
    pub(super) fn take_waiting(&mut self) -> Option<Waiting> {
        self.is_made = true;
        self.waiting.take()
    }

    /// A segment begins: where that was not at an exit, the stretch has been cut off by a preemption.
    pub(super) fn segment_begins(&mut self) {
        if self.stretch > 0.0 {
            self.for_kvm = false;
            self.ended();
        }
    }

    /// How many more instructions the software CPU may execute before it is asked again.
    pub(super) fn patience(&self) -> u64 {
        if self.counts_instead {
            return u64::MAX;
        }
        if self.every.is_some() {
            return LONG_FOR_TESTS;
        }
        let left = (self.exit * PATIENCE - self.stretch).max(self.until_made());
        let left = Duration::try_from_secs_f64(left / 1e9);
        let left = left.unwrap_or_default().mul_f64(self.retired / self.took);
        // A nanosecond of that is an instruction.
        u64::try_from(left.as_nanos()).unwrap_or(u64::MAX).max(1_000)
    }

    /// A stretch begins or goes on at this time: what was done at the exit before it is over.
    pub(super) fn begins(&mut self, now: Instant) {
        let Some(ended_at) = self.ended_at.take() else { return };
        let served = (now.saturating_duration_since(ended_at).as_nanos() as f64).min(self.exit * LONGEST);
        if let Some(habit) = self.habits.get_mut(&self.task) {
            habit.add_served(self.began_on, served);
        }
    }

    /// The program waits at this exit: how long that takes is not the processor's doing.
    pub(super) fn waits(&mut self) {
        self.ended_at = None;
    }

    /// A task has run on a processor until this time, which retired so much if it counts.
    pub(super) fn ran(
        &mut self,
        task: i32,
        on: EngineKind,
        retired: u64,
        (took, until): (Duration, Instant),
        exit: &Exit,
    ) {
        let nanoseconds = took.as_nanos() as f64;
        let has_ended =
            !matches!(exit, Exit::Budget | Exit::Seen | Exit::Interrupted | Exit::Kicked | Exit::Differing);
        if self.stretch == 0.0 {
            self.began_on = on;
        }
        (self.task, self.on) = (task, on);
        self.stretch += nanoseconds;
        match on {
            EngineKind::Soft => {
                self.ran[1] += took;
                self.retired += retired as f64;
                self.took += nanoseconds;
                if self.took > 2.0 * SPEED_OVER {
                    (self.retired, self.took) = (self.retired / 2.0, self.took / 2.0);
                }
                let is_long = match self.every {
                    Some(_) => matches!(exit, Exit::Budget) && retired >= LONG_FOR_TESTS,
                    None => self.stretch >= self.exit * PATIENCE && !self.is_too_early(),
                };
                let is_long = is_long && !self.counts_instead;
                self.for_kvm = !has_ended && (is_long || matches!(exit, Exit::Differing));
            }
            EngineKind::Kvm => {
                self.ran[0] += took;
                self.for_kvm = false;
                if has_ended {
                    self.cheapest = self.cheapest.min(nanoseconds);
                    self.exit = nanoseconds.min(self.exit * DEARER).min(self.cheapest * DEAREST);
                }
            }
        }
        if has_ended {
            self.ended();
            self.ended_at = Some(until);
        }
    }

    /// The stretch has ended.
    fn ended(&mut self) {
        self.exits = self.exits.wrapping_add(1);
        let longest = self.exit * LONGEST;
        let cost = std::mem::take(&mut self.stretch).min(longest);
        // What left the software CPU in its midst would have cost more there than anything costs under KVM.
        let cost = if self.on == self.began_on { cost } else { 2.0 * longest };
        if self.habits.len() > MOST_TASKS {
            self.habits.clear();
        }
        let newcomers = &mut self.newcomers;
        let habit = self.habits.entry(self.task).or_insert_with(|| newcomers.habit());
        habit.add(self.began_on, cost, self.exit, newcomers);
    }

    /// Whether KVM has run, and if so how long each of both: KVM, and the software CPU.
    pub(super) fn shares(&self) -> Option<[Duration; 2]> {
        self.is_made.then_some(self.ran)
    }

    /// What is known, for people.
    pub(super) fn describe(&self) -> String {
        format!(
            "an exit from KVM costs {:.1} us, the software CPU retires {:.2} instructions in a nanosecond",
            self.exit / 1e3,
            self.retired / self.took
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: i32 = 1;

    /// A host whose exits cost 30 µs, and whose software CPU is slower by this factor.
    struct Host {
        choice: Choice,
        on: EngineKind,
        slower: f64,
        /// What is done at an exit takes so many microseconds: behind KVM, and behind the software CPU.
        served: [f64; 2],
        /// The task waits at each exit.
        waits: bool,
        now: Instant,
    }

    impl Host {
        fn new(slower: f64) -> Host {
            Host {
                choice: Choice::with(None),
                on: EngineKind::Soft,
                slower,
                served: [0.0; 2],
                waits: false,
                now: Instant::now(),
            }
        }

        /// A task has so many stretches of so many native microseconds; how many of them were under KVM.
        fn run(&mut self, stretches: usize, native: f64) -> usize {
            (0..stretches).filter(|_| self.stretch(native)).count()
        }

        fn stretch(&mut self, native: f64) -> bool {
            let (choice, mut left) = (&mut self.choice, native);
            loop {
                self.on = choice.wanted(TASK, self.on);
                let micros = match self.on {
                    EngineKind::Kvm => left + 30.0,
                    EngineKind::Soft => left * self.slower,
                };
                let patience = choice.exit * PATIENCE / 1e3;
                let took = if self.on == EngineKind::Soft { micros.min(patience) } else { micros };
                left -= took / self.slower;
                let exit = if took < micros { Exit::Budget } else { Exit::Syscall };
                let ran = Duration::from_secs_f64(took / 1e6);
                choice.begins(self.now);
                self.now += ran;
                choice.ran(TASK, self.on, 1_000, (ran, self.now), &exit);
                if exit == Exit::Syscall {
                    let served = self.served[usize::from(self.on == EngineKind::Soft)];
                    self.now += Duration::from_secs_f64(served / 1e6);
                    if self.waits {
                        choice.waits();
                    }
                    return self.on == EngineKind::Kvm;
                }
            }
        }
    }

    #[test]
    fn short_stretches_never_see_kvm() {
        assert_eq!(Host::new(10.0).run(10_000, 1.0), 0);
    }

    #[test]
    fn what_costs_more_than_an_exit_tries_kvm_and_stays_where_it_is_cheaper() {
        // 50 µs on the software CPU, 35 under KVM.
        assert!(Host::new(10.0).run(1_000, 5.0) > 900);
        // 35 and 33.5: not worth the way.
        assert!(Host::new(10.0).run(10_000, 3.5) < 500);
    }

    #[test]
    fn what_is_dearer_to_serve_behind_kvm_stays_away_from_it() {
        // 50 µs on the software CPU, 35 under KVM, and then 20 and 45.
        let mut host = Host { served: [45.0, 20.0], ..Host::new(10.0) };
        assert!(host.run(10_000, 5.0) < 500);
        // As much on both changes nothing.
        let mut host = Host { served: [45.0, 45.0], ..Host::new(10.0) };
        assert!(host.run(1_000, 4.0) < 500 && host.run(1_000, 10.0) > 900);
    }

    #[test]
    fn waiting_costs_nothing() {
        let mut choice = Choice::with(None);
        let now = Instant::now();
        choice.ran(TASK, EngineKind::Soft, 1_000, (Duration::from_micros(9), now), &Exit::Syscall);
        choice.waits();
        choice.begins(now + Duration::from_secs(1));
        assert_eq!(choice.habits[&TASK].served(), (0.0, 0));
    }

    #[test]
    fn a_task_that_begins_to_wait_at_each_exit_is_compared_by_its_stretches() {
        // 35 µs on the software CPU and 33.5 under KVM: not worth the way, whatever serving cost before.
        let mut host = Host { served: [45.0, 45.0], ..Host::new(10.0) };
        host.run(50, 3.5);
        host.waits = true;
        assert!(host.run(10_000, 3.5) < 500);
    }

    #[test]
    fn long_stretches_go_to_kvm_in_their_midst_and_soon_from_the_start() {
        let mut host = Host::new(10.0);
        assert_eq!(host.run(50, 5_000.0), 50);
        assert_eq!(host.choice.habits[&TASK].home, EngineKind::Kvm);
    }

    #[test]
    fn a_program_of_some_milliseconds_does_without_kvm() {
        let mut host = Host::new(10.0);
        host.choice.is_made = false;
        assert_eq!(host.run(2, 500.0), 0);
        assert_eq!(host.choice.shares(), None);
        assert_eq!(
            host.run(50, 500.0),
            50,
            "from the midst of the stretch on in which it has run long enough"
        );
    }

    #[test]
    fn a_start_that_is_dear_has_no_kvm_made_for_the_cheap_rest() {
        let mut host = Host::new(10.0);
        host.choice.is_made = false;
        host.run(20, 10.0);
        assert!(host.choice.habits[&TASK].is_trying && host.choice.is_too_early());
        host.run(20_000, 0.1);
        assert_eq!(host.choice.shares(), None);
    }

    #[test]
    fn a_preemption_ends_a_stretch() {
        let mut host = Host::new(10.0);
        host.run(50, 5_000.0);
        let half = Duration::from_millis(2);
        host.choice.ran(TASK, EngineKind::Kvm, 0, (half, host.now), &Exit::Kicked);
        assert_eq!(host.choice.wanted(TASK + 1, EngineKind::Kvm), EngineKind::Kvm, "in its midst");
        host.choice.segment_begins();
        assert_eq!(host.choice.wanted(TASK + 1, EngineKind::Kvm), EngineKind::Soft, "another task's");
        assert_eq!(host.choice.wanted(TASK, EngineKind::Kvm), EngineKind::Kvm);
    }

    #[test]
    fn a_task_that_changes_its_ways_changes_over() {
        let mut host = Host::new(10.0);
        host.run(1_000, 500.0);
        assert!(host.run(1_000, 1.0) < 300);
        assert!(host.run(1_000, 500.0) > 900);
    }

    /// As of the commands of a shell script: a stretch of new code, short ones behind it, and then the end.
    #[test]
    fn tasks_that_end_soon_are_tried_less_and_less() {
        let (mut choice, mut now, mut under_kvm) = (Choice::with(None), Instant::now(), [0; 64]);
        for (task, tried) in (0..).zip(&mut under_kvm) {
            for n in 0..80 {
                let on = choice.wanted(task, EngineKind::Soft);
                *tried += u32::from(on == EngineKind::Kvm);
                let native = if n == 0 { 33 } else { 2 };
                let micros = if on == EngineKind::Kvm { native + 30 } else { native * 6 };
                let took = Duration::from_micros(micros);
                now += took;
                choice.ran(task, on, 1_000, (took, now), &Exit::Syscall);
            }
        }
        // A trial each, without what is told from one task to the next.
        assert_eq!((under_kvm[0], under_kvm.iter().sum::<u32>()), (16, 16), "{under_kvm:?}");
        // Where a task is clearly better off there, it is tried at once, and so are those behind it.
        for task in 100..104 {
            let mut tried = None;
            for n in 0..40 {
                let on = choice.wanted(task, EngineKind::Soft);
                if on == EngineKind::Kvm {
                    tried.get_or_insert(n);
                }
                let took = Duration::from_micros(if on == EngineKind::Kvm { 55 } else { 150 });
                now += took;
                choice.ran(task, on, 1_000, (took, now), &Exit::Syscall);
            }
            assert_eq!(tried, Some(8), "task {task}");
        }
    }

    #[test]
    fn trials_in_vain_become_rare() {
        let mut host = Host::new(10.0);
        host.run(100, 100.0);
        let soft = 100_000 - host.run(100_000, 100.0);
        assert!(soft < 400, "{soft}");
    }

    /// As of tasks that wait by looking: under KVM until they are kicked, elsewhere until that is noticed.
    #[test]
    fn a_trial_ends_when_it_cannot_pay_any_more() {
        let mut choice = Choice::with(None);
        let mut under_kvm = 0;
        for _ in 0..200 {
            let on = choice.wanted(TASK, EngineKind::Soft);
            under_kvm += u32::from(on == EngineKind::Kvm);
            let nanoseconds = if on == EngineKind::Kvm { 1_000_000 } else { 40_000 };
            let took = Duration::from_nanos(nanoseconds);
            choice.ran(TASK, on, 8_000, (took, Instant::now()), &Exit::Syscall);
        }
        assert_eq!(under_kvm, 2);
    }

    #[test]
    fn cheap_exits_leave_all_to_kvm() {
        let mut choice = Choice::with(None);
        for _ in 0..100 {
            let on = choice.wanted(TASK, EngineKind::Soft);
            let nanoseconds = if on == EngineKind::Kvm { 1_500 } else { 40_000 };
            let took = Duration::from_nanos(nanoseconds);
            choice.ran(TASK, on, 8_000, (took, Instant::now()), &Exit::Syscall);
        }
        assert_eq!(choice.wanted(TASK, EngineKind::Soft), EngineKind::Kvm);
        assert!(choice.exit < 2_000.0);
    }
}
