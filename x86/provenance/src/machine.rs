//! The state of one instruction: registers and memory as they were before it, until it writes them.

use crate::byte::Byte;
use crate::instruction::{Before, Trapped};
use crate::origin::Id;
use crate::values::{Truth, Value, Values};
use std::cell::RefCell;
use std::collections::BTreeMap;
use x86::domain::{Bin, Domain};
use x86::flags::{ARITHMETIC, Flag, Flags};
use x86::machine::{Control, Exec, Machine, Trap};
use x86::op::{Gpr, Segment};
use x86::state::{Fpu, RFLAGS_DF, Regs};

/// What was written: the byte's value, and what it is made of.
pub(crate) type Written = BTreeMap<Byte, (u8, Id)>;

/// The machine.
pub(crate) struct Tracer<'a> {
    pub(crate) values: Values,
    before: Before<'a>,
    regs: Regs,
    fpu: Fpu,
    flags: Flags<Value, Truth>,
    flags_written: bool,
    /// What was written, but for the arithmetic flags.
    written: Written,
    /// Why it could not go on.
    pub(crate) trapped: RefCell<Option<Trapped>>,
}

impl<'a> Tracer<'a> {
    pub(crate) fn new(before: Before<'a>) -> Tracer<'a> {
        let values = Values::new();
        let flag = |(n, flag): (usize, Flag)| Truth {
            holds: before.regs.rflags >> flag.bit() & 1 == 1,
            from: values.origins.copy(Byte::Flag(u8::try_from(n).unwrap_or(0))),
        };
        let mut bits = [values.bool(false); 6];
        for (bit, of) in bits.iter_mut().zip(Flag::ALL.into_iter().enumerate()) {
            *bit = flag(of);
        }
        let flags = Flags::from_bits(&values, bits);
        Tracer {
            values,
            regs: *before.regs,
            fpu: *before.fpu,
            before,
            flags,
            flags_written: false,
            written: Written::new(),
            trapped: RefCell::new(None),
        }
    }

    /// All that was written. `because`: what chose how often it was.
    pub(crate) fn finish(mut self, because: Id) -> (Values, Written) {
        if self.flags_written {
            let bits = self.flags.bits(&self.values);
            for (n, bit) in (0..).zip(bits) {
                self.written.insert(Byte::Flag(n), (u8::from(bit.holds), bit.from));
            }
        }
        for (_, id) in self.written.values_mut() {
            *id = self.values.origins.chosen(*id, because);
        }
        (self.values, self.written)
    }

    /// What a register or memory holds, and what each of its bytes is made of by now.
    fn read(&self, bits: u64, byte: impl Fn(u8) -> Byte, len: u8) -> Value {
        let mut value = Value::constant(bits);
        for n in 0..len {
            value.from[usize::from(n)] = match self.written.get(&byte(n)) {
                Some((_, id)) => *id,
                None => self.values.origins.copy(byte(n)),
            };
        }
        value
    }

    fn write(&mut self, value: Value, byte: impl Fn(u8) -> Byte, len: u8) {
        for (n, (bits, id)) in (0..len).zip(value.bits.to_le_bytes().into_iter().zip(value.from)) {
            self.written.insert(byte(n), (bits, id));
        }
    }

    /// Bytes of memory as they are by now.
    fn bytes(&self, address: u64, bytes: &mut [u8]) -> bool {
        let there = self.before.memory.read(address, bytes);
        for (n, byte) in (0..).zip(bytes.iter_mut()) {
            if let Some((now, _)) = self.written.get(&Byte::Memory(address.wrapping_add(n))) {
                *byte = *now;
            }
        }
        there
    }

    fn fail(&self, trap: Trap, address: Option<u64>, from: impl IntoIterator<Item = Id>) -> Trap {
        let origins = &self.values.origins;
        let origin = (*origins.get(origins.made(from))).clone();
        *self.trapped.borrow_mut() = Some(Trapped { trap, address, origin });
        trap
    }

    /// A number that is there because of a condition.
    fn chosen(&self, c: Truth, w: u32, v: Value) -> Value {
        let mut from = v.from;
        for id in &mut from[..(w / 8) as usize] {
            *id = self.values.origins.chosen(*id, c.from);
        }
        Value { from, ..v }
    }

    fn check(&self, va: Value, len: u64, stores: bool) -> Exec {
        let address = va.bits;
        let is_canonical = |va: u64| (va << 16).cast_signed() >> 16 == va.cast_signed();
        if !is_canonical(address) || !is_canonical(address.wrapping_add(len - 1)) {
            return Err(self.fail(Trap::General, Some(address), va.from));
        }
        for at in [address, address.wrapping_add(len - 1)] {
            let fails = match stores {
                true => !self.before.memory.may_write(at),
                false => !self.before.memory.read(at, &mut [0]),
            };
            if fails {
                return Err(self.fail(Trap::Page, Some(at), va.from));
            }
        }
        Ok(())
    }
}

fn base(segment: Segment) -> Option<u8> {
    match segment {
        Segment::Flat => None,
        Segment::Fs => Some(0),
        Segment::Gs => Some(1),
    }
}

impl Machine for Tracer<'_> {
    type D = Values;

