//! Unknowns that only take what is left over.
//!
//! Example: of `{high, 0x33} = x + 0x30` with `high` in no other constraint, `high` is whatever the sum has there. What is asked is
//! whether the low byte can be 0x33: an unknown and 24 bits less. A store of a byte leaves such unknowns, and a shift: what was above
//! the byte, what was shifted out.

use super::Preference;
use crate::facts::Facts;
use crate::term::{Assignment, Node, Plan, Term, Terms, Var};
use rustc_hash::FxHashMap;
use x86::domain::Cmp;

/// A question without such unknowns.
pub(super) struct Projection {
    /// It has a solution if and only if the whole has one.
    pub constraints: Vec<Term>,
    /// What the others are then, each in terms of what is left and of those behind it.
    leftovers: Vec<(Var, Term)>,
}

impl Projection {
    /// Leaves out what only takes what is left over.
    pub(super) fn of(terms: &Terms, constraints: &[Term]) -> Projection {
        let mut projection = Projection { constraints: constraints.to_vec(), leftovers: Vec::new() };
        while projection.shrink(terms) {}
        projection
    }

    /// Gives what was left out its values, in a solution of the rest; what nothing else asks for is as preferred.
    pub(super) fn complete(&self, terms: &Terms, preferences: &[Preference], solution: &mut Assignment) {
        let preferred: FxHashMap<Var, u64> = preferences.iter().map(|p| (p.var, p.value)).collect();
        let facts = Facts::default();
        for &(var, leftover) in self.leftovers.iter().rev() {
            for free in facts.variables_of(terms, leftover) {
                let value = solution.get(free).or_else(|| preferred.get(&free).copied());
                solution.set(free, value.unwrap_or(0));
            }
            let value = Plan::new(terms, &[leftover]).evaluate(solution).next();
            solution.set(var, value.unwrap_or(0));
        }
    }

    /// Whether something was left out.
    fn shrink(&mut self, terms: &Terms) -> bool {
        let Some(uses) = uses(terms, &self.constraints) else { return false };
        let before = self.leftovers.len();
        let mut rest = Vec::new();
        for &constraint in &self.constraints {
            match without_leftovers(terms, constraint, &uses, &mut self.leftovers) {
                Some(parts) => rest.extend(parts),
                None => rest.push(constraint),
            }
        }
        self.constraints = rest;
        self.leftovers.len() > before
    }
}

/// In how many constraints each unknown is; nothing if one is too large to say what is in it.
fn uses(terms: &Terms, constraints: &[Term]) -> Option<FxHashMap<Var, usize>> {
    let facts = Facts::default();
    let mut uses = FxHashMap::default();
    for &constraint in constraints {
        let variables = facts.variables_of(terms, constraint);
        if variables.is_empty() && terms.is_open(constraint) {
            return None;
        }
        variables.into_iter().for_each(|var| *uses.entry(var).or_insert(0) += 1);
    }
    Some(uses)
}

/// What the constraint says of the rest, if it is an equation one side of which has unknowns that are nowhere else.
fn without_leftovers(
    terms: &Terms,
    constraint: Term,
    uses: &FxHashMap<Var, usize>,
    leftovers: &mut Vec<(Var, Term)>,
) -> Option<Vec<Term>> {
    let Node::Cmp(Cmp::Eq, a, b) = terms.node(constraint) else { return None };
    let facts = Facts::default();
    for (side, other) in [(a, b), (b, a)] {
        let pieces = pieces(terms, side);
        let is_leftover = |piece: Term| match terms.node(piece) {
            Node::Var(var) => {
                let elsewhere = pieces.iter().map(|&(_, piece)| piece).chain([other]);
                let occurs = elsewhere.filter(|&t| facts.variables_of(terms, t).contains(&var)).count();
                (uses.get(&var) == Some(&1) && occurs == 1).then_some(var)
            }
            _ => None,
        };
        let known: Vec<Option<Var>> = pieces.iter().map(|&(_, piece)| is_leftover(piece)).collect();
        if known.iter().all(Option::is_none) {
            continue;
        }
        let mut left = Vec::new();
        for (&(low, piece), leftover) in pieces.iter().zip(known) {
            let of_other = terms.build_extract(low, terms.width(piece), other);
            match leftover {
                Some(var) => leftovers.push((var, of_other)),
                None => left.push(terms.build_cmp(Cmp::Eq, piece, of_other)),
            }
        }
        left.retain(|&c| terms.truth(c) != Some(true));
        return Some(left);
    }
    None
}

/// What the term is put together of: the lowest bit of each piece, and the piece.
fn pieces(terms: &Terms, t: Term) -> Vec<(u32, Term)> {
    let (mut found, mut todo) = (Vec::new(), vec![(0, t)]);
    while let Some((low, t)) = todo.pop() {
        match terms.node(t) {
            Node::Concat(high, rest) => todo.extend([(low, rest), (low + terms.width(rest), high)]),
            Node::Zext(of) => {
                let zeros = terms.lit_term(terms.width(t) - terms.width(of), 0);
                found.push((low + terms.width(of), zeros));
                todo.push((low, of));
            }
            _ => found.push((low, t)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use x86::domain::Bin;

    #[test]
    fn what_takes_what_is_left_over_is_left_out_and_told_afterwards() {
        let terms = Terms::new();
        let [x, high, out] = [32, 24, 3].map(|w| terms.fresh(w));
        let sum = terms.build_bin(Bin::Add, x, terms.lit_term(32, 0x1230));
        let stored = terms.build_cmp(Cmp::Eq, terms.build_concat(high, terms.lit_term(8, 0x33)), sum);
        let shifted = terms.build_concat(terms.lit_term(29, 7), out);
        let product = terms.build_bin(Bin::Mul, x, x);
        let constraints = [stored, terms.build_cmp(Cmp::Eq, shifted, product)];
        let projection = Projection::of(&terms, &constraints);
        assert_eq!(projection.leftovers.len(), 2);
        let facts = Facts::default();
        assert!(projection.constraints.iter().all(|&c| facts.variables_of(&terms, c).len() == 1));

        let Node::Var(of_x) = terms.node(x) else { panic!("a variable") };
        let mut solution = Assignment::default();
        solution.set(of_x, 3);
        projection.complete(&terms, &[], &mut solution);
        let mut whole = Plan::new(&terms, &constraints);
        let first: Vec<u64> = whole.evaluate(&solution).collect();
        assert_eq!(first, [1, 0], "9 is not 7 shifted");
        solution.set(of_x, 0x1_0003);
        projection.complete(&terms, &[], &mut solution);
        assert_eq!(solution.variables().count(), 3);
    }

    #[test]
    fn what_is_used_elsewhere_stays() {
        let terms = Terms::new();
        let [x, high] = [16, 8].map(|w| terms.fresh(w));
        let stored = terms.build_cmp(Cmp::Eq, terms.build_concat(high, terms.lit_term(8, 1)), x);
        let is_small = terms.build_cmp(Cmp::Ult, high, terms.lit_term(8, 9));
        let among_itself =
            terms.build_cmp(Cmp::Eq, terms.build_concat(high, high), terms.build_bin(Bin::Mul, x, x));
        assert_eq!(Projection::of(&terms, &[among_itself]).constraints, [among_itself]);
        // The low half is x itself, whose high half is used.
        let rest =
            Projection::of(&terms, &[stored, is_small, terms.build_cmp(Cmp::Ult, x, terms.lit_term(16, 99))]);
        assert!(rest.leftovers.is_empty());
    }
}
