//! How a semantic function reads and writes its operands.
//!
//! [`Width`] and [`Place`] are decided either at run time from the [`Op`] ([`AnyWidth`], [`Any`]: one instance of
//! a function serves every form of an instruction) or at compile time ([`Bits`], [`Reg`], [`Memory`], [`Imm`]:
//! what the hot forms of the software CPU use), and so is the form of an address ([`Address`]). The table is the only
//! place that picks.

use std::marker::PhantomData;

use crate::domain::{Bin, Domain};
use crate::machine::{Bv, Exec, Machine, Trap};
use crate::op::{Condition, Gpr, Loc, Op, Segment};

/// The width of an operation.
pub trait Width {
    /// The width in bits.
    fn of(op: &Op) -> u32;
}

/// The width that the decoder found.
pub struct AnyWidth;

impl Width for AnyWidth {
    #[inline(always)]
    fn of(op: &Op) -> u32 {
        u32::from(op.w)
    }
}

/// A width known when the handler is chosen.
pub struct Bits<const W: u32>;

impl<const W: u32> Width for Bits<W> {
    #[inline(always)]
    fn of(_op: &Op) -> u32 {
        W
    }
}

/// The condition of Jcc, SETcc and CMOVcc.
pub trait When {
    /// The condition.
    fn of(op: &Op) -> Condition;
}

/// The condition that the decoder found.
pub struct AnyCondition;

impl When for AnyCondition {
    #[inline(always)]
    fn of(op: &Op) -> Condition {
        op.cc
    }
}

/// A condition known when the handler is chosen.
pub struct If<const CC: u8>;

impl<const CC: u8> When for If<CC> {
    #[inline(always)]
    fn of(_op: &Op) -> Condition {
        Condition(CC)
    }
}

/// An operand that can be read.
pub trait Place {
    /// The operand's value, `w` bits.
    fn get<M: Machine>(m: &mut M, op: &Op, w: u32) -> Exec<Bv<M>>;
    /// The operand's value, `w` bits, where the same instruction writes it next.
    #[inline(always)]
    fn get_for_update<M: Machine>(m: &mut M, op: &Op, w: u32) -> Exec<Bv<M>> {
        Self::get(m, op, w)
    }
    /// Writes the operand, `w` bits. An immediate ignores it; the table never asks for that.
    fn put<M: Machine>(m: &mut M, op: &Op, w: u32, v: Bv<M>) -> Exec;
}

/// Operand `N` (0, 1, 2), wherever it is.
pub struct Any<const N: u8>;
/// Operand `N` (0, 1), a general register.
pub struct Reg<const N: usize>;
/// The memory operand, whose address is of the form `A`.
pub struct Memory<A>(PhantomData<A>);
/// The immediate operand.
pub struct Imm;

#[inline(always)]
fn slot<const N: u8>(op: &Op) -> Loc {
    match N {
        0 => op.a,
        1 => op.b,
        _ => op.c,
    }
}

impl<const N: u8> Place for Any<N> {
    #[inline(always)]
    fn get<M: Machine>(m: &mut M, op: &Op, w: u32) -> Exec<Bv<M>> {
        read(m, op, slot::<N>(op), w)
    }
    #[inline(always)]
    fn get_for_update<M: Machine>(m: &mut M, op: &Op, w: u32) -> Exec<Bv<M>> {
        match slot::<N>(op) {
            Loc::Mem => load_for_update(m, op, w),
            loc => read(m, op, loc, w),
        }
    }
    #[inline(always)]
    fn put<M: Machine>(m: &mut M, op: &Op, w: u32, v: Bv<M>) -> Exec {
        write(m, op, slot::<N>(op), w, v)
    }
}

impl<const N: usize> Place for Reg<N> {
    #[inline(always)]
    fn get<M: Machine>(m: &mut M, op: &Op, w: u32) -> Exec<Bv<M>> {
        Ok(register(m, op.numbers.operands[N], w))
    }
    #[inline(always)]
    fn put<M: Machine>(m: &mut M, op: &Op, w: u32, v: Bv<M>) -> Exec {
        set_register(m, op.numbers.operands[N], w, v);
        Ok(())
    }
}

