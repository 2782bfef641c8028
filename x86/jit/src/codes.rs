//! The compiled regions: which code there is for an address, and whether it may be entered now.
//!
//! A region is keyed by its first address and the page that leads to, and holds for as long as all its pages lead to the frames they
//! led to and those hold what they held ([`Cpu::is_code`]). That is asked once in each turn: a small table by address alone answers
//! until mappings change or code is written.

mod plan;

use rustc_hash::FxHashMap;
use std::io;
use x86::bus::Bus;
use x86::cpu::{CodePage, Cpu};

use crate::around::LeftForWatched;
use crate::compiler::Compiled;
use crate::context::Context;
use crate::kept::{Kept, Piece};
use crate::links::Links;
use crate::native::{Arena, Code};
use crate::outcall::Outcalls;
use crate::region::Sought;
use crate::spread::Spread;
use plan::plan_of;
pub(crate) use plan::{Plan, plan};

/// Places in the table; a power of two.
const PLACES: usize = 1 << 12;

/// What there is for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing yet.
    Nothing,
    /// There is no code, and there will be none.
    Never,
    /// There is code that must not be entered now, since a run is to stop in the middle of it.
    NotNow,
    /// Code.
    Code(Code),
}

struct Entry<B: Bus> {
    plan: Plan<B>,
    known: Known,
}

#[derive(Clone, Copy)]
struct Place {
    rip: u64,
    /// The turn in which it was filled.
    turn: u64,
    known: Known,
}

pub(crate) struct Codes<B: Bus> {
    arena: Arena,
    /// What stays in the arena whatever is forgotten.
    gate: usize,
    entries: FxHashMap<(u64, CodePage), Entry<B>>,
    /// The code that is left in the state that was searched for last, and that state.
    searches: FxHashMap<(u64, CodePage), Entry<B>>,
    searched: Option<Sought>,
    /// The state that is searched for now.
    sought: Option<Sought>,
    places: Box<[Place]>,
    links: Links,
    turn: u64,
    spread: Spread,
    left_for_watched: LeftForWatched,
    /// Code of earlier runs, if any is kept.
    kept: Option<Kept>,
    /// Regions whose code was taken from there.
    taken: u64,
    /// What the turn holds for: the epoch of the CPU, and the addresses that no code may run over.
    epoch: u64,
    at: Vec<u64>,
}

#[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
const fn place(rip: u64) -> usize {
    (rip ^ rip >> 12) as usize % PLACES
}

impl<B: Bus> Codes<B> {
    /// No code but the `gate`, for good, and where that is; code that is `kept` is taken when it is found. All of it has so much `room`.
    ///
    /// # Errors
    /// When the host gives no memory for code.
    pub(crate) fn new(gate: &[u8], kept: Option<Kept>, room: usize) -> io::Result<(Codes<B>, Code)> {
        let mut arena = Arena::new(room)?;
        let code = arena.add(gate).ok_or_else(|| io::Error::other("no room for code"))?;
        let empty = Place { rip: 0, turn: 0, known: Known::Nothing };
        let codes = Codes {
            gate: arena.used(),
            arena,
            kept,
            taken: 0,
            entries: FxHashMap::default(),
            searches: FxHashMap::default(),
            searched: None,
            sought: None,
            places: vec![empty; PLACES].into(),
            links: Links::new(),
            turn: 1,
            spread: Spread::default(),
            left_for_watched: LeftForWatched::default(),
            epoch: 0,
            at: Vec::new(),
        };
        Ok((codes, code))
    }

    /// This state is searched for from now on, or none.
    pub(crate) fn seek(&mut self, sought: Option<Sought>) {
        if self.sought == sought {
            return;
        }
        if sought.is_some() && self.searched != sought {
            self.searches.clear();
            self.searched = sought;
        }
        self.sought = sought;
        self.begin_turn();
    }

    /// What there is for the code at `rip`, for a run that is to stop at the instructions `at`, in order.
    pub(crate) fn find(&mut self, cpu: &mut Cpu<B>, rip: u64, at: &[u64]) -> Known {
        if self.epoch != cpu.code_epoch() || !are_same(&self.at, at) {
            self.epoch = cpu.code_epoch();
            self.at.clear();
            self.at.extend_from_slice(at);
            self.begin_turn();
        }
        let Place { rip: found, turn, known } = self.places[place(rip)];
        if found == rip && turn == self.turn {
            return known;
        }
        let mut known = self.search(cpu, rip, at);
        if known == Known::Nothing && self.take_kept(cpu, rip) {
            known = self.search(cpu, rip, at);
        }
        self.places[place(rip)] = Place { rip, turn: self.turn, known };
        known
    }

