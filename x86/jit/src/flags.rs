//! The arithmetic flags between compiled code and the CPU.
//!
//! The semantics keeps flags as what computed them, and so does compiled code, in values of its own. Where control leaves the
//! values behind (another block, the driver), the flags go into the context ([`Stored`]): in the form they have, or bit by bit
//! for a block that reads some of them, since what is known to the compiler there is only that they are bits.

use cranelift_codegen::ir::Value;
use x86::concrete::Concrete;
use x86::domain::{Bin, Domain};
use x86::flags::{By, Flags};

use crate::clif::{Bool, Bv, Clif};
use crate::context::{Stored, at};

const ADD: u64 = 0;
const SUB: u64 = 1;
const LOGIC: u64 = 2;
const INC: u64 = 3;
const DEC: u64 = 4;
const SHIFT: u64 = 5;
pub(crate) const BITS: u64 = 6;

const CARRY: usize = 0;
const OVERFLOW: usize = 5;

impl Stored {
    /// Flags of the CPU.
    pub(crate) fn of(f: &Flags<u64, bool>) -> Stored {
        let mut stored = Stored { a: f.a, b: f.b, r: f.r, ..Stored::default() };
        let kind = match f.by {
            By::Add => ADD,
            By::Sub => SUB,
            By::Logic => LOGIC,
            By::Inc(carry) | By::Dec(carry) => {
                stored.bits[CARRY] = u8::from(carry);
                if matches!(f.by, By::Inc(_)) { INC } else { DEC }
            }
            By::Shift { carry, overflow } => {
                stored.bits[CARRY] = u8::from(carry);
                stored.bits[OVERFLOW] = u8::from(overflow);
                SHIFT
            }
            By::Bits(_) => return Stored::bits_of(f),
        };
        stored.kind = kind | u64::from(f.w) << 8;
        stored
    }

    /// Flags of the CPU bit by bit.
    pub(crate) fn bits_of(f: &Flags<u64, bool>) -> Stored {
        let mut stored = Stored { kind: BITS, ..Stored::default() };
        for (to, bit) in stored.bits.iter_mut().zip(f.bits(&Concrete)) {
            *to = u8::from(bit);
        }
        stored
    }

    /// As the CPU has them.
    pub(crate) fn flags(&self) -> Flags<u64, bool> {
        let bit = |n: usize| self.bits[n] != 0;
        let by = match self.kind & 0xff {
            ADD => By::Add,
            SUB => By::Sub,
            LOGIC => By::Logic,
            INC => By::Inc(bit(CARRY)),
            DEC => By::Dec(bit(CARRY)),
            SHIFT => By::Shift { carry: bit(CARRY), overflow: bit(OVERFLOW) },
            _ => return Flags::from_bits(&Concrete, std::array::from_fn(bit)),
        };
        let [_, w, ..] = self.kind.to_le_bytes();
        let (w, a, b) = (u32::from(w), self.a, self.b);
        let r = match by {
            By::Add => Concrete.bin(Bin::Add, w, a, b),
            By::Sub => Concrete.bin(Bin::Sub, w, a, b),
            // Of ADC and SBB there is a carry in it.
            By::Inc(_) | By::Dec(_) | By::Logic | By::Shift { .. } | By::Bits(_) => self.r,
        };
        Flags { by, w, a, b, r }
    }
}

impl Clif<'_> {
    /// Puts flags into the context.
    pub(crate) fn store_flags(&self, f: &Flags<Bv, Bool>, as_bits: bool) {
        // All is read before anything is written: flags may be made of bits that lie there.
        let mut stores: Vec<(Value, i32)> = Vec::new();
        let first = at!(flags.bits);
        let bit = |stores: &mut Vec<_>, n: usize, b: Bool| {
            stores.push((self.truth(b), first + i32::try_from(n).expect("there are six")));
        };
        let kind = match f.by {
            _ if as_bits => BITS,
            By::Bits(_) => BITS,
            By::Add => ADD,
            By::Sub => SUB,
            By::Logic => LOGIC,
            By::Inc(carry) => {
                bit(&mut stores, CARRY, carry);
                INC
            }
            By::Dec(carry) => {
                bit(&mut stores, CARRY, carry);
                DEC
            }
            By::Shift { carry, overflow } => {
                bit(&mut stores, CARRY, carry);
                bit(&mut stores, OVERFLOW, overflow);
                SHIFT
            }
        };
        let width = match kind {
            BITS => {
                for (n, b) in f.bits(self).into_iter().enumerate() {
                    bit(&mut stores, n, b);
                }
                0
            }
            _ => {
                let wide = |v: Bv| self.value(64, self.widened(f.w, v));
                if !matches!(kind, LOGIC | SHIFT) {
                    stores.extend([(wide(f.a), at!(flags.a)), (wide(f.b), at!(flags.b))]);
                }
                // Of sums it follows, and often nobody else asks for it.
                if !matches!(kind, ADD | SUB) {
                    stores.push((wide(f.r), at!(flags.r)));
                }
                f.w
            }
        };
        stores.push((self.constant(64, kind | u64::from(width) << 8), at!(flags.kind)));
        for (v, offset) in stores {
            self.store_context(v, offset);
        }
    }
}

/// Whether flags are made of bits that lie in the context.
pub(crate) fn mention_stored(f: &Flags<Bv, Bool>) -> bool {
    let is_stored = |b: &Bool| matches!(b, Bool::Stored(_));
    match &f.by {
        By::Add | By::Sub | By::Logic => false,
        By::Inc(carry) | By::Dec(carry) => is_stored(carry),
        By::Shift { carry, overflow } => is_stored(carry) || is_stored(overflow),
        By::Bits(bits) => bits.iter().any(is_stored),
    }
}
