//! Cranelift's values, and its instructions as they are written for a run of guest code.
//!
//! Nothing is written twice where it holds ([`Clif::forget`]): the semantics asks for the same sum or comparison again and again.

use std::cell::{Cell, RefCell};

use cranelift_codegen::ir::condcodes::{CondCode, FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Type, Value, types};
use cranelift_frontend::FunctionBuilder;
use rustc_hash::FxHashMap;
use x86::domain::Bin;

use crate::context::at;

/// A bit-vector: known now, or known when the code runs. One of 8, 16, 32 or 64 bits is a value of that type, any other one a
/// value of 64 bits with zeros above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bv {
    Known(u64),
    Value(Value),
}

/// A truth value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bool {
    Known(bool),
    /// An i8 that is 0 or 1.
    Value(Value),
    /// A flag that lies in the context as a bit, by number; loaded only where it is used.
    Stored(u8),
}

/// An operation on two values of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Two {
    Add,
    Sub,
    And,
    Or,
    Xor,
    Mul,
    MulHighUnsigned,
    MulHighSigned,
    Shl,
    Shr,
    Sar,
    DivUnsigned,
    DivSigned,
    RemUnsigned,
    RemSigned,
    MinUnsigned,
}

/// A conversion to another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Convert {
    ZeroExtend,
    SignExtend,
    Reduce,
}

/// What an instruction computes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Written {
    Constant(Type, u64),
    Two(Two, Value, Value),
    Compare(IntCC, Value, Value),
    Select(Value, Value, Value),
    Convert(Convert, Type, Value),
    Stored(u8),
    /// The same bits as another type.
    Cast(Type, Value),
    /// A lane of a vector.
    Lane(Value, u8),
    /// A vector with a lane of another value.
    With(Value, Value, u8),
    /// 128 bits that are constants.
    Vector([u64; 2]),
    /// The signs of the lanes of a vector.
    Signs(Value),
    /// An operation on all lanes of two vectors.
    Lanes(Bin, Value, Value),
    FloatCompare(FloatCC, Value, Value),
    /// Where the vector registers are.
    Vectors,
}

/// The instructions of one function, while they are written.
pub(crate) struct Clif<'a> {
    pub(crate) builder: RefCell<FunctionBuilder<'a>>,
    /// The argument of the function, a [`crate::context::Context`].
    pub(crate) context: Value,
    /// What is written and holds here.
    written: RefCell<FxHashMap<Written, Value>>,
    /// Upper bounds of values, where one is known.
    bounds: RefCell<FxHashMap<Value, u64>>,
    /// Values of 64 bits that are another one and a constant; the other one is no such sum.
    sums: RefCell<FxHashMap<Value, (Value, i64)>>,
    /// Those that are constants.
    constants: RefCell<FxHashMap<Value, u64>>,
    /// What values of 64 bits were put together of: the low and the high 32 bits.
    pub(crate) words: RefCell<FxHashMap<Value, [Bv; 2]>>,
    /// Values that are lanes: of what vector, of what width, which.
    pub(crate) origins: RefCell<FxHashMap<Value, (Value, u32, u32)>>,
    /// The floats that values are the bits of.
    pub(crate) floats: RefCell<FxHashMap<Value, Value>>,
    /// What relations of floats are made of ([`crate::floats`]).
    pub(crate) relations: RefCell<FxHashMap<Value, [Bool; 3]>>,
    /// Conditions by which the code is to be left before this instruction.
    leaves_by: RefCell<Vec<Value>>,
    /// What comparisons compare.
    comparisons: RefCell<FxHashMap<Value, (IntCC, Value, Value)>>,
    /// Something was asked for that there is no code for.
    pub(crate) is_lacking: Cell<bool>,
    /// A flag was loaded from the context.
    pub(crate) has_loaded_flag: Cell<bool>,
}

/// Accesses to what is aligned and there: the context, registers, translations.
pub(crate) fn own() -> MemFlagsData {
    MemFlagsData::trusted()
}

/// Accesses to guest memory: there, but hardly aligned.
pub(crate) fn guest() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

pub(crate) const fn mask(w: u32) -> u64 {
    u64::MAX >> (64 - w)
}

/// The type of values of `w` bits.
pub(crate) const fn type_of(w: u32) -> Type {
    match w {
        8 => types::I8,
        16 => types::I16,
        32 => types::I32,
        _ => types::I64,
    }
}

