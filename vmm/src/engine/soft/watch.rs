//! Data that is watched: an access that begins near it faults, and the instruction then runs alone.
//!
//! Whether it accesses the very bytes is told from its operands before it runs. What an access that is kept from them costs, and
//! others do not: [`x86::guard`].

use super::PagedRam;
use crate::engine::accessed::{accesses, repeated};
use crate::engine::code::fetch;
use crate::engine::lookout::{Accessed, Lookout, Watch};
use x86::guard::{Guard, Watched};
use x86::interpreter::{Observer, Stop, Until};
use x86_jit::Jit;

/// What is looked for, and the guard that keeps accesses from it.
#[derive(Default)]
pub(super) struct Watching {
    lookout: Lookout,
    pub(super) guard: Guard,
}

impl Watching {
    /// Looks for this from now on; the translations are to be forgotten.
    pub(super) fn set(&mut self, lookout: &Lookout) {
        self.lookout = lookout.clone();
        let watched =
            |watch: &Watch| Watched { range: watch.range.clone(), loads: watch.access.includes(false) };
        self.guard.watch(lookout.data.iter().map(watched).collect());
        self.guard.set_up(true);
    }

    pub(super) fn lookout(&self) -> &Lookout {
        &self.lookout
    }
}

/// Runs the instruction at rip that was kept from a watched page: why it stopped, and what it accessed of what is watched.
pub(super) fn run_guarded<O: Observer>(
    jit: &mut Jit<PagedRam>,
    observer: &mut O,
) -> (Stop, Option<Accessed>) {
    let before = jit.cpu().regs();
    let PagedRam { ram, root, .. } = jit.cpu().bus();
    let accesses = accesses(&fetch(ram, *root, before.rip), &before);
    jit.cpu_mut().bus_mut().watching.guard.set_up(false);
    let one = jit.counters().instructions + 1;
    let stop = jit.run(Until::retired(one), observer);
    let after = jit.cpu().regs();
    jit.cpu_mut().bus_mut().watching.guard.set_up(true);
    let lookout = &jit.cpu().bus().watching.lookout;
    let seen = accesses.iter().find_map(|(access, repeats)| {
        let range = if *repeats { repeated(access, &before, &after) } else { access.range.clone() };
        let address = lookout.watched(&range, access.writes)?;
        let len = range.end.saturating_sub(address);
        Some(Accessed { rip: before.rip, address, len, writes: access.writes })
    });
    (stop, seen)
}

/// Whether a page fault was the guard's.
pub(super) fn take_stopped(jit: &mut Jit<PagedRam>) -> bool {
    jit.cpu_mut().bus_mut().watching.guard.take_stopped()
}
