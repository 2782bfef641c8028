//! MOVS and STOS with a REP prefix: what any of their bytes is made of, without doing all that is before it.
//!
//! Example: `rep movsb` copies a million bytes upwards. Byte 700,000 of the destination is byte 700,000 of the source, unless that is
//! itself in the destination and was written before: then it is what that one was made of.

use crate::byte::Byte;
use crate::instruction::{Before, Trapped};
use crate::origin::{Id, Origins};
use x86::bus::PAGE_SIZE;
use x86::machine::Trap;
use x86::op::{Gpr, Op, Rep};
use x86::sem::string::{MOVS, STOS};
use x86::state::{RFLAGS_DF, Regs};

/// The elements that such an instruction moves.
pub(crate) struct Copying<'a> {
    before: Before<'a>,
    /// rsi with its segment; `None` where rax is stored.
    source: Option<u64>,
    destination: u64,
    count: u64,
    size: u64,
    down: bool,
}

impl<'a> Copying<'a> {
    /// `None` for all other instructions, and those with addresses of 32 bits.
    pub(crate) fn of(op: &Op, before: Before<'a>, segment: u64) -> Option<Copying<'a>> {
        let regs: &Regs = before.regs;
        let moves = op.cc == MOVS;
        if op.rep == Rep::None || op.mem.addr32 || !moves && op.cc != STOS {
            return None;
        }
        let gpr = |r: Gpr| regs.gpr[usize::from(r.0)];
        Some(Copying {
            source: moves.then(|| segment.wrapping_add(gpr(Gpr::RSI))),
            destination: gpr(Gpr::RDI),
            count: gpr(Gpr::RCX),
            size: u64::from(op.w / 8),
            down: regs.rflags & RFLAGS_DF != 0,
            before,
        })
    }

    /// Why the instruction does not come to its end, if so: the first byte that it may not access.
    pub(crate) fn trap(&self, origins: &Origins) -> Option<Trapped> {
        let bytes = self.count.saturating_mul(self.size);
        let mut done = 0;
        while done < bytes {
            let at = |first: u64| {
                if self.down {
                    first.wrapping_add(self.size - 1).wrapping_sub(done)
                } else {
                    first.wrapping_add(done)
                }
            };
            let source = self.source.map(at).filter(|at| !self.before.memory.read(*at, &mut [0]));
            let destination = Some(at(self.destination)).filter(|at| !self.before.memory.may_write(*at));
            if let Some(address) = source.or(destination) {
                let by = if source.is_some() { Gpr::RSI } else { Gpr::RDI };
                let from = Byte::general(by).chain(Byte::general(Gpr::RCX));
                let id = origins.made(from.map(|byte| origins.copy(byte)));
                let origin = (*origins.get(id)).clone();
                return Some(Trapped { trap: Trap::Page, address: Some(address), origin });
            }
            let rest = |first: u64| {
                if self.down { at(first) % PAGE_SIZE + 1 } else { PAGE_SIZE - at(first) % PAGE_SIZE }
            };
            done += self.source.map_or(PAGE_SIZE, rest).min(rest(self.destination));
        }
        None
    }

    /// The element of a string that a byte is in, and which byte of it.
    fn element(&self, first: u64, address: u64) -> Option<(u64, u64)> {
        let (element, byte) = match self.down {
            false => {
                let ahead = address.wrapping_sub(first);
                (ahead / self.size, ahead % self.size)
            }
            true => {
                let behind = first.wrapping_add(self.size - 1).wrapping_sub(address);
                (behind / self.size, self.size - 1 - behind % self.size)
            }
        };
        (element < self.count).then_some((element, byte))
    }

    fn address(&self, first: u64, element: u64, byte: u64) -> u64 {
        let offset = element.wrapping_mul(self.size);
        if self.down {
            first.wrapping_sub(offset).wrapping_add(byte)
        } else {
            first.wrapping_add(offset).wrapping_add(byte)
        }
    }

    /// What a byte of the destination becomes, and what it is made of.
    fn written(&self, address: u64, origins: &Origins) -> Option<(u8, Id)> {
        let (value, id) = self.copied(address, origins)?;
        let rdi: Vec<Id> = Byte::general(Gpr::RDI).map(|byte| origins.copy(byte)).collect();
        Some((value, origins.led(id, &rdi)))
    }

    /// What is put there.
    fn copied(&self, address: u64, origins: &Origins) -> Option<(u8, Id)> {
        let (mut element, mut byte) = self.element(self.destination, address)?;
        loop {
            let Some(source) = self.source else {
                let rax = self.before.regs.gpr[usize::from(Gpr::RAX.0)];
                let n = u8::try_from(byte).ok()?;
                return Some((rax.to_le_bytes()[usize::from(n)], origins.copy(Byte::General(Gpr::RAX.0, n))));
            };
            let from = self.address(source, element, byte);
            match self.element(self.destination, from) {
                // Written by an earlier element of the same instruction.
                Some((earlier, part)) if earlier < element => (element, byte) = (earlier, part),
                _ => {
                    let mut value = [0];
                    self.before.memory.read(from, &mut value).then_some(())?;
                    let rsi: Vec<Id> = Byte::general(Gpr::RSI).map(|byte| origins.copy(byte)).collect();
                    return Some((value[0], origins.loaded(Byte::Memory(from), &rsi)));
                }
            }
        }
    }

    /// What `byte` becomes, if the instruction writes it.
    pub(crate) fn becomes(&self, byte: Byte, origins: &Origins) -> Option<(u8, Id)> {
        if self.count == 0 {
            return None;
        }
        let own = |register: Gpr, n: u8| {
            let all = Byte::general(register).chain(Byte::general(Gpr::RCX)).chain([Byte::Direction]);
            let moved = self.address(self.before.regs.gpr[usize::from(register.0)], self.count, 0);
            Some((moved.to_le_bytes()[usize::from(n)], origins.made(all.map(|byte| origins.copy(byte)))))
        };
        match byte {
            Byte::Memory(address) => self.written(address, origins),
            Byte::General(r, _) if Gpr(r) == Gpr::RCX => Some((0, Id::CONSTANT)),
            Byte::General(r, n) if Gpr(r) == Gpr::RDI => own(Gpr::RDI, n),
            Byte::General(r, n) if Gpr(r) == Gpr::RSI && self.source.is_some() => own(Gpr::RSI, n),
            _ => None,
        }
    }
}
