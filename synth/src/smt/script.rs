//! A refutation as an SMT-LIB script: any solver, asked from outside, should say `unsat`.
//!
//! It is written from the terms, not from what was given to the solver here: so it checks the way there, too. What was built
//! on a conclusion (the contents of memory at an address) is asserted only for the case that the conclusion holds, so a
//! wrong conclusion makes the script satisfiable.

use crate::facts::Claim;
use crate::past::audit::{By, OpaqueResult, Refutation};
use crate::term::{DivisionPart, Node, Term, Terms};
use std::collections::BTreeMap;
use std::fmt::Write;
use x86::domain::{Bin, Cmp, Un};

/// The script. `name` gives the text of the instruction at an address, for comments.
#[must_use]
pub fn script(terms: &Terms, refutation: &Refutation, name: &dyn Fn(u64) -> String) -> String {
    let roots = refutation.claims.iter().flat_map(Claim::terms);
    let order = terms.reachable(roots.chain(refutation.differs.map(|(t, _)| t)));
    let functions = functions(terms, &order);
    let mut script = Script { terms, text: String::new(), rests: 0 };
    script.headline(refutation);
    script.line(format_args!("(set-info :smt-lib-version 2.6)"));
    let logic = if functions.is_empty() { "QF_BV" } else { "QF_UFBV" };
    script.line(format_args!("(set-logic {logic})\n(set-info :status unsat)"));
    for (function, (arguments, result)) in &functions {
        script.line(format_args!("(declare-fun {function} ({}) {result})", arguments.join(" ")));
    }
    for &t in &order {
        script.define(t);
    }
    for result in &refutation.results {
        script.result(result);
    }
    for claim in &refutation.claims {
        script.claim(claim, name);
    }
    if let Some((t, value)) = refutation.differs {
        script.line(format_args!("; the address that was concluded is another one"));
        let value = literal(value, terms.width(t));
        script
            .line(format_args!("(assert {})", script.under(&format!("(distinct {} {value})", id(terms, t)))));
    }
    script.line(format_args!("(check-sat)\n(exit)"));
    script.text
}

/// Text that grows.
struct Script<'t> {
    terms: &'t Terms,
    text: String,
    /// How many conclusions the next claim rests on.
    rests: usize,
}

