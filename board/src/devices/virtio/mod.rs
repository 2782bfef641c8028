//! What devices of virtio 1.2 have in common: registers in memory (`registers`), queues (`queue`), pieces of memory (`parts`, `dma`),
//! packets in and out (`pipe`). `driver` is the guest's side, for tests.

mod dma;
#[cfg(test)]
pub(in crate::devices) mod driver;
mod parts;
pub(in crate::devices) mod pipe;
mod queue;
mod registers;

pub(crate) use dma::Dma;
pub(in crate::devices) use parts::{Part, gather, scatter, total};
pub(in crate::devices) use pipe::{Fit, Packets, Pipe};
pub(in crate::devices) use queue::{Broken, Chain, MOST};
pub(in crate::devices) use registers::{CHANGED, Kind, NOTIFY, Transport, USED};

/// What the board sees of a device of virtio, but for what it is for.
pub(in crate::devices) trait Device {
    /// A load from its registers.
    fn read(&self, offset: u64) -> u32;
    /// A store there.
    fn write(&mut self, offset: u64, value: u32, now: u64);
    /// When it wants to reach memory next.
    fn due(&self) -> Option<u64>;
    /// Whether its line has risen since this was asked last.
    fn take_pulse(&mut self) -> bool;
}
