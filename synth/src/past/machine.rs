//! One instruction, run on terms: the third machine of the one semantics.
//!
//! It never resolves an address: a load gives a fresh variable, and accesses are written down for the
//! hypothesis to match with the history of memory once their addresses are known.

use super::snapshot::{STATUS_TOP, Snapshot};
use crate::term::{Node, Term, Terms};
use std::cell::Cell;
use std::rc::Rc;
use x86::domain::{Bin, Cmp};
use x86::flags::{By, Flags};
use x86::machine::{Control, Exec, Machine, Trap};
use x86::op::{Gpr, Segment};
use x86::sem::flag::SYSTEM;
use x86::state::{RFLAGS_AC, RFLAGS_FIXED, RFLAGS_IF};

/// Which components an instruction writes, whatever their values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// General registers, bit n = register n.
    pub gpr: u16,
    /// The arithmetic flags.
    pub flags: bool,
    /// The direction flag.
    pub direction: bool,
    /// The interrupt flag, of a kernel.
    pub interrupts: bool,
    /// The access flag, of a kernel.
    pub access: bool,
    /// Segment bases: bit 0 FS, bit 1 GS.
    pub segments: u8,
    /// The base of GS that SWAPGS brings, of a kernel.
    pub inactive_gs: bool,
    /// Parts of vector registers: bit p of number n is part p of register n.
    pub vector: [u8; 32],
    /// Opmask registers, bit n = register n.
    pub opmask: u8,
    /// Physical x87 registers.
    pub x87: u8,
    /// Control registers, bit n = number n of [`Control`].
    pub controls: u8,
}

impl Written {
    /// The parts of vector registers: register and part.
    pub fn parts(&self) -> impl Iterator<Item = (u8, u8)> + '_ {
        (0..).zip(&self.vector).flat_map(|(n, parts)| {
            (0..8).filter(move |part| parts >> part & 1 == 1).map(move |part| (n, part))
        })
    }

    /// The opmask registers.
    pub fn opmasks(&self) -> impl Iterator<Item = u8> + '_ {
        (0..8).filter(|n| self.opmask >> n & 1 == 1)
    }
}

/// A load or a store.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Whether it is a store.
    pub store: bool,
    /// Whether the kernel made it: where the program cannot write (a null argument), it made none.
    pub by_kernel: bool,
    /// Its size in bytes.
    pub bytes: u32,
    /// Its linear address, 64 bits.
    pub address: Term,
    /// What was loaded or stored.
    pub value: Term,
}

/// The machine for one instruction.
pub struct StepMachine {
    terms: Rc<Terms>,
    /// The registers: those before the instruction, until it writes them.
    pub now: Snapshot,
    /// The flags, as what computed them.
    pub lazy_flags: Flags<Term, Term>,
    /// Whether it looked at the flags.
    pub flags_read: Cell<bool>,
    /// What it wrote.
    pub written: Written,
    /// Its accesses, in order.
    pub accesses: Vec<Access>,
    /// What must hold for it not to trap.
    pub assumptions: Vec<Term>,
    /// It loaded the x87 TOP from somewhere: that it is what it was is assumed.
    pub assumed_top: bool,
    /// It made an access under a condition that is not known.
    pub conditional_access: bool,
}

impl StepMachine {
    /// A machine in the state `before`.
    #[must_use]
    pub fn new(terms: Rc<Terms>, before: Snapshot) -> StepMachine {
        let lazy_flags = Flags::from_bits(&*terms, before.flags);
        StepMachine {
            terms,
            now: before,
            lazy_flags,
            flags_read: Cell::new(false),
            written: Written::default(),
            accesses: Vec::new(),
            assumptions: Vec::new(),
            assumed_top: false,
            conditional_access: false,
        }
    }

    /// Writes the interrupt flag.
    pub(super) fn set_interrupts(&mut self, on: Term) {
        self.written.interrupts = true;
        self.now.interrupts.iter_mut().for_each(|interrupts| *interrupts = on);
    }

    /// Writes the access flag.
    pub(super) fn set_access(&mut self, on: Term) {
        self.written.access = true;
        self.now.access.iter_mut().for_each(|access| *access = on);
    }

    /// Exchanges the two bases of GS (SDM vol. 2, SWAPGS).
    pub(super) fn swap_gs(&mut self) {
        let Some(inactive) = self.now.inactive_gs else { return };
        self.now.inactive_gs = Some(self.segment_base(Segment::Gs));
        self.set_segment_base(Segment::Gs, inactive);
        self.written.inactive_gs = true;
    }

