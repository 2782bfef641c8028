//! What a journal says. This file is the schema: every record, its fields in the order in which they are
//! written, and what must hold; the first of them, the [`Header`], is in [`super::header`].
//!
//! Encodings: `u` unsigned LEB128; `i` zigzag LEB128; `d` eight bytes, little-endian; `b` a length `u` and that
//! many bytes; `[x]` a count `u` and that many x. Any change of the format raises [`VERSION`], any change of what
//! replay computes by itself raises [`BEHAVIOUR`].
//!
//! The records of a journal are a [`Header`] (alone in the first frame), then events, then an [`End`]:
//!  * An event is a [`Record::Begin`] and the [`Record::Input`]s and [`Record::Time`]s that it took, in the
//!    order in which the personality asked for them. A frame holds whole events only.
//!  * A [`Record::Digests`] stands behind a whole event.
//!  * [`Record::End`] is last. Without it, the recorder did not end in order (killed, disk full).

use super::contents::{self, Contents, Held};
#[cfg(doc)]
use super::header::Header;
use crate::engine::Exception;
use crate::gate::{Event, FileContent, Input, MemoryWrite, Time};
use crate::plain::numbers::{Cursor, put_bytes, put_digest, put_i64, put_u64};
use crate::position::{Offset, Target, comparable};
use crate::signal::{Arrived, Death};
use std::sync::Arc;
use x86::state::{Fpu, Regs};
use x86::xsave::{Layout, component};
use xxhash_rust::xxh3::xxh3_64;

/// Version of the format, in the file's first 12 bytes: what records there are, their encoding, and what goes into each digest. Since
/// 2, digests of the registers leave out the arithmetic flags, and the header holds [`BEHAVIOUR`]; since 3 there are waits,
/// checkpoints of all threads, and the dynamic linker; since 4 events name their task, inputs are of several kinds, there are
/// preemptions, and the header has all that the program takes over; since 5 the digest of memory is a sum over lines, and there are
/// signals from outside; since 6 the header has the terminal and the size of memory, and contents are files beside the journal; since
/// 7 a process may be killed for want of memory, and a recording may end at its room on disk; since 8 the header has the descriptors
/// that the program inherits; since 9 the state of a preemption has the x87 and vector registers; since 10 the header has
/// the limits of resources; since 11 it has MXCSR_MASK,
/// and there are calls for a time that is old.
pub const VERSION: u32 = 11;

/// Version of all that a program sees and the journal does not hold, so that replay must compute it as the recorder
/// did: which calls the personality answers by itself and how, which events it asks the gate for and in what order, the
/// layout of the address space, the first stack, the vDSO, the contents of the CPU model, what is cleared in registers at
/// a system call. A change of any of these raises it; vmm/tests/process/version.rs notices the ones that a small program can
/// see.
pub const BEHAVIOUR: u32 = 26;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Tag 1, kind `u` (0 system call, 1 machine read, 2 signal, 3 exited, 4 wait, 5 preempted at a count, 6 preempted at a
    /// state, 7 out of memory), argument `i` (the system call's number, zero, the signal, the status, zero, the count, zero, the process
    /// that is killed), task `u`,
    /// registers `d` ([`digest_regs`]); then, for kind 6, rax to r15 by hardware number, rip, rflags, fs base and gs base
    /// (20 times `u`), the digest `d` of the x87 and vector registers ([`digest_fpu`]), the memory's digest `d`, and the
    /// conditional branches since the event before (a list of none or one `u`).
    Begin {
        /// What kind of event.
        event: Event,
        /// The task.
        task: i32,
        /// Digest of the registers at the exit.
        regs: u64,
    },
    /// Tag 2: bytes, result `i`, writes `[address u, bytes b]`. Tag 6: a number `i`. Tag 7: a file, name `b`, digest `d`
    /// (XXH3-64 of its bytes), and where these are, kind `u`: 0 in an earlier input of kind 1 in the same journal file; 1 here, `b`; 2 in
    /// the file `files/DIGEST` beside the journal (16 hexadecimal digits); 3 a part of such a file, its digest `d`, offset `u`, length `u`.
    /// Tag 8: no file, error `i`. Tag 9: what is ready, result `i`, tasks `[u]`.
    Input(Input),
    /// Tag 3, real `u`, monotonic `i` (its difference to real, which is a smaller number).
    Time(Time),
    /// Tag 10, those for the first process `u`, those for its group `u`: behind a time.
    Signals(Arrived),
    /// Tag 4, registers `d`, fpu `d` ([`digest_fpu`]), memory `d` (`Process::memory_digest`).
    Digests(Digests),
    /// Tag 5, kind `u` (0 exited, 1 killed, 2 interrupted, 3 stopped, 4 full, 5 kept), then the kind's fields (see [`End`]). Nothing follows.
    End(End),
}