/// Whether there is a type of `w` bits.
pub(crate) const fn has_type(w: u32) -> bool {
    matches!(w, 8 | 16 | 32 | 64)
}

impl<'a> Clif<'a> {
    pub(crate) fn new(builder: FunctionBuilder<'a>, context: Value) -> Clif<'a> {
        Clif {
            builder: RefCell::new(builder),
            context,
            written: RefCell::default(),
            bounds: RefCell::default(),
            sums: RefCell::default(),
            constants: RefCell::default(),
            words: RefCell::default(),
            origins: RefCell::default(),
            floats: RefCell::default(),
            relations: RefCell::default(),
            leaves_by: RefCell::default(),
            comparisons: RefCell::default(),
            is_lacking: Cell::new(false),
            has_loaded_flag: Cell::new(false),
        }
    }

    /// Begins a block that what was written so far does not lead to.
    pub(crate) fn forget(&self) {
        self.written.borrow_mut().clear();
    }

    /// Forgets which flags were loaded: others lie in the context now.
    pub(crate) fn forget_stored(&self) {
        self.written.borrow_mut().retain(|key, _| !matches!(key, Written::Stored(_)));
    }

    pub(crate) fn once(&self, key: Written, write: impl FnOnce(&mut FunctionBuilder<'a>) -> Value) -> Value {
        if let Some(v) = self.written.borrow().get(&key) {
            return *v;
        }
        let v = write(&mut self.builder.borrow_mut());
        self.written.borrow_mut().insert(key, v);
        v
    }

    pub(crate) fn constant(&self, w: u32, c: u64) -> Value {
        let t = type_of(w);
        let v = self.once(Written::Constant(t, c), |builder| builder.ins().iconst(t, c.cast_signed()));
        if t == types::I64 {
            self.constants.borrow_mut().insert(v, c);
        }
        v
    }

    /// A bit-vector of `w` bits as a value.
    pub(crate) fn value(&self, w: u32, v: Bv) -> Value {
        match v {
            Bv::Known(c) => self.constant(w, c),
            Bv::Value(v) => v,
        }
    }

    /// A truth value as a value.
    pub(crate) fn truth(&self, b: Bool) -> Value {
        match b {
            Bool::Known(c) => self.constant(8, u64::from(c)),
            Bool::Value(v) => v,
            Bool::Stored(n) => {
                self.has_loaded_flag.set(true);
                let offset = at!(flags.bits) + i32::from(n);
                self.once(Written::Stored(n), |b| b.ins().load(types::I8, own(), self.context, offset))
            }
        }
    }

    /// A value of 64 bits as one that is no sum with a constant, and what is added to that.
    pub(crate) fn parts_of(&self, v: Value) -> (Value, i64) {
        self.sums.borrow().get(&v).copied().unwrap_or((v, 0))
    }

    /// The sum of a value and a constant, of 64 bits: made of what the value is a sum of, so that equal sums are the same value.
    fn sum(&self, a: Value, by: i64) -> Value {
        let (base, before) = self.parts_of(a);
        let by = before.wrapping_add(by);
        if by == 0 {
            return base;
        }
        let constant = self.constant(64, by.cast_unsigned());
        let v = self.once(Written::Two(Two::Add, base, constant), |b| b.ins().iadd(base, constant));
        self.sums.borrow_mut().insert(v, (base, by));
        v
    }

    pub(crate) fn two(&self, op: Two, a: Value, b: Value) -> Value {
        let constant = |v: Value| self.constants.borrow().get(&v).map(|c| c.cast_signed());
        match op {
            Two::Add => match (constant(a), constant(b)) {
                (_, Some(by)) => return self.sum(a, by),
                (Some(by), None) => return self.sum(b, by),
                (None, None) => {}
            },
            Two::Sub => {
                if let Some(by) = constant(b) {
                    return self.sum(a, by.wrapping_neg());
                }
            }
            _ => {}
        }
        self.once(Written::Two(op, a, b), |builder| {
            let i = builder.ins();
            match op {
                Two::Add => i.iadd(a, b),
                Two::Sub => i.isub(a, b),
                Two::And => i.band(a, b),
                Two::Or => i.bor(a, b),
                Two::Xor => i.bxor(a, b),
                Two::Mul => i.imul(a, b),
                Two::MulHighUnsigned => i.umulhi(a, b),
                Two::MulHighSigned => i.smulhi(a, b),
                Two::Shl => i.ishl(a, b),
                Two::Shr => i.ushr(a, b),
                Two::Sar => i.sshr(a, b),
                Two::DivUnsigned => i.udiv(a, b),
                Two::DivSigned => i.sdiv(a, b),
                Two::RemUnsigned => i.urem(a, b),
                Two::RemSigned => i.srem(a, b),
                Two::MinUnsigned => i.umin(a, b),
            }
        })
    }

    /// The same with a constant of `w` bits.
    pub(crate) fn two_known(&self, op: Two, w: u32, a: Value, b: u64) -> Value {
        let b = self.constant(w, b);
        self.two(op, a, b)
    }

    pub(crate) fn compare(&self, by: IntCC, a: Value, b: Value) -> Value {
        let v = self.once(Written::Compare(by, a, b), |builder| builder.ins().icmp(by, a, b));
        self.comparisons.borrow_mut().insert(v, (by, a, b));
        v
    }

    /// The opposite of a truth value.
    pub(crate) fn opposite(&self, v: Value) -> Value {
        let comparison = self.comparisons.borrow().get(&v).copied();
        match comparison {
            Some((by, a, b)) => self.compare(by.complement(), a, b),
            None => self.two_known(Two::Xor, 8, v, 1),
        }
    }

    pub(crate) fn choose_value(&self, c: Value, a: Value, b: Value) -> Value {
        self.once(Written::Select(c, a, b), |builder| builder.ins().select(c, a, b))
    }

    pub(crate) fn convert(&self, how: Convert, to: Type, a: Value) -> Value {
        self.once(Written::Convert(how, to, a), |builder| match how {
            Convert::ZeroExtend => builder.ins().uextend(to, a),
            Convert::SignExtend => builder.ins().sextend(to, a),
            Convert::Reduce => builder.ins().ireduce(to, a),
        })
    }

    /// A value of `w` bits with zeros above, as 64.
    pub(crate) fn wide(&self, w: u32, a: Value) -> Value {
        if !has_type(w) || w == 64 {
            return a;
        }
        let wide = self.convert(Convert::ZeroExtend, types::I64, a);
        if let Some(bound) = self.bound(a) {
            self.set_bound(wide, bound);
        }
        wide
    }

    /// The same of a bit-vector.
    pub(crate) fn widened(&self, w: u32, a: Bv) -> Bv {
        match a {
            Bv::Known(_) => a,
            Bv::Value(v) => Bv::Value(self.wide(w, v)),
        }
    }

    /// A value of `w` bits with its sign above, as 64.
    pub(crate) fn wide_signed(&self, w: u32, a: Value) -> Value {
        match w {
            64 => a,
            8 | 16 | 32 => self.convert(Convert::SignExtend, types::I64, a),
            _ => {
                let up = self.two_known(Two::Shl, 64, a, u64::from(64 - w));
                self.two_known(Two::Sar, 64, up, u64::from(64 - w))
            }
        }
    }

    /// The low `w` bits of 64; `is_clean` where there are zeros above.
    pub(crate) fn narrow(&self, w: u32, a: Value, is_clean: bool) -> Value {
        match w {
            64 => a,
            8 | 16 | 32 => {
                let narrow = self.convert(Convert::Reduce, type_of(w), a);
                if let Some(bound) = self.bound(a).filter(|bound| *bound <= mask(w)) {
                    self.set_bound(narrow, bound);
                }
                narrow
            }
            _ if is_clean => a,
            _ => self.two_known(Two::And, 64, a, mask(w)),
        }
    }

    /// No bits of `v` make a greater number.
    pub(crate) fn bound(&self, v: Value) -> Option<u64> {
        self.bounds.borrow().get(&v).copied()
    }

    pub(crate) fn set_bound(&self, v: Value, bound: u64) {
        self.bounds.borrow_mut().insert(v, bound);
    }

    /// Asks for the code to be left before this instruction if `c`.
    pub(crate) fn leave_by(&self, c: Value) {
        self.leaves_by.borrow_mut().push(c);
    }

    /// What was asked for since this was last called.
    pub(crate) fn take_leaves(&self) -> Vec<Value> {
        self.leaves_by.take()
    }

    pub(crate) fn load_context(&self, t: Type, offset: i32) -> Value {
        self.builder.borrow_mut().ins().load(t, own(), self.context, offset)
    }

    pub(crate) fn store_context(&self, v: Value, offset: i32) {
        self.builder.borrow_mut().ins().store(own(), v, self.context, offset);
    }
}
