//! A disk: the block device of virtio 1.2 (5.2) by memory-mapped registers (4.2), with one queue.
//!
//! It has what a file system needs: reads, writes, flushes, its identity. Requests are done all at once, a while after the guest has
//! told of them; then the line pulses. The image stays as it is (`image`): what the guest writes is kept in memory.
//!
//! Example: the guest puts a request of type 0, sector 2, and 512 bytes to fill into the queue, and writes 0 to 0x50. 50 µs of its time
//! later sector 2 is in its memory, the queue says so, register 0x60 has bit 0, and line 5 has pulsed.

mod image;

pub use image::Image;
pub(crate) use image::{BLOCK, Block, Layers};

use super::virtio::{self, Broken, Chain, Device, Dma, Kind, Part, Transport, gather, scatter, total};
use crate::saved::{Saved, Words, saved};
use std::io;

/// How long requests take.
const LATENCY: u64 = 50_000;
/// The data of one request, at most.
const LONGEST: u64 = 64 << 20;
/// The bytes of its configuration: sectors, the longest part of a request, how many parts it may have.
const CONFIGURATION: usize = 16;
const SECTOR: u64 = 512;

/// The kinds of requests.
mod request {
    pub(super) const IN: u32 = 0;
    pub(super) const OUT: u32 = 1;
    pub(super) const FLUSH: u32 = 4;
    pub(super) const IDENTITY: u32 = 8;
}

/// How a request ended, as the driver reads it (virtio 1.2, 5.2.6): `VIRTIO_BLK_S_OK`, `_IOERR`, `_UNSUPP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// It was done.
    Done = 0,
    /// It could not be done.
    Failed = 1,
    /// There is no such kind.
    Unsupported = 2,
}

/// A request that the disk has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// `VIRTIO_BLK_T_*`: 0 reads, 1 writes, 4 flushes, 8 asks for its name; none where it has no whole header.
    pub kind: Option<u32>,
    /// The first sector, of 512 bytes.
    pub sector: u64,
    /// The bytes of the data.
    pub bytes: u64,
    /// How it ended.
    pub status: Status,
}

/// Features: parts of a request have a number at most; the disk can only be read; it is flushed; version 1.
mod feature {
    pub(super) const PARTS: u64 = 1 << 2;
    pub(super) const READ_ONLY: u64 = 1 << 5;
    pub(super) const FLUSH: u64 = 1 << 9;
    pub(super) const VERSION_1: u64 = 1 << 32;
}

/// What a driver finds of a disk with this image.
fn configuration(image: &Image) -> [u8; CONFIGURATION] {
    let mut bytes = [0; CONFIGURATION];
    bytes[..8].copy_from_slice(&(image.size() / SECTOR).to_le_bytes());
    // Without the header of a request and its status.
    bytes[12..].copy_from_slice(&(u32::from(virtio::MOST) - 2).to_le_bytes());
    bytes
}

fn kind<'c>(image: &Image, configuration: &'c [u8; CONFIGURATION]) -> Kind<'c> {
    const BLOCK_DEVICE: u32 = 2;
    let read_only = if image.is_read_only() { feature::READ_ONLY } else { 0 };
    let features = feature::VERSION_1 | feature::FLUSH | feature::PARTS | read_only;
    Kind { id: BLOCK_DEVICE, queues: 1, features, configuration }
}

/// The device.
pub(crate) struct Disk {
    registers: Transport,
    /// When requests that were told of are done.
    due: Option<u64>,
    /// The line has risen since it was asked last.
    is_pulsed: bool,
    layers: Layers,
    /// The blocks that were written since this was taken last.
    touched: Vec<u64>,
    /// The requests that were done since these were taken last.
    done: Vec<Request>,
    /// It was said that there is no room for what the guest writes.
    told_full: bool,
}

/// What of it is in its registers.
struct State {
    registers: Transport,
    due: Option<u64>,
    is_pulsed: bool,
}

saved!(struct State { registers, due, is_pulsed });

impl Disk {
    pub(crate) fn new(image: Image) -> Disk {
        Disk::with(Layers::new(image))
    }

    fn with(layers: Layers) -> Disk {
        Disk {
            registers: Transport::default(),
            due: None,
            is_pulsed: false,
            layers,
            touched: Vec::new(),
            done: Vec::new(),
            told_full: false,
        }
    }

    /// Appends the state but for what is on the disk.
    pub(crate) fn put(&self, out: &mut Vec<u64>) {
        let Disk { registers, due, is_pulsed, layers: _, touched: _, done: _, told_full: _ } = self;
        State { registers: *registers, due: *due, is_pulsed: *is_pulsed }.put(out);
    }

    /// Takes that back, for a disk with this on it.
    pub(crate) fn take(from: &mut Words<'_>, layers: Layers) -> Option<Disk> {
        let State { registers, due, is_pulsed } = State::take(from)?;
        Some(Disk { registers, due, is_pulsed, ..Disk::with(layers) })
    }

    /// Goes on with a copy of its image.
    pub(crate) fn set_image(&mut self, copy: Image) {
        self.layers.image = copy;
    }

    /// What is on it.
    pub(crate) fn layers(&self) -> &Layers {
        &self.layers
    }