impl Script<'_> {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("memory takes what is written");
    }

    /// What it is, for people.
    fn headline(&mut self, refutation: &Refutation) {
        let by = match refutation.by {
            By::Propagation => "refuted by propagation",
            By::Solver => "refuted by the solver",
            By::Address => "an address that an older instruction tells: it cannot be another one",
        };
        let steps = refutation.claims.iter().filter(|claim| matches!(claim, Claim::Step(_))).count();
        self.line(format_args!("; {by}; {steps} instructions, the last one that ran first"));
        match refutation.unplaced_stores {
            0 => {}
            n => self.line(format_args!(
                "; assumed: the {n} stores whose addresses are not known touch nothing that older instructions used"
            )),
        }
    }

    /// Names a term.
    fn define(&mut self, t: Term) {
        let (name, sort) = (id(self.terms, t), sort(self.terms.width(t)));
        match self.terms.node(t) {
            Node::Var(_) => self.line(format_args!("(declare-const {name} {sort})")),
            _ => {
                let body = self.body(t);
                self.line(format_args!("(define-fun {name} () {sort} {body})"));
            }
        }
    }

    /// What a term is made of.
    fn body(&self, t: Term) -> String {
        let (terms, w) = (self.terms, self.terms.width(t));
        let id = |t| id(terms, t);
        match terms.node(t) {
            Node::Var(_) => id(t),
            Node::Lit(value) => literal(value, w),
            Node::Bool(truth) => truth.to_string(),
            Node::Bin(op, a, b) => binary(op, w, &id(a), &id(b)),
            Node::Un(op, a) => unary(op, w, &id(a)),
            Node::Zext(a) => format!("((_ zero_extend {}) {})", w - terms.width(a), id(a)),
            Node::Sext(a) => format!("((_ sign_extend {}) {})", w - terms.width(a), id(a)),
            Node::Extract { low, of } => extract(u32::from(low) + w - 1, u32::from(low), &id(of)),
            Node::Concat(high, low) => format!("(concat {} {})", id(high), id(low)),
            Node::Ite(c, a, b) => format!("(ite {} {} {})", id(c), id(a), id(b)),
            Node::Divide { part, signed, high, low, divisor } => {
                divide(part, signed, terms.width(divisor), [&id(high), &id(low), &id(divisor)])
            }
            Node::Opaque { args, .. } => {
                let arguments: Vec<String> = terms.arguments(args).iter().map(|&a| id(a)).collect();
                format!("({} {})", function(terms, t), arguments.join(" "))
            }
            Node::Cmp(op, a, b) => format!("({} {} {})", comparison(op), id(a), id(b)),
            Node::Not(a) => format!("(not {})", id(a)),
            Node::And(a, b) => format!("(and {} {})", id(a), id(b)),
            Node::Xor(a, b) => format!("(xor {} {})", id(a), id(b)),
        }
    }

    /// What the software CPU gives.
    fn result(&mut self, OpaqueResult { term, arguments, value }: &OpaqueResult) {
        let Node::Opaque { args, .. } = self.terms.node(*term) else { return };
        let widths = self.terms.arguments(args);
        let arguments = arguments.iter().zip(&widths);
        let arguments: Vec<String> =
            arguments.map(|(value, &t)| literal(*value, self.terms.width(t))).collect();
        let (function, value) = (function(self.terms, *term), literal(*value, self.terms.width(*term)));
        self.line(format_args!("(assert (= ({function} {}) {value}))", arguments.join(" ")));
    }

    fn claim(&mut self, claim: &Claim, name: &dyn Fn(u64) -> String) {
        let terms = self.terms;
        match *claim {
            Claim::Step(address) => self.line(format_args!("; {address:#x} {}", name(address))),
            Claim::Equal(a, b) if a == b => {}
            Claim::Equal(a, b) => self.assert(&format!("(= {} {})", id(terms, a), id(terms, b))),
            Claim::Holds(t) => self.assert(&id(terms, t)),
            Claim::Rests(t, value) => {
                let holds = format!("(= {} {})", id(terms, t), literal(value, terms.width(t)));
                let all = match self.rests {
                    0 => holds,
                    before => format!("(and rests{before} {holds})"),
                };
                let number = self.rests + 1;
                self.rests = number;
                self.line(format_args!("(define-fun rests{number} () Bool {all})"));
            }
            Claim::Impossible(why) => {
                self.line(format_args!("; the core excludes {why}"));
                self.assert("false");
            }
        }
    }

    fn assert(&mut self, what: &str) {
        let what = self.under(what);
        self.line(format_args!("(assert {what})"));
    }

    /// For the case that the conclusions hold that it rests on.
    fn under(&self, what: &str) -> String {
        match self.rests {
            0 => what.to_owned(),
            n => format!("(=> rests{n} {what})"),
        }
    }
}

/// A term's name.
fn id(terms: &Terms, t: Term) -> String {
    let kind = if matches!(terms.node(t), Node::Var(_)) { 'v' } else { 't' };
    format!("{kind}{}", t.index())
}

fn sort(width: u32) -> String {
    if width == 0 { "Bool".to_owned() } else { format!("(_ BitVec {width})") }
}

fn literal(value: u64, width: u32) -> String {
    match width {
        0 => (value != 0).to_string(),
        width => format!("(_ bv{value} {width})"),
    }
}

fn extract(high: u32, low: u32, of: &str) -> String {
    format!("((_ extract {high} {low}) {of})")
}

fn comparison(op: Cmp) -> &'static str {
    match op {
        Cmp::Eq => "=",
        Cmp::Ult => "bvult",
        Cmp::Slt => "bvslt",
    }
}

fn binary(op: Bin, w: u32, a: &str, b: &str) -> String {
    let high = |extend: &str| {
        let wide = |t| format!("((_ {extend} {w}) {t})");
        extract(2 * w - 1, w, &format!("(bvmul {} {})", wide(a), wide(b)))
    };
    let name = match op {
        Bin::Add => "bvadd",
        Bin::Sub => "bvsub",
        Bin::And => "bvand",
        Bin::Or => "bvor",
        Bin::Xor => "bvxor",
        Bin::Mul => "bvmul",
        Bin::Shl => "bvshl",
        Bin::Shr => "bvlshr",
        Bin::Sar => "bvashr",
        Bin::MulHiU => return high("zero_extend"),
        Bin::MulHiS => return high("sign_extend"),
    };
    format!("({name} {a} {b})")
}

