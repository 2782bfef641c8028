//! Products that are quotients: where a program divides by a constant, compilers multiply by its reciprocal and take the upper half
//! (Granlund and Montgomery, "Division by invariant integers using multiplication", PLDI 1994).
//!
//! Example: the upper half of `x * 0xcccccccccccccccd` shifted right by three is `x / 10`. As a product it is 128 bits wide and hard for
//! the solver; that the quotient times ten is `x` but for a rest below ten is easy, and says as much.

use super::lower::Lowering;
use crate::term::{Node, Term, Terms, mask};
use x86::domain::Bin;
use z3::ast::{BV, Bool};

/// A smaller factor is none.
const LEAST: u64 = 1 << 16;
/// What the upper half is shifted by at the most.
const MOST_SHIFT: u32 = 24;
/// Divisors from here on are not looked for.
const MOST_DIVISOR: u128 = 1 << 32;
/// What programs divide by, powers of two left out: the base of printed numbers first, then sizes of elements, units of time.
const DIVISORS: [u128; 14] = [10, 3, 5, 7, 9, 6, 11, 12, 13, 24, 25, 60, 100, 1000];

/// How a quotient comes from the upper half of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Division {
    divisor: u64,
    shift: u32,
    /// The factor has one bit more than the register: the other factor is added to the upper half.
    adds: bool,
    signed: bool,
}

impl Division {
    /// By what is divided if the upper half of a product with `factor` is taken, of numbers of `w` bits; with each of them.
    fn of(w: u32, factor: u64, signed: bool) -> Option<Division> {
        if factor < LEAST {
            return None;
        }
        let is_negative = signed && factor >> (w - 1) & 1 == 1;
        let short = u128::from(factor);
        let candidates = [(short, is_negative), (short + (1 << w), true)];
        let shifts = |(factor, adds)| (0..=MOST_SHIFT).map(move |shift| (factor, adds, shift));
        let mut wanted = candidates.into_iter().take(if signed { 1 } else { 2 }).flat_map(shifts);
        wanted.find_map(|(factor, adds, shift)| {
            let power = 1_u128 << (w + shift);
            let divisor = power / factor + 1;
            // By so much the factor may be too large and still give the whole part of each quotient.
            let most = 1_u128 << if signed { shift + 1 } else { shift };
            let is_exact = (3..MOST_DIVISOR).contains(&divisor) && divisor * factor - power <= most;
            is_exact.then(|| Division {
                divisor: u64::try_from(divisor).unwrap_or(u64::MAX),
                shift,
                adds,
                signed,
            })
        })
    }
}

/// What is known of a product's upper half, if it is a quotient: easy for the solver, and true of all numbers.
pub(super) fn lemma(lowering: &mut Lowering<'_>, t: Term) -> Option<Bool> {
    let terms = lowering.terms();
    let Node::Bin(op @ (Bin::MulHiU | Bin::MulHiS), a, b) = terms.node(t) else { return None };
    let (dividend, factor) = match (terms.value(a), terms.value(b)) {
        (None, Some(factor)) => (a, factor),
        (Some(factor), None) => (b, factor),
        _ => return None,
    };
    let division = Division::of(terms.width(t), factor, op == Bin::MulHiS)?;
    let (high, dividend) = (lowering.vector(t), lowering.vector(dividend));
    Some(if division.signed {
        signed_lemma(division, terms.width(t), &high, &dividend)
    } else {
        unsigned_lemma(division, terms.width(t), &high, &dividend)
    })
}

/// More bits than the numbers have, so that nothing overflows.
const ROOM: u32 = 2;

fn unsigned_lemma(division: Division, w: u32, high: &BV, dividend: &BV) -> Bool {
    let [number, most] = [division.divisor, mask(w) / division.divisor].map(|n| BV::from_u64(n, w + ROOM));
    let (high, dividend) = (high.zero_ext(ROOM), dividend.zero_ext(ROOM));
    let sum = if division.adds { high.bvadd(&dividend) } else { high };
    let quotient = sum.bvlshr(BV::from_u64(division.shift.into(), w + ROOM));
    let rest = dividend.bvsub(quotient.bvmul(&number));
    Bool::and(&[quotient.bvule(&most), rest.bvult(&number)])
}