impl<A: Address> Place for Memory<A> {
    #[inline(always)]
    fn get<M: Machine>(m: &mut M, op: &Op, w: u32) -> Exec<Bv<M>> {
        let va = A::linear(m, op);
        m.load(w, va).map_err(|trap| non_canonical(op, trap))
    }
    #[inline(always)]
    fn get_for_update<M: Machine>(m: &mut M, op: &Op, w: u32) -> Exec<Bv<M>> {
        let va = A::linear(m, op);
        m.load_for_update(w, va).map_err(|trap| non_canonical(op, trap))
    }
    #[inline(always)]
    fn put<M: Machine>(m: &mut M, op: &Op, w: u32, v: Bv<M>) -> Exec {
        let va = A::linear(m, op);
        m.store(w, va, v).map_err(|trap| non_canonical(op, trap))
    }
}

/// A form of an address.
pub trait Address {
    /// The effective address of the memory operand before its segment base is added: what LEA gives.
    fn offset<M: Machine>(m: &M, op: &Op) -> Bv<M>;
    /// The linear address of the memory operand.
    fn linear<M: Machine>(m: &M, op: &Op) -> Bv<M>;
}

/// Whatever the decoder found.
pub struct AnyAddress;
/// A base and a displacement, 64 bits, in no segment that has a base.
pub struct Based;
/// The same with an index.
pub struct Indexed;

impl Address for AnyAddress {
    #[inline(always)]
    fn offset<M: Machine>(m: &M, op: &Op) -> Bv<M> {
        effective_offset(m, op)
    }
    #[inline(always)]
    fn linear<M: Machine>(m: &M, op: &Op) -> Bv<M> {
        effective_address(m, op)
    }
}

impl Address for Based {
    #[inline(always)]
    fn offset<M: Machine>(m: &M, op: &Op) -> Bv<M> {
        m.d().bin(Bin::Add, 64, m.reg(op.numbers.base), m.d().lit(64, op.mem.disp))
    }
    #[inline(always)]
    fn linear<M: Machine>(m: &M, op: &Op) -> Bv<M> {
        Self::offset(m, op)
    }
}

impl Address for Indexed {
    #[inline(always)]
    fn offset<M: Machine>(m: &M, op: &Op) -> Bv<M> {
        plus_index(m, op, Based::offset(m, op), op.numbers.index)
    }
    #[inline(always)]
    fn linear<M: Machine>(m: &M, op: &Op) -> Bv<M> {
        Self::offset(m, op)
    }
}

/// `sum` and the scaled `index`.
#[inline(always)]
fn plus_index<M: Machine>(m: &M, op: &Op, sum: Bv<M>, index: Gpr) -> Bv<M> {
    let d = m.d();
    let scaled = d.bin(Bin::Shl, 64, m.reg(index), d.lit(64, u64::from(op.mem.scale & 3)));
    d.bin(Bin::Add, 64, sum, scaled)
}

impl Place for Imm {
    #[inline(always)]
    fn get<M: Machine>(m: &mut M, op: &Op, w: u32) -> Exec<Bv<M>> {
        Ok(m.d().lit(w, op.imm))
    }
    #[inline(always)]
    fn put<M: Machine>(_m: &mut M, _op: &Op, _w: u32, _v: Bv<M>) -> Exec {
        Ok(())
    }
}

/// The value at `loc`, `w` bits.
#[inline]
pub fn read<M: Machine>(m: &mut M, op: &Op, loc: Loc, w: u32) -> Exec<Bv<M>> {
    match loc {
        Loc::Reg(r) => Ok(register(m, r, w)),
        Loc::RegHigh(r) => Ok(m.d().extract(64, 8, 8, m.reg(r))),
        Loc::Mem => load(m, op, w),
        Loc::Vector(n) => Ok(m.d().trunc(64, w, m.vector(n, 0))),
        Loc::Mmx(n) => Ok(m.d().trunc(64, w, m.x87(n).0)),
        Loc::Mask(n) => Ok(m.d().trunc(64, w, m.opmask(n))),
        Loc::Imm | Loc::None | Loc::X87(_) => Ok(m.d().lit(w, op.imm)),
    }
}

/// Writes `w` bits at `loc`.
#[inline]
pub fn write<M: Machine>(m: &mut M, op: &Op, loc: Loc, w: u32, v: Bv<M>) -> Exec {
    match loc {
        Loc::Reg(r) => set_register(m, r, w, v),
        Loc::RegHigh(r) => set_high_byte(m, r, v),
        Loc::Mem => return store(m, op, w, v),
        Loc::Vector(n) => {
            let v = m.d().zext(w, 64, v);
            m.set_vector(n, 0, v);
        }
        Loc::Mmx(n) => {
            let (v, above) = (m.d().zext(w, 64, v), m.d().lit(16, 0xffff));
            m.set_x87(n, v, above);
        }
        Loc::Mask(n) => {
            let v = m.d().zext(w, 64, v);
            m.set_opmask(n, v);
        }
        Loc::Imm | Loc::None | Loc::X87(_) => {}
    }
    Ok(())
}

