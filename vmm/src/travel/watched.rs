//! The watched bytes as they were when they were looked at last: what is mapped there changes without anybody writing.

use super::Travel;
use crate::engine::lookout::{Lookout, Watch};
use crate::ram::Virt;
use std::collections::BTreeMap;

/// A byte for each that is watched, of each process that was loaded so far; none where nothing is mapped.
pub(super) struct Watched(BTreeMap<i32, Vec<Vec<Option<u8>>>>);

impl Watched {
    /// As they are now in the loaded process, if that is followed.
    pub(super) fn of(travel: &Travel, lookout: &Lookout) -> Watched {
        let mut watched = Watched(BTreeMap::new());
        watched.change(travel, lookout);
        watched
    }

    /// The first byte of the loaded process that is another one since.
    pub(super) fn change(&mut self, travel: &Travel, lookout: &Lookout) -> Option<Virt> {
        let own = travel.own(lookout)?;
        let now: Vec<_> = own.data.iter().map(|watch| read(travel, watch)).collect();
        let before = self.0.insert(travel.process().pid(), now.clone())?;
        let pairs = before.iter().zip(&now).zip(&own.data);
        pairs.filter(|(_, watch)| watch.access.includes(true)).find_map(|((before, now), watch)| {
            let at = before.iter().zip(now).position(|(a, b)| a != b)?;
            Some(watch.range.start + at as u64)
        })
    }
}

fn read(travel: &Travel, watch: &Watch) -> Vec<Option<u8>> {
    let process = travel.process();
    let len = usize::try_from(watch.range.end - watch.range.start).unwrap_or(0);
    let mut bytes = vec![0; len];
    if process.read_memory(watch.range.start, &mut bytes) {
        return bytes.into_iter().map(Some).collect();
    }
    // Not all of them are mapped.
    let byte = |at: Virt| {
        let mut byte = [0];
        process.read_memory(at, &mut byte).then_some(byte[0])
    };
    (watch.range.start..watch.range.end).map(byte).collect()
}