    /// Whether an access under `c` is made. Where that is not known, none is, and the instruction is a barrier.
    fn is_made(&mut self, c: Term) -> bool {
        let known = self.terms.truth(c);
        self.conditional_access |= known.is_none();
        known == Some(true)
    }

    fn access(&mut self, store: bool, w: u32, address: Term, value: Term) {
        self.accesses.push(Access { store, by_kernel: false, bytes: w / 8, address, value });
    }
}

/// The TOP field of a status word, where it is the same whatever the word's other bits depend on.
fn known_top(terms: &Terms, status: Term) -> Option<u64> {
    match terms.node(status) {
        Node::Ite(_, then, other) => {
            let top = known_top(terms, then)?;
            (known_top(terms, other) == Some(top)).then_some(top)
        }
        Node::Bin(op @ (Bin::And | Bin::Or), a, b) => {
            let (a, b) = (known_top(terms, a), known_top(terms, b));
            match (op, a, b) {
                (Bin::And, Some(0), _) | (Bin::And, _, Some(0)) => Some(0),
                (Bin::And, Some(a), Some(b)) => Some(a & b),
                (Bin::Or, Some(a), Some(b)) => Some(a | b),
                _ => None,
            }
        }
        _ => terms.value(terms.build_extract(11, 3, status)),
    }
}

fn segment_number(s: Segment) -> Option<usize> {
    match s {
        Segment::Flat => None,
        Segment::Fs => Some(0),
        Segment::Gs => Some(1),
    }
}

fn control_number(c: Control) -> usize {
    match c {
        Control::Mxcsr => 0,
        Control::X87Control => 1,
        Control::X87Status => 2,
        Control::X87Tag => 3,
    }
}

impl Machine for StepMachine {
    type D = Terms;

