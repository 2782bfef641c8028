//! What is known: bindings of variables, and constraints that are not solved yet.
//!
//! Propagation is bidirectional and needs no solver: an equation is turned around ([`unify`]) until a variable stands
//! alone, which is then bound; a binding wakes the constraints that wait for the variable. Nothing here guesses, so a
//! [`Contradiction`] is a proof that the constraints have no solution. What cannot be turned around stays as a pending
//! constraint for the solver.
//!
//! Example: `r + 3 = 7` is turned around to `r = 4`. The constraint `r < 2`, which waited for r, is looked at again: it is
//! `4 < 2`, a [`Contradiction`], and the path that said both is refuted.
//!
//! Everything can be undone to an earlier [`Mark`], since a search tries one predecessor after another. What was said is
//! kept beside what was concluded ([`claims`]), so that a contradiction can be checked by others.

mod agreement;
mod claims;
mod unify;

use crate::term::{Node, Term, Terms, Var};
pub use claims::Claim;
use rustc_hash::{FxHashMap, FxHashSet};
use x86::domain::Cmp;

/// The constraints have no solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contradiction;

/// The outcome of adding a fact.
pub type Learned<T = ()> = Result<T, Contradiction>;

/// A constraint that waits.
#[derive(Clone, Copy, Debug)]
struct Pending {
    constraint: Term,
    /// The constraint says that this term is a literal, which it stands for wherever else it occurs; in the
    /// constraint itself only its operands are resolved.
    subject: Term,
    solved: bool,
}

enum Change {
    Bound(Var),
    Overridden(Term, Option<Term>),
    Solved(usize),
    Watched(Var),
}

/// A point to go back to.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    agreed: u64,
    changes: usize,
    pending: usize,
    claims: usize,
}

/// Bindings and pending constraints.
#[derive(Default)]
pub struct Facts {
    bindings: Vec<Option<Term>>,
    overrides: FxHashMap<Term, Term>,
    pending: Vec<Pending>,
    watchers: FxHashMap<Var, Vec<usize>>,
    changes: Vec<Change>,
    claims: Vec<Claim>,
    /// Constraints to look at again.
    woken: Vec<usize>,
    /// Results of [`Facts::resolve`] by term, each with the generation that it is valid for.
    memo: Vec<(u64, Term)>,
    /// One more than the number of bindings ever made or undone; results for an older count are stale.
    generation: Generation,
    /// How many terms were looked at for [`Facts::resolve`].
    looks: u64,
    /// How much agreed with what was known.
    agreed: u64,
    /// One side of a choice is looked at.
    is_trying: bool,
}

/// A count that begins at 1: what was never resolved is of generation 0.
struct Generation(u64);

impl Default for Generation {
    fn default() -> Generation {
        Generation(1)
    }
}

/// So many terms are looked at for a unit of fuel.
const LOOKS_OF_A_UNIT: u64 = 3;

/// A constraint with more terms than this is not looked into for what it waits for (hash loops make giants);
/// the solver still gets it.
const WATCH_LIMIT: usize = 4096;

