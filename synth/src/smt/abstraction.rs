//! What contradicts itself whatever its products and quotients are.
//!
//! A search goes round a loop that divides, say, and asks at each turn whether the path is possible. Where it is not, the reason is
//! seldom a product: `n > 9` and `n + 2 < 9`, of an `n` that is three times a quotient. The solver does not see that before it has
//! taken the products apart. So it is asked about the rest first, with no more of a product than that it is a quotient ([`reciprocal`]);
//! that this contradicts itself refutes the whole. Where it does not, its solution says of what numbers the products would have to be something else than they are: that is told, and it is asked
//! again, a few times (Clarke et al., "Counterexample-guided abstraction refinement", CAV 2000).

use super::Budget;
use super::counted::Counted;
use super::lower::{Lowering, is_hard};
use super::{expansion, reciprocal};
use crate::fuel::UNITS_A_SECOND;
use crate::term::{Assignment, Node, Plan, Term, Terms};
use z3::ast::{BV, Bool};
use z3::{Model, SatResult};

/// So often it is told what products are.
const ROUNDS: usize = 16;
/// What one of these questions may cost: without what is hard they are easy.
const BUDGET: Budget = Budget { units: Budget::SEARCH.units / 4, ..Budget::SEARCH };
/// Nor is it asked again when so much fuel was burnt: the whole question is asked as well.
const MOST_FUEL: u64 = UNITS_A_SECOND / 50;

/// What the rest of a question says of the whole.
pub(super) enum Abstraction {
    /// It contradicts itself.
    Refuted,
    /// This solves it, and the whole as well.
    Solved(Assignment),
    /// Nothing.
    Open,
}

/// Asks about what is left of the constraints if nothing is known of products and quotients.
pub(super) fn abstraction(terms: &Terms, constraints: &[Term]) -> Abstraction {
    let reachable = terms.reachable(constraints.iter().copied());
    if !reachable.iter().any(|&t| is_hard(terms, t)) {
        return Abstraction::Open;
    }
    let gates = expansion::easy_gates(terms, &reachable);
    if gates > BUDGET.gates {
        return Abstraction::Open;
    }
    expansion::burn(terms, gates);
    let solver = Counted::new(terms.fuel(), BUDGET, false);
    let mut lowering = Lowering::abstracting(terms);
    for &c in constraints {
        let c = lowering.truth(c);
        solver.assert(&c);
    }
    let hard: Vec<Term> = reachable.into_iter().filter(|&t| is_hard(terms, t)).collect();
    for &t in &hard {
        if let Some(lemma) = reciprocal::lemma(&mut lowering, t) {
            solver.assert(&lemma);
        }
    }
    let mut plan = Plan::new(terms, constraints);
    let last = terms.fuel().burnt() + MOST_FUEL;
    for _ in 0..ROUNDS {
        if terms.fuel().burnt() > last {
            break;
        }
        match solver.check() {
            SatResult::Unsat => return Abstraction::Refuted,
            SatResult::Unknown => return Abstraction::Open,
            SatResult::Sat => {}
        }
        let Some(model) = solver.model() else { return Abstraction::Open };
        let values = lowering.assignment(&model);
        if plan.holds(&values) {
            return Abstraction::Solved(values);
        }
        let told: Vec<Bool> = hard.iter().filter_map(|&t| lesson(&mut lowering, &model, t)).collect();
        if told.is_empty() {
            return Abstraction::Open;
        }
        told.iter().for_each(|lesson| solver.assert(lesson));
    }
    Abstraction::Open
}

