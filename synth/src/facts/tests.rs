//! Equations of the kinds that instructions leave, turned around.

use super::*;
use crate::term::Assignment;
use proptest::prelude::*;
use x86::domain::{Bin, Cmp, Domain};

fn value(facts: &mut Facts, terms: &Terms, t: Term) -> Option<u64> {
    let t = facts.resolve(terms, t);
    terms.value(t)
}

#[test]
fn arithmetic_is_inverted() {
    let (terms, mut facts) = (Terms::new(), Facts::default());
    let x = terms.fresh(32);
    let scaled = terms.bin(Bin::Mul, 32, x, terms.lit(32, 12));
    let sum = terms.bin(Bin::Add, 32, scaled, terms.lit(32, 7));
    facts.equate(&terms, sum, terms.lit(32, 12 * 1000 + 7)).expect("has a solution");
    // 12 = 4 * 3: the top two bits of x are free.
    let low = terms.extract(32, 0, 30, x);
    assert_eq!(value(&mut facts, &terms, low), Some(1000));
}

#[test]
fn partial_registers_bind_partially() {
    let (terms, mut facts) = (Terms::new(), Facts::default());
    let before = terms.fresh(64);
    let written = terms.fresh(8);
    let after = terms.concat(56, terms.extract(64, 8, 56, before), 8, written);
    facts.equate(&terms, after, terms.lit(64, 0x1122_3344_5566_7788)).expect("has a solution");
    assert_eq!(value(&mut facts, &terms, written), Some(0x88));
    let upper = terms.extract(64, 8, 56, before);
    assert_eq!(value(&mut facts, &terms, upper), Some(0x11_2233_4455_6677));
    assert_eq!(value(&mut facts, &terms, before), None);
}

#[test]
fn a_waiting_branch_condition_is_refuted_by_a_later_binding() {
    let (terms, mut facts) = (Terms::new(), Facts::default());
    let x = terms.fresh(32);
    let below = terms.cmp(Cmp::Ult, 32, x, terms.lit(32, 10));
    facts.assert(&terms, below).expect("undecided");
    let mark = facts.mark();
    assert_eq!(facts.equate(&terms, x, terms.lit(32, 11)), Err(Contradiction));
    facts.undo(mark);
    assert_eq!(facts.unsolved(&terms), vec![below]);
    facts.equate(&terms, x, terms.lit(32, 9)).expect("satisfies the condition");
    assert!(facts.unsolved(&terms).is_empty());
}

#[test]
fn masks_and_set_conditions_propagate() {
    let (terms, mut facts) = (Terms::new(), Facts::default());
    let (x, c) = (terms.fresh(16), terms.fresh(0));
    let masked = terms.bin(Bin::And, 16, x, terms.lit(16, 0xfff0));
    facts.equate(&terms, masked, terms.lit(16, 0xab0)).expect("has a solution");
    let middle = terms.extract(16, 4, 12, x);
    assert_eq!(value(&mut facts, &terms, middle), Some(0xab));
    assert_eq!(facts.equate(&terms, masked, terms.lit(16, 0xab1)), Err(Contradiction));
    facts.equate(&terms, terms.from_bool(8, c), terms.lit(8, 1)).expect("has a solution");
    let c = facts.resolve(&terms, c);
    assert_eq!(terms.truth(c), Some(true));
}

#[test]
fn what_was_known_agrees_as_far_as_chance_would_not() {
    let (terms, mut facts) = (Terms::new(), Facts::default());
    let x = terms.fresh(64);
    facts.equate(&terms, x, terms.lit(64, 0x7fff_1234)).expect("is news");
    assert_eq!(facts.agreed(), 0);
    let mark = facts.mark();
    facts.equate(&terms, x, terms.lit(64, 0x7fff_1234)).expect("was known");
    let of_pointer = facts.agreed();
    facts.equate(&terms, terms.lit(64, 0), terms.lit(64, 0)).expect("is so");
    let of_zero = facts.agreed() - of_pointer;
    assert!(of_pointer > 4 * of_zero && of_zero > 0, "{of_pointer} {of_zero}");
    facts.without_agreement(|facts| facts.equate(&terms, x, terms.lit(64, 0x7fff_1234))).expect("was known");
    assert_eq!(facts.agreed(), of_pointer + of_zero);
    facts.undo(mark);
    assert_eq!(facts.agreed(), 0);
}

/// `lea rax, [rax + rax*2]` and `lea rax, [rsi + rax*8 - 0x18]`: the place of an element tells its number.
#[test]
fn a_number_that_is_added_to_its_multiple_is_known() {
    let (terms, mut facts) = (Terms::new(), Facts::default());
    let number = terms.fresh(32);
    let wide = terms.build_sext(64, number);
    let triple = terms.build_bin(Bin::Add, wide, terms.build_bin(Bin::Shl, wide, terms.lit_term(64, 1)));
    let offset = terms.build_bin(Bin::Shl, triple, terms.lit_term(64, 3));
    let place = terms.build_bin(Bin::Add, offset, terms.lit_term(64, 0x5555_0000 - 0x18));
    facts.equate(&terms, place, terms.lit_term(64, 0x5555_0000 - 0x18 + 24 * 38)).expect("has a solution");
    assert_eq!(value(&mut facts, &terms, number), Some(38));
    // No element begins there.
    let mut facts = Facts::default();
    assert_eq!(facts.equate(&terms, place, terms.lit_term(64, 0x5555_0000 + 4)), Err(Contradiction));
}

