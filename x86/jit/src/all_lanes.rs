//! A domain in which a value is all lanes of a vector at once: the description of one lane, run on it, leaves the vector
//! instructions behind that do all of them.
//!
//! Example: PMAXUB's lane is `ite(a < b, b, a)`: a comparison of vectors and a choice by the mask that it gives.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use x86::domain::{Bin, Cmp, Division, Domain, Opaque, Un};

use crate::block::{Block, lanes_of, repeated};
use crate::clif::{Bv, Clif, Written, mask};

/// All lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// The same in each.
    Same(u64),
    /// A vector of that type of lanes.
    Each(Value),
}

/// A truth value for each lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truths {
    Same(bool),
    /// All ones or all zeros in each lane.
    Each(Value),
}

/// The algebra of vectors with lanes of one width.
pub(crate) struct AllLanes<'c, 'a> {
    d: &'c Clif<'a>,
    w: u32,
}

impl<'c, 'a> AllLanes<'c, 'a> {
    pub(crate) fn new(d: &'c Clif<'a>, w: u32) -> AllLanes<'c, 'a> {
        AllLanes { d, w }
    }

    /// Whether 128 bits are the same in each lane.
    pub(crate) fn is_same(&self, low: u64, high: u64) -> bool {
        low == high && low == repeated(self.w, low)
    }

    /// What was computed, as a block.
    pub(crate) fn finish(&self, lanes: Lanes) -> Block {
        match lanes {
            Lanes::Same(lane) => Block::Halves([Bv::Known(repeated(self.w, lane)); 2]),
            Lanes::Each(v) => Block::Whole(self.d.cast(lanes_of(8), v)),
        }
    }

    fn lacking<T>(&self, instead: T) -> T {
        self.d.is_lacking.set(true);
        instead
    }

    fn value(&self, lanes: Lanes) -> Value {
        match lanes {
            Lanes::Each(v) => v,
            Lanes::Same(lane) => {
                self.d.cast(lanes_of(self.w), self.d.constant_vector([repeated(self.w, lane); 2]))
            }
        }
    }

    fn truth(&self, c: Truths) -> Value {
        match c {
            Truths::Each(v) => v,
            Truths::Same(c) => self.value(Lanes::Same(if c { mask(self.w) } else { 0 })),
        }
    }

    fn two(&self, op: Bin, a: Value, b: Value) -> Lanes {
        Lanes::Each(self.d.once(Written::Lanes(op, a, b), |builder| {
            let i = builder.ins();
            match op {
                Bin::Add => i.iadd(a, b),
                Bin::Sub => i.isub(a, b),
                Bin::And => i.band(a, b),
                Bin::Or => i.bor(a, b),
                Bin::Xor => i.bxor(a, b),
                _ => i.imul(a, b),
            }
        }))
    }

    fn shift(&self, op: Bin, a: Value, by: u64) -> Lanes {
        let width = u64::from(self.w);
        if by >= width && op != Bin::Sar {
            return Lanes::Same(0);
        }
        let by = self.d.constant(32, by.min(width - 1));
        let mut builder = self.d.builder.borrow_mut();
        let i = builder.ins();
        Lanes::Each(match op {
            Bin::Shl => i.ishl(a, by),
            Bin::Shr => i.ushr(a, by),
            _ => i.sshr(a, by),
        })
    }

    fn of_truths(&self, op: Bin, a: Truths, b: Truths) -> Truths {
        match self.two(op, self.truth(a), self.truth(b)) {
            Lanes::Each(v) => Truths::Each(v),
            Lanes::Same(c) => Truths::Same(c != 0),
        }
    }
}

impl Domain for AllLanes<'_, '_> {
    type Bv = Lanes;
    type Bool = Truths;
    type Packed = [Lanes; 2];

    fn lit(&self, w: u32, value: u64) -> Lanes {
        Lanes::Same(value & mask(w))
    }

    fn bool(&self, value: bool) -> Truths {
        Truths::Same(value)
    }

    fn undef(&self, _w: u32) -> Lanes {
        self.lacking(Lanes::Same(0))
    }

