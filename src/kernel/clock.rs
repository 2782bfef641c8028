//! `--clock`: which time of day a machine begins with. From there on its clock is made of instructions.

use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where a machine's clock begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// At this host's time of day.
    Host,
    /// At the same time always: nothing of the host's is in it.
    Instructions,
}

/// 1 January 2000, 0:00 UTC, in seconds since 1970.
pub(super) const ALWAYS: u64 = 946_684_800;

impl Clock {
    /// The time of day at the start of a machine, in seconds since 1970.
    pub(super) fn start(self) -> u64 {
        match self {
            // A host whose clock is before 1970 has none.
            Clock::Host => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            Clock::Instructions => ALWAYS,
        }
    }
}

impl FromStr for Clock {
    type Err = String;

    fn from_str(text: &str) -> Result<Clock, String> {
        match text {
            "host" => Ok(Clock::Host),
            "instructions" => Ok(Clock::Instructions),
            _ => Err("give host or instructions".to_owned()),
        }
    }
}
