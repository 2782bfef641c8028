//! A recording gone through once: who started whom, and what went through which pipe.
//!
//! A pipe's bytes have numbers, in the order in which they were written, and so they are read. Example: process 7 writes 100 bytes to a
//! pipe and 50 more; process 8 reads 120. Byte 110 of what it read is byte 10 of the second write.
//!
//! Pairs of sockets that one call makes are followed, too. Other sockets are not, nor a pipe from where its bytes were moved by
//! other means ([`BY_OTHER_MEANS`]), or read without being taken.

use super::Place;
use crate::linux::OpenFile;
use crate::position::Position;
use crate::process::Process;
use crate::process::happening::{Call, Happening, What};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

/// How a task began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Birth {
    pub(super) at: Position,
    /// Who started it.
    pub(super) parent: Place,
    /// The process that it belongs to.
    pub(super) pid: i32,
}

/// Bytes that a call put into a stream, or took from it.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    /// Its event.
    pub(super) at: Position,
    pub(super) place: Place,
    pub(super) call: Call,
    pub(super) stream: u32,
    writes: bool,
    /// The number of the first byte.
    first: u64,
    /// Where they are in memory, in order: address and length.
    parts: Vec<(u64, u64)>,
}

impl Transfer {
    /// The number in the stream of a byte of memory.
    pub(super) fn number_of(&self, address: u64) -> Option<u64> {
        number_of(&self.parts, address).map(|number| self.first + number)
    }

    /// Where a byte of the stream is in memory.
    pub(super) fn address_of(&self, number: u64) -> Option<u64> {
        address_of(&self.parts, number.checked_sub(self.first)?)
    }
}

/// Which byte of all parts is at an address.
pub(super) fn number_of(parts: &[(u64, u64)], address: u64) -> Option<u64> {
    let mut number = 0;
    for (start, len) in parts {
        match address.checked_sub(*start) {
            Some(offset) if offset < *len => return Some(number + offset),
            _ => number += len,
        }
    }
    None
}

/// Where a byte of all parts is in memory.
pub(super) fn address_of(parts: &[(u64, u64)], number: u64) -> Option<u64> {
    let mut left = number;
    for (start, len) in parts {
        if left < *len {
            return Some(start + left);
        }
        left -= len;
    }
    None
}

/// What a recording is found to have.
#[derive(Default)]
pub(super) struct Survey {
    pub(super) births: BTreeMap<i32, Birth>,
    transfers: Vec<Transfer>,
    /// Open ends: the stream that is read there, and the one that is written there.
    ends: Vec<(Weak<OpenFile>, Option<u32>, Option<u32>)>,
    /// Of each stream how many bytes were written and read; `None` where that is not known any more.
    streams: Vec<Option<[u64; 2]>>,
}

/// Bytes that no memory of the program has, and several messages at once.
const BY_OTHER_MEANS: [i64; 8] = [
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_sendfile,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
];
/// A vector of more parts than Linux takes (UIO_MAXIOV) is none.
const MOST_PARTS: u64 = 1024;

impl Survey {
    /// Takes what has happened up to where the program stands.
    pub(super) fn take(&mut self, process: &Process, happened: &[Happening]) {
        for happening in happened {
            match &happening.what {
                What::Started { task, pid } => {
                    let parent = Place { pid: happening.pid, thread: happening.task };
                    self.births.insert(*task, Birth { at: happening.position, parent, pid: *pid });
                }
                What::Call(call) => {
                    let result = call.stage.result().map_or(-1, u64::cast_signed);
                    if let Ok(result) = u64::try_from(result) {
                        self.take_call(process, happening, call, result);
                    }
                }
                _ => {}
            }
        }
    }

    fn take_call(&mut self, process: &Process, happening: &Happening, call: &Call, result: u64) {
        let number = call.number.cast_signed();
        let descriptor = |argument: usize| i32::try_from(call.arguments[argument] & 0xffff_ffff).ok();
        match number {
            libc::SYS_pipe | libc::SYS_pipe2 => self.made(process, happening, call.arguments[0], false),
            // Of sockets with messages a read takes one, whatever its length.
            libc::SYS_socketpair if is_stream(call) => self.made(process, happening, call.arguments[3], true),
            _ if BY_OTHER_MEANS.contains(&number) => {
                for file in [0, 1, 2].into_iter().filter_map(descriptor) {
                    self.lose(process, happening.task, file);
                }
            }
            _ => {
                let Some((writes, shape)) = shape(number, call) else { return };
                let file = descriptor(0).and_then(|file| process.file_of(happening.task, file));
                let Some(end) = file.and_then(|file| self.end(&file)) else { return };
                let Some(stream) = (if writes { end.1 } else { end.0 }) else { return };
                match parts(process, happening.pid, shape, result) {
                    Some(parts) => self.moved(happening, call, (stream, writes), (result, parts)),
                    None => self.streams[stream as usize] = None,
                }
            }
        }
    }

