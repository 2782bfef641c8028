//! Floating point in compiled code: the host's own instructions, where MXCSR has its default modes.
//!
//! What they raise stays in the host's MXCSR, where exceptions are sticky as the guest's are; [`crate::native`] gives them to the
//! guest when the code is left, and before and after what is called out of it. So nothing has to find out whether a result is exact.
//! That holds as long as what is computed is computed just when its instruction runs and never dropped: each operation has a
//! condition that uses its result, and by which the code is left before the instruction ([`Clif::leave_by`]).
//!
//! The conditions are those cases in which Cranelift's instruction is not the guest's: a NaN, whose bits depend on the order of the
//! operands, and integers out of range. The interpreter then raises the same exceptions again.
//!
//! Only the default modes have code: rounding to nearest, all exceptions masked, denormals as they are. A run that computes with
//! floats asks for them once ([`crate::translator`]).

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::immediates::{Ieee32, Ieee64};
use cranelift_codegen::ir::{InstBuilder, Type, Value, types};
use x86::domain::{Bin, Domain, Opaque};
use x86::opaque::{Arithmetic, Format};

use crate::clif::{Bool, Bv, Clif, Two, Written, mask, type_of as integer_of};

/// MXCSR with its default modes and no exception raised (Intel SDM vol. 1, 10.2.3).
pub(crate) const DEFAULT_MXCSR: u64 = 0x1f80;
/// What truncates: RC is toward zero.
const TRUNCATING: u64 = DEFAULT_MXCSR | 0x6000;

fn type_of(format: Format) -> Option<Type> {
    match format {
        Format::Half => None,
        Format::Single => Some(types::F32),
        Format::Double => Some(types::F64),
    }
}

