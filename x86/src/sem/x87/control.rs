//! The control and status words, and the whole environment in memory (Intel SDM vol. 1, 8.1.10): the 32-bit
//! protected-mode form, and with an operand-size prefix the 16-bit one. `SLOT` is the width of its words in bits.

use super::{check_pending, fixed_control, number, physical, summarized};
use crate::domain::{Bin, Cmp, Domain};
use crate::machine::{Bv, Control, Exec, Machine};
use crate::op::{Gpr, Loc, Op};
use crate::opaque::{exception, status};
use crate::sem::operand;

/// The control word after FNINIT: all exceptions masked, full precision, round to nearest.
const INITIAL_CONTROL: u64 = 0x37f;
/// Words of the environment: control, status, tags, instruction pointer (two), data pointer (two).
const WORDS: u64 = 7;
/// Size of the eight registers in bytes.
const REGISTERS: u64 = 80;

/// FWAIT, FNOP.
pub fn wait<M: Machine>(m: &mut M, _op: &Op) -> Exec {
    check_pending(m)
}

/// FNSTCW.
pub fn store_control<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let v = m.control(Control::X87Control);
    operand::store(m, op, 16, v)
}

/// FLDCW.
pub fn load_control<M: Machine>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let v = operand::load(m, op, 16)?;
    let control = fixed_control(m.d(), v);
    set_control(m, control);
    Ok(())
}

/// Writes the control word and makes the summary of exceptions agree with its masks.
fn set_control<M: Machine>(m: &mut M, control: Bv<M>) {
    m.set_control(Control::X87Control, control);
    let status = summarized(m.d(), m.control(Control::X87Status), control);
    m.set_control(Control::X87Status, status);
}

/// FNSTSW to memory or to ax.
pub fn store_status<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let v = m.control(Control::X87Status);
    match op.a {
        Loc::Reg(_) => operand::set_register(m, Gpr::RAX, 16, v),
        _ => operand::store(m, op, 16, v)?,
    }
    Ok(())
}

/// FNCLEX: TOP and the conditions stay.
pub fn clear_exceptions<M: Machine>(m: &mut M, _op: &Op) -> Exec {
    const KEPT: u64 = status::CONDITIONS | status::TOP;
    let status = m.d().bin(Bin::And, 16, m.control(Control::X87Status), m.d().lit(16, KEPT));
    m.set_control(Control::X87Status, status);
    Ok(())
}

/// FNINIT: the registers keep their contents but are empty.
pub fn initialize<M: Machine>(m: &mut M, _op: &Op) -> Exec {
    let (control, zero) = (m.d().lit(16, INITIAL_CONTROL), m.d().lit(16, 0));
    let none = m.d().lit(8, 0);
    m.set_control(Control::X87Control, control);
    m.set_control(Control::X87Status, zero);
    m.set_control(Control::X87Tag, none);
    Ok(())
}

/// The two bits of a register in the full tag word: 0 valid, 1 zero, 2 special, 3 empty.
fn full_tag<M: Machine>(m: &M, register: u8) -> Bv<M> {
    let d = m.d();
    let (significand, sign_exponent) = m.x87(register);
    let exponent = d.trunc(16, 15, sign_exponent);
    let small = d.ite(d.is_zero(64, significand), 2, d.lit(2, 1), d.lit(2, 2));
    let largest = d.cmp(Cmp::Eq, 15, exponent, d.lit(15, 0x7fff));
    let special = d.or(largest, d.not(d.sign(64, significand)));
    let other = d.ite(special, 2, d.lit(2, 2), d.lit(2, 0));
    let tag = d.ite(d.is_zero(15, exponent), 2, small, other);
    let full = d.bit(8, u32::from(register), m.control(Control::X87Tag));
    d.ite(full, 2, tag, d.lit(2, 3))
}

/// Size of the environment in bytes.
const fn size(slot: u32) -> u64 {
    WORDS * (slot as u64 / 8)
}

/// The words of the environment.
fn environment<M: Machine, const SLOT: u32>(m: &M) -> [Bv<M>; 7] {
    let d = m.d();
    let tags = (1..8).fold(full_tag(m, 0), |tags, n| {
        let tag = full_tag(m, n);
        d.concat(2, tag, 2 * u32::from(n), tags)
    });
    let padded = |v| if SLOT == 16 { v } else { d.concat(16, d.lit(16, 0xffff), 16, v) };
    let zero = d.lit(SLOT, 0);
    let (control, status) = (m.control(Control::X87Control), m.control(Control::X87Status));
    [padded(control), padded(status), padded(tags), zero, zero, zero, padded(d.lit(16, 0))]
}

