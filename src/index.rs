//! An index for questions that look back: checkpoints beside the recording, which are left when the first of them is asked.
//!
//! Two checkpoints say of each page whether something was stored to it in between, so a question goes through the one stretch in which
//! something was (vmm's `travel`). A recorder leaves few, since they would cost the program too much. Where there is none at all, who
//! goes to the end goes all the way anyway, and leaves some on it; where they are far apart, that way is gone once more.
//!
//! Example: of twenty seconds of python3 a recorder has left three checkpoints. The first `gretel last-write` replays all of it, leaves ten
//! more, and says so; each question after it takes seconds.

use crate::exit::Failure;
use crate::log::{say, spinner};
use crate::replay::{failure, what_was_kept};
use std::time::Duration;
use vmm::checkpoints::{Rate, Shelf};
use vmm::position::Position;
use vmm::recording::Recording;
use vmm::replay::ReplayError;
use vmm::travel::Travel;

/// How often one is left, if they take no more than a quarter of the time, and have no more bytes than this.
const EVERY: Rate = Rate { every: Duration::from_millis(300), share: 4, most: 1 << 30, room: u64::MAX };
/// A recording is gone through once more that takes so much of a processor's time: what is shorter is looked through as it is, and for
/// what is longer the way may be longer than that of the question.
const SHORT: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(120);
/// And in which checkpoints are farther apart than this.
const FAR: Duration = Duration::from_millis(1500);

/// Leaves checkpoints, if that pays, for a question about a recording that stands at its beginning: then it stands at its end.
pub(crate) fn make(travel: &mut Travel, recording: &Recording) -> Result<(), Failure> {
    if recording.flight().is_dir()
        || recording.is_being_recorded()
        || !pays(travel.timeline().replay().shelf())
    {
        return Ok(());
    }
    let bar = spinner();
    let mut tell = |at: Position| {
        bar.set_message(format!("leaving checkpoints for this question and for later ones; at {at}"));
        true
    };
    match travel.leave_checkpoints(EVERY, &mut tell) {
        Ok(Some(kept)) if kept.checkpoints > 0 => {
            bar.finish_and_clear();
            say!("gretel: {}, for later questions", what_was_kept(kept.checkpoints, kept.bytes, false));
        }
        Ok(_) => {}
        // It answers without.
        Err(ReplayError::Recording(why)) => say!("gretel: {why}: later questions take as long"),
        Err(error) => return Err(failure(error)),
    }
    Ok(())
}

/// Whether those that there are do not suffice. What a replay has left once, it would leave again.
fn pays(shelf: &Shelf) -> bool {
    if shelf.is_of_replay() {
        return false;
    }
    let count = u32::try_from(shelf.newest_first().count()).unwrap_or(u32::MAX);
    shelf.newest_first().next().is_none_or(|(_, newest)| {
        let spent = Duration::from_nanos(newest.spent);
        (SHORT..=LONG).contains(&spent) && spent / count > FAR
    })
}
