//! A network card: the network device of virtio 1.2 (5.1) by memory-mapped registers, with a queue for each direction.
//!
//! It has an address, and nothing else that it could negotiate: no merged buffers, no checksums, no control queue. Its frames are the
//! packets of a [`Pipe`]. Each has a header of twelve zeros in front of it in memory, of which one number is 1.
//!
//! Example: the guest puts a buffer of 1,526 bytes into queue 0. A frame of 60 bytes comes: the buffer has 72, the queue says so, register
//! 0x60 has bit 0, and line 6 has pulsed.

use super::virtio::{Device, Dma, Fit, Kind, Packets, Pipe};
use crate::saved::saved;

/// The bytes of a frame: an Ethernet header at least, and no more than the largest that any host has.
pub(crate) const FRAME: std::ops::RangeInclusive<usize> = 14..=65_550;
/// What is in front of a frame.
const HEADER: usize = 12;
const PACKETS: Packets = Packets { name: "network card", longest: (HEADER + *FRAME.end()) as u64, fit };

/// Features: it has an address, and version 1.
const FEATURES: u64 = 1 << 5 | 1 << 32;

/// The device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Net {
    address: [u8; 6],
    pipe: Pipe,
}

saved!(struct Net { address, pipe });

fn kind(address: &[u8; 6]) -> Kind<'_> {
    const NETWORK: u32 = 1;
    Kind { id: NETWORK, queues: 2, features: FEATURES, configuration: address }
}

/// A frame that does not fit is lost.
fn fit(frame: &[u8], room: u64) -> Fit {
    if room >= frame.len() as u64 { Fit::Whole } else { Fit::Lost }
}

impl Net {
    /// The card with this Ethernet address.
    pub(crate) fn new(address: [u8; 6]) -> Net {
        Net { address, pipe: Pipe::default() }
    }

    /// Whether a driver takes frames.
    pub(crate) fn is_up(&self) -> bool {
        self.pipe.is_up()
    }

    /// How many frames it takes now.
    pub(crate) fn room(&self) -> usize {
        self.pipe.room()
    }

    /// A frame comes; without room it is lost.
    pub(crate) fn receive(&mut self, frame: &[u8], now: u64) {
        if !FRAME.contains(&frame.len()) {
            return;
        }
        let mut bytes = vec![0; HEADER];
        // The number of buffers.
        bytes[HEADER - 2] = 1;
        bytes.extend(frame);
        self.pipe.receive(bytes, now);
    }

    /// Does what there is to do, if it is time for that: the frames that the guest has sent.
    pub(super) fn serve(&mut self, memory: &mut Dma<'_>, now: u64) -> Vec<Vec<u8>> {
        if !self.pipe.take_due(now) {
            return Vec::new();
        }
        let sent = self.pipe.serve(memory, &PACKETS, now);
        // What is none goes nowhere, as from a card that finds no frame.
        let frames = sent.iter().filter_map(|packet| packet.get(HEADER..));
        frames.filter(|frame| FRAME.contains(&frame.len())).map(<[u8]>::to_vec).collect()
    }
}

impl Device for Net {
    fn read(&self, offset: u64) -> u32 {
        self.pipe.registers.read(offset, &kind(&self.address))
    }

    fn write(&mut self, offset: u64, value: u32, now: u64) {
        self.pipe.write(offset, value, now, &kind(&self.address));
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
