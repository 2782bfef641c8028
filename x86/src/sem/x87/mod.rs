//! The x87: one file per family; this file is the register stack and how an instruction ends.
//!
//! An instruction computes an [`Effect`] (registers written, stack moved, exceptions found) and commits it. An
//! exception of an operand that is not masked holds the effect back, all but exceptions and conditions: the trap comes
//! with the next waiting instruction ([`check_pending`]), as on hardware. TOP is a number of the host
//! ([`Machine::x87_top`]); under an unmasked exception it depends on data, so it is committed as a part of
//! [`Control::X87Status`], whose value folds to a constant whenever the exceptions are masked.
//!
//! The last opcode, instruction pointer and data pointer (FOP, FIP, FDP) are not tracked: instructions leave
//! them as they are, and FNSTENV, FNSAVE and FXSAVE store zeros. C0, C2 and C3 are kept where the manual leaves
//! them undefined.

pub mod arithmetic;
pub mod compare;
pub mod control;
pub mod decimal;
pub mod load;
pub mod store;
pub mod transcendental;
pub mod unary;

use crate::domain::{Bin, Domain};
use crate::machine::{Bool, Bv, Control, Exec, Machine, Trap};
use crate::op::Loc;
use crate::opaque::{X87_MODE, exception, status};

/// An x87 number: significand (64 bits), sign and exponent (16 bits).
pub(super) type Number<M> = (Bv<M>, Bv<M>);

/// Stack faults are invalid operations too.
const STACK_UNDERFLOW: u64 = exception::INVALID | status::STACK_FAULT;
const STACK_OVERFLOW: u64 = STACK_UNDERFLOW | status::C1;

/// The default NaN ("real indefinite").
fn indefinite<D: Domain>(d: &D) -> (D::Bv, D::Bv) {
    (d.lit(64, 0xc000_0000_0000_0000), d.lit(16, 0xffff))
}

/// `then` if `c`, else `other`, of numbers.
fn choose<D: Domain>(d: &D, c: D::Bool, then: (D::Bv, D::Bv), other: (D::Bv, D::Bv)) -> (D::Bv, D::Bv) {
    (d.ite(c, 64, then.0, other.0), d.ite(c, 16, then.1, other.1))
}

/// Bit `n` of a 16-bit vector.
fn any_of<D: Domain>(d: &D, v: D::Bv, bits: u64) -> D::Bool {
    d.not(d.is_zero(16, d.bin(Bin::And, 16, v, d.lit(16, bits))))
}

/// The control word that a value loaded into it becomes: bit 6 is always set, the other reserved bits are clear.
pub(super) fn fixed_control<D: Domain>(d: &D, v: D::Bv) -> D::Bv {
    d.bin(Bin::Or, 16, d.bin(Bin::And, 16, v, d.lit(16, 0x1f3f)), d.lit(16, 0x40))
}

/// A status word with its summary bits made to agree with its exceptions and the masks in `control`.
pub(super) fn summarized<D: Domain>(d: &D, v: D::Bv, control: D::Bv) -> D::Bv {
    const SUMMARIES: u64 = status::SUMMARY | status::BUSY;
    let pending = d.bin(Bin::And, 16, v, d.complement(16, control));
    let rest = d.bin(Bin::And, 16, v, d.lit(16, !SUMMARIES));
    d.ite(any_of(d, pending, exception::ALL), 16, d.bin(Bin::Or, 16, rest, d.lit(16, SUMMARIES)), rest)
}

/// #MF if an exception is pending: how every instruction without an N in its name begins.
pub(super) fn check_pending<M: Machine>(m: &mut M) -> Exec {
    let pending = any_of(m.d(), m.control(Control::X87Status), status::SUMMARY);
    m.trap_if(pending, Trap::X87)
}

/// The place of an operand on the stack; ST(0) where it is implied.
fn place(loc: Loc) -> u8 {
    match loc {
        Loc::X87(n) => n,
        _ => 0,
    }
}

/// The physical register of ST(i).
fn physical<M: Machine>(m: &M, i: u8) -> u8 {
    m.x87_top().wrapping_add(i) & 7
}

/// ST(i), whatever its tag.
fn number<M: Machine>(m: &M, i: u8) -> Number<M> {
    m.x87(physical(m, i))
}

/// Whether ST(i) is empty.
fn is_empty<M: Machine>(m: &M, i: u8) -> Bool<M> {
    m.d().not(m.d().bit(8, u32::from(physical(m, i)), m.control(Control::X87Tag)))
}

/// The control bits that operations depend on.
fn mode<M: Machine>(m: &M) -> Bv<M> {
    m.d().bin(Bin::And, 16, m.control(Control::X87Control), m.d().lit(16, X87_MODE))
}

/// What an instruction does to the x87.
struct Effect<M: Machine> {
    /// Exceptions, stack fault and conditions that were found, 16 bits of the status word.
    found: Bv<M>,
    /// The conditions that the instruction defines.
    defined: u64,
    /// Physical registers and their new contents.
    writes: [Option<(u8, Number<M>)>; 2],
    /// Physical registers that are emptied, one bit each.
    emptied: u8,
    top: u8,
    /// Whether C1 stays unless there is a stack fault.
    keeps_c1: bool,
    /// Exceptions that hold the effect back if they are not masked.
    holding: u64,
    /// What else holds it back.
    refused: Option<Bool<M>>,
}

