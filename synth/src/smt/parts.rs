//! A question in parts that have no unknown in common: each is asked by itself.
//!
//! Example: `x % (x ^ y) = 1` is hard, and `z < 4` beside it is not. Together both would go to the solver with what makes the first
//! one hard; apart the second is answered at once, and for the first there are only two numbers to guess.

use super::Answer;
use crate::facts::Facts;
use crate::term::{Assignment, Term, Terms, Var};
use rustc_hash::FxHashMap;

/// The answer of all parts together, each of which is asked for in turn.
pub fn by_parts(terms: &Terms, constraints: &[Term], mut ask: impl FnMut(&[Term]) -> Answer) -> Answer {
    let mut solution = Assignment::default();
    let mut is_whole = true;
    for part in parts(terms, constraints) {
        match ask(&part) {
            Answer::Satisfiable(values) => solution.extend(&values),
            Answer::Infeasible => return Answer::Infeasible,
            // Another one may have no solution at all.
            Answer::Unknown => is_whole = false,
        }
    }
    if is_whole { Answer::Satisfiable(solution) } else { Answer::Unknown }
}

/// The parts, in the order of the first of their constraints.
fn parts(terms: &Terms, constraints: &[Term]) -> Vec<Vec<Term>> {
    let facts = Facts::default();
    let variables: Vec<Vec<Var>> = constraints.iter().map(|&c| facts.variables_of(terms, c)).collect();
    if constraints.iter().zip(&variables).any(|(&c, variables)| terms.is_open(c) && variables.is_empty()) {
        // It is too large to say what is in it.
        return vec![constraints.to_vec()];
    }
    let mut groups = Groups((0..constraints.len()).collect());
    let mut first_user: FxHashMap<Var, usize> = FxHashMap::default();
    for (n, variables) in variables.iter().enumerate() {
        for &var in variables {
            let first = *first_user.entry(var).or_insert(n);
            groups.join(first, n);
        }
    }
    let mut parts: Vec<Vec<Term>> = vec![Vec::new(); constraints.len()];
    for (n, &c) in constraints.iter().enumerate() {
        parts[groups.of(n)].push(c);
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// For each element another one of its group, or the first of the group itself.
struct Groups(Vec<usize>);

impl Groups {
    /// The first of the group of `n`.
    fn of(&mut self, mut n: usize) -> usize {
        while self.0[n] != n {
            self.0[n] = self.0[self.0[n]];
            n = self.0[n];
        }
        n
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.of(a), self.of(b));
        self.0[a.max(b)] = a.min(b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use x86::domain::{Bin, Cmp};

    #[test]
    fn what_shares_an_unknown_stays_together() {
        let terms = Terms::new();
        let [x, y, z, u] = [(); 4].map(|()| terms.fresh(32));
        let sum = terms.build_bin(Bin::Add, x, z);
        let equals = |t, value| terms.build_cmp(Cmp::Eq, t, terms.lit_term(32, value));
        let of_y = equals(terms.build_bin(Bin::Mul, y, y), 9);
        let [of_x, of_sum, of_z, of_u] = [equals(x, 1), equals(sum, 2), equals(z, 3), equals(u, 4)];
        assert_eq!(
            parts(&terms, &[of_x, of_y, of_z, of_u, of_sum]),
            [vec![of_x, of_z, of_sum], vec![of_y], vec![of_u]]
        );
        assert!(parts(&terms, &[]).is_empty());
    }
}