    fn d(&self) -> &Terms {
        &self.terms
    }
    fn reg(&self, r: Gpr) -> Term {
        self.now.gpr[usize::from(r.0 & 15)]
    }
    fn set_reg(&mut self, r: Gpr, v: Term) {
        self.now.gpr[usize::from(r.0 & 15)] = v;
        self.written.gpr |= 1 << (r.0 & 15);
    }
    fn flags(&self) -> Flags<Term, Term> {
        self.flags_read.set(true);
        self.lazy_flags
    }
    fn set_flags(&mut self, f: Flags<Term, Term>) {
        self.lazy_flags = f;
        self.written.flags = true;
    }
    fn set_flags_if(&mut self, c: Term, f: Flags<Term, Term>) {
        match self.terms.truth(c) {
            Some(false) => {}
            Some(true) => self.lazy_flags = f,
            None => {
                let terms = &*self.terms;
                let (new, old) = (f.bits(terms), self.lazy_flags.bits(terms));
                let merged = std::array::from_fn(|n| terms.build_ite(c, new[n], old[n]));
                self.lazy_flags = Flags { by: By::Bits(merged), ..f };
                self.flags_read.set(true);
            }
        }
        self.written.flags = true;
    }
    fn direction(&self) -> Term {
        self.now.direction
    }
    fn set_direction(&mut self, down: Term) {
        self.now.direction = down;
        self.written.direction = true;
    }
    fn system_flags(&self) -> Term {
        // Not followed: NT, ID, and AC of a program may be anything.
        let terms = &*self.terms;
        let open = |mask: u64| terms.build_bin(Bin::And, terms.fresh(64), terms.lit_term(64, mask));
        let (Some(interrupts), Some(access)) = (self.now.interrupts, self.now.access) else {
            let fixed = terms.lit_term(64, RFLAGS_FIXED | RFLAGS_IF);
            return terms.build_bin(Bin::Or, open(SYSTEM), fixed);
        };
        let flag = |on: Term, bit: u64| terms.build_ite(on, terms.lit_term(64, bit), terms.lit_term(64, 0));
        let known = terms.build_bin(Bin::Or, flag(interrupts, RFLAGS_IF), flag(access, RFLAGS_AC));
        let known = terms.build_bin(Bin::Or, known, terms.lit_term(64, RFLAGS_FIXED));
        terms.build_bin(Bin::Or, open(SYSTEM & !RFLAGS_AC), known)
    }
    fn set_system_flags(&mut self, _v: Term) {}
    fn segment_base(&self, s: Segment) -> Term {
        segment_number(s).map_or_else(|| self.terms.lit_term(64, 0), |n| self.now.segment_bases[n])
    }
    fn set_segment_base(&mut self, s: Segment, base: Term) {
        if let Some(n) = segment_number(s) {
            self.now.segment_bases[n] = base;
            self.written.segments |= 1 << n;
        }
    }
    fn vector(&self, n: u8, part: u8) -> Term {
        self.now.vector.part(n, part)
    }
    fn set_vector(&mut self, n: u8, part: u8, v: Term) {
        self.now.vector.set_part(n, part, v);
        self.written.vector[usize::from(n & 31)] |= 1 << (part & 7);
    }
    fn opmask(&self, n: u8) -> Term {
        self.now.vector.opmask(n)
    }
    fn set_opmask(&mut self, n: u8, v: Term) {
        self.now.vector.set_opmask(n, v);
        self.written.opmask |= 1 << (n & 7);
    }
    fn x87(&self, n: u8) -> (Term, Term) {
        self.now.x87[usize::from(n & 7)]
    }
    fn set_x87(&mut self, n: u8, significand: Term, sign_exponent: Term) {
        self.now.x87[usize::from(n & 7)] = (significand, sign_exponent);
        self.written.x87 |= 1 << (n & 7);
    }
    fn x87_top(&self) -> u8 {
        self.now.x87_top
    }
    fn set_x87_top(&mut self, top: u8) {
        self.now.x87_top = top & 7;
    }
    fn control(&self, c: Control) -> Term {
        let value = self.now.controls[control_number(c)];
        match c {
            Control::X87Status => {
                let top = self.terms.lit_term(16, u64::from(self.now.x87_top) << 11);
                self.terms.build_bin(Bin::Or, value, top)
            }
            _ => value,
        }
    }
    fn set_control(&mut self, c: Control, v: Term) {
        let n = control_number(c);
        self.now.controls[n] = match c {
            Control::X87Status => {
                // Known whenever the control word is, which it is but right after it was overwritten.
                match known_top(&self.terms, v) {
                    Some(top) => self.now.x87_top = top.to_le_bytes()[0],
                    // What it was before is lost. It was the same, as a rule: what is restored was saved a moment ago.
                    None => {
                        self.assumed_top = true;
                        let top =
                            self.terms.build_extract(STATUS_TOP.trailing_zeros(), STATUS_TOP.count_ones(), v);
                        let same = self.terms.lit_term(STATUS_TOP.count_ones(), self.now.x87_top.into());
                        self.assumptions.push(self.terms.build_cmp(Cmp::Eq, top, same));
                    }
                }
                let rest = self.terms.lit_term(16, u64::from(!STATUS_TOP));
                self.terms.build_bin(Bin::And, v, rest)
            }
            _ => v,
        };
        self.written.controls |= 1 << n;
    }
    fn load(&mut self, w: u32, va: Term) -> Exec<Term> {
        let value = self.terms.fresh(w);
        self.access(false, w, va, value);
        Ok(value)
    }
    fn store(&mut self, w: u32, va: Term, v: Term) -> Exec {
        self.access(true, w, va, v);
        Ok(())
    }
    fn store_parts(&mut self, va: Term, parts: &[Term]) -> Exec {
        for (at, &part) in (0..).step_by(8).zip(parts) {
            let to = self.terms.build_bin(Bin::Add, va, self.terms.lit_term(64, at));
            self.access(true, 64, to, part);
        }
        Ok(())
    }
    fn load_if(&mut self, c: Term, w: u32, va: Term) -> Exec<Term> {
        if self.is_made(c) { self.load(w, va) } else { Ok(self.terms.lit_term(w, 0)) }
    }
    fn store_if(&mut self, c: Term, w: u32, va: Term, v: Term) -> Exec {
        if self.is_made(c) { self.store(w, va, v) } else { Ok(()) }
    }
    fn prepare_store_if(&mut self, _c: Term, _va: Term, _bytes: u64) -> Exec {
        Ok(())
    }
    fn prepare_store(&mut self, _va: Term, _bytes: u64) -> Exec {
        // Whether the stores that follow can be made is judged when their addresses are known.
        Ok(())
    }
    fn trap_if(&mut self, c: Term, t: Trap) -> Exec {
        match self.terms.truth(c) {
            Some(true) => Err(t),
            Some(false) => Ok(()),
            None => {
                let holds = self.terms.build_not(c);
                self.assumptions.push(holds);
                Ok(())
            }
        }
    }
}
