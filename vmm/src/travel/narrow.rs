//! In which segments some pages were stored to: found at the full speed of the processor that recorded, since whoever stores to a page
//! that is held gets a copy of its frame.
//!
//! The processor that counts looks for the stores in these segments alone. What lies between two events is a segment, so one in which
//! a program computes for seconds is still looked through whole.
//!
//! Example: of a second with 900 system calls, a page was stored to before two of them. KVM runs the second in that time, and the software
//! CPU the last of these two segments, a millisecond.

use super::back::Found;
use super::watched::Watched;
use super::{Travel, Wanted};
use crate::engine::EngineKind;
use crate::engine::lookout::Lookout;
use crate::position::Position;
use crate::ram::{Phys, Virt};
use crate::replay::ReplayError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A stretch that takes less is looked through whole: behind a checkpoint, what KVM runs faults for each page that it touches.
pub(super) const LONG: Duration = Duration::from_millis(300);
/// Of the segments in which pages may have been stored to, so many are looked through at first, the last ones, and then so many times as
/// many: each time the program runs through them once.
const FIRST: u64 = 16;
const MORE: u64 = 8;
/// Where pages are stored to nearly all the time, a stretch that takes less than so many such ones is looked through store by store, at a
/// tenth of the speed.
const FEW: u32 = 4;
/// Checkpoints on the way to the last stores are no nearer than this.
const APART: Duration = Duration::from_millis(150);
/// Pages that are stored to in one segment after the other are looked at after every so many of them.
const COARSEST: u64 = 64;

/// What is known of a page behind an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Nothing is mapped there, so that nobody can store to it before the next event.
    Unmapped,
    /// It has this frame, which is held.
    Held(Phys),
    /// It has none of its own yet, or others store to it as well.
    Unknown,
}

impl Seen {
    /// Whether nobody has stored to the page between this and what is seen behind so many events.
    fn is_still(self, later: Seen, events: u64) -> bool {
        match self {
            // It may have been mapped, stored to and unmapped again.
            Seen::Unmapped => events == 1 && later == Seen::Unmapped,
            Seen::Held(_) => self == later,
            Seen::Unknown => false,
        }
    }
}

/// From one event to another, in order.
type Stretch = (Position, Position);

/// What was seen at full speed of a stretch.
#[derive(Default)]
struct Stored {
    /// Where pages may have been stored to.
    stretches: Vec<Stretch>,
    /// From one event to the next: where the watched bytes are others behind it.
    changed: Vec<Stretch>,
}

fn events_of((from, to): &Stretch) -> u64 {
    to.event - from.event
}

/// Takes the last of these stretches off that have so many events together, or the last one.
fn last_events(stretches: &mut Vec<Stretch>, most: u64) -> Vec<Stretch> {
    let mut events = 0;
    let count = stretches.iter().rev().take_while(|stretch| {
        let is_first = events == 0;
        events += events_of(stretch).max(1);
        is_first || events <= most
    });
    let count = count.count();
    stretches.split_off(stretches.len() - count)
}

/// The event in the middle between two.
fn half_way(from: Position, to: Position) -> u64 {
    from.event + ((to.event - from.event) / 2).max(1)
}

impl Travel {
    /// Has segments with stores found first in stretches that take as long, which is a second otherwise. For tests, whose are shorter.
    pub fn narrow_from(&mut self, long: Duration) {
        self.narrows_from = long;
    }

    /// Whether it is worth the while to find segments in a stretch that takes so long.
    pub(super) fn is_narrowed(&self, start: Position, end: Position, takes: Duration) -> bool {
        let is_long = takes >= self.narrows_from && end.event > start.event + 1;
        // Where processors take turns, the one that does not count runs such a stretch, though it may not have run yet.
        is_long && (self.process().takes_turns() || self.process().engine_kind() == EngineKind::Kvm)
    }

    /// The last hit between here, where a checkpoint is, and `end`, with its position; what is looked for is stores to these pages. And
    /// whether the stretch before is to be narrowed as well: not where the pages are stored to nearly all the time and each store counts.
    pub(super) fn last_store_before(
        &mut self,
        lookout: &Lookout,
        (end, takes): (Position, Duration),
        pages: &[(i32, Virt)],
        wanted: Wanted<'_>,
    ) -> Result<(Found, bool), ReplayError> {
        // Nobody compares what lies between two checkpoints that are kept here.
        self.process_mut().memory_mut().copy_alone(false);
        let found = self.last_store_of(lookout, (end, takes), pages, wanted);
        self.process_mut().memory_mut().copy_alone(true);
        found
    }

    fn last_store_of(
        &mut self,
        lookout: &Lookout,
        (end, takes): (Position, Duration),
        pages: &[(i32, Virt)],
        wanted: Wanted<'_>,
    ) -> Result<(Found, bool), ReplayError> {
        let start = self.position();
        let all = end.event - start.event;
        let Stored { mut stretches, changed } = self.stored_to_in(lookout, end, pages)?;
        let stored: u64 = stretches.iter().map(events_of).sum();
        let is_seldom = stored <= all / 2;
        let is_short = takes < self.narrows_from.saturating_mul(FEW);
        let by_changes = !is_seldom && !is_short && self.looks_for_changes;
        tracing::debug!(
            events = all,
            stored,
            changed = changed.len(),
            stretches = stretches.len(),
            "narrowed"
        );
        let (mut most, mut unseen) = (FIRST, end);
        // Near where one comes from each store is worth its time.
        let is_near = self.passed_over.is_none();
        while !stretches.is_empty()
            && !self.asks.load(Ordering::Relaxed)
            && !(by_changes && (most > FIRST || !is_near))
        {
            let later = last_events(&mut stretches, most);
            unseen = later.first().map_or(unseen, |(from, _)| *from);
            let found = self.last_in(&later, lookout, wanted)?;
            if found.is_some() {
                return Ok((found, is_seldom));
            }
            most *= MORE;
        }
        if !by_changes {
            return Ok((None, is_seldom || self.looks_for_changes));
        }
        for stretch in changed.iter().rev().filter(|(from, _)| *from < unseen) {
            let found = self.last_in(std::slice::from_ref(stretch), lookout, wanted)?;
            if found.is_some() || self.asks.load(Ordering::Relaxed) {
                self.pass_over(stretch.1, unseen);
                return Ok((found, true));
            }
        }
        self.pass_over(start, unseen);
        Ok((None, true))
    }

