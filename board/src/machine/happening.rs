//! What happens in a machine beside its instructions, for whoever lists it.

use super::{Machine, Position};
pub use crate::devices::disk::{Request, Status};
use crate::devices::vsock::Header;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The processor took an interrupt of this vector.
    Interrupt(u8),
    /// The disk did a request.
    Disk(Request),
    /// The guest sent a frame of so many bytes.
    Sent(usize),
    /// The guest sent a packet with this header.
    Packet(Header),
}

/// What happened, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happening {
    /// Where the run stood.
    pub at: Position,
    /// Nanoseconds since the machine began.
    pub time: u64,
    /// What.
    pub what: What,
}

impl Machine {
    /// Keeps what happens from now on, until it is taken.
    pub fn observe(&mut self) {
        self.happenings = Some(Vec::new());
    }

    /// What has happened since this was called last.
    pub fn take_happenings(&mut self) -> Vec<Happening> {
        self.happenings.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Keeps something, if somebody observes.
    pub(super) fn happens(&mut self, what: What) {
        let (at, time) = (self.position(), self.moment().time);
        self.happenings.iter_mut().for_each(|happenings| happenings.push(Happening { at, time, what }));
    }
}
