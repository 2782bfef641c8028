//! What the processors of a memory have yet to forget of it.

use super::{Phys, StalePage};

/// So many stale pages are told one by one; more are told as "all".
const MOST_STALE: usize = 1 << 16;

/// What is no longer true of translations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stale {
    /// These pages.
    pub pages: Vec<StalePage>,
    /// And all others.
    pub all: bool,
    /// Frames that hold something else than before, without a translation that is no longer true: for processors that keep
    /// what they derived from a frame's bytes.
    pub rewritten: Vec<Phys>,
    /// And all other frames.
    pub all_rewritten: bool,
    /// And frames that code is executed from may hold something else.
    pub code_unseen: bool,
    /// Frames that were page tables are in use again, as whatever else.
    pub tables: bool,
}

impl Stale {
    /// Whether there is nothing to forget. Field by field: to compare two empty lists calls memcmp with addresses where nothing is
    /// mapped, and its vector instructions take 0.1 µs to find that they need not read there.
    fn is_nothing(&self) -> bool {
        let Stale { pages, all, rewritten, all_rewritten, code_unseen, tables } = self;
        pages.is_empty() && rewritten.is_empty() && !(*all || *all_rewritten || *code_unseen || *tables)
    }

    /// Nothing is to be relied on.
    fn everything() -> Stale {
        Stale { all: true, all_rewritten: true, ..Stale::default() }
    }

    fn add_pages(&mut self, pages: &[StalePage]) {
        self.pages.extend_from_slice(pages);
        if self.pages.len() > MOST_STALE {
            self.pages.clear();
            self.all = true;
            self.all_rewritten = true;
        }
    }

    fn add_rewritten(&mut self, frame: Phys) {
        if self.rewritten.len() >= MOST_STALE {
            self.rewritten.clear();
            self.all_rewritten = true;
        }
        self.rewritten.push(frame);
    }
}

/// What the processor that runs has to forget before it runs again, and the other one, where two take turns.
#[derive(Debug, Default)]
pub(super) struct Stales {
    now: Stale,
    /// Of the processor that does not run; `None` where there is one alone.
    away: Option<Stale>,
    /// A frame may be written by a translation and executed by another, so that code changes without a word.
    unseen: bool,
}

impl Stales {
    pub(super) fn pages(&mut self, pages: impl IntoIterator<Item = StalePage>) {
        let pages: Vec<StalePage> = pages.into_iter().collect();
        self.each(|stale| stale.add_pages(&pages));
    }

    pub(super) fn rewritten(&mut self, frame: Phys) {
        self.each(|stale| stale.add_rewritten(frame));
    }

    pub(super) fn everything(&mut self) {
        self.each(|stale| *stale = Stale { tables: stale.tables, ..Stale::everything() });
    }

    fn each(&mut self, change: impl Fn(&mut Stale)) {
        change(&mut self.now);
        self.away.iter_mut().for_each(change);
    }

    /// Whether there is something to forget for the one that runs.
    pub(super) fn is_any(&self) -> bool {
        !self.now.is_nothing()
    }

    pub(super) fn take(&mut self) -> Stale {
        std::mem::take(&mut self.now)
    }

    /// The other processor runs from here on; one that has not run in this memory before has everything to forget.
    pub(super) fn exchange(&mut self) {
        let mut next = self.away.take().unwrap_or_else(Stale::everything);
        next.code_unseen |= self.unseen;
        self.away = Some(std::mem::replace(&mut self.now, next));
    }

    pub(super) fn has_two(&self) -> bool {
        self.away.is_some()
    }

    /// Tells the processor that does not run of tables that are used again.
    pub(super) fn tables_are_used_again(&mut self) {
        self.away.iter_mut().for_each(|away| away.tables = true);
    }

    pub(super) fn code_changes_unseen(&mut self) {
        self.unseen = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: StalePage = StalePage { page: 0x1000, frame: 0x2000 };

    #[test]
    fn many_stale_pages_become_all() {
        let mut stales = Stales::default();
        stales.pages((0..).take(MOST_STALE + 1).map(|n| StalePage { page: n << 12, frame: 0 }));
        let stale = stales.take();
        assert!(stale.all && stale.all_rewritten && stale.pages.is_empty());
        assert_eq!(stales.take(), Stale::default());
    }

    #[test]
    fn each_of_two_processors_hears_what_it_missed() {
        let mut stales = Stales::default();
        assert_eq!(stales.take(), Stale::default());
        stales.exchange();
        assert_eq!(stales.take(), Stale::everything(), "it is new");
        stales.pages([PAGE]);
        assert_eq!(stales.take().pages, [PAGE]);
        stales.rewritten(0x3000);
        stales.exchange();
        let missed = Stale { pages: vec![PAGE], rewritten: vec![0x3000], ..Stale::default() };
        assert_eq!(stales.take(), missed);
        stales.exchange();
        assert_eq!(stales.take().rewritten, [0x3000], "the page was told before");
    }

    #[test]
    fn where_code_changes_unseen_all_that_is_decoded_is_compared() {
        let mut stales = Stales::default();
        stales.exchange();
        stales.take();
        stales.code_changes_unseen();
        stales.exchange();
        let stale = stales.take();
        assert!(stale.code_unseen && !stale.all && !stale.all_rewritten);
    }
}