/// What replay compares behind an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digests {
    /// Digest of the integer registers.
    pub regs: u64,
    /// Digest of the x87 and vector registers.
    pub fpu: u64,
    /// Digest of the memory.
    pub memory: u64,
}

/// How the recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The program ended by itself: status `i`.
    Exited(i32),
    /// A signal ended it: signal `i`, code `i`, address `u`, then the exception `[vector u, error code u, address u]`
    /// (a list of none or one).
    Killed(Death),
    /// The recording was stopped from outside; the program would have gone on. No fields.
    Interrupted,
    /// The recorder could not go on: an instruction that the engine cannot run, or no memory. No fields.
    Stopped,
    /// The recording had as many bytes on disk as it was given; the program went on without being recorded. No fields.
    Full,
    /// It is a flight recorder's window as it was when somebody asked for it; the recording went on. No fields.
    Kept,
}

/// Digest of the integer registers: XXH3-64 of rax … r15 by hardware number, rip, rflags, fs base and gs base, eight
/// little-endian bytes each; rflags without the arithmetic flags (see [`comparable`]).
#[must_use]
pub fn digest_regs(regs: &Regs) -> u64 {
    let mut bytes = [0; 20 * 8];
    let regs = comparable(regs);
    let rest = [regs.rip, regs.rflags, regs.fs_base, regs.gs_base];
    for (place, value) in bytes.chunks_exact_mut(8).zip(regs.gpr.iter().chain(&rest)) {
        place.copy_from_slice(&value.to_le_bytes());
    }
    xxh3_64(&bytes)
}

/// Digest of the x87 and vector registers: XXH3-64 of the FXSAVE image or, if more than x87 and SSE is in use, of the
/// XSAVE image of all components at Intel's offsets. In both the last opcode, instruction and data pointer (bytes 6 to
/// 23), which processors update by different rules, are zero.
#[must_use]
pub fn digest_fpu(fpu: &Fpu) -> u64 {
    let fpu = Fpu { opcode: 0, instruction: 0, data: 0, ..*fpu };
    match fpu.wide_components() {
        0 => xxh3_64(&fpu.to_fxsave()),
        _ => xxh3_64(&fpu.to_xsave(&Layout::MODEL, component::ALL)),
    }
}

/// Digest of several: of one alone, itself; else XXH3-64 of them, the thread that ran last first, then by id.
#[must_use]
pub fn digest_all(digests: &[u64]) -> u64 {
    match digests {
        [one] => *one,
        all => xxh3_64(&all.iter().flat_map(|digest| digest.to_le_bytes()).collect::<Vec<u8>>()),
    }
}

