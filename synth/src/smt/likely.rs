//! Values that are likely in a program: what guesses are made of.

use super::reciprocal;
use crate::term::{Assignment, Node, Term, Terms, Var};
use rustc_hash::FxHashSet;
use std::cmp::Reverse;
use x86::domain::Bin;

/// Numbers up to this are tried one by one.
const SMALL: u64 = 64;
/// Larger numbers that programs like.
const LIKELY: [u64; 18] =
    [70, 80, 90, 96, 99, 100, 127, 128, 200, 255, 256, 300, 400, 500, 512, 1000, 1024, 4096];
/// Values tried for one variable.
const MOST_CANDIDATES: usize = 320;
/// A literal above this may be the reciprocal that a division by a constant became.
const LEAST_RECIPROCAL: u64 = 1 << 16;
/// Divisors above this are not recognized.
const MOST_DIVISOR: u64 = 1024;
/// A divisor may be up to two to this power times what its literal tells.
const MOST_SHIFT: u32 = 3;
/// So many divisors are looked at.
const MOST_DIVISORS: usize = 3;
/// So many of the newest values of the earlier solution are taken for results.
const MOST_RESULTS: usize = 6;
/// Real numbers of this size are computed with; other literals are something else.
const USUAL_REALS: std::ops::Range<f64> = 1e-9..1e15;
/// So many real numbers are combined with each other.
const MOST_REALS: usize = 8;

/// Likely values: small numbers; from what the earlier solution's values came by an addition, a subtraction or a division
/// by a constant of the constraints, of real numbers too; numbers that programs like; and the literals with their neighbours.
pub(super) fn likely_values(terms: &Terms, constraints: &[Term], start: &Assignment) -> Vec<u64> {
    let literals = literals(terms, constraints);
    let mut found: Vec<u64> = (0..=SMALL).collect();
    let results = newest_values(terms, start);
    let divisors = literals.iter().filter_map(|&v| divisor_of(v)).take(MOST_DIVISORS);
    for divisor in divisors.flat_map(|d| (0..=MOST_SHIFT).map(move |shift| d << shift)) {
        found.extend(results.iter().map(|quotient| quotient.wrapping_mul(divisor)));
    }
    for (n, &x) in results.iter().enumerate() {
        found.extend(results[n..].iter().flat_map(|&y| [x.wrapping_add(y), x.wrapping_sub(y)]));
    }
    found.extend(reciprocals(terms, constraints));
    found.extend(reals(terms, constraints, &literals));
    found.extend(LIKELY);
    found.extend(literals.iter().flat_map(|&v| [v, v.wrapping_add(1), v.wrapping_sub(1), v.wrapping_neg()]));
    let mut unique = FxHashSet::default();
    found.retain(|&v| unique.insert(v));
    found.truncate(MOST_CANDIDATES);
    found
}

/// The values of the variables that came last.
fn newest_values(terms: &Terms, start: &Assignment) -> Vec<u64> {
    let is_number = |var: Var| terms.width(terms.variable(var)) > 1;
    let mut values: Vec<(Var, u64)> = start.variables().filter(|&(var, _)| is_number(var)).collect();
    values.sort_unstable_by_key(|&(var, _)| Reverse(var));
    values.into_iter().take(MOST_RESULTS).map(|(_, value)| value).collect()
}

/// The divisor, up to a power of two, if `literal` is the factor by which compilers multiply instead: the next whole number
/// above a power of two divided by it (Granlund and Montgomery, "Division by invariant integers using multiplication",
/// 1994); what the product is shifted by tells the rest.
fn divisor_of(literal: u64) -> Option<u64> {
    if literal < LEAST_RECIPROCAL || literal.is_power_of_two() {
        return None;
    }
    let factor = u128::from(literal);
    let powers = (1..=MOST_DIVISOR.ilog2()).map(|more| 1_u128 << (literal.ilog2() + more));
    let of = |power: u128| Some(power.div_ceil(factor)).filter(|divisor| divisor * factor - power < *divisor);
    powers
        .filter_map(of)
        .find_map(|divisor| u64::try_from(divisor).ok())
        .filter(|d| (3..=MOST_DIVISOR).contains(d))
}

/// Reciprocals, if the upper half of a product of two unknowns is taken: one of the two is one as a rule, in a register that was
/// loaded long before.
fn reciprocals(terms: &Terms, constraints: &[Term]) -> impl Iterator<Item = u64> {
    let divides = any_term(terms, constraints, |t| match terms.node(t) {
        Node::Bin(Bin::MulHiU | Bin::MulHiS, a, b) => terms.is_open(a) && terms.is_open(b),
        _ => false,
    });
    reciprocal::factors().filter(move |_| divides)
}

/// What literals that look like real numbers came from by one operation, if the constraints compute with such numbers.
fn reals(terms: &Terms, constraints: &[Term], literals: &[u64]) -> Vec<u64> {
    let mut found = Vec::new();
    if !any_term(terms, constraints, |t| matches!(terms.node(t), Node::Opaque { .. })) {
        return found;
    }
    let is_usual = |v: f64| USUAL_REALS.contains(&v.abs());
    let doubles = literals.iter().map(|&v| f64::from_bits(v)).filter(|&v| is_usual(v));
    for (a, b) in pairs(&doubles.take(MOST_REALS).collect::<Vec<_>>()) {
        found.extend([a - b, b - a, a + b, a / b, b / a, a * b].map(f64::to_bits));
    }
    let singles = literals.iter().filter_map(|&v| Some(f32::from_bits(u32::try_from(v).ok()?)));
    let singles = singles.filter(|&v| is_usual(v.into()));
    for (a, b) in pairs(&singles.take(MOST_REALS).collect::<Vec<_>>()) {
        found.extend([a - b, b - a, a + b, a / b, b / a, a * b].map(|v| u64::from(v.to_bits())));
    }
    found
}

fn pairs<T: Copy>(values: &[T]) -> impl Iterator<Item = (T, T)> + '_ {
    values.iter().enumerate().flat_map(|(n, &a)| values[..n].iter().map(move |&b| (a, b)))
}

/// The literals of the constraints, each once.
fn literals(terms: &Terms, constraints: &[Term]) -> Vec<u64> {
    let mut found = Vec::new();
    any_term(terms, constraints, |t| {
        found.extend(terms.value(t));
        false
    });
    found
}

/// Whether some term that the constraints are made of is such a one; each is looked at once.
fn any_term(terms: &Terms, constraints: &[Term], mut is_such: impl FnMut(Term) -> bool) -> bool {
    let (mut todo, mut seen) = (constraints.to_vec(), FxHashSet::default());
    while let Some(t) = todo.pop() {
        if seen.insert(t) {
            if is_such(t) {
                return true;
            }
            terms.operands(t, |o| todo.push(o));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reciprocals_tell_their_divisors() {
        for (factor, divisor) in [
            (0x6666_6667, Some(5)),
            (0xcccc_cccc_cccc_cccd, Some(5)),
            (0xaaaa_aaab, Some(3)),
            (0x1062_4dd3, Some(125)),
            (0x8000_0000, None),
            (0x1234_5678, None),
            (1000, None),
        ] {
            assert_eq!(divisor_of(factor), divisor, "{factor:#x}");
        }
    }
}
