//! Which of several ways the core speaks for.
//!
//! Beyond the records, and between those of a filter that hides branches, nothing may refute a wrong way for long: it finds unknowns
//! wherever it looks, and contradicts none of them. The true way finds again what it left: a store finds its value in memory, a load the value that a register still holds. So where
//! several ways are open each is followed a little, without the solver and without choosing addresses, and the one that most
//! of what is known agrees with ([`crate::facts::Facts::agreed`]) is tried first. What is found so orders the ways; it refutes none.
//!
//! On the way there are further choices. Each is made as the search would make it, but for one: the way is as good as the best of
//! the paths that differ from the likeliest in one choice.

use super::Search;
use super::candidates::Candidate;
use super::rank::Rank;
use crate::past::hypothesis::Refusal;
use std::cmp::Reverse;

/// So many ways are followed at first, for so many instructions, without another choice.
const MOST_WAYS: usize = 192;
const A_LITTLE: Far = Far { instructions: 16, slips: 0, tries: 64 };
/// The best of them are followed further.
const BEST_WAYS: usize = 8;
const FURTHER: Far = Far { instructions: 64, slips: 1, tries: 640 };
/// So many ways are tried at each of the instructions that follow.
const MOST_CHOICES: usize = 16;
/// Ways of which one ends before so many instructions are compared as far as each goes.
const NEAR: usize = 32;
/// By so many bits a way must be better than those that are likelier by its kind.
const MARGIN: i64 = 24;
/// An access whose address is not known takes so many bits from what speaks for a way: on the true one most are known soon.
const UNKNOWN_ADDRESS: i64 = 2;
/// Where samples of branches speak for the first way by so many bits more than for the second, as by eight branches that are alike,
/// nothing is followed.
const HABIT: u32 = 16;
/// One part in so many of all fuel may go into it.
const SHARE: u64 = 3;

/// How far a way is followed.
#[derive(Clone, Copy)]
struct Far {
    instructions: usize,
    /// So many choices are made otherwise than the search would.
    slips: usize,
    /// So many instructions may be tried.
    tries: usize,
}

/// A way that is followed.
struct Followed {
    /// How long the path was before it.
    floor: usize,
    far: Far,
    /// What spoke for the path before it.
    before: i64,
    /// What speaks for the present path after each of its instructions.
    present: Vec<i64>,
    /// The same of the best one; `None` if each path was refuted.
    best: Option<Vec<i64>>,
}

impl Followed {
    /// What speaks for it at its end.
    fn last(&self) -> Option<i64> {
        self.best.as_ref().map(|best| best.last().copied().unwrap_or(0))
    }

    /// The present path has come to an end that is no contradiction.
    fn note_end(&mut self) {
        let better = |best: &Vec<i64>| best.last() < self.present.last();
        if self.best.as_ref().is_none_or(better) {
            self.best = Some(self.present.clone());
        }
    }

    /// Whether this way has so much more for it than the other one that it is tried before; so many bits speak for the other one
    /// otherwise.
    fn beats(&self, other: &Followed, odds: i64) -> bool {
        let (Some(own), Some(others)) = (&self.best, &other.best) else { return self.best.is_some() };
        let common = own.len().min(others.len());
        let [own, others] = [own, others].map(|way| match common {
            // One of them ends at once: what counts is whether the other one finds anything at all.
            ..NEAR => way.last().copied().unwrap_or(0),
            _ => way[common - 1],
        });
        own > others + MARGIN + odds
    }
}

