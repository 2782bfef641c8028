//! The software CPU as its hot forms see it: the memory of this machine is what the caches of translations hold.
//!
//! An access to anything else is an error, whatever becomes of it in the end, and the instruction runs again on the
//! [`Cpu`] itself ([`crate::step`]). So nothing here is a slow path, or calls one.

use crate::bus::{Bus, PAGE_SIZE};
use crate::concrete::Concrete;
use crate::cpu::{Cpu, get_bytes, index, put_bytes};
use crate::flags::Flags;
use crate::machine::{Control, Exec, Machine, Trap};
use crate::op::{Gpr, Segment};
use crate::tlb::Tlb;

/// A [`Cpu`] for accesses within a page whose translation is cached.
pub(crate) struct Quick<'c, B> {
    pub(crate) cpu: &'c mut Cpu<B>,
}

/// The access needs the CPU itself.
const ELSEWHERE: Trap = Trap::Page;

/// Bytes in a page.
const PAGE: usize = index(PAGE_SIZE);

/// Loads `w` bits of one page that `tlb` knows.
#[inline(always)]
fn load(tlb: &Tlb, ram: &[u8], w: u32, va: u64) -> Option<u64> {
    let pages: &[[u8; PAGE]] = ram.as_chunks().0;
    let (page, at) = (pages.get(index(tlb.frame(va)?))?, index(va % PAGE_SIZE));
    page.get(at..at + index(u64::from(w / 8))).map(get_bytes)
}

/// Stores `w` bits to one page, which is in `frame`.
#[inline(always)]
fn store(frame: Option<u64>, ram: &mut [u8], w: u32, va: u64, v: u64) -> Option<()> {
    let pages: &mut [[u8; PAGE]] = ram.as_chunks_mut().0;
    let (page, at) = (pages.get_mut(index(frame?))?, index(va % PAGE_SIZE));
    page.get_mut(at..at + index(u64::from(w / 8))).map(|to| put_bytes(to, v))
}

impl<B: Bus> Machine for Quick<'_, B> {
    type D = Concrete;

    #[inline(always)]
    fn d(&self) -> &Concrete {
        &Concrete
    }
    #[inline(always)]
    fn reg(&self, r: Gpr) -> u64 {
        self.cpu.reg(r)
    }
    #[inline(always)]
    fn set_reg(&mut self, r: Gpr, v: u64) {
        self.cpu.set_reg(r, v);
    }
    #[inline(always)]
    fn flags(&self) -> Flags<u64, bool> {
        self.cpu.flags()
    }
    #[inline(always)]
    fn set_flags(&mut self, f: Flags<u64, bool>) {
        self.cpu.set_flags(f);
    }
    #[inline(always)]
    fn set_flags_if(&mut self, c: bool, f: Flags<u64, bool>) {
        self.cpu.set_flags_if(c, f);
    }
    fn direction(&self) -> bool {
        self.cpu.direction()
    }
    fn set_direction(&mut self, down: bool) {
        self.cpu.set_direction(down);
    }
    fn system_flags(&self) -> u64 {
        self.cpu.system_flags()
    }
    fn set_system_flags(&mut self, v: u64) {
        self.cpu.set_system_flags(v);
    }
    #[inline(always)]
    fn segment_base(&self, s: Segment) -> u64 {
        self.cpu.segment_base(s)
    }
    fn set_segment_base(&mut self, s: Segment, base: u64) {
        self.cpu.set_segment_base(s, base);
    }
    fn vector(&self, n: u8, part: u8) -> u64 {
        self.cpu.vector(n, part)
    }
    fn set_vector(&mut self, n: u8, part: u8, v: u64) {
        self.cpu.set_vector(n, part, v);
    }
    fn opmask(&self, n: u8) -> u64 {
        self.cpu.opmask(n)
    }
    fn set_opmask(&mut self, n: u8, v: u64) {
        self.cpu.set_opmask(n, v);
    }
    fn x87(&self, n: u8) -> (u64, u64) {
        self.cpu.x87(n)
    }
    fn set_x87(&mut self, n: u8, significand: u64, sign_exponent: u64) {
        self.cpu.set_x87(n, significand, sign_exponent);
    }
    fn x87_top(&self) -> u8 {
        self.cpu.x87_top()
    }
    fn set_x87_top(&mut self, top: u8) {
        self.cpu.set_x87_top(top);
    }
    fn control(&self, c: Control) -> u64 {
        self.cpu.control(c)
    }
    fn set_control(&mut self, c: Control, v: u64) {
        self.cpu.set_control(c, v);
    }
    #[inline(always)]
    fn load(&mut self, w: u32, va: u64) -> Exec<u64> {
        load(&self.cpu.reads, self.cpu.bus().ram(), w, va).ok_or(ELSEWHERE)
    }
    #[inline(always)]
    fn load_for_update(&mut self, w: u32, va: u64) -> Exec<u64> {
        load(&self.cpu.writes, self.cpu.bus().ram(), w, va).ok_or(ELSEWHERE)
    }
    #[inline(always)]
    fn store(&mut self, w: u32, va: u64, v: u64) -> Exec {
        let frame = self.cpu.writes.frame(va);
        store(frame, self.cpu.bus_mut().ram_mut(), w, va, v).ok_or(ELSEWHERE)
    }
    fn store_parts(&mut self, _va: u64, _parts: &[u64]) -> Exec {
        Err(ELSEWHERE)
    }
    fn load_if(&mut self, c: bool, w: u32, va: u64) -> Exec<u64> {
        if c { self.load(w, va) } else { Ok(0) }
    }
    fn store_if(&mut self, c: bool, w: u32, va: u64, v: u64) -> Exec {
        if c { self.store(w, va, v) } else { Ok(()) }
    }
    fn prepare_store_if(&mut self, _c: bool, _va: u64, _bytes: u64) -> Exec {
        Err(ELSEWHERE)
    }
    fn prepare_store(&mut self, _va: u64, _bytes: u64) -> Exec {
        Err(ELSEWHERE)
    }
    #[inline(always)]
    fn trap_if(&mut self, c: bool, t: Trap) -> Exec {
        if c { Err(t) } else { Ok(()) }
    }
}
