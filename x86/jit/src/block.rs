//! 128 bits of a vector register in compiled code: as one value of Cranelift's, or as halves, whichever was asked for last.
//!
//! What moves lanes is described lane by lane. Where all lanes of a result are lanes of one or two other vectors, it is one
//! instruction that shuffles bytes. What does the same in all lanes is written once for all of them ([`crate::all_lanes`]).

use cranelift_codegen::ir::{ConstantData, Endianness, InstBuilder, MemFlagsData, Type, Value, types};
use x86::domain::{Bin, Domain};
use x86::packed::{Lane, Packed};

use crate::all_lanes::{AllLanes, Lanes};
use crate::clif::{Bool, Bv, Clif, Written, mask};

/// 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// A value of type I8X16.
    Whole(Value),
    /// The low half, then the high half.
    Halves([Bv; 2]),
}

/// The type of 128 bits as lanes of `w` bits.
pub(crate) fn lanes_of(w: u32) -> Type {
    match w {
        8 => types::I8X16,
        16 => types::I16X8,
        32 => types::I32X4,
        _ => types::I64X2,
    }
}

/// The lanes of a vector that others are made of: where each of its bytes is found in two vectors, one behind the other.
struct Shuffle {
    vectors: Vec<Option<Value>>,
    bytes: Vec<u8>,
}

impl Clif<'_> {
    /// The same bits as another type.
    pub(crate) fn cast(&self, to: Type, v: Value) -> Value {
        if self.builder.borrow().func.dfg.value_type(v) == to {
            return v;
        }
        let flags = MemFlagsData::new().with_endianness(Endianness::Little);
        self.once(Written::Cast(to, v), |builder| builder.ins().bitcast(to, flags, v))
    }

    /// Lane `n` of `w` bits of a vector.
    pub(crate) fn lane_of(&self, w: u32, n: u32, v: Value) -> Value {
        let lanes = self.cast(lanes_of(w), v);
        let n8 = u8::try_from(n).expect("a vector has sixteen lanes at most");
        let lane = self.once(Written::Lane(lanes, n8), |builder| builder.ins().extractlane(lanes, n8));
        self.origins.borrow_mut().insert(lane, (v, w, n));
        lane
    }

    /// Where a value was taken from a vector, if it is a lane of `w` bits: the vector, and the lane's number.
    pub(crate) fn origin(&self, w: u32, v: Value) -> Option<(Value, u32)> {
        let origin = self.origins.borrow().get(&v).copied();
        origin.filter(|(_, width, _)| *width == w).map(|(vector, _, n)| (vector, n))
    }

    /// A vector of constant bytes.
    pub(crate) fn constant_vector(&self, halves: [u64; 2]) -> Value {
        self.once(Written::Vector(halves), |builder| {
            let bytes = [halves[0].to_le_bytes(), halves[1].to_le_bytes()];
            let constant = builder.func.dfg.constants.insert(ConstantData::from(bytes.as_flattened()));
            builder.ins().vconst(types::I8X16, constant)
        })
    }

    /// 128 bits as one value.
    pub(crate) fn whole(&self, block: Block) -> Value {
        let [low, high] = match block {
            Block::Whole(v) => return v,
            Block::Halves([Bv::Known(low), Bv::Known(high)]) => return self.constant_vector([low, high]),
            Block::Halves(halves) => halves,
        };
        let origins = [low, high].map(|half| match half {
            Bv::Value(v) => self.origin(64, v),
            Bv::Known(_) => None,
        });
        match origins {
            [Some((a, 0)), Some((b, 1))] if a == b => a,
            [_, Some((rest, 1))] => self.with_half(rest, low, 0),
            [Some((rest, 0)), _] => self.with_half(rest, high, 1),
            _ => {
                let high_only = match high {
                    Bv::Known(high) => self.constant_vector([0, high]),
                    Bv::Value(_) => {
                        let zero = self.constant_vector([0, 0]);
                        self.with_half(zero, high, 1)
                    }
                };
                self.with_half(high_only, low, 0)
            }
        }
    }

    /// A vector of which one half is another.
    fn with_half(&self, v: Value, half: Bv, n: u8) -> Value {
        let float = match half {
            Bv::Value(half) => self.known_float(half),
            Bv::Known(_) => None,
        };
        let (t, half) = match float {
            Some(float) => (types::F64X2, float),
            None => (types::I64X2, self.value(64, half)),
        };
        let lanes = self.cast(t, v);
        let with = self.once(Written::With(lanes, half, n), |b| b.ins().insertlane(lanes, half, n));
        self.cast(types::I8X16, with)
    }

    /// The vector of these lanes of `w` bits, if they are lanes of two others at most, or zero.
    fn shuffled(&self, w: u32, lanes: &[Bv]) -> Option<Block> {
        let mut shuffle = Shuffle { vectors: Vec::new(), bytes: Vec::new() };
        for lane in lanes {
            let (vector, n) = match lane {
                Bv::Known(0) => (None, 0),
                Bv::Known(_) => return None,
                Bv::Value(v) => self.origin(w, *v).map(|(vector, n)| (Some(vector), n))?,
            };
            let size = u8::try_from(w / 8).ok()?;
            let first = shuffle.first_byte(vector)? + u8::try_from(n).ok()? * size;
            shuffle.bytes.extend(first..first + size);
        }
        if shuffle.bytes.iter().copied().eq(0..16) {
            return shuffle.vectors[0].map(Block::Whole);
        }
        let zero = || self.constant_vector([0, 0]);
        let [a, b] = [0, 1].map(|n| shuffle.vectors.get(n).copied().flatten().unwrap_or_else(zero));
        let mut builder = self.builder.borrow_mut();
        let bytes = builder.func.dfg.immediates.push(ConstantData::from(shuffle.bytes));
        Some(Block::Whole(builder.ins().shuffle(a, b, bytes)))
    }
}

