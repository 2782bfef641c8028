//! A case (code, state and memory before) and its outcome (state and memory after, and how it ended).
//!
//! Both are plain data without pointers: they cross to the worker process in shared memory.

use crate::layout::{CODE, CODE_MAX, DATA_SIZE, EXIT_JUMP, PAGE, WRITABLE};
use x86::state::State;

/// The contents of the data pages before a case.
pub type Image = [u8; DATA_SIZE];

/// Code and the state to run it from. `state.regs.rip` is where the code is put, inside the code page.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The state before.
    pub state: State,
    /// The code, padded with INT3.
    pub code: [u8; CODE_MAX],
    /// How much of `code` there is, in bytes.
    pub len: usize,
}

impl Case {
    /// A case of `code` at the address in `state`; `None` if it does not fit in the code page.
    #[must_use]
    pub fn new(code: &[u8], state: State) -> Option<Case> {
        let mut padded = [0xcc; CODE_MAX];
        padded.get_mut(..code.len())?.copy_from_slice(code);
        let case = Case { state, code: padded, len: code.len() };
        (case.offset()? + code.len() <= PAGE).then_some(case)
    }

    /// The code without its padding.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.code[..self.len]
    }

    /// Where the code is in its page.
    #[must_use]
    pub fn offset(&self) -> Option<usize> {
        let offset = usize::try_from(self.state.regs.rip.checked_sub(CODE)?).ok()?;
        (offset < PAGE).then_some(offset)
    }

    /// The address just after the code. The case is over when rip gets there; but where the jump back does not
    /// fit in the page any more, the code runs off the end of the page, and that is its outcome.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        let end = self.offset()? + self.len;
        (end + EXIT_JUMP <= PAGE).then_some(self.state.regs.rip + self.len as u64)
    }
}

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// rip reached the end of the code.
    Completed,
    /// A processor exception.
    Fault {
        /// Its vector.
        vector: u8,
        /// Its error code; zero for exceptions that have none.
        error: u32,
        /// The faulting address of #PF; zero for others.
        address: u64,
    },
    /// It made a system call, which was not executed. Not comparable.
    SystemCall,
    /// It did not end in time, or took its process down. Not comparable.
    Lost,
    /// The interpreter has no semantics for an instruction that it met.
    Unsupported,
}

/// What a case did.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// The state after; at a fault, the state that the fault's handler sees.
    pub state: State,
    /// What it changed in the data pages.
    pub writes: Writes,
}

/// How many of the changed chunks are kept whole.
pub const KEPT: usize = 4;

/// 64 aligned bytes of the data pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Offset in the data pages.
    pub offset: u32,
    /// Contents after the case.
    pub bytes: [u8; 64],
}

/// The difference between the data pages before and after a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writes {
    /// How many chunks changed.
    pub count: u32,
    /// A digest of all changed chunks.
    pub digest: u64,
    /// The first of them.
    pub first: [Chunk; KEPT],
}

impl Default for Writes {
    fn default() -> Self {
        Writes { count: 0, digest: 0, first: [Chunk { offset: 0, bytes: [0; 64] }; KEPT] }
    }
}

impl Writes {
    /// Compares `memory` with `image` and puts `memory` back to it.
    pub(crate) fn take(image: &Image, memory: &mut [u8]) -> Writes {
        const SPAN: usize = 512;
        let mut writes = Writes::default();
        for start in (0..WRITABLE).step_by(SPAN) {
            if memory[start..start + SPAN] != image[start..start + SPAN] {
                for offset in (start..start + SPAN).step_by(64) {
                    writes.take_chunk(image, memory, offset);
                }
            }
        }
        writes
    }

    fn take_chunk(&mut self, image: &Image, memory: &mut [u8], offset: usize) {
        let (before, after) = (&image[offset..offset + 64], &mut memory[offset..offset + 64]);
        if before == after {
            return;
        }
        let mut chunk = Chunk { offset: u32::try_from(offset).unwrap_or(u32::MAX), bytes: [0; 64] };
        chunk.bytes.copy_from_slice(after);
        after.copy_from_slice(before);
        if let Some(slot) = self.first.get_mut(self.count as usize) {
            *slot = chunk;
        }
        self.count += 1;
        self.digest = chunk.bytes.iter().fold(self.digest ^ u64::from(chunk.offset), |digest, &byte| {
            (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(5)
        });
    }
}
