//! What the accesses of a run span that are made by one pointer.
//!
//! A region is written twice: the first time each access is looked up by itself, and what they span is noted; the second time the
//! first access by a pointer is looked up with all that follow. That both times come by the same accesses is not relied on: one that
//! was not noted is looked up alone.

use rustc_hash::FxHashMap;

use crate::memory::Base;

/// Bytes from a pointer on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    pub(crate) from: i32,
    /// Behind the last one.
    pub(crate) to: i32,
}

impl Span {
    pub(crate) fn of(from: i32, len: u32) -> Span {
        Span { from, to: from.saturating_add_unsigned(len.max(1)) }
    }

    pub(crate) fn has(self, other: Span) -> bool {
        self.from <= other.from && other.to <= self.to
    }

    fn with(self, other: Span) -> Span {
        Span { from: self.from.min(other.from), to: self.to.max(other.to) }
    }

    fn len(self) -> u32 {
        self.to.abs_diff(self.from)
    }
}

/// Places farther apart than so many bytes are not looked up together: the farther, the likelier a page's end is between them.
const MOST: u32 = 512;

/// Where accesses by one pointer begin: the run, the instruction and the bytes of the first, and whether it stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct First {
    pub(crate) run: u64,
    pub(crate) rip: u64,
    pub(crate) write: bool,
    pub(crate) span: Span,
}

/// How close together accesses by one pointer are looked up: closer where what they span was often found to have the end of a page
/// in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// All of them.
    All,
    /// Those in the same [`NEAR`] bytes, counted from the pointer.
    Near,
    /// None.
    Alone,
}

/// So that of a structure which a page's end goes through most is still looked up together.
const NEAR: i32 = 64;

impl Reach {
    /// The next closer one.
    pub(crate) const fn closer(self) -> Reach {
        match self {
            Reach::All => Reach::Near,
            Reach::Near | Reach::Alone => Reach::Alone,
        }
    }

    /// The part of `all` that goes with `one`.
    fn part(self, all: Span, one: Span) -> Option<Span> {
        match self {
            Reach::All => Some(all),
            Reach::Near => {
                let from = one.from.div_euclid(NEAR) * NEAR;
                Some(Span { from: from.max(all.from), to: (from + NEAR).min(all.to) })
            }
            Reach::Alone => None,
        }
    }
}

/// The first access by a pointer in a run.
#[derive(Clone, Copy)]
struct Begun {
    access: First,
    reach: Reach,
}

/// How an access is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LookUp {
    /// As one that stores.
    pub(crate) write: bool,
    /// With all that lies here; else alone.
    pub(crate) together: Option<Span>,
}

/// What is noted the first time, or known the second.
#[derive(Default)]
pub(crate) struct Spans {
    /// All accesses that begin so.
    noted: FxHashMap<First, Span>,
    /// What begins in the run that is being written, by what base and whether for stores.
    current: FxHashMap<(Base, bool), Begun>,
    /// What was noted the first time, and is looked up together.
    known: Option<FxHashMap<First, Span>>,
}

impl Spans {
    /// Begins a run.
    pub(crate) fn begin(&mut self) {
        self.current.clear();
    }

    /// For the second time; `None` where nothing is gained by one.
    pub(crate) fn known(self) -> Option<Spans> {
        let mut known = self.noted;
        known.retain(|first, all| *all != first.span && all.len() <= MOST);
        (!known.is_empty()).then(|| Spans { known: Some(known), ..Spans::default() })
    }

    /// Notes an access, and says how it is looked up. What may be stored to may be loaded, too: a load goes with a store before it that
    /// is near.
    pub(crate) fn note(&mut self, base: Base, access: First, reach: Reach) -> LookUp {
        // A part of what is stored to may be on a page that nothing was stored to.
        let stores = self.closer(base, true, reach).filter(|all| !access.write && all.reach == Reach::All);
        if let Some(look_up) = stores.and_then(|begun| self.join(begun, access)) {
            return look_up;
        }
        let begun = self.closer(base, access.write, reach).unwrap_or(Begun { access, reach });
        self.current.insert((base, access.write), begun);
        self.join(begun, access).unwrap_or(LookUp { write: access.write, together: None })
    }

    /// What has begun so in this run, no farther together than `reach` from here on.
    fn closer(&mut self, base: Base, write: bool, reach: Reach) -> Option<Begun> {
        let begun = self.current.get_mut(&(base, write))?;
        begun.reach = begun.reach.max(reach);
        Some(*begun)
    }

    /// Has an access go with those that began so, if they lie together.
    fn join(&mut self, begun: Begun, access: First) -> Option<LookUp> {
        let first = begun.access;
        if let Some(known) = &self.known {
            let near = |all: &Span| begun.reach.part(*all, access.span);
            let together = known.get(&first).and_then(near).filter(|all| all.has(access.span));
            return together.map(|_| LookUp { write: first.write, together });
        }
        let all = self.noted.entry(first).or_insert(first.span);
        let with = all.with(access.span);
        if with.len() > MOST {
            return None;
        }
        *all = with;
        Some(LookUp { write: access.write, together: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Base = Base::Page(0x1000);

    fn access(rip: u64, write: bool, from: i32) -> First {
        First { run: 1, rip, write, span: Span::of(from, 8) }
    }

    /// Notes the accesses of a run; how each was looked up.
    fn write(spans: &mut Spans, accesses: &[First], reach: Reach) -> Vec<LookUp> {
        spans.begin();
        accesses.iter().map(|access| spans.note(BASE, *access, reach)).collect()
    }

    #[test]
    fn the_second_time_what_lies_together_is_looked_up_together() {
        let run = [access(1, false, 0), access(2, false, 0x20), access(3, true, 8), access(4, false, 0x80)];
        let mut spans = Spans::default();
        let alone = |write| LookUp { write, together: None };
        let first = write(&mut spans, &run, Reach::All);
        assert_eq!(first, [alone(false), alone(false), alone(true), alone(false)]);
        let mut known = spans.known().expect("something is gained");
        let loads = LookUp { write: false, together: Some(Span { from: 0, to: 0x28 }) };
        // The load behind the store goes with the store.
        let stores = LookUp { write: true, together: Some(Span { from: 8, to: 0x88 }) };
        assert_eq!(write(&mut known, &run, Reach::All), [loads, loads, stores, stores]);
        let near = write(&mut known, &run, Reach::Near);
        assert_eq!(near[0].together, Some(Span { from: 0, to: 0x28 }));
        // There need be nothing stored on its page.
        assert_eq!(near[3], alone(false));
        assert!(write(&mut known, &run, Reach::Alone).iter().all(|look_up| look_up.together.is_none()));
    }

    #[test]
    fn what_lies_far_apart_is_not_looked_up_together_nor_what_was_not_noted() {
        let mut spans = Spans::default();
        write(&mut spans, &[access(1, false, 0), access(2, false, 8), access(3, false, 4000)], Reach::All);
        let mut known = spans.known().expect("two of them lie together");
        let again = [access(1, false, 0), access(3, false, 4000), access(9, false, -8)];
        let together = write(&mut known, &again, Reach::All).into_iter().map(|look_up| look_up.together);
        assert!(together.eq([Some(Span { from: 0, to: 16 }), None, None]));
        let mut lone = Spans::default();
        write(&mut lone, &[access(1, false, 0)], Reach::All);
        assert!(lone.known().is_none());
    }
}