    fn undef_bool(&self) -> Truths {
        self.lacking(Truths::Same(false))
    }

    fn bin(&self, op: Bin, w: u32, a: Lanes, b: Lanes) -> Lanes {
        match (op, a, b) {
            _ if w != self.w => self.lacking(a),
            (Bin::Xor | Bin::Sub, a, b) if a == b => Lanes::Same(0),
            (Bin::And | Bin::Or, a, b) if a == b => a,
            (Bin::Shl | Bin::Shr | Bin::Sar, Lanes::Each(v), Lanes::Same(by)) if w > 8 => {
                self.shift(op, v, by)
            }
            (Bin::Add | Bin::Sub | Bin::And | Bin::Or | Bin::Xor, a, b) => {
                self.two(op, self.value(a), self.value(b))
            }
            (Bin::Mul, a, b) if w == 16 || w == 32 => self.two(op, self.value(a), self.value(b)),
            _ => self.lacking(a),
        }
    }

    fn un(&self, _op: Un, _w: u32, a: Lanes) -> Lanes {
        self.lacking(a)
    }

    fn cmp(&self, op: Cmp, w: u32, a: Lanes, b: Lanes) -> Truths {
        if w != self.w {
            return self.lacking(Truths::Same(false));
        }
        if a == b {
            return Truths::Same(op == Cmp::Eq);
        }
        let by = match op {
            Cmp::Eq => IntCC::Equal,
            Cmp::Ult => IntCC::UnsignedLessThan,
            Cmp::Slt => IntCC::SignedLessThan,
        };
        let (a, b) = (self.value(a), self.value(b));
        Truths::Each(self.d.once(Written::Compare(by, a, b), |builder| builder.ins().icmp(by, a, b)))
    }

    fn divide(&self, _: bool, _: u32, hi: Lanes, lo: Lanes, _: Lanes) -> Division<Lanes, Truths> {
        self.lacking(Division { quotient: hi, remainder: lo, fault: Truths::Same(false) })
    }

    fn zext(&self, _from: u32, _to: u32, a: Lanes) -> Lanes {
        self.lacking(a)
    }

    fn sext(&self, _from: u32, _to: u32, a: Lanes) -> Lanes {
        self.lacking(a)
    }

    fn extract(&self, _from: u32, _low: u32, _to: u32, a: Lanes) -> Lanes {
        self.lacking(a)
    }

    fn concat(&self, _wh: u32, high: Lanes, _wl: u32, _low: Lanes) -> Lanes {
        self.lacking(high)
    }

    fn ite(&self, c: Truths, w: u32, then: Lanes, other: Lanes) -> Lanes {
        match (c, then, other) {
            _ if w != self.w => self.lacking(then),
            (Truths::Same(true), ..) => then,
            (Truths::Same(false), ..) => other,
            (Truths::Each(v), Lanes::Same(ones), Lanes::Same(0)) if ones == mask(w) => Lanes::Each(v),
            (Truths::Each(c), ..) => {
                let (a, b) = (self.value(then), self.value(other));
                Lanes::Each(self.d.once(Written::Select(c, a, b), |builder| builder.ins().bitselect(c, a, b)))
            }
        }
    }

    fn ite_bool(&self, c: Truths, then: Truths, _other: Truths) -> Truths {
        match c {
            Truths::Same(true) => then,
            _ => self.lacking(then),
        }
    }

    fn not(&self, a: Truths) -> Truths {
        match a {
            Truths::Same(a) => Truths::Same(!a),
            Truths::Each(_) => self.of_truths(Bin::Xor, a, Truths::Same(true)),
        }
    }

    fn and(&self, a: Truths, b: Truths) -> Truths {
        self.of_truths(Bin::And, a, b)
    }

    fn or(&self, a: Truths, b: Truths) -> Truths {
        self.of_truths(Bin::Or, a, b)
    }

    fn xor(&self, a: Truths, b: Truths) -> Truths {
        self.of_truths(Bin::Xor, a, b)
    }

    fn opaque(&self, _op: Opaque, _args: &[Lanes]) -> [Lanes; 3] {
        self.lacking([Lanes::Same(0); 3])
    }
}
