//! What devices of virtio 1.2 have in common: registers in memory (`registers`), queues (`queue`), pieces of memory (`parts`, `dma`).

mod dma;
mod parts;
mod queue;
mod registers;

pub(crate) use dma::Dma;
pub(in crate::devices) use parts::{Part, gather, scatter, total};
pub(in crate::devices) use queue::{Broken, Chain, MOST};
pub(in crate::devices) use registers::{CHANGED, Kind, NOTIFY, Transport, USED};
