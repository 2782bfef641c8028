//! The time of a trace: where on it something that happened stands.

use vmm::process::happening::Happening;

/// What the trace's time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Axis {
    /// The number of the event
    Events,
    /// The program's clock, as the journal has it
    Time,
    /// Instructions that have retired
    Instructions,
}

impl Axis {
    /// In words, for the trace itself.
    pub(super) fn description(self) -> &'static str {
        match self {
            Axis::Events => "1 us is one event of the recording",
            Axis::Time => "CLOCK_MONOTONIC of the program, from its first event on",
            Axis::Instructions => "1 ns is one retired instruction of the program",
        }
    }
}

/// Nanoseconds of the trace for one event.
const PER_EVENT: u64 = 1000;

/// The axis, and how far along it the trace has come: all in nanoseconds of the trace.
pub(super) struct Scale {
    axis: Axis,
    /// What stands at zero.
    zero: Option<u64>,
    /// Where the last thing that happened ended.
    last: u64,
}

/// Where something stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Where the thing before it ended.
    pub(super) before: u64,
    /// Where it begins, if it took as long as it may have.
    pub(super) begin: u64,
    /// Where it stands, if it took no time.
    pub(super) here: u64,
    /// Where it ends.
    pub(super) end: u64,
}

impl Scale {
    pub(super) fn new(axis: Axis) -> Scale {
        Scale { axis, zero: None, last: 0 }
    }

    /// The axis.
    pub(super) fn axis(&self) -> Axis {
        self.axis
    }

    /// Where the trace has come to.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Goes on to something that happened. What happens in one event stands at one place.
    pub(super) fn advance(&mut self, happening: &Happening) -> Span {
        let before = self.last;
        let event = happening.position.event.saturating_mul(PER_EVENT);
        let here = match self.axis {
            Axis::Events => event,
            Axis::Time => happening.time.monotonic,
            Axis::Instructions => happening.instructions.unwrap_or(before),
        };
        let here = here.saturating_sub(*self.zero.get_or_insert(here));
        let (begin, end) = match self.axis {
            Axis::Events => (here, here + PER_EVENT),
            Axis::Time => (before, here),
            Axis::Instructions => (here, here),
        };
        self.last = end.max(before);
        Span { before, begin, here, end: self.last }
    }
}
