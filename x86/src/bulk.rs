//! String instructions with a REP prefix, many iterations at once: a speed-up of the software CPU, and of nothing else.
//!
//! [`Cpu::repeat_in_bulk`] does iterations that change no flag that anyone sees and cannot trap, within one page of each
//! operand, and never the last one: traps, flags and the end are left to the description in [`crate::sem::string`].
//! 32-bit addresses and elements across two pages it leaves whole.

use std::iter;
use std::ops::Range;

use crate::bus::{Access, Bus, PAGE_SIZE};
use crate::cpu::Cpu;
use crate::machine::{Exec, Flow, Last, Machine};
use crate::op::{Gpr, Op, Rep};
use crate::sem::string;

/// A RAM offset, a count or a size as an index.
#[expect(clippy::cast_possible_truncation, reason = "gretel runs on 64-bit hosts only")]
const fn index(n: u64) -> usize {
    n as usize
}

/// Stores the low bytes of `value` to each element of `to`.
fn fill_elements<const SIZE: usize>(to: &mut [u8], value: u64) {
    let mut element = [0; SIZE];
    element.copy_from_slice(&value.to_le_bytes()[..SIZE]);
    to.as_chunks_mut().0.fill(element);
}

/// The elements of a string that are treated together: all in one page.
#[derive(Clone, Copy)]
struct Stretch {
    /// The address of the first of them.
    first: u64,
    /// Bytes in an element: 1, 2, 4 or 8.
    size: u64,
    /// Each is below the one before it.
    down: bool,
}

impl Stretch {
    /// How many elements there are to the end of the page.
    const fn count(self) -> u64 {
        let offset = self.first % PAGE_SIZE;
        match self.down {
            _ if offset + self.size > PAGE_SIZE => 0,
            true => offset / self.size + 1,
            false => (PAGE_SIZE - offset) / self.size,
        }
    }

    /// Where in RAM the first `count` elements are, when the first of them is at `at`.
    const fn range(self, at: u64, count: u64) -> Range<usize> {
        let low = if self.down { at + self.size - count * self.size } else { at };
        index(low)..index(low + count * self.size)
    }

    /// The elements that `ram` has there, in the order of the string.
    fn elements(self, ram: &[u8], at: u64, count: u64) -> impl Iterator<Item = &[u8]> {
        let mut elements = ram[self.range(at, count)].chunks_exact(index(self.size));
        iter::from_fn(move || if self.down { elements.next_back() } else { elements.next() })
    }
}

impl<B: Bus> Cpu<B> {
    /// Runs a string instruction, with a REP prefix or without; whether to its end. One that stores into a page that it lies in itself
    /// is left behind each such element, to be decoded anew: processors fetch it again when a store meets its bytes (seen on Intel's).
    ///
    /// # Errors
    /// A trap between two iterations: then rcx, rsi and rdi tell how far it got, and the flags are as before (Intel SDM vol. 2, REP:
    /// EFLAGS is restored).
    pub fn run_string(&mut self, op: &Op, iteration: Last<Cpu<B>>) -> Exec<bool> {
        let before = self.count(op);
        let done = self.run_iterations(op, iteration);
        let iterations = if op.rep == Rep::None { 1 } else { before - self.count(op) };
        let bytes = iterations.saturating_mul(u64::from(op.w / 8));
        self.string_bytes_left = self.string_bytes_left.saturating_sub(bytes);
        done
    }

    /// How many iterations are left by rcx, or by ecx where addresses have 32 bits: that leaves the upper half of rcx zero.
    fn count(&self, op: &Op) -> u64 {
        let rcx = self.reg(Gpr::RCX);
        if op.mem.addr32 { rcx & u64::from(u32::MAX) } else { rcx }
    }