    /// A call has made two ends, whose numbers it has put into memory.
    fn made(&mut self, process: &Process, happening: &Happening, address: u64, both_ways: bool) {
        let mut numbers = [0; 8];
        if process.pid() != happening.pid || !process.read_memory(address, &mut numbers) {
            return;
        }
        let number = |n: usize| numbers[4 * n..4 * n + 4].try_into().map(i32::from_le_bytes).unwrap_or(-1);
        let files = [0, 1].map(|n| process.file_of(happening.task, number(n)));
        let [Some(first), Some(second)] = files else { return };
        let there = self.new_stream();
        let back = both_ways.then(|| self.new_stream());
        self.ends.retain(|(end, ..)| end.strong_count() > 0);
        self.ends.push((Rc::downgrade(&first), Some(there), back));
        self.ends.push((Rc::downgrade(&second), back, Some(there)));
    }

    fn new_stream(&mut self) -> u32 {
        self.streams.push(Some([0; 2]));
        u32::try_from(self.streams.len() - 1).unwrap_or(u32::MAX)
    }

    /// The streams of an open end: that which is read, and that which is written.
    fn end(&self, file: &Rc<OpenFile>) -> Option<(Option<u32>, Option<u32>)> {
        let same = |end: &Weak<OpenFile>| std::ptr::eq(end.as_ptr(), Rc::as_ptr(file));
        self.ends.iter().find(|(end, ..)| same(end)).map(|(_, reads, writes)| (*reads, *writes))
    }

    /// What a call did with these is not known.
    fn lose(&mut self, process: &Process, task: i32, file: i32) {
        let Some((reads, writes)) = process.file_of(task, file).and_then(|file| self.end(&file)) else {
            return;
        };
        for stream in reads.into_iter().chain(writes) {
            self.streams[stream as usize] = None;
        }
    }

    fn moved(
        &mut self,
        happening: &Happening,
        call: &Call,
        (stream, writes): (u32, bool),
        (len, parts): (u64, Vec<(u64, u64)>),
    ) {
        let Some(counts) = &mut self.streams[stream as usize] else { return };
        let count = &mut counts[usize::from(!writes)];
        let (first, place) = (*count, Place { pid: happening.pid, thread: happening.task });
        *count += len;
        let (at, call) = (happening.position, call.clone());
        self.transfers.push(Transfer { at, place, call, stream, writes, first, parts });
    }

    /// What the call at an event took from a stream into the memory of a process.
    pub(super) fn taken(&self, at: Position, pid: i32) -> Option<&Transfer> {
        self.transfers.iter().find(|it| !it.writes && it.at == at && it.place.pid == pid)
    }

    /// Who put a byte into a stream.
    pub(super) fn put(&self, stream: u32, number: u64) -> Option<&Transfer> {
        self.transfers.iter().find(|it| it.writes && it.stream == stream && it.address_of(number).is_some())
    }
}

/// Whether a call makes sockets without messages.
fn is_stream(call: &Call) -> bool {
    call.arguments[1] & 0xf == u64::from(libc::SOCK_STREAM.unsigned_abs())
}

/// Where the bytes of a call are.
pub(super) enum Shape {
    /// At an address.
    Plain(u64),
    /// In a vector of parts.
    Vector { address: u64, count: u64 },
    /// In the vector of a message.
    Message(u64),
    /// It does not take them.
    Peek,
}

/// What a call does with a stream: whether it writes, and where the bytes are.
fn shape(number: i64, call: &Call) -> Option<(bool, Shape)> {
    let a = &call.arguments;
    let peeks = |flags: u64| flags & u64::from(libc::MSG_PEEK.cast_unsigned()) != 0;
    let reading = |flags: u64, shape| Some((false, if peeks(flags) { Shape::Peek } else { shape }));
    match number {
        libc::SYS_read => Some((false, Shape::Plain(a[1]))),
        libc::SYS_readv => Some((false, Shape::Vector { address: a[1], count: a[2] })),
        libc::SYS_recvfrom => reading(a[3], Shape::Plain(a[1])),
        libc::SYS_recvmsg => reading(a[2], Shape::Message(a[1])),
        libc::SYS_write | libc::SYS_sendto => Some((true, Shape::Plain(a[1]))),
        libc::SYS_writev => Some((true, Shape::Vector { address: a[1], count: a[2] })),
        libc::SYS_sendmsg => Some((true, Shape::Message(a[1]))),
        _ => None,
    }
}

/// The parts of memory with `len` bytes; `None` where they cannot be told.
pub(super) fn parts(process: &Process, pid: i32, shape: Shape, len: u64) -> Option<Vec<(u64, u64)>> {
    let word = |at: u64| {
        let mut word = [0; 8];
        (process.pid() == pid && process.read_memory(at, &mut word)).then(|| u64::from_le_bytes(word))
    };
    let (address, count) = match shape {
        Shape::Peek => return None,
        Shape::Plain(address) => return Some(vec![(address, len)]),
        Shape::Vector { address, count } => (address, count),
        // struct msghdr: the vector and its length are the third and fourth word.
        Shape::Message(at) => (word(at.wrapping_add(16))?, word(at.wrapping_add(24))?),
    };
    let (mut left, mut parts) = (len, Vec::new());
    for n in 0..count.min(MOST_PARTS) {
        let at = address.wrapping_add(16 * n);
        let (start, size) = (word(at)?, word(at.wrapping_add(8))?.min(left));
        parts.push((start, size));
        left -= size;
    }
    (left == 0).then_some(parts)
}
