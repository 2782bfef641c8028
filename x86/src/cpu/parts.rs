//! What a compiler of blocks needs of the CPU: where its code is, and what compiled code works on.
//!
//! Compiled code keeps no copy of any of it: it reads and writes the registers in place, and looks translations up in the same
//! caches, so that whatever forgets a translation or notices a first store does so for compiled code, too.

use super::{Cpu, index};
use crate::bus::{Bus, PAGE_SIZE};
use crate::flags::Flags;
use crate::frames::Stamp;
use crate::machine::Machine;
use crate::op::Segment;
use crate::tlb::{ENTRIES, Entry, PARTS, Part};

/// What compiled code reads and writes.
pub struct Parts<'c> {
    /// The general registers by number.
    pub gpr: &'c mut [u64; 16],
    /// zmm0 to zmm31 by number, aligned to their size.
    pub vectors: &'c mut [[u8; 64]; 32],
    /// MXCSR.
    pub mxcsr: &'c mut u32,
    /// The translations for loads. Every frame lies within `ram`.
    pub reads: &'c [Entry; ENTRIES],
    /// The translations for stores, and for loads of what the same instruction stores.
    pub writes: &'c [Entry; ENTRIES],
    /// The translations for loads of parts of pages of which other bytes are watched.
    pub reads_of_parts: &'c [Part; PARTS],
    /// The same for stores.
    pub writes_of_parts: &'c [Part; PARTS],
    /// All memory.
    pub ram: &'c mut [u8],
    /// The bases of FS and GS.
    pub bases: [u64; 2],
    /// The arithmetic flags.
    pub flags: Flags<u64, bool>,
}

/// A page that code was read from: what it takes to tell whether an address still leads there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodePage {
    /// Its number.
    page: u64,
    /// Its frame, as it was then.
    stamp: Stamp,
}

impl<B: Bus> Cpu<B> {
    /// What compiled code works on; `None` where translations are cached that lead beyond the memory there is now.
    pub fn parts(&mut self) -> Option<Parts<'_>> {
        let bases = [Segment::Fs, Segment::Gs].map(|segment| self.segment_base(segment));
        let reach = self.reads.reach().max(self.writes.reach());
        let ram = self.bus.ram_mut();
        (ram.len() as u64 >= reach).then_some(Parts {
            gpr: &mut self.gpr,
            vectors: self.vectors.bytes_mut(),
            mxcsr: &mut self.fpu.mxcsr,
            reads: self.reads.entries(),
            writes: self.writes.entries(),
            reads_of_parts: self.reads.parts(),
            writes_of_parts: self.writes.parts(),
            ram,
            bases,
            flags: self.flags,
        })
    }

    /// The bytes from `va` to the end of its page, if they may be executed, and a fetch from there would change nothing that the guest
    /// sees: this is none. From now on a store to the page makes the answer of
    /// [`Cpu::is_code`] no.
    pub fn code_page(&mut self, va: u64) -> Option<(CodePage, &[u8])> {
        let at = self.locate_code(va)?;
        let frame = at - at % PAGE_SIZE;
        self.mark_code(frame);
        let code = CodePage { page: va / PAGE_SIZE, stamp: self.frames.stamp(frame) };
        Some((code, &self.bus.ram()[index(at)..index(frame + PAGE_SIZE)]))
    }

    /// Whether the page leads to the frame that it led to, and that holds what it held; a fetch from it would change nothing that the
    /// guest sees.
    pub fn is_code(&mut self, code: &CodePage) -> bool {
        self.frames.is_current(code.stamp)
            && self.locate_code(code.page * PAGE_SIZE) == Some(code.stamp.frame)
    }

    /// Whether, since this was called last, a page of which some bytes are watched was accessed at others.
    pub fn take_met_watched(&mut self) -> bool {
        self.reads.take_met_watched() | self.writes.take_met_watched()
    }

    /// A number that changes whenever [`Cpu::is_code`] may answer otherwise.
    pub fn code_epoch(&self) -> u64 {
        self.frames.epoch()
    }
}
