//! A console: the console device of virtio 1.2 (5.3) by memory-mapped registers, with one port.
//!
//! What the guest prints is taken at once, since Linux waits in a loop until its console has it. What is typed waits until the guest has
//! a buffer for it. The size of the terminal is in its configuration: zeros where it is not known.
//!
//! Example: the guest puts a buffer of 4,096 bytes into queue 0. `ls` and a carriage return are typed: the buffer has three bytes, the
//! queue says so, register 0x60 has bit 0, and line 11 has pulsed.

use super::screen::Screen;
use super::virtio::{Broken, CHANGED, Device, Dma, Kind, NOTIFY, Transport, USED, gather, scatter, total};
use crate::saved::saved;
use std::collections::VecDeque;
use std::io::Write;

const RECEIVE: usize = 0;
const SEND: usize = 1;
/// Bytes that wait for the guest, at most.
const WAITING: usize = 256;

/// Bytes that are printed without a pause.
const AT_ONCE: usize = 4096;

/// Features: it has a size, and version 1.
const FEATURES: u64 = 1 | 1 << 32;

/// The size of a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Characters of a line.
    pub columns: u16,
    /// Lines.
    pub rows: u16,
}

saved!(struct Size { columns, rows });

/// The device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Console {
    registers: Transport,
    /// When it has something to do.
    due: Option<u64>,
    is_pulsed: bool,
    size: Size,
    /// What was typed, and the guest has no buffer for yet.
    typed: VecDeque<u8>,
    screen: Screen,
}

saved!(struct Console { registers, due, is_pulsed, size, typed, screen });

/// What a driver finds: columns and rows, and a number of ports and a register for emergencies, which were not offered.
fn configuration(size: Size) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..2].copy_from_slice(&size.columns.to_le_bytes());
    bytes[2..4].copy_from_slice(&size.rows.to_le_bytes());
    bytes
}

fn kind(configuration: &[u8]) -> Kind<'_> {
    const CONSOLE: u32 = 3;
    Kind { id: CONSOLE, queues: 2, features: FEATURES, configuration }
}

impl Console {
    /// How many bytes may be typed now: none before there is a driver.
    pub(crate) fn room(&self) -> usize {
        let is_open = self.registers.is_running() && self.registers.queues[RECEIVE].is_ready;
        if is_open { WAITING - self.typed.len().min(WAITING) } else { 0 }
    }

    /// Types bytes: no more than there is room for.
    pub(crate) fn type_bytes(&mut self, bytes: &[u8], now: u64) {
        let room = self.room().min(bytes.len());
        self.typed.extend(&bytes[..room]);
        self.wake(now);
    }

    /// The size of its terminal.
    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// The terminal has another size.
    pub(crate) fn resize(&mut self, size: Size) {
        self.size = size;
        if self.registers.is_running() {
            self.interrupt(CHANGED);
        }
    }

    /// What the guest has printed.
    pub(super) fn screen(&self) -> &Screen {
        &self.screen
    }

    pub(super) fn screen_mut(&mut self) -> &mut Screen {
        &mut self.screen
    }

    /// Takes what is printed, and gives the guest what was typed; if it is time for that.
    pub(super) fn serve(&mut self, memory: &mut Dma<'_>, now: u64) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.due = None;
        if let Err(Broken(why)) = self.send(memory, now).and_then(|()| self.fill(memory)) {
            tracing::warn!("the guest's queue for its console is none: {why}; the console waits for a reset");
            self.registers.need_reset();
            self.typed.clear();
            self.interrupt(CHANGED);
        }
    }

    fn wake(&mut self, due: u64) {
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    fn interrupt(&mut self, why: u32) {
        self.registers.interrupts |= why;
        self.is_pulsed = true;
    }

    fn used(&mut self, memory: &Dma<'_>, queue: usize) {
        if self.registers.queues[queue].wants_interrupt(memory) {
            self.interrupt(USED);
        }
    }

    fn send(&mut self, memory: &mut Dma<'_>, now: u64) -> Result<(), Broken> {
        let mut shown = 0;
        while let Some(chain) = self.registers.queues[SEND].pop(memory)? {
            // What is nowhere in memory prints nothing.
            let printed = gather(memory, &chain.readable).unwrap_or_default();
            // A screen takes all.
            let _ = self.screen.write(&printed);
            self.registers.queues[SEND].push(memory, &chain, 0)?;
            self.used(memory, SEND);
            shown += printed.len();
            if shown > AT_ONCE {
                // A byte takes a nanosecond, so that what is printed is no more than what can be shown.
                self.wake(now.saturating_add(shown as u64));
                break;
            }
        }
        Ok(())
    }

    fn fill(&mut self, memory: &mut Dma<'_>) -> Result<(), Broken> {
        while !self.typed.is_empty() {
            let Some(chain) = self.registers.queues[RECEIVE].pop(memory)? else { return Ok(()) };
            let room = usize::try_from(total(&chain.writable)).unwrap_or(usize::MAX).min(self.typed.len());
            let bytes: Vec<u8> = self.typed.drain(..room).collect();
            let (_, stored) = scatter(memory, &chain.writable, &bytes);
            self.registers.queues[RECEIVE].push(memory, &chain, stored)?;
            self.used(memory, RECEIVE);
        }
        Ok(())
    }
}

impl Device for Console {
    fn read(&self, offset: u64) -> u32 {
        self.registers.read(offset, &kind(&configuration(self.size)))
    }

    fn write(&mut self, offset: u64, value: u32, now: u64) {
        self.registers.write(offset, value, &kind(&configuration(self.size)));
        if !self.registers.is_running() {
            (self.due, self.typed) = (None, VecDeque::new());
        } else if offset == NOTIFY {
            self.wake(now);
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