/// What `cmp; cmova` leaves of a number that is kept small: which of the two it was, the condition tells.
#[test]
fn a_choice_is_taken_whose_other_side_contradicts_its_condition() {
    let (terms, mut facts) = (Terms::new(), Facts::default());
    let x = terms.fresh(64);
    let next = terms.bin(Bin::Add, 64, terms.bin(Bin::Mul, 64, x, terms.lit(64, 5)), terms.lit(64, 3));
    let is_large = terms.cmp(Cmp::Ult, 64, terms.lit(64, 1000), next);
    let less = terms.bin(Bin::Sub, 64, next, terms.lit(64, 1000));
    let kept = terms.ite(is_large, 64, less, next);
    let mark = facts.mark();
    facts.equate(&terms, kept, terms.lit(64, 4003)).expect("5003 - 1000");
    assert_eq!(value(&mut facts, &terms, x), Some(1000));
    facts.undo(mark);

    // 48 may be 5 * 9 + 3, or 1048 - 1000.
    facts.equate(&terms, kept, terms.lit(64, 48)).expect("both sides are possible");
    assert_eq!(value(&mut facts, &terms, x), None);
    assert_eq!(facts.equate(&terms, x, terms.lit(64, 10)), Err(Contradiction));
    facts.undo(mark);
    facts.assert(&terms, terms.cmp(Cmp::Ult, 64, next, terms.lit(64, 100))).expect("undecided");
    facts.equate(&terms, kept, terms.lit(64, 48)).expect("the smaller one");
    assert_eq!(value(&mut facts, &terms, x), Some(9));
}

/// A hash that multiplies by an even number: neither product has an inverse, and each was moved to the other side for the other.
#[test]
fn products_that_have_no_inverse_stay_on_their_sides() {
    let (terms, mut facts) = (Terms::new(), Facts::default());
    let [x, y] = [terms.fresh(64), terms.fresh(64)];
    let times = |t, by| terms.bin(Bin::Mul, 64, t, terms.lit(64, by));
    let rest = terms.bin(Bin::Sub, 64, terms.lit(64, 0x0190_217e), times(y, 0x5_4fee));
    facts.equate(&terms, times(x, 0x018a_d190), rest).expect("undecided");
    assert!(!facts.unsolved(&terms).is_empty());
    facts.equate(&terms, y, terms.lit(64, 1)).expect("the first product is its factor then");
    assert_eq!(value(&mut facts, &terms, terms.extract(64, 0, 60, x)), Some(1));
}

const VARIABLES: usize = 3;

/// A term of 32 bits that a recipe makes of these variables.
fn cooked(terms: &Terms, variables: &[Term; VARIABLES], recipe: &[(u8, u32)]) -> Term {
    let mut t = variables[0];
    for &(what, number) in recipe {
        let other = match number % 5 {
            n @ 0..3 => variables[n as usize],
            _ => terms.lit(32, u64::from(number)),
        };
        t = match what % 10 {
            0 => terms.bin(Bin::Add, 32, t, other),
            1 => terms.bin(Bin::Sub, 32, t, other),
            2 => terms.bin(Bin::Sub, 32, other, t),
            3 => terms.bin(Bin::Mul, 32, t, terms.lit(32, u64::from(number))),
            4 => terms.bin(Bin::Xor, 32, t, other),
            5 => terms.bin(Bin::And, 32, t, terms.lit(32, u64::from(number))),
            6 => terms.bin(Bin::Shl, 32, t, terms.lit(32, u64::from(number % 32))),
            7 => terms.zext(16, 32, terms.extract(32, number % 17, 16, t)),
            8 => terms.concat(16, terms.extract(32, 0, 16, t), 16, terms.extract(32, 16, 16, other)),
            _ => terms.ite(terms.cmp(Cmp::Ult, 32, t, other), 32, t, terms.lit(32, u64::from(number))),
        };
    }
    t
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Equations that a solution was made up for first: turning them around ends, contradicts nothing, and what it finds is of that
    /// solution.
    #[test]
    fn what_is_concluded_holds_in_every_solution(
        values in any::<[u32; VARIABLES]>(),
        equations in prop::collection::vec(
            [prop::collection::vec(any::<(u8, u32)>(), 0..6), prop::collection::vec(any::<(u8, u32)>(), 0..6)],
            1..6,
        ),
    ) {
        let (terms, mut facts, mut solution) = (Terms::new(), Facts::default(), Assignment::default());
        let variables = [(); VARIABLES].map(|()| terms.fresh(32));
        for (n, &value) in (0..).zip(&values) {
            solution.set(Var(n), u64::from(value));
        }
        for [left, right] in &equations {
            let [a, b] = [left, right].map(|recipe| cooked(&terms, &variables, recipe));
            let [at_a, at_b] = [a, b].map(|t| terms.evaluate(t, &solution, &mut FxHashMap::default()));
            let b = terms.bin(Bin::Add, 32, b, terms.bin(Bin::Sub, 32, at_a, at_b));
            prop_assert!(facts.equate(&terms, a, b).is_ok());
        }
        for (&variable, &value) in variables.iter().zip(&values) {
            let found = facts.resolve(&terms, variable);
            prop_assert!(terms.value(found).is_none_or(|found| found == u64::from(value)));
        }
    }
}
