//! Which part of synthesis has how much of the fuel, and of the time where that is limited.

use crate::fuel::{Fuel, Until};
use crate::search::{Limits, Stop};
use std::time::Instant;
use vmm::engine::Interrupter;

/// So many parts of so many are for the search, the rest for the certificates.
const SEARCH: [u32; 2] = [3, 4];

/// One part in so many, beside them, is for finding out what of a suffix is forced.
const JUDGING: u64 = 10;

/// When all of it is to end.
pub(crate) fn whole(limits: &Limits, interrupter: &Interrupter, fuel: &Fuel) -> Until {
    Until::new(fuel, limits.fuel)
        .with_deadline(limits.time.map(|time| Instant::now() + time))
        .with_interrupter(interrupter.clone())
}

/// The end of the search.
pub(crate) fn of_search(limits: &Limits, until: &Until) -> Until {
    let [search, whole] = SEARCH;
    let deadline = limits.time.map(|time| Instant::now() + time * search / whole);
    until.share(search.into(), whole.into()).with_deadline(deadline)
}

/// The end of the certificates, after a search that stopped so: their share at least, since one question at the search's end may
/// have taken more than there was; who interrupted the search waits for them alone.
pub(crate) fn of_certificates(limits: &Limits, until: &Until, stop: Stop) -> Until {
    let [search, whole] = SEARCH;
    let rest = whole - search;
    let share = limits.fuel / u64::from(whole) * u64::from(rest);
    let deadline = limits.time.map(|time| Instant::now() + time * rest / whole);
    if stop == Stop::Interrupted {
        return until.at_most(share).with_deadline(deadline);
    }
    // What the search did not use is theirs, too.
    until.at_least(share).with_deadline(deadline.into_iter().chain(until.deadline()).max())
}

/// The end of judging what is forced.
pub(crate) fn of_judging(limits: &Limits, fuel: &Fuel) -> Until {
    Until::new(fuel, limits.fuel / JUDGING)
}