    /// Takes the code that an earlier run has made of what is at `rip`; whether there is some.
    fn take_kept(&mut self, cpu: &mut Cpu<B>, rip: u64) -> bool {
        let pieces = self.kept.as_mut().map_or(&mut [][..], |kept| kept.at(rip));
        // What a state is searched for in is compiled for that search, and what looks around bytes is compiled anew.
        let sought = self.sought.map(|sought| sought.rip);
        let others = |piece: &Piece| {
            sought.into_iter().chain(self.left_for_watched.all()).any(|at| piece.source.has(at))
        };
        let mut pieces = pieces.iter_mut().filter(|piece| !others(piece));
        let found = pieces.find_map(|piece| Some((plan_of(cpu, rip, &piece.source)?, piece)));
        let Some((plan, piece)) = found else { return false };
        piece.is_used = true;
        self.taken += 1;
        let compiled = piece.compiled.clone();
        self.put(plan, Some(&compiled));
        true
    }

    /// The code of this run and of those before it, if any is to be kept.
    pub(crate) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// How many regions were taken from those of earlier runs.
    pub(crate) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether an earlier run has made code of what was at `rip` then.
    pub(crate) fn may_have_kept(&mut self, rip: u64) -> bool {
        self.kept.as_mut().is_some_and(|kept| !kept.at(rip).is_empty())
    }

    fn search(&self, cpu: &mut Cpu<B>, rip: u64, at: &[u64]) -> Known {
        let Some((page, _)) = cpu.code_page(rip) else { return Known::Nothing };
        let mut is_current = |entry: &&Entry<B>| entry.plan.pages.iter().all(|page| cpu.is_code(page));
        let searching = self.searches.get(&(rip, page)).filter(|_| self.sought.is_some());
        if let Some(Entry { known, .. }) = searching.filter(&mut is_current) {
            return *known;
        }
        let Some(Entry { plan, known }) = self.entries.get(&(rip, page)).filter(is_current) else {
            return Known::Nothing;
        };
        match at.iter().find(|at| plan.addresses.binary_search(at).is_ok()) {
            None => *known,
            Some(at) if self.sought.is_some_and(|sought| sought.rip == *at) => Known::Nothing,
            Some(_) => Known::NotNow,
        }
    }

    /// Lets code that goes to `rip` go on as `code`, until the turn ends.
    pub(crate) fn link(&mut self, rip: u64, code: Code) {
        self.links.add(rip, code);
    }

    pub(crate) fn point_to_links(&self, context: &mut Context) {
        self.links.point_to(context);
    }

    /// Notes that what the instruction at `rip` reaches for together has the end of a page in it, which begins at `page`. Where it does
    /// so too often, its code is forgotten, and made anew with less looked up together.
    pub(crate) fn note_spread(&mut self, rip: u64, page: u64, retired: u64) {
        if self.spread.note(rip, page, retired) {
            self.kept.iter_mut().for_each(|kept| kept.forget(rip));
            self.forget(rip);
        }
    }

    /// Notes that code was left before the instruction at `rip` since some bytes of a page are watched. Where it is too often,
    /// its code is forgotten, and made anew to look around them. That is not kept.
    pub(crate) fn note_left_for_watched(&mut self, rip: u64) {
        if self.left_for_watched.note(rip) {
            self.forget(rip);
        }
    }

    /// Forgets the code that has the instruction at `rip`.
    fn forget(&mut self, rip: u64) {
        let is_without = |entry: &Entry<B>| entry.plan.addresses.binary_search(&rip).is_err();
        self.entries.retain(|_, entry| is_without(entry));
        self.searches.retain(|_, entry| is_without(entry));
        self.begin_turn();
    }

    fn begin_turn(&mut self) {
        self.turn += 1;
        self.links.begin_turn();
    }

    /// Adds what was compiled of a region, as [`Codes::put`], and has it kept; not where more of it is to look around bytes by now.
    pub(crate) fn add(&mut self, mut plan: Plan<B>, compiled: Option<&Compiled>) {
        if self.left_for_watched.among(&plan.addresses) != plan.around {
            return;
        }
        if let (Some(source), Some(compiled), Some(kept)) = (plan.source.take(), compiled, &mut self.kept) {
            kept.add(plan.head, source, compiled.clone());
        }
        self.put(plan, compiled);
    }

