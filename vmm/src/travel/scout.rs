//! A scout: a second replay of the same recording, on a thread of its own. While the stretch between two checkpoints is looked
//! through here, it looks through the one before, from its checkpoint on disk.
//!
//! It says no more than whether anything is there. Where there is, whoever sent it looks for himself: whether it is what he wants is
//! asked of his program. Where the scout cannot go (no second processor, no memory, a recording that it cannot read) there is
//! none, and all is looked through here.

use super::{Followed, Travel};
use crate::engine::lookout::Lookout;
use crate::engine::{self, EngineKind};
use crate::position::Position;
use crate::ram::{PAGE, Virt, for_replay};
use crate::recording::Recording;
use crate::replay::ReplayError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// How often who waits for a report looks whether he is asked to stop.
const LOOK: Duration = Duration::from_millis(20);
/// A stretch that takes so many nanoseconds is worth a scout's way.
const LONG: u64 = 50_000_000;
/// A scout is sent where the program takes no more of the memory than one part in so many: there are two then, and their checkpoints.
const SHARE: u64 = 8;

/// What is to be looked for, and from which checkpoint up to where.
struct Errand {
    from: Position,
    to: Position,
    comes_from: Position,
    lookout: Lookout,
    followed: Followed,
}

/// Of an errand, by its number: whether nothing is there. `None` when the scout was called back.
type Report = (u64, Option<bool>);

/// The scout, from the side of who sends it.
pub(super) struct Scout {
    errands: Sender<Errand>,
    reports: Receiver<Report>,
    /// Calls it back.
    recalls: Arc<AtomicBool>,
    /// How many errands it was given.
    number: u64,
    /// The stretch that it looks through.
    sent: Option<(Position, Position)>,
}

impl Scout {
    /// A scout on its way to the recording's beginning; `None` where there is one processor alone, or no thread to be had.
    fn new(recording: &Recording) -> Option<Scout> {
        if thread::available_parallelism().map_or(1, usize::from) < 2 {
            return None;
        }
        let (errands, given) = mpsc::channel();
        let (tell, reports) = mpsc::channel();
        let recalls = Arc::new(AtomicBool::new(false));
        let (recording, asks) = (recording.clone(), Arc::clone(&recalls));
        // Nobody waits for its end: the thread ends when it finds that nobody gives it errands any more.
        thread::Builder::new()
            .name("scout".to_owned())
            .spawn(move || go(&recording, asks, given, tell))
            .ok()?;
        Some(Scout { errands, reports, recalls, number: 0, sent: None })
    }

    /// Sends it, unless it is on its way.
    fn send(&mut self, errand: Errand) {
        if self.sent.is_none() {
            self.sent = Some((errand.from, errand.to));
            self.number += 1;
            // One that is gone gives no report.
            let _ = self.errands.send(errand);
        }
    }

    /// Whether it is on its way.
    fn is_sent(&self) -> bool {
        self.sent.is_some()
    }

