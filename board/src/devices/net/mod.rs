//! A network card: the network device of virtio 1.2 (5.1) by memory-mapped registers, with a queue for each direction.
//!
//! It has an address, and nothing else that it could negotiate: no merged buffers, no checksums, no control queue. Frames that the guest
//! sends are taken out of their queue a while after the guest has told of them. Frames that come from outside wait until the guest has
//! room for them. Each has a header of twelve zeros in front of it in memory, of which one number is 1.
//!
//! Example: the guest puts a buffer of 1,526 bytes into queue 0. A frame of 60 bytes comes: the buffer has 72, the queue says so, register
//! 0x60 has bit 0, and line 6 has pulsed.

use super::virtio::{self, Broken, Dma, Kind, Transport, gather, scatter, total};
use crate::saved::saved;
use std::collections::VecDeque;

/// How long sending takes.
const LATENCY: u64 = 20_000;
/// Frames that wait for room in the guest, at most.
const WAITING: usize = 64;
/// The bytes of a frame: an Ethernet header at least, and no more than the largest that any host has.
pub(crate) const FRAME: std::ops::RangeInclusive<usize> = 14..=65_550;
const RECEIVE: usize = 0;
const SEND: usize = 1;
/// What the driver writes to tell of the first.
const NOTIFY_RECEIVE: u32 = 0;
/// What is in front of a frame.
const HEADER: usize = 12;

/// Features: it has an address, and version 1.
const FEATURES: u64 = 1 << 5 | 1 << 32;

/// The device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Net {
    registers: Transport,
    address: [u8; 6],
    /// When it has something to do.
    due: Option<u64>,
    is_pulsed: bool,
    /// Frames for the guest.
    waiting: VecDeque<Vec<u8>>,
}

saved!(struct Net { registers, address, due, is_pulsed, waiting });

fn kind(address: &[u8; 6]) -> Kind<'_> {
    const NETWORK: u32 = 1;
    Kind { id: NETWORK, queues: 2, features: FEATURES, configuration: address }
}

impl Net {
    /// The card with this Ethernet address.
    pub(crate) fn new(address: [u8; 6]) -> Net {
        Net {
            registers: Transport::default(),
            address,
            due: None,
            is_pulsed: false,
            waiting: VecDeque::new(),
        }
    }

    /// A load from its registers.
    pub(super) fn read(&self, offset: u64) -> u32 {
        self.registers.read(offset, &kind(&self.address))
    }

    /// A store there.
    pub(super) fn write(&mut self, offset: u64, value: u32, now: u64) {
        self.registers.write(offset, value, &kind(&self.address));
        if !self.is_up() {
            // Without a driver nobody is there to take a frame.
            (self.due, self.waiting) = (None, VecDeque::new());
        } else if offset == virtio::NOTIFY {
            let latency = if value == NOTIFY_RECEIVE { 0 } else { LATENCY };
            let due = now.saturating_add(latency);
            self.due = Some(self.due.map_or(due, |before| before.min(due)));
        }
    }

    /// Whether a driver takes frames.
    pub(crate) fn is_up(&self) -> bool {
        self.registers.is_running()
    }

    /// How many frames it takes now.
    pub(crate) fn room(&self) -> usize {
        if self.is_up() { WAITING - self.waiting.len().min(WAITING) } else { 0 }
    }

    /// A frame comes; without room it is lost.
    pub(crate) fn receive(&mut self, frame: &[u8], now: u64) {
        if self.room() > 0 && FRAME.contains(&frame.len()) {
            self.waiting.push_back(frame.to_vec());
            self.due = Some(self.due.map_or(now, |before| before.min(now)));
        }
    }

    pub(super) fn due(&self) -> Option<u64> {
        self.due
    }

    /// Whether its line has risen since this was asked last.
    pub(super) fn take_pulse(&mut self) -> bool {
        std::mem::take(&mut self.is_pulsed)
    }

    /// Does what there is to do, if it is time for that: the frames that the guest has sent.
    pub(super) fn serve(&mut self, memory: &mut Dma<'_>, now: u64) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        if self.due.is_none_or(|due| due > now) {
            return sent;
        }
        self.due = None;
        let served = self.send(memory, &mut sent).and_then(|()| self.fill(memory));
        if let Err(Broken(why)) = served {
            tracing::warn!(
                "the guest's queue for its network card is none: {why}; the card waits for a reset"
            );
            self.registers.need_reset();
            self.waiting.clear();
            self.interrupt(virtio::CHANGED);
        }
        sent
    }

    fn interrupt(&mut self, why: u32) {
        self.registers.interrupts |= why;
        self.is_pulsed = true;
    }

    /// Takes what the guest sends.
    fn send(&mut self, memory: &mut Dma<'_>, sent: &mut Vec<Vec<u8>>) -> Result<(), Broken> {
        while let Some(chain) = self.registers.queues[SEND].pop(memory)? {
            let is_frame = total(&chain.readable) <= (HEADER + FRAME.end()) as u64;
            let bytes =
                if is_frame { gather(memory, &chain.readable).unwrap_or_default() } else { Vec::new() };
            // What is none goes nowhere, as from a card that finds no frame.
            sent.extend(bytes.get(HEADER..).filter(|frame| FRAME.contains(&frame.len())).map(<[u8]>::to_vec));
            self.registers.queues[SEND].push(memory, &chain, 0)?;
            if self.registers.queues[SEND].wants_interrupt(memory) {
                self.interrupt(virtio::USED);
            }
        }
        Ok(())
    }

    /// Gives the guest the frames that it has room for.
    fn fill(&mut self, memory: &mut Dma<'_>) -> Result<(), Broken> {
        while let Some(frame) = self.waiting.front() {
            let Some(chain) = self.registers.queues[RECEIVE].pop(memory)? else { return Ok(()) };
            let mut bytes = vec![0; HEADER];
            // The number of buffers.
            bytes[HEADER - 2] = 1;
            bytes.extend(frame);
            let fits = total(&chain.writable) >= bytes.len() as u64;
            // A frame that does not fit is lost, and its buffer comes back empty.
            let (_, stored) = if fits { scatter(memory, &chain.writable, &bytes) } else { (false, 0) };
            self.waiting.pop_front();
            self.registers.queues[RECEIVE].push(memory, &chain, stored)?;
            if self.registers.queues[RECEIVE].wants_interrupt(memory) {
                self.interrupt(virtio::USED);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
