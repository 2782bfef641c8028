//! PCMPISTRI, PCMPISTRM, PCMPESTRI, PCMPESTRM (Intel SDM vol. 2, 4.1): every character of one fragment against
//! every character of another, then a reduction that the immediate chooses.

use super::{
    block_from_lanes, from_block, immediate, lane, load_bits, low_block, mask, register, set_register,
};
use crate::domain::{Cmp, Domain};
use crate::flags::Flags;
use crate::machine::{Bool, Exec, Machine};
use crate::op::{Gpr, Loc, Op};
use crate::sem::operand;

/// What the immediate says.
#[derive(Clone, Copy)]
struct Control(u32);

impl Control {
    fn width(self) -> u32 {
        if self.0 & 1 == 0 { 8 } else { 16 }
    }

    /// The number of characters in a fragment.
    fn count(self) -> u32 {
        128 / self.width()
    }

    fn signed(self) -> bool {
        self.0 & 2 != 0
    }

    fn aggregation(self) -> u32 {
        self.0 >> 2 & 3
    }

    /// Whether the results are inverted, and whether only those of valid characters.
    fn negative(self) -> (bool, bool) {
        (self.0 & 0x10 != 0, self.0 & 0x20 != 0)
    }

    /// The most significant index, or the mask expanded to lanes.
    fn high_bit(self) -> bool {
        self.0 & 0x40 != 0
    }
}

/// A fragment: its characters, and which of them come before its end.
struct Fragment<D: Domain> {
    characters: Vec<D::Bv>,
    valid: Vec<D::Bool>,
}

impl<D: Domain> Fragment<D> {
    fn characters(d: &D, control: Control, v: [D::Bv; 2]) -> Vec<D::Bv> {
        (0..control.count()).map(|n| lane(d, control.width(), n, &v)).collect()
    }

    /// Ends before the first zero.
    fn implicit(d: &D, control: Control, v: [D::Bv; 2]) -> Self {
        let characters = Self::characters(d, control, v);
        let valid = characters
            .iter()
            .scan(d.bool(true), |before, &c| {
                *before = d.and(*before, d.not(d.is_zero(control.width(), c)));
                Some(*before)
            })
            .collect();
        Fragment { characters, valid }
    }

    /// Has the magnitude of `length` as its length.
    fn explicit(d: &D, control: Control, v: [D::Bv; 2], w: u32, length: D::Bv) -> Self {
        let magnitude = d.ite(d.sign(w, length), w, d.negate(w, length), length);
        let valid =
            (0..control.count()).map(|n| d.cmp(Cmp::Ult, w, d.lit(w, u64::from(n)), magnitude)).collect();
        Fragment { characters: Self::characters(d, control, v), valid }
    }
}

/// The result bit of every character of `b`, before and after polarity.
fn results<D: Domain>(d: &D, control: Control, a: &Fragment<D>, b: &Fragment<D>) -> Vec<D::Bool> {
    let count = a.characters.len();
    let (invert, only_valid) = control.negative();
    (0..count)
        .map(|j| {
            let result = match control.aggregation() {
                0 => equal_any(d, control, a, b, j),
                1 => ranges(d, control, a, b, j),
                2 => equal_each(d, control, a, b, j),
                _ => equal_ordered(d, control, a, b, j),
            };
            match (invert, only_valid) {
                (false, _) => result,
                (true, false) => d.not(result),
                (true, true) => d.xor(result, b.valid[j]),
            }
        })
        .collect()
}

fn equal<D: Domain>(d: &D, control: Control, x: D::Bv, y: D::Bv) -> D::Bool {
    d.cmp(Cmp::Eq, control.width(), x, y)
}

fn equal_any<D: Domain>(d: &D, control: Control, a: &Fragment<D>, b: &Fragment<D>, j: usize) -> D::Bool {
    let found = (0..a.characters.len()).fold(d.bool(false), |found, i| {
        let here = d.and(a.valid[i], equal(d, control, a.characters[i], b.characters[j]));
        d.or(found, here)
    });
    d.and(b.valid[j], found)
}

