//! What is known of a task on each of the two processors: what its stretches cost, with what is done at the exit behind them.
//!
//! That is counted too, since it costs more behind an exit from KVM: serving a system call of Redis takes 48 µs there on kvm_pvm, and
//! 19 behind the software CPU's. A likely reason, not measured, is that the exit leaves the processor's translations stale. What a task does
//! at its exits is much the same on both, so the difference of the two is what the processor makes.

use crate::engine::EngineKind;

/// So many stretches are a trial.
const TRIAL: u32 = 16;
/// The other processor is better when it costs less than this part.
const BETTER: f64 = 0.85;
/// So many stretches after a trial the next one comes; twice as many after one in vain, and so on up to the last of these.
const SOONEST_TRIAL: u32 = 256;
const LATEST_TRIAL: u32 = 1 << 15;
/// A new task whose stretches cost so many exits on the software CPU is tried as soon as the first.
const CLEARLY: f64 = 4.0;
/// Costs that have changed by this factor are others.
const CHANGED: f64 = 2.0;
/// What the newest stretch counts at least, against those before it.
const NEWEST: f64 = 1.0 / 16.0;

/// What is known of a task on one processor.
#[derive(Clone, Copy)]
struct Cost {
    /// The mean cost of a stretch, with the exit behind it, in nanoseconds.
    mean: f64,
    /// Of so many of them, at most.
    stretches: u32,
    /// The same of what is done at an exit before the next stretch, for those that did not wait for anything.
    served: f64,
    servings: u32,
}

impl Cost {
    const NONE: Cost = Cost { mean: 0.0, stretches: 0, served: 0.0, servings: 0 };

    fn add(&mut self, nanoseconds: f64) {
        self.stretches = self.stretches.saturating_add(1);
        self.mean += (nanoseconds - self.mean) * NEWEST.max(1.0 / f64::from(self.stretches));
    }

    /// What the exit behind the newest stretch was served for has cost so much.
    fn add_served(&mut self, nanoseconds: f64) {
        self.servings = self.servings.saturating_add(1);
        self.served += (nanoseconds - self.served) * NEWEST.max(1.0 / f64::from(self.servings));
    }
}

/// After how many stretches a task that is new is tried on the other processor: later if that was in vain for those before it, as for
/// the commands of a shell script, which end soon.
///
/// Example: each `/bin/true` of a loop makes some hundred exits. The first are tried under KVM after 8 stretches, 16, 32, and so on; the
/// others end before.
#[derive(Clone, Copy)]
pub(super) struct Newcomers {
    wait: u32,
}

impl Newcomers {
    pub(super) const FIRST: Newcomers = Newcomers { wait: TRIAL / 2 };

    /// The next one is tried later; unless it turns out that this one was better off.
    fn tries(&mut self) {
        self.wait = (self.wait * 2).min(SOONEST_TRIAL);
    }

    fn is_better_off(&mut self) {
        *self = Newcomers::FIRST;
    }

    /// What is known of one.
    pub(super) fn habit(self) -> Habit {
        Habit { wait: self.wait, ..Habit::NEW }
    }
}

/// What is known of a task.
#[derive(Clone, Copy)]
pub(super) struct Habit {
    /// The processor on which it is at home.
    pub(super) home: EngineKind,
    /// What it costs there, and on the other one while that is tried.
    at_home: Cost,
    abroad: Cost,
    /// What a stretch cost at home when that was decided.
    decided_at: f64,
    pub(super) is_trying: bool,
    /// So many stretches until the next trial, and how many after that.
    wait: u32,
    next_wait: u32,
}

impl Habit {
    pub(super) const NEW: Habit = Habit {
        home: EngineKind::Soft,
        at_home: Cost::NONE,
        abroad: Cost::NONE,
        decided_at: 0.0,
        is_trying: false,
        wait: TRIAL / 2,
        next_wait: SOONEST_TRIAL,
    };

    /// Nothing has been decided.
    fn is_new(&self) -> bool {
        self.decided_at == 0.0
    }

    /// The processor that it is to be on.
    pub(super) fn wanted(&self) -> EngineKind {
        if self.is_trying { other(self.home) } else { self.home }
    }

    /// A stretch has cost so much, where exits from KVM cost so much.
    pub(super) fn add(&mut self, on: EngineKind, nanoseconds: f64, exit: f64, newcomers: &mut Newcomers) {
        if on != self.home {
            self.abroad.add(nanoseconds);
            if self.is_trying && (self.abroad.stretches >= TRIAL || self.is_in_vain()) {
                let (was_new, home) = (self.is_new(), self.home);
                self.decide();
                if was_new && self.home != home {
                    newcomers.is_better_off();
                }
            }
            return;
        }
        self.at_home.add(nanoseconds);
        self.wait = self.wait.saturating_sub(1);
        if self.is_new() && self.at_home.stretches >= TRIAL / 2 && self.at_home.mean > exit * CLEARLY {
            self.wait = 0;
        }
        let changed = self.at_home.mean / self.decided_at;
        if !self.is_new() && self.wait > TRIAL && !(1.0 / CHANGED..=CHANGED).contains(&changed) {
            (self.wait, self.next_wait) = (TRIAL, SOONEST_TRIAL);
            self.decided_at = self.at_home.mean;
        }
        let is_worth_it = self.home == EngineKind::Kvm || self.at_home.mean > exit;
        // A trial that could not begin yet may be worth it no more.
        if self.wait == 0 && self.is_trying != is_worth_it {
            self.is_trying = is_worth_it;
            self.abroad = Cost::NONE;
            if is_worth_it && self.is_new() {
                newcomers.tries();
            }
        }
    }

    /// What the exit behind a stretch on this processor was served for has cost so much.
    pub(super) fn add_served(&mut self, on: EngineKind, nanoseconds: f64) {
        let cost = if on == self.home { &mut self.at_home } else { &mut self.abroad };
        cost.add_served(nanoseconds);
    }

    /// What was served at exits at home, and how often.
    #[cfg(test)]
    pub(super) fn served(&self) -> (f64, u32) {
        (self.at_home.served, self.at_home.servings)
    }

    /// What a stretch costs at home and abroad, with what is done at the exit behind it where that is known of both: a task that waits
    /// at each exit tells nothing of it.
    fn compared(&self) -> [f64; 2] {
        let both = [self.at_home, self.abroad];
        let is_served = both.iter().all(|cost| cost.servings > 0);
        both.map(|cost| if is_served { cost.mean + cost.served } else { cost.mean })
    }

    /// A trial has cost more than a whole one would at home, so that it cannot come to cost less.
    fn is_in_vain(&self) -> bool {
        let [at_home, abroad] = self.compared();
        abroad * f64::from(self.abroad.stretches) > at_home * f64::from(TRIAL)
    }

    /// The trial is over.
    fn decide(&mut self) {
        self.is_trying = false;
        let [at_home, abroad] = self.compared();
        if abroad < at_home * BETTER {
            self.home = other(self.home);
            std::mem::swap(&mut self.at_home, &mut self.abroad);
            self.next_wait = SOONEST_TRIAL;
        }
        self.decided_at = self.at_home.mean;
        self.wait = self.next_wait;
        self.next_wait = (self.next_wait * 2).min(LATEST_TRIAL);
    }
}

fn other(kind: EngineKind) -> EngineKind {
    match kind {
        EngineKind::Kvm => EngineKind::Soft,
        EngineKind::Soft => EngineKind::Kvm,
    }
}
