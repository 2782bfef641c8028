//! 128 bits of a vector register in the form in which a domain computes with lanes best.
//!
//! For terms that is two halves of 64 bits. The software CPU has 16 bytes: a compiler makes one vector instruction of a
//! loop that does the same with every lane of bytes in memory, and hardly ever of one that takes a number apart.

use crate::domain::{Bin, Domain};

/// What happens in one lane of a vector, whatever the domain: so one that computes with vectors can do all lanes at once.
pub trait Lane {
    /// The width of the lane in bits.
    const W: u32;
    /// The lane of the result from that of the first source and that of the second.
    fn lane<D: Domain>(d: &D, a: D::Bv, b: D::Bv) -> D::Bv;
}

/// 128 bits as lanes of `w` bits (8, 16, 32 or 64), the lowest first.
pub trait Packed<D: Domain>: Copy {
    /// The low half, then the high half.
    fn from_parts(parts: [D::Bv; 2]) -> Self;
    /// The low half, then the high half.
    fn parts(self, d: &D) -> [D::Bv; 2];
    /// Lane `n`.
    fn lane(&self, d: &D, w: u32, n: u32) -> D::Bv;
    /// The value whose lane `n` is `f(n)`.
    fn from_lanes(d: &D, w: u32, f: impl FnMut(u32) -> D::Bv) -> Self;
    /// Bit `n` of the result, which has as many as there are lanes, is whether `f(n)` holds.
    fn bits_from(d: &D, w: u32, f: impl FnMut(u32) -> D::Bool) -> D::Bv;
    /// The signs of the lanes, a bit for each.
    fn signs(&self, d: &D, w: u32) -> D::Bv;
    /// What `L` makes of the lanes of `a` and those of `b`.
    #[inline(always)]
    fn each<L: Lane>(d: &D, a: &Self, b: &Self) -> Self {
        Self::from_lanes(d, L::W, |n| L::lane(d, a.lane(d, L::W, n), b.lane(d, L::W, n)))
    }
    /// The lanes shifted by the same amount, `w` at most.
    #[inline(always)]
    fn shifted(&self, d: &D, op: Bin, w: u32, by: u32) -> Self {
        let by = d.lit(w, u64::from(by));
        Self::from_lanes(d, w, |n| d.bin(op, w, self.lane(d, w, n), by))
    }
}

/// Halves.
impl<D: Domain> Packed<D> for [D::Bv; 2] {
    fn from_parts(parts: [D::Bv; 2]) -> Self {
        parts
    }
    fn parts(self, _d: &D) -> [D::Bv; 2] {
        self
    }
    fn lane(&self, d: &D, w: u32, n: u32) -> D::Bv {
        let per_part = 64 / w;
        let part = self[(n / per_part) as usize];
        if w == 64 { part } else { d.extract(64, n % per_part * w, w, part) }
    }
    fn from_lanes(d: &D, w: u32, mut f: impl FnMut(u32) -> D::Bv) -> Self {
        let per_part = 64 / w;
        [0, per_part].map(|first| {
            let low = f(first);
            (1..per_part).fold(low, |part, n| d.concat(w, f(first + n), n * w, part))
        })
    }
    fn bits_from(d: &D, w: u32, mut f: impl FnMut(u32) -> D::Bool) -> D::Bv {
        let low = d.from_bool(1, f(0));
        (1..128 / w).fold(low, |bits, n| d.concat(1, d.from_bool(1, f(n)), n, bits))
    }
    fn signs(&self, d: &D, w: u32) -> D::Bv {
        let sign = |n| d.extract(w, w - 1, 1, self.lane(d, w, n));
        (1..128 / w).fold(sign(0), |bits, n| d.concat(1, sign(n), n, bits))
    }
}