impl<M: Machine> Effect<M> {
    /// Only the status word, of which C1 is always defined.
    fn new(m: &M, found: Bv<M>) -> Self {
        let holding = exception::BEFORE_RESULT;
        let (defined, top) = (status::C1, m.x87_top());
        Effect { found, defined, writes: [None; 2], emptied: 0, top, keeps_c1: false, holding, refused: None }
    }

    /// Defines all four conditions.
    fn conditions(self) -> Self {
        self.defining(status::CONDITIONS)
    }

    /// Defines more conditions than C1.
    fn defining(self, conditions: u64) -> Self {
        Effect { defined: self.defined | conditions, ..self }
    }

    /// Does nothing to registers and stack if `c`.
    fn unless(self, c: Bool<M>) -> Self {
        Effect { refused: Some(c), ..self }
    }

    /// Keeps C1 unless there is a stack fault: FCMOVcc and FCOMI, as AMD's processors do it (the Intel SDM has
    /// them clear C1).
    fn keeping_c1(self) -> Self {
        Effect { keeps_c1: true, ..self }
    }

    /// A denormal operand is loaded though its exception is not masked.
    fn loading(self) -> Self {
        Effect { holding: exception::INVALID, ..self }
    }

    /// The result goes to memory: an overflow or underflow that is not masked holds it back too.
    fn into_memory(self) -> Self {
        let holding = self.holding | exception::OVERFLOW | exception::UNDERFLOW;
        Effect { holding, ..self }
    }

    /// Writes ST(i), counted from the TOP before the instruction.
    fn write(mut self, m: &M, i: u8, v: Number<M>) -> Self {
        let slot = usize::from(self.writes[0].is_some());
        self.writes[slot] = Some((physical(m, i), v));
        self
    }

    /// Empties ST(i), counted likewise.
    fn empty(self, m: &M, i: u8) -> Self {
        Effect { emptied: self.emptied | 1 << physical(m, i), ..self }
    }

    /// Moves TOP by `by`, modulo 8.
    fn rotate(self, by: u8) -> Self {
        Effect { top: self.top.wrapping_add(by) & 7, ..self }
    }

    /// Pops once.
    fn pop(self) -> Self {
        Effect { emptied: self.emptied | 1 << self.top, ..self }.rotate(1)
    }

    /// Pushes `v`; the default NaN if there is no room. A stack underflow found before outranks the overflow.
    fn push(self, m: &M, v: Number<M>) -> Self {
        let d = m.d();
        let full = d.not(is_empty(m, 7));
        let v = choose(d, full, indefinite(d), v);
        let overflows = d.and(full, d.not(any_of(d, self.found, status::STACK_FAULT)));
        let found = d.ite(overflows, 16, d.lit(16, STACK_OVERFLOW), self.found);
        Effect { found, ..self }.write(m, 7, v).rotate(7)
    }

    /// Whether an exception that is not masked holds the effect back.
    fn is_held(&self, m: &M) -> Bool<M> {
        let d = m.d();
        let unmasked = d.bin(Bin::And, 16, self.found, d.complement(16, m.control(Control::X87Control)));
        let held = any_of(d, unmasked, self.holding);
        self.refused.map_or(held, |refused| d.or(held, refused))
    }

    /// Does it.
    fn commit(self, m: &mut M) {
        let held = self.is_held(m);
        for (register, new) in self.writes.into_iter().flatten() {
            let (significand, sign_exponent) = choose(m.d(), held, m.x87(register), new);
            m.set_x87(register, significand, sign_exponent);
        }
        let filled = self.writes.iter().flatten().fold(0, |bits, (register, _)| bits | 1 << register);
        let tag = {
            let (d, old) = (m.d(), m.control(Control::X87Tag));
            let new = d.bin(Bin::Or, 8, old, d.lit(8, filled));
            let new = d.bin(Bin::And, 8, new, d.lit(8, u64::from(!self.emptied)));
            d.ite(held, 8, old, new)
        };
        m.set_control(Control::X87Tag, tag);
        let status = self.status(m, held);
        m.set_control(Control::X87Status, status);
    }

    /// The status word after the instruction.
    fn status(&self, m: &M, held: Bool<M>) -> Bv<M> {
        const STICKY: u64 = exception::ALL | status::STACK_FAULT;
        let (d, old) = (m.d(), m.control(Control::X87Status));
        let and = |v, bits| d.bin(Bin::And, 16, v, d.lit(16, bits));
        let or = |x, y| d.bin(Bin::Or, 16, x, y);
        let top = d.lit(16, u64::from(self.top) << status::TOP_SHIFT);
        let conditions = self.conditions_after(m, held);
        let done = or(and(old, !(self.defined | status::TOP)), or(top, and(self.found, STICKY)));
        let refused = or(and(old, !self.defined), and(self.found, self.holding | status::STACK_FAULT));
        let status = or(d.ite(held, 16, refused, done), conditions);
        summarized(d, status, m.control(Control::X87Control))
    }

    /// C0 to C3 after the instruction, those that it defines: a result that is held back was not rounded.
    fn conditions_after(&self, m: &M, held: Bool<M>) -> Bv<M> {
        let (d, old) = (m.d(), m.control(Control::X87Status));
        let and = |v, bits| d.bin(Bin::And, 16, v, d.lit(16, bits));
        let defined = and(self.found, self.defined);
        let without_c1 = and(defined, !status::C1);
        let c1_kept = d.bin(Bin::Or, 16, without_c1, and(old, status::C1));
        let no_fault = d.not(any_of(d, self.found, status::STACK_FAULT));
        let usual = if self.keeps_c1 { c1_kept } else { d.ite(held, 16, without_c1, defined) };
        d.ite(no_fault, 16, usual, defined)
    }
}
