//! Terms put in the order of their evaluation, so that they can be evaluated often: no term is made on the way.

use super::{Assignment, DivisionPart, Node, Term, Terms, Var, mask};
use crate::fuel::Fuel;
use rustc_hash::FxHashMap;
use x86::concrete::Concrete;
use x86::domain::{Bin, Cmp, Domain, Un};
use x86::opaque::{self, Opaque};

/// So many are evaluated for a unit of fuel.
const RULES_OF_A_UNIT: u64 = 8;

/// Where a value is kept.
type Place = usize;

/// How a value is computed; truth values are 0 and 1. Operands come with their widths where the width matters.
enum Rule {
    Literal(u64),
    Variable(Var, u32),
    Bin(Bin, u32, Place, Place),
    Un(Un, u32, Place),
    Same(Place),
    Sext(u32, u32, Place),
    Extract(u32, u32, Place),
    Concat(u32, Place, Place),
    Choose(Place, Place, Place),
    Cmp(Cmp, u32, Place, Place),
    Not(Place),
    And(Place, Place),
    Xor(Place, Place),
    Divide { part: DivisionPart, signed: bool, w: u32, high: Place, low: Place, divisor: Place },
    Opaque { op: Opaque, part: u8, w: u32, args: Vec<Place> },
}

/// Some terms and all that they are made of, operands first.
pub(crate) struct Plan {
    rules: Vec<Rule>,
    roots: Vec<Place>,
    values: Vec<u64>,
    fuel: Fuel,
}

impl Plan {
    /// A plan for `roots`.
    pub(crate) fn new(terms: &Terms, roots: &[Term]) -> Plan {
        let mut plan =
            Plan { rules: Vec::new(), roots: Vec::new(), values: Vec::new(), fuel: terms.fuel().clone() };
        let mut places = FxHashMap::default();
        plan.roots = roots.iter().map(|&t| plan.place(terms, t, &mut places)).collect();
        plan.values = vec![0; plan.rules.len()];
        plan.fuel.burn(2 * plan.rules.len() as u64);
        plan
    }

    /// How many terms are evaluated each time.
    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    /// The values of the roots; a variable without a value counts as zero.
    pub(crate) fn evaluate(&mut self, assignment: &Assignment) -> impl Iterator<Item = u64> + '_ {
        self.fuel.burn(1 + self.rules.len() as u64 / RULES_OF_A_UNIT);
        for (place, rule) in self.rules.iter().enumerate() {
            self.values[place] = rule.evaluate(&self.values, assignment);
        }
        self.roots.iter().map(|&place| self.values[place])
    }

    /// Whether all roots are true.
    pub(crate) fn holds(&mut self, assignment: &Assignment) -> bool {
        self.evaluate(assignment).all(|truth| truth != 0)
    }

    fn place(&mut self, terms: &Terms, t: Term, places: &mut FxHashMap<Term, Place>) -> Place {
        if let Some(&place) = places.get(&t) {
            return place;
        }
        let w = terms.width(t);
        let mut of = |t| self.place(terms, t, places);
        let rule = match terms.node(t) {
            Node::Lit(value) => Rule::Literal(value),
            Node::Bool(truth) => Rule::Literal(u64::from(truth)),
            Node::Var(var) => Rule::Variable(var, w),
            Node::Bin(op, a, b) => Rule::Bin(op, w, of(a), of(b)),
            Node::Un(op, a) => Rule::Un(op, w, of(a)),
            Node::Zext(a) => Rule::Same(of(a)),
            Node::Sext(a) => Rule::Sext(terms.width(a), w, of(a)),
            Node::Extract { low, of: a } => Rule::Extract(u32::from(low), w, of(a)),
            Node::Concat(high, low) => Rule::Concat(terms.width(low), of(high), of(low)),
            Node::Ite(c, a, b) => Rule::Choose(of(c), of(a), of(b)),
            Node::Cmp(op, a, b) => Rule::Cmp(op, terms.width(a), of(a), of(b)),
            Node::Not(a) => Rule::Not(of(a)),
            Node::And(a, b) => Rule::And(of(a), of(b)),
            Node::Xor(a, b) => Rule::Xor(of(a), of(b)),
            Node::Divide { part, signed, high, low, divisor } => {
                let w = terms.width(divisor);
                Rule::Divide { part, signed, w, high: of(high), low: of(low), divisor: of(divisor) }
            }
            Node::Opaque { op, part, args } => {
                let args = terms.arguments(args).iter().map(|&a| of(a)).collect();
                Rule::Opaque { op, part, w, args }
            }
        };
        self.rules.push(rule);
        places.insert(t, self.rules.len() - 1);
        self.rules.len() - 1
    }
}

impl Rule {
    fn evaluate(&self, values: &[u64], assignment: &Assignment) -> u64 {
        let truth = |place: Place| values[place] != 0;
        match *self {
            Rule::Literal(value) => value,
            Rule::Variable(var, 0) => assignment.get(var).is_some_and(|v| v != 0).into(),
            Rule::Variable(var, w) => assignment.get(var).unwrap_or(0) & mask(w),
            Rule::Bin(op, w, a, b) => Concrete.bin(op, w, values[a], values[b]),
            Rule::Un(op, w, a) => Concrete.un(op, w, values[a]),
            Rule::Same(a) => values[a],
            Rule::Sext(from, to, a) => Concrete.sext(from, to, values[a]),
            Rule::Extract(low, w, a) => Concrete.extract(64, low, w, values[a]),
            Rule::Concat(low_width, high, low) => values[high] << low_width | values[low],
            Rule::Choose(c, a, b) => values[if truth(c) { a } else { b }],
            Rule::Cmp(op, w, a, b) => Concrete.cmp(op, w, values[a], values[b]).into(),
            Rule::Not(a) => (!truth(a)).into(),
            Rule::And(a, b) => (truth(a) && truth(b)).into(),
            Rule::Xor(a, b) => (truth(a) != truth(b)).into(),
            Rule::Divide { part, signed, w, high, low, divisor } => {
                let division = Concrete.divide(signed, w, values[high], values[low], values[divisor]);
                match part {
                    DivisionPart::Quotient => division.quotient,
                    DivisionPart::Remainder => division.remainder,
                    DivisionPart::Fault => division.fault.into(),
                }
            }
            Rule::Opaque { op, part, w, ref args } => {
                let args: Vec<u64> = args.iter().map(|&a| values[a]).collect();
                Concrete.extract(64, 0, w, opaque::evaluate(op, &args)[usize::from(part)])
            }
        }
    }
}