/// The low `w` bits of a general register.
#[inline(always)]
pub fn register<M: Machine>(m: &M, r: Gpr, w: u32) -> Bv<M> {
    if w == 64 { m.reg(r) } else { m.d().trunc(64, w, m.reg(r)) }
}

/// Writes the low `w` bits of a general register: 32 bits clear the upper half, 8 and 16 keep the rest.
#[inline(always)]
pub fn set_register<M: Machine>(m: &mut M, r: Gpr, w: u32, v: Bv<M>) {
    let whole = match w {
        64 => v,
        32 => m.d().zext(32, 64, v),
        _ => {
            let rest = m.d().extract(64, w, 64 - w, m.reg(r));
            m.d().concat(64 - w, rest, w, v)
        }
    };
    m.set_reg(r, whole);
}

/// Writes bits 8 to 15 of a general register.
fn set_high_byte<M: Machine>(m: &mut M, r: Gpr, v: Bv<M>) {
    let old = m.reg(r);
    let low = m.d().trunc(64, 8, old);
    let high = m.d().extract(64, 16, 48, old);
    let low = m.d().concat(8, v, 8, low);
    let whole = m.d().concat(48, high, 16, low);
    m.set_reg(r, whole);
}

/// The linear address of the memory operand.
#[inline(always)]
pub fn effective_address<M: Machine>(m: &M, op: &Op) -> Bv<M> {
    let offset = effective_offset(m, op);
    with_segment(m, op.mem.segment, offset)
}

/// The effective address of the memory operand before its segment base is added: what LEA gives.
#[inline(always)]
pub fn effective_offset<M: Machine>(m: &M, op: &Op) -> Bv<M> {
    let (d, mem) = (m.d(), &op.mem);
    let mut sum = d.lit(64, mem.disp);
    if let Some(base) = mem.base {
        sum = d.bin(Bin::Add, 64, m.reg(base), sum);
    }
    if let Some(index) = mem.index {
        sum = plus_index(m, op, sum, index);
    }
    cut_to_address_size(m, op, sum)
}

/// An effective address as the address size of `op` leaves it.
#[inline(always)]
pub fn cut_to_address_size<M: Machine>(m: &M, op: &Op, offset: Bv<M>) -> Bv<M> {
    let d = m.d();
    if op.mem.addr32 { d.zext(32, 64, d.trunc(64, 32, offset)) } else { offset }
}

/// `offset` in `segment` as a linear address.
#[inline(always)]
pub fn with_segment<M: Machine>(m: &M, segment: Segment, offset: Bv<M>) -> Bv<M> {
    match segment {
        Segment::Flat => offset,
        _ => m.d().bin(Bin::Add, 64, m.segment_base(segment), offset),
    }
}

/// Loads `w` bits of the memory operand.
#[inline(always)]
pub fn load<M: Machine>(m: &mut M, op: &Op, w: u32) -> Exec<Bv<M>> {
    let va = effective_address(m, op);
    m.load(w, va).map_err(|trap| non_canonical(op, trap))
}

/// Loads `w` bits of the memory operand, which the same instruction writes next.
#[inline(always)]
pub fn load_for_update<M: Machine>(m: &mut M, op: &Op, w: u32) -> Exec<Bv<M>> {
    let va = effective_address(m, op);
    m.load_for_update(w, va).map_err(|trap| non_canonical(op, trap))
}

/// Stores `w` bits at the memory operand.
#[inline(always)]
pub fn store<M: Machine>(m: &mut M, op: &Op, w: u32, v: Bv<M>) -> Exec {
    let va = effective_address(m, op);
    m.store(w, va, v).map_err(|trap| non_canonical(op, trap))
}

/// A non-canonical address is #SS, not #GP, where the segment is SS: when rsp or rbp is the base (Intel SDM
/// vol. 1, 3.7.4). Linux delivers SIGBUS for one and SIGSEGV for the other.
#[cold]
#[inline]
pub fn non_canonical(op: &Op, trap: Trap) -> Trap {
    let in_stack = matches!(op.mem.base, Some(Gpr::RSP | Gpr::RBP)) && op.mem.segment == Segment::Flat;
    if trap == Trap::General && in_stack { Trap::Stack } else { trap }
}