fn signed_lemma(division: Division, w: u32, high: &BV, dividend: &BV) -> Bool {
    let literal = |n: u64| BV::from_u64(n, w + ROOM);
    let (number, most) = (literal(division.divisor), literal((1 << (w - 1)) / division.divisor));
    let (high, dividend) = (high.sign_ext(ROOM), dividend.sign_ext(ROOM));
    let sum = if division.adds { high.bvadd(&dividend) } else { high };
    let whole = sum.bvashr(literal(division.shift.into()));
    let is_negative = dividend.bvslt(literal(0));
    // The quotient is rounded to zero, and what was shifted to below.
    let quotient = is_negative.ite(&whole.bvadd(literal(1)), &whole);
    let rest = dividend.bvsub(quotient.bvmul(&number));
    let within = |number: &BV, most: &BV| Bool::and(&[number.bvsge(most.bvneg()), number.bvsle(most)]);
    let has_sign = |rest: &BV| is_negative.ite(&rest.bvsle(literal(0)), &rest.bvsge(literal(0)));
    Bool::and(&[
        within(&quotient, &most),
        within(&rest, &number.bvsub(literal(1))),
        has_sign(&rest),
        has_sign(&quotient),
    ])
}

/// Factors that compilers multiply by where a program divides by a constant, the likeliest first.
pub(super) fn factors() -> impl Iterator<Item = u64> {
    let factor = |divisor: u128| u64::try_from((1_u128 << (64 + divisor.ilog2())).div_ceil(divisor));
    DIVISORS.into_iter().filter_map(move |divisor| factor(divisor).ok())
}

/// The unknowns that stand where such a factor may: in a register that was loaded before a loop, say.
pub(super) fn unknown_factors(terms: &Terms, reachable: &[Term]) -> Vec<Term> {
    let is_lone = |t: Term| matches!(terms.node(t), Node::Var(_));
    let mut found: Vec<Term> = reachable
        .iter()
        .filter_map(|&t| match terms.node(t) {
            Node::Bin(Bin::MulHiU, a, b) if terms.is_open(a) && terms.is_open(b) => Some([a, b]),
            _ => None,
        })
        .flatten()
        .filter(|&t| is_lone(t) && terms.width(t) == 64)
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use z3::ast::Ast;

    #[test]
    fn what_compilers_multiply_by_tells_the_divisor() {
        let of = |w, factor, signed| Division::of(w, factor, signed).map(|d| (d.divisor, d.shift, d.adds));
        assert_eq!(of(64, 0xcccc_cccc_cccc_cccd, false), Some((5, 2, false)), "and 10, with one more shift");
        assert_eq!(of(64, 0x2492_4924_9249_2493, false), Some((7, 3, true)));
        assert_eq!(of(64, 0x6666_6666_6666_6667, true), Some((5, 1, false)));
        assert_eq!(of(32, 0x9249_2493, true), Some((7, 2, true)));
        assert_eq!(of(64, 0x1234_5678_9abc_def1, false), None);
        assert_eq!(of(64, 1000, false), None);
    }

    /// The lemma holds of a number and of what the processor has for the upper half, and of no other quotient.
    fn check(w: u32, factor: u64, signed: bool, dividend: u64) {
        let Some(division) = Division::of(w, factor, signed) else { return };
        let terms = Terms::new();
        let op = if signed { Bin::MulHiS } else { Bin::MulHiU };
        let [x, c] = [dividend & mask(w), factor].map(|n| terms.lit_term(w, n));
        let high = terms.value(terms.build_bin(op, x, c)).expect("of literals");
        let lemma = if signed { signed_lemma } else { unsigned_lemma };
        let holds = |high: u64| {
            let lemma = lemma(division, w, &BV::from_u64(high, w), &BV::from_u64(dividend & mask(w), w));
            lemma.simplify().as_bool().expect("of literals")
        };
        assert!(holds(high), "{division:?} of {dividend:#x}");
        let another = high.wrapping_add(1 << division.shift) & mask(w);
        assert!(!holds(another), "{division:?} of {dividend:#x}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn lemmas_are_true(divisor in 3_u128..100_000, any in any::<u64>(), near in 0_u64..400, wide in any::<bool>()) {
            prop_assume!(!divisor.is_power_of_two());
            let w = if wide { 64 } else { 32 };
            for shift in 0..=divisor.ilog2() + 1 {
                let factor = (1_u128 << (w + shift)).div_ceil(divisor);
                let factor = u64::try_from(factor & u128::from(mask(w))).expect("masked");
                for dividend in [any, near, near.wrapping_neg(), (1 << (w - 1)) | near] {
                    check(w, factor, false, dividend);
                    check(w, factor, true, dividend);
                }
            }
        }
    }
}
