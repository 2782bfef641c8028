//! How the branch records steer the search.

use crate::evidence::Retired;
use x86::op::BranchKind;

/// The branch records that the search may use, newest first, with the filter under which they were taken.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// (from, to), newest first.
    branches: Vec<(u64, u64)>,
    /// The kinds that the filter lets through.
    recorded: Vec<BranchKind>,
    /// A far transfer comes before the oldest, so that no other branch does.
    follow_far: bool,
}

/// How far into the records and the crumbs a path has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// How many records the path has used.
    pub used: usize,
    /// How many anchors it has passed.
    pub passed: usize,
    /// It has gone over to the thread whose exit the next anchor is, and not yet passed that.
    pub switched: bool,
    /// What retired since the last anchor or switch.
    pub retired: Retired,
}

/// What the records say of a taken branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the next record.
    Recorded,
    /// The records say nothing of it: its kind is filtered out, or they are used up.
    Open,
    /// It would have been recorded, and was not.
    Excluded,
}

impl Records {
    /// Records `branches` (newest first) of the kinds `recorded`.
    #[must_use]
    pub fn new(branches: Vec<(u64, u64)>, recorded: Vec<BranchKind>) -> Records {
        Records { branches, recorded, follow_far: false }
    }

    /// The same, where it is known whether a far transfer came right before the oldest.
    #[must_use]
    pub fn behind_far(self, follow_far: bool) -> Records {
        Records { follow_far, ..self }
    }

    /// Whether a path has used all of them.
    #[must_use]
    pub fn are_used(&self, window: Window) -> bool {
        window.used >= self.branches.len()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.branches.len()
    }

    /// The kinds of branches that leave one.
    #[must_use]
    pub fn recorded(&self) -> &[BranchKind] {
        &self.recorded
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.branches.is_empty()
    }

    /// The record that the path must use next.
    #[must_use]
    pub fn next(&self, window: Window) -> Option<(u64, u64)> {
        self.branches.get(window.used).copied()
    }

    /// What they say of the taken branch from `from` to `to`.
    #[must_use]
    pub fn judge(&self, window: Window, kind: BranchKind, from: u64, to: u64) -> Verdict {
        match self.next(window) {
            None if !self.follow_far => Verdict::Open,
            _ if !self.recorded.contains(&kind) => Verdict::Open,
            None => Verdict::Excluded,
            Some(next) if next == (from, to) => Verdict::Recorded,
            Some(_) => Verdict::Excluded,
        }
    }

    /// Whether each near branch that was taken right before would be among the records.
    #[must_use]
    pub fn shows_all(&self, window: Window) -> bool {
        self.recorded.len() >= ALL_NEAR && self.next(window).is_some()
    }

    /// Whether a path at `address` can only have come by the next record: every taken branch is recorded, and
    /// straight-line code passes an address once.
    #[must_use]
    pub fn compels(&self, window: Window, address: u64) -> bool {
        self.recorded.len() >= ALL_NEAR && self.next(window).is_some_and(|(_, to)| to == address)
    }
}

/// The number of near branch kinds: all of [`BranchKind`] but the far transfers.
const ALL_NEAR: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_leaves_open_what_it_hides_and_excludes_what_it_would_have_shown() {
        let records = Records::new(vec![(0x10, 0x40)], vec![BranchKind::Return]);
        let window = Window::default();
        assert_eq!(records.judge(window, BranchKind::Conditional, 1, 2), Verdict::Open);
        assert_eq!(records.judge(window, BranchKind::Return, 0x10, 0x40), Verdict::Recorded);
        assert_eq!(records.judge(window, BranchKind::Return, 0x11, 0x40), Verdict::Excluded);
        assert_eq!(
            records.judge(Window { used: 1, ..window }, BranchKind::Return, 0x11, 0x40),
            Verdict::Open
        );
    }

    /// Between a far transfer and the oldest record there is no branch that would have been recorded.
    #[test]
    fn behind_a_far_transfer_nothing_is_open_but_what_the_filter_hides() {
        let records = Records::new(vec![(0x10, 0x40)], vec![BranchKind::Return]).behind_far(true);
        let used = Window { used: 1, ..Window::default() };
        assert_eq!(records.judge(used, BranchKind::Return, 0x11, 0x40), Verdict::Excluded);
        assert_eq!(records.judge(used, BranchKind::Conditional, 0x11, 0x40), Verdict::Open);
        assert_eq!(records.judge(Window::default(), BranchKind::Return, 0x10, 0x40), Verdict::Recorded);
        assert!(records.are_used(used) && !records.are_used(Window::default()));
    }
}
