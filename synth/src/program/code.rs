//! Every instruction of the program, decoded once.
//!
//! Extents of functions, and the holes between them, are swept linearly. Direct branches that lead between
//! the boundaries so found (glibc jumps over a `lock` prefix) are followed until they meet a known boundary.

use super::elf::{Image, Segment};
use super::functions::Function;
use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};

/// No instruction starts here.
const NONE: u32 = u32::MAX;

/// The decoded instructions by address.
pub(super) struct Code {
    instructions: Vec<Instruction>,
    ranges: Vec<Boundaries>,
}

/// For each byte of a piece of code, which instruction starts there.
struct Boundaries {
    start: u64,
    index: Vec<u32>,
}

impl Boundaries {
    fn slot(&self, va: u64) -> Option<usize> {
        usize::try_from(va.checked_sub(self.start)?).ok().filter(|at| *at < self.index.len())
    }
}

impl Code {
    /// Decodes all of the image's code.
    pub(super) fn decode(image: &Image, functions: &[Function]) -> Code {
        let mut code = Code { instructions: Vec::new(), ranges: Vec::new() };
        for range in &image.code {
            let index = vec![NONE; range.contents.len()];
            code.ranges.push(Boundaries { start: range.start, index });
            let inside = functions.iter().filter(|f| (range.start..range.end()).contains(&f.start));
            let mut at = range.start;
            for function in inside {
                code.sweep(range, at, function.start);
                code.sweep(range, function.start, function.end);
                at = function.end;
            }
            code.sweep(range, at, range.end());
        }
        code.follow_branches(image);
        code.sort();
        code
    }

    /// Decodes `start .. end` one instruction after the other, a byte further on where there is none.
    fn sweep(&mut self, range: &Segment, start: u64, end: u64) {
        let mut at = start;
        while at < end {
            at = match decode_one(range, at) {
                Some(instruction) => {
                    self.add(instruction);
                    instruction.next_ip()
                }
                None => at + 1,
            };
        }
    }

    /// Adds what direct branches reach outside the known boundaries.
    fn follow_branches(&mut self, image: &Image) {
        let mut next = 0;
        while next < self.instructions.len() {
            let instruction = self.instructions[next];
            next += 1;
            let Some(mut at) = direct_target(&instruction) else { continue };
            let Some(range) = image.code.iter().find(|range| range.bytes(at, 1).is_some()) else { continue };
            while self.at(at).is_none() {
                let Some(found) = decode_one(range, at) else { break };
                self.add(found);
                at = found.next_ip();
            }
        }
    }

    fn add(&mut self, instruction: Instruction) {
        let number = u32::try_from(self.instructions.len()).unwrap_or(NONE);
        let slot = self.ranges.iter_mut().find_map(|r| r.slot(instruction.ip()).map(|at| &mut r.index[at]));
        if let Some(slot) = slot.filter(|slot| **slot == NONE) {
            *slot = number;
            self.instructions.push(instruction);
        }
    }

    fn sort(&mut self) {
        self.instructions.sort_by_key(Instruction::ip);
        for (number, instruction) in (0..).zip(&self.instructions) {
            for range in &mut self.ranges {
                if let Some(at) = range.slot(instruction.ip()) {
                    range.index[at] = number;
                }
            }
        }
    }

    /// The number of the instruction that starts at `va`.
    pub(super) fn at(&self, va: u64) -> Option<usize> {
        let number = self.ranges.iter().find_map(|range| range.slot(va).map(|at| range.index[at]))?;
        (number != NONE).then_some(number as usize)
    }

    /// An instruction by number.
    pub(super) fn get(&self, number: usize) -> &Instruction {
        &self.instructions[number]
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.instructions.len()
    }

    /// All of them by address.
    pub(super) fn all(&self) -> &[Instruction] {
        &self.instructions
    }

    /// The instructions that start in `start .. end`.
    pub(super) fn between(&self, start: u64, end: u64) -> impl DoubleEndedIterator<Item = &Instruction> {
        let from = self.instructions.partition_point(|instruction| instruction.ip() < start);
        let to = self.instructions.partition_point(|instruction| instruction.ip() < end);
        self.instructions[from..to.max(from)].iter()
    }
}

/// The target of a direct jump, conditional jump or call.
pub(crate) fn direct_target(instruction: &Instruction) -> Option<u64> {
    (instruction.op0_kind() == OpKind::NearBranch64).then(|| instruction.near_branch64())
}

fn decode_one(range: &Segment, va: u64) -> Option<Instruction> {
    let at = usize::try_from(va.checked_sub(range.start)?).ok()?;
    let bytes = range.contents.get(at..)?;
    let bytes = &bytes[..bytes.len().min(15)];
    let instruction = Decoder::with_ip(64, bytes, va, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}
