//! Products that cost more than any budget: of sums and of products, which Z3 multiplies out, and many at once.
//!
//! It multiplies out when a constraint is asserted, where no budget of its own holds: a chain of products, as a hash or a
//! generator of random numbers is, has cost minutes, all memory, and in the end the process. Many products, as long numbers
//! are multiplied with, cost the same when they are made into gates, which is not counted either. Such questions are not asked, and
//! what gates there are in others counts as fuel.

use super::lower::is_hard;
use crate::fuel::UNITS_A_SECOND;
use crate::term::{Node, Term, Terms};
use rustc_hash::FxHashMap;
use x86::domain::Bin;

/// A product that has more factors than this when it is multiplied out, all its monomials together, is not given to the
/// solver.
const MOST_FACTORS: u64 = 4096;

/// Of so many gates of products Z3 takes a second, when it makes them and decides about them: OpenSSL's products of long numbers.
const GATES_A_SECOND: u64 = 25_000;

/// What a term is when it is multiplied out.
#[derive(Clone, Copy)]
struct Size {
    monomials: u64,
    /// Of the longest monomial.
    factors: u64,
}

/// Whether one of the constraints has a product that is too long when it is multiplied out, or the products and quotients of all
/// together have more gates than `most_gates`.
pub(super) fn is_too_long(terms: &Terms, constraints: &[Term], most_gates: u64) -> bool {
    let order = terms.reachable(constraints.iter().copied());
    if all_gates(terms, &order) > most_gates {
        return true;
    }
    let mut sizes: FxHashMap<Term, Size> = FxHashMap::default();
    for t in order {
        let size = match terms.node(t) {
            Node::Bin(Bin::Add | Bin::Sub, a, b) => Size {
                monomials: sizes[&a].monomials.saturating_add(sizes[&b].monomials),
                factors: sizes[&a].factors.max(sizes[&b].factors),
            },
            Node::Bin(Bin::Mul, a, b) => Size {
                monomials: sizes[&a].monomials.saturating_mul(sizes[&b].monomials),
                factors: sizes[&a].factors.saturating_add(sizes[&b].factors),
            },
            _ => Size { monomials: 1, factors: 1 },
        };
        let is_product = matches!(terms.node(t), Node::Bin(Bin::Mul, ..));
        if is_product && size.monomials.saturating_mul(size.factors) > MOST_FACTORS {
            return true;
        }
        sizes.insert(t, size);
    }
    false
}

/// Counts as fuel what it takes to make gates of the products and quotients.
pub(super) fn burn_all(terms: &Terms, constraints: &[Term]) {
    burn(terms, all_gates(terms, &terms.reachable(constraints.iter().copied())));
}

/// How many gates those among these are made of that are not hard: products with literals.
pub(super) fn easy_gates(terms: &Terms, reachable: &[Term]) -> u64 {
    let easy = reachable.iter().filter(|&&t| !is_hard(terms, t));
    easy.map(|&t| gates(terms, t)).sum()
}

/// Counts as fuel what it takes to make so many gates.
pub(super) fn burn(terms: &Terms, gates: u64) {
    terms.fuel().burn(gates * (UNITS_A_SECOND / GATES_A_SECOND));
}

fn all_gates(terms: &Terms, order: &[Term]) -> u64 {
    order.iter().map(|&t| gates(terms, t)).sum()
}

/// How many gates a product or a quotient is made of, in full adders; other operations need few.
fn gates(terms: &Terms, t: Term) -> u64 {
    let width = u64::from(terms.width(t));
    match terms.node(t) {
        Node::Bin(Bin::Mul, a, b) => rows(terms, a, b) * width,
        // The whole product is made, and its low half is not used.
        Node::Bin(Bin::MulHiU | Bin::MulHiS, a, b) => rows(terms, a, b) * 4 * width,
        Node::Divide { high, low, divisor, .. } => match terms.value(divisor) {
            None => 4 * width * width,
            Some(divisor) if divisor.is_power_of_two() => 0,
            Some(_) if terms.is_open(high) || terms.is_open(low) => 4 * width * width,
            Some(_) => 0,
        },
        _ => 0,
    }
}

/// How many rows of adders a product has: one for each bit of a factor that may be set.
fn rows(terms: &Terms, a: Term, b: Term) -> u64 {
    match (terms.value(a), terms.value(b)) {
        (None, None) => u64::from(terms.width(a)),
        (Some(literal), None) | (None, Some(literal)) => u64::from(literal.count_ones()),
        (Some(_), Some(_)) => 0,
    }
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
    fn a_power_is_not_asked() {
        let terms = Terms::new();
        let power = |squarings| (0..squarings).fold(terms.fresh(64), |x, _| terms.build_bin(Bin::Mul, x, x));
        let is_zero = |t| terms.build_cmp(Cmp::Eq, t, terms.lit_term(64, 0));
        assert!(!is_too_long(&terms, &[is_zero(power(4))], Budget::FINAL.gates));
        assert!(is_too_long(&terms, &[is_zero(power(40))], Budget::FINAL.gates));
    }

    #[test]
    fn many_products_are_not_asked_for_together() {
        let terms = Terms::new();
        let product = |_| terms.build_bin(Bin::MulHiU, terms.fresh(64), terms.fresh(64));
        let is_zero = |t| terms.build_cmp(Cmp::Eq, t, terms.lit_term(64, 0));
        let products: Vec<Term> = (0..200).map(product).map(is_zero).collect();
        assert!(!is_too_long(&terms, &products[..4], Budget::FINAL.gates));
        assert!(is_too_long(&terms, &products, Budget::FINAL.gates));
    }

    #[test]
    fn many_products_with_long_literals_are_not_asked_for_together() {
        let terms = Terms::new();
        let times = |literal| {
            let product = terms.build_bin(Bin::MulHiU, terms.fresh(64), terms.lit_term(64, literal));
            terms.build_cmp(Cmp::Eq, product, terms.lit_term(64, 7))
        };
        let products = |literal| (0..60).map(|_| times(literal)).collect::<Vec<Term>>();
        assert!(!is_too_long(&terms, &products(31), Budget::FINAL.gates));
        assert!(is_too_long(&terms, &products(0xe623_6ccf_733c_fb5d), Budget::FINAL.gates));
    }

    #[test]
    fn a_long_chain_of_products_is_not_asked_and_a_short_one_is() {
        let terms = Terms::new();
        assert!(!is_too_long(&terms, &[chain(&terms, 2)], Budget::FINAL.gates));
        assert!(is_too_long(&terms, &[chain(&terms, 40)], Budget::FINAL.gates));
        let longest = solve(&terms, &[chain(&terms, 4000)], &[], Budget::SEARCH, Effort::Persistent);
        assert!(!matches!(longest, Answer::Infeasible), "{longest:?}");
    }
}
