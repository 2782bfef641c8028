//! A recording as a debugger wants it: by single instructions, to the next breakpoint or access to data, and both
//! backwards.
//!
//! [`Travel`] is a [`Timeline`] whose every stop is exact to the instruction, so the software CPU runs whatever is looked
//! at closely. Going back is going forward from a checkpoint, as often as it takes: the goal is the last hit before the
//! position where the search began. The checkpoints that are kept on the way make the next step back short.
//!
//! Breakpoints and watched data are one process's ([`Travel::follow`]), or each process's own ([`Travel::follow_each`]):
//! other processes have other things at the same addresses.
//!
//! Example: at the crash, `backward` with eight bytes watched restores the newest checkpoint, runs on to the crash and
//! finds three stores to them; it goes to the position before the third.
//!
//! The map: [`steps`] is one instruction forward, [`back`] goes from checkpoint to older checkpoint, [`narrow`] finds the segments
//! with stores to a page, [`processes`] finds processes, [`scout`] looks through the stretch before on a second thread,
//! [`watched`] has the watched bytes as they were last, [`ready`] leaves checkpoints, and uses the time in which nobody asks.

mod back;
mod narrow;
mod processes;
mod ready;
mod scout;
mod steps;
mod watched;

use crate::engine::lookout::{Accessed, Lookout};
use crate::engine::{EngineError, Machine, Until};
use crate::journal::Damage;
use crate::position::Position;
use crate::process::{Process, ProcessError};
use crate::ram::Virt;
use crate::recording::Recording;
use crate::replay::{Progress, ReplayError, Replayed};
use crate::timeline::Timeline;
pub use ready::SILENCE;
use scout::Scout;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use watched::Watched;

/// So many instructions run at most between two looks at whether somebody asks for a stop: some milliseconds.
pub(crate) const STRETCH: u64 = 1 << 22;

/// Why a journey ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Where it was to go.
    There,
    /// Before the instruction at this address.
    Breakpoint(Virt),
    /// At an instruction that accesses what is watched: behind it going forward, before it going back.
    Accessed(Accessed),
    /// A system call has written what is watched, or mapped other memory there: behind it going forward, before it going back.
    Changed(Virt),
    /// At the end of the recording.
    End,
    /// At its beginning.
    Begin,
    /// Somebody asked for it ([`Travel::asks`]).
    Asked,
    /// The kernel has done something that is noted ([`Travel::heed_kernel`]): behind it.
    Noted,
}

/// Whether one wants to stop where something was found: the program there, and what was found.
pub type Wanted<'a> = &'a mut dyn FnMut(&Process, Stop) -> bool;

/// Whose breakpoints and data are looked for.
#[derive(Clone)]
enum Followed {
    One(i32),
    /// Those of all processes, at the same addresses.
    All,
    /// Those that each has of its own.
    Each(BTreeMap<i32, Lookout>),
}

/// A recording at a position.
pub struct Travel {
    timeline: Timeline,
    followed: Followed,
    /// Forks, programs that begin, and signals are looked for.
    heeds_kernel: bool,
    asks: Arc<AtomicBool>,
    /// What the processor looks for now.
    looks_for: Lookout,
    /// What was found wrong with the journal, whenever it was read so far.
    damage: Option<Damage>,
    recording: Recording,
    /// Who looks ahead on the way back, once somebody has gone back far.
    scout: Option<Scout>,
    /// How many stretches it found nothing in.
    scouted: u64,
    /// The position before which there are checkpoints close enough for a step back ([`Travel::prepare`]).
    prepared: Option<Position>,
    /// How long a stretch is in which segments with stores are found first.
    narrows_from: Duration,
    /// Of pages that are stored to all the time changes are looked for, and not each store.
    looks_for_changes: bool,
    /// Between which positions the last way back has done so.
    passed_over: Option<(Position, Position)>,
    /// Where the way back began that is being gone, or was.
    comes_from: Position,
}