fn unary(op: Un, w: u32, a: &str) -> String {
    let bit = |n: u32| extract(n, n, a);
    let count = |n: u32| literal(u64::from(n), w);
    let first =
        |rest: String, n: u32, value: u32| format!("(ite (= {} #b1) {} {rest})", bit(n), count(value));
    match op {
        Un::Popcount => (0..w).fold(count(0), |sum, n| {
            let bit = if w == 1 { bit(n) } else { format!("((_ zero_extend {}) {})", w - 1, bit(n)) };
            format!("(bvadd {sum} {bit})")
        }),
        // The highest set bit wins: so it is tested last, outermost.
        Un::LeadingZeros => (0..w).fold(count(w), |rest, n| first(rest, n, w - 1 - n)),
        Un::TrailingZeros => (0..w).rev().fold(count(w), |rest, n| first(rest, n, n)),
    }
}

/// A result of dividing a number of 2 * `w` bits.
fn divide(part: DivisionPart, signed: bool, w: u32, [high, low, divisor]: [&str; 3]) -> String {
    let [quotient, remainder, extend] = match signed {
        true => ["bvsdiv", "bvsrem", "sign_extend"],
        false => ["bvudiv", "bvurem", "zero_extend"],
    };
    let wide = |t: &str| format!("((_ {extend} {w}) {t})");
    let result = |operation| format!("({operation} (concat {high} {low}) {})", wide(divisor));
    match part {
        DivisionPart::Quotient => extract(w - 1, 0, &result(quotient)),
        DivisionPart::Remainder => extract(w - 1, 0, &result(remainder)),
        DivisionPart::Fault => {
            let narrow = wide(&extract(w - 1, 0, &result(quotient)));
            let by_zero = format!("(= {divisor} {})", literal(0, w));
            format!("(or {by_zero} (distinct {} {narrow}))", result(quotient))
        }
    }
}

/// The functions of operations outside bit-vector arithmetic: the sorts of their arguments, and of their result.
fn functions(terms: &Terms, order: &[Term]) -> BTreeMap<String, (Vec<String>, String)> {
    let of = |&t: &Term| {
        let Node::Opaque { args, .. } = terms.node(t) else { return None };
        let arguments = terms.arguments(args).iter().map(|&a| sort(terms.width(a))).collect();
        Some((function(terms, t), (arguments, sort(terms.width(t)))))
    };
    order.iter().filter_map(of).collect()
}