impl Facts {
    /// The present point.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark {
            agreed: self.agreed,
            changes: self.changes.len(),
            pending: self.pending.len(),
            claims: self.claims.len(),
        }
    }

    /// Forgets everything learned since `mark`.
    pub fn undo(&mut self, mark: Mark) {
        while self.changes.len() > mark.changes {
            match self.changes.pop().expect("longer than the mark") {
                Change::Bound(var) => self.bindings[var.0 as usize] = None,
                Change::Overridden(term, Some(old)) => _ = self.overrides.insert(term, old),
                Change::Overridden(term, None) => _ = self.overrides.remove(&term),
                Change::Solved(n) => self.pending[n].solved = false,
                Change::Watched(var) => {
                    self.watchers.get_mut(&var).expect("a watched variable").pop();
                }
            }
        }
        self.agreed = mark.agreed;
        self.pending.truncate(mark.pending);
        self.claims.truncate(mark.claims);
        self.woken.clear();
        self.generation.0 += 1;
    }

    /// `t` with every bound variable replaced, simplified.
    pub fn resolve(&mut self, terms: &Terms, t: Term) -> Term {
        self.resolve_within(terms, t)
    }

    fn resolve_within(&mut self, terms: &Terms, t: Term) -> Term {
        if !terms.is_open(t) {
            return t;
        }
        if let Some(&(generation, done)) = self.memo.get(t.index())
            && generation == self.generation.0
        {
            return done;
        }
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_OF_A_UNIT) {
            terms.fuel().burn(1);
        }
        let done = if let Some(&stands_for) = self.overrides.get(&t) {
            self.resolve_within(terms, stands_for)
        } else if let Node::Var(var) = terms.node(t) {
            match self.binding(var) {
                Some(bound) => self.resolve_within(terms, bound),
                None => t,
            }
        } else if self.is_of_resolved(terms, t) {
            t
        } else {
            let rebuilt = terms.rebuild(t, &mut |operand| self.resolve_within(terms, operand));
            match self.overrides.get(&rebuilt) {
                // A meaning that is no number might speak of this term by now.
                Some(&stands_for) if rebuilt != t && !terms.is_open(stands_for) => stands_for,
                _ => rebuilt,
            }
        };
        if self.memo.len() <= t.index() {
            self.memo.resize(terms.len(), (0, t));
        }
        self.memo[t.index()] = (self.generation.0, done);
        done
    }

    /// Whether nothing that the term is made of is known by now to be something else.
    fn is_of_resolved(&mut self, terms: &Terms, t: Term) -> bool {
        let mut same = true;
        terms.operands(t, |operand| same &= self.resolve_within(terms, operand) == operand);
        same
    }

    /// Makes `t` stand for `meaning` wherever it occurs: a shape that is clearer than what its parts, bound one
    /// by one, would give. If `t` is known already, that is now known of its meaning. Nothing is learned if the
    /// meaning speaks of a part of `t` itself.
    pub fn define(&mut self, terms: &Terms, t: Term, meaning: Term) -> Learned {
        let (now, meaning) = (self.resolve(terms, t), self.resolve(terms, meaning));
        if self.variables_of(terms, t).iter().any(|&var| self.occurs(terms, var, meaning)) {
            return Ok(());
        }
        if terms.truth(now).is_some() {
            // The constraint that waits for the parts of `t` says the same, less clearly.
            let waiting = self.pending.iter().rposition(|p| p.subject == t && !p.solved);
            if let Some(n) = waiting {
                self.pending[n].solved = true;
                self.changes.push(Change::Solved(n));
                self.unify(terms, meaning, now)?;
                return self.settle(terms);
            }
        }
        if now == t {
            let old = self.overrides.insert(t, meaning);
            self.changes.push(Change::Overridden(t, old));
            self.generation.0 += 1;
        }
        Ok(())
    }

    /// What `var` is bound to.
    #[must_use]
    pub fn binding(&self, var: Var) -> Option<Term> {
        self.bindings.get(var.0 as usize).copied().flatten()
    }

    /// Adds the fact that `a` equals `b` (vectors of one width, or truth values).
    pub fn equate(&mut self, terms: &Terms, a: Term, b: Term) -> Learned {
        self.claims.push(Claim::Equal(a, b));
        self.unify(terms, a, b)?;
        self.settle(terms)
    }

    /// Adds the fact that `c` holds.
    pub fn assert(&mut self, terms: &Terms, c: Term) -> Learned {
        self.claims.push(Claim::Holds(c));
        self.hold(terms, c)?;
        self.settle(terms)
    }

    /// The constraints that are left for the solver, resolved.
    pub fn unsolved(&mut self, terms: &Terms) -> Vec<Term> {
        self.unsolved_since(terms, 0)
    }

    /// Those of them that came when there were `place` or more.
    pub fn unsolved_since(&mut self, terms: &Terms, place: usize) -> Vec<Term> {
        let newer = self.pending.iter().skip(place);
        let left: Vec<Pending> = newer.filter(|p| !p.solved).copied().collect();
        let resolved = left.into_iter().map(|p| self.resolve_pending(terms, p));
        resolved.filter(|&c| terms.truth(c) != Some(true)).collect()
    }

    /// How many constraints were ever kept for the solver: the place of the next one.
    #[must_use]
    pub fn constraints(&self) -> usize {
        self.pending.len()
    }

    fn bind(&mut self, var: Var, to: Term) {
        let n = var.0 as usize;
        if self.bindings.len() <= n {
            self.bindings.resize(n + 1, None);
        }
        debug_assert!(self.bindings[n].is_none(), "a variable is bound once");
        self.bindings[n] = Some(to);
        self.changes.push(Change::Bound(var));
        self.generation.0 += 1;
        if let Some(waiting) = self.watchers.get(&var) {
            self.woken.extend(waiting);
        }
    }

    /// Looks again at what new bindings woke, until nothing changes.
    fn settle(&mut self, terms: &Terms) -> Learned {
        while let Some(n) = self.woken.pop() {
            let Some(&pending) = self.pending.get(n) else { continue };
            if pending.solved {
                continue;
            }
            let now = self.resolve_pending(terms, pending);
            if now == pending.constraint {
                continue;
            }
            self.pending[n].solved = true;
            self.changes.push(Change::Solved(n));
            self.hold(terms, now)?;
        }
        Ok(())
    }

    /// A pending constraint as it reads now.
    fn resolve_pending(&mut self, terms: &Terms, pending: Pending) -> Term {
        let subject = pending.subject;
        let now = terms.rebuild(subject, &mut |operand| self.resolve(terms, operand));
        if now == subject {
            return pending.constraint;
        }
        match terms.node(pending.constraint) {
            _ if terms.width(subject) > 0 => terms.build_cmp(Cmp::Eq, now, self.resolve(terms, subject)),
            Node::Not(_) => terms.build_not(now),
            _ => now,
        }
    }

    /// Keeps the equation of `subject` with a literal for later.
    fn postpone_definition(&mut self, terms: &Terms, subject: Term, literal: Term) {
        let equation = terms.build_cmp(Cmp::Eq, subject, literal);
        self.postpone_about(terms, equation, subject, literal);
    }

    /// Keeps a constraint for later.
    fn postpone(&mut self, terms: &Terms, constraint: Term) {
        let (subject, truth) = match terms.node(constraint) {
            Node::Not(inner) => (inner, false),
            _ => (constraint, true),
        };
        self.postpone_about(terms, constraint, subject, terms.bool_term(truth));
    }

    /// Keeps a constraint for later that makes `subject` stand for `literal`.
    fn postpone_about(&mut self, terms: &Terms, constraint: Term, subject: Term, literal: Term) {
        let n = self.pending.len();
        self.pending.push(Pending { constraint, subject, solved: false });
        let old = self.overrides.insert(subject, literal);
        self.changes.push(Change::Overridden(subject, old));
        self.generation.0 += 1;
        for var in self.variables_of(terms, subject) {
            let waiting = self.watchers.entry(var).or_default();
            self.woken.extend(waiting.iter());
            waiting.push(n);
            self.changes.push(Change::Watched(var));
        }
    }

    /// The unbound variables of a resolved term, in a fixed order; none if the term is too large.
    pub fn variables_of(&self, terms: &Terms, t: Term) -> Vec<Var> {
        let mut seen = FxHashSet::default();
        let (mut todo, mut found) = (vec![t], Vec::new());
        while let Some(t) = todo.pop() {
            if !terms.is_open(t) || !seen.insert(t) {
                continue;
            }
            if seen.len() > WATCH_LIMIT {
                return Vec::new();
            }
            match terms.node(t) {
                Node::Var(var) => found.push(var),
                _ => terms.operands(t, |o| todo.push(o)),
            }
        }
        terms.fuel().burn(seen.len() as u64);
        found
    }

    /// Whether `var` occurs in the resolved term `t`.
    fn occurs(&self, terms: &Terms, var: Var, t: Term) -> bool {
        let mut seen = FxHashSet::default();
        let mut todo = vec![t];
        while let Some(t) = todo.pop() {
            if !terms.is_open(t) || !seen.insert(t) {
                continue;
            }
            if terms.node(t) == Node::Var(var) {
                return true;
            }
            terms.operands(t, |o| todo.push(o));
        }
        terms.fuel().burn(seen.len() as u64);
        false
    }
}

#[cfg(test)]
mod tests;