    /// Puts in what was compiled of a region, or that nothing was; not for a search that is over. Code of pages that have changed
    /// meanwhile is never found.
    ///
    /// It may take the place of code that holds in this turn, when the region was found in another process, whose pages behind the
    /// first are others. Links lead to that code, and with its plan go the outcalls whose addresses it has: so the turn ends.
    fn put(&mut self, plan: Plan<B>, compiled: Option<&Compiled>) {
        let Some(first) = plan.pages.first().copied() else { return };
        if plan.sought.is_some() && plan.sought != self.searched {
            return;
        }
        let known = compiled.map_or(Known::Never, |compiled| self.install(compiled, &plan.outcalls));
        self.places[place(plan.head)].turn = 0;
        let entries = if plan.sought.is_some() { &mut self.searches } else { &mut self.entries };
        if entries.insert((plan.head, first), Entry { plan, known }).is_some() {
            self.begin_turn();
        }
    }

    fn install(&mut self, compiled: &Compiled, outcalls: &Outcalls<B>) -> Known {
        let Some(bytes) = with_addresses(compiled, outcalls) else { return Known::Never };
        let mut code = self.arena.add(&bytes);
        if code.is_none() {
            self.forget_all();
            code = self.arena.add(&bytes);
        }
        code.map_or(Known::Never, Known::Code)
    }

    fn forget_all(&mut self) {
        self.entries.clear();
        self.searches.clear();
        self.spread.clear();
        self.begin_turn();
        self.arena.clear_behind(self.gate);
    }
}

/// The bytes of code with the addresses of what it calls.
fn with_addresses<B: Bus>(compiled: &Compiled, outcalls: &Outcalls<B>) -> Option<Vec<u8>> {
    let mut bytes = compiled.bytes.clone();
    for it in &compiled.outcalls {
        let place = bytes.get_mut(it.at as usize..)?.first_chunk_mut()?;
        *place = outcalls.address(it.number)?.to_le_bytes();
    }
    Some(bytes)
}

/// Whether two lists are the same, one by one. Most often both are empty, and the C library compares memory by a masked load: from a
/// page that is not mapped, as the address of an empty list is, Intel's processors take a hundred nanoseconds for one, even where
/// the mask is empty.
fn are_same(a: &[u64], b: &[u64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b)
}

#[cfg(test)]
mod tests {
    use x86::bus::PAGE_SIZE;
    use x86::flat::{Flat, Protection};

    use super::*;
    use crate::native::make_bits;

    const HEAD: u64 = 0x40_0000;
    const SECOND: u64 = HEAD + PAGE_SIZE;

    fn plan_of_both_pages(cpu: &mut Cpu<Flat>) -> Plan<Flat> {
        let pages = [HEAD, SECOND].map(|va| cpu.code_page(va).unwrap().0).to_vec();
        Plan {
            head: HEAD,
            pages,
            addresses: vec![HEAD],
            sought: None,
            outcalls: Outcalls::new(),
            around: 0,
            source: None,
        }
    }

    #[test]
    fn no_link_leads_to_code_whose_place_other_code_has_taken() {
        let mut memory = Flat::new();
        for page in 0..3 {
            memory.map(HEAD + page * PAGE_SIZE, &[0x90], Protection::CODE);
        }
        let mut cpu = Cpu::new(memory);
        let (mut codes, _) = Codes::<Flat>::new(&[], None, 1 << 12).unwrap();
        let compiled = Compiled { bytes: vec![0xc3], outcalls: Vec::new() };
        let turn = |codes: &Codes<Flat>| {
            let mut context = Context::new(make_bits);
            codes.point_to_links(&mut context);
            context.turn
        };
        let first = plan_of_both_pages(&mut cpu);
        codes.add(first, Some(&compiled));

        // Another process has the first page and another second one. Its region is being compiled when the first process goes on.
        cpu.bus_mut().alias(SECOND, 2 * PAGE_SIZE, Protection::CODE);
        cpu.flush_tlb();
        assert_eq!(codes.find(&mut cpu, HEAD, &[]), Known::Nothing);
        let second = plan_of_both_pages(&mut cpu);
        cpu.bus_mut().alias(SECOND, PAGE_SIZE, Protection::CODE);
        cpu.flush_tlb();
        let Known::Code(code) = codes.find(&mut cpu, HEAD, &[]) else { panic!("the first code holds") };
        codes.link(HEAD, code);

        let linked = turn(&codes);
        codes.add(second, Some(&compiled));
        assert_ne!(turn(&codes), linked, "the link holds no more");
        assert_eq!(codes.find(&mut cpu, HEAD, &[]), Known::Nothing);
    }
}
