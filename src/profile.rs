//! Where a recording's time went: the table and the JSON of `gretel record --profile`.

use crate::log::say;
use serde_json::{Value, json};
use std::time::Duration;
use vmm::process::profile::{Exits, Kind, Profile};
use vmm::record::{Recorded, Times};

/// The processors, in the order of [`Profile::exits`].
const PROCESSORS: [&str; 2] = ["kvm", "soft"];

/// Milliseconds.
fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Exits that happened: on which processor, of which kind.
fn happened(profile: &Profile) -> impl Iterator<Item = (&'static str, Kind, &Exits)> {
    PROCESSORS.iter().zip(&profile.exits).flat_map(|(on, exits)| {
        let named = Kind::ALL.into_iter().zip(exits).filter(|(_, exits)| exits.count > 0);
        named.map(|(kind, exits)| (*on, kind, exits))
    })
}

/// Says it on stderr.
pub(crate) fn say(recorded: &Recorded) {
    let (Some(times), Some(profile)) = (recorded.times, recorded.process.profile()) else { return };
    say!("gretel: where the time went, in milliseconds:");
    say!("  {:<30} {:>10.1}", "start", ms(times.start));
    say!("  {:<30} {:>10} {:>10} {:>10}", "exits", "times", "guest", "served");
    for (on, kind, exits) in happened(profile) {
        let name = format!("{on}: {}", kind.name());
        say!("  {name:<30} {:>10} {:>10.1} {:>10.1}", exits.count, ms(exits.guest), ms(exits.served));
    }
    if profile.exchanges > 0 {
        let (times, took) = (profile.exchanges, ms(profile.exchanging));
        say!("  {:<30} {times:>10} {:>10} {took:>10.1}", "exchanges of the processor", "");
    }
    if let Some(choice) = recorded.process.choice() {
        say!("  {choice}");
    }
    say!("  {:<30} {:>10.1}", "journal (part of served)", ms(times.journal));
    say!("  {:<30} {:>10.1}", "digests and checkpoints", ms(between(&times)));
}

fn between(times: &Times) -> Duration {
    times.run.saturating_sub(times.steps)
}

/// The same as an object; null where nothing was measured.
pub(crate) fn as_json(recorded: &Recorded) -> Value {
    let (Some(times), Some(profile)) = (recorded.times, recorded.process.profile()) else {
        return Value::Null;
    };
    let exits = happened(profile).map(|(on, kind, exits)| {
        json!({
            "engine": on,
            "kind": kind.name(),
            "times": exits.count,
            "guest_ms": ms(exits.guest),
            "served_ms": ms(exits.served),
        })
    });
    json!({
        "start_ms": ms(times.start),
        "exits": exits.collect::<Vec<_>>(),
        "exchanges": { "times": profile.exchanges, "ms": ms(profile.exchanging) },
        "choice": recorded.process.choice(),
        "journal_ms": ms(times.journal),
        "digests_and_checkpoints_ms": ms(between(&times)),
    })
}
