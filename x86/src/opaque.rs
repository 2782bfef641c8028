//! Operations that a bit-vector algebra does not express: floating point and table look-ups.
//!
//! A symbolic domain treats them as uninterpreted functions and folds them when every argument is concrete by
//! calling [`evaluate`]; the concrete domain calls [`evaluate`] directly. So each has one meaning, here.

/// An operation outside bit-vector arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opaque {}

/// Applies `op` to concrete arguments.
#[must_use]
pub fn evaluate(op: Opaque, _args: &[u64]) -> [u64; 3] {
    match op {}
}
