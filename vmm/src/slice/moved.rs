//! Calls that copy memory of the program to other memory of the program: what they wrote was there before, elsewhere.
//!
//! `mremap` moves pages, `execve` copies the texts of its arguments and its environment into the new program, `process_vm_writev` and
//! `pwrite64` to a file that is mapped write what the caller has.

use super::recorded::Recorded;
use super::survey::{Shape, address_of, number_of, parts};
use super::{Byte, Made, Place, Writer};
use crate::position::Position;
use crate::process::Process;
use crate::process::happening::{Happening, What};
use crate::replay::ReplayError;
use x86_provenance::Origin;

/// More arguments, or variables of the environment, are not looked through.
const MOST_TEXTS: u64 = 4096;

impl Recorded<'_> {
    /// A new program's arguments and environment were texts of the one that called exec, before which the program stands at `start`.
    pub(super) fn take_from_old_program(
        &mut self,
        writer: &mut Writer<Position>,
        start: Position,
    ) -> Result<(), ReplayError> {
        self.travel.seek(writer.at)?;
        let mut texts: Vec<(Byte, u64, Vec<u8>)> = Vec::new();
        for byte in writer.given.keys() {
            let Byte::Memory(address) = *byte else { continue };
            let process = self.travel.process();
            if process.pid() != writer.place.pid {
                return Ok(());
            }
            if let Some((_, first)) = argument_at(process, address) {
                texts.push((*byte, address - first, text(process, first)));
            }
        }
        self.travel.seek(start)?;
        let process = self.travel.process();
        if texts.is_empty() || process.pid() != writer.place.pid {
            return Ok(());
        }
        let regs = process.cpu().regs().gpr;
        // execve: path, arguments, environment in rdi, rsi, rdx; execveat has a descriptor before them. Its number is gone from rax.
        let vectors = [regs[6], regs[2], regs[10]];
        let old: Vec<(u64, Vec<u8>)> = vectors
            .into_iter()
            .flat_map(|vector| pointers(process, vector))
            .map(|at| (at, text(process, at)))
            .collect();
        let came_from = |byte: Byte| {
            let (_, offset, text) = texts.iter().find(|(of, ..)| *of == byte)?;
            let (first, _) = old.iter().find(|(_, old)| old == text)?;
            Some(first + offset)
        };
        take(writer, start, came_from);
        self.travel.seek(writer.at).map(drop)
    }

    /// What a call wrote for its caller into memory that is another one's, or a file's that is mapped. The program stands behind it.
    pub(super) fn take_from_caller(
        &mut self,
        writer: &mut Writer<Position>,
        start: Position,
        happening: &Happening,
        target: Place,
    ) -> Result<(), ReplayError> {
        let What::Call(call) = &happening.what else { return Ok(()) };
        let Some(len) = call.stage.result().filter(|len| len.cast_signed() > 0) else { return Ok(()) };
        let a = &call.arguments;
        match call.number.cast_signed() {
            libc::SYS_process_vm_writev => {
                let vector = |address, count| Shape::Vector { address, count };
                self.travel.seek(start)?;
                let process = self.travel.process();
                let theirs = parts(process, happening.pid, vector(a[3], a[4]), len);
                let own = parts(process, happening.pid, vector(a[1], a[2]), len);
                if let Some((theirs, own)) = theirs.zip(own) {
                    let came_from = |byte: Byte| match byte {
                        Byte::Memory(at) => address_of(&own, number_of(&theirs, at)?),
                        _ => None,
                    };
                    take(writer, start, came_from);
                }
            }
            libc::SYS_pwrite64 => {
                let offsets = self.offsets_in_file(target, writer);
                let came_from = |byte: Byte| {
                    let (_, offset) = offsets.iter().find(|(of, _)| *of == byte)?;
                    let n = offset.checked_sub(a[3]).filter(|n| *n < len)?;
                    Some(a[1] + n)
                };
                take(writer, start, came_from);
            }
            _ => {}
        }
        Ok(())
    }

    /// Where in their file bytes are that are mapped from one.
    fn offsets_in_file(&self, place: Place, writer: &Writer<Position>) -> Vec<(Byte, u64)> {
        let Some(space) = self.travel.process().space_of(place.pid) else { return Vec::new() };
        let offset = |byte: &Byte| {
            let Byte::Memory(at) = *byte else { return None };
            let (start, mapping) = space.mappings().find(at)?;
            let (_, offset) = mapping.backing.object()?;
            Some((*byte, offset + (at - start)))
        };
        writer.given.keys().filter_map(offset).collect()
    }
}