/// The name of an operation's function; the widths are part of it.
fn function(terms: &Terms, t: Term) -> String {
    let Node::Opaque { op, part, args } = terms.node(t) else { return id(terms, t) };
    let mut name = format!("{op:?} {part} {}", terms.width(t));
    for &argument in &terms.arguments(args) {
        write!(name, " {}", terms.width(argument)).expect("memory takes what is written");
    }
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use proptest::prelude::*;
    use z3::{SatResult, Solver};

    /// A random term of 32 bits over four unknowns.
    fn term(terms: &Terms, unknowns: &[Term; 4], recipe: &[(u8, u32)]) -> Term {
        let mut stack = vec![unknowns[0]];
        for &(op, value) in recipe {
            let a = stack.pop().unwrap_or(unknowns[1]);
            let b = match op & 3 {
                0 => terms.lit_term(32, u64::from(value)),
                _ => unknowns[(value & 3) as usize],
            };
            let (low, width) = (value & 15, 1 + (value >> 4 & 15));
            let zero = terms.lit_term(32, 0);
            let part = if op & 4 == 0 { DivisionPart::Quotient } else { DivisionPart::Remainder };
            stack.push(match op >> 3 & 15 {
                0 => terms.build_bin(Bin::Add, a, b),
                1 => terms.build_bin(Bin::Sub, a, b),
                2 => terms.build_bin(Bin::And, a, b),
                3 => terms.build_bin(Bin::Xor, a, b),
                4 => terms.build_bin(Bin::Mul, a, b),
                5 => terms.build_bin(Bin::Shl, a, terms.lit_term(32, u64::from(value & 31))),
                6 => terms.build_bin(Bin::Sar, a, terms.lit_term(32, u64::from(value & 31))),
                7 => terms.build_zext(32, terms.build_extract(low, width, a)),
                8 => terms.build_sext(32, terms.build_extract(low, width, a)),
                9 => terms.build_concat(terms.build_extract(0, 16, a), terms.build_extract(16, 16, b)),
                10 => terms.build_ite(terms.build_cmp(Cmp::Slt, a, b), a, b),
                11 => terms.build_ite(terms.build_cmp(Cmp::Ult, a, b), b, a),
                12 => terms.build_un(Un::Popcount, a),
                13 => terms.build_un(if op & 4 == 0 { Un::LeadingZeros } else { Un::TrailingZeros }, a),
                14 => terms.build_division(
                    part,
                    false,
                    zero,
                    a,
                    terms.build_bin(Bin::Or, b, terms.lit_term(32, 1)),
                ),
                _ => terms.build_bin(Bin::MulHiU, a, b),
            });
        }
        stack.pop().unwrap_or(unknowns[0])
    }

    fn ask(script: &str) -> SatResult {
        let solver = Solver::new();
        let mut params = z3::Params::new();
        params.set_u32("rlimit", 3_000_000);
        solver.set_params(&params);
        solver.from_string(script.replace("(check-sat)\n(exit)\n", ""));
        assert!(!solver.get_assertions().is_empty() || !script.contains("(assert"), "{script}");
        solver.check()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// What propagation refutes, a solver refutes that reads the script.
        #[test]
        fn contradictions_are_confirmed_from_outside(
            recipes in proptest::collection::vec(
                (proptest::collection::vec(any::<(u8, u32)>(), 0..5), any::<u32>(), any::<bool>()), 1..12
            )
        ) {
            let (terms, mut facts) = (Terms::new(), Facts::default());
            let unknowns = std::array::from_fn(|_| terms.fresh(32));
            for (recipe, value, is_equation) in recipes {
                let t = term(&terms, &unknowns, &recipe);
                let value = terms.lit_term(32, u64::from(value));
                let learned = match is_equation {
                    true => facts.equate(&terms, t, value),
                    false => facts.assert(&terms, terms.build_cmp(Cmp::Ult, t, value)),
                };
                if learned.is_err() {
                    let claims = facts.claims().to_vec();
                    let refutation = Refutation {
                        by: By::Propagation, claims, differs: None, results: Vec::new(), unplaced_stores: 0
                    };
                    let script = script(&terms, &refutation, &|_| String::new());
                    prop_assert_ne!(ask(&script), SatResult::Sat, "{}", script);
                    return Ok(());
                }
            }
        }

        /// A script means what its terms mean: with all unknowns known, it has a solution just when the terms' values agree.
        #[test]
        fn a_script_means_what_its_terms_mean(
            recipe in proptest::collection::vec(any::<(u8, u32)>(), 0..8), values in any::<[u32; 4]>(), wrong in any::<bool>()
        ) {
            let terms = Terms::new();
            let unknowns: [Term; 4] = std::array::from_fn(|_| terms.fresh(32));
            let t = term(&terms, &unknowns, &recipe);
            let mut facts = Facts::default();
            let known = unknowns.iter().zip(values).map(|(&x, value)| (x, terms.lit_term(32, u64::from(value))));
            for (x, value) in known {
                facts.equate(&terms, x, value).expect("an unknown has any value");
            }
            let value = facts.resolve(&terms, t);
            let value = terms.value(value).expect("nothing is unknown");
            let value = terms.lit_term(32, value ^ u64::from(wrong));
            let learned = facts.equate(&terms, t, value);
            prop_assert_eq!(learned.is_err(), wrong);
            let claims = facts.claims().to_vec();
            let refutation = Refutation {
                by: By::Propagation, claims, differs: None, results: Vec::new(), unplaced_stores: 0
            };
            let script = script(&terms, &refutation, &|_| String::new());
            let expected = if wrong { SatResult::Unsat } else { SatResult::Sat };
            prop_assert_eq!(ask(&script), expected, "{}", script);
        }
    }
}
