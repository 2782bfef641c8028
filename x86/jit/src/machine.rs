//! The machine that the semantics runs on when it is compiled. Accesses and traps leave code behind; what it has no code for
//! is marked ([`Clif::is_lacking`]), and the instruction is then the interpreter's.

use cranelift_codegen::ir::{InstBuilder, types};
use x86::domain::Domain;
use x86::flags::Flags;
use x86::machine::{Control, Exec, Machine, Trap};
use x86::op::{Gpr, Segment};

use crate::block::Block;
use crate::clif::{Bool, Bv, Clif, guest, own, type_of};
use crate::context::at;
use crate::floats::DEFAULT_MXCSR;
use crate::memory::Spot;
use crate::translator::Translator;

impl Translator<'_> {
    fn lacking<T>(&self, instead: T) -> T {
        self.d.is_lacking.set(true);
        instead
    }
}

/// The bytes of `parts` of 64 bits.
fn bytes(parts: usize) -> u32 {
    u32::try_from(8 * parts).expect("at most eight parts")
}

impl<'a> Machine for Translator<'a> {
    type D = Clif<'a>;

    fn d(&self) -> &Clif<'a> {
        &self.d
    }

    fn reg(&self, r: Gpr) -> Bv {
        let n = usize::from(r.0 & 15);
        let mut state = self.state.borrow_mut();
        *state.registers[n].get_or_insert_with(|| {
            let offset = i32::from(r.0 & 15) * 8;
            Bv::Value(self.d.builder.borrow_mut().ins().load(types::I64, own(), self.gpr, offset))
        })
    }

    fn set_reg(&mut self, r: Gpr, v: Bv) {
        let n = usize::from(r.0 & 15);
        let state = self.state.get_mut();
        state.registers[n] = Some(v);
        state.changed |= 1 << n;
    }

    fn flags(&self) -> Flags<Bv, Bool> {
        let stored = || Flags::from_bits(&self.d, [0, 1, 2, 3, 4, 5].map(Bool::Stored));
        self.state.borrow().flags.unwrap_or_else(stored)
    }

    fn set_flags(&mut self, f: Flags<Bv, Bool>) {
        self.state.get_mut().flags = Some(f);
    }

    fn set_flags_if(&mut self, c: Bool, f: Flags<Bv, Bool>) {
        match c {
            Bool::Known(false) => {}
            Bool::Known(true) => self.set_flags(f),
            _ => {
                let (old, new) = (self.flags().bits(&self.d), f.bits(&self.d));
                let bits = std::array::from_fn(|n| self.d.ite_bool(c, new[n], old[n]));
                self.set_flags(Flags::from_bits(&self.d, bits));
            }
        }
    }

    fn direction(&self) -> Bool {
        self.lacking(Bool::Known(false))
    }

    fn set_direction(&mut self, _down: Bool) {
        self.lacking(());
    }

    fn system_flags(&self) -> Bv {
        self.lacking(Bv::Known(0))
    }

    fn set_system_flags(&mut self, _v: Bv) {
        self.lacking(());
    }

    fn segment_base(&self, s: Segment) -> Bv {
        match s {
            Segment::Flat => Bv::Known(0),
            Segment::Fs => Bv::Value(self.d.load_context(types::I64, at!(bases))),
            Segment::Gs => Bv::Value(self.d.load_context(types::I64, at!(bases) + 8)),
        }
    }

    fn set_segment_base(&mut self, _s: Segment, _base: Bv) {
        self.lacking(());
    }

    fn vector(&self, n: u8, part: u8) -> Bv {
        if part < 2 { self.half_of_vector(n, part) } else { self.lacking(Bv::Known(0)) }
    }

    fn set_vector(&mut self, n: u8, part: u8, v: Bv) {
        if part < 2 {
            self.set_half_of_vector(n, part, v);
        } else {
            self.lacking(());
        }
    }

    fn packed(&self, n: u8, block: u8) -> Block {
        if block == 0 { self.whole_vector(n) } else { self.lacking(Block::Halves([Bv::Known(0); 2])) }
    }

    fn set_packed(&mut self, n: u8, block: u8, v: Block) {
        if block == 0 {
            self.set_whole_vector(n, v);
        } else {
            self.lacking(());
        }
    }

    fn opmask(&self, _n: u8) -> Bv {
        self.lacking(Bv::Known(0))
    }

    fn set_opmask(&mut self, _n: u8, _v: Bv) {
        self.lacking(());
    }

    fn x87(&self, _n: u8) -> (Bv, Bv) {
        self.lacking((Bv::Known(0), Bv::Known(0)))
    }

    fn set_x87(&mut self, _n: u8, _significand: Bv, _sign_exponent: Bv) {
        self.lacking(());
    }

    fn x87_top(&self) -> u8 {
        self.lacking(0)
    }

    fn set_x87_top(&mut self, _top: u8) {
        self.lacking(());
    }

    /// MXCSR where a run has asked for its default modes; the exceptions raised are in the host's ([`crate::floats`]).
    fn control(&self, c: Control) -> Bv {
        match c {
            Control::Mxcsr if self.has_default_modes => Bv::Known(DEFAULT_MXCSR),
            _ => self.lacking(Bv::Known(0)),
        }
    }

    fn set_control(&mut self, c: Control, v: Bv) {
        if (c, v, self.has_default_modes) != (Control::Mxcsr, Bv::Known(DEFAULT_MXCSR), true) {
            self.lacking(());
        }
    }

    fn load(&mut self, w: u32, va: Bv) -> Exec<Bv> {
        let Spot { address, offset } = self.host(va, w / 8, false);
        Ok(Bv::Value(self.d.builder.borrow_mut().ins().load(type_of(w), guest(), address, offset)))
    }

    fn load_for_update(&mut self, w: u32, va: Bv) -> Exec<Bv> {
        let Spot { address, offset } = self.host(va, w / 8, true);
        Ok(Bv::Value(self.d.builder.borrow_mut().ins().load(type_of(w), guest(), address, offset)))
    }

    fn load_packed<const N: usize>(&mut self, va: Bv, blocks: &mut [Block; N]) -> Exec {
        let Spot { address, offset } = self.host(va, bytes(2 * N), false);
        for (at, block) in (0..).step_by(16).zip(blocks) {
            let mut builder = self.d.builder.borrow_mut();
            *block = Block::Whole(builder.ins().load(types::I8X16, guest(), address, offset + at));
        }
        Ok(())
    }

    fn store_packed<const N: usize>(&mut self, va: Bv, blocks: &[Block; N]) -> Exec {
        let Spot { address, offset } = self.host(va, bytes(2 * N), true);
        for (at, block) in (0..).step_by(16).zip(blocks) {
            let v = self.d.whole(*block);
            self.d.builder.borrow_mut().ins().store(guest(), v, address, offset + at);
        }
        self.has_stored = true;
        Ok(())
    }

    fn store(&mut self, w: u32, va: Bv, v: Bv) -> Exec {
        let Spot { address, offset } = self.host(va, w / 8, true);
        let v = self.d.value(w, v);
        self.d.builder.borrow_mut().ins().store(guest(), v, address, offset);
        self.has_stored = true;
        Ok(())
    }

    fn store_parts(&mut self, va: Bv, parts: &[Bv]) -> Exec {
        let Spot { address, offset } = self.host(va, bytes(parts.len()), true);
        for (n, part) in (0..).step_by(8).zip(parts) {
            let v = self.d.value(64, *part);
            self.d.builder.borrow_mut().ins().store(guest(), v, address, offset + n);
        }
        self.has_stored = true;
        Ok(())
    }

    fn load_if(&mut self, c: Bool, w: u32, va: Bv) -> Exec<Bv> {
        match c {
            Bool::Known(true) => self.load(w, va),
            Bool::Known(false) => Ok(Bv::Known(0)),
            _ => Ok(self.lacking(Bv::Known(0))),
        }
    }

    fn store_if(&mut self, c: Bool, w: u32, va: Bv, v: Bv) -> Exec {
        match c {
            Bool::Known(true) => self.store(w, va, v),
            Bool::Known(false) => Ok(()),
            _ => self.lacking(Ok(())),
        }
    }

    fn prepare_store_if(&mut self, c: Bool, va: Bv, bytes: u64) -> Exec {
        match c {
            Bool::Known(true) => self.prepare_store(va, bytes),
            Bool::Known(false) => Ok(()),
            _ => self.lacking(Ok(())),
        }
    }

    fn prepare_store(&mut self, va: Bv, bytes: u64) -> Exec {
        match u32::try_from(bytes) {
            Ok(bytes) => {
                self.host(va, bytes, true);
            }
            Err(_) => self.lacking(()),
        }
        Ok(())
    }

    fn trap_if(&mut self, c: Bool, trap: Trap) -> Exec {
        for c in self.d.take_leaves() {
            self.leave_if(c);
        }
        match c {
            Bool::Known(false) => {}
            // Nothing behind it is written: a float operation would raise exceptions, though nobody takes its result.
            Bool::Known(true) => return self.lacking(Err(trap)),
            _ => {
                let c = self.d.truth(c);
                self.leave_if(c);
            }
        }
        Ok(())
    }
}