fn ranges<D: Domain>(d: &D, control: Control, a: &Fragment<D>, b: &Fragment<D>, j: usize) -> D::Bool {
    let less = if control.signed() { Cmp::Slt } else { Cmp::Ult };
    let below = |x, y| d.cmp(less, control.width(), x, y);
    let found = (0..a.characters.len() / 2).fold(d.bool(false), |found, i| {
        let (low, high) = (a.characters[2 * i], a.characters[2 * i + 1]);
        let outside = d.or(below(b.characters[j], low), below(high, b.characters[j]));
        d.or(found, d.and(a.valid[2 * i + 1], d.not(outside)))
    });
    d.and(b.valid[j], found)
}

fn equal_each<D: Domain>(d: &D, control: Control, a: &Fragment<D>, b: &Fragment<D>, j: usize) -> D::Bool {
    let both_end = d.not(d.or(a.valid[j], b.valid[j]));
    let both = d.and(a.valid[j], b.valid[j]);
    d.or(both_end, d.and(both, equal(d, control, a.characters[j], b.characters[j])))
}

fn equal_ordered<D: Domain>(d: &D, control: Control, a: &Fragment<D>, b: &Fragment<D>, j: usize) -> D::Bool {
    (0..a.characters.len() - j).fold(d.bool(true), |all, i| {
        let same = d.and(b.valid[i + j], equal(d, control, a.characters[i], b.characters[i + j]));
        d.and(all, d.or(d.not(a.valid[i]), same))
    })
}

/// Compares the operands and sets the flags; the result bits.
fn compare<M: Machine, const EXPLICIT: bool, const W: u32>(m: &mut M, op: &Op) -> Exec<Vec<Bool<M>>> {
    let control = Control(immediate(op));
    let b = match op.b {
        Loc::Mem => {
            let va = operand::effective_address(m, op);
            load_bits(m, op, va, 128)?
        }
        _ => register(m, op, op.b),
    };
    let (a, b) = (low_block::<M::D>(&register(m, op, op.a)), low_block::<M::D>(&b));
    let d = m.d();
    let (a, b) = if EXPLICIT {
        let (a_length, b_length) = (operand::register(m, Gpr::RAX, W), operand::register(m, Gpr::RDX, W));
        (Fragment::explicit(d, control, a, W, a_length), Fragment::explicit(d, control, b, W, b_length))
    } else {
        (Fragment::implicit(d, control, a), Fragment::implicit(d, control, b))
    };
    let results = results(d, control, &a, &b);
    let any = results.iter().fold(d.bool(false), |any, &r| d.or(any, r));
    let last = results.len() - 1;
    let clear = d.bool(false);
    let bits = [any, clear, clear, d.not(b.valid[last]), d.not(a.valid[last]), results[0]];
    let flags = Flags::from_bits(d, bits);
    m.set_flags(flags);
    Ok(results)
}

/// PCMPISTRI, PCMPESTRI: the first (or last) set result to ecx, or the number of characters. `W` is the width
/// of the explicit lengths.
pub fn index<M: Machine, const EXPLICIT: bool, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let results = compare::<M, EXPLICIT, W>(m, op)?;
    let d = m.d();
    let none = d.lit(64, results.len() as u64);
    let choose = |found, (n, &set): (usize, &Bool<M>)| d.ite(set, 64, d.lit(64, n as u64), found);
    let places = results.iter().enumerate();
    let index = if Control(immediate(op)).high_bit() {
        places.fold(none, choose)
    } else {
        places.rev().fold(none, choose)
    };
    m.set_reg(Gpr::RCX, index);
    Ok(())
}

/// PCMPISTRM, PCMPESTRM: the results to xmm0, as bits or as lanes.
pub fn masks<M: Machine, const EXPLICIT: bool, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let results = compare::<M, EXPLICIT, W>(m, op)?;
    let control = Control(immediate(op));
    let d = m.d();
    let value = if control.high_bit() {
        block_from_lanes(d, control.width(), |n| mask(d, control.width(), results[n as usize]))
    } else {
        let bits = (1..)
            .zip(&results[1..])
            .fold(d.from_bool(1, results[0]), |bits, (n, &r)| d.concat(1, d.from_bool(1, r), n, bits));
        [d.zext(control.count(), 64, bits), d.lit(64, 0)]
    };
    let r = from_block(m.d(), value);
    set_register(m, op, Loc::Vector(0), r);
    Ok(())
}
