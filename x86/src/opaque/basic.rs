//! Addition, multiplication and division of numbers that are not NaNs: which of them are exact reals, zeros or infinities,
//! and which are invalid. SSE and x87 share this; what they make of it (flags, formats) is their own.

use super::real::Real;

/// A number that is not a NaN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number {
    pub(super) negative: bool,
    pub(super) magnitude: Magnitude,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Magnitude {
    Zero,
    /// The sign is in the real, too.
    Finite(Real),
    Infinity,
}

/// What an operation gives before rounding.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// This, to be rounded.
    Exact(Real),
    /// A zero with this sign (true is negative).
    Zero(bool),
    /// A zero from numbers that cancel: its sign is that of the rounding direction.
    Cancelled,
    /// An infinity with this sign.
    Infinity(bool),
    /// An infinity with this sign, from a division by zero.
    DividedByZero(bool),
    /// No number.
    Invalid,
}

impl std::ops::Neg for Number {
    type Output = Number;

    fn neg(self) -> Number {
        let negative = !self.negative;
        let magnitude = match self.magnitude {
            Magnitude::Finite(x) => Magnitude::Finite(Real { negative, ..x }),
            other => other,
        };
        Number { negative, magnitude }
    }
}

pub(super) fn add(a: Number, b: Number) -> Outcome {
    use Magnitude::{Finite, Infinity, Zero};
    match (a.magnitude, b.magnitude) {
        (Infinity, Infinity) if a.negative != b.negative => Outcome::Invalid,
        (Infinity, _) => Outcome::Infinity(a.negative),
        (_, Infinity) => Outcome::Infinity(b.negative),
        (Finite(x), Finite(y)) => x.add(y).map_or(Outcome::Cancelled, Outcome::Exact),
        (Finite(x), Zero) | (Zero, Finite(x)) => Outcome::Exact(x),
        (Zero, Zero) if a.negative == b.negative => Outcome::Zero(a.negative),
        (Zero, Zero) => Outcome::Cancelled,
    }
}

pub(super) fn multiply(a: Number, b: Number) -> Outcome {
    use Magnitude::{Finite, Infinity, Zero};
    let negative = a.negative != b.negative;
    match (a.magnitude, b.magnitude) {
        (Infinity, Zero) | (Zero, Infinity) => Outcome::Invalid,
        (Infinity, _) | (_, Infinity) => Outcome::Infinity(negative),
        (Finite(x), Finite(y)) => Outcome::Exact(x.mul(y)),
        (Zero, _) | (_, Zero) => Outcome::Zero(negative),
    }
}

/// a * b + c with one rounding.
pub(super) fn multiply_add(a: Number, b: Number, c: Number) -> Outcome {
    let (negative, magnitude) = match multiply(a, b) {
        Outcome::Exact(product) => (product.negative, Magnitude::Finite(product)),
        Outcome::Infinity(negative) => (negative, Magnitude::Infinity),
        Outcome::Zero(negative) => (negative, Magnitude::Zero),
        other => return other,
    };
    add(Number { negative, magnitude }, c)
}

pub(super) fn divide(a: Number, b: Number) -> Outcome {
    use Magnitude::{Finite, Infinity, Zero};
    let negative = a.negative != b.negative;
    match (a.magnitude, b.magnitude) {
        (Infinity, Infinity) | (Zero, Zero) => Outcome::Invalid,
        (Infinity, _) => Outcome::Infinity(negative),
        (_, Zero) => Outcome::DividedByZero(negative),
        (Finite(x), Finite(y)) => Outcome::Exact(x.div(y)),
        (Zero, _) | (_, Infinity) => Outcome::Zero(negative),
    }
}