    fn d(&self) -> &Values {
        &self.values
    }
    fn reg(&self, r: Gpr) -> Value {
        self.read(self.regs.gpr[usize::from(r.0 & 15)], |n| Byte::General(r.0 & 15, n), 8)
    }
    fn set_reg(&mut self, r: Gpr, v: Value) {
        self.regs.gpr[usize::from(r.0 & 15)] = v.bits;
        self.write(v, |n| Byte::General(r.0 & 15, n), 8);
    }
    fn flags(&self) -> Flags<Value, Truth> {
        self.flags
    }
    fn set_flags(&mut self, f: Flags<Value, Truth>) {
        self.flags = f;
        self.flags_written = true;
    }
    fn set_flags_if(&mut self, c: Truth, f: Flags<Value, Truth>) {
        let (new, old) = (f.bits(&self.values), self.flags.bits(&self.values));
        let mut bits = new;
        for (bit, (new, old)) in bits.iter_mut().zip(new.into_iter().zip(old)) {
            *bit = self.values.ite_bool(c, new, old);
        }
        self.flags = Flags::from_bits(&self.values, bits);
        self.flags_written = true;
    }
    fn direction(&self) -> Truth {
        let bit = self.read(u64::from(self.regs.rflags & RFLAGS_DF != 0), |_| Byte::Direction, 1);
        Truth { holds: bit.bits == 1, from: bit.from[0] }
    }
    fn set_direction(&mut self, down: Truth) {
        let rest = self.regs.rflags & !RFLAGS_DF;
        self.regs.rflags = if down.holds { rest | RFLAGS_DF } else { rest };
        self.written.insert(Byte::Direction, (u8::from(down.holds), down.from));
    }
    fn system_flags(&self) -> Value {
        self.read(self.regs.rflags & !(ARITHMETIC | RFLAGS_DF), Byte::System, 8)
    }
    fn set_system_flags(&mut self, v: Value) {
        self.regs.rflags = v.bits & !(ARITHMETIC | RFLAGS_DF) | self.regs.rflags & (ARITHMETIC | RFLAGS_DF);
        self.write(v, Byte::System, 8);
    }
    fn segment_base(&self, s: Segment) -> Value {
        match base(s) {
            None => Value::constant(0),
            Some(n) => {
                let bits = if n == 0 { self.regs.fs_base } else { self.regs.gs_base };
                self.read(bits, |byte| Byte::Base(n, byte), 8)
            }
        }
    }
    fn set_segment_base(&mut self, s: Segment, value: Value) {
        let Some(n) = base(s) else { return };
        *(if n == 0 { &mut self.regs.fs_base } else { &mut self.regs.gs_base }) = value.bits;
        self.write(value, |byte| Byte::Base(n, byte), 8);
    }
    fn vector(&self, n: u8, part: u8) -> Value {
        let bits = self.fpu.vector[usize::from(n & 31)][usize::from(part & 7)];
        self.read(bits, |byte| Byte::Vector(n & 31, (part & 7) * 8 + byte), 8)
    }
    fn set_vector(&mut self, n: u8, part: u8, v: Value) {
        self.fpu.vector[usize::from(n & 31)][usize::from(part & 7)] = v.bits;
        self.write(v, |byte| Byte::Vector(n & 31, (part & 7) * 8 + byte), 8);
    }
    fn opmask(&self, n: u8) -> Value {
        self.read(self.fpu.opmask[usize::from(n & 7)], |byte| Byte::Mask(n & 7, byte), 8)
    }
    fn set_opmask(&mut self, n: u8, v: Value) {
        self.fpu.opmask[usize::from(n & 7)] = v.bits;
        self.write(v, |byte| Byte::Mask(n & 7, byte), 8);
    }
    fn x87(&self, n: u8) -> (Value, Value) {
        let (significand, sign_exponent) = self.fpu.st[usize::from(n & 7)];
        let significand = self.read(significand, |byte| Byte::X87(n & 7, byte), 8);
        (significand, self.read(sign_exponent.into(), |byte| Byte::X87(n & 7, 8 + byte), 2))
    }
    fn set_x87(&mut self, n: u8, significand: Value, sign_exponent: Value) {
        self.fpu.st[usize::from(n & 7)] = (significand.bits, low16(sign_exponent.bits));
        self.write(significand, |byte| Byte::X87(n & 7, byte), 8);
        self.write(sign_exponent, |byte| Byte::X87(n & 7, 8 + byte), 2);
    }
    fn x87_top(&self) -> u8 {
        (self.fpu.status >> 11 & 7).to_le_bytes()[0]
    }
    fn set_x87_top(&mut self, top: u8) {
        self.fpu.status = self.fpu.status & !(7 << 11) | u16::from(top & 7) << 11;
    }
    fn control(&self, c: Control) -> Value {
        let (bits, n, len) = match c {
            Control::Mxcsr => (u64::from(self.fpu.mxcsr), 0, 4),
            Control::X87Control => (u64::from(self.fpu.control), 1, 2),
            Control::X87Status => (u64::from(self.fpu.status), 2, 2),
            Control::X87Tag => (u64::from(self.fpu.tag), 3, 1),
        };
        self.read(bits, |byte| Byte::Control(n, byte), len)
    }
    fn set_control(&mut self, c: Control, v: Value) {
        let (n, len) = match c {
            Control::Mxcsr => {
                self.fpu.mxcsr = u32::from(low16(v.bits)) | u32::from(low16(v.bits >> 16)) << 16;
                (0, 4)
            }
            Control::X87Control => {
                self.fpu.control = low16(v.bits);
                (1, 2)
            }
            Control::X87Status => {
                self.fpu.status = low16(v.bits);
                (2, 2)
            }
            Control::X87Tag => {
                self.fpu.tag = v.bits.to_le_bytes()[0];
                (3, 1)
            }
        };
        self.write(v, |byte| Byte::Control(n, byte), len);
    }
    fn load(&mut self, w: u32, va: Value) -> Exec<Value> {
        let len = u8::try_from(w / 8).unwrap_or(8).min(8);
        self.check(va, len.into(), false)?;
        let mut bytes = [0; 8];
        self.bytes(va.bits, &mut bytes[..usize::from(len)]);
        let mut value = Value::constant(u64::from_le_bytes(bytes));
        for n in 0..len {
            let byte = Byte::Memory(va.bits.wrapping_add(n.into()));
            value.from[usize::from(n)] = match self.written.get(&byte) {
                Some((_, id)) => *id,
                None => self.values.origins.loaded(byte, &va.from),
            };
        }
        Ok(value)
    }
    fn store(&mut self, w: u32, va: Value, v: Value) -> Exec {
        let len = u8::try_from(w / 8).unwrap_or(8).min(8);
        self.check(va, len.into(), true)?;
        let v = Value { from: v.from.map(|id| self.values.origins.led(id, &va.from)), ..v };
        self.write(v, |n| Byte::Memory(va.bits.wrapping_add(n.into())), len);
        Ok(())
    }
    fn store_parts(&mut self, va: Value, parts: &[Value]) -> Exec {
        self.check(va, parts.len() as u64 * 8, true)?;
        for (at, part) in (0..).step_by(8).zip(parts) {
            let to = self.values.bin(Bin::Add, 64, va, Value::constant(at));
            self.store(64, to, *part)?;
        }
        Ok(())
    }
    fn load_if(&mut self, c: Truth, w: u32, va: Value) -> Exec<Value> {
        let loaded = if c.holds { self.load(w, va)? } else { Value::constant(0) };
        Ok(self.chosen(c, w, loaded))
    }
    fn store_if(&mut self, c: Truth, w: u32, va: Value, v: Value) -> Exec {
        if c.holds { self.store(w, va, self.chosen(c, w, v)) } else { Ok(()) }
    }
    fn prepare_store_if(&mut self, c: Truth, va: Value, bytes: u64) -> Exec {
        if c.holds { self.prepare_store(va, bytes) } else { Ok(()) }
    }
    fn prepare_store(&mut self, va: Value, bytes: u64) -> Exec {
        self.check(va, bytes, true)
    }
    fn trap_if(&mut self, c: Truth, t: Trap) -> Exec {
        if c.holds { Err(self.fail(t, None, [c.from])) } else { Ok(()) }
    }
}

/// The low 16 bits.
fn low16(v: u64) -> u16 {
    let [a, b, ..] = v.to_le_bytes();
    u16::from_le_bytes([a, b])
}
