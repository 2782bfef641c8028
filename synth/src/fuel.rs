//! How much work synthesis may do, counted and not timed: the same core gives the same answer on any machine, whatever else it
//! is doing. A deadline only ends the work earlier.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;
use vmm::engine::Interrupter;

/// One unit is about what making one term takes; so many are about a second of a server's processor of 2024.
pub const UNITS_A_SECOND: u64 = 20_000_000;

/// The work that was done. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Fuel(Rc<Cell<u64>>);

impl Fuel {
    /// So many units more were used.
    pub fn burn(&self, units: u64) {
        self.0.set(self.0.get().saturating_add(units));
    }

    /// All that was used so far.
    #[must_use]
    pub fn burnt(&self) -> u64 {
        self.0.get()
    }
}

/// When work is to end: when its fuel is used up, at a deadline, or when somebody asks. The default is never.
#[derive(Clone, Default)]
pub struct Until {
    fuel: Fuel,
    /// It ends when so much is burnt.
    limit: Option<u64>,
    deadline: Option<Instant>,
    interrupter: Option<Interrupter>,
}

/// What ended the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The fuel was used up.
    Fuel,
    /// The deadline has passed.
    Time,
    /// It was interrupted.
    Interrupted,
}

impl Until {
    /// The end of `units` more.
    #[must_use]
    pub fn new(fuel: &Fuel, units: u64) -> Until {
        let limit = Some(fuel.burnt().saturating_add(units));
        Until { fuel: fuel.clone(), limit, deadline: None, interrupter: None }
    }

    /// The same; or this deadline, if there is one.
    #[must_use]
    pub fn with_deadline(self, deadline: Option<Instant>) -> Until {
        Until { deadline, ..self }
    }

    /// The same; or when this is raised. It is not lowered.
    #[must_use]
    pub fn with_interrupter(self, interrupter: Interrupter) -> Until {
        Until { interrupter: Some(interrupter), ..self }
    }

    /// The same, with so much of the fuel that is left: `parts` of `of`.
    #[must_use]
    pub fn share(&self, parts: u64, of: u64) -> Until {
        let limit = self.limit.map(|limit| {
            let left = limit.saturating_sub(self.fuel.burnt());
            let share = u128::from(left) * u128::from(parts) / u128::from(of);
            self.fuel.burnt() + u64::try_from(share).unwrap_or(left)
        });
        Until { limit, ..self.clone() }
    }

    /// The same, with no more than `units` from now on.
    #[must_use]
    pub fn at_most(&self, units: u64) -> Until {
        let limit = self.fuel.burnt().saturating_add(units);
        Until { limit: Some(self.limit.map_or(limit, |own| own.min(limit))), ..self.clone() }
    }

    /// The same, with at least `units` from now on, whatever was used before.
    #[must_use]
    pub fn at_least(&self, units: u64) -> Until {
        let least = self.fuel.burnt().saturating_add(units);
        Until { limit: self.limit.map(|own| own.max(least)), ..self.clone() }
    }

    /// How much fuel is left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.fuel.burnt()))
    }

    /// The deadline, if there is one.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Who counts the work.
    #[must_use]
    pub fn fuel(&self) -> &Fuel {
        &self.fuel
    }

    /// Why it is time to end, if it is.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        if self.interrupter.as_ref().is_some_and(Interrupter::is_raised) {
            Some(End::Interrupted)
        } else if self.limit.is_some_and(|limit| self.fuel.burnt() >= limit) {
            Some(End::Fuel)
        } else if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            Some(End::Time)
        } else {
            None
        }
    }

    /// Whether it is time to end.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.end().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_ends_when_its_fuel_is_used_up_at_the_deadline_or_when_somebody_asks() {
        assert!(!Until::default().is_over());
        let fuel = Fuel::default();
        let until = Until::new(&fuel, 100);
        let half = until.share(1, 2);
        fuel.burn(50);
        assert_eq!((until.end(), half.end()), (None, Some(End::Fuel)));
        assert_eq!(half.at_least(20).end(), None);
        fuel.burn(50);
        assert_eq!(until.end(), Some(End::Fuel));
        let now = Instant::now();
        assert_eq!(Until::default().with_deadline(Some(now)).end(), Some(End::Time));
        let interrupter = Interrupter::new();
        let hour = Until::default().with_deadline(Some(now + Duration::from_secs(3600)));
        let part = hour.with_interrupter(interrupter.clone()).share(1, 2);
        assert!(!part.is_over());
        interrupter.interrupt();
        assert_eq!(part.end(), Some(End::Interrupted));
    }

    #[test]
    fn a_part_takes_no_more_than_the_whole_has() {
        let fuel = Fuel::default();
        let whole = Until::new(&fuel, 100);
        let part = whole.at_most(1000);
        fuel.burn(100);
        assert!(part.is_over());
    }
}
