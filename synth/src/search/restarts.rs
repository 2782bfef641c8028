//! When the search leaves a region that leads nowhere, and when it comes back with more patience.
//!
//! Depth first, the choice that was wrong is the last to be taken back: behind it lie thousands of paths that all die. So after
//! so much work without getting further back the search jumps over the newest of its choices, each time twice as far, and a loop is
//! left after so many rounds where there is another way. What is left so is not refuted: when nothing else remains, the search
//! starts over with more of both.

/// So many instructions may be refuted at first without getting further back before the search jumps.
const FIRST_PATIENCE: u32 = 2048;
/// The first jump back, in instructions; each further one is twice as far.
const FIRST_JUMP: usize = 16;
/// So many rounds of a loop are taken at first where there is another way.
const FIRST_ROUNDS: usize = 16;
/// So many times as many are taken where each other way was refuted within [`SHALLOW`] instructions.
const FORCED: usize = 16;
/// These are few.
pub(super) const SHALLOW: usize = 32;
/// Each time the search starts over, it has so many times as much patience.
const GROWTH: u8 = 8;

/// What the search has tried in vain, and how much of it it bears.
pub(super) struct Restarts {
    /// Instructions that were refuted or taken back since the search came to a further record, beyond the records since the
    /// longest path grew, or since the last jump back.
    fruitless: u32,
    /// So many may be, before it jumps.
    patience: u32,
    /// How far the next jump back goes.
    jump: usize,
    /// Something was left by a jump.
    jumped: bool,
    /// So often the path goes from one instruction to the same other one between two records, unless nothing else is possible.
    rounds: usize,
    /// A loop was left since it went round too often.
    went_round: bool,
    /// The solver is asked once more, with more effort, where it gave up and nothing else is left.
    insists: bool,
    /// Choices that do not help an access without an address are left, all at once: the first time.
    leaves_stuck: bool,
    /// Stores whose addresses nothing tells are placed where they explain what older instructions found.
    places_stores: bool,
    /// So many instructions of a stretch without records are kept, if it went on for too long.
    kept: usize,
}

/// At first.
const FIRST_KEPT: usize = 256;

impl Restarts {
    pub(super) fn new() -> Restarts {
        Restarts {
            fruitless: 0,
            patience: FIRST_PATIENCE,
            jump: FIRST_JUMP,
            jumped: false,
            rounds: FIRST_ROUNDS,
            went_round: false,
            insists: false,
            leaves_stuck: true,
            places_stores: false,
            kept: FIRST_KEPT,
        }
    }

    /// An instruction was refuted, or taken back.
    pub(super) fn note_refusal(&mut self) {
        self.fruitless += 1;
    }

    /// The search came further than before.
    pub(super) fn note_progress(&mut self) {
        self.fruitless = 0;
        self.jump = FIRST_JUMP;
    }

    /// Whether the present region is to be left.
    pub(super) fn are_due(&self) -> bool {
        self.fruitless > self.patience
    }

    /// A region is left: by how many instructions to jump back.
    pub(super) fn jump(&mut self) -> usize {
        let jump = self.jump;
        self.fruitless = 0;
        self.jumped = true;
        self.jump *= 2;
        jump
    }

    /// Whether choices are left, all at once, that do not help an access without an address.
    pub(super) fn leaves_stuck(&self) -> bool {
        self.leaves_stuck
    }

    /// Of how many instructions a stretch begins, that went on for too long without a record, before it is left; `None`: it was
    /// left often enough.
    pub(super) fn leave_segment(&mut self) -> Option<usize> {
        self.kept /= 2;
        self.jumped = true;
        (self.kept > 0).then_some(self.kept)
    }

    /// Some were.
    pub(super) fn note_left(&mut self) {
        self.jumped = true;
    }

    /// Whether the solver is asked again with more effort.
    pub(super) fn insists(&self) -> bool {
        self.insists
    }

    /// Whether stores are placed where they explain what memory holds.
    pub(super) fn places_stores(&self) -> bool {
        self.places_stores
    }

    /// Begins again with that. False: it was done already.
    pub(super) fn place_stores(&mut self) -> bool {
        self.note_progress();
        !std::mem::replace(&mut self.places_stores, true)
    }

    /// Whether an edge that the path took so often is tried after all others.
    pub(super) fn are_many_rounds(&self, rounds: usize) -> bool {
        rounds >= self.rounds
    }

    /// Whether an edge that the path took `rounds` times is not taken once more; the other ways led `other_ways` instructions far.
    pub(super) fn leave_loop(&mut self, rounds: usize, other_ways: usize) -> bool {
        let is_forced = other_ways <= SHALLOW;
        let leaves = rounds >= if is_forced { self.rounds * FORCED } else { self.rounds };
        self.went_round |= leaves;
        leaves
    }

    /// Begins again with more patience, if something was left for want of it, and more effort, if the solver gave up.
    /// False: nothing was.
    pub(super) fn start_over(&mut self, solver_gave_up: bool) -> bool {
        let jumped = std::mem::take(&mut self.jumped);
        let went_round = std::mem::take(&mut self.went_round);
        if !jumped && !went_round && solver_gave_up == self.insists {
            return false;
        }
        tracing::debug!(jumped, went_round, solver_gave_up, "the search starts over");
        self.insists = solver_gave_up;
        if jumped {
            self.leaves_stuck = false;
            self.patience = self.patience.saturating_mul(GROWTH.into());
        }
        if went_round {
            self.rounds = self.rounds.saturating_mul(GROWTH.into());
        }
        self.note_progress();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_is_tried_again_with_more_patience() {
        let mut restarts = Restarts::new();
        (0..=FIRST_PATIENCE).for_each(|_| restarts.note_refusal());
        assert!(restarts.are_due());
        assert_eq!([restarts.jump(), restarts.jump()], [FIRST_JUMP, 2 * FIRST_JUMP]);
        assert!(restarts.start_over(false));
        (0..=FIRST_PATIENCE).for_each(|_| restarts.note_refusal());
        assert!(!restarts.are_due());
        assert!(!restarts.start_over(false), "nothing was left");
    }

    #[test]
    fn stores_are_placed_when_all_else_was_tried_and_once() {
        let mut restarts = Restarts::new();
        assert!(!restarts.start_over(false) && !restarts.places_stores());
        assert!(restarts.place_stores() && restarts.places_stores());
        assert!(!restarts.place_stores());
    }

    #[test]
    fn a_loop_is_left_later_where_there_is_no_other_way() {
        let mut restarts = Restarts::new();
        assert!(!restarts.leave_loop(FIRST_ROUNDS, SHALLOW));
        assert!(!restarts.start_over(false), "nothing was left");
        assert!(restarts.leave_loop(FIRST_ROUNDS, SHALLOW + 1));
        assert!(restarts.start_over(false));
        assert!(!restarts.leave_loop(FIRST_ROUNDS, SHALLOW + 1));
    }
}
