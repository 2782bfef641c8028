//! Going back: from one checkpoint to the next older one, each time forward to where the one before began.

use super::scout::Scout;
use super::watched::Watched;
use super::{Followed, STRETCH, Stop, Travel, Wanted};
use crate::checkpoints::shelf::Versions;
use crate::engine::Until;
use crate::engine::lookout::{Access, Lookout};
use crate::memory::AddressSpace;
use crate::position::Position;
use crate::ram::{Memory, PAGE, Phys, Virt};
use crate::replay::ReplayError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Where there are more hits than these behind a checkpoint, only the last ones are looked at.
const MANY: u64 = 2000;
/// Who steps back does so again: a checkpoint is kept no farther before here than so many instructions.
const STEPS: u64 = 1 << 11;
/// Those of so many instructions, and then of so many times as many.
const NEAR: u64 = 1 << 14;
const FARTHER: u64 = 16;

/// A hit, and its position, if there is one.
pub(super) type Found = Option<(Stop, Position)>;

/// What is known of pages where one comes from: who finds the same before has passed no store to them.
struct Behind {
    /// What a checkpoint on disk says that is there.
    versions: Option<Versions>,
    /// Their frames, which are held: one that was given back could be another page's by then. A checkpoint in memory that has the same
    /// shares them, and whoever stores to them gets a copy.
    frames: Option<Vec<Phys>>,
}

/// The frames of pages, where each is the memory of its process alone.
fn frames<'a>(
    memory: &Memory,
    pages: &[(i32, Virt)],
    space_of: impl Fn(i32) -> Option<&'a AddressSpace>,
) -> Option<Vec<Phys>> {
    pages.iter().map(|(pid, page)| space_of(*pid)?.private_frame(memory, *page)).collect()
}