impl Shuffle {
    /// The number of the first byte of a vector, or of zeros; `None` if there are two others.
    fn first_byte(&mut self, vector: Option<Value>) -> Option<u8> {
        let n = self.vectors.iter().position(|known| *known == vector).unwrap_or_else(|| {
            self.vectors.push(vector);
            self.vectors.len() - 1
        });
        (n < 2).then_some(if n == 0 { 0 } else { 16 })
    }
}

impl<'a> Packed<Clif<'a>> for Block {
    fn from_parts(parts: [Bv; 2]) -> Self {
        Block::Halves(parts)
    }

    fn parts(self, d: &Clif<'a>) -> [Bv; 2] {
        match self {
            Block::Halves(halves) => halves,
            Block::Whole(v) => [0, 1].map(|n| Bv::Value(d.lane_of(64, n, v))),
        }
    }

    fn lane(&self, d: &Clif<'a>, w: u32, n: u32) -> Bv {
        match *self {
            Block::Halves(halves) if w == 64 => halves[(n & 1) as usize],
            Block::Halves([Bv::Known(_), Bv::Known(_)]) => {
                let halves = self.parts(d);
                let within = 64 / w;
                d.extract(64, n % within * w, w, halves[(n / within) as usize])
            }
            block => {
                let v = d.whole(block);
                Bv::Value(d.lane_of(w, n, v))
            }
        }
    }

    fn from_lanes(d: &Clif<'a>, w: u32, f: impl FnMut(u32) -> Bv) -> Self {
        let lanes: Vec<Bv> = (0..128 / w).map(f).collect();
        if let Some(block) = d.shuffled(w, &lanes) {
            return block;
        }
        let half = |lanes: &[Bv]| {
            let upper = (1..).zip(&lanes[1..]);
            upper.fold(lanes[0], |low, (n, lane)| d.concat(w, *lane, n * w, low))
        };
        let (low, high) = lanes.split_at(lanes.len() / 2);
        Block::Halves([half(low), half(high)])
    }

    fn bits_from(d: &Clif<'a>, w: u32, mut f: impl FnMut(u32) -> Bool) -> Bv {
        let low = d.from_bool(1, f(0));
        (1..128 / w).fold(low, |bits, n| d.concat(1, d.from_bool(1, f(n)), n, bits))
    }

    fn signs(&self, d: &Clif<'a>, w: u32) -> Bv {
        let v = d.cast(lanes_of(w), d.whole(*self));
        let bits = d.once(Written::Signs(v), |builder| builder.ins().vhigh_bits(types::I32, v));
        Bv::Value(d.narrow(128 / w, d.wide(32, bits), true))
    }

    fn each<L: Lane>(d: &Clif<'a>, a: &Self, b: &Self) -> Self {
        let all = AllLanes::new(d, L::W);
        let lanes = |block: &Block| match *block {
            Block::Halves([Bv::Known(low), Bv::Known(high)]) if all.is_same(low, high) => {
                Lanes::Same(low & mask(L::W))
            }
            block => Lanes::Each(d.cast(lanes_of(L::W), d.whole(block))),
        };
        let made = L::lane(&all, lanes(a), lanes(b));
        all.finish(made)
    }

    fn shifted(&self, d: &Clif<'a>, op: Bin, w: u32, by: u32) -> Self {
        let all = AllLanes::new(d, w);
        let lanes = Lanes::Each(d.cast(lanes_of(w), d.whole(*self)));
        all.finish(all.bin(op, w, lanes, Lanes::Same(u64::from(by))))
    }
}

/// The lanes of `w` bits that are all the same, as 64 bits.
pub(crate) fn repeated(w: u32, lane: u64) -> u64 {
    (0..64 / w).fold(0, |all, n| all | (lane & mask(w)) << (n * w))
}