/// What a product or a quotient is of the numbers that a solution has for its parts, if the solution has something else for it.
fn lesson(lowering: &mut Lowering<'_>, model: &Model, t: Term) -> Option<Bool> {
    let terms = lowering.terms();
    let mut parts = Vec::new();
    terms.operands(t, |part| parts.push(part));
    let mut numbers = Vec::new();
    let mut same = Vec::new();
    for part in parts {
        let vector = lowering.vector(part);
        let number = model.eval(&vector, true)?.as_u64()?;
        same.push(vector.eq(BV::from_u64(number, terms.width(part))));
        numbers.push(terms.lit_term(terms.width(part), number));
    }
    let is = match (terms.node(t), numbers[..].as_ref()) {
        (Node::Bin(op, ..), &[a, b]) => terms.build_bin(op, a, b),
        (Node::Divide { part, signed, .. }, &[high, low, divisor]) => {
            terms.build_division(part, signed, high, low, divisor)
        }
        _ => return None,
    };
    let told = match terms.width(t) {
        0 => {
            let (truth, is) = (lowering.truth(t), lowering.truth(is));
            (model.eval(&truth, true)? != model.eval(&is, true)?).then(|| truth.eq(is))?
        }
        _ => {
            let (vector, is) = (lowering.vector(t), lowering.vector(is));
            (model.eval(&vector, true)?.as_u64() != model.eval(&is, true)?.as_u64()).then(|| vector.eq(is))?
        }
    };
    Some(Bool::and(&same).implies(told))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::term::DivisionPart;
    use x86::domain::{Bin, Cmp};

    /// The next prime number is looked for among the odd ones that three does not divide: a path on which it is below nine, and was not.
    #[test]
    fn what_contradicts_itself_without_the_product_is_refuted() {
        let terms = Terms::new();
        let [factor, other] = [terms.fresh(64), terms.fresh(64)];
        let product = terms.build_bin(Bin::MulHiU, factor, other);
        let next = terms.build_bin(Bin::Add, product, terms.lit_term(64, 2));
        let nine = terms.lit_term(64, 9);
        let is = |t, value| terms.build_cmp(Cmp::Eq, t, terms.lit_term(64, value));
        let constraints = [
            terms.build_cmp(Cmp::Ult, nine, product),
            terms.build_not(terms.build_cmp(Cmp::Ult, nine, next)),
            terms.build_not(is(product, u64::MAX)),
            terms.build_not(is(product, u64::MAX - 1)),
        ];
        assert!(matches!(abstraction(&terms, &constraints), Abstraction::Refuted));
        assert!(!matches!(abstraction(&terms, &constraints[..2]), Abstraction::Refuted));
        assert!(matches!(abstraction(&terms, &[is(factor, 3)]), Abstraction::Open), "nothing is hard");
    }

    /// A long multiplication: one factor is unknown, and so many products have a literal that gates of them would take minutes.
    #[test]
    fn many_products_with_literals_are_not_asked_about() {
        let terms = Terms::new();
        let [factor, other] = [terms.fresh(64), terms.fresh(64)];
        let hard = terms.build_bin(Bin::MulHiU, factor, other);
        let is = |t, value| terms.build_cmp(Cmp::Eq, t, terms.lit_term(64, value));
        let contradiction = [is(hard, 3), is(hard, 4)];
        let literal = terms.lit_term(64, 0xe623_6ccf_733c_fb5d);
        let with = |count| {
            let product = || terms.build_bin(Bin::Mul, terms.fresh(64), literal);
            let easy = (0..count).map(|_| terms.build_cmp(Cmp::Ult, product(), literal));
            easy.chain(contradiction).collect::<Vec<Term>>()
        };
        assert!(matches!(abstraction(&terms, &with(2)), Abstraction::Refuted));
        let many = with(200);
        let before = terms.fuel().burnt();
        assert!(matches!(abstraction(&terms, &many), Abstraction::Open));
        assert_eq!(terms.fuel().burnt(), before, "nothing was asked");
    }

    /// The path says that a number is the largest one, and divided by seven leaves nothing.
    #[test]
    fn what_only_a_few_numbers_could_be_is_tried_with_them() {
        let terms = Terms::new();
        let value = terms.fresh(64);
        let zero = terms.lit_term(64, 0);
        let rest =
            |of| terms.build_division(DivisionPart::Remainder, false, zero, value, terms.lit_term(64, of));
        let is = |t, value| terms.build_cmp(Cmp::Eq, t, terms.lit_term(64, value));
        let large = terms.build_cmp(Cmp::Ult, terms.lit_term(64, u64::MAX - 1), value);
        let constraints = [large, is(rest(7), 0)];
        assert!(matches!(abstraction(&terms, &constraints), Abstraction::Refuted));
        // 2^64 - 1 is one more than a multiple of seven.
        let Abstraction::Solved(values) = abstraction(&terms, &[large, is(rest(7), 1)]) else {
            panic!("it has one")
        };
        assert_eq!(values.variables().map(|(_, value)| value).collect::<Vec<_>>(), [u64::MAX]);
    }
}