    /// Waits for what it has to say of the stretch up to `end`, if it was sent there: where that begins, if nothing is in it. What it
    /// would say of anywhere else is not wanted any more.
    fn nothing_from(&mut self, end: Position, asks: &AtomicBool) -> Option<Position> {
        let (from, to) = self.sent?;
        if to != end {
            if to > end {
                self.recall();
            }
            return None;
        }
        loop {
            match self.reports.recv_timeout(LOOK) {
                Ok((number, nothing)) if number == self.number => {
                    self.sent = None;
                    return (nothing == Some(true)).then_some(from);
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if !asks.load(Ordering::Relaxed) => {}
                Err(_) => {
                    self.recall();
                    return None;
                }
            }
        }
    }

    /// Calls it back.
    pub(super) fn recall(&mut self) {
        if self.sent.take().is_some() {
            self.recalls.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Scout {
    fn drop(&mut self) {
        self.recall();
    }
}

/// What the scout does, as long as somebody gives it errands.
fn go(recording: &Recording, asks: Arc<AtomicBool>, errands: Receiver<Errand>, tell: Sender<Report>) {
    let machine = engine::open(EngineKind::Soft, for_replay());
    let Some(mut travel) = machine.ok().and_then(|machine| Travel::open(recording, machine).ok()) else {
        return;
    };
    travel.asks = asks;
    for (number, errand) in (1..).zip(errands) {
        // That was for the errand before.
        travel.is_asked();
        let Ok(nothing) = travel.is_nothing_in(errand) else { return };
        if tell.send((number, nothing)).is_err() {
            return;
        }
    }
}

impl Travel {
    /// Where the stretch up to `end` begins, if the scout has found nothing in it.
    pub(super) fn nothing_from(&mut self, end: Position) -> Option<Position> {
        let start = self.scout.as_mut()?.nothing_from(end, &self.asks)?;
        self.scouted += 1;
        Some(start)
    }

    /// How many stretches between checkpoints nobody had to look through here, since the scout has found nothing in them.
    #[must_use]
    pub fn scouted(&self) -> u64 {
        self.scouted
    }

    /// Sends the scout to the last stretch before `end` that will have to be looked through, if that is between checkpoints on disk,
    /// long enough, and there is memory for another such program.
    pub(super) fn send_scout(&mut self, end: Position, lookout: &Lookout, pages: Option<&[(i32, Virt)]>) {
        let used = self.process().memory().frames().used().saturating_mul(PAGE);
        let is_out = self.scout.as_ref().is_some_and(Scout::is_sent);
        if is_out || used.saturating_mul(SHARE) > crate::host::memory() {
            return;
        }
        let Some((from, to)) = self.stretch_to_scout(end, pages) else { return };
        if self.scout.is_none() {
            self.scout = Scout::new(&self.recording);
        }
        if let Some(scout) = &mut self.scout {
            let (lookout, followed) = (lookout.clone(), self.followed.clone());
            scout.send(Errand { from, to, comes_from: self.comes_from, lookout, followed });
        }
    }

    /// The last stretch before `end` between checkpoints on disk in which something may be, with as many before it as make it long. It
    /// ends at a checkpoint on disk, to which whoever goes back comes.
    fn stretch_to_scout(&self, end: Position, pages: Option<&[(i32, Virt)]>) -> Option<(Position, Position)> {
        let shelf = self.timeline().replay().shelf();
        let stored: Vec<(Position, u64)> =
            shelf.newest_first().map(|(_, about)| (about.position, about.spent)).collect();
        let mut older = &stored[stored.iter().position(|(at, _)| *at <= end)?..];
        // What is in no stretch before the first one that is not known to be untouched.
        while let [(end, _), (start, _), ..] = older {
            let versions = self.versions(pages, *start);
            if versions.is_none() || versions != self.versions(pages, *end) {
                break;
            }
            older = &older[1..];
        }
        let (end, spent) = *older.first()?;
        let is_long = |(_, before): &&(Position, u64)| spent.saturating_sub(*before) >= LONG;
        let begin = (self.begin(), self.timeline().replay().spent_before().as_nanos());
        let begin = (begin.0, u64::try_from(begin.1).unwrap_or(u64::MAX));
        let (start, _) = older.iter().chain([&begin]).find(is_long)?;
        (*start < end).then_some((*start, end))
    }

    /// Whether nothing that is looked for is in a stretch; `None` when a stop was asked for.
    fn is_nothing_in(&mut self, errand: Errand) -> Result<Option<bool>, ReplayError> {
        let Errand { from, to, comes_from, lookout, followed } = errand;
        (self.followed, self.comes_from) = (followed, comes_from);
        if self.seek(from)? != from {
            return Ok(None);
        }
        let (found, _) = self.hits(&lookout, to, 1, &mut |_, _| true)?;
        Ok((!self.is_asked()).then_some(found.is_none()))
    }
}
