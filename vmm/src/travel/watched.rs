//! The watched bytes as they were when they were looked at last: what is mapped there changes without anybody writing.

use super::Travel;
use crate::engine::lookout::{Lookout, Watch};
use crate::ram::Virt;
use std::collections::{BTreeMap, BTreeSet};

/// A byte for each that is watched, of each process that is followed and was loaded so far or is named by who follows; none where
/// nothing is mapped.
#[derive(PartialEq, Eq)]
pub(super) struct Watched(BTreeMap<i32, Vec<Vec<Option<u8>>>>);

impl Watched {
    /// As they are now. Of processes that are not loaded, too: what is shared changes while others run.
    pub(super) fn of(travel: &Travel, lookout: &Lookout) -> Watched {
        let mut watched = Watched(BTreeMap::new());
        watched.change(travel, lookout);
        for (pid, own) in living(travel, lookout) {
            watched.change_of(travel, pid, own);
        }
        watched
    }

    /// The first byte of the loaded process that is another one since.
    pub(super) fn change(&mut self, travel: &Travel, lookout: &Lookout) -> Option<Virt> {
        self.change_of(travel, travel.process().pid(), travel.own(lookout)?)
    }

    /// The processes that are not loaded and whose bytes are others since.
    pub(super) fn changed_elsewhere(&self, travel: &Travel, lookout: &Lookout) -> BTreeSet<i32> {
        let is_another = |(pid, own): &(i32, &Lookout)| {
            self.0.get(pid).is_some_and(|before| *before != read_all(travel, *pid, own))
        };
        let loaded = travel.process().pid();
        let others = living(travel, lookout).filter(|(pid, _)| *pid != loaded);
        others.filter(is_another).map(|(pid, _)| pid).collect()
    }

    fn change_of(&mut self, travel: &Travel, pid: i32, own: &Lookout) -> Option<Virt> {
        let now = read_all(travel, pid, own);
        let before = self.0.insert(pid, now.clone())?;
        let pairs = before.iter().zip(&now).zip(&own.data);
        pairs.filter(|(_, watch)| watch.access.includes(true)).find_map(|((before, now), watch)| {
            let at = before.iter().zip(now).position(|(a, b)| a != b)?;
            Some(watch.range.start + at as u64)
        })
    }
}

/// The processes that are followed by their numbers and have memory here.
fn living<'a>(travel: &'a Travel, lookout: &'a Lookout) -> impl Iterator<Item = (i32, &'a Lookout)> {
    travel.named(lookout).into_iter().filter(|(pid, _)| travel.process().space_of(*pid).is_some())
}

fn read_all(travel: &Travel, pid: i32, own: &Lookout) -> Vec<Vec<Option<u8>>> {
    own.data.iter().map(|watch| read(travel, pid, watch)).collect()
}

fn read(travel: &Travel, pid: i32, watch: &Watch) -> Vec<Option<u8>> {
    let process = travel.process();
    let len = usize::try_from(watch.range.end - watch.range.start).unwrap_or(0);
    let mut bytes = vec![0; len];
    if process.read_memory_of(pid, watch.range.start, &mut bytes) {
        return bytes.into_iter().map(Some).collect();
    }
    // Not all of them are mapped.
    let byte = |at: Virt| {
        let mut byte = [0];
        process.read_memory_of(pid, at, &mut byte).then_some(byte[0])
    };
    (watch.range.start..watch.range.end).map(byte).collect()
}
