//! A machine whose n-th memory access faults: proves that a faulting instruction leaves no trace.

use crate::machine::{Bool, Bv, Control, Exec, FlagsOf, Machine, Trap};
use crate::op::{Gpr, Segment};

/// `M`, but for the one access that faults.
pub struct Faulty<'m, M> {
    inner: &'m mut M,
    left: u32,
    /// The stores that follow are known not to fault.
    prepared: bool,
}

impl<'m, M: Machine> Faulty<'m, M> {
    /// Lets `left` accesses through to `inner`; every later one is a page fault.
    pub fn new(inner: &'m mut M, left: u32) -> Faulty<'m, M> {
        Faulty { inner, left, prepared: false }
    }

    fn access(&mut self) -> Exec {
        if !self.prepared {
            self.left = self.left.checked_sub(1).ok_or(Trap::Page)?;
        }
        Ok(())
    }
}

impl<M: Machine> Machine for Faulty<'_, M> {
    type D = M::D;

    fn d(&self) -> &M::D {
        self.inner.d()
    }
    fn reg(&self, r: Gpr) -> Bv<Self> {
        self.inner.reg(r)
    }
    fn set_reg(&mut self, r: Gpr, v: Bv<Self>) {
        self.inner.set_reg(r, v);
    }
    fn flags(&self) -> FlagsOf<Self> {
        self.inner.flags()
    }
    fn set_flags(&mut self, f: FlagsOf<Self>) {
        self.inner.set_flags(f);
    }
    fn set_flags_if(&mut self, c: Bool<Self>, f: FlagsOf<Self>) {
        self.inner.set_flags_if(c, f);
    }
    fn direction(&self) -> Bool<Self> {
        self.inner.direction()
    }
    fn set_direction(&mut self, down: Bool<Self>) {
        self.inner.set_direction(down);
    }
    fn system_flags(&self) -> Bv<Self> {
        self.inner.system_flags()
    }
    fn set_system_flags(&mut self, v: Bv<Self>) {
        self.inner.set_system_flags(v);
    }
    fn segment_base(&self, s: Segment) -> Bv<Self> {
        self.inner.segment_base(s)
    }
    fn set_segment_base(&mut self, s: Segment, base: Bv<Self>) {
        self.inner.set_segment_base(s, base);
    }
    fn vector(&self, n: u8, part: u8) -> Bv<Self> {
        self.inner.vector(n, part)
    }
    fn set_vector(&mut self, n: u8, part: u8, v: Bv<Self>) {
        self.inner.set_vector(n, part, v);
    }
    fn opmask(&self, n: u8) -> Bv<Self> {
        self.inner.opmask(n)
    }
    fn set_opmask(&mut self, n: u8, v: Bv<Self>) {
        self.inner.set_opmask(n, v);
    }
    fn x87(&self, n: u8) -> (Bv<Self>, Bv<Self>) {
        self.inner.x87(n)
    }
    fn set_x87(&mut self, n: u8, significand: Bv<Self>, sign_exponent: Bv<Self>) {
        self.inner.set_x87(n, significand, sign_exponent);
    }
    fn x87_top(&self) -> u8 {
        self.inner.x87_top()
    }
    fn set_x87_top(&mut self, top: u8) {
        self.inner.set_x87_top(top);
    }
    fn control(&self, c: Control) -> Bv<Self> {
        self.inner.control(c)
    }
    fn set_control(&mut self, c: Control, v: Bv<Self>) {
        self.inner.set_control(c, v);
    }
    fn load(&mut self, w: u32, va: Bv<Self>) -> Exec<Bv<Self>> {
        self.access()?;
        self.inner.load(w, va)
    }
    fn load_for_update(&mut self, w: u32, va: Bv<Self>) -> Exec<Bv<Self>> {
        self.access()?;
        self.inner.load_for_update(w, va)
    }
    fn store(&mut self, w: u32, va: Bv<Self>, v: Bv<Self>) -> Exec {
        self.access()?;
        self.inner.store(w, va, v)
    }
    fn store_parts(&mut self, va: Bv<Self>, parts: &[Bv<Self>]) -> Exec {
        self.access()?;
        self.inner.store_parts(va, parts)
    }
    fn load_if(&mut self, c: Bool<Self>, w: u32, va: Bv<Self>) -> Exec<Bv<Self>> {
        self.access()?;
        self.inner.load_if(c, w, va)
    }
    fn store_if(&mut self, c: Bool<Self>, w: u32, va: Bv<Self>, v: Bv<Self>) -> Exec {
        self.access()?;
        self.inner.store_if(c, w, va, v)
    }
    fn prepare_store_if(&mut self, c: Bool<Self>, va: Bv<Self>, bytes: u64) -> Exec {
        // All of them before the first store: only that one may end the preparations.
        self.left = self.left.checked_sub(1).ok_or(Trap::Page)?;
        self.inner.prepare_store_if(c, va, bytes)?;
        self.prepared = true;
        Ok(())
    }
    fn prepare_store(&mut self, va: Bv<Self>, bytes: u64) -> Exec {
        self.access()?;
        self.inner.prepare_store(va, bytes)?;
        self.prepared = true;
        Ok(())
    }
    fn trap_if(&mut self, c: Bool<Self>, t: Trap) -> Exec {
        self.inner.trap_if(c, t)
    }
}
