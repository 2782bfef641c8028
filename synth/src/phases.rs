//! Where the time of a synthesis goes.
//!
//! The solver is asked from the search, from the choice of addresses and from the judge alike, so a phase is not a stretch
//! of the program but what a thread is at: each moment counts for the innermost phase alone, and all together are the
//! whole time.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// What a thread can be at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Going from one instruction to those before it, and propagation.
    Search,
    /// Asking the solver.
    Solver,
    /// Choosing addresses that nothing determines.
    Addresses,
    /// Making a start of a path, and running it forward on the engines.
    Certificates,
    /// Finding out what is forced.
    Judging,
    /// Turning single bits of a core that cannot be.
    Flips,
}

impl Phase {
    /// All of them.
    pub const ALL: [Phase; 6] =
        [Phase::Search, Phase::Solver, Phase::Addresses, Phase::Certificates, Phase::Judging, Phase::Flips];

    /// In tables and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Phase::Search => "search",
            Phase::Solver => "solver",
            Phase::Addresses => "addresses",
            Phase::Certificates => "certificates",
            Phase::Judging => "judging",
            Phase::Flips => "flips",
        }
    }
}

/// How long each took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Phases([Duration; 6]);

impl Phases {
    /// What a phase took.
    #[must_use]
    pub fn of(&self, phase: Phase) -> Duration {
        self.0[phase as usize]
    }

    /// What this thread has taken so far.
    #[must_use]
    pub fn so_far() -> Phases {
        SPENT.get()
    }

    /// What it took since then.
    #[must_use]
    pub fn since(self, before: Phases) -> Phases {
        Phases(std::array::from_fn(|n| self.0[n].saturating_sub(before.0[n])))
    }
}

thread_local! {
    static SPENT: Cell<Phases> = const { Cell::new(Phases([Duration::ZERO; 6])) };
    static NOW: Cell<Option<(Phase, Instant)>> = const { Cell::new(None) };
}

/// Does `work`, whose time counts for `phase`.
pub(crate) fn during<T>(phase: Phase, work: impl FnOnce() -> T) -> T {
    let _within = Within(enter(Some(phase)));
    work()
}

/// Goes back to the outer phase, whatever becomes of the inner one.
struct Within(Option<Phase>);

impl Drop for Within {
    fn drop(&mut self) {
        enter(self.0);
    }
}

/// Ends what this thread is at, and begins `phase`; gives what it was at.
fn enter(phase: Option<Phase>) -> Option<Phase> {
    let now = Instant::now();
    let before = NOW.replace(phase.map(|phase| (phase, now)));
    if let Some((phase, since)) = before {
        let mut spent = SPENT.get();
        spent.0[phase as usize] += now - since;
        SPENT.set(spent);
    }
    before.map(|(phase, _)| phase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;

    #[test]
    fn a_moment_counts_for_the_innermost_phase() {
        let (before, begin) = (Phases::so_far(), Instant::now());
        let step = Duration::from_millis(20);
        during(Phase::Search, || {
            sleep(step);
            during(Phase::Solver, || sleep(2 * step));
            sleep(step);
        });
        let (spent, whole) = (Phases::so_far().since(before), begin.elapsed());
        assert!(spent.of(Phase::Search) >= 2 * step && spent.of(Phase::Solver) >= 2 * step, "{spent:?}");
        assert_eq!(spent.of(Phase::Judging), Duration::ZERO);
        let sum: Duration = Phase::ALL.iter().map(|&phase| spent.of(phase)).sum();
        assert!(sum <= whole, "{spent:?} in {whole:?}");
    }
}