/// What mremap has moved is as it was where it lay before, at `start`.
pub(super) fn take_from_before_move(writer: &mut Writer<Position>, start: Position, happened: &[Happening]) {
    let Made::Call { number, arguments, .. } = &writer.made else { return };
    if number.cast_signed() != libc::SYS_mremap {
        return;
    }
    let of_this = happened.iter().filter(|it| it.task == writer.place.thread);
    let mut results = of_this.filter_map(|it| match &it.what {
        What::Call(call) => call.stage.result(),
        _ => None,
    });
    let Some(new) = results.next_back() else { return };
    let (old, len) = (arguments[0], arguments[1].min(arguments[2]));
    let came_from = |byte: Byte| match byte {
        Byte::Memory(at) if at.checked_sub(new).is_some_and(|offset| offset < len) && new != old => {
            Some(at - new + old)
        }
        _ => None,
    };
    take(writer, start, came_from);
}

/// Lets what was given come from memory of the writer's own process, as it was before `after`.
fn take(writer: &mut Writer<Position>, after: Position, came_from: impl Fn(Byte) -> Option<u64>) {
    let mut any = false;
    for (byte, (value, origin)) in &mut writer.given {
        let Some(source) = came_from(*byte) else { continue };
        writer.uses.extend(value.map(|value| (Byte::Memory(source), value)));
        *origin = Origin { copied: true, value: [Byte::Memory(source)].into(), ..Origin::default() };
        any = true;
    }
    if any {
        (writer.after, writer.from) = (after, writer.place);
    }
}

/// Which argument or environment variable a byte is in of a program that has not begun: Linux puts their number and their addresses where
/// the stack begins (System V ABI for x86-64, 3.4.1).
pub(super) fn argument_at(process: &Process, address: u64) -> Option<(String, u64)> {
    let stack = process.cpu().regs().gpr[4];
    let word = |at: u64| {
        let mut word = [0; 8];
        process.read_memory(at, &mut word).then(|| u64::from_le_bytes(word))
    };
    let count = word(stack)?;
    let mut found = None;
    for n in 0..count.min(MOST_TEXTS) {
        let start = word(stack.wrapping_add(8 + 8 * n))?;
        if start <= address {
            found = Some((start, format!("argument {n}")));
        }
    }
    for n in 0..MOST_TEXTS {
        let start = word(stack.wrapping_add(16 + 8 * (count + n)))?;
        if start == 0 {
            break;
        }
        if start <= address {
            found = Some((start, format!("variable {n} of the environment")));
        }
    }
    let (start, name) = found?;
    // It ends with a zero.
    let mut text = vec![0; usize::try_from(address - start).ok().filter(|len| *len < (1 << 17))?];
    let within = process.read_memory(start, &mut text) && !text.contains(&0);
    within.then_some((name, start))
}

/// The addresses in a vector that ends with zero.
fn pointers(process: &Process, vector: u64) -> Vec<u64> {
    let word = |n: u64| {
        let mut word = [0; 8];
        process.read_memory(vector.wrapping_add(8 * n), &mut word).then(|| u64::from_le_bytes(word))
    };
    (0..MOST_TEXTS).map_while(|n| word(n).filter(|at| *at != 0)).collect()
}

/// A text up to its zero.
fn text(process: &Process, address: u64) -> Vec<u8> {
    let byte = |n: u64| {
        let mut byte = [0];
        (process.read_memory(address.wrapping_add(n), &mut byte) && byte[0] != 0).then_some(byte[0])
    };
    (0..1 << 17).map_while(byte).collect()
}