    /// What lies between these was looked through for changes alone.
    fn pass_over(&mut self, from: Position, to: Position) {
        if from < to {
            let latest = self.passed_over.map_or(to, |(_, latest)| latest);
            self.passed_over = Some((from, latest));
        }
    }

    /// The last hit in these stretches, which are in order.
    fn last_in(
        &mut self,
        stretches: &[Stretch],
        lookout: &Lookout,
        wanted: Wanted<'_>,
    ) -> Result<Found, ReplayError> {
        let mut last = None;
        for (n, &(from, to)) in stretches.iter().enumerate() {
            self.seek(from)?;
            if n == 0 || n + 1 == stretches.len() {
                // One of them is come back to, for the position before the hit. One in each would have KVM fault for all that the program
                // touches between them.
                self.timeline.keep_here()?;
            }
            tracing::debug!(%from, %to, "looks through a narrowed stretch");
            let found = self.last_before(lookout, to, wanted)?;
            if self.asks.load(Ordering::Relaxed) {
                break;
            }
            // What another process stored in this one is found in its own process's turn, which may be behind the next.
            last = last.into_iter().chain(found).max_by_key(|(_, at)| *at);
        }
        Ok(last)
    }

    /// From here to `end`: between which events these pages may have been stored to.
    fn stored_to_in(
        &mut self,
        lookout: &Lookout,
        end: Position,
        pages: &[(i32, Virt)],
    ) -> Result<Stored, ReplayError> {
        self.look_away()?;
        self.process_mut().count_exactly(false)?;
        let mut stored = Stored::default();
        let mut seen = self.see(pages);
        let result = self.note_stores(lookout, end, pages, &mut seen, &mut stored);
        self.forget(seen);
        result.map(|()| stored)
    }

    fn note_stores(
        &mut self,
        lookout: &Lookout,
        end: Position,
        pages: &[(i32, Virt)],
        seen: &mut Vec<Seen>,
        stored: &mut Stored,
    ) -> Result<(), ReplayError> {
        let (mut from, mut here, mut every) = (self.position(), self.position(), 1);
        let (mut kept, mut keeps_at) = (Instant::now(), half_way(here, end));
        let mut watched = Watched::of(self, lookout);
        while here < end && !self.ended() && !self.asks.load(Ordering::Relaxed) {
            if here.event == end.event {
                // The rest behind the last event.
                stored.stretches.push((from, end));
                stored.changed.push((here, end));
                break;
            }
            let before = here;
            here = self.events_on((before.event + 1).min(end.event))?.min(end);
            if here.event >= keeps_at {
                keeps_at = half_way(here, end);
                // The one in use is among the last stores, more often than not, so the way to the last ones is the one that is cut.
                if kept.elapsed() >= APART {
                    self.timeline.keep_here()?;
                    kept = Instant::now();
                }
            }
            let now = Watched::of(self, lookout);
            if now != watched {
                stored.changed.push((before, here));
                watched = now;
            }
            if here.event < end.event && here.event < from.event + every {
                continue;
            }
            let mut both = pages.iter().zip(seen.iter());
            if both.all(|(page, seen)| seen.is_still(self.seen(*page), every)) {
                every = 1;
            } else {
                stored.stretches.push((from, here));
                every = (every * 2).min(COARSEST);
                let next = self.see(pages);
                self.forget(std::mem::replace(seen, next));
            }
            from = here;
        }
        Ok(())
    }

    /// Runs to this event, or to the recording's end; gives where that is.
    fn events_on(&mut self, goal: u64) -> Result<Position, ReplayError> {
        while self.position().event < goal && !self.ended() && !self.asks.load(Ordering::Relaxed) {
            self.timeline.exit()?;
        }
        Ok(self.position())
    }

    /// What is known of pages, whose frames are held from here on.
    fn see(&mut self, pages: &[(i32, Virt)]) -> Vec<Seen> {
        let see = |&(pid, page): &(i32, Virt)| {
            self.process_mut().hold_page(pid, page);
            self.seen((pid, page))
        };
        pages.iter().map(see).collect()
    }

    /// What is known of a page, without holding it.
    fn seen(&self, (pid, page): (i32, Virt)) -> Seen {
        let process = self.process();
        let Some(space) = process.space_of(pid) else { return Seen::Unmapped };
        match space.private_frame(process.memory(), page) {
            Some(frame) => Seen::Held(frame),
            None if space.mappings().find(page).is_none() => Seen::Unmapped,
            None => Seen::Unknown,
        }
    }

    fn forget(&mut self, seen: Vec<Seen>) {
        let memory = self.process_mut().memory_mut();
        for seen in seen {
            if let Seen::Held(frame) = seen {
                memory.let_page_go(frame);
            }
        }
    }
}