    fn run_iterations(&mut self, op: &Op, iteration: Last<Cpu<B>>) -> Exec<bool> {
        let flags = self.flags();
        let mut again = string::any_left(self, op);
        while again {
            if op.rep != Rep::None {
                self.repeat_in_bulk(op);
            }
            let to = self.reg(Gpr::RDI);
            match iteration(self, op) {
                Ok(flow) => again = matches!(flow, Flow::Repeat { again: true }),
                Err(trap) => {
                    self.set_flags(flags);
                    return Err(trap);
                }
            }
            if again && self.has_stored_beside(op, to) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the element that was stored at `to`, the whole of rdi, is in a page that the instruction lies in.
    fn has_stored_beside(&mut self, op: &Op, to: u64) -> bool {
        if !matches!(op.cc, string::MOVS | string::STOS) {
            return false;
        }
        let first = if op.mem.addr32 { to & u64::from(u32::MAX) } else { to };
        let last = first.wrapping_add(u64::from(op.w / 8) - 1);
        [first, last].iter().any(|to| match self.writes.get(*to) {
            Some(at) => self.lies_in_the_frame(op, at),
            // Somebody wants to hear of each store to it.
            None => [op.start(), op.next - 1].iter().any(|code| code / PAGE_SIZE == to / PAGE_SIZE),
        })
    }

    /// Whether the instruction lies in the frame of RAM that has `at`, or begins or ends in it.
    fn lies_in_the_frame(&mut self, op: &Op, at: u64) -> bool {
        [op.start(), op.next - 1]
            .iter()
            .any(|code| self.locate_code(*code).is_some_and(|code| code / PAGE_SIZE == at / PAGE_SIZE))
    }

    /// Has runs end with [`Stop::Strings`](crate::interpreter::Stop::Strings) behind the string instruction that goes beyond so many bytes,
    /// counted from now on: what one does with a REP prefix is no instruction more, and may take long.
    pub fn allow_strings(&mut self, bytes: u64) {
        self.string_bytes_left = bytes;
    }

    /// Whether string instructions have gone through as many bytes as they may.
    #[must_use]
    pub fn strings_are_over(&self) -> bool {
        self.string_bytes_left == 0
    }

    /// Some of the iterations that `op` has before its last, possibly none.
    fn repeat_in_bulk(&mut self, op: &Op) {
        if op.mem.addr32 {
            return;
        }
        if let Ok(done) = self.iterations(op) {
            let bytes = done * u64::from(op.w / 8);
            let step = if self.direction() { bytes.wrapping_neg() } else { bytes };
            let moved: &[Gpr] = match op.cc {
                string::MOVS | string::CMPS => &[Gpr::RSI, Gpr::RDI],
                _ => &[Gpr::RDI],
            };
            for &r in moved {
                self.set_reg(r, self.reg(r).wrapping_add(step));
            }
            self.set_reg(Gpr::RCX, self.reg(Gpr::RCX).wrapping_sub(done));
        }
    }

    /// Does the iterations, but for the registers; how many they were. A trap means none: it comes again when the
    /// description runs.
    fn iterations(&mut self, op: &Op) -> Exec<u64> {
        let stretch = |first| Stretch { first, size: u64::from(op.w / 8), down: self.direction() };
        let source = stretch(self.segment_base(op.mem.segment).wrapping_add(self.reg(Gpr::RSI)));
        let target = stretch(self.reg(Gpr::RDI));
        let most = self.reg(Gpr::RCX).saturating_sub(1).min(target.count());
        // Somebody wants to hear of single elements.
        let reads = matches!(op.cc, string::MOVS | string::CMPS);
        let writes = if matches!(op.cc, string::MOVS | string::STOS) { Access::Write } else { Access::Read };
        if reads && !self.bus().may_cache(source.first, Access::Read)
            || !self.bus().may_cache(target.first, writes)
        {
            return Ok(0);
        }
        let of_both = most.min(source.count());
        match op.cc {
            string::MOVS if of_both > 0 => self.copy(op, source, target, of_both),
            string::STOS if most > 0 => self.fill(op, target, most),
            string::SCAS if most > 0 => self.pass_over(op.rep, target, most),
            string::CMPS if of_both > 0 => self.pass_pairs(op.rep, source, target, of_both),
            _ => Ok(0),
        }
    }

    /// Copies element by element in effect: no further than the distance from source to target where the target lies
    /// ahead.
    fn copy(&mut self, op: &Op, source: Stretch, target: Stretch, count: u64) -> Exec<u64> {
        let (from, to) = (self.locate_read(source.first)?, self.locate_write(target.first)?);
        if self.lies_in_the_frame(op, to) {
            return Ok(0);
        }
        let ahead = if source.down { from.saturating_sub(to) } else { to.saturating_sub(from) };
        let count = if ahead > 0 { count.min(ahead / source.size) } else { count };
        let (from, to) = (source.range(from, count), target.range(to, count));
        self.bus_mut().ram_mut().copy_within(from, to.start);
        Ok(count)
    }

    fn fill(&mut self, op: &Op, target: Stretch, count: u64) -> Exec<u64> {
        let value = self.reg(Gpr::RAX);
        let to = self.locate_write(target.first)?;
        if self.lies_in_the_frame(op, to) {
            return Ok(0);
        }
        let to = target.range(to, count);
        let to = &mut self.bus_mut().ram_mut()[to];
        match target.size {
            1 => fill_elements::<1>(to, value),
            2 => fill_elements::<2>(to, value),
            4 => fill_elements::<4>(to, value),
            _ => fill_elements::<8>(to, value),
        }
        Ok(count)
    }

    /// The elements that are not what SCAS looks for.
    fn pass_over(&mut self, rep: Rep, target: Stretch, count: u64) -> Exec<u64> {
        let value = self.reg(Gpr::RAX).to_le_bytes();
        let at = self.locate_read(target.first)?;
        let goes_on = |element: &&[u8]| (*element == &value[..index(target.size)]) == (rep == Rep::Repe);
        Ok(target.elements(self.bus().ram(), at, count).take_while(goes_on).count() as u64)
    }

    /// The pairs that are not what CMPS looks for.
    fn pass_pairs(&mut self, rep: Rep, source: Stretch, target: Stretch, count: u64) -> Exec<u64> {
        let (a, b) = (self.locate_read(source.first)?, self.locate_read(target.first)?);
        let ram = self.bus().ram();
        let pairs = source.elements(ram, a, count).zip(target.elements(ram, b, count));
        Ok(pairs.take_while(|(a, b)| (a == b) == (rep == Rep::Repe)).count() as u64)
    }
}
