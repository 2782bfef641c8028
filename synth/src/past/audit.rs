//! Each refutation of a hypothesis, told with all that it rests on, before that is taken back.

use super::hypothesis::{Hypothesis, Refusal};
use crate::facts::{Claim, Facts};
use crate::term::{Node, Term, Terms};
use std::rc::Rc;

/// Who is told.
pub trait Audit {
    /// These claims contradict each other, by our own account.
    fn refuted(&self, terms: &Terms, refutation: &Refutation);
}

/// Who found the contradiction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Propagation.
    Propagation,
    /// The solver.
    Solver,
    /// Propagation found what an address must be, and a path was built again for it: that it is another one is refuted.
    Address,
}

/// Claims that contradict each other.
pub struct Refutation {
    /// Who says so.
    pub by: By,
    /// The claims, in the order in which a path made them, from the core on.
    pub claims: Vec<Claim>,
    /// For [`By::Address`]: this is not that.
    pub differs: Option<(Term, u64)>,
    /// What the software CPU gives for operations that are no bit-vector arithmetic.
    pub results: Vec<OpaqueResult>,
    /// How many stores of the path have no address yet. They are taken to touch nothing that an older step used.
    pub unplaced_stores: usize,
}

/// A result of an operation outside bit-vector arithmetic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpaqueResult {
    /// The operation, in a claim.
    pub term: Term,
    /// Arguments that it was found to have.
    pub arguments: Vec<u64>,
    /// What it gives for them.
    pub value: u64,
}

impl<'i> Hypothesis<'i> {
    /// Has each refutation told.
    pub fn set_audit(&mut self, audit: Rc<dyn Audit + 'i>) {
        self.audit = Some(audit);
    }

    /// Tells that the solver refuted the path.
    pub fn tell_refuted_by_solver(&mut self) {
        let claims = self.facts.claims().to_vec();
        self.tell(By::Solver, claims, None);
    }

    /// Tells why a step was refused.
    pub(super) fn tell_refusal(&mut self, refusal: Refusal) {
        if self.audit.is_none() {
            return;
        }
        let claims = self.facts.claims();
        match refusal {
            Refusal::Contradiction => self.tell(By::Propagation, claims.to_vec(), None),
            Refusal::Late(_, va) => {
                // What was built on the address is not what says it.
                let is_it = |claim: &Claim| matches!(claim, Claim::Rests(_, value) if *value == va);
                let Some(place) = claims.iter().rposition(is_it) else { return };
                let Claim::Rests(address, _) = claims[place] else { return };
                self.tell(By::Address, claims[..place].to_vec(), Some((address, va)));
            }
            Refusal::Barrier(_) => {}
        }
    }

    fn tell(&mut self, by: By, claims: Vec<Claim>, differs: Option<(Term, u64)>) {
        let Some(audit) = self.audit.clone() else { return };
        let results = results(&mut self.facts, &self.terms, &claims);
        let unplaced_stores = self.unresolved_accesses().iter().filter(|(_, access)| access.store).count();
        audit.refuted(&self.terms, &Refutation { by, claims, differs, results, unplaced_stores });
    }
}

/// The operations outside bit-vector arithmetic in `claims` whose arguments are known by now.
fn results(facts: &mut Facts, terms: &Terms, claims: &[Claim]) -> Vec<OpaqueResult> {
    let mut found = Vec::new();
    for term in terms.reachable(claims.iter().flat_map(Claim::terms)) {
        let Node::Opaque { args, .. } = terms.node(term) else { continue };
        let arguments = terms.arguments(args).into_vec().into_iter();
        let arguments: Vec<Term> = arguments.map(|argument| facts.resolve(terms, argument)).collect();
        let known: Option<Vec<u64>> = arguments.iter().map(|&argument| terms.value(argument)).collect();
        let value = terms.rebuild(term, &mut |argument| facts.resolve(terms, argument));
        if let (Some(arguments), Some(value)) = (known, terms.value(value)) {
            found.push(OpaqueResult { term, arguments, value });
        }
    }
    found
}