fn at<M: Machine>(m: &M, va: Bv<M>, offset: u64) -> Bv<M> {
    m.d().bin(Bin::Add, 64, va, m.d().lit(64, offset))
}

fn store_environment<M: Machine, const SLOT: u32>(m: &mut M, op: &Op, va: Bv<M>) -> Exec {
    for (offset, v) in (0..).step_by(SLOT as usize / 8).zip(environment::<M, SLOT>(m)) {
        let to = at(m, va, offset);
        m.store(SLOT, to, v).map_err(|trap| operand::non_canonical(op, trap))?;
    }
    Ok(())
}

/// FNSTENV: then all exceptions are masked.
pub fn store_environment_and_mask<M: Machine, const SLOT: u32>(m: &mut M, op: &Op) -> Exec {
    let va = operand::effective_address(m, op);
    m.prepare_store(va, size(SLOT)).map_err(|trap| operand::non_canonical(op, trap))?;
    store_environment::<M, SLOT>(m, op, va)?;
    let control = m.d().bin(Bin::Or, 16, m.control(Control::X87Control), m.d().lit(16, exception::ALL));
    set_control(m, control);
    Ok(())
}

/// Control, status and abridged tag word of an image of `bytes` bytes. The first word and the last byte are read
/// before all else: the address of a page fault shows that processors do so.
fn read_environment<M: Machine, const SLOT: u32>(
    m: &mut M,
    op: &Op,
    va: Bv<M>,
    bytes: u64,
) -> Exec<[Bv<M>; 3]> {
    let last = at(m, va, bytes - 1);
    for (w, end) in [(SLOT, va), (8, last)] {
        m.load(w, end).map_err(|trap| operand::non_canonical(op, trap))?;
    }
    let mut words = [va; 3];
    for (offset, word) in (0..).step_by(SLOT as usize / 8).zip(&mut words) {
        let from = at(m, va, offset);
        *word = m.load(16, from).map_err(|trap| operand::non_canonical(op, trap))?;
    }
    let d = m.d();
    let full = |n: u32| d.not(d.cmp(Cmp::Eq, 2, d.extract(16, 2 * n, 2, words[2]), d.lit(2, 3)));
    let tag = (1..8).fold(d.from_bool(1, full(0)), |tag, n| d.concat(1, d.from_bool(1, full(n)), n, tag));
    Ok([words[0], words[1], tag])
}

fn set_environment<M: Machine>(m: &mut M, [control, status, tag]: [Bv<M>; 3]) {
    let control = fixed_control(m.d(), control);
    m.set_control(Control::X87Status, status);
    set_control(m, control);
    m.set_control(Control::X87Tag, tag);
}

/// FLDENV.
pub fn load_environment<M: Machine, const SLOT: u32>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let va = operand::effective_address(m, op);
    let environment = read_environment::<M, SLOT>(m, op, va, size(SLOT))?;
    set_environment(m, environment);
    Ok(())
}

/// FNSAVE: the environment and the registers from ST(0) on, then FNINIT.
pub fn save<M: Machine, const SLOT: u32>(m: &mut M, op: &Op) -> Exec {
    let va = operand::effective_address(m, op);
    m.prepare_store(va, size(SLOT) + REGISTERS).map_err(|trap| operand::non_canonical(op, trap))?;
    store_environment::<M, SLOT>(m, op, va)?;
    for (n, i) in (0..).zip(0..8) {
        let (significand, sign_exponent) = number(m, i);
        let to = at(m, va, size(SLOT) + 10 * n);
        m.store(64, to, significand).map_err(|trap| operand::non_canonical(op, trap))?;
        let above = at(m, to, 8);
        m.store(16, above, sign_exponent).map_err(|trap| operand::non_canonical(op, trap))?;
    }
    initialize(m, op)
}

/// FRSTOR.
pub fn restore<M: Machine, const SLOT: u32>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let va = operand::effective_address(m, op);
    let environment = read_environment::<M, SLOT>(m, op, va, size(SLOT) + REGISTERS)?;
    let mut registers = [(va, va); 8];
    for (n, register) in (0..).zip(&mut registers) {
        let from = at(m, va, size(SLOT) + 10 * n);
        let above = at(m, from, 8);
        register.0 = m.load(64, from).map_err(|trap| operand::non_canonical(op, trap))?;
        register.1 = m.load(16, above).map_err(|trap| operand::non_canonical(op, trap))?;
    }
    set_environment(m, environment);
    for (i, (significand, sign_exponent)) in (0..).zip(registers) {
        let register = physical(m, i);
        m.set_x87(register, significand, sign_exponent);
    }
    Ok(())
}