impl Travel {
    /// Goes to before the last instruction that the loaded task ran; to the beginning where it has run none.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn step_back(&mut self) -> Result<Stop, ReplayError> {
        self.step_back_of(self.process().thread())
    }

    /// Goes to before the last instruction that a task ran; to the beginning where it has run none.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn step_back_of(&mut self, task: i32) -> Result<Stop, ReplayError> {
        self.go_before(self.position(), Some(task))
    }

    /// Goes back to the last thing before here that is looked for, or to the beginning.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn backward(&mut self, lookout: &Lookout) -> Result<Stop, ReplayError> {
        self.backward_where(lookout, &mut |_, _| true)
    }

    /// The same, to the last thing that is also `wanted`. Whether it is may be asked of the same thing more than once.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn backward_where(&mut self, lookout: &Lookout, wanted: Wanted<'_>) -> Result<Stop, ReplayError> {
        self.backward_to(self.begin(), lookout, wanted)
    }

    /// The same, no farther than to `floor`: there it is [`Stop::There`], or [`Stop::Begin`] if the recording begins there.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn backward_to(
        &mut self,
        floor: Position,
        lookout: &Lookout,
        wanted: Wanted<'_>,
    ) -> Result<Stop, ReplayError> {
        let here = self.position();
        (self.comes_from, self.passed_over) = (here, None);
        let pages = self.stored_to(lookout);
        let pages = pages.as_deref();
        let mut behind = Behind { versions: self.versions(pages, here), frames: self.hold(pages) };
        let stop = self.back_from(here, floor, lookout, pages, &mut behind, wanted);
        self.scout.iter_mut().for_each(Scout::recall);
        self.let_go(behind);
        stop
    }

    /// The same from `here`, where `behind` is known of the pages.
    fn back_from(
        &mut self,
        here: Position,
        floor: Position,
        lookout: &Lookout,
        pages: Option<&[(i32, Virt)]>,
        behind: &mut Behind,
        wanted: Wanted<'_>,
    ) -> Result<Stop, ReplayError> {
        let (mut end, mut end_at) = (here, self.timeline.spent());
        let mut narrows = true;
        while let Some(start) = self.checkpoint_before(end).filter(|_| end > floor) {
            let start = start.max(floor);
            let start_at = self.timeline.spent_to(start);
            if let Some(start) = self.nothing_from(end) {
                let versions = self.versions(pages, start);
                let before = std::mem::replace(behind, Behind { versions, frames: None });
                self.let_go(before);
                (end, end_at) = (start, self.timeline.spent_to(start));
                continue;
            }
            if self.is_untouched(start, pages, behind) {
                (end, end_at) = (start, start_at);
                continue;
            }
            // Times of two runs need not agree; what may be long is taken for it.
            let takes = end_at.checked_sub(start_at).unwrap_or(Duration::MAX);
            let narrowed = pages.filter(|_| narrows && self.is_narrowed(start, end, takes));
            tracing::debug!(%start, %end, ?takes, narrowed = narrowed.is_some(), "looks through");
            if self.seek(start)? >= end {
                break;
            }
            let last = match narrowed {
                Some(pages) => {
                    let (last, was_worth_it) =
                        self.last_store_before(lookout, (end, takes), pages, wanted)?;
                    narrows = was_worth_it;
                    last
                }
                None => {
                    // What is near needs no scout.
                    if end != here {
                        self.send_scout(start, lookout, pages);
                    }
                    self.last_before(lookout, end, wanted)?
                }
            };
            // What was found until then need not be the last.
            if self.is_asked() {
                self.seek(here)?;
                return Ok(Stop::Asked);
            }
            if let Some((stop, at)) = last {
                match stop {
                    Stop::Breakpoint(_) => drop(self.seek(at)?),
                    _ => drop(self.go_before(at, None)?),
                }
                return Ok(stop);
            }
            (end, end_at) = (start, start_at);
        }
        self.seek(floor)?;
        Ok(if floor > self.begin() { Stop::There } else { Stop::Begin })
    }

    /// Whether nothing was stored to the pages since the checkpoint at `start`, of which as much is known from now on.
    fn is_untouched(&mut self, start: Position, pages: Option<&[(i32, Virt)]>, behind: &mut Behind) -> bool {
        // What is on disk says it without being brought into memory, and what is in memory without being restored.
        let versions = self.versions(pages, start);
        let frames = self.hold_of(start, pages);
        let is_untouched =
            versions.is_some() && versions == behind.versions || frames.is_some() && frames == behind.frames;
        let before = std::mem::replace(behind, Behind { versions, frames });
        self.let_go(before);
        is_untouched
    }

    /// The pages of all that is looked for, each of its process, where that is nothing but stores.
    fn stored_to(&self, lookout: &Lookout) -> Option<Vec<(i32, Virt)>> {
        let all = match &self.followed {
            Followed::All => return None,
            Followed::One(_) | Followed::Each(_) => self.named(lookout),
        };
        let mut pages = Vec::new();
        for (pid, lookout) in all {
            if !lookout.at.is_empty() || lookout.data.iter().any(|it| it.access != Access::Write) {
                return None;
            }
            let numbers =
                lookout.data.iter().flat_map(|it| it.range.start / PAGE..it.range.end.div_ceil(PAGE));
            pages.extend(numbers.map(|number| (pid, number * PAGE)));
        }
        Some(pages)
    }

    /// The frames of these pages here, where each is the memory of its process alone, which lives. Nobody else gets them before they
    /// are let go.
    fn hold(&mut self, pages: Option<&[(i32, Virt)]>) -> Option<Vec<Phys>> {
        let process = self.process();
        let frames = frames(process.memory(), pages?, |pid| process.space_of(pid))?;
        self.share(&frames);
        Some(frames)
    }

    /// The same where a checkpoint in memory is.
    fn hold_of(&mut self, at: Position, pages: Option<&[(i32, Virt)]>) -> Option<Vec<Phys>> {
        let kept = self.timeline.kept_at(at)?;
        let frames = frames(self.process().memory(), pages?, |pid| kept.space_of(pid))?;
        self.share(&frames);
        Some(frames)
    }

    fn share(&mut self, frames: &[Phys]) {
        let owned = self.process_mut().memory_mut().frames_mut();
        frames.iter().for_each(|frame| owned.share(*frame));
    }

    fn let_go(&mut self, behind: Behind) {
        let owned = self.process_mut().memory_mut().frames_mut();
        behind.frames.into_iter().flatten().for_each(|frame| owned.release(frame));
    }

    /// What a checkpoint on disk at this position says of these pages.
    pub(super) fn versions(&self, pages: Option<&[(i32, Virt)]>, at: Position) -> Option<Versions> {
        self.timeline().replay().shelf().versions(at, self.process(), pages?)
    }

    /// Where the recording begins.
    #[must_use]
    pub fn begin(&self) -> Position {
        self.timeline().replay().window_begins().unwrap_or_default()
    }

    /// The last hit between here, where a checkpoint is, and `end`; and its position. Where there are very many, the last ones are looked
    /// at alone.
    pub(super) fn last_before(
        &mut self,
        lookout: &Lookout,
        end: Position,
        wanted: Wanted<'_>,
    ) -> Result<Found, ReplayError> {
        let start = self.position();
        let (mut last, all) = self.hits(lookout, end, MANY, wanted)?;
        let (mut size, mut until) = (NEAR, end);
        if all {
            return Ok(last);
        }
        let whole = self.run_for(start, u64::MAX, end)?;
        while until > start {
            let from = whole.saturating_sub(size);
            self.run_for(start, from, until)?;
            let begin = self.position();
            if begin < until {
                (last, _) = self.hits(lookout, until, u64::MAX, wanted)?;
            }
            if last.is_some_and(|(_, at)| at >= begin) || self.asks.load(Ordering::Relaxed) {
                return Ok(last);
            }
            (until, size) = (begin, size.saturating_mul(FARTHER));
        }
        Ok(last)
    }

    /// The last hit up to `end` of the next so many, and whether these were all.
    pub(super) fn hits(
        &mut self,
        lookout: &Lookout,
        end: Position,
        most: u64,
        wanted: Wanted<'_>,
    ) -> Result<(Found, bool), ReplayError> {
        let rip = self.process().cpu().regs().rip;
        let stop = Stop::Breakpoint(rip);
        let begins_at = self.own(lookout).is_some_and(|own| own.at.binary_search(&rip).is_ok());
        let begins_at = begins_at && wanted(self.process(), stop);
        let mut last = begins_at.then(|| (stop, self.position()));
        let mut watched = Watched::of(self, lookout);
        for _ in 0..most {
            match self.scan(lookout, &mut watched, Some(end), wanted)? {
                Some(stop) => last = Some((stop, self.position())),
                None => {
                    self.look_out(&Lookout::default())?;
                    let later = self.found_in_turn(lookout, &mut watched, wanted)?;
                    return Ok((later.or(last), true));
                }
            }
        }
        self.look_out(&Lookout::default())?;
        Ok((last, false))
    }

    /// Where others have changed what a process watches that is not loaded here, it finds that in its own next turn, at most where one
    /// comes from: that hit.
    fn found_in_turn(
        &mut self,
        lookout: &Lookout,
        watched: &mut Watched,
        wanted: Wanted<'_>,
    ) -> Result<Found, ReplayError> {
        let mut waiting = watched.changed_elsewhere(self, lookout);
        let asks = self.asks();
        let is_asked = || asks.load(Ordering::Relaxed);
        while !waiting.is_empty() && self.position() < self.comes_from && !self.ended() && !is_asked() {
            self.walk(Until::Exit)?;
            let (loaded, at) = (self.process().pid(), self.position());
            if at > self.comes_from || !waiting.remove(&loaded) {
                continue;
            }
            let stop = watched.change(self, lookout).map(Stop::Changed);
            if let Some(stop) = stop.filter(|stop| wanted(self.process(), *stop)) {
                return Ok(Some((stop, at)));
            }
        }
        Ok(None)
    }

    /// Goes to `start`, and from there over so many instructions, or to `end`: how many they were.
    fn run_for(&mut self, start: Position, instructions: u64, end: Position) -> Result<u64, ReplayError> {
        self.seek(start)?;
        let first = self.retired()?;
        let bound = first.saturating_add(instructions);
        while self.position() < end && self.retired()? < bound && !self.ended() {
            let here = self.position();
            let left = match end.event == here.event {
                true => end.retired - here.retired,
                false => u64::MAX,
            };
            let now = self.retired()?;
            self.walk(Until::Retired(now.saturating_add(left.min(STRETCH)).min(bound)))?;
        }
        Ok(self.retired()? - first)
    }

    /// The newest checkpoint before a position.
    pub(crate) fn checkpoint_before(&self, position: Position) -> Option<Position> {
        let disk = self.timeline().replay().shelf().newest_first().map(|(_, about)| about.position);
        let begin = (self.begin() < position).then(|| self.begin());
        self.timeline().checkpoints().chain(disk).chain(begin).filter(|at| *at < position).max()
    }

    /// Goes to before the last instruction that ran before `here`: of this task, or of whichever.
    fn go_before(&mut self, here: Position, task: Option<i32>) -> Result<Stop, ReplayError> {
        if here.retired > 0 && task.is_none_or(|task| task == self.process().thread()) {
            let goal = Position { retired: here.retired - 1, ..here };
            self.keep_shortly_before(goal)?;
            self.seek(goal)?;
            return Ok(Stop::There);
        }
        let rip = self.process().cpu().regs().rip;
        let mut event = here.event;
        while event > self.begin().event {
            event -= 1;
            let segment = self.seek(Position { event, retired: 0 })?;
            if segment >= here || task.is_some_and(|task| task != self.process().thread()) {
                continue;
            }
            // The event may be served at its instruction, which did not retire, or behind it. Where that is where one stands (a crash),
            // one would not have moved.
            let len = self.length(segment.event)?;
            let ends = [Some(len), len.checked_sub(1)];
            for retired in ends.into_iter().flatten() {
                let is_there = self.seek(Position { event: segment.event, retired })?.event == segment.event;
                if is_there && (retired < len || self.process().cpu().regs().rip != rip) {
                    return Ok(Stop::There);
                }
            }
        }
        self.seek(self.begin())?;
        Ok(Stop::Begin)
    }

    /// Keeps a checkpoint at most so many instructions before here, or at the event before, unless there is one: for who goes back from
    /// here in small steps.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn keep_before(&mut self, instructions: u64) -> Result<(), ReplayError> {
        let here = self.position();
        self.keep_within(here, instructions)?;
        self.seek(here).map(drop)
    }

    /// Keeps a checkpoint shortly before a position in the midst of a segment, unless there is one.
    pub(crate) fn keep_shortly_before(&mut self, goal: Position) -> Result<(), ReplayError> {
        self.keep_within(goal, STEPS)
    }

    fn keep_within(&mut self, goal: Position, instructions: u64) -> Result<(), ReplayError> {
        let near = Position { retired: goal.retired.saturating_sub(instructions), ..goal };
        if self.timeline().checkpoints().any(|at| near <= at && at <= goal) {
            return Ok(());
        }
        if self.seek(near)? <= goal {
            self.timeline.keep_here()?;
        }
        Ok(())
    }

    /// How many instructions retire behind this event, where the program stands, before the next. What lies before the newest checkpoint
    /// there is counted already.
    pub(crate) fn length(&mut self, event: u64) -> Result<u64, ReplayError> {
        let here = self.position();
        let newest = self.checkpoint_before(Position { event: event + 1, retired: 0 });
        if let Some(newest) = newest.filter(|at| at.event == event && *at > here) {
            self.seek(newest)?;
        }
        let (counted, start) = (self.position().retired - here.retired, self.retired()?);
        while self.position().event == event && !self.ended() {
            // In pieces, so that checkpoints are kept in a long one: it is gone back to right after this.
            let now = self.retired()?;
            self.walk(Until::Retired(now.saturating_add(STRETCH)))?;
        }
        Ok(counted + self.retired()? - start)
    }
}