impl Travel {
    /// Opens a recording, at its beginning.
    ///
    /// # Errors
    /// When the recording cannot be used.
    pub fn open(recording: &Recording, machine: Machine) -> Result<Travel, ReplayError> {
        let mut timeline = Timeline::open(recording, machine)?;
        timeline.tell_stores_apart();
        let followed = Followed::One(timeline.replay().process().pid());
        let looks_for = Lookout::default();
        let asks = Arc::default();
        let recording = recording.clone();
        let (damage, scout, scouted) = (None, None, 0);
        Ok(Travel {
            timeline,
            followed,
            heeds_kernel: false,
            asks,
            looks_for,
            damage,
            recording,
            scout,
            scouted,
            prepared: None,
            narrows_from: narrow::LONG,
            looks_for_changes: false,
            passed_over: None,
            comes_from: Position::default(),
        })
    }

    /// What ends a journey early when it is set; the journey resets it.
    #[must_use]
    pub fn asks(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asks)
    }

    /// Looks for breakpoints and data of this process from now on.
    pub fn follow(&mut self, pid: i32) {
        self.followed = Followed::One(pid);
    }

    /// Looks for those of all processes from now on, each at the same addresses.
    pub fn follow_all(&mut self) {
        self.followed = Followed::All;
    }

    /// Looks from now on in each process for what is its own. Gives what all of them come to, which is what a journey is to be
    /// asked for.
    pub fn follow_each(&mut self, own: BTreeMap<i32, Lookout>) -> Lookout {
        let mut all = Lookout::default();
        for lookout in own.values() {
            all.at.extend(&lookout.at);
            all.data.extend(
                lookout.data.iter().filter(|watch| !all.data.contains(watch)).cloned().collect::<Vec<_>>(),
            );
        }
        all.at.sort_unstable();
        all.at.dedup();
        self.followed = Followed::Each(own);
        all
    }

    /// Whether it is enough to find where watched bytes have changed from one event to the next, in long stretches in which their pages
    /// are stored to nearly all the time: at the speed of the processor that recorded. Each store is found there otherwise, at a tenth of
    /// that.
    pub fn look_for_changes(&mut self, enough: bool) {
        self.looks_for_changes = enough;
    }

    /// Between which positions the last way back has looked for such changes alone.
    #[must_use]
    pub fn passed_over(&self) -> Option<(Position, Position)> {
        self.passed_over
    }

    /// Whether journeys stop where the kernel does what is noted ([`Process::noted`]). Who goes back is to want none of it.
    pub fn heed_kernel(&mut self, heeds: bool) {
        self.heeds_kernel = heeds;
    }

    /// Whether the loaded process is one whose breakpoints and data are looked for.
    #[must_use]
    pub fn follows_loaded(&self) -> bool {
        match &self.followed {
            Followed::One(pid) => *pid == self.process().pid(),
            Followed::All => true,
            Followed::Each(own) => own.contains_key(&self.process().pid()),
        }
    }

    /// What of `lookout` is looked for in the loaded process.
    fn own<'a>(&'a self, lookout: &'a Lookout) -> Option<&'a Lookout> {
        match &self.followed {
            Followed::Each(own) => own.get(&self.process().pid()),
            _ => self.follows_loaded().then_some(lookout),
        }
    }

    /// The processes that are followed by their numbers, whether they live here or not, with what is looked for in each.
    fn named<'a>(&'a self, lookout: &'a Lookout) -> Vec<(i32, &'a Lookout)> {
        match &self.followed {
            Followed::One(pid) => vec![(*pid, lookout)],
            Followed::All => Vec::new(),
            Followed::Each(own) => own.iter().map(|(pid, own)| (*pid, own)).collect(),
        }
    }

    /// Runs to the next event, without looking for anything; false at the end.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn next_event(&mut self) -> Result<bool, ReplayError> {
        if self.timeline.ended() {
            return Ok(false);
        }
        self.look_away()?;
        self.process_mut().count_exactly(false)?;
        self.timeline.step_until(Until::Exit)?;
        Ok(true)
    }

    /// The recording's system calls of these numbers: each one's event, and the task that made it. The journal is read once, and
    /// nothing is run.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn calls(&self, numbers: &[i64]) -> Result<Vec<(u64, i32)>, ReplayError> {
        self.timeline.calls(numbers)
    }

    /// How the recording ended, at its end.
    ///
    /// # Errors
    /// When the state there cannot be read.
    pub fn report(&mut self) -> Result<Replayed, ReplayError> {
        self.timeline.replay_mut().report()
    }

    /// The process that is followed; the loaded one where several are.
    #[must_use]
    pub fn followed(&self) -> i32 {
        match self.followed {
            Followed::One(pid) => pid,
            _ => self.process().pid(),
        }
    }

    /// Where it stands.
    #[must_use]
    pub fn position(&self) -> Position {
        self.timeline.position()
    }

    /// Whether it stands at the recording's end.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.timeline.ended()
    }

    /// The program there.
    #[must_use]
    pub fn process(&self) -> &Process {
        self.timeline.replay().process()
    }

    /// The program, to look at; whoever changes it spoils the replay.
    pub fn process_mut(&mut self) -> &mut Process {
        self.timeline.replay_mut().process_mut()
    }

    /// The timeline.
    #[must_use]
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Goes to a position, or to the first one behind it where the program can stand; gives where that is.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn seek(&mut self, position: Position) -> Result<Position, ReplayError> {
        self.timeline.seek(position)
    }

    /// Goes to the recording's end, from the newest checkpoint on.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn seek_end(&mut self) -> Result<(), ReplayError> {
        self.timeline.seek_end()?;
        self.damage = self.timeline.replay().damage();
        Ok(())
    }

    /// Why the journal has no end, if it has none and the recording was gone through to where it breaks off.
    #[must_use]
    pub fn damage(&self) -> Option<Damage> {
        self.damage.clone().or_else(|| self.timeline.replay().damage())
    }

    /// Runs to the first thing behind here that is looked for, or to the end.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn forward(&mut self, lookout: &Lookout) -> Result<Stop, ReplayError> {
        self.forward_where(lookout, None, &mut |_, _| true)
    }

    /// The same, to the first thing that is also `wanted`, and no farther than to `end`: there it is [`Stop::There`].
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn forward_where(
        &mut self,
        lookout: &Lookout,
        end: Option<Position>,
        wanted: Wanted<'_>,
    ) -> Result<Stop, ReplayError> {
        let mut watched = Watched::of(self, lookout);
        let stop = self.scan(lookout, &mut watched, end, wanted)?;
        self.look_out(&Lookout::default())?;
        let asked = self.is_asked();
        Ok(match stop {
            Some(stop) => stop,
            None if self.timeline.ended() => Stop::End,
            None if asked => Stop::Asked,
            None => Stop::There,
        })
    }

    /// As [`Travel::forward`], at most to `end`, for who asks again and again: it goes on looking, up to [`Travel::look_away`]. `None`
    /// when `end` or the recording's end is reached, or somebody asks for a stop.
    ///
    /// # Errors
    /// At the first difference to the recording.
    pub fn next(&mut self, lookout: &Lookout, end: Option<Position>) -> Result<Option<Stop>, ReplayError> {
        let mut watched = Watched::of(self, lookout);
        self.scan(lookout, &mut watched, end, &mut |_, _| true)
    }

    /// Looks for nothing any more.
    ///
    /// # Errors
    /// When the processor does not take it.
    pub fn look_away(&mut self) -> Result<(), ReplayError> {
        self.look_out(&Lookout::default())
    }

    /// Runs on to the next thing that is looked for, at most to `end`; `watched` is as it was when one looked last. `None` when that end,
    /// or the recording's, is reached, or somebody asks for a stop.
    fn scan(
        &mut self,
        lookout: &Lookout,
        watched: &mut Watched,
        end: Option<Position>,
        wanted: Wanted<'_>,
    ) -> Result<Option<Stop>, ReplayError> {
        self.look_out(lookout)?;
        self.note_kernel();
        let mut here = self.position();
        while !self.timeline.ended() && end.is_none_or(|end| here < end) && !self.asks.load(Ordering::Relaxed)
        {
            let now = self.retired()?;
            let left = match end {
                Some(end) if end.event == here.event => (end.retired - here.retired).min(STRETCH),
                _ => STRETCH,
            };
            self.walk(Until::Retired(now + left))?;
            let before = std::mem::replace(&mut here, self.position());
            if here == before || end.is_some_and(|end| here > end) {
                continue;
            }
            match self.hit(lookout, watched, here.event > before.event) {
                // What stands there has not run.
                Some(Stop::Breakpoint(_)) if end == Some(here) => {}
                Some(stop) if wanted(self.process(), stop) => return Ok(Some(stop)),
                Some(Stop::Noted) => drop(self.process_mut().take_noted()),
                _ => {}
            }
        }
        Ok(None)
    }

    /// What there is at this position of what is looked for.
    fn hit(&mut self, lookout: &Lookout, watched: &mut Watched, event: bool) -> Option<Stop> {
        let found = self.hit_of_own(lookout, watched, event);
        found.or_else(|| (event && !self.process().noted().is_empty()).then_some(Stop::Noted))
    }

    fn hit_of_own(&mut self, lookout: &Lookout, watched: &mut Watched, event: bool) -> Option<Stop> {
        let own = self.own(lookout)?;
        if let Some(accessed) = self.process().cpu().seen() {
            let found = own.watched(&accessed.range(), accessed.writes);
            if found.is_some() {
                // It is told of, and none of the others is to be stopped for it again.
                *watched = Watched::of(self, lookout);
            } else {
                // Others that share the bytes may watch them: they find them changed.
                watched.change(self, lookout);
            }
            return found.map(|address| Stop::Accessed(Accessed { address, ..accessed }));
        }
        let at = own.at.binary_search(&self.process().cpu().regs().rip);
        if event {
            let (written, changed) = (self.written(lookout), watched.change(self, lookout));
            if let Some(address) = written.or(changed) {
                return Some(Stop::Changed(address));
            }
        }
        at.is_ok().then(|| Stop::Breakpoint(self.process().cpu().regs().rip))
    }

    /// The first byte that is looked for of what the kernel has written for the loaded process.
    fn written(&mut self, lookout: &Lookout) -> Option<Virt> {
        let writes = self.process_mut().take_writes();
        let (root, own) = (self.process().space().root(), self.own(lookout)?);
        let writes = writes.iter().filter(|written| written.root == root);
        writes.filter_map(|it| own.watched(&(it.address..it.address.saturating_add(it.len)), true)).min()
    }

    /// Forgets what was noted, and notes from here on if that is heeded.
    fn note_kernel(&mut self) {
        let heeds = self.heeds_kernel;
        self.process_mut().note_kernel(heeds);
    }

    fn look_out(&mut self, lookout: &Lookout) -> Result<(), ReplayError> {
        if !lookout.is_empty() {
            self.process_mut().count_exactly(true)?;
        }
        self.process_mut().note_writes(!lookout.data.is_empty());
        if self.looks_for == *lookout {
            return Ok(());
        }
        self.process_mut().cpu_mut().look_out(lookout).map_err(ProcessError::from)?;
        self.looks_for = lookout.clone();
        Ok(())
    }

    /// Runs to the next exit or bound, counts exactly, and keeps checkpoints.
    pub(crate) fn walk(&mut self, until: Until) -> Result<Progress, ReplayError> {
        self.timeline.walk(until)
    }

    /// Runs to the next exit, however that is fastest, and keeps no checkpoint.
    pub(crate) fn exit(&mut self) -> Result<Progress, ReplayError> {
        self.timeline.exit()
    }

    /// What has retired, as the bounds of runs are counted.
    pub(crate) fn retired(&mut self) -> Result<u64, ReplayError> {
        self.process_mut().count_exactly(true)?;
        let cpu = self.process().cpu();
        let counters = cpu.counters().ok_or_else(|| EngineError::CannotCount(cpu.kind().name()));
        Ok(counters.map_err(ProcessError::from)?.instructions)
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asks.swap(false, Ordering::Relaxed)
    }
}
