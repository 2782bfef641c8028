//! A source of random bytes: the entropy device of virtio 1.2 (5.4) by memory-mapped registers, with one queue.
//!
//! The bytes come from outside: the device says how many it wants ([`Rng::wanted`]), and waits for them. So each is in the journal.
//!
//! Example: the guest puts a buffer of 64 bytes into the queue and writes 0 to 0x50. The device wants 64 bytes; when it has them they are
//! in the buffer, the queue says so, register 0x60 has bit 0, and line 10 has pulsed.

use super::virtio::{Broken, CHANGED, Chain, Device, Dma, Kind, NOTIFY, Transport, USED, scatter, total};
use crate::saved::saved;

/// The bytes of one answer, at most; a buffer may be longer than what the device puts into it.
pub(crate) const MOST: usize = 4096;

const KIND: Kind<'static> = {
    const ENTROPY: u32 = 4;
    const VERSION_1: u64 = 1 << 32;
    Kind { id: ENTROPY, queues: 1, features: VERSION_1, configuration: &[] }
};

/// The device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rng {
    registers: Transport,
    /// When it has something to do.
    due: Option<u64>,
    is_pulsed: bool,
    /// The buffer that waits for bytes.
    open: Option<Chain>,
    /// The bytes for it.
    bytes: Vec<u8>,
}

saved!(struct Rng { registers, due, is_pulsed, open, bytes });

impl Rng {
    /// How many bytes it wants now.
    pub(crate) fn wanted(&self) -> usize {
        let room = self.open.as_ref().map_or(0, |chain| total(&chain.writable));
        if self.bytes.is_empty() { usize::try_from(room).unwrap_or(MOST).min(MOST) } else { 0 }
    }

    /// Bytes come; nobody has them where none are wanted.
    pub(crate) fn give(&mut self, bytes: &[u8], now: u64) {
        let wanted = self.wanted().min(bytes.len());
        if wanted > 0 {
            self.bytes = bytes[..wanted].to_vec();
            self.due = Some(self.due.map_or(now, |before| before.min(now)));
        }
    }

    /// Fills the buffer that waits, if there are bytes for it, and takes the next one; if it is time for that.
    pub(super) fn serve(&mut self, memory: &mut Dma<'_>, now: u64) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.due = None;
        if let Err(Broken(why)) = self.go_on(memory) {
            tracing::warn!("the guest's queue for random bytes is none: {why}; the device waits for a reset");
            self.registers.need_reset();
            self.close();
            self.interrupt(CHANGED);
        }
    }

    fn go_on(&mut self, memory: &mut Dma<'_>) -> Result<(), Broken> {
        loop {
            if self.open.is_none() {
                self.open = self.registers.queues[0].pop(memory)?;
            }
            let Some(chain) = &self.open else { return Ok(()) };
            // A buffer without room wants nothing, and is given back.
            if self.bytes.is_empty() && total(&chain.writable) > 0 {
                return Ok(());
            }
            let (_, stored) = scatter(memory, &chain.writable, &self.bytes);
            self.registers.queues[0].push(memory, chain, stored)?;
            self.close();
            if self.registers.queues[0].wants_interrupt(memory) {
                self.interrupt(USED);
            }
        }
    }

    fn close(&mut self) {
        (self.open, self.bytes) = (None, Vec::new());
    }

    fn interrupt(&mut self, why: u32) {
        self.registers.interrupts |= why;
        self.is_pulsed = true;
    }
}

impl Device for Rng {
    fn read(&self, offset: u64) -> u32 {
        self.registers.read(offset, &KIND)
    }

    fn write(&mut self, offset: u64, value: u32, now: u64) {
        self.registers.write(offset, value, &KIND);
        if !self.registers.is_running() {
            self.due = None;
            self.close();
        } else if offset == NOTIFY {
            self.due = Some(self.due.map_or(now, |before| before.min(now)));
        }
    }

    fn due(&self) -> Option<u64> {
        self.due
    }

    fn take_pulse(&mut self) -> bool {
        std::mem::take(&mut self.is_pulsed)
    }
}

#[cfg(test)]
mod tests;
