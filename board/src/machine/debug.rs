//! Hardware breakpoints of the guest: DR0 to DR3, as DR7 arms them (Intel SDM vol. 3, 18.2).
//!
//! An armed instruction is a bound of each run, and its debug exception comes before it; armed data is watched by the processor's guard
//! ([`x86::guard`]), and its exception comes behind the access. Example: a debugger in the guest sets DR0 to a variable of four
//! bytes and DR7 to 0xd0001. Stores to its page stop at the guard, run alone, and one that touches the variable is followed by #DB with
//! DR6.B0.
//!
//! What the processor itself and instructions of the system access is not seen.

use super::Machine;
use std::collections::BTreeMap;
use std::ops::Range;
use x86::guard::Watched;
use x86::machine::Machine as _;

/// RFLAGS.RF: the next instruction does not meet its breakpoint.
const RESUME: u64 = 1 << 16;

/// Armed data.
#[derive(Clone, Debug)]
struct Data {
    range: Range<u64>,
    /// Loads count, too.
    loads: bool,
    /// Its bit of DR6.
    cause: u64,
}

/// What is armed.
#[derive(Clone, Debug, Default)]
pub(super) struct Breakpoints {
    /// DR0 to DR3 and DR7, of which the rest is made.
    of: [u64; 5],
    /// Instructions, and their bits of DR6.
    code: BTreeMap<u64, u64>,
    data: Vec<Data>,
}

impl Breakpoints {
    fn new(of: [u64; 5]) -> Breakpoints {
        let [.., control] = of;
        let (mut code, mut data) = (BTreeMap::new(), Vec::new());
        for (n, address) in of.into_iter().take(4).enumerate().filter(|(n, _)| control >> (2 * n) & 3 != 0) {
            let (kind, length) = (control >> (16 + 4 * n) & 3, control >> (18 + 4 * n) & 3);
            if kind == 0 {
                *code.entry(address).or_default() |= 1 << n;
                continue;
            }
            let length = match length {
                0 => 1,
                1 => 2,
                2 => 8,
                _ => 4,
            };
            let start = address & !(length - 1);
            data.push(Data { range: start..start.saturating_add(length), loads: kind == 3, cause: 1 << n });
        }
        Breakpoints { of, code, data }
    }

    /// Armed data, for the guard.
    pub(super) fn watched(&self) -> impl Iterator<Item = Watched> {
        self.data.iter().map(|it| Watched { range: it.range.clone(), loads: it.loads })
    }

    /// The bits of DR6 of an access.
    pub(super) fn causes(&self, range: &Range<u64>, writes: bool) -> u64 {
        let meets =
            |it: &&Data| (writes || it.loads) && it.range.start < range.end && range.start < it.range.end;
        self.data.iter().filter(meets).fold(0, |all, it| all | it.cause)
    }

    /// Addresses at which a run stops: these, and armed instructions.
    pub(super) fn and_code(&self, at: &[u64]) -> Vec<u64> {
        let mut all: Vec<u64> = at.iter().chain(self.code.keys()).copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether an instruction is armed.
    pub(super) fn has_code(&self) -> bool {
        !self.code.is_empty()
    }
}

impl Machine {
    /// Has what the guest armed with the last instruction take effect. RF is clear behind that, whatever was before.
    pub(super) fn arm_anew(&mut self) {
        if self.arm() {
            let flags = self.cpu().system_flags();
            self.processor.cpu_mut().set_system_flags(flags & !RESUME);
        }
    }

    /// Has what is armed take effect; whether that is something else than before.
    pub(super) fn arm(&mut self) -> bool {
        let [a, b, c, d, .., control] = self.system.registers.debug;
        let of = [a, b, c, d, control];
        if self.breakpoints.of == of {
            return false;
        }
        let before = std::mem::replace(&mut self.breakpoints, Breakpoints::new(of));
        if !(before.data.is_empty() && self.breakpoints.data.is_empty()) {
            self.watch_all();
        }
        true
    }

    /// The bits of DR6 of the armed instruction at rip, if its exception comes now. RF goes with the instruction that it holds for.
    pub(super) fn meets_instruction(&mut self) -> Option<u64> {
        if !self.breakpoints.has_code() {
            return None;
        }
        let (rip, holds) = (self.cpu().rip(), self.system.holds_steps(self.cpu()));
        let flags = self.cpu().system_flags();
        if flags & RESUME != 0 {
            self.processor.cpu_mut().set_system_flags(flags & !RESUME);
            return None;
        }
        self.breakpoints.code.get(&rip).copied().filter(|_| !holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dr7_says_what_is_armed() {
        // DR0: code; DR1: four bytes, stores; DR2: eight bytes, both; DR3 is off.
        let armed = Breakpoints::new([0x100, 0x2003, 0x3008, 0x100, 1 | 4 | 0x20 | 0xd << 20 | 0xb << 24]);
        assert_eq!(armed.code, BTreeMap::from([(0x100, 1)]));
        let ranges: Vec<_> = armed.watched().map(|it| (it.range, it.loads)).collect();
        assert_eq!(ranges, [(0x2000..0x2004, false), (0x3008..0x3010, true)]);
        assert_eq!(armed.causes(&(0x2003..0x2005), true), 2);
        assert_eq!((armed.causes(&(0x2003..0x2005), false), armed.causes(&(0x2004..0x3009), false)), (0, 4));
        assert_eq!(armed.and_code(&[0x200, 0x100]), [0x100, 0x200]);
    }
}
