//! The sets of words by call site, as they grow while a program runs.

use super::word::{ROOT, called};
use rustc_hash::{FxHashMap, FxHashSet};

/// A call on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// Where it returns to.
    pub address: u64,
    /// [`super::word::id`] of that, which whoever walks stacks keeps beside what else it knows of the address.
    pub id: u64,
    /// Where on the stack the return address is: the same call is not counted twice.
    pub slot: u64,
}

/// What a look at a call site brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// A caller's word that was not known at this site.
    Word {
        /// The site's return address.
        site: u64,
        /// The caller's word.
        word: u64,
    },
    /// It was looked at too often: its set is dropped.
    Hot {
        /// The site's return address.
        site: u64,
    },
    /// The function around a place was called from a site that was not known to.
    Caller {
        /// A site's return address, or where the program stood.
        at: u64,
        /// The caller's return address.
        caller: u64,
    },
}

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// After how many looks a call site is hot.
    pub threshold: u32,
    /// At hot sites words are still kept of calls whose depth in the stack is a multiple of this, so that a search has
    /// fewer calls than that to bridge; and it is kept which site was called from which, so that it has fewer ways to
    /// try. Zero: neither, as in the paper.
    pub every: u32,
    /// How much is kept in all.
    pub room: u32,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { threshold: 1000, every: 8, room: 1 << 18 }
    }
}

/// What is known of a call site.
#[derive(Debug, Default)]
struct Known {
    looks: u32,
    hot: bool,
    words: FxHashSet<u64>,
    /// The site from which its function was called when it was looked at last.
    caller: Option<u64>,
}

/// Computes the words of one stack after the other, and keeps the sets.
#[derive(Debug)]
pub struct Tracker {
    policy: Policy,
    sites: FxHashMap<u64, Known>,
    /// The last stack, the outermost call first, each with its caller's word.
    last: Vec<(Site, u64)>,
    /// Who was seen to call whom: a place, and the call site that led there.
    callers: FxHashSet<(u64, u64)>,
    looks: u64,
    /// How much room is left.
    room: u32,
}

impl Tracker {
    /// No words yet.
    #[must_use]
    pub fn new(policy: Policy) -> Tracker {
        Tracker {
            policy,
            sites: FxHashMap::default(),
            last: Vec::new(),
            callers: FxHashSet::default(),
            looks: 0,
            room: policy.room,
        }
    }

    /// The word of a stack, the innermost call first, of a program that stands at `at`. Tells what was new in it.
    ///
    /// Calls that are still the ones of the stack before cost nothing and are no looks: their words are known.
    pub fn word(&mut self, at: u64, stack: &[Site], news: &mut dyn FnMut(News)) -> u64 {
        let same =
            self.last.iter().zip(stack.iter().rev()).take_while(|((last, _), now)| last == *now).count();
        let mut word = match same.checked_sub(1).map(|top| self.last[top]) {
            Some((site, word)) => called(word, site.id),
            None => ROOT,
        };
        self.last.truncate(same);
        for site in stack.iter().rev().skip(same) {
            if self.room > 0 {
                self.look(site.address, word, news);
            }
            self.last.push((*site, word));
            word = called(word, site.id);
        }
        self.look_at_caller(at, news);
        word
    }

    /// Looks at the call behind the last one.
    fn look(&mut self, site: u64, word: u64, news: &mut dyn FnMut(News)) {
        let Tracker { policy, room, .. } = self;
        let mut tell = |found| {
            if *room > 0 {
                *room -= 1;
                news(found);
            }
        };
        let known = self.sites.entry(site).or_default();
        if known.looks == policy.threshold && !known.hot {
            *known = Known { hot: true, ..Known::default() };
            tell(News::Hot { site });
        }
        known.looks = known.looks.saturating_add(1);
        let depth = u32::try_from(self.last.len()).unwrap_or(u32::MAX);
        let kept = !known.hot || depth.checked_rem(policy.every) == Some(0);
        if kept && known.words.insert(word) {
            tell(News::Word { site, word });
        }
        self.looks += 1;
        let caller = self.last.last().map(|(site, _)| site.address);
        if known.caller != caller {
            known.caller = caller;
            self.look_at_caller(site, news);
        }
    }

    /// Notes from where the function around `at` was called: the call that was looked at last.
    fn look_at_caller(&mut self, at: u64, news: &mut dyn FnMut(News)) {
        let Some((Site { address: caller, .. }, _)) = self.last.last().copied() else { return };
        if self.policy.every != 0 && self.room > 0 && self.callers.insert((at, caller)) {
            self.room -= 1;
            news(News::Caller { at, caller });
        }
    }

    /// How often a set was looked into.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.looks
    }
}