/// Digest of an executable: XXH3-64 of its bytes.
#[must_use]
pub fn digest_executable(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

impl Record {
    /// Appends its encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Begin { event, task, regs } => {
                let (kind, argument) = split_event(event);
                out.push(1);
                put_u64(out, kind);
                put_i64(out, argument);
                put_u64(out, task.unsigned_abs().into());
                put_digest(out, *regs);
                if let Event::Preempt(Offset::State(target)) = event {
                    words(&target.regs).for_each(|word| put_u64(out, word));
                    put_digest(out, target.fpu);
                    put_digest(out, target.memory);
                    put_u64(out, target.branches.is_some().into());
                    target.branches.iter().for_each(|branches| put_u64(out, *branches));
                }
            }
            Record::Input(input) => encode_input(input, out),
            Record::Time(time) => {
                out.push(3);
                put_u64(out, time.real);
                put_i64(out, time.monotonic.wrapping_sub(time.real).cast_signed());
            }
            Record::Signals(Arrived { first, group }) => {
                out.push(10);
                put_u64(out, *first);
                put_u64(out, *group);
            }
            Record::Digests(digests) => {
                out.push(4);
                for digest in [digests.regs, digests.fpu, digests.memory] {
                    put_digest(out, digest);
                }
            }
            Record::End(end) => {
                out.push(5);
                encode_end(end, out);
            }
        }
    }

    /// Takes the first record off `bytes`; `None` if there is no whole one.
    pub(super) fn decode(c: &mut Cursor<'_>, contents: &mut Contents) -> Option<Record> {
        Some(match c.byte()? {
            1 => {
                let (kind, argument) = (c.u64()?, c.i64()?);
                let (task, regs) = (c.u64()?.try_into().ok()?, c.digest()?);
                let event = match kind {
                    6 => Event::Preempt(Offset::State(Box::new(decode_target(c)?))),
                    _ => join_event(kind, argument)?,
                };
                Record::Begin { event, task, regs }
            }
            2 => {
                let result = c.i64()?;
                let writes =
                    c.list(|c| Some(MemoryWrite { address: c.u64()?, bytes: c.bytes()?.to_vec() }))?;
                Record::Input(Input::Bytes { result, writes })
            }
            3 => {
                let real = c.u64()?;
                Record::Time(Time { real, monotonic: real.wrapping_add(c.i64()?.cast_unsigned()) })
            }
            4 => {
                let (regs, fpu, memory) = (c.digest()?, c.digest()?, c.digest()?);
                Record::Digests(Digests { regs, fpu, memory })
            }
            5 => Record::End(decode_end(c)?),
            6 => Record::Input(Input::Result(c.i64()?)),
            7 => Record::Input(Input::File(Ok(Arc::new(contents.decode(c)?)))),
            8 => Record::Input(Input::File(Err(c.i64()?))),
            10 => Record::Signals(Arrived { first: c.u64()?, group: c.u64()? }),
            9 => {
                let result = c.i64()?;
                let tasks = c.list(|c| c.u64()?.try_into().ok())?;
                Record::Input(Input::Ready { result, tasks })
            }
            _ => return None,
        })
    }
}

/// An input by reference, so that large reads are not copied on the way to the journal. A file's bytes stand in it.
pub(crate) fn encode_input(input: &Input, out: &mut Vec<u8>) {
    match input {
        Input::Result(value) => {
            out.push(6);
            put_i64(out, *value);
        }
        Input::Bytes { result, writes } => {
            out.push(2);
            put_i64(out, *result);
            put_u64(out, writes.len() as u64);
            for write in writes {
                put_u64(out, write.address);
                put_bytes(out, &write.bytes);
            }
        }
        Input::File(Ok(file)) => encode_file(file, (xxh3_64(&file.bytes), Held::Here), out),
        Input::File(Err(error)) => {
            out.push(8);
            put_i64(out, *error);
        }
        Input::Ready { result, tasks } => {
            out.push(9);
            put_i64(out, *result);
            put_u64(out, tasks.len() as u64);
            tasks.iter().for_each(|task| put_u64(out, task.unsigned_abs().into()));
        }
    }
}

/// Records that were encoded one behind the other, none of them a file's content; `None` where they do not decode to the last byte.
pub(crate) fn decode_all(bytes: &[u8]) -> Option<Vec<Record>> {
    let (mut cursor, mut contents) = (Cursor(bytes), Contents::default());
    let mut records = Vec::new();
    while !cursor.0.is_empty() {
        records.push(Record::decode(&mut cursor, &mut contents)?);
    }
    Some(records)
}

