//! A product with an unknown factor, taken for a division by a constant: its factor was loaded into a register before the loop that the
//! path begins in, and nothing tells it any more.
//!
//! An answer found this way is a solution of the whole question; that none is found says nothing.

use super::abstraction::{Abstraction, abstraction};
use super::reciprocal::{factors, unknown_factors};
use crate::facts::{Facts, Learned};
use crate::fuel::UNITS_A_SECOND;
use crate::term::{Assignment, Node, Plan, Term, Terms};
use rustc_hash::FxHashMap;
use x86::domain::Cmp;

/// No further divisor is tried when so much fuel was burnt.
const MOST_FUEL: u64 = UNITS_A_SECOND / 10;

/// Looks for a solution with a usual divisor.
pub(super) fn solve(terms: &Terms, constraints: &[Term]) -> Option<Assignment> {
    let reachable = terms.reachable(constraints.iter().copied());
    let unknown = unknown_factors(terms, &reachable);
    let last = terms.fuel().burnt() + MOST_FUEL;
    let tries = factors().flat_map(|factor| unknown.iter().map(move |&t| (t, factor)));
    tries.take_while(|_| terms.fuel().burnt() < last).find_map(|(t, factor)| {
        let is_factor = terms.build_cmp(Cmp::Eq, t, terms.lit_term(terms.width(t), factor));
        solve_with(terms, constraints, is_factor).ok()?
    })
}

/// Looks for a solution in which this holds besides.
fn solve_with(terms: &Terms, constraints: &[Term], assumed: Term) -> Learned<Option<Assignment>> {
    let mut facts = Facts::default();
    facts.assert(terms, assumed)?;
    for &constraint in constraints {
        facts.assert(terms, constraint)?;
    }
    let rest = facts.unsolved(terms);
    let values = match abstraction(terms, &rest) {
        Abstraction::Solved(values) => values,
        Abstraction::Open if rest.is_empty() => Assignment::default(),
        Abstraction::Refuted | Abstraction::Open => return Ok(None),
    };
    let mut solution = Assignment::default();
    let mut memo = FxHashMap::default();
    for t in terms.reachable(constraints.iter().copied()) {
        let Node::Var(var) = terms.node(t) else { continue };
        let known = facts.resolve(terms, t);
        let value = terms.evaluate(known, &values, &mut memo);
        let number = terms.value(value).or_else(|| terms.truth(value).map(u64::from));
        solution.set(var, number.unwrap_or(0));
    }
    let holds = Plan::new(terms, constraints).holds(&solution);
    Ok(holds.then_some(solution))
}

#[cfg(test)]
mod tests {
    use super::*;
    use x86::domain::Bin;

    /// What bash leaves of a number that it writes: four digits, and the reciprocal in a register that was overwritten since.
    #[test]
    fn a_number_is_known_by_its_digits_and_an_unknown_reciprocal() {
        let terms = Terms::new();
        let factor = terms.fresh(64);
        let mut constraints = Vec::new();
        let mut quotient = terms.lit_term(64, 0);
        for digit in *b"5719" {
            let number = terms.fresh(64);
            let high = terms.build_bin(Bin::MulHiU, number, factor);
            let is = terms.build_bin(Bin::Shr, high, terms.lit_term(64, 3));
            constraints.push(terms.build_cmp(Cmp::Eq, is, quotient));
            let tens = terms.build_bin(Bin::Mul, quotient, terms.lit_term(64, 10));
            let shown =
                terms.build_bin(Bin::Add, terms.build_bin(Bin::Sub, number, tens), terms.lit_term(64, 0x30));
            constraints.push(terms.build_cmp(
                Cmp::Eq,
                terms.build_extract(0, 8, shown),
                terms.lit_term(8, digit.into()),
            ));
            quotient = number;
        }
        let solution = solve(&terms, &constraints).expect("5719");
        let Node::Var(number) = terms.node(quotient) else { panic!("a variable") };
        assert_eq!(solution.get(number), Some(5719));
    }
}
