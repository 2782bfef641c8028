//! String instructions with a REP prefix, many iterations at once: a speed-up of the software CPU, and of nothing else.
//!
//! [`Cpu::repeat_in_bulk`] does iterations that change no flag that anyone sees and cannot trap, within one page of each
//! operand, and never the last one: traps, flags and the end are left to the description in [`crate::sem::string`].
//! Whatever is unusual (going down, 32-bit addresses, a segment with a base, an element across two pages) it leaves whole.

use crate::bus::{Bus, PAGE_SIZE};
use crate::cpu::Cpu;
use crate::machine::{Exec, Machine};
use crate::op::{Gpr, Op, Rep, Segment};
use crate::sem::string;

/// A RAM offset, a count or a size as an index.
#[expect(clippy::cast_possible_truncation, reason = "gretel runs on 64-bit hosts only")]
const fn index(n: u64) -> usize {
    n as usize
}

/// How many elements of `size` bytes lie between `va` and the end of its page.
const fn to_page_end(va: u64, size: u64) -> u64 {
    (PAGE_SIZE - va % PAGE_SIZE) / size
}

impl<B: Bus> Cpu<B> {
    /// Some of the iterations that `op` has before its last, possibly none.
    pub(crate) fn repeat_in_bulk(&mut self, op: &Op) {
        let unusual = op.mem.addr32 || op.mem.segment != Segment::Flat || self.direction();
        if !unusual && let Ok(done) = self.iterations(op) {
            let bytes = done * u64::from(op.w / 8);
            let moved: &[Gpr] = match op.cc {
                string::MOVS | string::CMPS => &[Gpr::RSI, Gpr::RDI],
                _ => &[Gpr::RDI],
            };
            for &r in moved {
                self.set_reg(r, self.reg(r).wrapping_add(bytes));
            }
            self.set_reg(Gpr::RCX, self.reg(Gpr::RCX).wrapping_sub(done));
        }
    }

    /// Does the iterations, but for the registers; how many they were. A trap means none: it comes again when the
    /// description runs.
    fn iterations(&mut self, op: &Op) -> Exec<u64> {
        let size = u64::from(op.w / 8);
        let (source, target) = (self.reg(Gpr::RSI), self.reg(Gpr::RDI));
        let most = self.reg(Gpr::RCX).saturating_sub(1).min(to_page_end(target, size));
        let of_both = most.min(to_page_end(source, size));
        match op.cc {
            string::MOVS if of_both > 0 => self.copy(source, target, of_both, size),
            string::STOS if most > 0 => self.fill(target, most, size),
            string::SCAS if most > 0 => self.pass_over(op.rep, target, most, size),
            string::CMPS if of_both > 0 => self.pass_pairs(op.rep, source, target, of_both, size),
            _ => Ok(0),
        }
    }

    /// Copies upward, element by element in effect: no further than the distance from source to target where the
    /// target lies ahead.
    fn copy(&mut self, source: u64, target: u64, count: u64, size: u64) -> Exec<u64> {
        let (from, to) = (self.locate_read(source)?, self.locate_write(target)?);
        let count = if from < to { count.min((to - from) / size) } else { count };
        let (from, to, bytes) = (index(from), index(to), index(count * size));
        self.bus_mut().ram_mut().copy_within(from..from + bytes, to);
        Ok(count)
    }

    fn fill(&mut self, target: u64, count: u64, size: u64) -> Exec<u64> {
        let value = self.reg(Gpr::RAX).to_le_bytes();
        let to = index(self.locate_write(target)?);
        let ram = &mut self.bus_mut().ram_mut()[to..to + index(count * size)];
        for element in ram.chunks_exact_mut(index(size)) {
            element.copy_from_slice(&value[..index(size)]);
        }
        Ok(count)
    }

    /// The elements that are not what SCAS looks for.
    fn pass_over(&mut self, rep: Rep, target: u64, count: u64, size: u64) -> Exec<u64> {
        let value = self.reg(Gpr::RAX).to_le_bytes();
        let at = index(self.locate_read(target)?);
        let elements = self.bus().ram()[at..at + index(count * size)].chunks_exact(index(size));
        let goes_on = |element: &[u8]| (element == &value[..index(size)]) == (rep == Rep::Repe);
        Ok(elements.take_while(|element| goes_on(element)).count() as u64)
    }

    /// The pairs that are not what CMPS looks for.
    fn pass_pairs(&mut self, rep: Rep, source: u64, target: u64, count: u64, size: u64) -> Exec<u64> {
        let (a, b) = (index(self.locate_read(source)?), index(self.locate_read(target)?));
        let (ram, bytes) = (self.bus().ram(), index(count * size));
        let pairs =
            ram[a..a + bytes].chunks_exact(index(size)).zip(ram[b..b + bytes].chunks_exact(index(size)));
        Ok(pairs.take_while(|(a, b)| (a == b) == (rep == Rep::Repe)).count() as u64)
    }
}
