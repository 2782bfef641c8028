//! Snapshots of a machine in memory: what it was at moments of the past, by the pages that have changed between them.
//!
//! Example: snapshots at 10, 20 and 30 million instructions. Page 7 changed at 12 and at 25, so it is kept as it was at 20 and at 30. A
//! machine at 33 that is to be at 20 again takes what was kept last up to there of each page that has changed since: page 7 of 20.

use crate::devices::disk::Layers;
use crate::machine::{Machine, Position};
use crate::memory::{PAGE, Page, page};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So many pages are kept: half a gigabyte.
const MOST_PAGES: usize = 1 << 17;

/// The past of one machine.
pub(super) struct History {
    /// Memory at the first of the snapshots, but for pages of zeros.
    first: BTreeMap<u64, Arc<Page>>,
    snapshots: BTreeMap<Position, Snapshot>,
    /// A page as it was at a snapshot and from then on, where it had changed since the snapshot before.
    pages: BTreeMap<u64, BTreeMap<Position, Arc<Page>>>,
    kept: usize,
    /// The snapshot that the machine has run from.
    base: Position,
    /// Snapshots are so far from each other, in instructions, but for the one before where somebody stands.
    spacing: u64,
}

/// A moment, but for memory.
struct Snapshot {
    /// The record of the journal that comes next.
    next: usize,
    state: Vec<u64>,
    layers: Option<Layers>,
    /// The frames that have changed since the snapshot before.
    changed: BTreeSet<u64>,
}

impl History {
    /// A past that begins now, where `next` is the record that comes next. The machine rests.
    pub(super) fn new(machine: &mut Machine, next: usize, spacing: u64) -> History {
        machine.take_unsaved();
        let base = machine.position();
        let mut history = History {
            first: pages_of(machine.ram()),
            snapshots: BTreeMap::new(),
            pages: BTreeMap::new(),
            kept: 0,
            base,
            spacing,
        };
        history.insert(machine, next, BTreeSet::new());
        history
    }

    fn insert(&mut self, machine: &Machine, next: usize, changed: BTreeSet<u64>) {
        let layers = machine.layers().cloned();
        let snapshot = Snapshot { next, state: machine.state(), layers, changed };
        self.snapshots.insert(machine.position(), snapshot);
    }

    /// Where it begins.
    pub(super) fn begin(&self) -> Position {
        self.snapshots.keys().next().copied().unwrap_or(self.base)
    }

    /// The last snapshot up to a position.
    pub(super) fn before(&self, position: Position) -> Option<Position> {
        self.snapshots.range(..=position).next_back().map(|(at, _)| *at)
    }

    /// Whether a snapshot here would be far from the one before it.
    pub(super) fn wants(&self, here: Position) -> bool {
        self.before(here).is_none_or(|before| here.retired - before.retired >= self.spacing)
    }

    /// Keeps a snapshot of a machine that rests.
    pub(super) fn add(&mut self, machine: &mut Machine, next: usize) {
        let (here, changed) = (machine.position(), machine.take_unsaved().frames);
        if !self.snapshots.contains_key(&here) {
            for frame in &changed {
                let Some(bytes) = page(machine.ram(), *frame) else { continue };
                self.pages.entry(*frame).or_default().insert(here, Arc::new(*bytes));
                self.kept += 1;
            }
            self.insert(machine, next, changed);
        }
        self.base = here;
        // Where a machine changes more between two moments than may be kept, two are left all the same.
        while self.kept > MOST_PAGES && self.thin_out() {}
    }

    /// Forgets every other snapshot, but for the first and the one that the machine has run from: whether there were any.
    fn thin_out(&mut self) -> bool {
        self.spacing = self.spacing.saturating_mul(2);
        let kept = [self.begin(), self.base];
        let others = self.snapshots.keys().skip(1).step_by(2).filter(|at| !kept.contains(at));
        let gone: Vec<Position> = others.copied().collect();
        gone.iter().for_each(|at| self.forget(*at));
        !gone.is_empty()
    }

    fn forget(&mut self, at: Position) {
        let Some(Snapshot { changed, .. }) = self.snapshots.remove(&at) else { return };
        let Some((next_at, next)) = self.snapshots.range_mut(at..).next() else {
            changed
                .iter()
                .for_each(|frame| self.kept -= usize::from(remove(&mut self.pages, *frame, at).is_some()));
            return;
        };
        for frame in changed {
            let Some(bytes) = remove(&mut self.pages, frame, at) else { continue };
            if next.changed.insert(frame) {
                self.pages.entry(frame).or_default().insert(*next_at, bytes);
            } else {
                self.kept -= 1;
            }
        }
    }

    /// Puts the machine back to a snapshot: the record that comes next there; `None` where there is no such snapshot.
    pub(super) fn restore(&mut self, machine: &mut Machine, to: Position) -> Option<usize> {
        let mut frames = machine.take_unsaved().frames;
        let (low, high) = (self.base.min(to), self.base.max(to));
        for (at, snapshot) in self.snapshots.range(low..=high) {
            if *at > low {
                frames.extend(&snapshot.changed);
            }
        }
        for frame in frames {
            let kept = self.pages.get(&frame).and_then(|kept| kept.range(..=to).next_back());
            let bytes = kept.map(|(_, bytes)| bytes).or_else(|| self.first.get(&frame));
            machine.put_page(frame, bytes.map_or(&ZEROS, |bytes| &**bytes))?;
        }
        let snapshot = self.snapshots.get(&to)?;
        machine.put_state(&snapshot.state, snapshot.layers.clone())?;
        self.base = to;
        Some(snapshot.next)
    }
}

const ZEROS: Page = [0; PAGE];

/// The pages of memory that are not zero, by their addresses.
fn pages_of(ram: &[u8]) -> BTreeMap<u64, Arc<Page>> {
    let (pages, _) = ram.as_chunks::<PAGE>();
    let numbered = (0..).step_by(PAGE).zip(pages);
    numbered.filter(|(_, page)| **page != ZEROS).map(|(at, page)| (at, Arc::new(*page))).collect()
}

fn remove(
    pages: &mut BTreeMap<u64, BTreeMap<Position, Arc<Page>>>,
    frame: u64,
    at: Position,
) -> Option<Arc<Page>> {
    let kept = pages.get_mut(&frame)?;
    let bytes = kept.remove(&at);
    if kept.is_empty() {
        pages.remove(&frame);
    }
    bytes
}
