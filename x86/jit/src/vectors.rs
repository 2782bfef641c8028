//! The vector registers of a run: values from the first use on, as the general registers are.
//!
//! Only what legacy instructions know is there: sixteen registers of 128 bits.

use cranelift_codegen::ir::{InstBuilder, Type, Value, types};

use crate::block::Block;
use crate::clif::{Bv, Written, own};
use crate::context::at;
use crate::translator::{State, Translator};

/// The bytes of a register in the CPU, most of which legacy instructions do not know.
const SIZE: i32 = 64;

/// A vector register, as far as it is values.
#[derive(Clone, Copy)]
pub(crate) struct Register {
    /// All of it.
    whole: Option<Value>,
    /// Its halves, where they were asked for or written.
    halves: [Option<Bv>; 2],
    /// Which halves the CPU does not have.
    changed: [bool; 2],
}

impl Register {
    /// None of it is a value.
    pub(crate) const EMPTY: Register = Register { whole: None, halves: [None; 2], changed: [false; 2] };
}

impl Translator<'_> {
    /// Half `part` of a register.
    pub(crate) fn half_of_vector(&self, n: u8, part: u8) -> Bv {
        let half = usize::from(part & 1);
        let register = self.state.borrow().vectors[usize::from(n & 15)];
        let v = match (register.halves[half], register.whole) {
            (Some(v), _) => return v,
            (None, Some(whole)) => Bv::Value(self.d.lane_of(64, u32::from(part), whole)),
            (None, None) => Bv::Value(self.load_vector(types::I64, n, i32::from(part) * 8)),
        };
        self.state.borrow_mut().vectors[usize::from(n & 15)].halves[half] = Some(v);
        v
    }

    /// Writes half `part` of a register.
    pub(crate) fn set_half_of_vector(&mut self, n: u8, part: u8, v: Bv) {
        let half = usize::from(part & 1);
        if self.state.borrow().vectors[usize::from(n & 15)].whole.is_some() {
            // The other half is that of the whole, which is gone in a moment.
            self.half_of_vector(n, 1 - (part & 1));
        }
        let register = &mut self.state.get_mut().vectors[usize::from(n & 15)];
        register.whole = None;
        register.halves[half] = Some(v);
        register.changed[half] = true;
    }

    /// All of a register.
    pub(crate) fn whole_vector(&self, n: u8) -> Block {
        let register = self.state.borrow().vectors[usize::from(n & 15)];
        if let Some(whole) = register.whole {
            return Block::Whole(whole);
        }
        if register.halves.iter().any(Option::is_some) {
            return Block::Halves([self.half_of_vector(n, 0), self.half_of_vector(n, 1)]);
        }
        let whole = self.load_vector(types::I8X16, n, 0);
        self.state.borrow_mut().vectors[usize::from(n & 15)].whole = Some(whole);
        Block::Whole(whole)
    }

    /// Writes all of a register.
    pub(crate) fn set_whole_vector(&mut self, n: u8, v: Block) {
        let (whole, halves) = match v {
            Block::Whole(v) => (Some(v), [None; 2]),
            Block::Halves(halves) => (None, halves.map(Some)),
        };
        self.state.get_mut().vectors[usize::from(n & 15)] = Register { whole, halves, changed: [true; 2] };
    }

    /// Gives the registers that are only values to the CPU.
    pub(crate) fn store_vectors(&self, state: &State) {
        for (n, register) in (0..).step_by(SIZE as usize).zip(&state.vectors) {
            match (register.whole, register.halves, register.changed) {
                (_, _, [false, false]) => {}
                (Some(whole), ..) => self.store_vector(whole, n),
                (None, [Some(low), Some(high)], [true, true]) if self.is_cheaper_whole([low, high]) => {
                    self.store_vector(self.d.whole(Block::Halves([low, high])), n);
                }
                (None, halves, changed) => {
                    for (at, half, has_changed) in
                        [(n, halves[0], changed[0]), (n + 8, halves[1], changed[1])]
                    {
                        if let (Some(half), true) = (half, has_changed) {
                            self.store_vector(self.d.value(64, half), at);
                        }
                    }
                }
            }
        }
    }

    /// Whether the halves are those of one vector, or constants.
    fn is_cheaper_whole(&self, halves: [Bv; 2]) -> bool {
        match halves {
            [Bv::Known(_), Bv::Known(_)] => true,
            [Bv::Value(low), Bv::Value(high)] => {
                matches!((self.d.origin(64, low), self.d.origin(64, high)), (Some((a, 0)), Some((b, 1))) if a == b)
            }
            _ => false,
        }
    }

    fn vectors(&self) -> Value {
        self.d.once(Written::Vectors, |builder| {
            builder.ins().load(types::I64, own(), self.d.context, at!(vectors))
        })
    }

    fn load_vector(&self, t: Type, n: u8, offset: i32) -> Value {
        let vectors = self.vectors();
        let offset = i32::from(n & 15) * SIZE + offset;
        self.d.builder.borrow_mut().ins().load(t, own(), vectors, offset)
    }

    fn store_vector(&self, v: Value, offset: i32) {
        let vectors = self.vectors();
        self.d.builder.borrow_mut().ins().store(own(), v, vectors, offset);
    }
}
