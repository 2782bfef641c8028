//! Connections between programs in the guest and on the host: the socket device of virtio 1.2 (5.10) by memory-mapped registers.
//!
//! The device carries packets, and knows of connections nothing. Who is at the other end (ports, credit, resets) is outside of the
//! machine, so that all that it answers is in the journal. A packet of data that is longer than the guest's buffer is given in parts,
//! each with a header of its own.
//!
//! Example: the guest sends `REQUEST` from its port 1025 to port 52 of the host: a packet of 44 bytes, which is taken out of queue 1.
//! `RESPONSE` comes from outside, and is in a buffer of queue 0.

mod header;

pub use header::{Header, STREAM, op};

use super::virtio::{Broken, Device, Dma, Fit, Kind, Packets, Pipe, scatter};
use crate::saved::saved;

/// The address of the guest, as Firecracker's first guest has it; the host's is 2.
pub const GUEST: u64 = 3;
/// The bytes of a header.
pub const HEADER: usize = 44;
/// The data of one packet, at most (as Linux has it).
pub const MOST_DATA: usize = 64 << 10;
/// The queue by which the guest is told that all connections are gone.
const EVENT: usize = 2;

const CONFIGURATION: [u8; 8] = GUEST.to_le_bytes();
const KIND: Kind<'static> = {
    const SOCKET: u32 = 19;
    const VERSION_1: u64 = 1 << 32;
    Kind { id: SOCKET, queues: 3, features: VERSION_1, configuration: &CONFIGURATION }
};
const PACKETS: Packets = Packets { name: "vsock", longest: (HEADER + MOST_DATA) as u64, fit };

/// The device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vsock {
    pipe: Pipe,
    /// The guest is to be told that all connections are gone.
    is_severed: bool,
}

saved!(struct Vsock { pipe, is_severed });

/// As much as there is room for; what is no data has no parts.
fn fit(packet: &[u8], room: u64) -> Fit {
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    if room >= packet.len() {
        return Fit::Whole;
    }
    let (Some(header), Some(data)) = (Header::of(packet), packet.get(HEADER..)) else { return Fit::Lost };
    let Some(now @ 1..) = room.checked_sub(HEADER) else { return Fit::Waits };
    let (now, later) = data.split_at(now);
    Fit::Split(header.packet(now), header.packet(later))
}

impl Vsock {
    /// Whether a driver takes packets.
    pub(crate) fn is_up(&self) -> bool {
        self.pipe.is_up()
    }

    /// How many packets it takes now.
    pub(crate) fn room(&self) -> usize {
        self.pipe.room()
    }

    /// A packet comes; without room, or without a header that says how long it is, it is lost.
    pub(crate) fn receive(&mut self, packet: &[u8], now: u64) {
        let length = Header::of(packet).and_then(|header| usize::try_from(header.length).ok());
        if length.is_some_and(|length| length <= MOST_DATA && packet.len() == HEADER + length) {
            self.pipe.receive(packet.to_vec(), now);
        }
    }

    /// All connections are gone: what waits is forgotten, and the guest is told.
    pub(crate) fn sever(&mut self, now: u64) {
        self.pipe.forget();
        if self.is_up() {
            self.is_severed = true;
            self.pipe.wake(now);
        }
    }

    /// Does what there is to do, if it is time for that: the packets that the guest has sent.
    pub(super) fn serve(&mut self, memory: &mut Dma<'_>, now: u64) -> Vec<Vec<u8>> {
        if !self.pipe.take_due(now) {
            return Vec::new();
        }
        if let Err(broken) = self.tell(memory) {
            self.pipe.give_up(broken, PACKETS.name);
            return Vec::new();
        }
        let mut sent = self.pipe.serve(memory, &PACKETS, now);
        sent.retain(|packet| packet.len() >= HEADER);
        sent
    }

    /// Tells the guest that all connections are gone, once it has a buffer for that.
    fn tell(&mut self, memory: &mut Dma<'_>) -> Result<(), Broken> {
        const TRANSPORT_RESET: [u8; 4] = [0; 4];
        if !self.is_severed {
            return Ok(());
        }
        let Some(chain) = self.pipe.registers.queues[EVENT].pop(memory)? else { return Ok(()) };
        self.is_severed = false;
        let (_, stored) = scatter(memory, &chain.writable, &TRANSPORT_RESET);
        self.pipe.registers.queues[EVENT].push(memory, &chain, stored)?;
        self.pipe.used(memory, EVENT);
        Ok(())
    }
}

impl Device for Vsock {
    fn read(&self, offset: u64) -> u32 {
        self.pipe.registers.read(offset, &KIND)
    }

    fn write(&mut self, offset: u64, value: u32, now: u64) {
        self.pipe.write(offset, value, now, &KIND);
        self.is_severed &= self.is_up();
    }

    fn due(&self) -> Option<u64> {
        self.pipe.due()
    }

    fn take_pulse(&mut self) -> bool {
        self.pipe.take_pulse()
    }
}

#[cfg(test)]
mod tests;