/// A file input whose bytes are held so, with their digest.
pub(super) fn encode_file(file: &FileContent, (digest, held): (u64, Held), out: &mut Vec<u8>) {
    out.push(7);
    contents::encode(file, digest, held, out);
}

/// The registers as words, in the order of the encoding.
fn words(regs: &Regs) -> impl Iterator<Item = u64> {
    regs.gpr.into_iter().chain([regs.rip, regs.rflags, regs.fs_base, regs.gs_base])
}

fn decode_target(c: &mut Cursor<'_>) -> Option<Target> {
    let mut regs = Regs::default();
    for gpr in &mut regs.gpr {
        *gpr = c.u64()?;
    }
    (regs.rip, regs.rflags, regs.fs_base, regs.gs_base) = (c.u64()?, c.u64()?, c.u64()?, c.u64()?);
    let (fpu, memory, branches) = (c.digest()?, c.digest()?, c.list(Cursor::u64)?);
    Some(Target { regs, fpu, memory, branches: branches.first().copied() })
}

fn split_event(event: &Event) -> (u64, i64) {
    match event {
        Event::Syscall(number) => (0, number.cast_signed()),
        Event::MachineRead => (1, 0),
        Event::Signal(signal) => (2, (*signal).into()),
        Event::Exited(status) => (3, (*status).into()),
        Event::Wait => (4, 0),
        Event::Preempt(Offset::Retired(count)) => (5, count.cast_signed()),
        Event::Preempt(Offset::State(_)) => (6, 0),
        Event::OutOfMemory(pid) => (7, (*pid).into()),
        Event::Clock(tick) => (8, tick.cast_signed()),
    }
}

fn join_event(kind: u64, argument: i64) -> Option<Event> {
    Some(match kind {
        0 => Event::Syscall(argument.cast_unsigned()),
        1 => Event::MachineRead,
        2 => Event::Signal(argument.try_into().ok()?),
        3 => Event::Exited(argument.try_into().ok()?),
        4 => Event::Wait,
        5 => Event::Preempt(Offset::Retired(argument.cast_unsigned())),
        7 => Event::OutOfMemory(argument.try_into().ok()?),
        8 => Event::Clock(argument.cast_unsigned()),
        _ => return None,
    })
}

fn encode_end(end: &End, out: &mut Vec<u8>) {
    match end {
        End::Exited(status) => {
            put_u64(out, 0);
            put_i64(out, (*status).into());
        }
        End::Killed(death) => {
            put_u64(out, 1);
            put_i64(out, death.signal.into());
            put_i64(out, death.code.into());
            put_u64(out, death.address);
            put_u64(out, u64::from(death.exception.is_some()));
            if let Some(exception) = death.exception {
                put_u64(out, exception.vector.into());
                put_u64(out, exception.error_code.into());
                put_u64(out, exception.address);
            }
        }
        End::Interrupted => put_u64(out, 2),
        End::Stopped => put_u64(out, 3),
        End::Full => put_u64(out, 4),
        End::Kept => put_u64(out, 5),
    }
}

fn decode_end(c: &mut Cursor<'_>) -> Option<End> {
    Some(match c.u64()? {
        0 => End::Exited(c.i32()?),
        1 => {
            let (signal, code, address) = (c.i32()?, c.i32()?, c.u64()?);
            let exception = c.list(|c| {
                let (vector, error_code) = (c.u64()?.try_into().ok()?, c.u64()?.try_into().ok()?);
                Some(Exception { vector, error_code, address: c.u64()? })
            })?;
            End::Killed(Death { signal, code, address, exception: exception.first().copied() })
        }
        2 => End::Interrupted,
        3 => End::Stopped,
        4 => End::Full,
        5 => End::Kept,
        _ => return None,
    })
}
