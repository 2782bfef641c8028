//! Products of sums of products, which Z3 multiplies out.
//!
//! It does so when a constraint is asserted, where no budget of its own holds: a chain of them, as a hash or a generator
//! of random numbers is, has cost minutes, all memory, and in the end the process. Such questions are not asked.

use crate::term::{Node, Term, Terms};
use rustc_hash::{FxHashMap, FxHashSet};
use x86::domain::Bin;

/// A product with more monomials than this is not given to the solver.
const MOST_MONOMIALS: u64 = 4096;

/// Whether one of the constraints has a product that is too long when it is multiplied out.
pub(super) fn is_too_long(terms: &Terms, constraints: &[Term]) -> bool {
    let (mut todo, mut reached) = (constraints.to_vec(), FxHashSet::default());
    while let Some(t) = todo.pop() {
        if reached.insert(t) {
            terms.operands(t, |operand| todo.push(operand));
        }
    }
    // Operands stand before what they are used in.
    let mut order: Vec<Term> = reached.into_iter().collect();
    order.sort_unstable();
    let mut monomials: FxHashMap<Term, u64> = FxHashMap::default();
    for t in order {
        let count = match terms.node(t) {
            Node::Bin(Bin::Add | Bin::Sub, a, b) => monomials[&a].saturating_add(monomials[&b]),
            Node::Bin(Bin::Mul, a, b) => monomials[&a].saturating_mul(monomials[&b]),
            _ => 1,
        };
        if count > MOST_MONOMIALS && matches!(terms.node(t), Node::Bin(Bin::Mul, ..)) {
            return true;
        }
        monomials.insert(t, count);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smt::{Answer, Budget, Effort, solve};
    use x86::domain::Cmp;

    /// `x * (x + y) * (x + y + 1) * ..`, so many factors, is zero.
    fn chain(terms: &Terms, factors: u64) -> Term {
        let [x, y] = [(); 2].map(|()| terms.fresh(64));
        let sum = terms.build_bin(Bin::Add, x, y);
        let factor = |n| terms.build_bin(Bin::Add, sum, terms.lit_term(64, n));
        let product = (1..=factors).map(factor).fold(x, |a, b| terms.build_bin(Bin::Mul, a, b));
        terms.build_cmp(Cmp::Eq, product, terms.lit_term(64, 0))
    }

    #[test]
    fn a_long_chain_of_products_is_not_asked_and_a_short_one_is() {
        let terms = Terms::new();
        assert!(!is_too_long(&terms, &[chain(&terms, 2)]));
        assert!(is_too_long(&terms, &[chain(&terms, 40)]));
        let longest = solve(&terms, &[chain(&terms, 4000)], &[], Budget::SEARCH, Effort::Persistent);
        assert!(!matches!(longest, Answer::Infeasible), "{longest:?}");
    }
}
