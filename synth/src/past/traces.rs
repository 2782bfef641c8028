//! What the accesses of the path at fixed distances from an unknown address say about it.

use super::history::Step;
use super::hypothesis::Hypothesis;
use super::machine::Access;
use crate::term::Term;
use rustc_hash::FxHashSet;
use std::cmp::Reverse;
use std::rc::Rc;
use x86::domain::Bin;

/// A shorter run of known bytes is found everywhere.
const SHORTEST_NEEDLE: usize = 4;

/// One of the accesses.
struct Trace {
    /// How far from the unknown address.
    distance: u64,
    store: bool,
    /// The point at which memory held the bytes: before this step.
    step: Step,
    /// Those that are known.
    bytes: Vec<Option<u8>>,
}

/// All accesses of the path whose distance from one unknown address is known.
pub(super) struct Traces(Vec<Trace>);

impl Traces {
    /// Those of the accesses without an address that lie at a fixed distance from `address` (resolved).
    pub(super) fn of(hypothesis: &mut Hypothesis<'_>, address: Term) -> Traces {
        let terms = Rc::clone(hypothesis.terms());
        let mut traces = Vec::new();
        for (step, access) in hypothesis.unresolved_accesses() {
            let other = hypothesis.facts().resolve(&terms, access.address);
            let distance = terms.build_bin(Bin::Sub, other, address);
            if let Some(distance) = terms.value(distance) {
                traces.push(Trace::new(hypothesis, step, access, distance));
            }
        }
        forget_overwritten(&mut traces);
        thin_out(&mut traces);
        // What speaks against most places is looked at first.
        traces.sort_by_key(|trace| Reverse(trace.telling()));
        Traces(traces)
    }

    /// Whether any place can have a byte that speaks for it.
    pub(super) fn can_tell(&self) -> bool {
        self.0.iter().any(|trace| trace.bytes.iter().flatten().any(|&byte| byte != 0))
    }

    /// How many bytes that are not zero speak for `va`; `None` if something speaks against it.
    pub(super) fn fit(&self, hypothesis: &mut Hypothesis<'_>, va: u64) -> Option<usize> {
        let (mut told, mut looked) = (Some(0), 1);
        for trace in &self.0 {
            looked += 1;
            let of_trace = trace.fit(hypothesis, va.wrapping_add(trace.distance));
            told = told.zip(of_trace).map(|(told, more)| told + more);
            if told.is_none() {
                break;
            }
        }
        hypothesis.terms().fuel().burn(looked);
        told
    }

    /// Addresses around which the core looks as the accesses left it.
    pub(super) fn places_like(&self, hypothesis: &Hypothesis<'_>) -> Vec<u64> {
        let known = |t: &Trace| t.bytes.iter().map_while(|&b| b).collect::<Vec<u8>>();
        let needles = self.0.iter().map(|t| (t, known(t)));
        let told = |needle: &[u8]| needle.iter().filter(|&&b| b != 0).count();
        let telling = needles.filter(|(_, n)| n.len() >= SHORTEST_NEEDLE && told(n) > 0);
        let most = telling.max_by_key(|(trace, needle)| (told(needle), trace.step, trace.store));
        let Some((Trace { distance, .. }, needle)) = most else { return Vec::new() };
        let fuel = hypothesis.terms().fuel();
        let places = hypothesis.contents.places(hypothesis.image(), &needle, fuel);
        places.iter().map(|va| va.wrapping_sub(*distance)).collect()
    }
}

/// What a newer store replaced is no longer there to be compared.
fn forget_overwritten(traces: &mut [Trace]) {
    traces.sort_by_key(|t| (t.step, t.store));
    let mut replaced = FxHashSet::default();
    for trace in traces {
        let places: Vec<u64> = (0..).zip(&trace.bytes).map(|(n, _)| trace.distance.wrapping_add(n)).collect();
        for (at, byte) in places.iter().zip(&mut trace.bytes) {
            if replaced.contains(at) {
                *byte = None;
            }
        }
        if trace.store {
            replaced.extend(places);
        }
    }
}

/// So near each other, what tells nothing is mostly mapped together.
const NEAR: u64 = 1024;

/// Of those that tell nothing but that memory is there, and lie near each other, one is enough.
fn thin_out(traces: &mut Vec<Trace>) {
    traces.sort_by_key(|t| (t.distance.cast_signed(), Reverse(t.store)));
    let mut last: Option<(bool, u64)> = None;
    traces.retain(|trace| {
        let tells = trace.bytes.iter().any(Option::is_some);
        let near =
            last.is_some_and(|(store, at)| store >= trace.store && trace.distance.wrapping_sub(at) < NEAR);
        if !tells && !near {
            last = Some((trace.store, trace.distance));
        }
        tells || !near
    });
}

impl Trace {
    fn new(hypothesis: &mut Hypothesis<'_>, step: Step, access: Access, distance: u64) -> Trace {
        let terms = Rc::clone(hypothesis.terms());
        let value = hypothesis.facts().resolve(&terms, access.value);
        let byte = |n| terms.value(terms.build_extract(8 * n, 8, value)).map(|b| b.to_le_bytes()[0]);
        Trace {
            distance,
            store: access.store,
            step: if access.store { step - 1 } else { step },
            bytes: (0..access.bytes).map(byte).collect(),
        }
    }

    /// How many of the bytes are known and not zero, and how many are known.
    fn telling(&self) -> (usize, usize) {
        let known = || self.bytes.iter().flatten();
        (known().filter(|&&byte| byte != 0).count(), known().count())
    }

    fn fit(&self, hypothesis: &mut Hypothesis<'_>, va: u64) -> Option<usize> {
        let last = va.wrapping_add(self.bytes.len() as u64 - 1);
        let image = hypothesis.image();
        let usable = |va| if self.store { image.is_writable(va) } else { image.byte(va).is_some() };
        if !usable(va) || !usable(last) {
            return None;
        }
        let mut told = 0;
        for (at, wanted) in (va..=last).zip(&self.bytes) {
            let Some(wanted) = *wanted else { continue };
            match hypothesis.known_byte(at, self.step) {
                Some(found) if found != wanted => return None,
                Some(0) | None => {}
                Some(_) => told += 1,
            }
        }
        Some(told)
    }
}