impl Search<'_> {
    /// Puts the way first that the core speaks for, of those that are open at the present start.
    pub(super) fn weigh(&mut self) {
        let Some(frame) = self.frames.last() else { return };
        let [first, second, ..] = &frame.candidates[..] else { return };
        let is_told = first.rank == Rank::OnStack || first.habit >= second.habit + HABIT;
        if is_told || self.spent_weighing * SHARE > self.whole_fuel {
            return;
        }
        let burnt = self.hypothesis.terms().fuel().burnt();
        let (statistics, candidates) = (self.statistics.clone(), frame.candidates.clone());
        let best = self.best_of(&candidates);
        self.statistics = statistics;
        self.spent_weighing += self.hypothesis.terms().fuel().burnt() - burnt;
        if let (Some(best), Some(frame)) = (best, self.frames.last_mut()) {
            frame.candidates[..=best].rotate_right(1);
        }
    }

    /// The one that the core speaks for most, if several are open.
    fn best_of(&mut self, candidates: &[Candidate]) -> Option<usize> {
        let mut open: Vec<usize> = (0..candidates.len().min(MOST_WAYS)).collect();
        open.retain(|&n| self.is_open(&candidates[n]));
        if open.len() < 2 {
            return None;
        }
        if open.len() > BEST_WAYS {
            let mut followed: Vec<(usize, Followed)> =
                open.iter().map(|&n| (n, self.follow(&candidates[n], A_LITTLE))).collect();
            let habit = |n: usize| i64::from(candidates[n].habit);
            followed.sort_by_key(|(n, followed)| Reverse(followed.last().map(|last| last + habit(*n))));
            open = followed.into_iter().take(BEST_WAYS).map(|(n, _)| n).collect();
            open.sort_unstable();
        }
        let mut best: Option<(usize, Followed)> = None;
        for n in open {
            let followed = self.follow(&candidates[n], FURTHER);
            let odds = |best: usize| i64::from(candidates[best].habit) - i64::from(candidates[n].habit);
            if best.as_ref().is_none_or(|(m, best)| followed.beats(best, odds(*m).max(0))) {
                best = Some((n, followed));
            }
        }
        best.map(|(n, _)| n)
    }

    /// What speaks for the present path, in bits.
    fn support(&mut self) -> i64 {
        let waiting = i64::try_from(self.hypothesis.waiting_accesses()).unwrap_or(i64::MAX / UNKNOWN_ADDRESS);
        self.hypothesis.facts().agreed().cast_signed() - waiting * UNKNOWN_ADDRESS
    }

    /// Whether an instruction is not refuted at once.
    fn is_open(&mut self, candidate: &Candidate) -> bool {
        let is_open = self.go(candidate).is_ok();
        if is_open {
            self.hypothesis.pop();
        }
        is_open
    }

    /// Prepends an instruction to what is followed. What it may tell of newer accesses is not looked at.
    fn go(&mut self, candidate: &Candidate) -> Result<(), Refusal> {
        self.hypothesis.prepend(&candidate.prepared, candidate.call).and_then(|()| self.relate_stack())
    }

    /// Follows a way, and comes back.
    fn follow(&mut self, first: &Candidate, far: Far) -> Followed {
        let frame = self.frames.last_mut().expect("it is weighed");
        let (candidates, next) = (std::mem::replace(&mut frame.candidates, vec![first.clone()]), frame.next);
        let before = self.support();
        let floor = self.hypothesis.len();
        let mut followed = Followed { floor, far, before, present: Vec::new(), best: None };
        self.explore(&mut followed);
        let frame = self.frames.last_mut().expect("it is weighed");
        (frame.candidates, frame.next) = (candidates, next);
        followed
    }

    /// Goes on from the present start, whose choices are listed; whether some path was not refuted.
    fn explore(&mut self, followed: &mut Followed) -> bool {
        let (mut went, mut number) = (false, 0);
        loop {
            let frame = self.frames.last_mut().expect("its choices are listed");
            let Some(candidate) = frame.candidates.get(number).cloned() else { return went };
            number += 1;
            frame.next = number;
            let enough = !went && number > MOST_CHOICES;
            if went && followed.far.slips == 0 {
                return true;
            }
            if followed.far.tries == 0 || enough {
                followed.note_end();
                return true;
            }
            followed.far.tries -= 1;
            let slip = usize::from(went);
            match self.go(&candidate) {
                Ok(()) => {
                    followed.far.slips -= slip;
                    went |= self.explore_behind(followed, &candidate);
                    followed.far.slips += slip;
                }
                Err(Refusal::Contradiction) => {}
                Err(_) => {
                    followed.note_end();
                    went = true;
                }
            }
        }
    }

    /// Goes on behind an instruction that was prepended, and takes it back; whether some path was not refuted.
    fn explore_behind(&mut self, followed: &mut Followed, candidate: &Candidate) -> bool {
        followed.present.push(self.support() - followed.before);
        let step = *self.hypothesis.path().last().expect("something was prepended");
        self.taken.push((step, candidate.call));
        let is_end = self.hypothesis.len() >= followed.floor + followed.far.instructions;
        let went = if is_end || followed.far.tries == 0 {
            followed.note_end();
            true
        } else {
            self.open_frame();
            let went = self.explore(followed);
            self.frames.pop();
            went
        };
        self.taken.pop();
        self.hypothesis.pop();
        followed.present.pop();
        went
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(best: Option<Vec<i64>>) -> Followed {
        Followed { floor: 0, far: FURTHER, before: 0, present: Vec::new(), best }
    }

    #[test]
    fn a_way_that_ends_at_once_gives_way_to_one_that_finds_much() {
        let ends = followed(Some(vec![0, -2, -2]));
        let goes_on = |last| followed(Some([vec![0; 63], vec![last]].concat()));
        assert!(goes_on(MARGIN).beats(&ends, 0));
        assert!(!goes_on(0).beats(&ends, 0), "it finds nothing");
        assert!(
            ends.beats(&followed(None), 0) && !followed(None).beats(&ends, 0),
            "what is refuted is no way"
        );
    }

    #[test]
    fn long_ways_are_compared_as_far_as_both_go() {
        let early = followed(Some(vec![MARGIN + 1; NEAR]));
        let late = followed(Some([vec![0; NEAR], vec![1000; 8]].concat()));
        assert!(early.beats(&late, 0), "what the other one finds further back is not compared");
        assert!(!late.beats(&early, 0));
    }
}