    /// The blocks that were written since this was called last, perhaps more than once.
    pub(crate) fn take_touched(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.touched)
    }

    /// The requests that were done since this was called last.
    pub(super) fn take_done(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.done)
    }

    /// Does all requests that are available, if it is time for that.
    ///
    /// # Errors
    /// When the image cannot be read.
    pub(super) fn serve(&mut self, memory: &mut Dma<'_>, now: u64) -> io::Result<()> {
        if self.due.is_none_or(|due| due > now) {
            return Ok(());
        }
        self.due = None;
        loop {
            match self.registers.queues[0].pop(memory) {
                Ok(Some(chain)) => {
                    let stored = self.request(memory, &chain)?;
                    if let Err(broken) = self.registers.queues[0].push(memory, &chain, stored) {
                        self.give_up(broken);
                        return Ok(());
                    }
                    if self.registers.queues[0].wants_interrupt(memory) {
                        self.interrupt(virtio::USED);
                    }
                }
                Ok(None) => return Ok(()),
                Err(broken) => {
                    self.give_up(broken);
                    return Ok(());
                }
            }
        }
    }

    fn interrupt(&mut self, why: u32) {
        self.registers.interrupts |= why;
        self.is_pulsed = true;
    }

    fn give_up(&mut self, Broken(why): Broken) {
        tracing::warn!("the guest's queue for its disk is none: {why}; the disk waits for a reset");
        self.registers.need_reset();
        self.interrupt(virtio::CHANGED);
    }

    /// Does one request: how many bytes of memory it has stored to.
    fn request(&mut self, memory: &mut Dma<'_>, chain: &Chain) -> io::Result<u32> {
        // The last byte says how it went; without one there is nobody to tell.
        let Some((status_at, room)) = split_last(&chain.writable) else { return Ok(0) };
        let (status, stored) = self.perform(memory, chain, &room)?;
        let told = memory.put(status_at, &[status as u8]).is_some();
        Ok(stored + u32::from(told))
    }

    fn perform(&mut self, memory: &mut Dma<'_>, chain: &Chain, room: &[Part]) -> io::Result<(Status, u32)> {
        const HEADER: usize = 16;
        let given = gather(memory, &chain.readable).unwrap_or_default();
        let Some((header, data)) = given.split_first_chunk::<HEADER>() else {
            self.done.push(Request { kind: None, sector: 0, bytes: 0, status: Status::Failed });
            return Ok((Status::Failed, 0));
        };
        let [kind, _, low, high] =
            [0, 4, 8, 12].map(|n| u32::from_le_bytes(std::array::from_fn(|k| header[n + k])));
        let sector = u64::from(low) | u64::from(high) << 32;
        let (status, stored) = match kind {
            request::IN => self.fill(memory, sector, room)?,
            request::OUT => (self.write_sectors(sector, data)?, 0),
            // What was written is where it is to be.
            request::FLUSH => (Status::Done, 0),
            request::IDENTITY => {
                const NAME: &[u8; 20] = b"gretel\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
                store(memory, room, NAME)
            }
            _ => (Status::Unsupported, 0),
        };
        let bytes = if kind == request::OUT { data.len() as u64 } else { total(room) };
        self.done.push(Request { kind: Some(kind), sector, bytes, status });
        Ok((status, stored))
    }

    fn fill(&self, memory: &mut Dma<'_>, sector: u64, room: &[Part]) -> io::Result<(Status, u32)> {
        let length = total(room);
        let Some(at) = self.range(sector, length) else { return Ok((Status::Failed, 0)) };
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.layers.read(at, &mut bytes)?;
        Ok(store(memory, room, &bytes))
    }

    fn write_sectors(&mut self, sector: u64, data: &[u8]) -> io::Result<Status> {
        match self.range(sector, data.len() as u64) {
            Some(at) if !self.layers.image.is_read_only() && !self.layers.has_room(at, data.len() as u64) => {
                if !std::mem::replace(&mut self.told_full, true) {
                    tracing::warn!("what the guest may write to its disk is used up: writes fail");
                }
                Ok(Status::Failed)
            }
            Some(at) if !self.layers.image.is_read_only() => {
                self.layers.write(at, data, &mut self.touched)?;
                Ok(Status::Done)
            }
            _ => Ok(Status::Failed),
        }
    }

    /// Where whole sectors begin that are all on the disk.
    fn range(&self, sector: u64, length: u64) -> Option<u64> {
        let at = sector.checked_mul(SECTOR)?;
        let fits = at.checked_add(length)? <= self.layers.image.size();
        (fits && length <= LONGEST && length.is_multiple_of(SECTOR)).then_some(at)
    }
}

impl Device for Disk {
    fn read(&self, offset: u64) -> u32 {
        let image = &self.layers.image;
        self.registers.read(offset, &kind(image, &configuration(image)))
    }

    fn write(&mut self, offset: u64, value: u32, now: u64) {
        let image = &self.layers.image;
        self.registers.write(offset, value, &kind(image, &configuration(image)));
        if offset == virtio::NOTIFY && self.registers.is_running() {
            self.due = self.due.or_else(|| Some(now.saturating_add(LATENCY)));
        }
        if !self.registers.is_running() {
            self.due = None;
        }
    }

    fn due(&self) -> Option<u64> {
        self.due
    }

    fn take_pulse(&mut self) -> bool {
        std::mem::take(&mut self.is_pulsed)
    }
}

/// The last byte of some parts, and what is before it.
fn split_last(parts: &[Part]) -> Option<(u64, Vec<Part>)> {
    let (last, before) = parts.split_last()?;
    let length = last.length.checked_sub(1)?;
    let status = last.at.checked_add(length.into())?;
    Some((status, [before, &[Part { length, ..*last }]].concat()))
}

/// Stores bytes to parts, as many as fit: how it went, and how many.
fn store(memory: &mut Dma<'_>, parts: &[Part], bytes: &[u8]) -> (Status, u32) {
    let (is_memory, stored) = scatter(memory, parts, bytes);
    (if is_memory { Status::Done } else { Status::Failed }, stored)
}

#[cfg(test)]
mod tests;
