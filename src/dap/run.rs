//! To the next breakpoint or the last one before, with or without places of one's own.

use super::breakpoints::Way;
use super::debuggee::{Debuggee, Reason};
use super::ends::{exit_of, has_died};
use crate::accesses::passed_over;
use crate::sight::Known;
use vmm::position::Position;
use vmm::process::Process;
use vmm::replay::ReplayError;
use vmm::travel::Stop;

/// Whether a place of one's own is the one that is wanted, where the program stands at its address.
pub(super) type IsIt<'a> = &'a dyn Fn(&Process, &Known, u64) -> bool;

/// Where a run came to.
pub(super) enum Came {
    /// To a place of one's own.
    There,
    /// To something that ends whatever was wanted.
    Elsewhere(Reason),
}

impl Debuggee {
    /// `continue`.
    pub(super) fn go_on(&mut self) -> Result<Reason, ReplayError> {
        Ok(match self.forward_to(&[], &|_, _, _| false)? {
            Came::There => Reason::Step,
            Came::Elsewhere(reason) => reason,
        })
    }

    /// Runs to the first breakpoint, or the first of these addresses where `is_it` holds; no farther than to the end of the process.
    pub(super) fn forward_to(&mut self, places: &[u64], is_it: IsIt<'_>) -> Result<Came, ReplayError> {
        if self.is_dead() {
            return Ok(Came::Elsewhere(Reason::End));
        }
        let places = sorted(places);
        let lookout = self.breakpoints.lookout(&places);
        let Debuggee { travel, known, breakpoints, children, .. } = self;
        let (mut hit, mut exited, pid) = (None, None, travel.followed());
        travel.heed_kernel(true);
        let stop = travel.forward_where(&lookout, None, &mut |process, stop| {
            // The instruction that the signal is for has been stopped at, if it was to be.
            if has_died(process, pid) {
                return true;
            }
            if stop == Stop::Noted {
                children.note(process, pid);
                exited = exit_of(process, pid);
                return exited.is_some();
            }
            hit = breakpoints.hit(known, process, stop, Way::Forward);
            let is_place = |at: u64| places.binary_search(&at).is_ok();
            hit.is_some() || matches!(stop, Stop::Breakpoint(at) if is_place(at) && is_it(process, known, at))
        });
        travel.heed_kernel(false);
        let stop = stop?;
        Ok(match hit {
            Some(hit) => Came::Elsewhere(Reason::Hit(hit)),
            None => self.end_of_process(stop, exited)?.map_or(Came::There, Came::Elsewhere),
        })
    }

    /// `reverseContinue`: to the last breakpoint before, or the beginning of the process.
    pub(super) fn go_back(&mut self) -> Result<Reason, ReplayError> {
        let (lookout, first) = (self.breakpoints.lookout(&[]), self.first()?);
        let Debuggee { travel, known, breakpoints, .. } = self;
        let mut last = None;
        let stop = travel.backward_to(first, &lookout, &mut |process, stop| {
            let hit = breakpoints.hit(known, process, stop, Way::Back);
            let is_hit = hit.is_some();
            // Of those that are asked about, the last that is wanted is where the way ends.
            last = hit.or_else(|| last.take());
            is_hit
        })?;
        self.breakpoints.said.extend(passed_over(&self.travel));
        if matches!(stop, Stop::Changed(_)) {
            let own = self.travel.followed();
            self.travel.back_into(own)?;
        }
        Ok(match stop {
            Stop::Begin | Stop::There => Reason::Begin,
            Stop::Asked => Reason::Pause,
            _ => last.map_or(Reason::Step, Reason::Hit),
        })
    }

    /// Goes back to the last of these addresses where `is_it` holds, without looking for breakpoints. False, and where it was, if there is
    /// none or somebody asks for a stop.
    pub(super) fn back_to(&mut self, places: &[u64], is_it: IsIt<'_>) -> Result<bool, ReplayError> {
        let (here, first) = (self.travel.position(), self.first()?);
        let lookout = vmm::engine::lookout::Lookout { at: sorted(places), data: Vec::new() };
        let Debuggee { travel, known, asked, .. } = self;
        let stop = travel.backward_to(
            first,
            &lookout,
            &mut |process, stop| matches!(stop, Stop::Breakpoint(at) if is_it(process, known, at)),
        )?;
        if matches!(stop, Stop::Breakpoint(_)) {
            return Ok(true);
        }
        *asked |= stop == Stop::Asked;
        travel.seek(here)?;
        Ok(false)
    }

    /// Runs forward to the first of these addresses where `is_it` holds, at most to `end`; without looking for breakpoints.
    pub(super) fn forward_within(
        &mut self,
        places: &[u64],
        end: Position,
        is_it: IsIt<'_>,
    ) -> Result<bool, ReplayError> {
        let lookout = vmm::engine::lookout::Lookout { at: sorted(places), data: Vec::new() };
        let Debuggee { travel, known, asked, .. } = self;
        let stop = travel.forward_where(
            &lookout,
            Some(end),
            &mut |process, stop| matches!(stop, Stop::Breakpoint(at) if is_it(process, known, at)),
        )?;
        *asked |= stop == Stop::Asked;
        Ok(matches!(stop, Stop::Breakpoint(_)))
    }

    /// Goes to the last breakpoint between two positions. `None` where there is none; the program then stands at the earlier one.
    pub(super) fn hit_between(
        &mut self,
        from: Position,
        to: Position,
    ) -> Result<Option<Reason>, ReplayError> {
        self.travel.seek(from)?;
        if self.breakpoints.is_empty() {
            return Ok(None);
        }
        let lookout = self.breakpoints.lookout(&[]);
        let Debuggee { travel, known, breakpoints, .. } = self;
        let mut last = None;
        while travel.position() < to {
            let mut hit = None;
            let stop = travel.forward_where(&lookout, Some(to), &mut |process, stop| {
                hit = breakpoints.hit(known, process, stop, Way::Back);
                hit.is_some()
            })?;
            match hit {
                Some(hit) => last = Some((hit, stop, travel.position())),
                None => break,
            }
        }
        match last {
            None => travel.seek(from)?,
            Some((_, Stop::Breakpoint(_), at)) => travel.seek(at)?,
            // One stands behind an access; going back one stops before it.
            Some(_) => {
                travel.seek(to)?;
                // The very hit that was found, which a later store may have undone.
                travel.look_for_changes(false);
                let went = travel.backward_where(&lookout, &mut |process, stop| {
                    breakpoints.hit(known, process, stop, Way::Back).is_some()
                });
                travel.look_for_changes(true);
                went?;
                travel.position()
            }
        };
        Ok(last.map(|(hit, ..)| Reason::Hit(hit)))
    }
}

fn sorted(places: &[u64]) -> Vec<u64> {
    let mut places = places.to_vec();
    places.sort_unstable();
    places.dedup();
    places
}
