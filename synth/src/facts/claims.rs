//! What a path says, as it was said: before anything was concluded from it.
//!
//! Propagation binds variables and forgets where from. So that somebody else can check a contradiction, each fact is also
//! kept as it came, in order. What was built *on a conclusion* says so: a load's value is that of the memory at a constant
//! address only as long as the address is that constant.

use super::{Contradiction, Facts};
use crate::term::{Term, Terms};

/// One thing that a path says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// What follows is said by the instruction at this address.
    Step(u64),
    /// These are equal.
    Equal(Term, Term),
    /// This holds.
    Holds(Term),
    /// What follows, up to the end, was built as if this term were that literal, which was concluded.
    Rests(Term, u64),
    /// The core excludes it, for this reason.
    Impossible(&'static str),
}

impl Claim {
    /// The terms in it.
    pub fn terms(&self) -> impl Iterator<Item = Term> + use<> {
        let terms = match *self {
            Claim::Equal(a, b) => [Some(a), Some(b)],
            Claim::Holds(t) | Claim::Rests(t, _) => [Some(t), None],
            Claim::Step(_) | Claim::Impossible(_) => [None, None],
        };
        terms.into_iter().flatten()
    }
}

impl Facts {
    /// What was said, in order.
    #[must_use]
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }

    /// Says that `a` equals `b`, of which nothing is learned: it was used already, in another shape.
    pub fn claim(&mut self, a: Term, b: Term) {
        self.claims.push(Claim::Equal(a, b));
    }

    /// From now on an instruction speaks.
    pub fn begin_step(&mut self, address: u64) {
        self.claims.push(Claim::Step(address));
    }

    /// What follows is built as if `t` were `value`, since that was concluded.
    pub fn rest_on(&mut self, terms: &Terms, t: Term, value: u64) {
        if terms.is_open(t) {
            self.claims.push(Claim::Rests(t, value));
        }
    }

    /// The core excludes what was said so far.
    #[must_use]
    pub fn impossible(&mut self, why: &'static str) -> Contradiction {
        self.claims.push(Claim::Impossible(why));
        Contradiction
    }
}