impl Clif<'_> {
    /// The result of an operation on floats; `None` where there is no code for it.
    pub(crate) fn float_operation(&self, op: &Opaque, args: &[Bv]) -> Option<Bv> {
        match (op, args) {
            (Opaque::Sse(op, format), [a, b, Bv::Known(DEFAULT_MXCSR)]) => {
                self.float_arithmetic(*op, *format, *a, *b)
            }
            (Opaque::SseCompare { format, .. }, [a, b, Bv::Known(DEFAULT_MXCSR)]) => {
                let (a, b) = (self.float(*format, *a)?, self.float(*format, *b)?);
                self.leave_by(self.float_compare(FloatCC::Unordered, a, b));
                let [less, equal] =
                    [FloatCC::LessThan, FloatCC::Equal].map(|by| Bool::Value(self.float_compare(by, a, b)));
                Some(self.relation([less, equal, Bool::Known(false)]))
            }
            (Opaque::SseConvert { from, to }, [a, Bv::Known(DEFAULT_MXCSR)]) => {
                let (a, t) = (self.float(*from, *a)?, type_of(*to)?);
                let v = match (from, to) {
                    (Format::Single, Format::Double) => self.builder.borrow_mut().ins().fpromote(t, a),
                    (Format::Double, Format::Single) => self.builder.borrow_mut().ins().fdemote(t, a),
                    _ => return None,
                };
                Some(self.number(*to, v))
            }
            (Opaque::SseFromInteger { bits, signed: true, to }, [a, Bv::Known(DEFAULT_MXCSR)]) => {
                let (a, t) = (self.value(*bits, *a), type_of(*to)?);
                let v = self.builder.borrow_mut().ins().fcvt_from_sint(t, a);
                Some(self.number(*to, v))
            }
            (Opaque::SseToInteger { from, bits, signed: true }, [a, Bv::Known(TRUNCATING)]) => {
                self.truncated(*from, *bits, *a)
            }
            _ => None,
        }
    }

    fn float_arithmetic(&self, op: Arithmetic, format: Format, a: Bv, b: Bv) -> Option<Bv> {
        let (x, y) = (self.float(format, a)?, self.float(format, b)?);
        if let Arithmetic::Min | Arithmetic::Max = op {
            // Neither is a NaN: the second stands for all that is not strictly ordered.
            self.leave_by(self.float_compare(FloatCC::Unordered, x, y));
            let by = if op == Arithmetic::Min { FloatCC::LessThan } else { FloatCC::GreaterThan };
            let is_first = self.float_compare(by, x, y);
            let w = format.width();
            return Some(Bv::Value(self.choose_value(is_first, self.value(w, a), self.value(w, b))));
        }
        let v = {
            let mut builder = self.builder.borrow_mut();
            let i = builder.ins();
            match op {
                Arithmetic::Add => i.fadd(x, y),
                Arithmetic::Sub => i.fsub(x, y),
                Arithmetic::Mul => i.fmul(x, y),
                Arithmetic::Div => i.fdiv(x, y),
                _ => i.sqrt(y),
            }
        };
        Some(self.number(format, v))
    }

    /// The bits of a result; the code is left if it is a NaN. Not by a comparison of floats, which would raise DENORMAL.
    fn number(&self, format: Format, v: Value) -> Bv {
        let (w, infinity) = match format {
            Format::Double => (64, 0x7ff0_0000_0000_0000),
            _ => (32, 0x7f80_0000),
        };
        let bits = self.cast(integer_of(w), v);
        self.floats.borrow_mut().insert(bits, v);
        let magnitude = self.two_known(Two::Shl, w, bits, 1);
        self.leave_by(self.compare(IntCC::UnsignedGreaterThan, magnitude, self.constant(w, infinity << 1)));
        Bv::Value(bits)
    }

    /// Truncated to a signed integer of `bits` bits.
    fn truncated(&self, format: Format, bits: u32, a: Bv) -> Option<Bv> {
        let x = self.float(format, a)?;
        let w = format.width();
        let (fraction_bits, bias) = match format {
            Format::Double => (52, 1023),
            _ => (23, 127),
        };
        let exponent = self.two_known(Two::Shr, w, self.value(w, a), fraction_bits);
        let exponent = self.two_known(Two::And, w, exponent, mask(w - 1) >> fraction_bits);
        let limit = self.constant(w, bias + u64::from(bits) - 1);
        self.leave_by(self.compare(IntCC::UnsignedGreaterThanOrEqual, exponent, limit));
        let v = self.builder.borrow_mut().ins().fcvt_to_sint_sat(integer_of(bits), x);
        // Never so, but it has the conversion happen here.
        self.leave_by(self.compare(IntCC::Equal, v, self.constant(bits, 1 << (bits - 1))));
        Some(Bv::Value(v))
    }

    /// Bits as a float.
    fn float(&self, format: Format, bits: Bv) -> Option<Value> {
        let t = type_of(format)?;
        let bits = match (bits, format) {
            (Bv::Known(bits), Format::Double) => {
                return Some(self.builder.borrow_mut().ins().f64const(Ieee64::with_bits(bits)));
            }
            (Bv::Known(bits), _) => {
                let bits = u32::try_from(bits).expect("a single has 32 bits");
                return Some(self.builder.borrow_mut().ins().f32const(Ieee32::with_bits(bits)));
            }
            (Bv::Value(bits), _) => bits,
        };
        if let Some(float) = self.known_float(bits) {
            return Some(float);
        }
        if let Some((vector, n)) = self.origin(format.width(), bits) {
            let lanes = self.cast(t.by(128 / format.width()).expect("a vector of floats"), vector);
            let n = u8::try_from(n).expect("a vector has few lanes");
            return Some(self.once(Written::Lane(lanes, n), |builder| builder.ins().extractlane(lanes, n)));
        }
        Some(self.cast(t, bits))
    }

    /// The float that these are the bits of, if it was computed as one.
    pub(crate) fn known_float(&self, bits: Value) -> Option<Value> {
        self.floats.borrow().get(&bits).copied()
    }

    fn float_compare(&self, by: FloatCC, a: Value, b: Value) -> Value {
        self.once(Written::FloatCompare(by, a, b), |builder| builder.ins().fcmp(by, a, b))
    }

    /// The relation of two numbers as [`Opaque::SseCompare`] has it: less, equal, unordered, a bit each.
    pub(crate) fn relation(&self, bits: [Bool; 3]) -> Bv {
        let bit = |n: usize| self.bin(Bin::Shl, 3, self.from_bool(3, bits[n]), Bv::Known(n as u64));
        let all = [1, 2].into_iter().fold(bit(0), |all, n| self.bin(Bin::Or, 3, all, bit(n)));
        if let Bv::Value(all) = all {
            self.relations.borrow_mut().insert(all, bits);
        }
        all
    }

    /// What a number was made of by [`Clif::relation`].
    pub(crate) fn related(&self, v: Bv) -> Option<[Bool; 3]> {
        match v {
            Bv::Value(v) => self.relations.borrow().get(&v).copied(),
            Bv::Known(_) => None,
        }
    }
}
