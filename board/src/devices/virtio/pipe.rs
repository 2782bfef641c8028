//! A device that takes packets in one queue and gives packets in another: a network card, a vsock.
//!
//! What the guest sends is taken out of its queue a while after the guest has told of it. What comes from outside waits until the guest
//! has a buffer for it. Example: a packet of 60 bytes comes, and waits. The guest puts a buffer of 1,526 bytes into queue 0 and tells
//! of it: the buffer has 60, the queue says so, register 0x60 has bit 0, and the line has pulsed.

use super::{Broken, CHANGED, Dma, Kind, NOTIFY, Transport, USED, gather, scatter, total};
use crate::saved::saved;
use std::collections::VecDeque;

/// The queue of buffers for what comes, and that of what is sent.
pub(in crate::devices) const RECEIVE: usize = 0;
pub(in crate::devices) const SEND: usize = 1;
/// How long sending takes.
pub(in crate::devices) const LATENCY: u64 = 20_000;
/// The bytes that are sent at once, but for the last packet.
const AT_ONCE: usize = 1 << 20;
/// Packets that wait for room in the guest, at most.
pub(in crate::devices) const WAITING: usize = 64;

/// What is done with the packet that has waited longest, and a buffer of so many bytes.
pub(in crate::devices) enum Fit {
    /// It goes into the buffer.
    Whole,
    /// The first of these does, and the second waits on.
    Split(Vec<u8>, Vec<u8>),
    /// It is lost, and the buffer comes back empty.
    Lost,
    /// The buffer comes back empty, and the packet waits on.
    Waits,
}

/// How a device's packets are.
pub(in crate::devices) struct Packets {
    /// What the device is, in words.
    pub(in crate::devices) name: &'static str,
    /// The bytes of one that is sent, at most.
    pub(in crate::devices) longest: u64,
    pub(in crate::devices) fit: fn(&[u8], u64) -> Fit,
}

/// The device, but for what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::devices) struct Pipe {
    pub(in crate::devices) registers: Transport,
    /// When it has something to do.
    due: Option<u64>,
    is_pulsed: bool,
    /// Packets for the guest.
    waiting: VecDeque<Vec<u8>>,
}

saved!(struct Pipe { registers, due, is_pulsed, waiting });

impl Pipe {
    /// A store to its registers.
    pub(in crate::devices) fn write(&mut self, offset: u64, value: u32, now: u64, kind: &Kind<'_>) {
        self.registers.write(offset, value, kind);
        if !self.is_up() {
            // Without a driver nobody is there to take a packet.
            (self.due, self.waiting) = (None, VecDeque::new());
        } else if offset == NOTIFY {
            let latency = if usize::try_from(value) == Ok(SEND) { LATENCY } else { 0 };
            self.wake(now.saturating_add(latency));
        }
    }

    /// Has it do what there is to do at a time, or before.
    pub(in crate::devices) fn wake(&mut self, due: u64) {
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    /// Whether a driver takes packets.
    pub(in crate::devices) fn is_up(&self) -> bool {
        self.registers.is_running()
    }

    /// How many it takes now.
    pub(in crate::devices) fn room(&self) -> usize {
        if self.is_up() { WAITING - self.waiting.len().min(WAITING) } else { 0 }
    }

    /// A packet comes; without room it is lost.
    pub(in crate::devices) fn receive(&mut self, packet: Vec<u8>, now: u64) {
        if self.room() > 0 {
            self.waiting.push_back(packet);
            self.wake(now);
        }
    }

    /// Forgets what waits for the guest.
    pub(in crate::devices) fn forget(&mut self) {
        self.waiting.clear();
    }

    pub(in crate::devices) fn due(&self) -> Option<u64> {
        self.due
    }

    /// Whether its line has risen since this was asked last.
    pub(in crate::devices) fn take_pulse(&mut self) -> bool {
        std::mem::take(&mut self.is_pulsed)
    }

    /// Whether it is time to serve it; it is not, once this has said so.
    pub(in crate::devices) fn take_due(&mut self, now: u64) -> bool {
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due {
            self.due = None;
        }
        is_due
    }

    /// Takes what the guest sends, and gives it what waits.
    pub(in crate::devices) fn serve(
        &mut self,
        memory: &mut Dma<'_>,
        packets: &Packets,
        now: u64,
    ) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        let served = self.send(memory, packets, &mut sent, now).and_then(|()| self.fill(memory, packets));
        if let Err(broken) = served {
            self.give_up(broken, packets.name);
        }
        sent
    }

    /// Waits for a reset, and says why.
    pub(in crate::devices) fn give_up(&mut self, Broken(why): Broken, name: &str) {
        tracing::warn!("the guest's queue for its {name} is none: {why}; the device waits for a reset");
        self.registers.need_reset();
        self.waiting.clear();
        self.interrupt(CHANGED);
    }

    fn interrupt(&mut self, why: u32) {
        self.registers.interrupts |= why;
        self.is_pulsed = true;
    }

    /// Says that a queue has a chain back.
    pub(in crate::devices) fn used(&mut self, memory: &Dma<'_>, queue: usize) {
        if self.registers.queues[queue].wants_interrupt(memory) {
            self.interrupt(USED);
        }
    }

    fn send(
        &mut self,
        memory: &mut Dma<'_>,
        packets: &Packets,
        sent: &mut Vec<Vec<u8>>,
        now: u64,
    ) -> Result<(), Broken> {
        let mut bytes = 0;
        while let Some(chain) = self.registers.queues[SEND].pop(memory)? {
            // What is too long, or nowhere in memory, goes nowhere.
            if total(&chain.readable) <= packets.longest {
                let packet = gather(memory, &chain.readable);
                bytes += packet.as_ref().map_or(0, Vec::len);
                sent.extend(packet);
            }
            self.registers.queues[SEND].push(memory, &chain, 0)?;
            self.used(memory, SEND);
            if bytes > AT_ONCE {
                self.wake(now.saturating_add(LATENCY));
                break;
            }
        }
        Ok(())
    }

    fn fill(&mut self, memory: &mut Dma<'_>, packets: &Packets) -> Result<(), Broken> {
        while let Some(packet) = self.waiting.front_mut() {
            let Some(chain) = self.registers.queues[RECEIVE].pop(memory)? else { return Ok(()) };
            let stored = match (packets.fit)(packet, total(&chain.writable)) {
                Fit::Whole => {
                    let (_, stored) = scatter(memory, &chain.writable, packet);
                    self.waiting.pop_front();
                    stored
                }
                Fit::Split(now, later) => {
                    *packet = later;
                    scatter(memory, &chain.writable, &now).1
                }
                Fit::Lost => {
                    self.waiting.pop_front();
                    0
                }
                Fit::Waits => 0,
            };
            self.registers.queues[RECEIVE].push(memory, &chain, stored)?;
            self.used(memory, RECEIVE);
        }
        Ok(())
    }
}
