//! When work that may take long is to end.

use std::time::{Duration, Instant};
use vmm::engine::Interrupter;

/// A deadline, and who may want the work to end before it. The default is never.
#[derive(Clone, Default)]
pub(super) struct Until {
    deadline: Option<Instant>,
    interrupter: Option<Interrupter>,
}

impl Until {
    /// The same, with this deadline.
    pub(super) fn with_deadline(self, deadline: Instant) -> Until {
        Until { deadline: Some(deadline), ..self }
    }

    /// The same; or when this is raised. It is not lowered.
    pub(super) fn with_interrupter(self, interrupter: Interrupter) -> Until {
        Until { interrupter: Some(interrupter), ..self }
    }

    /// The same, with one part in so many of the time that is left.
    pub(super) fn part(&self, parts: u32) -> Until {
        let now = Instant::now();
        let share = |deadline: Instant| -> Duration { deadline.saturating_duration_since(now) / parts };
        Until { deadline: self.deadline.map(|deadline| now + share(deadline)), ..self.clone() }
    }

    /// Whether it is time to end.
    pub(super) fn is_over(&self) -> bool {
        let is_late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        is_late || self.interrupter.as_ref().is_some_and(Interrupter::is_raised)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_at_the_deadline_or_when_somebody_asks() {
        assert!(!Until::default().part(2).is_over());
        let now = Instant::now();
        assert!(Until::default().with_deadline(now).is_over());
        let interrupter = Interrupter::new();
        let hour = Until::default().with_deadline(now + Duration::from_secs(3600));
        let part = hour.with_interrupter(interrupter.clone()).part(2);
        assert!(!part.is_over());
        interrupter.interrupt();
        assert!(part.is_over());
    }
}
